"""What the laws share: inputs of a row drawn from its domain, and comparing in units of the last place."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

import isthmus.core as mx
from tests.laws.cases import FLOATS, INEXACT, SPECIAL, Case, Shapes

Values = list[np.ndarray]

HOST: dict[str, Any] = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "bool_": np.dtype(bool)}


def host_dtype(name: str) -> np.dtype:
    return HOST.get(name) or np.dtype(name)


def rng_of(*what: object) -> np.random.Generator:
    """The same numbers each time for the same `what`."""
    return np.random.default_rng(zlib.crc32(" ".join(map(str, what)).encode()))


def draw(case: Case, shapes: Shapes, dtype: str, extra: object = "") -> Values:
    """Arrays of `dtype` from the row's domain."""
    rng = rng_of(case, shapes, dtype, extra)
    (low, high), to = case.domain, host_dtype(dtype)
    out = []
    for shape in shapes:
        if to.kind == "b":
            values: Any = rng.random(shape) < 0.5
        elif to.kind in "iu":
            values = rng.integers(max(int(np.ceil(low)), 0 if to.kind == "u" else -128), min(int(high), 127) + 1, shape)
        elif to.kind == "c":
            values = rng.uniform(low, high, shape) + 1j * rng.uniform(low, high, shape)
        else:
            values = rng.uniform(low, high, shape)
        out.append(np.asarray(values).astype(to))
    return out


def extremes(case: Case, n_arrays: int, dtype: str) -> Values:
    """Each extreme of the dtype beside each other."""
    with np.errstate(invalid="ignore"):
        values = np.array(SPECIAL[dtype], None if dtype in FLOATS else host_dtype(dtype)).astype(host_dtype(dtype))
    return [values] if n_arrays == 1 else [values[:, None], values[None, :]]


def arrays(values: Values) -> list[mx.array]:
    made = [array(v) for v in values]
    mx.eval(made)
    return made


def array(v: np.ndarray) -> mx.array:
    """`mx.array` makes float32 of float64 if not told otherwise."""
    return mx.array(v, dtype=mx.float64) if v.dtype == np.float64 else mx.array(v)


def numbers(x: mx.array) -> np.ndarray:
    """The values; floats as float64."""
    a = np.array(x)
    return a.astype(np.float64) if mx.issubdtype(x.dtype, mx.floating) else a


def bits(x: mx.array) -> bytes:
    return np.array(x).tobytes()


def same_bits(a: mx.array, b: mx.array) -> bool:
    """Equal bits, whatever the bits of a NaN; a NaN is one in both."""
    x, y = np.array(a), np.array(b)
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    if x.tobytes() == y.tobytes():
        return True
    if mx.issubdtype(a.dtype, mx.inexact):
        if x.dtype.kind == "c":
            x, y = (np.ascontiguousarray(v).view(np.float32) for v in (x, y))
        nan = np.isnan(x)
        words = f"u{x.dtype.itemsize}"
        return bool(np.array_equal(nan, np.isnan(y)) and np.array_equal(np.ascontiguousarray(x).view(words)[~nan], np.ascontiguousarray(y).view(words)[~nan]))
    return False


def expected(case: Case, values: Values, result: mx.Dtype, function: Callable[..., Any] | None = None) -> np.ndarray:
    """The reference's answer, in the widest numbers it takes."""
    function = function or case.reference
    real_result = mx.issubdtype(result, mx.inexact)
    with np.errstate(all="ignore"):
        if all(v.dtype.kind in "biu" for v in values):
            if not real_result:
                return np.asarray(function(*values))
            values = [v.astype(dtype_name(result)).astype(np.float64) for v in values]
        if any(v.dtype.kind == "c" for v in values):
            return np.asarray(function(*[v.astype(np.complex128) for v in values]))
        if any(v.dtype == np.float64 for v in values):
            try:
                return np.asarray(function(*[v.astype(np.longdouble) for v in values]))
            except TypeError:
                pass
        return np.asarray(function(*[v.astype(np.float64) for v in values]))


def last_place(size: np.ndarray, dtype: mx.Dtype) -> np.ndarray:
    """The unit of the last place of numbers of this size in `dtype`."""
    info = ml_dtypes.finfo(dtype_name(dtype))
    normal = np.maximum(np.nan_to_num(np.abs(size), nan=0, posinf=0), float(info.smallest_normal))
    _, exponent = np.frexp(normal)
    return np.ldexp(np.longdouble(float(info.eps)), exponent - 1)


def dtype_name(dtype: mx.Dtype) -> Any:
    if dtype == mx.complex64:
        return np.dtype(np.float32)
    return host_dtype(str(dtype).split(".")[-1])


def check(got: mx.array, want: np.ndarray, ulp: float, size: np.ndarray | None = None, what: object = "") -> None:
    """Within `ulp` units of the last place of the result, or of `size` where that is larger."""
    g = np.array(got)
    assert g.shape == want.shape, f"{what}: shape {g.shape}, not {want.shape}"
    if not mx.issubdtype(got.dtype, mx.inexact):
        with np.errstate(invalid="ignore"):
            wanted = want.astype(g.dtype)  # integers wrap
        wrong = g != wanted
        assert not wrong.any(), f"{what}: {g[wrong][:4]}, not {wanted[wrong][:4]}"
        return
    with np.errstate(all="ignore"):
        is_complex = g.dtype.kind == "c"
        wide = np.complex128 if is_complex else np.longdouble
        rounded = want.astype(g.dtype)  # overflows to infinity as the result does
        unit = last_place(np.abs(want) if size is None else np.maximum(np.abs(want), np.abs(size)), got.dtype)
        off = np.abs(g.astype(wide) - want.astype(wide)) / unit
        if is_complex:
            fine = (g == rounded) | (np.isnan(g) & np.isnan(rounded)) | (off <= ulp)
        else:
            largest = float(ml_dtypes.finfo(dtype_name(got.dtype)).max)
            # Between the largest number and infinity the last place counts as well.
            at_end = (np.isinf(g.astype(np.float64)) != np.isinf(rounded.astype(np.float64))) & (np.abs(want) > largest * (1 - 1e-6)) & (np.sign(g.astype(np.float64)) == np.sign(want))
            fine = (g == rounded) | (np.isnan(g) & np.isnan(rounded)) | (off <= ulp) | (at_end & (ulp > 0.5))
    if not fine.all():
        worst = float(np.max(np.where(fine, 0, np.where(np.isfinite(off), off, np.inf))))
        bad = ~fine
        raise AssertionError(f"{what}: {worst:.2f} units of the last place: got {g[bad][:4]}, not {want[bad][:4]}")


def tolerance(case: Case, dtype: mx.Dtype) -> float:
    return case.half if dtype in (mx.float16, mx.bfloat16) else case.ulp


def size_of_terms(case: Case, values: Values, result: mx.Dtype) -> np.ndarray | None:
    return None if case.terms is None else np.abs(expected(case, [np.abs(v.astype(np.complex128)).astype(np.float64) for v in values], result, case.terms))


def is_inexact(dtype: str) -> bool:
    return dtype in INEXACT


def call(case: Case, xs: Sequence[mx.array]) -> mx.array:
    return case.function(mx, *xs)
