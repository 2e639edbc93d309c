"""One row an op: what it is in NumPy, where it is tried, and how far it may be off. Each file of this room runs its law over every row.

A row's function takes the module (`isthmus.core`, or MLX's wheel) and the arrays; its reference takes NumPy arrays of
float64, longer floats or complex128, or of the very integers and booleans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import scipy.special

HALVES = ("float16", "bfloat16")
FLOATS = ("float32", *HALVES, "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTS = (*SIGNED, *UNSIGNED)
REALS = (*FLOATS, "int32", "uint8", "bool_")
INEXACT = (*FLOATS, "complex64")
ANY = (*INEXACT, *INTS, "bool_")
FEW = ("float32", "bfloat16", "int8", "bool_", "complex64")  # for what only moves elements

Shapes = tuple[tuple[int, ...], ...]  # one for each array


@dataclass(frozen=True)
class Case:
    """A row.

    Attributes:
        name: For the test's id; its first word is the public function it is about.
        function: The op: `(module, *arrays) -> array`.
        reference: The same in NumPy: `(*arrays) -> array`.
        shapes: For each trial, the shapes of the arrays.
        domain: Values are drawn between these.
        dtypes: In which it is tried.
        ulp: Allowed error in units of the last place of the result; 16-bit floats are allowed `half`.
        terms: For sums: of arrays of magnitudes, the size of what is added up, in whose last places errors count.
        half: See `ulp`.
        smooth: Whether derivatives are compared (where they are not, they are zero or there is a kink in the domain).
        exact: Whether every reader must give the same bits (casts, moves, comparisons, `+ - * /`, sqrt, reductions).
        extremes: Whether it is tried on NaN, infinities, zeros, subnormals and the ends of the integers' ranges.
        batch: Whether it can be carried over a batch.
    """

    name: str
    function: Callable[..., Any]
    reference: Callable[..., Any]
    shapes: tuple[Shapes, ...]
    domain: tuple[float, float] = (-3.0, 3.0)
    dtypes: Sequence[str] = FLOATS
    ulp: float = 2.0
    terms: Callable[..., Any] | None = None
    half: float = 1.0
    smooth: bool = True
    exact: bool = False
    extremes: bool = False
    batch: bool = True

    def __str__(self) -> str:
        return self.name


# --- how rows are written ---

ONE: tuple[Shapes, ...] = (((),), ((0, 3),), ((1,),), ((7,),), ((2, 1, 4),), ((3, 33),))
TWO: tuple[Shapes, ...] = (
    ((), ()), ((0, 3), (0, 3)), ((0, 3), (1, 3)), ((5, 7), (5, 7)), ((2, 1, 4), (3, 1)), ((5, 1), (1, 7)), ((), (3, 2)), ((3, 33), (33,)),
)  # fmt: skip
THREE: tuple[Shapes, ...] = tuple((s[0], *s) for s in TWO)


def each(*shapes: tuple[int, ...]) -> tuple[Shapes, ...]:
    """One array, of each of these shapes."""
    return tuple((s,) for s in shapes)


def pairs(*shapes: tuple[int, ...]) -> tuple[Shapes, ...]:
    return tuple((s, s) for s in shapes)


def of(name: str, reference: Callable[..., Any], shapes: tuple[Shapes, ...], call: Callable[..., Any] | None = None, **how: Any) -> Case:
    """A row; `call` is the function, where it takes more than the arrays."""
    op = name.split()[0]
    return Case(name, call or (lambda m, *xs: getattr(m, op)(*xs)), reference, shapes, **how)


def unary(name: str, reference: Any = None, **how: Any) -> Case:
    return of(name, reference or getattr(np, name), ONE, extremes=how.pop("extremes", True), **how)


def binary(name: str, reference: Any = None, **how: Any) -> Case:
    return of(name, reference or getattr(np, name), TWO, extremes=how.pop("extremes", True), **how)


def is_float(x: Any) -> bool:
    return np.asarray(x).dtype.kind in "fc"


def like(x: Any, value: Any) -> Any:
    return np.asarray(value, np.asarray(x).dtype)


# --- references that NumPy has not, or has otherwise ---


def floor_divide(a: Any, b: Any) -> Any:
    """Integers over zero give 0, the least integer by -1 itself."""
    if is_float(a):
        return np.floor(a / b)
    if a.dtype == bool:
        return a & b
    negated = (b == -1) if a.dtype.kind == "i" else np.zeros(b.shape, bool)
    safe = np.where((b == 0) | negated, like(b, 1), b)
    return np.where(b == 0, like(a, 0), np.where(negated, -a, a // safe)).astype(a.dtype)


def remainder(a: Any, b: Any) -> Any:
    if is_float(a):
        return np.remainder(a, b)
    if a.dtype == bool:
        return a & ~b
    negated = (b == -1) if a.dtype.kind == "i" else np.zeros(b.shape, bool)
    safe = np.where((b == 0) | negated, like(b, 1), b)
    return np.where(b == 0, a, np.where(negated, like(a, 0), a % safe)).astype(a.dtype)


def power(a: Any, b: Any) -> Any:
    """Integers wrap; 0 for a negative exponent."""
    if is_float(a):
        return np.power(a, b)
    if a.dtype == bool:
        return a | ~b
    a, b = np.broadcast_arrays(a, b)
    out = np.empty(a.shape, a.dtype)
    for k in np.ndindex(a.shape):
        out[k] = np.array(0 if b[k] < 0 else pow(int(a[k]), int(b[k]), 1 << 8 * a.dtype.itemsize), np.uint64).astype(a.dtype)
    return out


def shift(left: bool) -> Callable[[Any, Any], Any]:
    def reference(a: Any, b: Any) -> Any:
        bits = 8 * a.dtype.itemsize
        count = np.minimum(b, np.uint64(999)).astype(np.int64) if b.dtype == np.uint64 else b.astype(np.int64)
        inside = (count >= 0) & (count < bits)
        n = np.where(inside, count, 0).astype(a.dtype)
        if left:
            return np.where(inside, a << n, like(a, 0))
        return np.where(inside, a >> n, np.where(a < 0, like(a, -1 if a.dtype.kind == "i" else 0), like(a, 0)))

    return reference


def log1p(x: Any) -> Any:
    """NumPy's of complex numbers loses the small ones."""
    if x.dtype.kind != "c":
        return np.log1p(x)
    return 0.5 * np.log1p(x.real * (x.real + 2) + x.imag**2) + 1j * np.arctan2(x.imag, x.real + 1)


