"""Sine, cosine, tangent for arguments of any size, and their inverses."""

from __future__ import annotations

from isthmus.backends.cpu.mathlib_emit import (
    BITS,
    INT_OF,
    Fn,
    V,
    absolute,
    copysign,
    float_bits,
    fma,
    horner,
    round_even,
    select,
    split_sum,
    sqrt,
    two_product,
    two_sum,
)
from isthmus.backends.cpu.mathlib_parts import MAGIC, coefficients, define, fma_parts, helper, odd_series, round_to_int
from isthmus.backends.cpu.mathlib_tables import PI, TWO_OVER_PI_WORDS

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
    c = [gather(fn, "@im_two_over_pi", (j << 2) + i) for i in range(4)]
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


def gather(fn: Fn, table: str, index: V) -> V:
    """table[index], doubles, lane by lane: the text of LLVM's own gather differs between its releases."""
    if fn.width == 1:
        at = fn.emit("ptr", f"getelementptr double, ptr {table}, i64 {index.ref}")
        return fn.emit("f64", f"load double, ptr {at.ref}")
    result = "poison"
    for lane in range(fn.width):
        i = fn.emit("i64", f"extractelement {fn.type('i64')} {index.ref}, i32 {lane}")
        at = fn.emit("ptr", f"getelementptr double, ptr {table}, i64 {i.ref}")
        x = fn.emit("f64", f"load double, ptr {at.ref}")
        result = fn.emit("f64", f"insertelement {fn.type('f64')} {result}, double {x.ref}, i32 {lane}").ref
    return V(fn, "f64", result)


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
    # Errors: 1.57, 1.55.
    ax = absolute(x)
    k, r = quadrant(ax)
    y = sin_or_cos(r, k)
    return (y.bits() ^ (x.bits() ^ ax.bits())).as_float(x.ty)


@define("cos")
def cos(x: V) -> V:
    # Errors: 1.57, 1.54.
    k, r = quadrant(absolute(x))
    return sin_or_cos(r, k + 1)


@define("tan")
def tan(x: V) -> V:
    # sin r / cos r or -cos r / sin r, each in two parts, one division.
    # Errors: 1.08, 1.05.
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
    inverse = 1.0 / d
    q = n * inverse
    q = fma(fma(-q, d, n) + fma(-q, d_low, n_low), inverse, q)
    q = select(ax.eq(0.0), ax, q)
    sign = ((k & 1) << (BITS[x.ty] - 1)) ^ (x.bits() ^ ax.bits())
    return (q.bits() ^ sign).as_float(x.ty)


@define("arctan2", 2)
def arctan2(y: V, x: V) -> V:
    # Errors: 1.50, 1.50.
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
    # Errors: 1.34, 1.51.
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
    # Errors: 1.17, 1.08.
    big, s, rest = arcsin_parts(absolute(x))
    high, low = PI[x.ty][:2]
    d = fma(s, -2.0, high / 2)
    d_low = fma(s, -2.0, high / 2 - d) + low / 2
    return copysign(select(big, d + fma(rest, -2.0, d_low), s + rest), x)


@define("arccos")
def arccos(x: V) -> V:
    # pi/2 - arcsin x, or 2 arcsin s, or pi - 2 arcsin s.
    # Errors: 1.13, 1.12.
    big, s, rest = arcsin_parts(absolute(x))
    high, low = PI[x.ty][:2]
    a = s + rest
    near_one = select(x < 0.0, high - (a + a - low), a + a)
    return select(big, near_one, high / 2 - (copysign(a, x) - low / 2))
