"""Integer division, remainder and power, and conversions between number types, as LLVM IR text.

Part of mathlib.function: `function("idiv", "u8", 16)`, `function("f32_to_bf16", "f32", 16)`, `function("to_i32",
"f64", 1)`. Nothing here traps or has an undefined value: divisors are made safe before dividing, floats are brought into
range before converting. Integers are LLVM's signless types, so arguments of dtype "u8" are `i8`; 16-bit floats are `i16`.
"""

from __future__ import annotations

from collections.abc import Callable

from isthmus.backends.cpu.mathlib_emit import BITS, V, absolute, host_has, select

INTEGER_FUNCTIONS: dict[str, tuple[int, Callable[..., V]]] = {}  # body(dtype, *arguments)


def define(name: str, arguments: int = 1):
    def register(body: Callable[..., V]) -> Callable[..., V]:
        INTEGER_FUNCTIONS[name] = (arguments, body)
        return body

    return register


def argument_type(dtype: str) -> str:
    """LLVM's type for a dtype: integers have no sign there, 16-bit floats travel as their bits."""
    return "i16" if dtype in ("f16", "bf16") else dtype.replace("u", "i")


# --- division -----------------------------------------------------------------------------------------------------


def quotient(dtype: str, a: V, b: V) -> V:
    """a / b toward zero, for b neither 0 nor -1 where signed.

    Vectors have no integer division. Up to 16 bits float32 gives the quotient, up to 32 bits float64: a / b lies at least
    1 / |b| below the next integer, more than the rounding of the division can bridge.
    """
    signed = dtype[0] == "i"
    bits = BITS[a.ty]
    if bits == 64:
        return a.sdiv(b) if signed else a.udiv(b)
    ty = "f32" if bits <= 16 else "f64"
    if bits < 32 or (not signed and bits == 32):  # one wider type holds both signs
        wide = "i32" if bits < 32 else "i64"
        a, b = (v.sext(wide) if signed else v.zext(wide) for v in (a, b))
    q = a.cast("sitofp", ty) / b.cast("sitofp", ty)
    return q.cast("fptosi", a.ty)


def divide(dtype: str, a: V, b: V) -> tuple[V, V]:
    """(floor(a / b), a - b * floor(a / b)); (0, a) where b = 0; the least integer over -1 wraps around."""
    ty, signed = a.ty, dtype[0] == "i"
    zero = b.eq(0)
    unsafe = zero | b.eq(-1) if signed else zero
    safe = select(unsafe, 1, b)
    q = quotient(dtype, a, safe)
    q = q if q.ty == ty else q.trunc_to(ty)
    r = a - q * safe
    if not signed:
        return select(zero, 0, q), select(zero, a, r)
    below = r.ne(0) & ((r ^ safe) < 0)
    q, r = q + below.sext(ty), r + (safe & below.sext(ty))
    q, r = select(unsafe, -a, q), select(unsafe, 0, r)
    return select(zero, 0, q), select(zero, a, r)


@define("idiv", 2)
def idiv(dtype: str, a: V, b: V) -> V:
    return divide(dtype, a, b)[0]


@define("imod", 2)
def imod(dtype: str, a: V, b: V) -> V:
    """The remainder with the divisor's sign; a % 0 is a."""
    return divide(dtype, a, b)[1]


@define("ipow", 2)
def ipow(dtype: str, base: V, exponent: V) -> V:
    """base ** exponent modulo 2^bits, by squaring; 0 for negative exponents, whatever the base, as in MLX."""
    start = base._like(1)
    if dtype[0] == "i":
        start = select(exponent < 0, base._like(0), start)
        exponent = select(exponent < 0, 0, exponent)

    def step(power: V, square: V, left: V) -> list[V]:
        return [select((left & 1).ne(0), power * square, power), square * square, left.lshr(1)]

    return base.fn.loop_while([start, base, exponent], lambda p, s, left: left.ne(0), step)[0]


