"""Exponentials, logarithms, the error function and its inverse, powers, and the exact remainder."""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.backends.cpu.mathlib_emit import (
    BIAS,
    BITS,
    MANTISSA,
    V,
    absolute,
    at_least,
    at_most,
    copysign,
    float_bits,
    fma,
    horner,
    select,
    split_sum,
    sqrt,
    truncate,
    two_product,
    two_sum,
)
from isthmus.backends.cpu.mathlib_parts import (
    INF,
    NAN,
    THREE_QUARTERS,
    coefficients,
    define,
    exponent_to_float,
    fma_parts,
    has_avx512,
    odd_series,
    round_to_int,
    scale,
    scale_normal,
    split_exponent,
)
from isthmus.backends.cpu.mathlib_tables import COEFFICIENTS, LN2, LN2_BELOW, LOG2E, LOG10_2_BELOW, LOG10E, TWO_THIRDS

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
    # Errors: 1.11, 1.00.
    low, high = EXP_RANGE[x.ty]
    t, k, f, p = exp_parts(at_least(at_most(x, high), low))
    return scale(fma(f, p, 1.0), t, k)


@define("exp2")
def exp2(x: V) -> V:
    # Errors: 0.92, 0.80.
    low, high = {"f32": (-151.0, 129.0), "f64": (-1076.0, 1025.0)}[x.ty]
    x = at_least(at_most(x, high), low)
    t, k = round_to_int(x)
    f = x - k
    return scale(fma(f, horner(f, coefficients("exp2", x.ty)), 1.0), t, k)


@define("expm1")
def expm1(x: V) -> V:
    # x = k ln2 + r with ln2 in two parts (the first subtraction is exact), q = e^r - 1 = r + r^2 P(r); 2^k q + (2^k - 1),
    # by halves, so that k may be one beyond the exponent range.
    # Errors: 1.53, 1.81.
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
    # Errors: 1.94, 1.82.
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
    # Errors: 1.66, 1.59.
    ax = absolute(x)
    h = half_exp(ax)
    small = odd_series(ax, "sinh")
    return copysign(select(ax < 1.0, small, h - 0.25 / h), x)


@define("cosh")
def cosh(x: V) -> V:
    # Errors: 1.50, 1.36.
    h = half_exp(absolute(x))
    return h + 0.25 / h


@define("tanh")
def tanh(x: V) -> V:
    # Below 0.625 x + x^3 P(x^2), above 1 - 2 / (e^2x + 1), which is 1 from 9.02 (19.1) on.
    # Errors: 1.40, 1.36.
    ax = absolute(x)
    e = exp_normal(at_most(ax + ax, {"f32": 20.0, "f64": 40.0}[x.ty]))
    small = odd_series(ax, "tanh")
    return copysign(select(ax < 0.625, small, 1.0 - 2.0 / (e + 1.0)), x)


# --- logarithms ---------------------------------------------------------------------------------------------------
# x = 2^k m with m in [3/4, 3/2), f = m - 1 (exact), log m = f + g with g = -f^2/2 + ... much smaller than f.
# f32: a polynomial; f64: s = f / (2 + f), log m = 2 atanh s = f - (h - s (h + R(s^2))) with h = f^2 / 2.


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
    # Errors: 0.89, 0.86.
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
    # Errors: 1.74, 1.54.
    return log_to_base(x, LOG2E[x.ty], (1.0,))


@define("log10")
def log10(x: V) -> V:
    # Errors: 1.50, 1.25.
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
    # Errors: 0.88, 0.88.
    y = select(x.eq(INF), INF, log1p_parts(x))
    y = select(x > -1.0, y, select(x.eq(-1.0), y._like(-INF), NAN))
    return select(absolute(x) < SMALL[x.ty] ** 2, x, y)


@define("arcsinh")
def arcsinh(x: V) -> V:
    # log1p(|x| + w) with w = x^2 / (1 + sqrt(1 + x^2)); from 2^14 (2^30) on log(2 |x|).
    # Errors: 1.30, 1.28.
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
    # Errors: 1.72, 1.45.
    big = x > {"f32": 2.0**14, "f64": 2.0**30}[x.ty]
    t = x - 1.0
    w = select(big, 0.0, sqrt(fma(t, t, t + t)))
    u, low = two_sum(t, w)
    y = log1p_parts(u, low, select(big, 1.0, w._like(0.0)))
    return select(x < 1.0, NAN, select(x.eq(INF), x, y))


@define("arctanh")
def arctanh(x: V) -> V:
    # Below 1/2 x + x^3 P(x^2), above log1p(2 x / (1 - x)) / 2 with the quotient in two parts.
    # Errors: 0.88, 0.90.
    ax = absolute(x)
    small = odd_series(ax, "atanh")
    d = 1.0 - ax
    inverse = 1.0 / d
    u = (ax + ax) * inverse
    low = fma(-u, d, ax + ax) * inverse
    y = select(ax < 0.5, small, log1p_parts(u, low) * 0.5)
    y = select(ax < 1.0, y, select(ax.eq(1.0), y._like(INF), NAN))
    return copysign(y, x)


# --- error function -----------------------------------------------------------------------------------------------


