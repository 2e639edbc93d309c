"""Functions of complex numbers as scalar expressions.

A complex64 is taken apart into two float64 values, so the textbook formula neither over- nor underflows and its
cancellations stay far below a float32's last place; the result is rounded once. Branch cuts are C's, after Kahan
("Branch cuts for complex elementary functions", 1987).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from isthmus.graph.dtype import complex64, float32, float64
from isthmus.kernel import scalar as s
from isthmus.kernel.scalar import Expr

Pair = tuple[Expr, Expr]


def _number(value: float) -> Expr:
    return s.const(value, float64)


def _parts(z: Expr) -> Pair:
    return s.cast(s.real(z), float64), s.cast(s.imag(z), float64)


def function(of_parts: Callable[[Expr, Expr], Pair]) -> Callable[[Expr], Expr]:
    """A function of a complex64 from one of its float64 parts."""

    def scalar(z: Expr) -> Expr:
        re, im = of_parts(*_parts(z))
        return s.make_complex(s.cast(re, float32), s.cast(im, float32))

    return scalar


def by_dtype(real: Callable[[Expr], Expr], of_parts: Callable[[Expr, Expr], Pair]) -> Callable[[Expr], Expr]:
    """`real` for real dtypes, `of_parts` for complex ones."""
    of_complex = function(of_parts)
    return lambda x: of_complex(x) if x.dtype is complex64 else real(x)


def scaled(of_parts: Callable[[Expr, Expr], Pair], factor: float) -> Callable[[Expr, Expr], Pair]:
    def product(x: Expr, y: Expr) -> Pair:
        re, im = of_parts(x, y)
        return s.mul(re, _number(factor)), s.mul(im, _number(factor))

    return product


def exp(x: Expr, y: Expr) -> Pair:
    size = s.exp(x)
    zero = _number(0)
    none = s.eq(size, zero)  # exp(-inf + 1j * anything) is 0
    re = s.select(none, zero, s.mul(size, s.cos(y)))
    return re, s.select(s.or_(none, s.eq(y, zero)), s.mul(zero, y), s.mul(size, s.sin(y)))


def _square_sum(x: Expr, y: Expr) -> Expr:
    return s.add(s.mul(x, x), s.mul(y, y))


def log(x: Expr, y: Expr) -> Pair:
    a, b = s.abs_(x), s.abs_(y)
    large, small = s.max_(a, b), s.min_(a, b)
    one = _number(1)
    square = _square_sum(x, y)
    near = s.add(s.mul(s.sub(large, one), s.add(large, one)), s.mul(small, small))  # |z|**2 - 1 without cancelling
    close = s.lt(s.abs_(near), _number(0.5))
    twice = s.select(close, s.log1p(s.select(close, near, _number(0))), s.log(square))
    return s.mul(_number(0.5), twice), s.arctan2(y, x)


def log1p(x: Expr, y: Expr) -> Pair:
    more = s.add(s.mul(x, s.add(x, _number(2))), s.mul(y, y))  # |1 + z|**2 - 1
    right = s.add(x, _number(1))
    close = s.lt(s.abs_(more), _number(0.5))
    twice = s.select(close, s.log1p(s.select(close, more, _number(0))), s.log(_square_sum(right, y)))
    return s.mul(_number(0.5), twice), s.arctan2(y, right)


def sqrt(x: Expr, y: Expr) -> Pair:
    zero, inf = _number(0), _number(math.inf)
    b = s.abs_(y)
    large = s.sqrt(s.mul(s.add(s.sqrt(_square_sum(x, y)), s.abs_(x)), _number(0.5)))
    small = s.select(s.eq(large, zero), zero, s.div(b, s.mul(_number(2), large)))
    large = s.select(s.eq(b, inf), inf, large)
    small = s.select(s.eq(b, inf), inf, small)
    right = s.ge(x, zero)
    return s.select(right, large, small), s.copysign(s.select(right, small, large), y)


def sin(x: Expr, y: Expr) -> Pair:
    return s.mul(s.sin(x), s.cosh(y)), s.mul(s.cos(x), s.sinh(y))


def cos(x: Expr, y: Expr) -> Pair:
    return s.mul(s.cos(x), s.cosh(y)), s.neg(s.mul(s.sin(x), s.sinh(y)))


def sinh(x: Expr, y: Expr) -> Pair:
    im, re = sin(y, x)
    return re, im


def cosh(x: Expr, y: Expr) -> Pair:
    return s.mul(s.cosh(x), s.cos(y)), s.mul(s.sinh(x), s.sin(y))


def tanh(x: Expr, y: Expr) -> Pair:
    # sinh(2x) overflows far out, where the real part is +-1 and the imaginary one 4 sin(y) cos(y) exp(-2|x|).
    two = _number(2)
    far = s.gt(s.abs_(x), _number(300))
    u = s.mul(two, s.select(far, _number(0), x))
    v = s.mul(two, y)
    below = s.add(s.cosh(u), s.cos(v))
    re = s.select(far, s.copysign(_number(1), x), s.div(s.sinh(u), below))
    return re, s.select(far, s.mul(_number(0), y), s.div(s.sin(v), below))


def tan(x: Expr, y: Expr) -> Pair:
    im, re = tanh(y, x)
    return re, im


def _roots(x: Expr, y: Expr) -> tuple[Pair, Pair]:
    """sqrt(1 - z) and sqrt(1 + z)."""
    one = _number(1)
    return sqrt(s.sub(one, x), s.neg(y)), sqrt(s.add(one, x), y)


def arcsin(x: Expr, y: Expr) -> Pair:
    (a, b), (c, d) = _roots(x, y)
    return s.arctan2(x, s.sub(s.mul(a, c), s.mul(b, d))), s.arcsinh(s.sub(s.mul(a, d), s.mul(b, c)))


def arccos(x: Expr, y: Expr) -> Pair:
    (a, b), (c, d) = _roots(x, y)
    return s.mul(_number(2), s.arctan2(a, c)), s.arcsinh(s.sub(s.mul(c, b), s.mul(d, a)))


def arcsinh(x: Expr, y: Expr) -> Pair:
    re, im = arcsin(s.neg(y), x)  # arcsinh(z) = -i arcsin(i z)
    return im, s.neg(re)


def arccosh(x: Expr, y: Expr) -> Pair:
    one = _number(1)
    a, b = sqrt(s.sub(x, one), y)
    c, d = sqrt(s.add(x, one), y)
    return s.arcsinh(s.add(s.mul(a, c), s.mul(b, d))), s.mul(_number(2), s.arctan2(b, c))


def arctanh(x: Expr, y: Expr) -> Pair:
    one, a = _number(1), s.abs_(x)  # by |x|: log1p of what is near -1 would cancel
    left = s.sub(one, a)
    square = s.mul(y, y)
    re = s.mul(_number(0.25), s.log1p(s.div(s.mul(_number(4), a), s.add(s.mul(left, left), square))))
    im = s.mul(_number(0.5), s.arctan2(s.mul(_number(2), y), s.sub(s.mul(left, s.add(one, a)), square)))
    return s.copysign(re, x), im


def arctan(x: Expr, y: Expr) -> Pair:
    re, im = arctanh(s.neg(y), x)  # arctan(z) = -i arctanh(i z)
    return im, s.neg(re)


def power(a: Expr, b: Expr) -> Expr:
    """`a ** b` of complex64: exp(b log(a)), with 0 ** 0 = 1 and 0 ** b = 0."""
    (x, y), (u, v) = _parts(a), _parts(b)
    zero, one = _number(0), _number(1)
    is_zero = s.and_(s.eq(x, zero), s.eq(y, zero))
    p, q = log(s.select(is_zero, one, x), y)
    re, im = exp(s.sub(s.mul(u, p), s.mul(v, q)), s.add(s.mul(u, q), s.mul(v, p)))
    at_zero = s.select(s.and_(s.eq(u, zero), s.eq(v, zero)), one, s.select(s.gt(u, zero), zero, _number(math.nan)))
    return s.make_complex(s.cast(s.select(is_zero, at_zero, re), float32), s.cast(s.select(is_zero, zero, im), float32))


def sign(z: Expr) -> Expr:
    """`z / |z|`, 0 at 0."""
    x, y = _parts(z)
    r = s.sqrt(_square_sum(x, y))
    zero = _number(0)
    at_zero = s.eq(r, zero)
    r = s.select(at_zero, _number(1), r)
    return s.make_complex(s.cast(s.div(x, r), float32), s.cast(s.div(y, r), float32))


def square(z: Expr) -> Expr:
    """`z * z`, its real part as a product so that it does not cancel."""
    x, y = s.real(z), s.imag(z)
    xy = s.mul(x, y)
    return s.make_complex(s.mul(s.sub(x, y), s.add(x, y)), s.add(xy, xy))


def isnan(z: Expr) -> Expr:
    return s.or_(s.isnan(s.real(z)), s.isnan(s.imag(z)))


def isinf(z: Expr) -> Expr:
    inf = s.const(math.inf, float32)
    return s.or_(s.eq(s.abs_(s.real(z)), inf), s.eq(s.abs_(s.imag(z)), inf))


def logaddexp(a: Expr, b: Expr) -> Expr:
    (x, y), (u, v) = _parts(a), _parts(b)
    top = s.max_(x, u)
    top = s.select(s.eq(s.abs_(top), _number(math.inf)), _number(0), top)
    (p, q), (r, t) = exp(s.sub(x, top), y), exp(s.sub(u, top), v)
    re, im = log(s.add(p, r), s.add(q, t))
    return s.make_complex(s.cast(s.add(re, top), float32), s.cast(im, float32))