# --- float to integer ---------------------------------------------------------------------------------------------
# In range: truncated. Out of range, infinite and NaN: what NumPy and MLX give on x86-64, written out so that every lane
# on every machine agrees: i32 and i64 give their least value; 8 and 16 bits are the low bits of the i32 (300.7 -> i8 44,
# -1.5 -> u8 255, NaN -> 0), u32 the low bits of the i64; u64 wraps from -2^63 on, is right below 2^64, then 0, NaN 2^63.


def bounded_convert(x: V, ty: str) -> V:
    limit = 2.0 ** (BITS[ty] - 1)
    return select(absolute(x) < limit, x, -limit).cast("fptosi", ty)


def _to_integer(target: str) -> Callable[..., V]:
    def convert(dtype: str, x: V) -> V:
        if target == "u64":
            big = x >= 2.0**63
            return bounded_convert(select(big, x - 2.0**63, x), "i64") ^ (big.sext("i64") & -(1 << 63))
        if target in ("i32", "i64"):
            return bounded_convert(x, target)
        return bounded_convert(x, "i64" if target == "u32" else "i32").trunc_to(argument_type(target))

    return convert


for _target in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"):
    define(f"to_{_target}")(_to_integer(_target))


# --- 16-bit floats ------------------------------------------------------------------------------------------------


def bf16_bits(i: V) -> V:
    """The upper halves, rounded to the nearest and to even, of float32 bits that are no NaN."""
    return (i + ((i.lshr(16) & 1) + 0x7FFF)).lshr(16)


@define("f32_to_bf16")
def f32_to_bf16(dtype: str, x: V) -> V:
    # Not fptrunc: vcvtneps2bf16, which it becomes, flushes subnormals.
    i = x.bits()
    return select(x.isnan(), i.lshr(16) | 0x40, bf16_bits(i)).trunc_to("i16")


@define("bf16_to_f32")
def bf16_to_f32(dtype: str, h: V) -> V:
    return (h.zext("i32") << 16).as_float("f32")


@define("f32_to_f16")
def f32_to_f16(dtype: str, x: V) -> V:
    return x.cast("fptrunc", "f16").as_float("i16") if host_has("f16c") else emulated_f32_to_f16(x)


@define("f16_to_f32")
def f16_to_f32(dtype: str, h: V) -> V:
    return h.as_float("f16").cast("fpext", "f32") if host_has("f16c") else emulated_f16_to_f32(h)


def emulated_f32_to_f16(x: V) -> V:
    ax = absolute(x)
    a = ax.bits()
    i = a - (112 << 23)  # the exponent's bias becomes float16's
    normal = (i + ((i.lshr(13) & 1) + 0xFFF)).lshr(13)
    normal = select(ax >= 65520.0, 0x7C00, normal)
    subnormal = (ax + 0.5).bits() - 0x3F000000  # float32 at 1/2 has float16's smallest step
    h = select(ax < 2.0**-14, subnormal, normal)
    h = select(x.isnan(), (a.lshr(13) & 0x3FF) | 0x7E00, h)
    return (h | ((x.bits() ^ a).lshr(16))).trunc_to("i16")


def emulated_f16_to_f32(h: V) -> V:
    h = h.zext("i32")
    a = (h & 0x7FFF) << 13
    f = (a.as_float("f32") * 2.0**112).bits()  # exact, also where the product's factor is subnormal
    quiet = select(a > 0x0F800000, 0x7FC00000, a._like(0x7F800000))
    f = select(a < 0x0F800000, f, a | quiet)
    return (f | ((h & 0x8000) << 16)).as_float("f32")


def rounded_to_odd(x: V) -> V:
    """float64 to float32, cut, with the last bit set where something was lost; a second rounding to 16 bits is then right."""
    y = x.to_f32()
    away = absolute(y.to_f64()) > absolute(x)
    cut = select(away, y.bits() - 1, y.bits())
    inexact = cut.as_float("f32").to_f64().ne(x)
    odd = (cut | inexact.zext("i32")).as_float("f32")
    return select(x.isnan(), y, odd)


@define("f64_to_bf16")
def f64_to_bf16(dtype: str, x: V) -> V:
    return f32_to_bf16("f32", rounded_to_odd(x))


@define("f64_to_f16")
def f64_to_f16(dtype: str, x: V) -> V:
    return f32_to_f16("f32", rounded_to_odd(x))