@define("erf")
def erf(x: V) -> V:
    # Up to 0.9 (1) x + x P(x^2); above 1 - exp(-Q(x)), Q fitted to -log(erfc x); 1 from 3.93 (5.93) on.
    # Errors: 1.09, 0.85.
    split, one = {"f32": (0.9, 3.93), "f64": (1.0, 5.93)}[x.ty]
    ax = absolute(x)
    small = fma(ax, horner(ax * ax, coefficients("erf", x.ty)), ax)
    tail = 1.0 - exp_normal(-horner(at_most(ax, one), coefficients("erf_tail", x.ty)))
    return copysign(select(ax < split, small, tail), x)


@define("erfinv")
def erfinv(x: V) -> V:
    # x P(w) with w = -log(1 - x^2), in pieces: polynomials in w, then in sqrt(w).
    # Errors: 2.01, 2.20.
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
    # Errors: 0.51, 1.54.
    magnitude = (pow_f32 if x.ty == "f32" else pow_f64)(absolute(x), y)
    usual = (x > 0.0) & (x < INF) & (absolute(y) < INF)
    return x.fn.rarely(~usual, [magnitude], lambda: [pow_special(x, y, magnitude)])[0]


def pow_f32(ax: V, y: V) -> V:
    # 2^(y log2 x) in float64: log2 to 2^-43, 2^f to 2^-34.
    x, y = ax.to_f64(), y.to_f64()
    k, m = split_exponent(x)
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    log_m = fma(s * z, horner(z, coefficients("pow32_log", "f64")), s + s)
    log2_x = fma(log_m, LOG2E["f64"][0], k)
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
    f = fma(m, 0.5, -0.5)
    d, d_low = split_sum(m._like(1.0), f)  # (m + 1) / 2 = 1 + (m - 1) / 2
    inverse = 1.0 / d
    s = f * inverse
    s_low = fma(-s, d_low, fma(-s, d, f)) * inverse
    z, z_low = two_product(s, s)
    z_low = fma(s + s, s_low, z_low)
    w, w_low = two_product(z, TWO_THIRDS[0])
    w_low = fma(z_low, TWO_THIRDS[0], fma(z, TWO_THIRDS[1], w_low))
    w_low = fma(z * z, horner(z, coefficients("pow_log", ty)), w_low)
    v, v_low = two_product(s, w)
    v_low = fma(s, w_low, fma(s_low, w, v_low))
    high, low = split_sum(s + s, v)
    high, low = split_sum(high, low + fma(s_low, 2.0, v_low))
    a, a_low = two_product(k, LN2[ty][0])
    log_x, error = split_sum(a, high)
    log_low = error + (low + fma(k, LN2[ty][1], a_low))
    p, p_low = two_product(y, log_x)
    p_low = fma(y, log_low, p_low)
    p = at_least(at_most(p, 800.0), -800.0)
    p_low = select(absolute(p) < 800.0, p_low, 0.0)
    t, k = round_to_int(p, LOG2E[ty][0])
    r = fma_parts(k, LN2[ty][:2], p) + p_low
    return scale(fma(r * r, horner(r, coefficients("exp", ty)), r) + 1.0, t, k)


def pow_special(x: V, y: V, magnitude: V) -> V:
    """The special cases of IEEE 754's pow and negative bases, for which `magnitude` is |x|^y."""
    ax, ay = absolute(x), absolute(y)
    endless = ax.eq(0.0) | ax.eq(INF) | ay.eq(INF)
    r = select(endless, select((ax > 1.0) ^ (y < 0.0), x._like(INF), 0.0), magnitude)
    half = y * 0.5
    whole = truncate(y).eq(y)
    odd = truncate(half).ne(half) & whole
    sign = select(odd, x.bits(), 0) & -(1 << (BITS[x.ty] - 1))
    r = (r.bits() ^ sign).as_float(x.ty)
    r = select((x < 0.0) & ~whole & ax.ne(INF), NAN, r)
    r = select(x.isnan() | y.isnan(), NAN, r)
    one = x.eq(1.0) | y.eq(0.0) | (x.eq(-1.0) & ay.eq(INF))
    return select(one, 1.0, r)


@define("fmod", 2)
def fmod(x: V, y: V) -> V:
    # r <- r - q d with an integer q near r / d and d = |y| 2^s, s so large that q hardly needs more bits than a mantissa
    # has: every step is exact, and one does where the exponents are as near as that. Where q was rounded up r ends
    # negative: |y| is added. (The remainder by inf is taken as that of 0, and x put in at the end.) Exact.
    ty, bits = x.ty, MANTISSA[x.ty]
    ax, ay = absolute(x), absolute(y)
    bad = ax.not_less(INF) | ay.isnan() | ay.eq(0.0)
    endless = ay.eq(INF)
    start, d0 = select(bad | endless, 0.0, ax), select(bad | endless, 1.0, ay)
    exponent = d0.bits().lshr(bits)
    exponent = select(exponent.eq(0), 1, exponent)

    def step(r: V) -> list[V]:
        s = absolute(r).bits().lshr(bits) - exponent - bits
        s = select(s > 0, s, 0)
        half = s.lshr(1)
        d = d0 * ((half + BIAS[ty]) << bits).as_float(ty) * ((s - half + BIAS[ty]) << bits).as_float(ty)
        return [fma(-truncate(r / d), d, r)]

    (r,) = x.fn.loop_while([start], lambda r: absolute(r) >= d0, step)
    r = select(r < 0.0, r + d0, r)
    return copysign(select(bad, NAN, select(endless, ax, r)), x)