def sign(x: Any) -> Any:
    if x.dtype.kind == "c":
        size = np.abs(x)
        return np.where(size == 0, 0, x / np.where(size == 0, 1, size))
    return x if x.dtype == bool else np.sign(x)


def square(x: Any) -> Any:
    return x & x if x.dtype == bool else x * x


def logical(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *xs: function(*[x != 0 for x in xs])


def softmax(x: Any, axis: Any = None) -> Any:
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    top = np.max(x, axis=axis, keepdims=True)
    out = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return out if keepdims else np.squeeze(out, axis)


def wide(function: Any) -> Callable[..., Any]:
    """Sums and products of what is narrower than 32 bits are made in 32."""

    def reference(x: Any, **how: Any) -> Any:
        if x.dtype.kind in "biu" and x.dtype.itemsize < 4:
            x = x.astype(np.uint32 if x.dtype.kind == "u" else np.int32)
        return function(x, dtype=x.dtype, **how) if x.dtype.kind in "iu" else function(x, **how)

    return reference


UFUNCS = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "maximum": np.maximum, "minimum": np.minimum}


def written(key: Any, mode: str = "set") -> Callable[..., Any]:
    """`x` with `y` at `key`, joined one after the other at equal places."""

    def reference(x: Any, y: Any) -> Any:
        out = np.array(x)
        if mode == "set":
            out[key] = y
        else:
            UFUNCS[mode].at(out, key, y)
        return out

    return reference


def write(key: Any, mode: str = "set") -> Callable[..., Any]:
    """`x[key] = y`, or `x.at[key].mode(y)`; lists in `key` are index arrays."""

    def call(m: Any, x: Any, y: Any) -> Any:
        at = tuple(m.array(k) if isinstance(k, list) else k for k in key)
        if mode == "set":
            x = m.reshape(x, x.shape)  # a handle of its own
            x[at] = y
            return x
        return getattr(x.at[at], mode)(y)

    return call


def read(*key: Any) -> Callable[..., Any]:
    return lambda m, x: x[tuple(m.array(k) if isinstance(k, list) else k for k in key)]


def cast(to: str) -> Callable[[Any], Any]:
    """Floats are cut to integers, NaN gives 0, what does not fit the nearest end."""

    def reference(x: Any) -> Any:
        if to == "bool_":
            return x != 0
        if to == "complex64":
            return x
        if "int" not in to or x.dtype.kind not in "fc":
            return x.real
        limits, out = np.iinfo(to), np.empty(x.shape, to)
        for k in np.ndindex(x.shape):
            v = x.real[k]
            out[k] = 0 if np.isnan(v) else (limits.max if v > 0 else limits.min) if np.isinf(v) else max(limits.min, min(limits.max, int(v)))
        return out

    return reference


# --- the table ---

ABOVE = (0.1, 9.0)
INSIDE = (-0.95, 0.95)

