"""Scalar expressions: what is computed at one place of a loop.

An `Expr` is a node of a small typed graph. Op records write their meaning with the functions here (`s.exp(x)`), once;
the interpreter, the LLVM renderer and the CUDA renderer read the same graph. The one idea: an expression of a 16-bit
float is widened to float32, computed, and rounded once, so no reader ever does 16-bit arithmetic; and complex numbers
are pairs of float32, so no reader does complex arithmetic. What is left for a reader is the list `PRIMITIVES`.

Leaves: `const` (value), `param` (a number bound at run time, from a slot), `axis` (a loop index, int64), `load`
(kernel.loops.Load), `row` (the result of a reduction of the same kernel).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from isthmus.graph.dtype import (
    Dtype,
    bfloat16,
    bool_,
    complex64,
    float16,
    float32,
    float64,
    int64,
    uint32,
)

# op -> what it does. Arguments of one call share one dtype unless said; `float` ops see float32 and float64 only.
PRIMITIVES: dict[str, str] = {
    "add sub mul": "integers wrap; floats round",
    "div": "float division",
    "neg abs": "integers wrap",
    "min max": "NaN if either is NaN; min(-0.0, 0.0) may give either",
    "idiv imod": "integers: floor division (x // 0 = 0), modulus with the sign of the divisor (x % 0 = x)",
    "ipow": "integers: wraps; negative exponents give 0, whatever the base",
    "and or xor not": "bits of integers, or bool",
    "shl shr": "shift counts at or above the width give 0 (shr of negative: -1); shr keeps the sign of signed types",
    "eq ne lt le gt ge": "-> bool; false beside NaN but for ne",
    "select": "(bool, a, b)",
    "cast": "C's conversion; float to integer truncates, out of range saturates, NaN gives 0; to bool: != 0",
    "bitcast": "same bits, same size",
    "floor ceil trunc rint sqrt": "float, exact",
    "copysign fmod": "float, exact",
    "exp expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh": "float",
    "erf erfinv sigmoid pow arctan2": "float",
    "complex real imag": "make and take apart a pair; the only ops that see complex64 beside select, load and store",
}
OPS: frozenset[str] = frozenset(name for names in PRIMITIVES for name in names.split())
MATH = frozenset(
    "exp expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh "
    "erf erfinv sigmoid pow arctan2 fmod".split()
)
_SHORT_FORMS = MATH | {"div"}  # functions whose payload, where the float32 result is rounded to 16 bits within the op, is that dtype's name


class Expr:
    """One scalar value: `op` of `args`, or a leaf whose payload is `attr`."""

    __slots__ = ("args", "attr", "dtype", "op")

    def __init__(self, op: str, dtype: Dtype, args: tuple[Expr, ...] = (), attr: Any = None) -> None:
        self.op = op
        self.dtype = dtype
        self.args = args
        self.attr = attr

    def __repr__(self) -> str:
        inner = ", ".join(map(repr, self.args)) if self.args else repr(self.attr)
        return f"{self.op}:{self.dtype.code}({inner})"


def is_half(dtype: Dtype) -> bool:
    return dtype is float16 or dtype is bfloat16


def const(value: Any, dtype: Dtype) -> Expr:
    """A literal; part of the kernel's text (use `param` for numbers that change)."""
    if is_half(dtype):
        return cast(Expr("const", float32, (), float(value)), dtype)
    if dtype is complex64:
        z = complex(value)
        return make_complex(Expr("const", float32, (), z.real), Expr("const", float32, (), z.imag))
    if dtype is bool_:
        return Expr("const", bool_, (), bool(value))
    return Expr("const", dtype, (), float(value) if dtype.rank == 2 else int(value))


def cast(x: Expr, dtype: Dtype) -> Expr:
    """`x` as `dtype`. Half types pass through float32 (rounded once: float64 to half is rounded from float64)."""
    if x.dtype is dtype:
        return x
    if x.dtype is complex64:
        return cast(real(x), dtype) if dtype is not bool_ else or_(ne(real(x), const(0, float32)), ne(imag(x), const(0, float32)))
    if dtype is complex64:
        return make_complex(cast(x, float32), const(0, float32))
    if is_half(x.dtype) and dtype is not float32:
        return cast(cast(x, float32), dtype)
    if is_half(dtype) and x.dtype is not float32 and x.dtype is not float64:
        return cast(cast(x, float32), dtype)
    if dtype is float32 and x.op == "cast" and is_half(x.dtype) is False and x.args[0].dtype is float32 and x.dtype is float64:
        return x.args[0]
    return Expr("cast", dtype, (x,))


def bitcast(x: Expr, dtype: Dtype) -> Expr:
    return x if x.dtype is dtype else Expr("bitcast", dtype, (x,))


def _lift(op: str, args: tuple[Expr, ...]) -> Expr:
    """`op` on values of one dtype; half types compute in float32."""
    dtype = args[0].dtype
    if is_half(dtype):
        return cast(Expr(op, float32, tuple(cast(a, float32) for a in args), dtype.name if op in _SHORT_FORMS else None), dtype)
    return Expr(op, dtype, args)


