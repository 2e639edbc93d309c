"""Vector math functions as LLVM IR text: `function("exp", "f32", 16)`.

Each function below is written once for both dtypes and any number of lanes, lane-wise and without fast-math flags, so a
lane's bits do not depend on the width. Coefficients (mathlib_tables.py) are minimax fits of our own, made by
benchmarks/mathlib_fit.py. Errors named in comments are the largest measured against mpmath by
tests/backends/cpu/test_mathlib.py and longer runs, in ulp: f32, then f64.

Conventions: `ax` is |x|; `t = fma(x, c, MAGIC)` leaves round(x c) in the low bits of t, since MAGIC = 1.5 * 2^mantissa;
a constant written `c[0], c[1], ...` is one real number as a sum of floats of falling size.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Callable, Sequence

import llvmlite.binding as llvm

from isthmus.backends.cpu.mathlib_emit import (
    BIAS,
    BITS,
    INT_OF,
    MANTISSA,
    Fn,
    V,
    absolute,
    at_least,
    at_most,
    copysign,
    float_bits,
    fma,
    horner,
    llvm_type,
    round_even,
    select,
    split_sum,
    sqrt,
    truncate,
    two_product,
    two_sum,
)
from isthmus.backends.cpu.mathlib_int import INTEGER_FUNCTIONS, argument_type
from isthmus.backends.cpu.mathlib_tables import (
    COEFFICIENTS,
    LN2,
    LN2_BELOW,
    LOG2E,
    LOG10_2_BELOW,
    LOG10E,
    PI,
    TWO_OVER_PI_WORDS,
    TWO_THIRDS,
)

INF, NAN = float("inf"), float("nan")
MAGIC = {"f32": 1.5 * 2.0**23, "f64": 1.5 * 2.0**52}
MIN_NORMAL = {"f32": 2.0**-126, "f64": 2.0**-1022}
THREE_QUARTERS = {"f32": 0x3F400000, "f64": 0x3FE8000000000000}  # bits

FUNCTIONS: dict[str, tuple[int, Callable[..., V]]] = {}


def define(name: str, arguments: int = 1):
    """Registers the body of a function of `arguments` floats."""

    def register(body: Callable[..., V]) -> Callable[..., V]:
        FUNCTIONS[name] = (arguments, body)
        return body

    return register


@lru_cache(maxsize=None)
def function(name: str, dtype: str, width: int) -> tuple[str, list[str]]:
    """The symbol of a vector function, and the IR definitions and declarations it takes, each a text of its own.

    Args:
        name: One of `FUNCTIONS`, or an integer helper or conversion of mathlib_int.py.
        dtype: "f32" or "f64"; the element type of integers; the source type of conversions.
        width: Lanes; 1 is the scalar type.
    """
    count, body = FUNCTIONS.get(name) or INTEGER_FUNCTIONS[name]
    fn = Fn(f"im_{name}_{dtype}x{width}", width, [argument_type(dtype)] * count)
    result = body(*fn.args) if name in FUNCTIONS else body(dtype, *fn.args)
    return fn.symbol, [*fn.needs, fn.text(result)]


def helper(name: str, args: Sequence[V], results: Sequence[str], body: Callable[..., Sequence[V]]) -> list[V]:
    """Calls a rarely run part, kept out of line and compiled for at most 8 lanes; it returns `results` as a struct."""
    caller = args[0].fn
    lanes = min(caller.width, 8)
    fn = Fn(f"im_{name}_{args[0].ty}x{lanes}", lanes, [a.ty for a in args])
    values = body(*fn.args)
    caller.need(*fn.needs, fn.text(values, "noinline nounwind"))
    kind = "{ " + ", ".join(fn.type(ty) for ty in results) + " }"
    pieces: list[list[str]] = [[] for _ in results]
    for refs in zip(*(caller.split(a, lanes) for a in args)):
        given = ", ".join(f"{fn.type(a.ty)} {ref}" for a, ref in zip(args, refs))
        packed = caller.emit("struct", f"call {kind} @{fn.symbol}({given})")
        for i, ty in enumerate(results):
            pieces[i].append(caller.emit(ty, f"extractvalue {kind} {packed.ref}, {i}").ref)
    return [caller.join(ty, refs, lanes) for ty, refs in zip(results, pieces)]


def coefficients(name: str, ty: str) -> Sequence[float]:
    return COEFFICIENTS[ty, name]


def fma_parts(k: V, constant: Sequence[float], rest: V) -> V:
    """rest - k * constant, the parts taken off one by one."""
    for part in constant:
        rest = fma(k, -part, rest)
    return rest


# --- exponents ----------------------------------------------------------------------------------------------------
# AVX-512 takes numbers apart and scales them in one instruction each, exactly as the integer formulas beside do; whole
# 512-bit registers use it.

_HAS_AVX512 = llvm.get_host_cpu_features().get("avx512f", False)


def has_avx512(v: V) -> bool:
    return _HAS_AVX512 and v.fn.width * BITS[v.ty] % 512 == 0


def avx512(name: str, values: Sequence[V], constant: str = "") -> V:
    """The 512-bit instruction on each register: operands, an immediate, then: no mask, the usual rounding."""
    fn, ty = values[0].fn, values[0].ty
    lanes = 512 // BITS[ty]
    kind, mask = llvm_type(ty, lanes), f"i{lanes}"
    symbol = f"llvm.x86.avx512.mask.{name}.p{'s' if ty == 'f32' else 'd'}.512"
    extra = ["i32"] if constant else []
    fn.need(f"declare {kind} @{symbol}({', '.join([kind] * len(values) + extra + [kind, mask, 'i32'])})")
    pieces = []
    for refs in zip(*(fn.split(v, lanes) for v in values)):
        given = [f"{kind} {ref}" for ref in refs] + ([f"i32 {constant}"] if constant else [])
        pieces.append(fn.emit(ty, f"call {kind} @{symbol}({', '.join(given)}, {kind} poison, {mask} -1, i32 4)").ref)
    return fn.join(ty, pieces, lanes)


def round_to_int(x: V, constant: float = 1.0) -> tuple[V, V]:
    """(t, k): k = round(x * constant) as a float, and t whose low bits hold it as an integer."""
    magic = MAGIC[x.ty]
    t = fma(x, constant, magic) if constant != 1.0 else x + magic
    return t, t - magic


def scale(p: V, t: V, k: V) -> V:
    """p * 2^k, rounded once, for any k within twice the exponent range; NaN stays. t, k from `round_to_int`."""
    if has_avx512(p):
        return avx512("scalef", [p, k])
    ty = p.ty
    shifted = t.bits() << MANTISSA[ty]  # k in the exponent's place
    half = (shifted >> 1) & -(1 << MANTISSA[ty])
    one = float_bits(ty, 1.0)
    return p * (half + one).as_float(ty) * ((shifted - half) + one).as_float(ty)


def scale_normal(p: V, t: V, k: V) -> V:
    """p * 2^k where 2^k is a normal number."""
    if has_avx512(p):
        return avx512("scalef", [p, k])
    return p * ((t.bits() << MANTISSA[p.ty]) + float_bits(p.ty, 1.0)).as_float(p.ty)


# --- exponentials -------------------------------------------------------------------------------------------------
# x = (k + f) ln2, |f| <= 1/2, e^x = 2^k (1 + f P(f)); f = x log2(e) - k with log2(e) in two parts.

EXP_RANGE = {"f32": (-104.0, 89.0), "f64": (-746.0, 710.0)}  # beyond: 0 and inf


def exp_parts(x: V) -> tuple[V, V, V, V]:
    """(t, k, f, P(f))."""
    log2e, log2e_low = LOG2E[x.ty][:2]
    t, k = round_to_int(x, log2e)
    f = fma(x, log2e_low, fma(x, log2e, -k))
    return t, k, f, horner(f, coefficients("exp2", x.ty))


def exp_normal(x: V) -> V:
    """e^x where it is a normal number."""
    t, k, f, p = exp_parts(x)
    return scale_normal(fma(f, p, 1.0), t, k)


@define("exp")
def exp(x: V) -> V:
    low, high = EXP_RANGE[x.ty]
    t, k, f, p = exp_parts(at_least(at_most(x, high), low))
    return scale(fma(f, p, 1.0), t, k)


@define("exp2")
def exp2(x: V) -> V:
    low, high = {"f32": (-151.0, 129.0), "f64": (-1076.0, 1025.0)}[x.ty]
    x = at_least(at_most(x, high), low)
    t, k = round_to_int(x)
    f = x - k
    return scale(fma(f, horner(f, coefficients("exp2", x.ty)), 1.0), t, k)


@define("expm1")
def expm1(x: V) -> V:
    # x = k ln2 + r with ln2 in two parts (the first subtraction is exact), q = e^r - 1 = r + r^2 P(r); 2^k q + (2^k - 1),
    # by halves, so that k may be one beyond the exponent range.
    low = {"f32": -18.0, "f64": -38.0}[x.ty]  # beyond: -1
    b = at_least(at_most(x, EXP_RANGE[x.ty][1]), low)
    t, k = round_to_int(b, LOG2E[x.ty][0])
    r = fma_parts(k, LN2[x.ty][:2], b)
    q = fma(r * r, horner(r, coefficients("exp", x.ty)), r)
    s = ((t.bits() << MANTISSA[x.ty]) + float_bits(x.ty, 0.5)).as_float(x.ty)
    y = fma(s, q, s - 0.5) * 2.0
    return copysign(select(k.eq(0.0), q, y), x)


@define("sigmoid")
def sigmoid(x: V) -> V:
    # e = exp(-|x|) never overflows: 1 / (1 + e) above zero, e / (1 + e) below; what rounding took from e and 1 + e is
    # put back to first order.
    t, k, f, p = exp_parts(at_least(-absolute(x), EXP_RANGE[x.ty][0]))
    m = fma(f, p, 1.0)
    m_low = fma(f, p, 1.0 - m)
    e = scale(m, t, k)
    d, d_low = split_sum(x._like(1.0), e)
    below = x < 0.0
    r = select(below, e, 1.0) / d
    return fma(r, select(below, m_low, 0.0) - d_low, r)


def half_exp(ax: V) -> V:
    """e^ax / 2, for ax >= 0, without overflow before the half itself does."""
    t, k, f, p = exp_parts(at_most(ax, EXP_RANGE[ax.ty][1] + 1.0))
    return scale(fma(f, p, 1.0), t - 1.0, k - 1.0)


@define("sinh")
def sinh(x: V) -> V:
    # Below 1 x + x^3 P(x^2), above h - 1 / (4 h) with h = e^x / 2.
    ax = absolute(x)
    h = half_exp(ax)
    small = odd_series(ax, "sinh")
    return copysign(select(ax < 1.0, small, h - 0.25 / h), x)


@define("cosh")
def cosh(x: V) -> V:
    h = half_exp(absolute(x))
    return h + 0.25 / h


@define("tanh")
def tanh(x: V) -> V:
    # Below 0.625 x + x^3 P(x^2), above 1 - 2 / (e^2x + 1), which is 1 from 9.02 (19.1) on.
    ax = absolute(x)
    e = exp_normal(at_most(ax + ax, {"f32": 20.0, "f64": 40.0}[x.ty]))
    small = odd_series(ax, "tanh")
    return copysign(select(ax < 0.625, small, 1.0 - 2.0 / (e + 1.0)), x)


def odd_series(x: V, name: str) -> V:
    """x + x^3 P(x^2)."""
    z = x * x
    return fma(x * z, horner(z, coefficients(name, x.ty)), x)


# --- logarithms ---------------------------------------------------------------------------------------------------
# x = 2^k m with m in [3/4, 3/2), f = m - 1 (exact), log m = f + g with g = -f^2/2 + ... much smaller than f.
# f32: a polynomial; f64: s = f / (2 + f), log m = 2 atanh s = f - (h - s (h + R(s^2))) with h = f^2 / 2.


def exponent_to_float(k: V, ty: str) -> V:
    if ty == "f32":
        return k.cast("sitofp", ty)
    return (k + float_bits(ty, MAGIC[ty])).as_float(ty) - MAGIC[ty]


def split_exponent(x: V) -> tuple[V, V]:
    """(k, m) as floats. With AVX-512 0 gives k = -inf, inf gives k = inf, negative numbers give m = NaN; without it these
    are left to `log_special`."""
    ty, bits = x.ty, MANTISSA[x.ty]
    if has_avx512(x):
        m = avx512("getmant", [x], "11")  # [3/4, 3/2), NaN for negative numbers
        return avx512("getexp", [x]) - avx512("getexp", [m]), m
    tiny = x < MIN_NORMAL[ty]
    i = select(tiny, x * 2.0 ** (bits + 1), x).bits()
    e = (i - THREE_QUARTERS[ty]) >> bits
    m = (i - (e << bits)).as_float(ty)
    return exponent_to_float(e - select(tiny, i._like(bits + 1), 0), ty), m


def log_correction(f: V) -> V:
    """g = log(1 + f) - f for 1 + f in [3/4, 3/2]."""
    if f.ty == "f32":
        z = f * f
        return fma(z * f, horner(f, coefficients("log", "f32")), z * -0.5)
    s = f / (f + 2.0)
    z, h = s * s, f * f * 0.5
    return fma(s, h + z * horner(z, coefficients("atanh_log", "f64")), -h)


def log_join(k: V, f: V, g: V) -> V:
    """k ln2 + f + g, for infinite k too."""
    high, low = LN2_BELOW[f.ty]
    return fma(k, high, f + fma(k, low, g))


def log_special(x: V, y: V) -> V:
    """log x where x is 0, negative, infinite or NaN; y elsewhere."""
    if has_avx512(x):
        return y
    y = select(x.eq(INF), INF, y)
    return select(x > 0.0, y, select(x.eq(0.0), y._like(-INF), NAN))


@define("log")
def log(x: V) -> V:
    k, m = split_exponent(x)
    f = m - 1.0
    return log_special(x, log_join(k, f, log_correction(f)))


def log_to_base(x: V, per_e: Sequence[float], per_2: Sequence[float]) -> V:
    """(f + g) / ln(base) + k log_base(2), f / ln(base) as a two-part product."""
    k, m = split_exponent(x)
    f = m - 1.0
    g = log_correction(f)
    p, low = two_product(f, per_e[0])
    low = fma(g, per_e[0], fma(f, per_e[1], low))
    if len(per_2) > 1:
        low = fma(k, per_2[1], low)
    return log_special(x, fma(k, per_2[0], p + low))


@define("log2")
def log2(x: V) -> V:
    return log_to_base(x, LOG2E[x.ty], (1.0,))


@define("log10")
def log10(x: V) -> V:
    return log_to_base(x, LOG10E[x.ty], LOG10_2_BELOW[x.ty])


def log1p_parts(u: V, low: V | None = None, more: V | None = None) -> V:
    """log(1 + u + low) + more ln2, for u > -1, low far smaller than u. With 1 + u near 2^k, f = u 2^-k + (2^-k - 1).

    u / 4 and 2^(2 - k) are taken, since 2^-k may be subnormal; so a subnormal u would lose bits.
    """
    ty, bits = u.ty, MANTISSA[u.ty]
    e = ((u + 1.0).bits() - THREE_QUARTERS[ty]) >> bits
    s = ((BIAS[ty] + 2 - e) << bits).as_float(ty)  # 2^(2 - k)
    f = fma(u * 0.25, s, fma(s, 0.25, -1.0))
    k = exponent_to_float(e, ty)
    g = log_correction(f)
    if low is not None:
        g = fma(low * 0.25, s, g)
    return log_join(k + more if more is not None else k, f, g)


SMALL = {"f32": 2.0**-14, "f64": 2.0**-28}  # up to here log1p x = x - x^2 / 2, arcsinh x = x, to the last place


@define("log1p")
def log1p(x: V) -> V:
    y = select(x.eq(INF), INF, log1p_parts(x))
    y = select(x > -1.0, y, select(x.eq(-1.0), y._like(-INF), NAN))
    return select(absolute(x) < SMALL[x.ty] ** 2, x, y)


@define("arcsinh")
def arcsinh(x: V) -> V:
    # log1p(|x| + w) with w = x^2 / (1 + sqrt(1 + x^2)); from 2^14 (2^30) on log(2 |x|).
    ax = absolute(x)
    big = ax > {"f32": 2.0**14, "f64": 2.0**30}[x.ty]
    z = ax * ax
    w = select(big, -1.0, z / (sqrt(z + 1.0) + 1.0))
    u, low = split_sum(ax, w)
    y = log1p_parts(u, low, select(big, w._like(1.0), 0.0))
    return copysign(select((ax < INF) & (ax > SMALL[x.ty]), y, ax), x)


@define("arccosh")
def arccosh(x: V) -> V:
    # log1p(t + sqrt(t (2 + t))) with t = x - 1; from 2^14 (2^30) on log(2 x).
    big = x > {"f32": 2.0**14, "f64": 2.0**30}[x.ty]
    t = x - 1.0
    w = select(big, 0.0, sqrt(fma(t, t, t + t)))
    u, low = two_sum(t, w)
    y = log1p_parts(u, low, select(big, 1.0, w._like(0.0)))
    return select(x < 1.0, NAN, select(x.eq(INF), x, y))


@define("arctanh")
def arctanh(x: V) -> V:
    # Below 1/2 x + x^3 P(x^2), above log1p(2 x / (1 - x)) / 2 with the quotient in two parts.
    ax = absolute(x)
    small = odd_series(ax, "atanh")
    d = 1.0 - ax
    u = (ax + ax) / d
    low = fma(-u, d, ax + ax) / d
    y = select(ax < 0.5, small, log1p_parts(u, low) * 0.5)
    y = select(ax < 1.0, y, select(ax.eq(1.0), y._like(INF), NAN))
    return copysign(y, x)


# --- trigonometric functions --------------------------------------------------------------------------------------
# |x| = k pi/2 + r, |r| <= pi/4: by pi/2 in three parts while k is small (k * first part is taken off exactly), else by
# Payne and Hanek's method. sin r = r + r^3 S(r^2), cos r = 1 - r^2/2 + r^4 C(r^2); the quadrant k mod 4 chooses.

QUADRANT_LIMIT = {"f32": 2.0**16, "f64": 2.0**26}


def two_over_pi_table() -> list[float]:
    """For j = 0 .. 30: (2^(32 j) 2/pi) mod 4 as a sum of four doubles, cut (not rounded) at each 53 bits."""
    table, width = [], 1312  # bits after the binary point in TWO_OVER_PI_WORDS
    for j in range(31):
        rest = (TWO_OVER_PI_WORDS << 32 * j) % (4 << width) if j else TWO_OVER_PI_WORDS
        for _ in range(4):
            drop = max(rest.bit_length() - 53, 0)
            head = rest >> drop << drop
            table.append(float(head >> drop) * 2.0 ** (drop - width) if head else 0.0)
            rest -= head
    return table


def reduce_large(x: V) -> tuple[V, V, V]:
    """(k mod 4 as i64, r, low part of r) for a float64 x >= 0 of any size; NaN for inf.

    x = x' 2^(32 j), x' an integer below 2^85 where j > 0, so x 2/pi = x' c_j modulo 4 with c_j from the table.
    """
    fn = x.fn
    table = ", ".join(f"double 0x{float_bits('f64', v):016X}" for v in two_over_pi_table())
    fn.need(f"@im_two_over_pi = internal constant [124 x double] [{table}]")
    e = (x.bits().lshr(52)) - (1023 + 52)
    j = select(e > 0, e, 0).lshr(5)
    j = select(j > 30, j._like(30), j)  # inf and NaN
    scaled = x * ((1023 - (j << 5)) << 52).as_float("f64")
    c = [gather(fn, "@im_two_over_pi", 124, (j << 2) + i) for i in range(4)]
    (h1, l1), (h2, l2), (h3, l3) = (two_product(scaled, ci) for ci in c[:3])
    terms = [mod4(h1), mod4(l1), mod4(h2), mod4(l2), h3, l3, scaled * c[3]]
    q = round_even(((terms[0] + terms[1]) + terms[2]) + terms[3])
    s, low = two_sum(terms[0], -q)
    rest = []
    for term in [terms[1], low, *terms[2:]]:
        s, error = two_sum(s, term)
        rest.append(error)
    low, last = rest[0], None
    for term in rest[1:]:
        low, error = two_sum(low, term)
        last = error if last is None else last + error
    s, error = two_sum(s, low)
    low = error + last
    half_pi = [p / 2 for p in PI["f64"]]
    r, error = two_product(s, half_pi[0])
    r, low = split_sum(r, error + fma(s, half_pi[1], low * half_pi[0]))
    return (q + MAGIC["f64"]).bits(), r, low


def mod4(x: V) -> V:
    """x minus the nearest multiple of 4, exactly."""
    return x - round_even(x * 0.25) * 4.0


def gather(fn: Fn, table: str, length: int, index: V) -> V:
    """table[index], doubles."""
    if fn.width == 1:
        at = fn.emit("ptr", f"getelementptr double, ptr {table}, i64 {index.ref}")
        return fn.emit("f64", f"load double, ptr {at.ref}")
    n, kind = fn.width, fn.type("f64")
    name = f"llvm.masked.gather.v{n}f64.v{n}p0"
    fn.need(f"declare {kind} @{name}(<{n} x ptr>, <{n} x i1>, {kind})")
    at = fn.emit("ptr", f"getelementptr double, ptr {table}, <{n} x i64> {index.ref}")
    return fn.emit(
        "f64", f"call {kind} @{name}(<{n} x ptr> align 8 {at.ref}, <{n} x i1> splat (i1 true), {kind} poison)"
    )


def large_quadrant(ax: V) -> list[V]:
    """(quadrant, r, low part of r) through float64, out of line."""

    def body(x: V) -> list[V]:
        if x.ty == "f64":
            return list(reduce_large(x))
        q, r, _ = reduce_large(x.to_f64())
        high = r.to_f32()
        return [q.trunc_to("i32"), high, (r - high.to_f64()).to_f32()]

    return helper("large_quadrant", [ax], [INT_OF[ax.ty], ax.ty, ax.ty], body)


def quadrant(ax: V) -> tuple[V, V]:
    """(k mod 4 in the low bits of an integer, r), for ax >= 0."""
    half_pi = [p / 2 for p in PI[ax.ty]]
    t, k = round_to_int(ax, parts_of_inverse(ax.ty))
    usual = [t.bits(), fma_parts(k, half_pi, ax)]
    return tuple(ax.fn.rarely(ax > QUADRANT_LIMIT[ax.ty], usual, lambda: large_quadrant(ax)[:2]))


def quadrant_in_parts(ax: V) -> tuple[V, V, V]:
    """The same with r in two parts."""
    a, b, c = (p / 2 for p in PI[ax.ty])
    t, k = round_to_int(ax, parts_of_inverse(ax.ty))
    product, product_low = two_product(k, b)
    r, low = two_sum(fma(k, -a, ax), -product)
    r, low = split_sum(r, fma(k, -c, low - product_low))
    return tuple(ax.fn.rarely(ax > QUADRANT_LIMIT[ax.ty], [t.bits(), r, low], lambda: large_quadrant(ax)))


def parts_of_inverse(ty: str) -> float:
    return float(TWO_OVER_PI_WORDS / (1 << 1312))


def sin_polynomial(r: V, z: V) -> V:
    return fma(r * z, horner(z, coefficients("sin", r.ty)), r)


def cos_polynomial(z: V) -> V:
    return fma(z * z, horner(z, coefficients("cos", z.ty)), fma(z, -0.5, 1.0))


def sin_or_cos(r: V, k: V) -> V:
    """sin(r + k pi/2)."""
    z = r * r
    y = select((k & 1).eq(0), sin_polynomial(r, z), cos_polynomial(z))
    sign = (k & 2) << (BITS[r.ty] - 2)
    return (y.bits() ^ sign).as_float(r.ty)


@define("sin")
def sin(x: V) -> V:
    ax = absolute(x)
    k, r = quadrant(ax)
    y = sin_or_cos(r, k)
    return (y.bits() ^ (x.bits() ^ ax.bits())).as_float(x.ty)


@define("cos")
def cos(x: V) -> V:
    k, r = quadrant(absolute(x))
    return sin_or_cos(r, k + 1)


@define("tan")
def tan(x: V) -> V:
    # sin r / cos r or -cos r / sin r, each in two parts, one division.
    ax = absolute(x)
    k, r, low = quadrant_in_parts(ax)
    z = r * r
    s, s_low = split_sum(r, fma(r * z, horner(z, coefficients("sin", x.ty)), low))
    h = z * 0.5
    c = 1.0 - h
    z_low = fma(r, r, -z)
    rest = fma(z * z, horner(z, coefficients("cos", x.ty)), fma(z_low, -0.5, (1.0 - c) - h))
    c, c_low = split_sum(c, fma(-r, low, rest))
    even = (k & 1).eq(0)
    n, n_low = select(even, s, c), select(even, s_low, c_low)
    d, d_low = select(even, c, s), select(even, c_low, s_low)
    q = n / d
    q = q + (fma(-q, d, n) + fma(-q, d_low, n_low)) / d
    q = select(ax.eq(0.0), ax, q)
    sign = ((k & 1) << (BITS[x.ty] - 1)) ^ (x.bits() ^ ax.bits())
    return (q.bits() ^ sign).as_float(x.ty)


@define("arctan2", 2)
def arctan2(y: V, x: V) -> V:
    ax, ay = absolute(x), absolute(y)
    swap, left = ay > ax, x.bits() < 0
    n, d = select(swap, ax, ay), select(swap, ay, ax)
    q = select(n.eq(d), select(d.eq(0.0), d, 1.0), n / d)  # inf / inf is 1 here, 0 / 0 is 0
    a = odd_series(q, "atan")
    high, low = PI[x.ty][:2]
    a = select(swap ^ left, -a, a)
    base = select(swap, high / 2, select(left, a._like(high), 0.0))
    base_low = select(swap, low / 2, select(left, a._like(low), 0.0))
    return copysign(base + (a + base_low), y)


@define("arctan")
def arctan(x: V) -> V:
    # pi/2 - arctan(1 / x) above 1; x + x^3 P(x^2) below.
    ax = absolute(x)
    swap = ax > 1.0
    a = odd_series(select(swap, 1.0, ax) / select(swap, ax, 1.0), "atan")
    high, low = PI[x.ty][:2]
    return copysign(select(swap, high / 2 - (a - low / 2), a), x)


def arcsin_parts(ax: V) -> tuple[V, V, V]:
    """(big, s, arcsin(s) - s) where s = ax up to 1/2 and sqrt((1 - ax) / 2) above."""
    big = ax > 0.5
    z = select(big, fma(ax, -0.5, 0.5), ax * ax)
    s = select(big, sqrt(z), ax)
    return big, s, s * z * horner(z, coefficients("asin", ax.ty))


@define("arcsin")
def arcsin(x: V) -> V:
    # arcsin s, or pi/2 - 2 s - 2 (arcsin s - s), the first difference in two parts.
    big, s, rest = arcsin_parts(absolute(x))
    high, low = PI[x.ty][:2]
    d = fma(s, -2.0, high / 2)
    d_low = fma(s, -2.0, high / 2 - d) + low / 2
    return copysign(select(big, d + fma(rest, -2.0, d_low), s + rest), x)


@define("arccos")
def arccos(x: V) -> V:
    # pi/2 - arcsin x, or 2 arcsin s, or pi - 2 arcsin s.
    big, s, rest = arcsin_parts(absolute(x))
    high, low = PI[x.ty][:2]
    a = s + rest
    near_one = select(x < 0.0, high - (a + a - low), a + a)
    return select(big, near_one, high / 2 - (copysign(a, x) - low / 2))


# --- error function -----------------------------------------------------------------------------------------------


@define("erf")
def erf(x: V) -> V:
    # Up to 0.9 (1) x + x P(x^2); above 1 - exp(-Q(x)), Q fitted to -log(erfc x); 1 from 3.93 (5.93) on.
    split, one = {"f32": (0.9, 3.93), "f64": (1.0, 5.93)}[x.ty]
    ax = absolute(x)
    small = fma(ax, horner(ax * ax, coefficients("erf", x.ty)), ax)
    tail = 1.0 - exp_normal(-horner(at_most(ax, one), coefficients("erf_tail", x.ty)))
    return copysign(select(ax < split, small, tail), x)


@define("erfinv")
def erfinv(x: V) -> V:
    # x P(w) with w = -log(1 - x^2), in pieces: polynomials in w, then in sqrt(w).
    ax = absolute(x)
    u = (1.0 - ax) * (ax + 1.0)
    k, m = split_exponent(u)
    f = m - 1.0
    w = -log_join(k, f, log_correction(f))
    root = sqrt(at_least(w, 0.0))
    pieces = COEFFICIENTS[x.ty, "erfinv"]
    (_, centre, table), *others = pieces
    size = max(len(piece[2]) for piece in pieces)
    t, cs = w - centre, [w._like(c) for c in (*table, *[0.0] * (size - len(table)))]
    for limit, centre, table in others:
        beyond = w > limit
        t = select(beyond, root - centre, t)
        cs = [select(beyond, c, old) for c, old in zip((*table, *[0.0] * (size - len(table))), cs)]
    p = cs[-1]
    for c in reversed(cs[1:-1]):
        p = fma(p, t, c)
    y = fma(ax, cs[0], ax * p)
    y = select(ax < 1.0, y, select(ax.eq(1.0), y._like(INF), NAN))
    return copysign(y, x)


# --- powers and remainders ----------------------------------------------------------------------------------------


@define("pow", 2)
def pow(x: V, y: V) -> V:
    ax = absolute(x)
    return pow_special(x, y, (pow_f32 if x.ty == "f32" else pow_f64)(ax, y))


def pow_f32(ax: V, y: V) -> V:
    # 2^(y log2 x) in float64: log2 to 2^-43, 2^f to 2^-34.
    x, y = ax.to_f64(), y.to_f64()
    k, m = split_exponent(x)
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    log_m = fma(s * z, horner(z, coefficients("pow32_log", "f64")), s + s)
    log2_x = fma(log_m, LOG2E["f64"][0], k)
    log2_x = select(x.eq(0.0), -INF, select(x.eq(INF), INF, log2_x))
    p = at_least(at_most(y * log2_x, 160.0), -160.0)
    t, k = round_to_int(p)
    f = p - k
    return scale_normal(fma(f, horner(f, coefficients("pow32_exp2", "f64")), 1.0), t, k).to_f32()


def pow_f64(x: V, y: V) -> V:
    # log x to about 2^-64 in two parts: log m = 2 s + s (2/3 z + z^2 L(z)), s = (m - 1) / (m + 1), z = s^2, where all but
    # L is in two parts. Then y log x in two parts and exp of that.
    ty = x.ty
    k, m = split_exponent(x)
    upper = m > 2.0**0.5  # a smaller s, and no cancellation between k = -1 and log m
    m, k = select(upper, m * 0.5, m), select(upper, k + 1.0, k)
    f = m - 1.0
    d, d_low = split_sum(m._like(1.0), f * 0.5)  # (m + 1) / 2 = 1 + f / 2, |f / 2| < 1
    f = f * 0.5
    inverse = 1.0 / d
    s = f * inverse
    s_low = fma(-s, d_low, fma(-s, d, f)) * inverse
    z, z_low = two_product(s, s)
    z_low = fma(s + s, s_low, z_low)
    w, w_low = two_product(z, TWO_THIRDS[0])
    w_low = fma(z_low, TWO_THIRDS[0], fma(z, TWO_THIRDS[1], w_low))
    w, w_low = split_sum(w, fma(z * z, horner(z, coefficients("pow_log", ty)), w_low))
    v, v_low = two_product(s, w)
    v_low = fma(s, w_low, fma(s_low, w, v_low))
    high, low = split_sum(s + s, v)
    low = low + (v_low + (s_low + s_low))
    high, low = split_sum(high, low)
    a, a_low = two_product(k, LN2[ty][0])
    log_x, error = split_sum(a, high)
    log_low = error + (low + fma(k, LN2[ty][1], a_low))
    log_x = select(x.eq(0.0), -INF, select(x.eq(INF), INF, log_x))
    p, p_low = two_product(y, log_x)
    p_low = fma(y, log_low, p_low)
    p = at_least(at_most(p, 800.0), -800.0)
    p_low = select(absolute(p) < 800.0, p_low, 0.0)
    t, k = round_to_int(p, LOG2E[ty][0])
    r = fma_parts(k, LN2[ty][:2], p) + p_low
    return scale(fma(r * r, horner(r, coefficients("exp", ty)), r) + 1.0, t, k)


def pow_special(x: V, y: V, magnitude: V) -> V:
    """The signs and special cases of IEEE 754's pow, from |x|^y."""
    half = y * 0.5
    whole = truncate(y).eq(y)
    odd = truncate(half).ne(half) & whole
    sign = select(odd, x.bits(), 0) & -(1 << (BITS[x.ty] - 1))
    r = (magnitude.bits() ^ sign).as_float(x.ty)
    r = select((x < 0.0) & ~whole & absolute(x).ne(INF), NAN, r)
    r = select(x.isnan() | y.isnan(), NAN, r)
    one = x.eq(1.0) | y.eq(0.0) | (x.eq(-1.0) & absolute(y).eq(INF))
    return select(one, 1.0, r)


