"""The laws, each over every row of tests/laws/cases.py: value, jvp, vjp, vmap, and that fusion and held values change no bit."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

import isthmus.core as mx
from tests.laws.cases import CASES, Case

SMOOTH = [c for c in CASES if c.smooth]


def draw(case: Case, shape: Any, dtype: str, extra: str = "") -> list[np.ndarray]:
    """Values of `dtype`, as float64 (or integers), from the row's domain."""
    rng = np.random.default_rng(zlib.crc32(f"{case} {shape} {dtype} {extra}".encode()))
    shapes = shape if shape and isinstance(shape[0], tuple) else [shape] * case.arity
    low, high = case.domain
    out = []
    for s in shapes:
        if dtype.startswith(("int", "uint")):
            values = rng.integers(max(int(low), 0 if dtype[0] == "u" else -3), int(high) + 1, s)
        else:
            values = np.asarray(rng.uniform(low, high, s))
        out.append(np.array(mx.array(values, dtype=getattr(mx, dtype)).astype(_wide(dtype))))
    return out


def _wide(dtype: str) -> mx.Dtype:
    return mx.int64 if dtype.startswith(("int", "uint")) else mx.float64


def arrays(values: list[np.ndarray], dtype: str) -> list[mx.array]:
    made = [mx.array(v, dtype=_wide(dtype)).astype(getattr(mx, dtype)) for v in values]
    mx.eval(made)
    return made


def numbers(x: mx.array) -> np.ndarray:
    """As float64, or as integers."""
    return np.array(x.astype(mx.float64)) if mx.issubdtype(x.dtype, mx.floating) else np.array(x)


def bits(x: mx.array) -> bytes:
    return np.array(x.view(mx.uint16) if x.dtype == mx.bfloat16 else x).tobytes()


def close(got: mx.array, want: np.ndarray, ulp: float, scale: float = 0.0) -> None:
    """Within `ulp` units of the last place of the result, or of `scale` if that is larger."""
    g = numbers(got)
    assert g.shape == np.shape(want)
    if not mx.issubdtype(got.dtype, mx.floating):
        np.testing.assert_array_equal(g, np.asarray(want).astype(g.dtype))  # integers wrap
        return
    info = mx.finfo(got.dtype)
    size = np.maximum(np.abs(want), max(scale, float(info.smallest_normal) if hasattr(info, "smallest_normal") else 1e-30))
    off = np.abs(g - want) / (float(info.eps) * size)
    assert not g.size or np.nanmax(off) <= ulp, f"{np.nanmax(off):.2f} units of the last place"
    np.testing.assert_array_equal(np.isnan(g), np.isnan(want))


def scale_of(case: Case, values: list[np.ndarray]) -> float:
    """The largest term of a sum, for ops that add up."""
    sums = case.ulp > 4
    return max((float(np.max(np.abs(v))) if v.size else 0.0) for v in values) ** (2 if case.ulp >= 16 else 1) if sums else 0.0


@pytest.mark.parametrize("case", CASES, ids=str)
def test_value_is_numpys(case):
    for dtype in case.dtypes:
        for shape in case.shapes:
            values = draw(case, shape, dtype)
            with np.errstate(all="ignore"):
                want = np.asarray(case.reference(*values))
            got = case.f(*arrays(values, dtype))
            close(got, want.astype(np.float64) if mx.issubdtype(got.dtype, mx.floating) else want, case.ulp, scale_of(case, values))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_views_and_layouts_change_nothing(case):
    """Transposed, flipped and strided inputs, held or not, have the values of contiguous ones."""
    for shape in case.shapes:
        values = draw(case, shape, "float32") if "float32" in case.dtypes else draw(case, shape, case.dtypes[0])
        dtype = "float32" if "float32" in case.dtypes else case.dtypes[0]
        plain = case.f(*arrays(values, dtype))
        swapped = [x.T for x in arrays([np.array(v.T, order="C") for v in values], dtype)]
        padded = [x[tuple(slice(None, None, 2) for _ in x.shape)] for x in arrays([_spread(v) for v in values], dtype)]
        flipped = [x[tuple(slice(None, None, -1) for _ in x.shape)] for x in arrays([v[(slice(None, None, -1),) * v.ndim] for v in values], dtype)]
        mx.eval(swapped)
        for inputs in (swapped, padded, flipped):
            other = case.f(*inputs)
            assert other.shape == plain.shape
            close(other, numbers(plain), 3 * case.ulp, scale_of(case, values))  # sums in another order