def make_complex(re: Expr, im: Expr) -> Expr:
    return Expr("complex", complex64, (re, im))


def real(z: Expr) -> Expr:
    if z.op == "complex":
        return z.args[0]
    return Expr("real", float32, (z,)) if z.dtype is complex64 else z


def imag(z: Expr) -> Expr:
    if z.op == "complex":
        return z.args[1]
    return Expr("imag", float32, (z,)) if z.dtype is complex64 else const(0, z.dtype)


def add(a: Expr, b: Expr) -> Expr:
    if a.dtype is complex64:
        return make_complex(add(real(a), real(b)), add(imag(a), imag(b)))
    if a.dtype is bool_:
        return or_(a, b)
    return _lift("add", (a, b))


def sub(a: Expr, b: Expr) -> Expr:
    if a.dtype is complex64:
        return make_complex(sub(real(a), real(b)), sub(imag(a), imag(b)))
    if a.dtype is bool_:
        return xor(a, b)
    return _lift("sub", (a, b))


def mul(a: Expr, b: Expr) -> Expr:
    if a.dtype is complex64:
        ar, ai, br, bi = real(a), imag(a), real(b), imag(b)
        return make_complex(sub(mul(ar, br), mul(ai, bi)), add(mul(ar, bi), mul(ai, br)))
    if a.dtype is bool_:
        return and_(a, b)
    return _lift("mul", (a, b))


def div(a: Expr, b: Expr) -> Expr:
    """True division; complex by Smith's scaling (doi:10.1145/368637.368661)."""
    if a.dtype is complex64:
        ar, ai, br, bi = real(a), imag(a), real(b), imag(b)
        wide = ge(abs_(br), abs_(bi))
        ratio = div(select(wide, bi, br), select(wide, br, bi))
        scale = add(select(wide, br, bi), mul(select(wide, bi, br), ratio))
        re = select(wide, add(ar, mul(ai, ratio)), add(mul(ar, ratio), ai))
        im = select(wide, sub(ai, mul(ar, ratio)), sub(mul(ai, ratio), ar))
        zero = const(0, float32)
        by_zero = and_(eq(br, zero), eq(bi, zero))
        return make_complex(div(select(by_zero, ar, re), select(by_zero, br, scale)), div(select(by_zero, ai, im), select(by_zero, br, scale)))
    return _lift("div", (a, b))


def neg(a: Expr) -> Expr:
    if a.dtype is complex64:
        return make_complex(neg(real(a)), neg(imag(a)))
    return _lift("neg", (a,))


def abs_(a: Expr) -> Expr:
    """Modulus; of complex numbers by scaling, so that it neither over- nor underflows."""
    if a.dtype is complex64:
        x, y = cast(real(a), float64), cast(imag(a), float64)
        inf = const(math.inf, float64)
        r = sqrt(add(mul(x, x), mul(y, y)))
        return cast(select(or_(eq(abs_(x), inf), eq(abs_(y), inf)), inf, r), float32)
    if a.dtype is bool_ or a.dtype.category == "unsigned":
        return a
    return _lift("abs", (a,))


def min_(a: Expr, b: Expr) -> Expr:
    if a.dtype is bool_:
        return and_(a, b)
    if a.dtype is complex64:
        return select(complex_before(a, b, lt), a, b)
    return _lift("min", (a, b))


def max_(a: Expr, b: Expr) -> Expr:
    if a.dtype is bool_:
        return or_(a, b)
    if a.dtype is complex64:
        return select(complex_before(a, b, gt), a, b)
    return _lift("max", (a, b))


def complex_before(a: Expr, b: Expr, order: Callable[[Expr, Expr], Expr]) -> Expr:
    """Whether `a` comes before `b` in lexicographic order by `lt` or `gt`; NaN comes first (so that it wins)."""
    ar, br = real(a), real(b)
    ai, bi = imag(a), imag(b)
    nan_a = or_(ne(ar, ar), ne(ai, ai))
    return or_(nan_a, and_(eq(bi, bi), or_(order(ar, br), and_(eq(ar, br), order(ai, bi)))))


def idiv(a: Expr, b: Expr) -> Expr:
    """Floor division of integers (floats: `floor(div(a, b))`)."""
    if a.dtype.rank >= 2:
        return floor(div(a, b))
    if a.dtype is bool_:
        return and_(a, b)
    return Expr("idiv", a.dtype, (a, b))


def imod(a: Expr, b: Expr) -> Expr:
    """Modulus with the sign of the divisor."""
    if a.dtype.rank == 2:
        if is_half(a.dtype):
            return cast(imod(cast(a, float32), cast(b, float32)), a.dtype)
        r = Expr("fmod", a.dtype, (a, b))
        zero = const(0, a.dtype)
        fix = and_(ne(r, zero), ne(lt(r, zero), lt(b, zero)))
        return select(fix, add(r, b), r)
    if a.dtype is bool_:
        return and_(a, not_(b))
    return Expr("imod", a.dtype, (a, b))