ELEMENTWISE = [
    *(unary(n, dtypes=(*INEXACT, "int32", "bool_")) for n in ("exp", "sin", "cos", "sinh", "cosh", "tanh")),
    unary("expm1", dtypes=(*FLOATS, "int16")),
    unary("arctan", dtypes=(*INEXACT, "uint8")),
    unary("arcsinh", dtypes=(*INEXACT, "int8")),
    unary("tan", domain=(-1.4, 1.4), dtypes=INEXACT, extremes=False),
    *(unary(n, domain=INSIDE, dtypes=INEXACT) for n in ("arcsin", "arccos", "arctanh")),
    unary("arccosh", domain=(1.1, 9.0), dtypes=INEXACT),
    *(unary(n, domain=ABOVE, dtypes=(*INEXACT, "int64")) for n in ("log", "log2", "log10")),
    unary("sqrt", domain=ABOVE, dtypes=(*INEXACT, "uint16"), exact=True),
    unary("log1p", log1p, domain=(-0.9, 9.0), dtypes=INEXACT),
    unary("rsqrt", lambda x: 1 / np.sqrt(x), domain=ABOVE, dtypes=INEXACT, exact=True),
    unary("reciprocal", lambda x: 1 / x, domain=(0.5, 4.0), dtypes=(*INEXACT, "int32"), exact=True),
    unary("sigmoid", lambda x: 1 / (1 + np.exp(-x)), dtypes=(*FLOATS, "int32")),
    unary("erf", scipy.special.erf),
    unary("erfinv", scipy.special.erfinv, domain=(-0.99, 0.99), ulp=4),
    unary("square", square, dtypes=ANY, exact=True),
    unary("negative", dtypes=(*INEXACT, *INTS), exact=True),
    unary("positive", dtypes=(*INEXACT, "int8"), exact=True),
    unary("abs", dtypes=ANY, exact=True, smooth=False),
    of("abs smooth", np.abs, ONE, lambda m, x: m.abs(x), domain=(0.5, 3.0), dtypes=INEXACT),
    unary("conjugate", dtypes=INEXACT, exact=True),
    unary("real", dtypes=("complex64", "float64"), exact=True, extremes=False),
    unary("imag", dtypes=("complex64",), exact=True, extremes=False),
    unary("degrees", exact=True),
    unary("radians", exact=True),
    *(unary(n, smooth=False, dtypes=REALS, exact=True) for n in ("floor", "ceil", "trunc")),
    unary("sign", sign, smooth=False, dtypes=ANY, exact=True),
    unary("round", smooth=False, dtypes=(*INEXACT, "int32"), exact=True),
    of("round decimals", lambda x: np.round(x, 1), ONE, lambda m, x: m.round(x, 1), smooth=False, dtypes=("float64",), ulp=4),
    *(unary(n, smooth=False, dtypes=ANY, exact=True) for n in ("isnan", "isinf", "isfinite")),
    *(unary(n, smooth=False, dtypes=(*FLOATS, "int16", "bool_"), exact=True) for n in ("isposinf", "isneginf")),
    unary("logical_not", logical(np.logical_not), smooth=False, dtypes=ANY, exact=True),
    unary("bitwise_invert", np.invert, smooth=False, dtypes=(*INTS, "bool_"), exact=True),
    of("nan_to_num", lambda x: x, ONE, dtypes=INEXACT, exact=True),
    of("nan_to_num values", lambda x: np.nan_to_num(x, nan=1.5, posinf=2.0, neginf=-2.0), ONE, lambda m, x: m.nan_to_num(x, 1.5, 2.0, -2.0), exact=True, extremes=True),
    unary("stop_gradient", lambda x: x, smooth=False, dtypes=FEW, exact=True),
    *(binary(n, dtypes=ANY, exact=True) for n in ("add", "multiply")),
    binary("subtract", dtypes=(*INEXACT, *INTS), exact=True),
    binary("divide", domain=(0.5, 4.0), dtypes=(*FLOATS, "int32", "bool_"), exact=True),
    of("divide complex", np.divide, TWO, lambda m, a, b: m.divide(a, b), domain=(0.5, 4.0), dtypes=("complex64",), ulp=4, exact=True),
    binary("maximum", dtypes=(*FLOATS, *INTS, "bool_"), exact=True),
    binary("minimum", dtypes=(*FLOATS, *INTS, "bool_"), exact=True),
    binary("power", power, domain=(0.5, 3.0), dtypes=(*FLOATS, *INTS, "bool_")),
    of("power complex", power, TWO, lambda m, a, b: m.power(a, b), domain=(0.5, 3.0), dtypes=("complex64",)),
    binary("arctan2", domain=(0.5, 3.0)),
    binary("logaddexp", ulp=3, terms=lambda a, b: np.maximum(a, b)),
    binary("floor_divide", floor_divide, smooth=False, domain=(1, 100), dtypes=(*INTS, "bool_"), exact=True),
    of("floor_divide floats", floor_divide, TWO, lambda m, a, b: m.floor_divide(a, b), smooth=False, domain=(1, 100), exact=True),
    binary("remainder", remainder, smooth=False, domain=(1, 100), dtypes=(*FLOATS, *INTS, "bool_"), exact=True),
    *(
        binary(n, smooth=False, domain=(-2.0, 2.0), dtypes=ANY if n in ("equal", "not_equal") else (*FLOATS, *INTS, "bool_"), exact=True)
        for n in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
    ),
    *(binary(n, logical(getattr(np, n)), smooth=False, dtypes=ANY, exact=True) for n in ("logical_and", "logical_or", "logical_xor")),
    *(binary(n, smooth=False, dtypes=(*INTS, "bool_"), domain=(0, 100), exact=True) for n in ("bitwise_and", "bitwise_or", "bitwise_xor")),
    binary("left_shift", shift(True), smooth=False, dtypes=INTS, domain=(0, 6), exact=True),
    binary("right_shift", shift(False), smooth=False, dtypes=INTS, domain=(0, 6), exact=True),
    of("divmod quotient", floor_divide, TWO, lambda m, a, b: m.divmod(a, b)[0], smooth=False, domain=(1, 100), dtypes=("float32", "int32"), exact=True),
    of("divmod rest", remainder, TWO, lambda m, a, b: m.divmod(a, b)[1], smooth=False, domain=(1, 100), dtypes=("float32", "int32"), exact=True),
    of("isclose", np.isclose, TWO, smooth=False, dtypes=("float32", "float64", "int32")),
    of("allclose", lambda a, b: np.array(np.allclose(a, b)), pairs((), (0, 3), (5, 7)), smooth=False, dtypes=("float32", "int32")),
    of("array_equal", lambda a, b: np.array(np.array_equal(a, b)), pairs((), (0, 3), (5, 7)), smooth=False, dtypes=FEW),
    of("where", lambda c, a, b: np.where(c != 0, a, b), THREE, dtypes=ANY, exact=True),
    of("where by comparison", lambda c, a, b: np.where(c > 0, a, b), THREE, lambda m, c, a, b: m.where(c > 0, a, b), exact=True),
    of("where number", lambda c, a: np.where(c > 0, a, 0.5), TWO, lambda m, c, a: m.where(c > 0, a, 0.5), exact=True),
    of("clip", lambda x: np.clip(x, like(x, -1), like(x, 2)), ONE, lambda m, x: m.clip(x, -1, 2), dtypes=(*FLOATS, *SIGNED), exact=True, extremes=True),
    of("clip from below", lambda x: np.maximum(x, like(x, 1)), ONE, lambda m, x: m.clip(x, 1, None), dtypes=(*FLOATS, *INTS), exact=True, extremes=True),
    of("clip between arrays", lambda x, a, b: np.minimum(np.maximum(x, a), b), (((5, 7), (7,), (5, 1)), ((), (3,), ())), lambda m, x, a, b: m.clip(x, a, b), exact=True),
    of("power cube", lambda x: x**3, ONE, lambda m, x: x**3, half=2, dtypes=(*FLOATS, "int32")),
    of("power square", lambda x: x**2, ONE, lambda m, x: x**2, dtypes=INEXACT),
    of("power of two", lambda x: like(x, 2) ** x, ONE, lambda m, x: 2**x),
    of("divide by number", lambda x: x / 3, ONE, lambda m, x: x / 3, dtypes=REALS, exact=True),
    of("subtract from number", lambda x: 1 - x, ONE, lambda m, x: 1 - x, dtypes=(*INEXACT, *INTS), exact=True),
    of("multiply by itself", square, ONE, lambda m, x: x * x, dtypes=REALS, exact=True),
    *(
        of(f"astype {to}", cast(to), each((), (0, 3), (5, 7)), lambda m, x, to=to: x.astype(getattr(m, to)), domain=(-100, 100),
           dtypes=(*FLOATS, "int32", "bool_", "complex64") if to == "complex64" else ANY, smooth=to == "float64", exact=True, extremes=True, ulp=0.5, half=0.5)
        for to in ANY
    ),
]  # fmt: skip