@define("fmod", 2)
def fmod(x: V, y: V) -> V:
    # Exact: r <- r - q d, q an integer near r / d and d = |y| 2^s so large that q has at most a mantissa's bits more than
    # one; every step is exact. r may become negative (q rounded up): |y| is added at the end.
    ty, bits, it = x.ty, MANTISSA[x.ty], INT_OF[x.ty]
    ax, ay = absolute(x), absolute(y)
    bad = ax.not_less(INF) | ay.isnan() | ay.eq(0.0)
    r0, d0 = select(bad, 0.0, ax), select(bad, 1.0, ay)
    d0 = select(d0.eq(INF), x._like(MAX[ty]), d0)  # any d > r does; of r = d = the largest number see below
    r0 = select(ay.eq(INF), 0.0, r0)
    e_d = d0.bits().lshr(bits)
    e_d = select(e_d.eq(0), 1, e_d)

    def body(r: V) -> list[V]:
        shift = (absolute(r).bits().lshr(bits)) - e_d - bits
        shift = select(shift > 0, shift, 0)
        first = shift.lshr(1)
        d = d0 * ((first + BIAS[ty]) << bits).as_float(ty) * ((shift - first + BIAS[ty]) << bits).as_float(ty)
        return [fma(-truncate(r / d), d, r)]

    (r,) = x.fn.loop_while([r0], lambda r: absolute(r) >= d0, body)
    r = select(r < 0.0, r + d0, r)
    r = select(ay.eq(INF), ax, r)
    r = select(bad, NAN, r)
    return copysign(r, x)


MAX = {"f32": (2.0 - 2.0**-23) * 2.0**127, "f64": (2.0 - 2.0**-52) * 2.0**1023}
