"""Element-wise ops: each acts on every place alone, with NumPy's broadcasting and MLX's promotion.

A record says what the op is at one place (`scalar`, in kernel.scalar) and its derivatives; the public functions below
take what users pass. Formulas that take several roundings are computed in float32 for the 16-bit floats and rounded
once (`widened`). Complex functions are in ops/complex.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from isthmus.graph.array import array, binary, cast_node, elementwise_node, number_dtype, special, typed_node, unary, wrap
from isthmus.graph.dtype import Dtype, bool_, complex64, float32, float64, promote, uint8
from isthmus.graph.errors import DtypeError
from isthmus.graph.node import Node, make
from isthmus.kernel import scalar as s
from isthmus.kernel.scalar import Expr
from isthmus.ops import complex as z
from isthmus.ops.arguments import ArrayLike, StreamOrDevice, as_array, stream_of
from isthmus.ops.families import (
    Elementwise,
    Linear,
    Place,
    _fit,
    comparison,
    floating,
    integral,
    logical,
    numeric,
    real_floating,
    same,
)

_LN2, _LN10 = math.log(2), math.log(10)
_DEGREES = 180 / math.pi


# --- how the records are written ---


def widened(f: Callable[..., Expr]) -> Callable[..., Expr]:
    """A formula of several roundings: 16-bit floats are computed in float32 and rounded once."""

    def scalar(*args: Expr) -> Expr:
        dtype = args[0].dtype
        return s.cast(f(*(s.cast(a, float32) for a in args)), dtype) if s.is_half(dtype) else f(*args)

    return scalar


def literal(value: Any, like: Expr) -> Expr:
    return s.const(value, like.dtype)


def modulus(d: Dtype) -> tuple[Dtype, Dtype] | None:
    """Any dtype; complex gives float32."""
    return d, (float32 if d is complex64 else d)


def real_only(d: Dtype) -> tuple[Dtype, Dtype] | None:
    """Any but complex, kept."""
    return None if d is complex64 else (d, d)


def shifted(d: Dtype) -> tuple[Dtype, Dtype] | None:
    """Integers; bool as uint8."""
    return (uint8, uint8) if d is bool_ else integral(d)


class Choice(Elementwise):
    """One of two arguments by a condition on them: the other gets no gradient, not zero times it."""

    def __init__(self, name: str, scalar: Callable[..., Expr], takes_first: Callable[[Any, Any], array]) -> None:
        super().__init__(name, 2, same, scalar)
        self.takes_first = takes_first

    def vjp(self, node: Node, y: array, ct: array, wanted: Sequence[bool]) -> Sequence[Any]:
        args = self.arguments(node, [wrap(i) for i in node.inputs])
        first = self.takes_first(*args)
        out = []
        for k, want, x in zip(self.input_positions(node), wanted, node.inputs, strict=True):
            given = where(first, ct, 0) if k == 0 else where(first, 0, ct)
            out.append(_fit(given, x) if want else None)
        return out

    def jvp(self, node: Node, y: array, tangents: Sequence[array | None]) -> array | None:
        args = self.arguments(node, [wrap(i) for i in node.inputs])
        given: list[Any] = [0, 0]
        for k, t in zip(self.input_positions(node), tangents, strict=True):
            given[k] = 0 if t is None else t
        return where(self.takes_first(*args), given[0], given[1])


class Select(Elementwise):
    """`condition ? x : y`; the compute dtype is that of x and y."""

    def argument_dtypes(self, compute: Dtype) -> list[Dtype]:
        return [bool_, compute, compute]

    def vjp(self, node: Node, y: array, ct: array, wanted: Sequence[bool]) -> Sequence[Any]:
        condition = self.arguments(node, [wrap(i) for i in node.inputs])[0]
        out: list[array | None] = []
        for k, want, x in zip(self.input_positions(node), wanted, node.inputs, strict=True):
            if k == 0 or not want:
                out.append(None)
            else:
                out.append(_fit(where(condition, ct, 0) if k == 1 else where(condition, 0, ct), x))
        return out

    def jvp(self, node: Node, y: array, tangents: Sequence[array | None]) -> array | None:
        condition = self.arguments(node, [wrap(i) for i in node.inputs])[0]
        given: list[Any] = [0, 0, 0]
        for k, t in zip(self.input_positions(node), tangents, strict=True):
            given[k] = 0 if t is None else t
        if not isinstance(given[1], array) and not isinstance(given[2], array):
            return None
        out = where(condition, given[1], given[2])
        return out if out.shape == y.shape else wrap(_broadcast(out._node, y.shape, node))


def _broadcast(x: Node, shape: tuple[int, ...], like: Node) -> Node:
    assert special.broadcast is not None
    return special.broadcast(x, shape, like.sig.stream)


class Steep(Elementwise):
    """A function of infinite slope at an end of its domain, where a cotangent of zero stays zero (not 0 * inf)."""

    def vjp(self, node: Node, y: array, ct: array, wanted: Sequence[bool]) -> Sequence[Any]:
        (out,) = super().vjp(node, y, ct, wanted)
        return [None if out is None else where(ct == 0, 0, out)]

    def jvp(self, node: Node, y: array, tangents: Sequence[array | None]) -> array | None:
        out = super().jvp(node, y, tangents)
        return None if out is None else where(tangents[0] == 0, 0, out)


class Converted(Elementwise):
    """Cast and bit cast: the result's dtype is the node's own. The attributes are (0, dtype of the input).

    A cast passes derivatives whatever the dtypes, to and from integers and booleans too, as in MLX.
    """

    def __init__(self, name: str, convert: Callable[[Expr, Dtype], Expr], differentiable: bool) -> None:
        super().__init__(name, 1, same, lambda x: x)
        self.convert = convert
        self.differentiable = differentiable

    def lower(self, ctx: Any, node: Any, place: Place) -> Expr:
        return self.convert(ctx.read(node, 0, place), node.dtype)

    def again(self, node: Node, x: array) -> array:
        return wrap(make(self, (x._node,), x.shape, node.sig.dtype, node.sig.stream, (0, x.dtype)))

    def vjp(self, node: Node, y: array, ct: array, wanted: Sequence[bool]) -> Sequence[Any]:
        return [wrap(cast_node(ct._node, node.inputs[0].sig.dtype, node.sig.stream)) if self.differentiable else None]

    def jvp(self, node: Node, y: array, tangents: Sequence[array | None]) -> array | None:
        if not self.differentiable or tangents[0] is None:
            return None
        return self.again(node, tangents[0])

    def vmap(self, node: Node, args: Sequence[array], batched: Sequence[bool]) -> array:
        return self.again(node, args[0])


class ConjugateOp(Elementwise):
    """Linear over the reals alone, so it writes its own rules."""

    def vjp(self, node: Node, y: array, ct: array, wanted: Sequence[bool]) -> Sequence[Any]:
        return [conjugate(ct)]

    def jvp(self, node: Node, y: array, tangents: Sequence[array | None]) -> array | None:
        return None if tangents[0] is None else conjugate(tangents[0])


class StopGradient(Linear):
    """The same value, through which no derivative passes."""

    def vjp(self, node: Node, y: array, ct: array, wanted: Sequence[bool]) -> Sequence[Any]:
        return [None]

    def jvp(self, node: Node, y: array, tangents: Sequence[array | None]) -> array | None:
        return None


def _one_over(x: Any) -> Any:
    if isinstance(x, array):
        return reciprocal(x)
    return 1 / x if x else math.inf


# --- records: moves between dtypes, choice ---

CAST = Converted("astype", s.cast, differentiable=True)
special.cast = CAST
SELECT = Select("where", 3, same, s.select)
STOP_GRADIENT = StopGradient(
    "stop_gradient",
    read=lambda ctx, node, place: place,
    transpose=lambda node, ct: ct,
    batch=lambda node, n: ((), (), (n, *node.shape)),
    axes=lambda node: [((k,), (k,)) for k in range(node.rank)],
    numpy=lambda node, a: a,
)

# --- records: arithmetic ---

ADD = Elementwise("add", 2, same, s.add, [lambda y, a, b: 1, lambda y, a, b: 1])
SUBTRACT = Elementwise("subtract", 2, same, s.sub, [lambda y, a, b: 1, lambda y, a, b: -1])
MULTIPLY = Elementwise("multiply", 2, same, s.mul, [lambda y, a, b: b, lambda y, a, b: a])
DIVIDE = Elementwise("divide", 2, floating, s.div, [lambda y, a, b: _one_over(b), lambda y, a, b: -y * _one_over(b)])


def _floor_divide(a: Expr, b: Expr) -> Expr:
    return s.div(a, b) if a.dtype is complex64 else s.idiv(a, b)  # complex numbers have no floor; MLX gives a / b


FLOOR_DIVIDE = Elementwise("floor_divide", 2, same, widened(_floor_divide))
REMAINDER = Elementwise("remainder", 2, real_only, s.imod, [lambda y, a, b: 1, lambda y, a, b: -floor_divide(a, b)])


def _power(a: Expr, b: Expr) -> Expr:
    if a.dtype is complex64:
        return z.power(a, b)
    if a.dtype is bool_:
        return s.or_(a, s.not_(b))
    return s.pow_(a, b)


def _power_by_base(y: array, a: Any, b: Any) -> Any:
    """`b * a ** (b - 1)`, 0 where b is 0."""
    if not isinstance(b, array):
        return power(a, b - 1) * b
    return power(a, where(b == 0, 1, b - 1)) * b


def _power_by_exponent(y: array, a: Any, b: Any) -> Any:
    """`y * log(a)`, 0 where y is 0 since a is."""
    if isinstance(a, array):
        return y * log(where(a == 0, 1, a))
    if a == 0:
        return 0
    return y * (math.log(a) if not isinstance(a, complex) and a > 0 else log(as_array(a)))


POWER = Elementwise("power", 2, same, _power, [_power_by_base, _power_by_exponent])
NEGATIVE = Elementwise("negative", 1, numeric, s.neg, [lambda y, x: -1], refuse="not supported for {dtype}; logical_not is what inverts it.")


def _sign(x: Expr) -> Expr:
    if x.dtype is complex64:
        return z.sign(x)
    zero = literal(0, x)
    if x.dtype is bool_:
        return x
    if x.dtype.category == "unsigned":
        return s.cast(s.ne(x, zero), x.dtype)
    below = s.select(s.lt(x, zero), literal(-1, x), s.select(s.eq(x, zero), zero, x))  # NaN stays
    return s.select(s.gt(x, zero), literal(1, x), below)


ABS = Elementwise("abs", 1, modulus, s.abs_, [lambda y, x: conjugate(sign(x))])
SIGN = Elementwise("sign", 1, same, _sign)
SQUARE = Elementwise("square", 1, same, lambda x: z.square(x) if x.dtype is complex64 else s.mul(x, x), [lambda y, x: 2 * x])
RECIPROCAL = Elementwise("reciprocal", 1, floating, lambda x: s.div(literal(1, x), x), [lambda y, x: -square(y)])
SQRT = Steep("sqrt", 1, floating, z.by_dtype(s.sqrt, z.sqrt), [lambda y, x: 0.5 / y])


def _rsqrt(x: Expr) -> Expr:
    return s.div(literal(1, x), SQRT.scalar(x))


RSQRT = Elementwise("rsqrt", 1, floating, widened(_rsqrt), [lambda y, x: -0.5 * y / x])
MAXIMUM = Choice("maximum", s.max_, lambda a, b: greater(a, b))
MINIMUM = Choice("minimum", s.min_, lambda a, b: less(a, b))
CONJUGATE = ConjugateOp("conjugate", 1, same, lambda x: s.make_complex(s.real(x), s.neg(s.imag(x))))
REAL = Elementwise("real", 1, modulus, s.real, [lambda y, x: 1])
IMAG = Elementwise("imag", 1, modulus, s.imag, [lambda y, x: -1j])

# --- records: rounding ---

FLOOR = Elementwise("floor", 1, real_floating, s.floor)
CEIL = Elementwise("ceil", 1, real_floating, s.ceil)
TRUNC = Elementwise("trunc", 1, real_floating, s.trunc)


def _round(x: Expr) -> Expr:
    return s.make_complex(s.rint(s.real(x)), s.rint(s.imag(x))) if x.dtype is complex64 else s.rint(x)


ROUND = Elementwise("round", 1, floating, _round)

# --- records: exponentials and logarithms ---

EXP = Elementwise("exp", 1, floating, z.by_dtype(s.exp, z.exp), [lambda y, x: y])
EXPM1 = Elementwise("expm1", 1, real_floating, s.expm1, [lambda y, x: y + 1])
LOG = Elementwise("log", 1, floating, z.by_dtype(s.log, z.log), [lambda y, x: reciprocal(x)])
LOG2 = Elementwise("log2", 1, floating, z.by_dtype(s.log2, z.scaled(z.log, 1 / _LN2)), [lambda y, x: reciprocal(x * _LN2)])
LOG10 = Elementwise("log10", 1, floating, z.by_dtype(s.log10, z.scaled(z.log, 1 / _LN10)), [lambda y, x: reciprocal(x * _LN10)])
LOG1P = Elementwise("log1p", 1, floating, z.by_dtype(s.log1p, z.log1p), [lambda y, x: reciprocal(x + 1)])


def _logaddexp(a: Expr, b: Expr) -> Expr:
    if a.dtype is complex64:
        return z.logaddexp(a, b)
    top = s.max_(a, b)
    more = s.log1p(s.exp(s.neg(s.abs_(s.sub(a, b)))))
    return s.select(s.eq(s.abs_(top), literal(math.inf, top)), top, s.add(top, more))


def _share(a: Any, b: Any) -> array:
    """exp(a) / (exp(a) + exp(b)), a half where both are equal, be they infinite."""
    difference = a - b
    if difference.dtype is complex64:
        return reciprocal(1 + exp(-difference))
    return sigmoid(where(equal(a, b), 0, difference))


LOGADDEXP = Elementwise("logaddexp", 2, floating, widened(_logaddexp), [lambda y, a, b: _share(a, b), lambda y, a, b: _share(b, a)])
SIGMOID = Elementwise("sigmoid", 1, real_floating, s.sigmoid, [lambda y, x: y * (1 - y)])

# --- records: trigonometry ---

SIN = Elementwise("sin", 1, floating, z.by_dtype(s.sin, z.sin), [lambda y, x: cos(x)])
COS = Elementwise("cos", 1, floating, z.by_dtype(s.cos, z.cos), [lambda y, x: -sin(x)])
TAN = Elementwise("tan", 1, floating, z.by_dtype(s.tan, z.tan), [lambda y, x: 1 + square(y)])
ARCSIN = Steep("arcsin", 1, floating, z.by_dtype(s.arcsin, z.arcsin), [lambda y, x: rsqrt(1 - square(x))])
ARCCOS = Steep("arccos", 1, floating, z.by_dtype(s.arccos, z.arccos), [lambda y, x: -rsqrt(1 - square(x))])
ARCTAN = Elementwise("arctan", 1, floating, z.by_dtype(s.arctan, z.arctan), [lambda y, x: reciprocal(1 + square(x))])
ARCTAN2 = Elementwise(
    "arctan2",
    2,
    real_floating,
    s.arctan2,
    [lambda y, a, b: b / (square(a) + square(b)), lambda y, a, b: -a / (square(a) + square(b))],
)
SINH = Elementwise("sinh", 1, floating, z.by_dtype(s.sinh, z.sinh), [lambda y, x: cosh(x)])
COSH = Elementwise("cosh", 1, floating, z.by_dtype(s.cosh, z.cosh), [lambda y, x: sinh(x)])
TANH = Elementwise("tanh", 1, floating, z.by_dtype(s.tanh, z.tanh), [lambda y, x: 1 - square(y)])
ARCSINH = Elementwise("arcsinh", 1, floating, z.by_dtype(s.arcsinh, z.arcsinh), [lambda y, x: rsqrt(square(x) + 1)])
ARCCOSH = Steep("arccosh", 1, floating, z.by_dtype(s.arccosh, z.arccosh), [lambda y, x: rsqrt(x - 1) * rsqrt(x + 1)])
ARCTANH = Elementwise("arctanh", 1, floating, z.by_dtype(s.arctanh, z.arctanh), [lambda y, x: reciprocal(1 - square(x))])
DEGREES = Elementwise("degrees", 1, floating, widened(lambda x: s.mul(x, literal(_DEGREES, x))), [lambda y, x: _DEGREES])
RADIANS = Elementwise("radians", 1, floating, widened(lambda x: s.mul(x, literal(1 / _DEGREES, x))), [lambda y, x: 1 / _DEGREES])
ERF = Elementwise("erf", 1, real_floating, s.erf, [lambda y, x: (2 / math.sqrt(math.pi)) * exp(-square(x))])
ERFINV = Elementwise("erfinv", 1, real_floating, s.erfinv, [lambda y, x: (math.sqrt(math.pi) / 2) * exp(square(y))])

# --- records: comparison, logic, bits ---

EQUAL = Elementwise("equal", 2, comparison, s.eq)
NOT_EQUAL = Elementwise("not_equal", 2, comparison, s.ne)
LESS = Elementwise("less", 2, comparison, s.lt)
LESS_EQUAL = Elementwise("less_equal", 2, comparison, s.le)
GREATER = Elementwise("greater", 2, comparison, s.gt)
GREATER_EQUAL = Elementwise("greater_equal", 2, comparison, s.ge)
LOGICAL_AND = Elementwise("logical_and", 2, logical, s.and_)
LOGICAL_OR = Elementwise("logical_or", 2, logical, s.or_)
LOGICAL_XOR = Elementwise("logical_xor", 2, logical, s.xor)
LOGICAL_NOT = Elementwise("logical_not", 1, logical, s.not_)
ISNAN = Elementwise("isnan", 1, comparison, lambda x: z.isnan(x) if x.dtype is complex64 else s.isnan(x))
ISINF = Elementwise("isinf", 1, comparison, lambda x: z.isinf(x) if x.dtype is complex64 else s.eq(s.abs_(x), literal(math.inf, x)))


def _isfinite(x: Expr) -> Expr:
    if x.dtype is complex64:
        return s.and_(_isfinite(s.real(x)), _isfinite(s.imag(x)))
    return s.lt(s.abs_(x), literal(math.inf, x))


ISFINITE = Elementwise("isfinite", 1, comparison, _isfinite)
ISPOSINF = Elementwise("isposinf", 1, comparison, lambda x: s.eq(x, literal(math.inf, x)))
ISNEGINF = Elementwise("isneginf", 1, comparison, lambda x: s.eq(x, literal(-math.inf, x)))

_INTEGERS = "for integers and booleans only; got {dtype}."
BITWISE_AND = Elementwise("bitwise_and", 2, integral, s.and_, refuse=_INTEGERS, error=DtypeError)
BITWISE_OR = Elementwise("bitwise_or", 2, integral, s.or_, refuse=_INTEGERS, error=DtypeError)
BITWISE_XOR = Elementwise("bitwise_xor", 2, integral, s.xor, refuse=_INTEGERS, error=DtypeError)
LEFT_SHIFT = Elementwise("left_shift", 2, shifted, s.shl, refuse=_INTEGERS, error=DtypeError)
RIGHT_SHIFT = Elementwise("right_shift", 2, shifted, s.shr, refuse=_INTEGERS, error=DtypeError)
BITWISE_INVERT = Elementwise("bitwise_invert", 1, integral, s.not_, refuse=_INTEGERS)


# --- public functions: arithmetic ---


def add(a: ArrayLike, b: ArrayLike, stream: StreamOrDevice = None) -> array:
    """`a + b`. Integers wrap; booleans give their logical or.

    Example:
        >>> mx.add(mx.array([1, 2]), 0.5)
        array([1.5, 2.5], dtype=float32)
    """
    return binary(ADD, a, b, stream)


def subtract(a: ArrayLike, b: ArrayLike, stream: StreamOrDevice = None) -> array:
    """`a - b`. Integers wrap.

    Example:
        >>> mx.subtract(mx.array([1, 2]), 3)
        array([-2, -1], dtype=int32)
    """
    return binary(SUBTRACT, a, b, stream)


def multiply(a: ArrayLike, b: ArrayLike, stream: StreamOrDevice = None) -> array:
    """`a * b`. Integers wrap; booleans give their logical and.

    Example:
        >>> mx.multiply(mx.array([1, 2]), mx.array([3, 4]))
        array([3, 8], dtype=int32)
    """
    return binary(MULTIPLY, a, b, stream)


def divide(a: ArrayLike, b: ArrayLike, stream: StreamOrDevice = None) -> array:
    """`a / b`; integers and booleans are taken as float32.

    Example:
        >>> mx.divide(mx.array([1, 2]), 4)
        array([0.25, 0.5], dtype=float32)
    """
    return binary(DIVIDE, a, b, stream)


def floor_divide(a: ArrayLike, b: ArrayLike, stream: StreamOrDevice = None) -> array:
    """The largest integer at most `a / b`, in the dtype of `a` and `b`. An integer over 0 gives 0.

    Example:
        >>> mx.floor_divide(mx.array([-7, 7]), 2)
        array([-4, 3], dtype=int32)
    """
    return binary(FLOOR_DIVIDE, a, b, stream)


def remainder(a: ArrayLike, b: ArrayLike, stream: StreamOrDevice = None) -> array:
    """The rest of floor division, with the sign of `b`. An integer by 0 gives itself.

    Raises:
        ValueError: complex arguments.

    Example:
        >>> mx.remainder(mx.array([-7, 7]), 3)
        array([2, 1], dtype=int32)
    """
    return binary(REMAINDER, a, b, stream)


def divmod(a: ArrayLike, b: ArrayLike, stream: StreamOrDevice = None) -> list[array]:
    """`[floor_divide(a, b), remainder(a, b)]`.

    Raises:
        ValueError: complex arguments.

    Example:
        >>> mx.divmod(mx.array([-7, 7]), 3)
        [array([-3, 2], dtype=int32), array([2, 1], dtype=int32)]
    """
    return [binary(FLOOR_DIVIDE, a, b, stream), binary(REMAINDER, a, b, stream)]


def power(a: ArrayLike, b: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """`a ** b`. Exponents -1, -0.5, 0, 0.5, 1, 2, 3 given as numbers are computed without logarithms.

    Integers wrap, and a negative power of one is cut to an integer: 0, but for the base 1 or -1.

    Example:
        >>> mx.power(mx.array([1.0, 2.0, 3.0]), 2)
        array([1, 4, 9], dtype=float32)
    """
    if isinstance(a, array) and isinstance(b, (bool, int, float)):
        whole = _whole_power(a, b, stream)
        if whole is not None:
            return whole
    return binary(POWER, a, b, stream)


def _whole_power(a: array, b: Any, stream: StreamOrDevice) -> array | None:
    dtype = a._node.sig.dtype
    wide = number_dtype(b if type(b) is not bool else int(b), dtype)
    if b == 2:
        f = SQUARE
    elif wide.rank >= 2 and b in (-1, -0.5, 0.5):
        f = RECIPROCAL if b == -1 else SQRT if b == 0.5 else RSQRT
    elif b not in (0, 1, 3):
        return None
    if wide is not dtype:
        a = wrap(cast_node(a._node, wide, stream_of(stream)))
    if b == 0:
        return ones_like(a, stream=stream)
    if b == 1:
        return a
    if b == 3:
        return binary(MULTIPLY, unary(SQUARE, a, stream), a, stream)
    return unary(f, a, stream)


def ones_like(a: array, stream: StreamOrDevice) -> array:
    from isthmus.ops.create import full

    return full(a.shape, 1, a.dtype, stream=stream)


def zeros_like(a: array, stream: StreamOrDevice) -> array:
    from isthmus.ops.create import full

    return full(a.shape, 0, a.dtype, stream=stream)


def negative(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """`-a`. Integers wrap.

    Raises:
        ValueError: booleans.

    Example:
        >>> mx.negative(mx.array([1.5, -2.0]))
        array([-1.5, 2], dtype=float32)
    """
    return unary(NEGATIVE, a, stream)


def positive(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """`a` itself.

    Example:
        >>> mx.positive(mx.array([1, -2]))
        array([1, -2], dtype=int32)
    """
    return wrap(as_array(a)._node)


def abs(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Absolute value; the modulus of complex numbers, as float32.

    Example:
        >>> mx.abs(mx.array([-1.5, 2.0]))
        array([1.5, 2], dtype=float32)
    """
    return unary(ABS, a, stream)