AXES = (0, -1, None, (0, -1))
LONG = each((5, 7), (3, 33), (2, 3, 5), (1, 1), (1, 9), (9, 1), (4100,), (2, 4100), (130, 2))
SHORT = each((5, 7), (3, 33), (2, 3, 5), (1, 9))
EVERY = (*INEXACT, "int8", "uint16", "int32", "uint64", "bool_")


def reduction(name: str, axis: Any, reference: Any, terms: Any = None, shapes: Any = LONG, **how: Any) -> Case:
    """Over `axis`, all axes of what has one; `keepdims` with -1."""

    def arguments(x: Any) -> dict[str, Any]:
        return {"axis": None if x.ndim == 1 else axis, "keepdims": axis == -1}

    return Case(
        f"{name} {axis}",
        lambda m, x: getattr(m, name)(x, **arguments(x)),
        lambda x: reference(x, **arguments(x)),
        shapes,
        terms=terms and (lambda x: terms(x, **arguments(x))),
        **how,
    )


REDUCTIONS = [
    *(reduction("sum", a, wide(np.sum), np.sum, dtypes=EVERY, ulp=6, exact=True, extremes=True) for a in AXES),
    *(reduction("mean", a, np.mean, np.mean, dtypes=(*INEXACT, "int32", "bool_"), ulp=6, exact=True, extremes=True) for a in AXES),
    *(reduction("var", a, np.var, lambda x, **how: np.mean(x * x, **how), dtypes=(*FLOATS, "int32"), ulp=16, exact=True) for a in AXES),
    *(reduction("std", a, np.std, lambda x, **how: np.sqrt(np.mean(x * x, **how)), ulp=8, exact=True, shapes=each((5, 7), (3, 33), (2, 130))) for a in AXES),
    *(reduction(n, a, getattr(np, n), dtypes=(*FLOATS, *INTS, "bool_"), ulp=0, half=0, exact=True, extremes=True) for n in ("max", "min") for a in AXES),
    *(reduction("prod", a, wide(np.prod), np.prod, dtypes=EVERY, ulp=60, exact=True, domain=(0.6, 1.5), shapes=SHORT) for a in AXES),
    *(reduction(n, a, getattr(np, n), smooth=False, dtypes=ANY, exact=True, extremes=True) for n in ("all", "any") for a in AXES),
    *(reduction("count_nonzero", a, np.count_nonzero, smooth=False, dtypes=FEW, exact=True) for a in (0, None)),
    *(reduction(n, a, getattr(np, n), smooth=False, dtypes=(*FLOATS, *INTS, "bool_"), exact=True, extremes=True) for n in ("argmax", "argmin") for a in (0, -1, None)),
    *(reduction("logsumexp", a, logsumexp, lambda x, **how: 1 + np.max(x, **how), dtypes=(*FLOATS, "int32"), ulp=4) for a in AXES),
    *(
        of(f"softmax {a}", lambda x, a=a: softmax(x, a if x.ndim > 1 else None), LONG, lambda m, x, a=a: m.softmax(x, axis=a if x.ndim > 1 else None),
           dtypes=(*FLOATS, "int32"), ulp=16)
        for a in AXES
    ),
    of("minmax least", lambda x: np.min(x, 0), LONG, lambda m, x: m.minmax(x, axis=0)[0], exact=True, dtypes=("float32", "int32")),
    of("minmax largest", lambda x: np.max(x, 0), LONG, lambda m, x: m.minmax(x, axis=0)[1], exact=True, dtypes=("float32", "float64", "int32")),
    of("sum of the middle axis", lambda x: np.sum(x, 1, keepdims=True), each((2, 3, 35), (3, 70, 4), (2, 1, 3)), lambda m, x: m.sum(x, axis=1, keepdims=True),
       terms=lambda x: np.sum(x, 1, keepdims=True), ulp=6, exact=True),
    of("sum of no axis", lambda x: x, each((), (5, 7)), lambda m, x: m.sum(x, axis=()), exact=True, dtypes=("float32", "int32")),
    of("sum of empty", lambda x: np.sum(x, axis=0), each((0, 3)), lambda m, x: m.sum(x, axis=0), dtypes=("float32", "int32", "complex64"), exact=True),
    of("prod of empty", lambda x: np.prod(x, axis=0), each((0, 3)), lambda m, x: m.prod(x, axis=0), dtypes=("float32", "int32", "complex64"), exact=True),
    of("var with ddof", lambda x: np.var(x, axis=0, ddof=1), each((5, 7), (70, 3)), lambda m, x: m.var(x, axis=0, ddof=1), ulp=8, exact=True,
       terms=lambda x: np.mean(x * x, axis=0) * len(x) / (len(x) - 1)),
    of("trace", np.trace, each((5, 7), (4, 4)), dtypes=("float32", "float64", "int32"), ulp=4, terms=np.trace, exact=True),
    of("vecdot", lambda a, b: np.sum(np.conj(a) * b, -1), (((5, 7), (5, 7)), ((2, 33), (33,))), terms=lambda a, b: np.sum(a * b, -1), dtypes=INEXACT, ulp=24, half=1.5),
]  # fmt: skip