def and_(a: Expr, b: Expr) -> Expr:
    return Expr("and", a.dtype, (a, b))


def or_(a: Expr, b: Expr) -> Expr:
    return Expr("or", a.dtype, (a, b))


def xor(a: Expr, b: Expr) -> Expr:
    return Expr("xor", a.dtype, (a, b))


def not_(a: Expr) -> Expr:
    return Expr("not", a.dtype, (a,))


def shl(a: Expr, b: Expr) -> Expr:
    return Expr("shl", a.dtype, (a, b))


def shr(a: Expr, b: Expr) -> Expr:
    return Expr("shr", a.dtype, (a, b))


def _compare(op: str, a: Expr, b: Expr) -> Expr:
    if is_half(a.dtype):
        a, b = cast(a, float32), cast(b, float32)
    return Expr(op, bool_, (a, b))


def eq(a: Expr, b: Expr) -> Expr:
    if a.dtype is complex64:
        return and_(eq(real(a), real(b)), eq(imag(a), imag(b)))
    return _compare("eq", a, b)


def ne(a: Expr, b: Expr) -> Expr:
    if a.dtype is complex64:
        return or_(ne(real(a), real(b)), ne(imag(a), imag(b)))
    return _compare("ne", a, b)


def lt(a: Expr, b: Expr) -> Expr:
    if a.dtype is complex64:
        return or_(lt(real(a), real(b)), and_(eq(real(a), real(b)), lt(imag(a), imag(b))))
    return _compare("lt", a, b)


def le(a: Expr, b: Expr) -> Expr:
    if a.dtype is complex64:
        return or_(lt(real(a), real(b)), and_(eq(real(a), real(b)), le(imag(a), imag(b))))
    return _compare("le", a, b)


def gt(a: Expr, b: Expr) -> Expr:
    return lt(b, a) if a.dtype is complex64 else _compare("gt", a, b)


def ge(a: Expr, b: Expr) -> Expr:
    return le(b, a) if a.dtype is complex64 else _compare("ge", a, b)


def select(condition: Expr, a: Expr, b: Expr) -> Expr:
    if a.dtype is complex64 and (a.op == "complex" or b.op == "complex"):
        return make_complex(select(condition, real(a), real(b)), select(condition, imag(a), imag(b)))
    return Expr("select", a.dtype, (condition, a, b))


def isnan(a: Expr) -> Expr:
    return ne(a, a)


def _float_function(name: str) -> Callable[[Expr], Expr]:
    def function(a: Expr) -> Expr:
        assert a.dtype.rank == 2, f"{name} of {a.dtype}"
        return _lift(name, (a,))

    function.__name__ = name
    function.__doc__ = f"`{name}` of a real float."
    return function


floor = _float_function("floor")
ceil = _float_function("ceil")
trunc = _float_function("trunc")
rint = _float_function("rint")
sqrt = _float_function("sqrt")
exp = _float_function("exp")
expm1 = _float_function("expm1")
log = _float_function("log")
log2 = _float_function("log2")
log10 = _float_function("log10")
log1p = _float_function("log1p")
sin = _float_function("sin")
cos = _float_function("cos")
tan = _float_function("tan")
arcsin = _float_function("arcsin")
arccos = _float_function("arccos")
arctan = _float_function("arctan")
sinh = _float_function("sinh")
cosh = _float_function("cosh")
tanh = _float_function("tanh")
arcsinh = _float_function("arcsinh")
arccosh = _float_function("arccosh")
arctanh = _float_function("arctanh")
erf = _float_function("erf")
erfinv = _float_function("erfinv")
sigmoid = _float_function("sigmoid")


def arctan2(a: Expr, b: Expr) -> Expr:
    return _lift("arctan2", (a, b))


def copysign(a: Expr, b: Expr) -> Expr:
    return _lift("copysign", (a, b))


def pow_(a: Expr, b: Expr) -> Expr:
    """`a ** b` of real floats, or of integers (`ipow`)."""
    if a.dtype.rank < 2:
        return Expr("ipow", a.dtype, (a, b))
    return _lift("pow", (a, b))


def threefry(key0: Expr, key1: Expr, count0: Expr, count1: Expr) -> tuple[Expr, Expr]:
    """Threefry-2x32, 20 rounds, of uint32 values (Salmon et al. 2011, doi:10.1145/2063384.2063405)."""

    def word(value: int) -> Expr:
        return const(value, uint32)

    def rotate(x: Expr, bits: int) -> Expr:
        return or_(shl(x, word(bits)), shr(x, word(32 - bits)))

    keys = (key0, key1, xor(xor(key0, key1), word(0x1BD11BDA)))
    rotations = ((13, 15, 26, 6), (17, 29, 16, 24))
    x, y = add(count0, key0), add(count1, key1)
    for group in range(5):
        for bits in rotations[group % 2]:
            x = add(x, y)
            y = xor(rotate(y, bits), x)
        x = add(x, keys[(group + 1) % 3])
        y = add(add(y, keys[(group + 2) % 3]), word(group + 1))
    return x, y


def index_const(value: int) -> Expr:
    return const(value, int64)
