"""Vector math functions: error in units of the last place, special values, one result at every width."""

from __future__ import annotations

import ctypes
import re
from decimal import Decimal, localcontext
from functools import cache

import ml_dtypes
import numpy as np
import pytest
import scipy.special

from isthmus.backends.cpu import mathlib, mathlib_int, mathlib_parts
from isthmus.backends.cpu.compile import FUNCTION_ATTRIBUTES, assembly, compile_module, host
from isthmus.backends.cpu.mathlib_int import INTEGER_FUNCTIONS
from isthmus.backends.cpu.mathlib_parts import FUNCTIONS

FLOAT = {"f32": np.float32, "f64": np.float64}
INTEGERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
SPECIAL = [0.0, 1.0, 0.5, 2.0, 3.0, 0.25, 0.9, 1.5, 10.0, 1e5, 1e10, np.inf]
ULPS = {"pow": {"f64": 2.0}, "erfinv": {"f32": 2.5, "f64": 3.0}}  # of the others: 2
rng = np.random.default_rng


def module(name: str, dtype: str, width: int) -> tuple[str, int]:
    """IR of `run(out, a, b, n)`: the function over n elements, a multiple of the width; and how many inputs it has."""
    symbol, texts = mathlib.function(name, dtype, width)
    result, arguments = re.match(r"define internal (.*) @\w+\((.*)\) alwaysinline", texts[-1]).groups()
    kinds = [argument.rsplit(" ", 1)[0] for argument in arguments.split(", ")]
    element = lambda kind: kind.split(" x ")[-1].rstrip(">")
    lines = []
    for k, kind in enumerate(kinds):
        lines += [f"  %p{k} = getelementptr {element(kind)}, ptr %a{k}, i64 %i", f"  %l{k} = load {kind}, ptr %p{k}, align 1"]
    text = f"""
define void @run(ptr %out, {", ".join(f"ptr %a{k}" for k in range(len(kinds)))}, i64 %n) {FUNCTION_ATTRIBUTES} {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{chr(10).join(lines)}
  %r = call {result} @{symbol}({", ".join(f"{kind} %l{k}" for k, kind in enumerate(kinds))})
  %q = getelementptr {element(result)}, ptr %out, i64 %i
  store {result} %r, ptr %q, align 1
  %next = add i64 %i, {width}
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
    return "\n".join(texts) + text, len(kinds)


def compiled(name: str, dtype: str, width: int):
    text, count = module(name, dtype, width)
    address = compile_module(text, ["run"])["run"]
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (count + 1), ctypes.c_int64)(address)


def run(name: str, dtype: str, width: int, *inputs: np.ndarray, result=None) -> np.ndarray:
    n = inputs[0].size
    padded = [np.resize(np.ascontiguousarray(x), -(-n // 64) * 64) for x in inputs]
    out = np.empty(padded[0].size, result or inputs[0].dtype)
    compiled(name, dtype, width)(out.ctypes.data, *(x.ctypes.data for x in padded), out.size)
    return out[:n]


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Bit for bit, but any NaN for another."""
    bits = f"u{a.dtype.itemsize}"
    return bool(np.all((a.view(bits) == b.view(bits)) | (np.isnan(a) & np.isnan(b))))


# --- inputs and references ----------------------------------------------------------------------------------------


@cache
def sample(dtype: str, seed: int) -> np.ndarray:
    """All exponents, the neighbourhoods of 0, 1 and of multiples of pi/2, the ranges where exp and tanh bend, specials."""
    r, float_type, n = rng(seed), FLOAT[dtype], 1 << 15
    bits = r.integers(0, 2 ** (8 * float_type().itemsize), n, dtype=f"u{float_type().itemsize}").view(float_type)
    info = np.finfo(float_type)
    edges = [info.max, info.tiny, info.smallest_subnormal, info.tiny * 1.5, info.eps, 1 - info.eps, 1 + info.eps]
    edges += [88.72283, 88.72284, 87.33655, 103.9721, 103.98, 709.78271, 709.7828, 745.1332, 745.14, 708.3965, 9.0109, 3.92, 5.92]
    edges += [65536.0, 65537.0, 2.0**26, 2.0**27, 6381956970095103 * 2.0**70]
    magnitude = r.normal(size=n) * 10 ** r.uniform(-3, 2.5, n)
    near_one = 1 + r.normal(size=n) * 10 ** r.uniform(np.log10(info.eps), 0, n)
    quarter_turns = np.rint(10 ** r.uniform(0, 37 if dtype == "f32" else 300, n)) * (np.pi / 2)
    parts = [SPECIAL, edges, r.uniform(-1, 1, n), r.uniform(-750, 750, n), r.uniform(-12, 12, n), magnitude, near_one, quarter_turns]
    with np.errstate(over="ignore"):
        x = np.concatenate([bits, *(np.asarray(p, float_type) for p in parts)])
    return np.concatenate([x, -x, [float_type("nan")]]).astype(float_type)