INDEX = [2, 0, 2, -1]
ROWS = each((5, 7), (3,), (3, 1, 4))
DEEP = each((2, 3, 4), (1, 3, 1), (3, 33, 2))


def move(name: str, reference: Any, shapes: Any, call: Any = None, **how: Any) -> Case:
    """Moves elements, whatever they are."""
    return of(name, reference, shapes, call, **{"dtypes": FEW, "exact": True, "ulp": 0, "half": 0, **how})


MOVES = [
    move("reshape flat", lambda x: x.reshape(-1), each((), (0, 3), (5, 7), (2, 3, 4)), lambda m, x: m.reshape(x, (-1,))),
    move("reshape split", lambda x: x.reshape(2, -1, 2), each((4, 6), (24,), (4, 3), (2, 3, 4)), lambda m, x: m.reshape(x, (2, -1, 2))),
    move("reshape across", lambda x: x.reshape(x.shape[1], x.shape[0]), each((4, 6), (1, 5)), lambda m, x: m.reshape(x, (x.shape[1], x.shape[0]))),
    move("reshape transposed", lambda x: x.T.reshape(-1), DEEP, lambda m, x: m.reshape(x.T, (-1,))),
    move("flatten", lambda x: x.reshape(x.shape[0], -1), DEEP, lambda m, x: m.flatten(x, 1)),
    move("unflatten", lambda x: x.reshape(-1, 2, 3), each((12,), (6,)), lambda m, x: m.unflatten(x, 0, (-1, 2, 3))),
    move("transpose", lambda x: x.transpose(), (*ONE, *DEEP)),
    move("transpose axes", lambda x: x.transpose(2, 0, 1), DEEP, lambda m, x: m.transpose(x, (2, 0, -2))),
    move("matrix_transpose", lambda x: np.swapaxes(x, -1, -2), DEEP),
    move("swapaxes", lambda x: x.swapaxes(0, -1), DEEP, lambda m, x: m.swapaxes(x, 0, -1)),
    move("moveaxis", lambda x: np.moveaxis(x, 0, -1), DEEP, lambda m, x: m.moveaxis(x, 0, -1)),
    move("broadcast_to", lambda x: np.broadcast_to(x, (3, 2, *x.shape)), each((), (3,), (5, 7)), lambda m, x: m.broadcast_to(x, (3, 2, *x.shape))),
    move("broadcast_to ones", lambda x: np.broadcast_to(x, (3, 4)), each((1,), (3, 1), (1, 4), (1, 1)), lambda m, x: m.broadcast_to(x, (3, 4))),
    move("broadcast_arrays", lambda a, b: np.broadcast_arrays(a, b)[0], TWO, lambda m, a, b: m.broadcast_arrays(a, b)[0], batch=False),
    move("meshgrid", lambda a, b: np.meshgrid(a, b)[0], (((3,), (4,)), ((1,), (5,))), lambda m, a, b: m.meshgrid(a, b)[0], batch=False),
    move("expand_dims", lambda x: np.expand_dims(x, (0, -1)), (*ONE[:4], *DEEP), lambda m, x: m.expand_dims(x, (0, -1))),
    move("squeeze", lambda x: np.squeeze(x, 1), each((2, 1, 4), (1, 1)), lambda m, x: m.squeeze(x, 1)),
    move("squeeze all", np.squeeze, each((2, 1, 4), (1, 1))),
    move("atleast_1d", np.atleast_1d, ONE),
    move("atleast_2d", np.atleast_2d, ONE),
    move("atleast_3d", np.atleast_3d, ONE),
    move("flip", lambda x: np.flip(x, 0), ROWS, lambda m, x: m.flip(x, 0)),
    move("flip all", np.flip, ROWS),
    move("pad", lambda x: np.pad(x, ((1, 2), (0, 3))), each((5, 7), (1, 1), (0, 2)), lambda m, x: m.pad(x, ((1, 2), (0, 3)))),
    move("pad value", lambda x: np.pad(x, 2, constant_values=1), each((5, 7), (3,)), lambda m, x: m.pad(x, 2, constant_values=1)),
    move("pad edge", lambda x: np.pad(x, ((1, 2), (2, 0)), mode="edge"), each((5, 7), (1, 1)), lambda m, x: m.pad(x, ((1, 2), (2, 0)), mode="edge")),
    move("roll", lambda x: np.roll(x, 2, 0), ROWS, lambda m, x: m.roll(x, 2, 0)),
    move("roll flat", lambda x: np.roll(x, -5), ROWS, lambda m, x: m.roll(x, -5)),
    move("tile", lambda x: np.tile(x, (2, 3)), each((5, 7), (3,), ()), lambda m, x: m.tile(x, (2, 3))),
    move("repeat", lambda x: np.repeat(x, 3, axis=0), ROWS, lambda m, x: m.repeat(x, 3, axis=0)),
    move("repeat flat", lambda x: np.repeat(x, 2), ROWS, lambda m, x: m.repeat(x, 2)),
    move("concatenate", lambda x, y: np.concatenate([x, y, x], 0), (((5, 7), (2, 7)), ((3,), (1,)), ((0, 3), (2, 3))), lambda m, x, y: m.concatenate([x, y, x], axis=0)),
    move("concatenate last", lambda x, y: np.concatenate([x, y], -1), (((5, 7), (5, 2)), ((3, 1), (3, 33))), lambda m, x, y: m.concatenate([x, y], axis=-1)),
    move("concatenate flat", lambda x, y: np.concatenate([x, y], None), (((5, 7), (2,)),), lambda m, x, y: m.concatenate([x, y], axis=None), batch=False),
    move("concatenate many", lambda x: np.concatenate([x] * 11, 0), each((5, 7), (1,)), lambda m, x: m.concatenate([x] * 11, 0)),
    move("stack", lambda x, y: np.stack([x, y], 1), pairs((5, 7), (3,), (0, 2)), lambda m, x, y: m.stack([x, y], axis=1)),
    move("unstack", lambda x: x[1], each((5, 7), (3,)), lambda m, x: m.unstack(x)[1]),
    move("split", lambda x: np.split(x, 2, 0)[1], each((4,), (6, 5)), lambda m, x: m.split(x, 2, axis=0)[1]),
    move("split at", lambda x: np.split(x, [1, 3], 0)[1], each((4,), (6, 5)), lambda m, x: m.split(x, [1, 3], axis=0)[1]),
    of("diff", lambda x: np.diff(x, axis=-1), each((5, 7), (3,)), dtypes=("float32", "float16", "float64", "int32"), exact=True),
    move("tril", lambda x: np.tril(x, 1), each((5, 7), (2, 4, 4)), lambda m, x: m.tril(x, 1)),
    move("triu", np.triu, each((5, 7), (2, 4, 4))),
    move("diag", np.diag, each((5,), (4, 6)), batch=False),
    move("diag below", lambda x: np.diag(x, -1), each((5,), (4, 6)), lambda m, x: m.diag(x, -1), batch=False),
    move("diagonal", lambda x: np.diagonal(x, 1, 0, 2), DEEP[:1], lambda m, x: m.diagonal(x, 1, 0, 2)),
    move("contiguous", lambda x: x.T, DEEP, lambda m, x: m.contiguous(x.T)),
    move("as_strided", lambda x: np.lib.stride_tricks.sliding_window_view(x.reshape(-1), 3), each((7,), (3, 4)), lambda m, x: m.as_strided(x, (x.size - 2, 3), (1, 1)), batch=False),
    move("view", lambda x: x, ONE[1:], lambda m, x: m.view(x, x.dtype), smooth=False),
    move("slice read", lambda x: x[1:4:2], ROWS, read(slice(1, 4, 2))),
    move("slice back", lambda x: x[::-2, None, 1], each((5, 7), (4, 2, 3)), read(slice(None, None, -2), None, 1)),
    move("slice ellipsis", lambda x: x[..., -3:-1], each((5, 7), (3,), (2, 1, 4)), read(..., slice(-3, -1))),
    move("slice empty", lambda x: x[3:1], ROWS, read(slice(3, 1))),
    move("slice integer", lambda x: x[-1], ROWS, read(-1)),
    move("slice", lambda x: x[:, 2:4], each((5, 7)), lambda m, x: m.slice(x, m.array([2]), (1,), (x.shape[0], 2))),
    move("take", lambda x: np.take(x, INDEX, 0), ROWS, lambda m, x: m.take(x, m.array(INDEX), axis=0)),
    move("take flat", lambda x: np.take(x, [[0, 2], [1, 1]]), ROWS, lambda m, x: m.take(x, m.array([[0, 2], [1, 1]]))),
    move("take last", lambda x: np.take(x, [[0, 2], [1, 1]], -1), each((5, 7), (3,)), lambda m, x: m.take(x, m.array([[0, 2], [1, 1]]), axis=-1)),
    move("take integer", lambda x: np.take(x, 1, 0), ROWS, lambda m, x: m.take(x, 1, axis=0)),
    move("take none", lambda x: np.take(x, np.zeros(0, int), 0), ROWS, lambda m, x: m.take(x, m.array([], dtype=m.int32), axis=0)),
    move("take_along_axis", lambda x: np.take_along_axis(x, np.array([[1], [0], [-2]]), -1), each((3, 4)), lambda m, x: m.take_along_axis(x, m.array([[1], [0], [-2]]), axis=-1)),
    move("take_along_axis first", lambda x: np.take_along_axis(x, np.array([[1, 0, 2], [0, 0, 0]]), 0), each((3, 3)),
         lambda m, x: m.take_along_axis(x, m.array([[1, 0, 2], [0, 0, 0]]), axis=0)),
    move("take by key", lambda x: x[[2, 0, 2, -1], 1:], each((5, 7), (3, 4)), read(INDEX, slice(1, None))),
    move("take by two keys", lambda x: x[[2, 0], :, [1, -1]], each((3, 2, 4)), read([2, 0], slice(None), [1, -1])),
]  # fmt: skip

