"""What the functions of mathlib.py have in common: their table, rare parts out of line, exponents taken apart and put on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from isthmus.backends.cpu.mathlib_emit import BITS, MANTISSA, Fn, V, float_bits, fma, horner, host_has, llvm_type, select
from isthmus.backends.cpu.mathlib_tables import COEFFICIENTS

INF, NAN = float("inf"), float("nan")
MAGIC = {"f32": 1.5 * 2.0**23, "f64": 1.5 * 2.0**52}
MIN_NORMAL = {"f32": 2.0**-126, "f64": 2.0**-1022}
THREE_QUARTERS = {"f32": 0x3F400000, "f64": 0x3FE8000000000000}  # bits

FUNCTIONS: dict[str, tuple[int, Callable[..., V]]] = {}  # name: number of arguments, body


def define(name: str, arguments: int = 1):
    """Registers the body of a function of `arguments` floats."""

    def register(body: Callable[..., V]) -> Callable[..., V]:
        FUNCTIONS[name] = (arguments, body)
        return body

    return register


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


def odd_series(x: V, name: str) -> V:
    """x + x^3 P(x^2)."""
    z = x * x
    return fma(x * z, horner(z, coefficients(name, x.ty)), x)


# --- exponents ----------------------------------------------------------------------------------------------------
# AVX-512 takes numbers apart and scales them in one instruction each, exactly as the integer formulas beside do; whole
# 512-bit registers use it.


def has_avx512(v: V) -> bool:
    return v.fn.width * BITS[v.ty] % 512 == 0 and host_has("avx512f")


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
