"""The interpreter against statements that owe it nothing: Python's integers, exact fractions, mpmath, plain loops."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest

from isthmus.graph.dtype import (
    ALL,
    Dtype,
    bfloat16,
    bool_,
    complex64,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
    uint32,
    uint64,
)
from isthmus.kernel import interpret as interpreter
from isthmus.kernel import scalar as s
from isthmus.kernel.interpret import interpret
from isthmus.kernel.loops import Axis, Index, Kernel, Load, Reduce, Side, Slot, Stage, Store
from isthmus.kernel.scalar import Expr

INTEGERS = [d for d in ALL if d.rank == 1]
FLOATS = [float32, float64]
HALVES = [float16, bfloat16]
LINE = Index(0, ((0, 1),))


def load(buffer: int, dtype: Dtype, index: Index = LINE, mask: Expr | None = None) -> Expr:
    return Expr("load", dtype, (), Load(buffer, index, mask))


def store(buffer: int, value: Expr, index: Index = LINE, **how) -> Store:
    return Store(buffer, index, value, **how)


def flat(values, dtype: Dtype) -> np.ndarray:
    return np.array(values, dtype.numpy).ravel()


def run_map(function, columns, dtypes) -> np.ndarray:
    """`function` of columns of values, place by place."""
    buffers = [flat(c, d) for c, d in zip(columns, dtypes, strict=True)]
    result = function(*(load(k, d) for k, d in enumerate(dtypes)))
    n = len(buffers[0])
    out = np.zeros(n, result.dtype.numpy)
    k = len(buffers)
    kernel = Kernel("map", (Axis(n, False),), (*dtypes, result.dtype), (Stage((store(k, result),)),), k + 1)
    interpret(kernel, [0] * (k + 1), [*buffers, out])
    return out


def primitive(op: str, dtype: Dtype):
    return lambda *args: Expr(op, dtype, args)


# -- integers: Python's own, reduced to the width ---------------------------------------------------------------------


def limits(dtype: Dtype) -> tuple[int, int]:
    return (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if dtype.category == "signed" else (0, (1 << dtype.bits) - 1)


def wrap(x: int, dtype: Dtype) -> int:
    x &= (1 << dtype.bits) - 1
    return x - (1 << dtype.bits) if dtype.category == "signed" and x >> dtype.bits - 1 else x


def interesting(dtype: Dtype) -> list[int]:
    low, high = limits(dtype)
    near = [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 100, high, high - 1, low, low + 1, high // 2, -1, -2, -3, -7, -64, -100]
    return [x for x in near if low <= x <= high]


def power(a: int, b: int, dtype: Dtype) -> int:
    return pow(a, b, 1 << dtype.bits) if b >= 0 else 0


def shifted(a: int, b: int, dtype: Dtype, left: bool) -> int:
    if not 0 <= b < dtype.bits:
        return -1 if a < 0 and not left else 0
    return a << b if left else a >> b


BINARY = {
    "add": lambda a, b, d: a + b,
    "sub": lambda a, b, d: a - b,
    "mul": lambda a, b, d: a * b,
    "min": lambda a, b, d: min(a, b),
    "max": lambda a, b, d: max(a, b),
    "idiv": lambda a, b, d: a // b if b else 0,
    "imod": lambda a, b, d: a % b if b else a,
    "ipow": power,
    "and": lambda a, b, d: a & b,
    "or": lambda a, b, d: a | b,
    "xor": lambda a, b, d: a ^ b,
    "shl": lambda a, b, d: shifted(a, b, d, left=True),
    "shr": lambda a, b, d: shifted(a, b, d, left=False),
}
COMPARE = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


@pytest.mark.parametrize("dtype", INTEGERS, ids=repr)
@pytest.mark.parametrize("op", BINARY)
def test_integers_are_pythons_reduced_to_the_width(op, dtype):
    a, b = zip(*product(interesting(dtype), repeat=2), strict=True)
    got = run_map(primitive(op, dtype), (a, b), (dtype, dtype))
    assert got.tolist() == [wrap(BINARY[op](x, y, dtype), dtype) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize("op", ["add", "sub", "mul", "idiv", "imod", "ipow", "shl", "shr"])
def test_every_pair_of_int8(op):
    a, b = zip(*product(range(-128, 128), repeat=2), strict=True)
    got = run_map(primitive(op, int8), (a, b), (int8, int8))
    assert got.tolist() == [wrap(BINARY[op](x, y, int8), int8) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize("dtype", INTEGERS, ids=repr)
def test_integer_functions_of_one_argument(dtype):
    xs = interesting(dtype)
    assert run_map(primitive("neg", dtype), (xs,), (dtype,)).tolist() == [wrap(-x, dtype) for x in xs]
    assert run_map(primitive("abs", dtype), (xs,), (dtype,)).tolist() == [wrap(abs(x), dtype) for x in xs]
    assert run_map(primitive("not", dtype), (xs,), (dtype,)).tolist() == [wrap(~x, dtype) for x in xs]


@pytest.mark.parametrize("dtype", [*INTEGERS, bool_, *FLOATS], ids=repr)
@pytest.mark.parametrize("op", COMPARE)
def test_comparisons(op, dtype):
    xs = [False, True] if dtype is bool_ else interesting(dtype) if dtype.rank == 1 else [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan]
    a, b = zip(*product(xs, repeat=2), strict=True)
    got = run_map(primitive(op, bool_), (a, b), (dtype, dtype))
    assert got.dtype == np.bool_
    assert got.tolist() == [COMPARE[op](x, y) for x, y in zip(a, b, strict=True)]


def test_bits_of_bool():
    a, b = (False, False, True, True), (False, True, False, True)
    for op, expected in [("and", [0, 0, 0, 1]), ("or", [0, 1, 1, 1]), ("xor", [0, 1, 1, 0])]:
        assert run_map(primitive(op, bool_), (a, b), (bool_, bool_)).tolist() == expected
    assert run_map(primitive("not", bool_), (a,), (bool_,)).tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("dtype", ALL, ids=repr)
def test_select(dtype):
    got = run_map(primitive("select", dtype), ([True, False], [1, 1], [0, 0]), (bool_, dtype, dtype))
    assert got.dtype == dtype.numpy
    assert got.tolist() == [1, 0]


# -- floats: exact fractions, rounded by the definition -----------------------------------------------------------------

# dtype -> (digits of the significand, least and greatest exponent of a normal number)
SHAPE = {float16: (11, -14, 15), bfloat16: (8, -126, 127), float32: (24, -126, 127), float64: (53, -1022, 1023)}


def nearest(q: Fraction, dtype: Dtype) -> float:
    """The float nearest to `q`, ties to even."""
    digits, least, greatest = SHAPE[dtype]
    if q == 0:
        return 0.0
    size = abs(q)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, least) - digits + 1)
    n = round(size / unit)  # a Fraction rounds half to even
    if n * unit >= Fraction(2) ** (greatest + 1):
        return math.inf if q > 0 else -math.inf
    return float(n * unit) if q > 0 else -float(n * unit)


def samples(dtype: Dtype, n: int = 400) -> list[float]:
    rng = np.random.default_rng(5)
    digits, least, greatest = SHAPE[dtype]
    mixed = rng.standard_normal(n) * 2.0 ** rng.integers(-12, 12, n)
    edges = [1.0, 1 + 2.0 ** (1 - digits), 2.0**least, 2.0 ** (least - 1), 2.0 ** (least - digits + 1), 2.0**greatest * (2 - 2.0 ** (1 - digits)), 3.0, 0.1]
    return [float(x) for x in np.array([*mixed, *edges, *(-x for x in edges)], dtype.numpy)]


def same(got, expected) -> bool:
    """Equal in value and in the sign of zero; any NaN is NaN."""
    got, expected = float(got), float(expected)
    return (got != got and expected != expected) or (got == expected and math.copysign(1, got) == math.copysign(1, expected))


@pytest.mark.parametrize("dtype", [*FLOATS, *HALVES], ids=repr)
@pytest.mark.parametrize(("op", "exact"), [("add", Fraction.__add__), ("sub", Fraction.__sub__), ("mul", Fraction.__mul__), ("div", Fraction.__truediv__)])
def test_arithmetic_is_the_exact_result_rounded_once(op, exact, dtype):
    xs = samples(dtype)
    a, b = xs, [*xs[7:], *xs[:7]]
    got = run_map(getattr(s, op), (a, b), (dtype, dtype))
    for x, y, z in zip(a, b, got, strict=True):
        q = exact(Fraction(x), Fraction(y))
        if dtype in HALVES:  # through float32: what 24 digits round innocuously for 11 and 8
            assert nearest(Fraction(nearest(q, float32)) if abs(q) < 2**128 else q, dtype) == z, (x, y)
        else:
            expected = nearest(q, dtype)
            assert expected == z, (x, y)
            assert q == 0 or math.copysign(1, z) == (1 if q > 0 else -1)


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
def test_specials_of_arithmetic(dtype):
    inf, nan = math.inf, math.nan
    cases = [
        ("add", inf, -inf, nan), ("add", 0.0, -0.0, 0.0), ("add", -0.0, -0.0, -0.0), ("sub", inf, inf, nan), ("sub", 0.0, 0.0, 0.0),
        ("mul", inf, 0.0, nan), ("mul", -1.0, 0.0, -0.0), ("div", 1.0, 0.0, inf), ("div", 1.0, -0.0, -inf), ("div", 0.0, 0.0, nan),
        ("div", inf, inf, nan), ("div", -1.0, inf, -0.0), ("fmod", 5.5, 2.0, 1.5), ("fmod", -5.5, 2.0, -1.5), ("fmod", 5.5, -2.0, 1.5),
        ("fmod", 1.0, 0.0, nan), ("fmod", inf, 1.0, nan), ("fmod", 1.0, inf, 1.0), ("fmod", -4.0, 2.0, -0.0),
        ("copysign", 2.0, -0.0, -2.0), ("copysign", -2.0, 1.0, 2.0), ("copysign", 0.0, -inf, -0.0),
        ("min", nan, 1.0, nan), ("min", 1.0, nan, nan), ("max", nan, 1.0, nan), ("max", -inf, nan, nan), ("min", -inf, inf, -inf), ("max", -inf, inf, inf),
    ]  # fmt: skip
    for op, a, b, expected in cases:
        got = run_map(primitive(op, dtype), ([a], [b]), (dtype, dtype))[0]
        assert same(got, expected), (op, a, b, got)


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
def test_fmod_is_exact(dtype):
    xs = samples(dtype)
    a, b = xs, [*xs[7:], *xs[:7]]
    got = run_map(primitive("fmod", dtype), (a, b), (dtype, dtype))
    for x, y, z in zip(a, b, got, strict=True):
        q = abs(Fraction(x)) % abs(Fraction(y))
        assert Fraction(float(z)) == math.copysign(1, x) * q, (x, y)


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
def test_roundings_to_integers(dtype):
    xs = [*samples(dtype), 0.5, 1.5, 2.5, -0.5, -1.5, -0.2, 2.0**52 + 1]
    xs = [float(x) for x in np.array(xs, dtype.numpy)]
    for op, exact in [("floor", math.floor), ("ceil", math.ceil), ("trunc", math.trunc), ("rint", round)]:
        got = run_map(primitive(op, dtype), (xs,), (dtype,))
        assert all(same(z, math.copysign(exact(x), x)) for x, z in zip(xs, got, strict=True)), op
        specials = run_map(primitive(op, dtype), ([math.inf, -math.inf, math.nan, -0.0],), (dtype,))
        assert all(map(same, specials, [math.inf, -math.inf, math.nan, -0.0]))


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
def test_neg_abs_sqrt(dtype):
    xs = [*samples(dtype), 0.0, -0.0, math.inf, -math.inf, math.nan]
    got = run_map(primitive("neg", dtype), (xs,), (dtype,))
    assert all(same(z, -x) for x, z in zip(xs, got, strict=True))
    got = run_map(primitive("abs", dtype), (xs,), (dtype,))
    assert all(same(z, abs(x)) for x, z in zip(xs, got, strict=True))
    got = run_map(primitive("sqrt", dtype), (xs,), (dtype,))
    with mpmath.workdps(80):
        for x, z in zip(xs, got, strict=True):
            if x > 0 and x < math.inf:
                assert float(z) == nearest(fraction(mpmath.sqrt(mpmath.mpf(x))), dtype)
            else:
                assert same(z, math.nan if x < 0 else x)


# -- functions: mpmath ----------------------------------------------------------------------------------------------------


def fraction(x: mpmath.mpf) -> Fraction:
    sign, mantissa, exponent, _ = x._mpf_
    return Fraction(-mantissa if sign else mantissa) * Fraction(2) ** exponent


def ulp(x: float, dtype: Dtype) -> Fraction:
    digits, least, greatest = SHAPE[dtype]
    exponent = max(least, min(greatest, math.frexp(x)[1] - 1)) if x else least
    return Fraction(2) ** (exponent - digits + 1)


FUNCTIONS = {
    "exp": (mpmath.exp, -80, 80),
    "expm1": (mpmath.expm1, -20, 80),
    "log": (mpmath.log, 1e-30, 1e30),
    "log2": (lambda x: mpmath.log(x, 2), 1e-30, 1e30),
    "log10": (mpmath.log10, 1e-30, 1e30),
    "log1p": (mpmath.log1p, -0.999, 1e10),
    "sin": (mpmath.sin, -1e4, 1e4),
    "cos": (mpmath.cos, -1e4, 1e4),
    "tan": (mpmath.tan, -1e4, 1e4),
    "arcsin": (mpmath.asin, -1, 1),
    "arccos": (mpmath.acos, -1, 1),
    "arctan": (mpmath.atan, -1e6, 1e6),
    "sinh": (mpmath.sinh, -80, 80),
    "cosh": (mpmath.cosh, -80, 80),
    "tanh": (mpmath.tanh, -10, 10),
    "arcsinh": (mpmath.asinh, -1e6, 1e6),
    "arccosh": (mpmath.acosh, 1, 1e6),
    "arctanh": (mpmath.atanh, -0.9999, 0.9999),
    "erf": (mpmath.erf, -4, 4),
    "erfinv": (mpmath.erfinv, -0.9999, 0.9999),
    "sigmoid": (lambda x: 1 / (1 + mpmath.exp(-x)), -80, 80),
}


def points(low: float, high: float, dtype: Dtype) -> np.ndarray:
    rng = np.random.default_rng(11)
    even = rng.uniform(low, high, 40)
    small = rng.uniform(-3, 3, 20) if low < 0 else rng.uniform(0.5, 3, 20) if low else rng.uniform(1, 3, 20)
    tiny = rng.standard_normal(10) * 1e-5 + (1.0 if low >= 0 else 0.0)
    xs = np.r_[even, small, tiny].astype(dtype.numpy)
    return xs[(xs >= low) & (xs <= high)]


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, dtype):
    exact, low, high = FUNCTIONS[name]
    xs = points(low, high, dtype)
    got = run_map(getattr(s, name), (xs,), (dtype,))
    allowed = Fraction(501, 1000) if dtype is float32 else 8
    with mpmath.workdps(50):
        for x, z in zip(xs, got, strict=True):
            q = fraction(exact(mpmath.mpf(float(x))))
            assert abs(Fraction(float(z)) - q) <= allowed * ulp(float(q), dtype), (float(x), float(z))


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
def test_functions_of_two_arguments(dtype):
    rng = np.random.default_rng(3)
    a, b = rng.uniform(0.1, 20, 60).astype(dtype.numpy), rng.uniform(-12, 12, 60).astype(dtype.numpy)
    allowed = Fraction(501, 1000) if dtype is float32 else 4
    with mpmath.workdps(50):
        for function, exact in [(s.pow_, mpmath.power), (s.arctan2, mpmath.atan2)]:
            for x, y, z in zip(a, b, run_map(function, (a, b), (dtype, dtype)), strict=True):
                q = fraction(exact(mpmath.mpf(float(x)), mpmath.mpf(float(y))))
                assert abs(Fraction(float(z)) - q) <= allowed * ulp(float(q), dtype), (x, y, z)


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
def test_specials_of_functions(dtype):
    inf, nan, pi = math.inf, math.nan, math.pi
    cases = [
        ("exp", -inf, 0), ("exp", inf, inf), ("exp", 800, inf), ("log", 0.0, -inf), ("log", -1, nan), ("log1p", -1, -inf), ("expm1", -inf, -1),
        ("sin", inf, nan), ("sin", -0.0, -0.0), ("tanh", inf, 1), ("tanh", -inf, -1), ("tanh", -0.0, -0.0), ("erf", inf, 1), ("erf", -0.0, -0.0),
        ("erfinv", 1, inf), ("erfinv", -1, -inf), ("erfinv", 1.5, nan), ("arcsin", 2, nan), ("arccosh", 0.5, nan), ("arctanh", 1, inf),
        ("sigmoid", -inf, 0), ("sigmoid", inf, 1), ("sigmoid", -1000, 0), ("sigmoid", 0, 0.5), ("sigmoid", nan, nan), ("exp", nan, nan),
    ]  # fmt: skip
    for name, x, expected in cases:
        assert same(run_map(getattr(s, name), ([x],), (dtype,))[0], expected), (name, x)
    for x, y, expected in [(nan, 0, 1), (1, nan, 1), (0.0, -1, inf), (-0.0, -1, -inf), (-8, 1 / 3, nan), (-2, 3, -8), (-1, inf, 1), (2, -inf, 0)]:
        assert same(run_map(s.pow_, ([x], [y]), (dtype, dtype))[0], expected), (x, y)
    for y, x, expected in [(0.0, -1, pi), (-0.0, -1, -pi), (0.0, 0.0, 0.0), (-0.0, -0.0, -pi), (inf, inf, pi / 4), (1, 0, pi / 2)]:
        assert same(run_map(s.arctan2, ([y], [x]), (dtype, dtype))[0], dtype.numpy.type(expected)), (y, x)


def test_halves_are_computed_in_float32_and_rounded_once():
    xs = np.array([0.1, 1.5, 3.0], np.float16)
    assert run_map(s.exp, (xs,), (float16,)).tolist() == np.exp(xs.astype(np.float64)).astype(np.float32).astype(np.float16).tolist()


# -- casts --------------------------------------------------------------------------------------------------------------


def cast_by_definition(x, from_: Dtype, to: Dtype):
    if to is bool_:
        return x != 0
    if to.rank == 1:
        if from_.rank < 2:
            return wrap(int(x), to)
        if x != x:
            return 0
        low, high = limits(to)
        return high if x >= high else low if x <= low else int(x)
    if isinstance(x, float) and not math.isfinite(x):
        return x
    q = Fraction(x)
    if to in HALVES and from_.rank < 2:
        q = Fraction(nearest(q, float32))
    return math.copysign(nearest(q, to), x)


@pytest.mark.parametrize("to", [d for d in ALL if d.rank < 3], ids=repr)
@pytest.mark.parametrize("from_", [d for d in ALL if d.rank < 3], ids=repr)
def test_casts(from_, to):
    if from_ is bool_:
        xs = [False, True]
    elif from_.rank == 1:
        rng = np.random.default_rng(1)
        xs = [*interesting(from_), *(int(x) for x in rng.integers(*limits(from_), 200, dtype=from_.numpy, endpoint=True))]
        xs += [x for x in (2**24 + 1, 2**53 + 1, 2**63 - 513, 2**62 + 2**38 + 1, 65519, 65520, 2049, 2051) if limits(from_)[0] <= x <= limits(from_)[1]]
    else:
        near = [float(b) + d for b in (0, 127, 128, 255, 256, -128, -129, 32767, 65535, 65536) for d in (-1.5, -0.5, 0.0, 0.5)]
        far = [2.0**31, 2.0**31 - 1, -(2.0**31), -(2.0**31) - 1, 2.0**32, 2.0**63, -(2.0**63), 2.0**64, 1e30, -1e30, 65519.999, 65520.0, 3.39e38, 1e-7, 6e-8, 1e-40]
        tie = [1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-11 + 2.0**-50, 1 + 2.0**-24 + 2.0**-52, 3.3961775292304601e38]
        with np.errstate(all="ignore"):
            xs = [float(x) for x in np.array([*samples(from_), *near, *far, *tie, 0.0, -0.0, math.inf, -math.inf, math.nan], from_.numpy)]
    got = run_map(lambda x: s.cast(x, to), (xs,), (from_,))
    assert got.dtype == to.numpy
    for x, z in zip(xs, got, strict=True):
        expected = cast_by_definition(x, from_, to)
        assert same(z, expected) if to.rank == 2 else int(z) == int(expected), (x, z, expected)


def test_float64_to_bfloat16_rounds_once():
    x = 1 + 2.0**-8 + 2.0**-40  # float32 would make it a tie, which goes to 1
    assert float(run_map(lambda v: s.cast(v, bfloat16), ([x],), (float64,))[0]) == 1 + 2.0**-7


def test_bitcast():
    assert run_map(lambda x: s.bitcast(x, uint32), ([1.0, -0.0],), (float32,)).tolist() == [0x3F800000, 0x80000000]
    assert run_map(lambda x: s.bitcast(x, float16), ([0x3C00],), (next(d for d in ALL if d.name == "uint16"),)).tolist() == [1.0]
    assert run_map(lambda x: s.bitcast(x, int8), ([255],), (uint8,)).tolist() == [-1]
    assert run_map(lambda x: s.bitcast(x, float64), ([0x3FF0 << 48],), (int64,)).tolist() == [1.0]


def test_complex_parts_keep_infinities_apart():
    z = run_map(s.make_complex, ([math.inf, 1.0], [math.nan, -0.0]), (float32, float32))
    assert z.real.tolist() == [math.inf, 1.0]
    assert math.isnan(z.imag[0]) and math.copysign(1, z.imag[1]) == -1
    assert run_map(lambda v: Expr("real", float32, (v,)), ([3 + 4j],), (complex64,)).tolist() == [3]
    assert run_map(lambda v: Expr("imag", float32, (v,)), ([3 + 4j],), (complex64,)).tolist() == [4]


def test_every_primitive_is_known():
    assert set(interpreter.OPERATIONS) | {"cast", "bitcast"} == set(s.OPS)


def test_threefry_is_salmons():
    # Known answers: Random123 1.09, kat_vectors, threefry2x32 20.
    for count, key, expected in [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ]:
        columns = [[key[0]], [key[1]], [count[0]], [count[1]]]
        words = [run_map(lambda *k, w=w: s.threefry(*k)[w], columns, [uint32] * 4)[0] for w in (0, 1)]
        assert tuple(map(int, words)) == expected


# -- the order of sums: plain loops written from docs/design/cpu_abi.md ----------------------------------------------------


def fold(lanes, join):
    for width in (16, 8, 4, 2, 1):
        lanes = [join(lanes[k], lanes[k + width]) for k in range(width)]
    return lanes[0]


def row_loop(xs, join, identity):
    chunks = []
    for start in range(0, len(xs), 4096) or [0]:
        lanes = [identity] * 32
        for i in range(start, min(start + 4096, len(xs))):
            lanes[i % 32] = join(lanes[i % 32], xs[i])
        chunks.append(fold(lanes, join))
    if len(chunks) == 1:
        return chunks[0]
    lanes = [identity] * 32
    for k, total in enumerate(chunks):
        lanes[k % 32] = join(lanes[k % 32], total)
    return fold(lanes, join)


def column_loop(xs, join, identity):
    total = identity
    for top in range(0, len(xs), 4096):
        super_ = identity
        for start in range(top, min(top + 4096, len(xs)), 64):
            block = identity
            for x in xs[start : min(start + 64, len(xs))]:
                block = join(block, x)
            super_ = join(super_, block)
        total = join(total, super_)
    return total


def reduce_kernel(form: str, kind: str, dtype: Dtype, value_dtype: Dtype | None = None, to: Dtype | None = None) -> Kernel:
    """Rows of (slot 2, slot 3); for the column form, columns of (slot 3, slot 2)."""
    value_dtype = value_dtype or dtype
    rows, n = Axis(Slot(2), False), Axis(Slot(3), True)
    if form == "row":
        axes, index, out = (rows, n), Index(0, ((0, Slot(3)), (1, 1))), Index(0, ((0, 1),))
    else:
        axes, index, out = (n, rows), Index(0, ((0, Slot(2)), (1, 1))), Index(0, ((1, 1),))
    stage = Stage((store(1, Expr("row", dtype, (), 0), out, full=False),), (Reduce(0, kind, load(0, value_dtype, index), dtype),))
    return Kernel(form, axes, (value_dtype, dtype), (stage,), 4)


def reduced(form, kind, rows: np.ndarray, dtype: Dtype, value_dtype: Dtype | None = None) -> np.ndarray:
    out = np.zeros(len(rows), dtype.numpy)
    data = rows if form == "row" else rows.T
    interpret(reduce_kernel(form, kind, dtype, value_dtype), [0, 0, *rows.shape], [np.ascontiguousarray(data).ravel(), out])
    return out


LENGTHS = [0, 1, 2, 31, 32, 33, 63, 64, 65, 1000, 4095, 4096, 4097, 8192, 12345, 4096 * 33 + 77]


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize(("form", "loop"), [("row", row_loop), ("column", column_loop)])
def test_sums_are_in_order(form, loop, n):
    xs = np.random.default_rng(n).standard_normal((2, n)).astype(np.float32) * np.float32(3e3)
    expected = [loop(list(x), lambda a, b: a + b, np.float32(0)) for x in xs]
    assert reduced(form, "sum", xs, float32).tolist() == expected


def test_orders_differ_so_the_tests_above_mean_something():
    xs = np.random.default_rng(0).standard_normal((1, 5000)).astype(np.float32)
    assert len({float(reduced("row", "sum", xs, float32)[0]), float(reduced("column", "sum", xs, float32)[0]), float(np.cumsum(xs)[-1])}) == 3


@pytest.mark.parametrize(("form", "loop"), [("row", row_loop), ("column", column_loop)])
def test_sums_of_other_dtypes_are_in_order(form, loop):
    rng = np.random.default_rng(7)
    xs = rng.standard_normal((3, 5000))
    add, mul = (lambda a, b: a + b), (lambda a, b: a * b)
    assert reduced(form, "sum", xs, float64).tolist() == [loop(list(x), add, 0.0) for x in xs]
    near_one = (1 + xs * 1e-2).astype(np.float32)
    assert reduced(form, "prod", near_one, float32).tolist() == [loop(list(x), mul, np.float32(1)) for x in near_one]
    for half in HALVES:
        h = xs.astype(half.numpy)
        assert reduced(form, "sum", h, float32, half).tolist() == [loop(list(x), add, np.float32(0)) for x in h.astype(np.float32)]
    z = (xs + 1j * xs[::-1]).astype(np.complex64)
    expected = [complex(loop(list(x.real), add, np.float32(0)), loop(list(x.imag), add, np.float32(0))) for x in z]
    assert reduced(form, "sum", z, complex64).tolist() == expected
    i = rng.integers(-(2**63), 2**63 - 1, (3, 5000))
    assert reduced(form, "sum", i, int64).tolist() == [wrap(sum(map(int, x)), int64) for x in i]
    assert reduced(form, "prod", i | 1, int64).tolist() == [wrap(math.prod(map(int, x)), int64) for x in i | 1]
    assert reduced(form, "sum", i.astype(np.uint8), uint8).tolist() == [sum(map(int, x)) % 256 for x in i.astype(np.uint8)]


def complex_product(a, b):
    ar, ai, br, bi = a.real, a.imag, b.real, b.imag
    z = np.zeros((), np.complex64)
    z.real, z.imag = ar * br - ai * bi, ar * bi + ai * br
    return z[()]


@pytest.mark.parametrize(("form", "loop"), [("row", row_loop), ("column", column_loop)])
def test_complex_product_is_the_textbooks(form, loop):
    rng = np.random.default_rng(7)
    z = np.exp(1j * rng.standard_normal((2, 300))).astype(np.complex64)
    assert reduced(form, "prod", z, complex64).tolist() == [complex(loop(list(x), complex_product, np.complex64(1))) for x in z]


@pytest.mark.parametrize(("form", "loop"), [("row", row_loop), ("column", column_loop)])
def test_no_identity_is_multiplied_in_where_there_is_no_element(form, loop):
    """1 is not neutral for complex numbers: (2 - 0i) * (1 + 0i) = 2 + 0i, and inf * 0 = NaN."""
    z = np.ones((2, 65), np.complex64)
    z.imag[0], z.real[1, 64] = -0.0, math.inf
    for x, got in zip(z, reduced(form, "prod", z, complex64), strict=True):
        with np.errstate(invalid="ignore"):
            expected = loop(list(x), complex_product, np.complex64(1))
        assert same(got.real, expected.real) and same(got.imag, expected.imag)


@pytest.mark.parametrize("form", ["row", "column"])
def test_extremes_keep_nan_and_arg_takes_the_first(form):
    nan, inf = math.nan, math.inf
    rows = np.array([[3, 1, 3, 1], [nan, 5, nan, 7], [5, nan, 1, nan], [-inf, -inf, -inf, -inf], [0.0, -0.0, 0.0, -0.0]], np.float32)
    assert np.array_equal(reduced(form, "max", rows, float32), [3, nan, nan, -inf, 0], equal_nan=True)
    assert np.array_equal(reduced(form, "min", rows, float32), [1, nan, nan, -inf, 0], equal_nan=True)
    assert reduced(form, "argmax", rows, uint32, float32).tolist() == [0, 0, 1, 0, 0]
    assert reduced(form, "argmin", rows, uint32, float32).tolist() == [1, 0, 1, 0, 0]
    for half in HALVES:
        assert reduced(form, "argmin", rows.astype(half.numpy), uint32, half).tolist() == [1, 0, 1, 0, 0]
        greatest = reduced(form, "max", rows.astype(half.numpy), half).astype(np.float32)
        assert np.array_equal(greatest, [3, nan, nan, -inf, 0], equal_nan=True)
    ints = np.array([[3, -7, 3, -7], [0, 0, 0, 0]], np.int8)
    assert reduced(form, "max", ints, int8).tolist() == [3, 0]
    assert reduced(form, "min", ints, int8).tolist() == [-7, 0]
    assert reduced(form, "argmin", ints, uint32, int8).tolist() == [1, 0]
    bools = np.array([[0, 1, 0], [1, 1, 1], [0, 0, 0]], np.bool_)
    assert reduced(form, "any", bools, bool_).tolist() == [True, True, False]
    assert reduced(form, "all", bools, bool_).tolist() == [False, True, False]
    assert reduced(form, "argmax", bools, uint32, bool_).tolist() == [1, 0, 0]


@pytest.mark.parametrize("form", ["row", "column"])
def test_reducing_nothing_gives_the_identity(form):
    for kind, dtype, expected in [
        ("sum", float32, 0), ("prod", int32, 1), ("max", float32, -math.inf), ("min", int8, 127), ("max", uint64, 0), ("any", bool_, False), ("all", bool_, True),
    ]:  # fmt: skip
        assert reduced(form, kind, np.zeros((2, 0), dtype.numpy), dtype).tolist() == [expected] * 2


def test_reduced_axes_are_one_index_in_row_major_order():
    x = np.random.default_rng(2).standard_normal((7, 3, 90, 11)).astype(np.float32)  # axes 0 and 2, 3 are reduced, 1 is not
    index = Index(0, ((0, 2970), (1, 990), (2, 11), (3, 1)))
    stage = Stage((store(1, Expr("row", float32, (), 5), Index(0, ((1, 1),)), full=False),), (Reduce(5, "sum", load(0, float32, index), float32),))
    kernel = Kernel("row", (Axis(7, True), Axis(3, False), Axis(90, True), Axis(11, True)), (float32, float32), (stage,), 2)
    out = np.zeros(3, np.float32)
    interpret(kernel, [0, 0], [x.ravel(), out])
    assert out.tolist() == [row_loop(list(x[:, k].ravel()), lambda a, b: a + b, np.float32(0)) for k in range(3)]


# -- kernels ------------------------------------------------------------------------------------------------------------


def softmax_kernel(dtype: Dtype, in_place: bool = False) -> Kernel:
    at = Index(0, ((0, Slot(3)), (1, 1)))
    x = s.cast(load(0, dtype, at), float32)
    top, total = Expr("row", float32, (), 0), Expr("row", float32, (), 1)
    e = s.exp(s.sub(x, top))
    y = s.cast(s.div(e, total), dtype)
    stages = (
        Stage((), (Reduce(0, "max", x, float32),)),
        Stage((), (Reduce(1, "sum", e, float32),)),
        Stage((store(0 if in_place else 1, y, at),)),
    )
    return Kernel("row", (Axis(Slot(2), False), Axis(Slot(3), True)), (dtype, dtype), stages, 4)


@pytest.mark.parametrize("dtype", [float32, *HALVES], ids=repr)
def test_softmax(dtype):
    x = np.random.default_rng(0).standard_normal((5, 100)).astype(dtype.numpy)
    out = np.zeros(500, dtype.numpy)
    interpret(softmax_kernel(dtype), [0, 0, 5, 100], [x.ravel(), out])
    wide = x.astype(np.float32)
    e = np.exp((wide - wide.max(1, keepdims=True)).astype(np.float64)).astype(np.float32)
    expected = [list((row / row_loop(list(row), lambda a, b: a + b, np.float32(0))).astype(dtype.numpy)) for row in e]
    assert out.reshape(5, 100).tolist() == [[float(v) for v in row] for row in expected]


def test_slabs_change_nothing(monkeypatch):
    x = np.random.default_rng(0).standard_normal((23, 40)).astype(np.float32)
    whole, parts = np.zeros(920, np.float32), np.zeros(920, np.float32)
    interpret(softmax_kernel(float32), [0, 0, 23, 40], [x.ravel(), whole])
    monkeypatch.setattr(interpreter, "SLAB", 100)
    interpret(softmax_kernel(float32), [0, 0, 23, 40], [x.ravel(), parts])
    assert parts.tolist() == whole.tolist()
    mine = x.ravel().copy()
    interpret(softmax_kernel(float32, in_place=True), [0, 0, 23, 40], [mine, mine])
    assert mine.tolist() == whole.tolist()


def test_loads_come_before_the_stores_of_their_place():
    """a, b = b, a + b in place."""
    a, b = np.arange(5, dtype=np.int32), np.arange(5, dtype=np.int32) * 10
    x, y = load(0, int32), load(1, int32)
    kernel = Kernel("map", (Axis(5, False),), (int32, int32), (Stage((store(0, y), store(1, s.add(x, y)))),), 2)
    interpret(kernel, [0, 0], [a, b])
    assert a.tolist() == [0, 10, 20, 30, 40]
    assert b.tolist() == [0, 11, 22, 33, 44]


def test_strides_offsets_and_a_frame_without_axes():
    x = np.arange(12, dtype=np.int32)
    out = np.zeros(6, np.int32)
    # x as (3, 4): flipped along the first axis, every other column
    index = Index(Slot(2), ((0, Slot(3)), (1, 2)))
    kernel = Kernel("map", (Axis(Slot(4), False), Axis(2, False)), (int32, int32), (Stage((store(1, load(0, int32, index), Index(0, ((0, 2), (1, 1)))),)),), 5)
    interpret(kernel, [0, 0, 8, -4, 3], [x, out])
    assert out.tolist() == x.reshape(3, 4)[::-1, ::2].ravel().tolist()
    single = Kernel("map", (), (int32, int32), (Stage((store(1, load(0, int32, Index(7, ())), Index(3, ())),)),), 2)
    interpret(single, [0, 0], [x, out])
    assert out[3] == 7


def test_masked_loads_read_nothing_and_masked_stores_write_nothing():
    """Pad by two on the left; then store the even places only."""
    x, out = np.arange(1, 4, dtype=np.float32), np.full(5, -1, np.float32)
    i = Expr("axis", int64, (), 0)
    padded = load(0, float32, Index(-2, ((0, 1),)), s.ge(i, s.index_const(2)))
    even = s.eq(s.imod(i, s.index_const(2)), s.index_const(0))
    kernel = Kernel("map", (Axis(5, False),), (float32, float32), (Stage((store(1, padded, mask=even),)),), 2)
    interpret(kernel, [0, 0], [x, out])
    assert out.tolist() == [0, -1, 1, -1, 3]
    nothing = Kernel("map", (Axis(5, False),), (float32, float32), (Stage((store(1, load(0, float32, LINE, s.lt(i, s.index_const(0)))),)),), 2)
    interpret(nothing, [0, 0], [np.zeros(0, np.float32), out])
    assert out.tolist() == [0] * 5


def test_gather():
    table, at, out = np.arange(20, dtype=np.float32), np.array([3, 0, 4], np.int32), np.zeros(6, np.float32)
    row = s.cast(load(1, int32), int64)
    value = load(0, float32, Index(0, ((1, 1),), ((row, 4),)))
    kernel = Kernel("map", (Axis(3, False), Axis(2, False)), (float32, int32, float32), (Stage((store(2, value, Index(0, ((0, 2), (1, 1)))),)),), 3)
    interpret(kernel, [0] * 3, [table, at, out])
    assert out.tolist() == [12, 13, 0, 1, 16, 17]


@pytest.mark.parametrize("at", [-1, 3])
def test_an_index_outside_its_buffer_is_an_error(at):
    x = np.zeros(3, np.float32)
    kernel = Kernel("map", (), (float32, float32), (Stage((store(1, load(0, float32, Index(at, ())), Index(0, ())),)),), 2)
    with pytest.raises(IndexError, match="b0 of 3"):
        interpret(kernel, [0, 0], [x, np.zeros(1, np.float32)])


def bits(x: float) -> int:
    return struct.unpack("<q", struct.pack("<d", x))[0]


@pytest.mark.parametrize(
    ("dtype", "slot", "expected"),
    [
        (float32, bits(0.1), np.float32(0.1)),
        (float64, bits(0.1), 0.1),
        (bfloat16, bits(1 + 2.0**-8 + 2.0**-40), 1 + 2.0**-7),
        (int8, 300, 44),
        (uint64, -1, 2**64 - 1),
        (int64, -5, -5),
        (bool_, 256, True),
    ],
    ids=str,
)
def test_params(dtype, slot, expected):
    out = np.zeros(1, dtype.numpy)
    for attr in (Slot(1), 1):
        interpret(Kernel("map", (), (dtype,), (Stage((store(0, Expr("param", dtype, (), attr), Index(0, ())),)),), 2), [0, slot], [out])
        assert out[0] == expected


def test_constants():
    for dtype in ALL:
        assert run_map(lambda x, d=dtype: s.const(1, d), ([0, 0],), (uint8,)).tolist() == [1, 1]
    assert math.isnan(run_map(lambda x: s.const(math.nan, float32), ([0],), (uint8,))[0])
    assert run_map(lambda x: s.const(2**64 - 1, uint64), ([0],), (uint8,)).tolist() == [2**64 - 1]


def scatter(buffer: np.ndarray, at, value: np.ndarray, dtype: Dtype, how: str | None) -> None:
    index = Index(0, (), ((load(1, int64), 1),))
    kernel = Kernel("scatter", (Axis(len(value), False),), (dtype, int64, dtype), (Stage((store(0, load(2, dtype), index, combine=how),)),), 3)
    interpret(kernel, [0] * 3, [buffer, np.asarray(at, np.int64), value])


@pytest.mark.parametrize("dtype", ALL, ids=repr)
@pytest.mark.parametrize("how", [None, "add", "mul", "max", "min"])
def test_scatter_joins_in_order_rounding_each_time(how, dtype):
    rng = np.random.default_rng(4)
    at = rng.integers(0, 7, 300)
    value = (rng.standard_normal(300) * 3).astype(dtype.numpy) if dtype.rank else rng.integers(0, 2, 300).astype(np.bool_)
    if how == "mul":
        value = (value * dtype.numpy.type(0.4) + dtype.numpy.type(1)).astype(dtype.numpy)
    if dtype is complex64:
        value = value + np.complex64(1j) * value[::-1]
    function = {"add": s.add, "mul": s.mul, "max": s.max_, "min": s.min_, None: lambda a, b: b}[how]
    start = np.ones(7, dtype.numpy)
    got, expected = start.copy(), start.copy()
    scatter(got, at, value, dtype, how)
    for k, v in zip(at, value, strict=True):
        expected[k] = run_map(function, ([expected[k]], [v]), (dtype, dtype))[0]
    assert np.array_equal(got, expected), (got, expected)


def test_scatter_that_reads_what_it_wrote_goes_place_by_place():
    """A running sum: buffer[i + 1] = buffer[i] + x[i]."""
    x, total = np.arange(1, 7, dtype=np.int32), np.zeros(7, np.int32)
    value = s.add(load(0, int32), load(1, int32))
    kernel = Kernel("scatter", (Axis(6, False),), (int32, int32), (Stage((store(0, value, Index(1, ((0, 1),))),)),), 2)
    interpret(kernel, [0, 0], [total, x])
    assert total.tolist() == [0, 1, 3, 6, 10, 15, 21]


def norm_backward(n_rows: int, n: int):
    """Stage 0: sums of g and g*x, kept once a row. Stage 1: dx in full; side sums of g and g*x."""
    at, row = Index(0, ((0, n), (1, 1))), Index(0, ((0, 1),))
    g, x = load(0, float32, at), load(1, float32, at)
    gx = s.mul(g, x)
    a, b = Expr("row", float32, (), 0), Expr("row", float32, (), 1)
    stages = (
        Stage((store(2, a, row, full=False), store(3, s.mul(a, b), row, full=False)), (Reduce(0, "sum", g, float32), Reduce(1, "sum", gx, float32))),
        Stage((store(4, s.sub(g, s.mul(x, b)), at),), (), (Side(5, Index(0, ((1, 1),)), gx), Side(6, Index(0, ((1, 1),)), g))),
    )
    return Kernel("row", (Axis(n_rows, False), Axis(n, True)), (float32,) * 7, stages, 7)


@pytest.mark.parametrize("slab", [1 << 18, 500])
def test_stages_row_stores_and_side_sums(slab, monkeypatch):
    monkeypatch.setattr(interpreter, "SLAB", slab)
    rng = np.random.default_rng(9)
    n_rows, n = 200, 37
    g, x = (rng.standard_normal((n_rows, n)).astype(np.float32) for _ in range(2))
    out = [np.zeros(k, np.float32) for k in (n_rows, n_rows, n_rows * n, n, n)]
    interpret(norm_backward(n_rows, n), [0] * 7, [g.ravel(), x.ravel(), *out])

    def add(a, b):
        return a + b

    a = [row_loop(list(row), add, np.float32(0)) for row in g]
    b = [row_loop(list(row), add, np.float32(0)) for row in g * x]
    assert out[0].tolist() == a
    assert out[1].tolist() == [p * q for p, q in zip(a, b, strict=True)]
    assert out[2].tolist() == (g - x * np.array(b)[:, None]).ravel().tolist()
    assert out[3].tolist() == [column_loop(list(column), add, np.float32(0)) for column in (g * x).T]
    assert out[4].tolist() == [column_loop(list(column), add, np.float32(0)) for column in g.T]


def test_side_sums_of_halves_add_up_in_float32():
    x = np.random.default_rng(1).standard_normal((300, 4)).astype(np.float16)
    side = Side(1, Index(0, ((1, 1),)), load(0, float16, Index(0, ((0, 4), (1, 1)))))
    out = np.zeros(4, np.float16)
    interpret(Kernel("row", (Axis(300, False), Axis(4, True)), (float16, float16), (Stage((), (), (side,)),), 2), [0, 0], [x.ravel(), out])
    expected = [column_loop(list(c), lambda a, b: a + b, np.float32(0)) for c in x.astype(np.float32).T]
    assert out.tolist() == np.array(expected, np.float32).astype(np.float16).tolist()


def test_arg_reduction_feeds_a_gather():
    """y[i] = w[argmax of row i]."""
    x = np.random.default_rng(0).standard_normal((4, 9)).astype(np.float32)
    w, out = np.arange(9, dtype=np.int32) * 11, np.zeros(4, np.int32)
    best = s.cast(Expr("row", uint32, (), 0), int64)
    stage = Stage(
        (store(2, load(1, int32, Index(0, (), ((best, 1),))), Index(0, ((0, 1),)), full=False),),
        (Reduce(0, "argmax", load(0, float32, Index(0, ((0, 9), (1, 1)))), uint32),),
    )
    interpret(Kernel("row", (Axis(4, False), Axis(9, True)), (float32, int32, int32), (stage,), 3), [0] * 3, [x.ravel(), w, out])
    assert out.tolist() == (x.argmax(1) * 11).tolist()