ALONG = [[1], [0], [-2]]


def _put(x: Any, y: Any) -> Any:
    out = np.array(x)
    np.put_along_axis(out, np.array(ALONG), y, -1)
    return out


WRITES = [
    move("slice_update rows", written(slice(1, 3)), (((5, 3), (2, 3)), ((5, 3), ()), ((4,), (1,))), write((slice(1, 3),))),
    move("slice_update back", written((slice(None, None, -2), 1)), (((5, 3), (3,)),), write((slice(None, None, -2), 1))),
    move("slice_update", written((slice(None), slice(1, 3))), (((5, 4), (5, 2)),), lambda m, x, y: m.slice_update(x, y, m.array([1]), (1,))),
    of("slice_update add", written((slice(1, 3),), "add"), (((5, 3), (2, 3)), ((5, 3), (3,))), write((slice(1, 3),), "add"), dtypes=(*FLOATS, "int8"), exact=True),
    *(
        of(f"ArrayAt {mode}", written((INDEX,), mode), (((5, 3), (4, 3)), ((3,), (4,)), ((5, 3), (4, 1))), write((INDEX,), mode),
           dtypes=FLOATS if mode == "divide" else (*FLOATS, "int32"), domain=(0.5, 2.0), ulp=8, half=2, exact=True)
        for mode in ("add", "subtract", "multiply", "divide", "maximum", "minimum")
    ),
    move("ArrayAt set", written(([2, 0, 1],)), (((5, 3), (3, 3)), ((5, 3), ())), write(([2, 0, 1],))),
    move("ArrayAt set columns", written((slice(1, 4), [2, 0])), (((5, 3), (3, 2)),), write((slice(1, 4), [2, 0]))),
    move("put_along_axis", _put, (((3, 4), (3, 1)),), lambda m, x, y: m.put_along_axis(x, m.array(ALONG), y, axis=-1)),
]  # fmt: skip

