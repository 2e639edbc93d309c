"""jvp is a finite difference of the reference, vjp its transpose, vmap a loop, also over grad and jvp."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import isthmus.core as mx
from tests.laws.cases import CASES, Case
from tests.laws.drawn import Values, array, arrays, call, check, draw, numbers, rng_of, size_of_terms, tolerance

SMOOTH = [c for c in CASES if c.smooth]
STEP = 1e-6


def smooth_dtypes(case: Case) -> list[str]:
    return [d for d in ("float64", "complex64") if d in case.dtypes] or ["float32"]


def directions(case: Case, values: Values, extra: str) -> Values:
    rng = rng_of(case, extra)
    return [np.asarray(rng.uniform(-1, 1, v.shape) + (1j * rng.uniform(-1, 1, v.shape) if v.dtype.kind == "c" else 0)).astype(v.dtype) for v in values]


def wide(v: np.ndarray) -> np.ndarray:
    return v.astype(np.complex128 if v.dtype.kind == "c" else np.float64)


def difference(case: Case, values: Values, ts: Values) -> np.ndarray:
    ahead, behind = ([wide(v) + sign * STEP * wide(t) for v, t in zip(values, ts, strict=True)] for sign in (1, -1))
    with np.errstate(all="ignore"):
        return (np.asarray(case.reference(*ahead)) - np.asarray(case.reference(*behind))) / (2 * STEP)


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_jvp_is_a_finite_difference(case: Case):
    for dtype in smooth_dtypes(case):
        for shapes in case.shapes:
            values = draw(case, shapes, dtype)
            ts = directions(case, values, "t")
            (y,), (got,) = mx.jvp(lambda *xs: call(case, xs), arrays(values), arrays(ts))
            assert (got.shape, got.dtype) == (y.shape, y.dtype)
            near = 3e-5 if dtype == "float64" else 2e-3
            np.testing.assert_allclose(numbers(got), difference(case, values, ts), rtol=near, atol=near, err_msg=f"{dtype} {shapes}")


def inner(a: list[mx.array], b: list[mx.array]) -> float:
    """The real inner product, as float64."""
    return float(sum(np.sum(np.real(np.conj(wide(np.array(x))) * wide(np.array(y)))) for x, y in zip(a, b, strict=True)))


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_vjp_is_the_transpose_of_jvp(case: Case):
    for dtype in smooth_dtypes(case):
        for shapes in case.shapes:
            values = draw(case, shapes, dtype)
            xs, ts = arrays(values), arrays(directions(case, values, "t"))
            f = lambda *xs: call(case, xs)
            ys, ty = mx.jvp(f, xs, ts)
            cts = arrays(directions(case, [np.array(y) for y in ys], "ct"))
            again, back = mx.vjp(f, xs, cts)
            assert [b.shape for b in back] == [x.shape for x in xs] and [b.dtype for b in back] == [x.dtype for x in xs]
            assert [np.array(a).tobytes() for a in again] == [np.array(y).tobytes() for y in ys]
            near = 1e-10 if dtype == "float64" else 1e-4
            assert inner(cts, ty) == pytest.approx(inner(back, ts), rel=near, abs=near), f"{dtype} {shapes}"


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_second_derivatives_agree(case: Case):
    """The gradient's jvp (forward over reverse) is the gradient of the jvp (reverse over forward)."""
    dtype = smooth_dtypes(case)[0]
    shapes = case.shapes[-1]
    xs = arrays(draw(case, shapes, dtype))
    ts = arrays(directions(case, [np.array(x) for x in xs], "t"))

    def loss(*a: mx.array) -> mx.array:
        return mx.real(mx.sin(call(case, a) * 0.5).sum())

    one = mx.grad(loss, argnums=tuple(range(len(xs))))
    as_tuple = (lambda *a: list(one(*a))) if len(xs) > 1 else (lambda *a: [one(*a)] if isinstance(one(*a), mx.array) else list(one(*a)))
    _, forward = mx.jvp(as_tuple, xs, ts)
    along = mx.grad(lambda *a: mx.jvp(loss, list(a), ts)[1][0], argnums=tuple(range(len(xs))))(*xs)
    for f, r in zip(forward, [along] if isinstance(along, mx.array) else along, strict=True):
        near = 1e-9 if dtype == "float64" else 1e-3
        np.testing.assert_allclose(numbers(f), numbers(r), rtol=near, atol=near)


N = 3


def batches(case: Case, shapes: Any, dtype: str) -> list[tuple[tuple[Any, ...], list[mx.array], list[list[mx.array]]]]:
    """(in_axes, batched arguments, arguments of each example): all along the first axis, each alone along the last."""
    rows = [draw(case, shapes, dtype, k) for k in range(N)]
    out = []
    for alone in (None, *(range(len(shapes)) if len(shapes) > 1 else (0,))):
        axes = tuple(0 if alone is None else len(s) if k == alone else None for k, s in enumerate(shapes))
        args = [array(rows[0][k] if a is None else np.stack([r[k] for r in rows], a)) for k, a in enumerate(axes)]
        each = [[array(rows[0 if a is None else n][k]) for k, a in enumerate(axes)] for n in range(N)]
        out.append((axes, args, each))
    return out


@pytest.mark.parametrize("case", [c for c in CASES if c.batch], ids=str)
def test_vmap_is_a_loop(case: Case):
    dtype = case.dtypes[0]
    for shapes in case.shapes[:: max(1, len(case.shapes) // 4)]:
        for axes, args, each in batches(case, shapes, dtype):
            got = mx.vmap(lambda *xs: call(case, xs), in_axes=axes)(*args)
            assert len(got) == N
            for k, one in enumerate(each):
                want = call(case, one)
                assert got.dtype == want.dtype
                check(got[k], numbers(want), 2 * tolerance(case, want.dtype), size_of_terms(case, [np.array(x) for x in one], want.dtype), f"{axes} {shapes}")


@pytest.mark.parametrize("case", [c for c in SMOOTH if c.batch], ids=str)
def test_vmap_of_derivatives_is_a_loop(case: Case):
    dtype = smooth_dtypes(case)[0]
    for shapes in case.shapes[-1:]:
        numbers_of = tuple(range(len(shapes)))

        def gradient(*xs: mx.array) -> list[mx.array]:
            out = mx.grad(lambda *a: mx.real(call(case, a)).sum(), argnums=numbers_of)(*xs)
            return [out] if isinstance(out, mx.array) else list(out)

        def push(*xs: mx.array) -> list[mx.array]:
            return mx.jvp(lambda *a: call(case, a), list(xs), [x * 0.5 for x in xs])[1]

        near = 1e-9 if dtype == "float64" else 1e-4
        for axes, args, each in batches(case, shapes, dtype):
            for f in (gradient, push):
                got = mx.vmap(f, in_axes=axes)(*args)
                loop = [f(*one) for one in each]
                for q in range(len(got)):
                    for k in range(N):
                        np.testing.assert_allclose(numbers(got[q][k]), numbers(loop[k][q]), rtol=near, atol=near, err_msg=f"{f.__name__} {axes} {shapes}")