def _spread(v: np.ndarray) -> np.ndarray:
    out = np.full([2 * n for n in v.shape], 77, v.dtype)
    out[tuple(slice(None, None, 2) for _ in v.shape)] = v
    return out


@pytest.mark.parametrize("case", CASES, ids=str)
def test_fused_or_not_the_bits_are_equal(case):
    """Between other ops, with everything held, evaluated on the way, or nothing of it: equal bits."""
    for dtype in case.dtypes:
        shape = case.shapes[-1]
        inputs = arrays(draw(case, shape, dtype), dtype)

        def graph(look, inputs=inputs):
            a = [look(x * 1) for x in inputs]
            y = look(case.f(*a))
            z = look(y + y) if y.dtype != mx.bool_ else y
            return [y, z, look(z.sum()) if z.dtype != mx.bool_ else z]

        def seen(x):
            mx.eval(x)
            return x

        each = [bits(x) for x in graph(seen)]
        free = graph(lambda x: x)
        mx.eval(free[::-1])
        assert each == [bits(x) for x in free]
        last = graph(lambda x: x)[2]
        assert bits(last) == each[2]


def directions(case: Case, values: list[np.ndarray], extra: str) -> list[np.ndarray]:
    rng = np.random.default_rng(zlib.crc32(f"{case} {extra}".encode()))
    return [rng.uniform(-1, 1, v.shape) for v in values]


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_jvp_is_a_finite_difference(case):
    for shape in case.shapes:
        values = draw(case, shape, "float64")
        ts = directions(case, values, "t")
        h = 1e-6
        want = (case.reference(*[v + h * t for v, t in zip(values, ts)]) - case.reference(*[v - h * t for v, t in zip(values, ts)])) / (2 * h)
        _, (got,) = mx.jvp(case.f, arrays(values, "float64"), arrays(ts, "float64"))
        np.testing.assert_allclose(numbers(got), want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_vjp_is_the_transpose_of_jvp(case):
    for shape in case.shapes:
        values = draw(case, shape, "float64")
        xs, ts = arrays(values, "float64"), arrays(directions(case, values, "t"), "float64")
        (y,), (ty,) = mx.jvp(case.f, xs, ts)
        rng = np.random.default_rng(zlib.crc32(str(case).encode()))
        ct = mx.array(rng.uniform(-1, 1, y.shape), dtype=mx.float64)
        _, back = mx.vjp(case.f, xs, [ct])
        left = float((ct * ty).sum().item())
        right = float(sum((b * t).sum().item() for b, t in zip(back, ts)))
        assert left == pytest.approx(right, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("case", [c for c in CASES if c.batch], ids=str)
def test_vmap_is_a_loop(case):
    dtype = "float32" if "float32" in case.dtypes else case.dtypes[0]
    for shape in case.shapes:
        rows = [draw(case, shape, dtype, str(k)) for k in range(3)]
        stacked = arrays([np.stack(column) for column in zip(*rows)], dtype)
        got = mx.vmap(case.f)(*stacked)
        loop = [case.f(*arrays(row, dtype)) for row in rows]
        assert got.shape == (3, *loop[0].shape)
        for k in range(3):
            close(got[k], numbers(loop[k]), case.ulp, scale_of(case, rows[k]))
        if case.smooth:
            grad = mx.grad(lambda *a: case.f(*a).astype(mx.float32).sum())
            many = mx.vmap(grad)(*stacked)
            for k in range(3):
                one = numbers(grad(*arrays(rows[k], dtype)))
                np.testing.assert_allclose(numbers(many[k]), one, rtol=2e-5, atol=2e-5)