MATRICES: tuple[Shapes, ...] = (
    ((5, 7), (7, 3)), ((2, 4, 5), (5, 6)), ((2, 1, 3, 4), (3, 4, 2)), ((4,), (4, 3)), ((3, 4), (4,)), ((4,), (4,)), ((33, 65), (65, 17)),
    ((1, 1), (1, 1)), ((1, 40), (40, 9)), ((9, 1), (1, 8)), ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((3, 2), (2, 0)),
)  # fmt: skip


def product(name: str, reference: Any, shapes: Any, call: Any = None, **how: Any) -> Case:
    return of(name, reference, shapes, call, **{"dtypes": INEXACT, "ulp": 40, "terms": reference, "half": 1.5, **how})


PRODUCTS = [
    product("matmul", np.matmul, MATRICES),
    product("matmul transposed", lambda a, b: a @ b.T, (((5, 7), (3, 7)), ((1, 9), (4, 9)), ((40, 33), (50, 33))), lambda m, a, b: a @ b.T),
    product("matmul left transposed", lambda a, b: a.T @ b, (((7, 5), (7, 3)), ((9, 1), (9, 4))), lambda m, a, b: a.T @ b),
    product("addmm", lambda c, a, b: 0.5 * (a @ b) + 2 * c, (((3,), (5, 7), (7, 3)), ((5, 3), (5, 7), (7, 3)), ((), (5, 7), (7, 3)), ((5, 1), (5, 7), (7, 3)), ((2, 2), (2, 0), (0, 2))),
            lambda m, c, a, b: m.addmm(c, a, b, alpha=0.5, beta=2.0)),
    product("einsum", lambda a, b: np.einsum("ij,kj->ik", a, b), (((5, 7), (3, 7)),), lambda m, a, b: m.einsum("ij,kj->ik", a, b)),
    product("einsum batch", lambda a, b: np.einsum("bij,bjk->bki", a, b), (((2, 5, 7), (2, 7, 3)),), lambda m, a, b: m.einsum("bij,bjk->bki", a, b)),
    product("einsum three", lambda a, b, c: np.einsum("ij,jk,kl->il", a, b, c), (((5, 7), (7, 3), (3, 4)),), lambda m, a, b, c: m.einsum("ij,jk,kl->il", a, b, c), half=4),
    product("einsum diagonal", lambda a: np.einsum("ii->i", a), each((4, 4)), lambda m, a: m.einsum("ii->i", a)),
    product("einsum of one", lambda a: np.einsum("ij->j", a), each((4, 6)), lambda m, a: m.einsum("ij->j", a)),
    product("outer", np.outer, (((5,), (3,)), ((2, 2), (3,))), batch=False),
    product("inner", np.inner, (((5, 7), (3, 7)), ((7,), (7,)), ((), (3,)))),
    product("tensordot", lambda a, b: np.tensordot(a, b, 2), (((2, 3, 4), (3, 4, 5)),), lambda m, a, b: m.tensordot(a, b, 2)),
    product("tensordot axes", lambda a, b: np.tensordot(a, b, ([0, 2], [1, 0])), (((2, 3, 4), (4, 2, 5)),), lambda m, a, b: m.tensordot(a, b, ([0, 2], [1, 0]))),
    product("kron", np.kron, (((2, 3), (3, 2)), ((3,), (2,))), dtypes=("float32", "bfloat16", "float64", "complex64", "int32")),
]  # fmt: skip