@cache
def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Two samples beside each other, every special value with every other, small integers, powers that stay finite."""
    x, float_type = sample(dtype, 1), FLOAT[dtype]
    y = rng(3).permutation(sample(dtype, 2))
    special = np.array([*SPECIAL, *np.negative(SPECIAL), np.nan, np.finfo(float_type).max, np.finfo(float_type).smallest_subnormal])
    whole = np.arange(-7.0, 8.0)
    grids = [v.ravel() for v in (*np.meshgrid(special, special), *np.meshgrid(whole, whole))]
    with np.errstate(all="ignore"):
        span = rng(4).uniform(-1080, 1030, x.size) if dtype == "f64" else rng(4).uniform(-150, 130, x.size)
        exponents = span / np.log2(np.abs(x.astype(np.longdouble)))
        a = np.concatenate([x, x, grids[0], grids[2]]).astype(float_type)
        b = np.concatenate([y, exponents, grids[1], grids[3]]).astype(float_type)
    return a, b


def inputs(name: str, dtype: str) -> tuple[np.ndarray, ...]:
    return pairs(dtype) if FUNCTIONS[name][0] == 2 else (sample(dtype, 1),)


def sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


REFERENCES = {
    "pow": np.power,
    "sigmoid": sigmoid,
    "erf": scipy.special.erf,
    "erfinv": lambda x: np.copysign(scipy.special.erfinv(x), x),
}


def ulp_size(x: np.ndarray, dtype: str) -> np.ndarray:
    """The distance of neighbouring floats at |x|."""
    mantissa, least = {"f32": (23, -126), "f64": (52, -1022)}[dtype]
    _, exponent = np.frexp(x)
    return np.ldexp(np.ones_like(x), np.maximum(exponent - 1, least) - mantissa)


def errors(got: np.ndarray, want: np.ndarray, dtype: str) -> np.ndarray:
    """Error in units of the last place; infinite for a wrong NaN, infinity or sign."""
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)
        finite = np.isfinite(rounded) & np.isfinite(got)
        error = np.zeros(got.size)
        error[finite] = np.abs(got[finite].astype(want.dtype) - want[finite]) / ulp_size(want[finite], dtype)
        # At the edge of overflow one of the two may be infinite: then infinity counts as the float after the largest.
        edge = np.finfo(got.dtype).max.astype(want.dtype)
        other = ~finite & ~np.isnan(want)
        beyond = lambda v: np.minimum(np.abs(v.astype(want.dtype)), edge + ulp_size(edge, dtype))
        error[other] = np.abs(beyond(got[other]) - beyond(want[other])) / ulp_size(edge, dtype)
        wrong = (np.isnan(got) != np.isnan(want)) | ((np.signbit(got) != np.signbit(want)) & ~np.isnan(want))
        error[wrong] = np.inf
    return error


def check(name: str, dtype: str, xs: tuple[np.ndarray, ...], got: np.ndarray, error: np.ndarray) -> None:
    limit = ULPS.get(name, {}).get(dtype, 2.0)
    worst = int(np.argmax(error))
    assert error[worst] <= limit, f"{name}({', '.join(repr(x[worst]) for x in xs)}) = {got[worst]!r}, {error[worst]} ulp off"


# --- functions of floats ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_is_within_its_ulps(name):
    xs = inputs(name, "f32")
    got = run(name, "f32", 16, *xs)
    with np.errstate(all="ignore"):
        want = REFERENCES.get(name, getattr(np, name, None))(*(x.astype(np.float64) for x in xs))
    check(name, "f32", xs, got, errors(got, want, "f32"))


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no wider type to compare with")
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in ("erf", "erfinv")])
def test_float64_is_within_its_ulps(name):
    xs = inputs(name, "f64")
    got = run(name, "f64", 8, *xs)
    with np.errstate(all="ignore"):
        want = REFERENCES.get(name, getattr(np, name, None))(*(x.astype(np.longdouble) for x in xs))
    check(name, "f64", xs, got, errors(got, want, "f64"))


def erf_decimal(x: float) -> Decimal:
    """The Taylor series, with digits enough for its cancellation."""
    square, term, total, k = Decimal(x) ** 2, Decimal(x), Decimal(x), 0
    while abs(term) > Decimal("1e-40") * abs(total):
        k += 1
        term *= -square / k
        total += term / (2 * k + 1)
    return total * 2 / PI.sqrt()


PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798")


def test_float64_erf_and_erfinv_are_within_their_ulps():
    r = rng(5)
    with localcontext() as context:
        context.prec = 80
        x = np.concatenate([r.uniform(0, 6, 300), 10 ** r.uniform(-300, 0, 50), r.uniform(0.9, 1.1, 50)])
        got = run("erf", "f64", 8, x)
        size = ulp_size(got, "f64")
        check("erf", "f64", (x,), got, np.array([float(abs(Decimal(g) - erf_decimal(v)) / Decimal(s)) for v, g, s in zip(x, got, size)]))

        x = np.concatenate([r.uniform(0, 1, 300), 10 ** r.uniform(-300, 0, 50), 1 - 10 ** r.uniform(-15.9, -1, 200)])
        got = run("erfinv", "f64", 8, x)
        size = ulp_size(got, "f64")
        error = []
        for v, y, s in zip(x, got, size):  # (erf y - v) / erf'(y) is how far y is off
            slope = 2 / PI.sqrt() * (-(Decimal(y) ** 2)).exp()
            error.append(float(abs(erf_decimal(y) - Decimal(v)) / slope / Decimal(s)))
        check("erfinv", "f64", (x,), got, np.array(error))


@pytest.mark.parametrize("dtype", FLOAT)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_width_gives_the_same_bits(name, dtype):
    xs = [x[::7] for x in inputs(name, dtype)]
    one = run(name, dtype, 1, *xs)
    for width in (4, 8, 16, 64):
        assert same(run(name, dtype, width, *xs), one), width


@pytest.fixture
def plain_host(monkeypatch):
    """A host without AVX-512 and F16C, for the texts alone: they run on this one."""
    for file in (mathlib_parts, mathlib_int):
        monkeypatch.setattr(file, "host_has", lambda feature: False)
    mathlib.function.cache_clear()
    yield
    mathlib.function.cache_clear()


@pytest.mark.skipif(not host().has("avx512f"), reason="the texts are the same")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_instructions_of_avx512_change_no_bit(name, plain_host):
    for dtype in FLOAT:
        xs = [x[::5] for x in inputs(name, dtype)]
        plain = run(name, dtype, 16, *xs)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mathlib_parts, "host_has", lambda feature: True)
            mathlib.function.cache_clear()
            assert same(run(name, dtype, 16, *xs), plain), dtype
        mathlib.function.cache_clear()


@pytest.mark.parametrize("dtype", FLOAT)
def test_no_function_calls_a_library(dtype):
    for name in FUNCTIONS:
        called = set(re.findall(r"call\w*\s+\*?(\S+)", assembly(module(name, dtype, 16)[0])))
        assert all("im_large_quadrant" in target for target in called), (name, called)


INF, NAN = float("inf"), float("nan")
EXACT = [  # (name, arguments, result), in both dtypes
    *[("exp", (x,), y) for x, y in [(0, 1), (-INF, 0), (INF, INF), (1e30, INF), (-1e30, 0)]],
    *[("exp2", (x,), y) for x, y in [(0, 1), (10, 1024), (-3, 0.125), (-INF, 0), (INF, INF)]],
    *[("expm1", (x,), y) for x, y in [(0, 0), (-0.0, -0.0), (-INF, -1), (INF, INF), (-100, -1)]],
    *[(f, (x,), y) for f in ("log", "log2", "log10") for x, y in [(1, 0), (0, -INF), (-0.0, -INF), (INF, INF), (-1, NAN), (-INF, NAN)]],
    *[("log2", (2.0**k,), k) for k in (-126, -10, -1, 1, 7, 127)],
    *[("log1p", (x,), y) for x, y in [(0, 0), (-0.0, -0.0), (-1, -INF), (INF, INF), (-2, NAN), (-INF, NAN)]],
    *[(f, (x,), x) for f in ("sin", "tan", "arcsin", "arctan", "sinh", "tanh", "arcsinh", "arctanh", "erf", "erfinv") for x in (0.0, -0.0, 1e-44, -1e-44) if (f[:3], x) not in [("erf", 1e-44), ("erf", -1e-44)]],
    *[(f, (x,), NAN) for f in ("sin", "cos", "tan") for x in (INF, -INF)],
    ("cos", (0,), 1), ("cosh", (0,), 1), ("cosh", (-INF,), INF), ("sinh", (-INF,), -INF), ("arccosh", (1,), 0), ("arccosh", (0.5,), NAN),
    ("arccosh", (INF,), INF), ("arcsinh", (-INF,), -INF), ("arccos", (1,), 0), ("arcsin", (1.5,), NAN), ("arccos", (-1.5,), NAN),
    *[(f, (x,), np.sign(x)) for f in ("tanh", "erf") for x in (20, -20, 1e30, INF, -INF)],
    *[(f, (x,), x * INF) for f in ("arctanh", "erfinv") for x in (1.0, -1.0)],
    *[(f, (1.5,), NAN) for f in ("arctanh", "erfinv")],
    *[("sigmoid", (x,), y) for x, y in [(0, 0.5), (-INF, 0), (INF, 1), (800, 1), (-800, 0)]],
    *[("pow", (x, 0.0), 1) for x in (0, INF, NAN, -2)], *[("pow", (1.0, y), 1) for y in (INF, -INF, NAN, 5)],
    *[("pow", (-1.0, y), 1) for y in (INF, -INF, 2)], ("pow", (-1.0, 3), -1), ("pow", (-8, 1 / 3), NAN), ("pow", (-2, -3), -0.125),
    ("pow", (-0.0, 3), -0.0), ("pow", (-0.0, -3), -INF), ("pow", (-0.0, 2), 0), ("pow", (0, -0.5), INF), ("pow", (-INF, 3), -INF),
    ("pow", (-INF, -3), -0.0), ("pow", (-INF, 0.5), INF), ("pow", (0.5, INF), 0), ("pow", (0.5, -INF), INF), ("pow", (3, 4), 81),
    ("fmod", (5.5, 2), 1.5), ("fmod", (-5.5, 2), -1.5), ("fmod", (-0.0, 3), -0.0), ("fmod", (3, INF), 3), ("fmod", (3, 0), NAN),
    ("fmod", (INF, 3), NAN), ("fmod", (-4, 2), -0.0),
]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOAT)
def test_exact_values(dtype):
    for name, arguments, want in EXACT:
        for width in (1, 16):
            got = run(name, dtype, width, *(np.array([v], FLOAT[dtype]) for v in arguments))
            assert same(got, np.array([want], FLOAT[dtype])) or (name == "erfinv" and got == want), (name, arguments, got[0], want)


@pytest.mark.parametrize("dtype", FLOAT)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_nan_stays(name, dtype):
    nan, one = np.array([np.nan], FLOAT[dtype]), np.array([2.0], FLOAT[dtype])
    for xs in [(nan,)] if FUNCTIONS[name][0] == 1 else [(nan, one), (one, nan), (nan, nan)]:
        assert np.isnan(run(name, dtype, 1, *xs)).all() and np.isnan(run(name, dtype, 16, *xs)).all()


def test_fmod_is_exact_for_any_exponents():
    for dtype in FLOAT:
        x, y = pairs(dtype)
        with np.errstate(all="ignore"):
            assert same(run("fmod", dtype, 16, x, y), np.fmod(x, y))


# --- integers -----------------------------------------------------------------------------------------------------


def numpy_type(dtype: str) -> np.dtype:
    return np.dtype(dtype.replace("i", "int").replace("u", "uint"))


def integer_pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    info, r, t = np.iinfo(numpy_type(dtype)), rng(6), numpy_type(dtype)
    edges = np.array([info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, *([-1, -2, -3] if info.min else [])], t)
    a, b = (v.ravel() for v in np.meshgrid(edges, edges))
    x, y = (r.integers(info.min, info.max, 1 << 12, dtype=t, endpoint=True) for _ in range(2))
    shifted = y >> r.integers(0, info.bits, y.size).astype(t)
    return np.concatenate([a, x, x]), np.concatenate([b, y, shifted])


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("width", [1, 4, 16])
def test_integers_divide_as_in_numpy_and_never_trap(dtype, width):
    a, b = integer_pairs(dtype)
    with np.errstate(all="ignore"):
        quotient, remainder = np.floor_divide(a, b), np.where(b == 0, a, np.remainder(a, b))
    np.testing.assert_array_equal(run("idiv", dtype, width, a, b), quotient)
    np.testing.assert_array_equal(run("imod", dtype, width, a, b), remainder)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_powers_wrap_and_are_0_for_negative_exponents(dtype):
    a, b = integer_pairs(dtype)
    want = np.where(b < 0, 0, np.power(a, np.maximum(b, 0))).astype(a.dtype)
    for width in (1, 16):
        np.testing.assert_array_equal(run("ipow", dtype, width, a, b), want)


@pytest.mark.parametrize("source", FLOAT)
@pytest.mark.parametrize("target", INTEGERS)
def test_floats_become_integers_the_same_way_in_every_lane(target, source):
    v = [NAN, INF, -INF, 2.0**31, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 2.0**64, -0.0, 0.9, -0.9, -1.5, 300.7, -300.2, 1e20]
    x = np.array([*v, *rng(7).normal(size=500) * 10.0 ** rng(8).integers(-3, 22, 500)], FLOAT[source])
    want = []
    for value in map(float, x):
        middle = 64 if target in ("i64", "u32", "u64") else 32
        if target == "u64" and value >= 2.0**63:
            whole = int(value) if value < 2.0**64 else 0
        else:
            whole = int(value) if abs(value) < 2.0 ** (middle - 1) else -(2 ** (middle - 1))
        bits = np.iinfo(numpy_type(target)).bits
        want.append(whole % 2**bits - (2**bits if target[0] == "i" and whole % 2**bits >= 2 ** (bits - 1) else 0))
    for width in (1, 4, 16):
        np.testing.assert_array_equal(run(f"to_{target}", source, width, x, result=numpy_type(target)), np.array(want, numpy_type(target)))


# --- 16-bit floats ------------------------------------------------------------------------------------------------

HALVES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def test_16_bit_floats_widen_and_round_to_nearest_even():
    check_16_bits()


def test_16_bit_floats_without_f16c(plain_host):
    check_16_bits()


def check_16_bits():
    every = np.arange(1 << 16, dtype=np.uint16)
    for name, half in HALVES.items():
        with np.errstate(all="ignore"):
            wide = every.view(half).astype(np.float32)
            middles = ((wide[1:].astype(np.float64) + wide[:-1]) / 2).astype(np.float32)
            bits = rng(9).integers(0, 2**32, 1 << 16, dtype=np.uint32).view(np.float32)
            x = np.concatenate([wide, middles, np.nextafter(middles, np.float32(9)), np.nextafter(middles, np.float32(-9)), bits])
            narrow = x.astype(half)
            x64 = np.concatenate([middles * np.float64(1 + 2.0**-40), middles * np.float64(1 - 2.0**-40), middles.astype(np.float64)])
            # What lies just beside a middle is rounded away from it.
            step = np.concatenate([np.nextafter(middles, np.sign(middles) * np.float32(INF)), np.nextafter(middles, np.float32(0)), middles])
            narrow64 = step.astype(np.float32).astype(half)
        for width in (1, 4, 16):
            assert same(run(f"{name}_to_f32", name, width, every, result=np.float32), wide)
            assert same_half(run(f"f32_to_{name}", "f32", width, x, result=np.uint16), narrow)
            assert same_half(run(f"f64_to_{name}", "f64", width, x64, result=np.uint16), narrow64)


def same_half(bits: np.ndarray, want: np.ndarray) -> bool:
    nan = np.isnan(want.astype(np.float32))
    got = bits.view(want.dtype).astype(np.float32)
    return bool(np.all(np.where(nan, np.isnan(got), bits == want.view(np.uint16))))


def test_all_names_are_known():
    assert {"idiv", "imod", "ipow", "f32_to_bf16", "to_u8"} <= INTEGER_FUNCTIONS.keys()