def sign(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """-1, 0 or 1; NaN stays NaN. Of complex numbers `a / abs(a)`.

    Example:
        >>> mx.sign(mx.array([-3.0, 0.0, 2.0]))
        array([-1, 0, 1], dtype=float32)
    """
    return unary(SIGN, a, stream)


def square(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """`a * a`.

    Example:
        >>> mx.square(mx.array([1, -3]))
        array([1, 9], dtype=int32)
    """
    return unary(SQUARE, a, stream)


def sqrt(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Square root; NaN of negative real numbers. Integers are taken as float32.

    Example:
        >>> mx.sqrt(mx.array([4.0, 2.0]))
        array([2, 1.41421], dtype=float32)
    """
    return unary(SQRT, a, stream)


def rsqrt(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """`1 / sqrt(a)`. Integers are taken as float32.

    Example:
        >>> mx.rsqrt(mx.array([4.0, 2.0]))
        array([0.5, 0.707107], dtype=float32)
    """
    return unary(RSQRT, a, stream)


def reciprocal(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """`1 / a`. Integers are taken as float32.

    Example:
        >>> mx.reciprocal(mx.array([4.0, -2.0]))
        array([0.25, -0.5], dtype=float32)
    """
    return unary(RECIPROCAL, a, stream)


def maximum(a: ArrayLike, b: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """The larger at each place; NaN where either is. At equality the gradient goes to `b`.

    Example:
        >>> mx.maximum(mx.array([1.0, -2.0]), 0)
        array([1, 0], dtype=float32)
    """
    return binary(MAXIMUM, a, b, stream)


def minimum(a: ArrayLike, b: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """The smaller at each place; NaN where either is. At equality the gradient goes to `b`.

    Example:
        >>> mx.minimum(mx.array([1.0, -2.0]), 0)
        array([0, -2], dtype=float32)
    """
    return binary(MINIMUM, a, b, stream)


def clip(a: ArrayLike, /, a_min: ArrayLike | None, a_max: ArrayLike | None, *, stream: StreamOrDevice = None) -> array:
    """`a` within `[a_min, a_max]`; NaN stays.

    Args:
        a: Any real dtype.
        a_min: Lower bound, None for none.
        a_max: Upper bound, None for none; wins where the bounds cross.

    Raises:
        ValueError: both bounds are None.

    Example:
        >>> mx.clip(mx.array([-1.0, 0.5, 2.0]), 0, 1)
        array([0, 0.5, 1], dtype=float32)
    """
    if a_min is None and a_max is None:
        raise ValueError("[clip] a_min and a_max are both None; at least one bound is needed.")
    out = as_array(a)
    if a_min is not None:
        out = binary(MAXIMUM, out, a_min, stream)
    if a_max is not None:
        out = binary(MINIMUM, out, a_max, stream)
    return out


# --- public functions: complex numbers ---


def conjugate(a: ArrayLike, *, stream: StreamOrDevice = None) -> array:
    """The complex conjugate; real numbers as they are.

    Example:
        >>> mx.conjugate(mx.array(1 + 2j))
        array(1-2j, dtype=complex64)
    """
    x = as_array(a)
    return unary(CONJUGATE, x, stream) if x.dtype is complex64 else wrap(x._node)


def real(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """The real part, float32 of complex64; real numbers as they are.

    Example:
        >>> mx.real(mx.array(1 + 2j))
        array(1, dtype=float32)
    """
    x = as_array(a)
    return unary(REAL, x, stream) if x.dtype is complex64 else wrap(x._node)


def imag(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """The imaginary part, float32 of complex64; zeros for real numbers.

    Example:
        >>> mx.imag(mx.array(1 + 2j))
        array(2, dtype=float32)
    """
    x = as_array(a)
    return unary(IMAG, x, stream) if x.dtype is complex64 else zeros_like(x, stream=stream)


# --- public functions: rounding ---


def _rounded(op: Elementwise, a: ArrayLike, stream: StreamOrDevice) -> array:
    x = as_array(a)
    return wrap(x._node) if x.dtype.rank < 2 else unary(op, x, stream)


def floor(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """The largest integer at most `a`, in `a`'s dtype.

    Raises:
        ValueError: complex numbers.

    Example:
        >>> mx.floor(mx.array([-1.5, 1.5]))
        array([-2, 1], dtype=float32)
    """
    return _rounded(FLOOR, a, stream)


def ceil(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """The smallest integer at least `a`, in `a`'s dtype.

    Raises:
        ValueError: complex numbers.

    Example:
        >>> mx.ceil(mx.array([-1.5, 1.5]))
        array([-1, 2], dtype=float32)
    """
    return _rounded(CEIL, a, stream)


def trunc(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """`a` without its fraction, in `a`'s dtype.

    Raises:
        ValueError: complex numbers.

    Example:
        >>> mx.trunc(mx.array([-1.5, 1.5]))
        array([-1, 1], dtype=float32)
    """
    return _rounded(TRUNC, a, stream)


def round(a: ArrayLike, /, decimals: int = 0, stream: StreamOrDevice = None) -> array:
    """The nearest number of so many decimals; halves go to the even one.

    Args:
        a: Any dtype; the parts of complex numbers are rounded each.
        decimals: Digits kept after the point; negative ones round before it.

    Example:
        >>> mx.round(mx.array([0.5, 1.5, 1.26]), 1)
        array([0.5, 1.5, 1.3], dtype=float32)
    """
    x = as_array(a)
    dtype = x.dtype
    if dtype.rank < 2 and decimals >= 0:
        return wrap(x._node)
    if decimals == 0:
        return unary(ROUND, x, stream)
    scale = 10.0 ** (decimals if decimals > 0 else -decimals)
    if decimals > 0:
        return binary(DIVIDE, unary(ROUND, binary(MULTIPLY, x, scale, stream), stream), scale, stream)
    wide = binary(MULTIPLY, unary(ROUND, binary(DIVIDE, x, scale, stream), stream), scale, stream)
    return wrap(cast_node(wide._node, dtype, stream_of(stream)))


# --- public functions: exponentials and logarithms. Integers are taken as float32. ---


def exp(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Exponential; integers are taken as float32.

    Example:
        >>> mx.exp(mx.array([0.0, 1.0]))
        array([1, 2.71828], dtype=float32)
    """
    return unary(EXP, a, stream)


def expm1(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """`exp(a) - 1`, exact near 0; integers are taken as float32.

    Raises:
        ValueError: complex numbers.

    Example:
        >>> mx.expm1(mx.array([0.0, 1e-3]))
        array([0, 0.0010005], dtype=float32)
    """
    return unary(EXPM1, a, stream)


def log(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Natural logarithm; integers are taken as float32.

    Example:
        >>> mx.log(mx.array([1.0, 10.0]))
        array([0, 2.30259], dtype=float32)
    """
    return unary(LOG, a, stream)


def log2(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Logarithm to the base 2; integers are taken as float32.

    Example:
        >>> mx.log2(mx.array([1.0, 8.0]))
        array([0, 3], dtype=float32)
    """
    return unary(LOG2, a, stream)


def log10(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Logarithm to the base 10; integers are taken as float32.

    Example:
        >>> mx.log10(mx.array([1.0, 100.0]))
        array([0, 2], dtype=float32)
    """
    return unary(LOG10, a, stream)


def log1p(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """`log(1 + a)`, exact near 0; integers are taken as float32.

    Example:
        >>> mx.log1p(mx.array([0.0, 1.0]))
        array([0, 0.693147], dtype=float32)
    """
    return unary(LOG1P, a, stream)


def logaddexp(a: ArrayLike, b: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """`log(exp(a) + exp(b))`, without overflow; integers are taken as float32.

    Example:
        >>> mx.logaddexp(mx.array([0.0, 1000.0]), mx.array([0.0, 1000.0]))
        array([0.693147, 1000.69], dtype=float32)
    """
    return binary(LOGADDEXP, a, b, stream)


def sigmoid(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """`1 / (1 + exp(-a))`; integers are taken as float32.

    Raises:
        ValueError: complex numbers.

    Example:
        >>> mx.sigmoid(mx.array([0.0, 100.0]))
        array([0.5, 1], dtype=float32)
    """
    return unary(SIGMOID, a, stream)


def erf(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Error function; integers are taken as float32.

    Raises:
        ValueError: complex numbers.

    Example:
        >>> mx.erf(mx.array([0.0, 1.0]))
        array([0, 0.842701], dtype=float32)
    """
    return unary(ERF, a, stream)


def erfinv(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Inverse of the error function; infinite at -1 and 1, NaN beyond.

    Raises:
        ValueError: complex numbers.

    Example:
        >>> mx.erfinv(mx.array([0.0, 0.5]))
        array([0, 0.476936], dtype=float32)
    """
    return unary(ERFINV, a, stream)


# --- public functions: trigonometry, in radians. Integers are taken as float32. ---


def sin(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Sine.

    Example:
        >>> mx.sin(mx.array([0.0, 1.0]))
        array([0, 0.841471], dtype=float32)
    """
    return unary(SIN, a, stream)


def cos(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Cosine.

    Example:
        >>> mx.cos(mx.array([0.0, 1.0]))
        array([1, 0.540302], dtype=float32)
    """
    return unary(COS, a, stream)


def tan(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Tangent.

    Example:
        >>> mx.tan(mx.array([0.0, 1.0]))
        array([0, 1.55741], dtype=float32)
    """
    return unary(TAN, a, stream)


def arcsin(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Inverse sine; NaN of real numbers beyond -1 and 1.

    Example:
        >>> mx.arcsin(mx.array([0.0, 1.0]))
        array([0, 1.5708], dtype=float32)
    """
    return unary(ARCSIN, a, stream)


def arccos(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Inverse cosine; NaN of real numbers beyond -1 and 1.

    Example:
        >>> mx.arccos(mx.array([0.0, 1.0]))
        array([1.5708, 0], dtype=float32)
    """
    return unary(ARCCOS, a, stream)


def arctan(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Inverse tangent.

    Example:
        >>> mx.arctan(mx.array([0.0, 1.0]))
        array([0, 0.785398], dtype=float32)
    """
    return unary(ARCTAN, a, stream)


def arctan2(a: ArrayLike, b: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """The angle of the point with ordinate `a` and abscissa `b`, in [-pi, pi].

    Raises:
        ValueError: complex numbers.

    Example:
        >>> mx.arctan2(mx.array([1.0, 1.0]), mx.array([1.0, -1.0]))
        array([0.785398, 2.35619], dtype=float32)
    """
    return binary(ARCTAN2, a, b, stream)


def sinh(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Hyperbolic sine.

    Example:
        >>> mx.sinh(mx.array([0.0, 1.0]))
        array([0, 1.1752], dtype=float32)
    """
    return unary(SINH, a, stream)


def cosh(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Hyperbolic cosine.

    Example:
        >>> mx.cosh(mx.array([0.0, 1.0]))
        array([1, 1.54308], dtype=float32)
    """
    return unary(COSH, a, stream)


def tanh(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Hyperbolic tangent.

    Example:
        >>> mx.tanh(mx.array([0.0, 1.0]))
        array([0, 0.761594], dtype=float32)
    """
    return unary(TANH, a, stream)


def arcsinh(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Inverse hyperbolic sine.

    Example:
        >>> mx.arcsinh(mx.array([0.0, 1.0]))
        array([0, 0.881374], dtype=float32)
    """
    return unary(ARCSINH, a, stream)


def arccosh(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Inverse hyperbolic cosine; NaN of real numbers below 1.

    Example:
        >>> mx.arccosh(mx.array([1.0, 2.0]))
        array([0, 1.31696], dtype=float32)
    """
    return unary(ARCCOSH, a, stream)


def arctanh(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Inverse hyperbolic tangent; infinite at -1 and 1, NaN of real numbers beyond.

    Example:
        >>> mx.arctanh(mx.array([0.0, 0.5]))
        array([0, 0.549306], dtype=float32)
    """
    return unary(ARCTANH, a, stream)


def degrees(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """An angle in radians as degrees.

    Example:
        >>> mx.degrees(mx.array([0.0, 3.1415927]))
        array([0, 180], dtype=float32)
    """
    return unary(DEGREES, a, stream)


def radians(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """An angle in degrees as radians.

    Example:
        >>> mx.radians(mx.array([0.0, 180.0]))
        array([0, 3.14159], dtype=float32)
    """
    return unary(RADIANS, a, stream)


# --- public functions: comparison and logic, all of dtype bool ---


def equal(a: ArrayLike, b: ArrayLike, stream: StreamOrDevice = None) -> array:
    """`a == b` at each place.

    Example:
        >>> mx.equal(mx.array([1, 2]), 2)
        array([False, True], dtype=bool)
    """
    return binary(EQUAL, a, b, stream)


def not_equal(a: ArrayLike, b: ArrayLike, stream: StreamOrDevice = None) -> array:
    """`a != b` at each place; true beside NaN.

    Example:
        >>> mx.not_equal(mx.array([1, 2]), 2)
        array([True, False], dtype=bool)
    """
    return binary(NOT_EQUAL, a, b, stream)


def less(a: ArrayLike, b: ArrayLike, stream: StreamOrDevice = None) -> array:
    """`a < b` at each place; complex numbers compare by their real parts first.

    Example:
        >>> mx.less(mx.array([1, 2]), 2)
        array([True, False], dtype=bool)
    """
    return binary(LESS, a, b, stream)


def less_equal(a: ArrayLike, b: ArrayLike, stream: StreamOrDevice = None) -> array:
    """`a <= b` at each place.

    Example:
        >>> mx.less_equal(mx.array([1, 3]), 2)
        array([True, False], dtype=bool)
    """
    return binary(LESS_EQUAL, a, b, stream)


def greater(a: ArrayLike, b: ArrayLike, stream: StreamOrDevice = None) -> array:
    """`a > b` at each place.

    Example:
        >>> mx.greater(mx.array([1, 3]), 2)
        array([False, True], dtype=bool)
    """
    return binary(GREATER, a, b, stream)


def greater_equal(a: ArrayLike, b: ArrayLike, stream: StreamOrDevice = None) -> array:
    """`a >= b` at each place.

    Example:
        >>> mx.greater_equal(mx.array([1, 2]), 2)
        array([False, True], dtype=bool)
    """
    return binary(GREATER_EQUAL, a, b, stream)


def _truth(x: ArrayLike) -> ArrayLike:
    return bool(x) if isinstance(x, (int, float, complex)) else x


def logical_and(a: ArrayLike, b: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Whether both are true, which all but 0 are.

    Example:
        >>> mx.logical_and(mx.array([True, False]), True)
        array([True, False], dtype=bool)
    """
    return binary(LOGICAL_AND, _truth(a), _truth(b), stream)


def logical_or(a: ArrayLike, b: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Whether either is true, which all but 0 are.

    Example:
        >>> mx.logical_or(mx.array([True, False]), False)
        array([True, False], dtype=bool)
    """
    return binary(LOGICAL_OR, _truth(a), _truth(b), stream)


def logical_xor(a: ArrayLike, b: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Whether one alone is true, which all but 0 are.

    Example:
        >>> mx.logical_xor(mx.array([True, False]), True)
        array([False, True], dtype=bool)
    """
    return binary(LOGICAL_XOR, _truth(a), _truth(b), stream)


def logical_not(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """Whether `a` is 0.

    Example:
        >>> mx.logical_not(mx.array([0, 2]))
        array([True, False], dtype=bool)
    """
    return unary(LOGICAL_NOT, a, stream)


def _of_floats(op: Elementwise, a: ArrayLike, otherwise: bool, stream: StreamOrDevice) -> array:
    """`op`, which answers `otherwise` for every integer."""
    from isthmus.ops.create import full

    x = as_array(a)
    return unary(op, x, stream) if x.dtype.rank >= 2 else full(x.shape, otherwise, bool_, stream=stream)


def isnan(a: ArrayLike, stream: StreamOrDevice = None) -> array:
    """Whether `a` is NaN; for complex numbers, whether either part is.

    Example:
        >>> mx.isnan(mx.array([1.0, float("nan")]))
        array([False, True], dtype=bool)
    """
    return _of_floats(ISNAN, a, False, stream)


def isinf(a: ArrayLike, stream: StreamOrDevice = None) -> array:
    """Whether `a` is infinite; for complex numbers, whether either part is.

    Example:
        >>> mx.isinf(mx.array([1.0, float("inf")]))
        array([False, True], dtype=bool)
    """
    return _of_floats(ISINF, a, False, stream)


def isfinite(a: ArrayLike, stream: StreamOrDevice = None) -> array:
    """Whether `a` is neither infinite nor NaN; for complex numbers, whether both parts are so.

    Example:
        >>> mx.isfinite(mx.array([1.0, float("inf")]))
        array([True, False], dtype=bool)
    """
    return _of_floats(ISFINITE, a, True, stream)


def isposinf(a: ArrayLike, stream: StreamOrDevice = None) -> array:
    """Whether `a` is positive infinity.

    Example:
        >>> mx.isposinf(mx.array([-float("inf"), float("inf")]))
        array([False, True], dtype=bool)
    """
    return _of_floats(ISPOSINF, a, False, stream)


def isneginf(a: ArrayLike, stream: StreamOrDevice = None) -> array:
    """Whether `a` is negative infinity.

    Example:
        >>> mx.isneginf(mx.array([-float("inf"), float("inf")]))
        array([True, False], dtype=bool)
    """
    return _of_floats(ISNEGINF, a, False, stream)


def isclose(a: ArrayLike, b: ArrayLike, /, rtol: float = 1e-05, atol: float = 1e-08, *, equal_nan: bool = False, stream: StreamOrDevice = None) -> array:
    """Whether `abs(a - b) <= atol + rtol * abs(b)` at each place; infinities are close to themselves alone.

    Args:
        a: Any dtype.
        b: Any dtype.
        rtol: Tolerance relative to `b`.
        atol: Tolerance as such.
        equal_nan: Whether NaN is close to NaN.

    Example:
        >>> mx.isclose(mx.array([1.0, 2.0]), mx.array([1.000001, 2.1]))
        array([True, False], dtype=bool)
    """
    x, y = as_array(a), as_array(b)
    common = promote(x.dtype, y.dtype)
    if common.rank < 2:  # differences of integers wrap
        x, y = astype(x, float64, stream=stream), astype(y, float64, stream=stream)
    close = less_equal(abs(x - y), atol + rtol * abs(y), stream)
    out = logical_or(equal(x, y, stream), logical_and(close, isfinite(y, stream), stream=stream), stream=stream)
    if equal_nan:
        out = logical_or(out, logical_and(isnan(x, stream), isnan(y, stream), stream=stream), stream=stream)
    return out


def allclose(a: ArrayLike, b: ArrayLike, /, rtol: float = 1e-05, atol: float = 1e-08, *, equal_nan: bool = False, stream: StreamOrDevice = None) -> array:
    """Whether `isclose` holds at every place.

    Example:
        >>> mx.allclose(mx.array([1.0, 2.0]), mx.array([1.000001, 2.0]))
        array(True, dtype=bool)
    """
    from isthmus.ops.reduce import all

    return all(isclose(a, b, rtol, atol, equal_nan=equal_nan, stream=stream), stream=stream)


def array_equal(a: ArrayLike, b: ArrayLike, equal_nan: bool = False, stream: StreamOrDevice = None) -> array:
    """Whether two arrays have the same shape and equal elements.

    Args:
        a: Any dtype; dtypes need not agree.
        b: Any dtype.
        equal_nan: Whether NaN equals NaN.

    Example:
        >>> mx.array_equal(mx.array([1, 2]), mx.array([1.0, 2.0]))
        array(True, dtype=bool)
    """
    from isthmus.ops.reduce import all

    x, y = as_array(a), as_array(b)
    if x.shape != y.shape:
        return as_array(False)
    same_place = equal(x, y, stream)
    if equal_nan and promote(x.dtype, y.dtype).rank >= 2:
        same_place = logical_or(same_place, logical_and(isnan(x, stream), isnan(y, stream), stream=stream), stream=stream)
    return all(same_place, stream=stream)


# --- public functions: bits ---


def bitwise_and(a: ArrayLike, b: ArrayLike, stream: StreamOrDevice = None) -> array:
    """`a & b` of integers or booleans.

    Raises:
        RuntimeError: other dtypes.

    Example:
        >>> mx.bitwise_and(mx.array([6, 3]), 2)
        array([2, 2], dtype=int32)
    """
    return binary(BITWISE_AND, a, b, stream)


def bitwise_or(a: ArrayLike, b: ArrayLike, stream: StreamOrDevice = None) -> array:
    """`a | b` of integers or booleans.

    Raises:
        RuntimeError: other dtypes.

    Example:
        >>> mx.bitwise_or(mx.array([6, 3]), 1)
        array([7, 3], dtype=int32)
    """
    return binary(BITWISE_OR, a, b, stream)


def bitwise_xor(a: ArrayLike, b: ArrayLike, stream: StreamOrDevice = None) -> array:
    """`a ^ b` of integers or booleans.

    Raises:
        RuntimeError: other dtypes.

    Example:
        >>> mx.bitwise_xor(mx.array([6, 3]), 2)
        array([4, 1], dtype=int32)
    """
    return binary(BITWISE_XOR, a, b, stream)


def bitwise_invert(a: ArrayLike, stream: StreamOrDevice = None) -> array:
    """`~a` of integers or booleans.

    Raises:
        ValueError: other dtypes.

    Example:
        >>> mx.bitwise_invert(mx.array([0, 5]))
        array([-1, -6], dtype=int32)
    """
    return unary(BITWISE_INVERT, a, stream)


def left_shift(a: ArrayLike, b: ArrayLike, stream: StreamOrDevice = None) -> array:
    """`a << b` of integers, booleans as uint8; 0 from the width of the dtype on.

    Raises:
        RuntimeError: other dtypes.

    Example:
        >>> mx.left_shift(mx.array([1, 3]), 2)
        array([4, 12], dtype=int32)
    """
    return binary(LEFT_SHIFT, a, b, stream)


def right_shift(a: ArrayLike, b: ArrayLike, stream: StreamOrDevice = None) -> array:
    """`a >> b` of integers, booleans as uint8; the sign is kept.

    Raises:
        RuntimeError: other dtypes.

    Example:
        >>> mx.right_shift(mx.array([8, -8]), 2)
        array([2, -2], dtype=int32)
    """
    return binary(RIGHT_SHIFT, a, b, stream)


# --- public functions: choice, dtypes, gradients ---


def where(condition: ArrayLike, x: ArrayLike, y: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """`x` where `condition` holds, else `y`.

    Args:
        condition: Any dtype; all but 0 is true.
        x: Broadcasts with the others.
        y: Broadcasts with the others.

    Returns:
        The common dtype of `x` and `y`. The gradient of the one not taken is 0.

    Example:
        >>> mx.where(mx.array([True, False]), mx.array([1.0, 2.0]), 0)
        array([1, 0], dtype=float32)
    """
    at = stream_of(stream)
    if not isinstance(condition, array):
        condition = as_array(condition)
    if not isinstance(x, array):
        if not isinstance(x, (int, float, complex)) or not isinstance(y, array):
            x = as_array(x)
    if not isinstance(y, array) and not isinstance(y, (int, float, complex)):
        y = as_array(y)
    if not isinstance(x, array):
        dtype = number_dtype(x, y._node.sig.dtype)
    elif not isinstance(y, array):
        dtype = number_dtype(y, x._node.sig.dtype)
    else:
        c, p, q = condition._node, x._node, y._node
        dtype = p.sig.dtype
        if dtype is not q.sig.dtype:
            dtype = promote(dtype, q.sig.dtype)
        elif c.sig.dtype is bool_ and c.shape == p.shape == q.shape:
            return wrap(elementwise_node(SELECT, (c, p, q), (), 0, dtype, p.shape, at))
    return wrap(typed_node(SELECT, (condition, x, y), [bool_, dtype, dtype], dtype, at))


def nan_to_num(a: ArrayLike, nan: float = 0, posinf: float | None = None, neginf: float | None = None, *, stream: StreamOrDevice = None) -> array:
    """`a` with NaN and infinities replaced.

    Args:
        a: Any dtype; integers are returned as they are, the parts of complex numbers are replaced each.
        nan: For NaN.
        posinf: For infinity; the largest finite number if None.
        neginf: For minus infinity; the smallest finite number if None.

    Example:
        >>> mx.nan_to_num(mx.array([1.0, float("nan"), float("inf")]), posinf=9)
        array([1, 0, 9], dtype=float32)
    """
    from isthmus.graph.limits import finfo

    x = as_array(a)
    if x.dtype.rank < 2:
        return wrap(x._node)
    if x.dtype is complex64:
        parts = [nan_to_num(part(x, stream=stream), nan, posinf, neginf, stream=stream) for part in (real, imag)]
        return add(parts[0], parts[1] * 1j)
    limits = finfo(x.dtype)
    out = where(isnan(x, stream), nan, x, stream=stream)
    out = where(isposinf(x, stream), limits.max if posinf is None else posinf, out, stream=stream)
    return where(isneginf(x, stream), limits.min if neginf is None else neginf, out, stream=stream)


def astype(a: array, dtype: Dtype, /, *, stream: StreamOrDevice = None) -> array:
    """`a` in another dtype.

    Floats become integers by cutting the fraction (NaN gives 0, what does not fit the nearest end of the range), and
    booleans by being 0 or not; complex numbers lose their imaginary part.

    Raises:
        TypeError: `dtype` is no dtype of `mx`.

    Example:
        >>> mx.astype(mx.array([1.9, -1.9]), mx.int32)
        array([1, -1], dtype=int32)
    """
    if not isinstance(dtype, Dtype):
        raise TypeError(f"[astype] a dtype such as mx.float32 is needed; got {dtype!r}.")
    return wrap(cast_node(as_array(a)._node, dtype, stream_of(stream)))


def stop_gradient(a: array, /, *, stream: StreamOrDevice = None) -> array:
    """`a`, taken as a constant by every derivative.

    Example:
        >>> mx.grad(lambda x: x * mx.stop_gradient(x))(mx.array(3.0))
        array(3, dtype=float32)
    """
    x = as_array(a)._node
    return wrap(make(STOP_GRADIENT, (x,), x.shape, x.sig.dtype, stream_of(stream)))


acos, acosh, asin, asinh, atan, atan2, atanh = arccos, arccosh, arcsin, arcsinh, arctan, arctan2, arctanh
bitwise_left_shift, bitwise_right_shift = left_shift, right_shift
conj, pow = conjugate, power

for _name, _op in {
    "add": ADD, "subtract": SUBTRACT, "multiply": MULTIPLY, "divide": DIVIDE, "floor_divide": FLOOR_DIVIDE,
    "remainder": REMAINDER, "bitwise_and": BITWISE_AND, "bitwise_or": BITWISE_OR, "bitwise_xor": BITWISE_XOR,
    "left_shift": LEFT_SHIFT, "right_shift": RIGHT_SHIFT, "equal": EQUAL, "not_equal": NOT_EQUAL, "less": LESS,
    "less_equal": LESS_EQUAL, "greater": GREATER, "greater_equal": GREATER_EQUAL, "negative": NEGATIVE, "abs": ABS,
    "bitwise_invert": BITWISE_INVERT,
}.items():  # fmt: skip
    setattr(special, _name, _op)