def creation(name: str, reference: Any, call: Any, shapes: Any = each((5, 7)), **how: Any) -> Case:
    """Joined with an array, so that it has derivatives, batches and fused forms as the rest."""
    return of(name, reference, shapes, call, **{"dtypes": ("float32", "bfloat16", "float64", "int32"), "exact": True, **how})


CREATION = [
    creation("zeros", lambda x: x * 0, lambda m, x: x * m.zeros((7,), x.dtype)),
    creation("ones", lambda x: x + like(x, 1), lambda m, x: x + m.ones((5, 1), x.dtype)),
    creation("empty", lambda x: x, lambda m, x: m.where(m.empty((5, 7)) != m.empty((5, 7)), x, x)),
    creation("full", lambda x: x + like(x, 3), lambda m, x: x + m.full((5, 7), 3, x.dtype)),
    creation("full of array", lambda x: np.full((3, *x.shape), x), lambda m, x: m.full((3, *x.shape), x), each((5, 7), ())),
    creation("zeros_like", lambda x: 0 * x, lambda m, x: m.zeros_like(x) * x, ONE),
    creation("ones_like", lambda x: x, lambda m, x: m.ones_like(x) * x, ONE),
    creation("empty_like", lambda x: x, lambda m, x: m.where(m.empty_like(x) != m.empty_like(x), x, x), ONE),
    creation("full_like", lambda x: like(x, 2) * x, lambda m, x: m.full_like(x, 2) * x, ONE),
    creation("arange", lambda x: x + np.arange(7, dtype=x.dtype), lambda m, x: x + m.arange(7, dtype=x.dtype)),
    creation("arange step", lambda x: x + np.arange(9, -5, -2, dtype=x.dtype), lambda m, x: x + m.arange(9, -5, -2, dtype=x.dtype)),
    creation("arange fraction", lambda x: x * np.arange(0.5, 4.0, 0.5), lambda m, x: x * m.arange(0.5, 4.0, 0.5, dtype=x.dtype), dtypes=FLOATS),
    creation("linspace", lambda x: x * np.linspace(0, 1, 7), lambda m, x: x * m.linspace(0, 1, 7, dtype=x.dtype), dtypes=("float32", "bfloat16", "float16"), ulp=3, half=2),
    creation("eye", lambda x: x * np.eye(5, 7, 1, dtype=x.dtype), lambda m, x: x * m.eye(5, 7, 1, x.dtype)),
    creation("identity", lambda x: x * np.identity(5, x.dtype), lambda m, x: x * m.identity(5, x.dtype), each((5, 5))),
    creation("tri", lambda x: x * np.tri(5, 7, -1, x.dtype), lambda m, x: x * m.tri(5, 7, -1, x.dtype)),
]  # fmt: skip

CASES = [*ELEMENTWISE, *REDUCTIONS, *MOVES, *WRITES, *PRODUCTS, *CREATION]
assert len({c.name for c in CASES}) == len(CASES)

# Where each dtype is awkward.
SPECIAL: dict[str, list[Any]] = {"bool_": [False, True], "complex64": [complex(re, im) for re in (0.0, -0.0, 1.0, -2.5, 1e-30, 40.0) for im in (0.0, -0.0, 1.5, -1.0, 1e-20)]}
for _name in FLOATS:
    _info = ml_dtypes.finfo(ml_dtypes.bfloat16 if _name == "bfloat16" else _name)
    _tiny, _least, _max = (float(v) for v in (_info.smallest_normal, _info.smallest_subnormal, _info.max))
    SPECIAL[_name] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, _tiny, -_tiny, _least, -_least, 3 * _least, _max, -_max, float(_info.eps), 0.25, 77.0]
for _name in INTS:
    _limits = np.iinfo(_name)
    SPECIAL[_name] = sorted({_limits.min, _limits.min + 1, _limits.max, _limits.max - 1, 0, 1, 2, 3, 7, 31, 32, 64, _limits.bits, *((-1, -2, -3) if _limits.min else ())})

