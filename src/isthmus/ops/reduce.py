"""Reductions over axes, and what is composed of them: mean, variance, softmax.

A reduction of a transposed value is made as one of the value itself (the order of its sums then follows what is in
memory, held or not), and the reduced axes are removed; `keepdims` puts them back by a reshape. 16-bit floats are summed
and multiplied in float32 and rounded once. A reduction over nothing is its identity, decided when the node is made.
"""

from __future__ import annotations

import builtins
import math
from typing import Any

from isthmus.graph.array import array, cast_node, wrap
from isthmus.graph.device import Stream
from isthmus.graph.dtype import Dtype, bool_, complex64, float32, int32, to_floating, uint32
from isthmus.graph.node import Node, make, size_of
from isthmus.kernel import scalar as s
from isthmus.ops import elementwise as e
from isthmus.ops.arguments import ArrayLike, Axes, StreamOrDevice, all_axes, as_node, one_axis, stream_of
from isthmus.ops.create import full_node
from isthmus.ops.families import Elementwise, Reduction
from isthmus.ops.move import TRANSPOSE, broadcast_node_by, part_node, reshape_node, transpose_node

# --- derivatives ---


def spread(node: Node, y: array) -> array:
    """A reduction's output, repeated over the axes it folded."""
    return wrap(spread_node(y._node, node.inputs[0].shape, node.sig.attrs[0], node.sig.stream))


def spread_node(y: Node, shape: tuple[int, ...], folded: tuple[int, ...], stream: Stream) -> Node:
    """`y`, which has the axes of `shape` but for `folded`, repeated over those."""
    at = 0
    axes = []
    for k in range(len(shape)):
        axes.append(-1 if k in folded else at)
        at += k not in folded
    return broadcast_node_by(y, tuple(axes), shape, stream) if folded else y


def _winners(node: Node, y: array) -> array:
    """Where a maximum or minimum was met; where it is NaN, the NaNs."""
    x = wrap(node.inputs[0])
    return e.logical_or(x == spread(node, y), x != x)


def _extreme_vjp(node: Node, y: array, ct: array, wanted: Any) -> list[array]:
    """Equal winners share the cotangent."""
    won = _winners(node, y)
    count = sum_node(cast_node(won._node, ct.dtype, node.sig.stream), node.sig.attrs[0], node.sig.stream)
    return [e.where(won, spread(node, ct / wrap(count)), 0)]


def _extreme_jvp(node: Node, y: array, tangents: Any) -> array:
    won, axes, stream = _winners(node, y), node.sig.attrs[0], node.sig.stream
    count = sum_node(cast_node(won._node, y.dtype, stream), axes, stream)
    return e.divide(wrap(sum_node(e.where(won, tangents[0], 0)._node, axes, stream)), wrap(count))


def _others(node: Node) -> array:
    """For each element, the product of the others it is folded with: by halves, without division, so right at zeros."""
    x, folded, stream = node.inputs[0], node.sig.attrs[0], node.sig.stream
    perm = (*(k for k in range(len(x.shape)) if k not in folded), *folded)
    turned = transpose_node(x, perm, stream)
    kept = len(perm) - len(folded)
    rows = wrap(reshape_node(turned, (*turned.shape[:kept], size_of(turned.shape[kept:])), stream))
    out = reshape_node(_exclusive(rows)._node, turned.shape, stream)
    return wrap(transpose_node(out, tuple(perm.index(k) for k in range(len(perm))), stream))


def _exclusive(x: array) -> array:
    from isthmus.ops.move import concatenate

    n = x.shape[-1]
    if n == 1:
        return e.ones_like(x, None)
    half, axis, stream = n // 2, x.ndim - 1, x._node.sig.stream

    def part(a: array, start: int, stop: int) -> array:
        return wrap(part_node(a._node, axis, start, stop, stream))

    first, second = part(x, 0, half), part(x, half, 2 * half)
    pairs = first * second
    if n % 2:
        pairs = concatenate([pairs, part(x, n - 1, n)], axis)
    rest = _exclusive(pairs)
    near = part(rest, 0, half)
    parts = [near * second, near * first]
    return concatenate([*parts, part(rest, half, half + 1)] if n % 2 else parts, axis)


# --- records ---

SUM: Reduction = Reduction(
    "sum",
    "sum",
    vjp=lambda node, y, ct, wanted: [spread(node, ct)],
    jvp=lambda node, y, tangents: wrap(reduce_node(SUM, tangents[0]._node, node.sig.attrs[0], node.sig.dtype, node.sig.stream)),
)
PROD = Reduction(
    "prod",
    "prod",
    vjp=lambda node, y, ct, wanted: [spread(node, ct) * _others(node)],
    jvp=lambda node, y, tangents: wrap(sum_node((tangents[0] * _others(node))._node, node.sig.attrs[0], node.sig.stream)),
)
MAX = Reduction("max", "max", _extreme_vjp, _extreme_jvp)
MIN = Reduction("min", "min", _extreme_vjp, _extreme_jvp)
ALL = Reduction("all", "all")
ANY = Reduction("any", "any")
ARGMAX = Reduction("argmax", "argmax")
ARGMIN = Reduction("argmin", "argmin")
COMPLEX = Elementwise("complex", 2, lambda d: (float32, complex64), s.make_complex, [lambda y, re, im: 1, lambda y, re, im: 1j])


def reduce_node(op: Reduction, x: Node, axes: tuple[int, ...], dtype: Dtype, stream: Stream) -> Node:
    """`op` of `x` over `axes` (ascending, not empty). Axes of size 1 are not folded but left out."""
    for k in axes:
        if x.shape[k] == 1:
            return _fold_long_axes(op, x, axes, dtype, stream)
    if x.sig.op is TRANSPOSE:
        perm = x.sig.attrs[0]
        base = x.inputs[0]
        folded = tuple(sorted(perm[a] for a in axes))
        out = reduce_node(op, base, folded, dtype, stream)
        kept_base = [k for k in range(len(perm)) if k not in folded]
        wanted = [perm[k] for k in range(len(perm)) if k not in axes]
        return transpose_node(out, tuple(kept_base.index(k) for k in wanted), stream)
    return make(op, (x,), without(x.shape, axes), dtype, stream, (axes,))


def without(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """`shape` without `axes`, which ascend."""
    for k in reversed(axes):
        shape = shape[:k] + shape[k + 1 :]
    return shape


def _fold_long_axes(op: Reduction, x: Node, axes: tuple[int, ...], dtype: Dtype, stream: Stream) -> Node:
    long = tuple(k for k in axes if x.shape[k] != 1)
    if not long and op.fold.startswith("arg"):
        return full_node(without(x.shape, axes), 0, dtype, stream)
    if long:
        x = reduce_node(op, x, long, dtype, stream)
    rest = iter(x.shape)
    shape = []
    for k in range(len(x.shape) + len(long)):
        size = 1 if k in long else next(rest)
        if k not in axes:
            shape.append(size)
    return reshape_node(x, tuple(shape), stream)


def _is_half(dtype: Dtype) -> bool:
    return dtype.rank == 2 and dtype.size == 2


def _widened(x: Node, stream: Stream) -> Node:
    """16-bit floats as float32, integers too."""
    dtype = x.sig.dtype
    return cast_node(x, float32, stream) if dtype.rank < 2 or _is_half(dtype) else x


def sum_node(x: Node, axes: tuple[int, ...], stream: Stream) -> Node:
    """Sum over `axes`, in float32 for the 16-bit floats, rounded once."""
    return _fold_node(SUM, x, tuple(sorted(axes)), 0, stream)


def _fold_node(op: Reduction, x: Node, axes: tuple[int, ...], identity: int, stream: Stream) -> Node:
    if not axes:
        return x
    dtype = x.sig.dtype
    if 0 in x.shape:
        shape = without(x.shape, axes)
        return full_node(shape, float(identity) if dtype.rank == 2 else identity, dtype, stream)
    if dtype is complex64:
        return _complex_fold(op, x, axes, stream)
    if _is_half(dtype):
        return cast_node(reduce_node(op, cast_node(x, float32, stream), axes, float32, stream), dtype, stream)
    return reduce_node(op, x, axes, dtype, stream)


def _complex_fold(op: Reduction, x: Node, axes: tuple[int, ...], stream: Stream) -> Node:
    """Kernels reduce real numbers: complex sums are two, all else goes by halves."""
    if op is SUM:
        re, im = (reduce_node(SUM, part(wrap(x))._node, axes, float32, stream) for part in (e.real, e.imag))
        return complex_node(re, im, stream)
    combine = {PROD: e.multiply, MAX: e.maximum, MIN: e.minimum}[op]
    turned = transpose_node(x, (*(k for k in range(len(x.shape)) if k not in axes), *axes), stream)
    kept = len(x.shape) - len(axes)
    rows = reshape_node(turned, (*turned.shape[:kept], size_of(turned.shape[kept:])), stream)
    n = rows.shape[kept]
    while n > 1:
        half = n // 2
        joined = combine(wrap(part_node(rows, kept, 0, half, stream)), wrap(part_node(rows, kept, half, 2 * half, stream)))
        if n % 2:
            from isthmus.ops.move import concatenate_nodes

            rows = concatenate_nodes([joined._node, part_node(rows, kept, n - 1, n, stream)], kept, stream)
        else:
            rows = joined._node
        n -= half
    return reshape_node(rows, rows.shape[:kept], stream)


def complex_node(re: Node, im: Node, stream: Stream) -> Node:
    from isthmus.graph.array import elementwise_node

    return elementwise_node(COMPLEX, (re, im), (), 0, float32, re.shape, stream)


def _extreme_node(op: Reduction, x: Node, axes: tuple[int, ...], stream: Stream) -> Node:
    if not axes:
        return x
    for k in axes:
        if x.shape[k] == 0:
            raise ValueError(f"[{op.name}] axis {k} has size 0, and nothing has no {op.name}.")
    dtype = x.sig.dtype
    if dtype is complex64:
        return _complex_fold(op, x, axes, stream) if 0 not in x.shape else reduce_node(op, x, axes, dtype, stream)
    if dtype is bool_:
        op = ANY if op is MAX else ALL
    return reduce_node(op, x, axes, dtype, stream)


def _finished(out: Node, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool, stream: Stream) -> array:
    if keepdims and axes:
        out = reshape_node(out, tuple(1 if k in axes else n for k, n in enumerate(shape)), stream)
    return wrap(out)


def _accumulated(dtype: Dtype) -> Dtype:
    """What sums and products of small integers are made in."""
    if dtype.rank >= 2 or dtype.size >= 4:
        return dtype
    return uint32 if dtype.category == "unsigned" else int32


# --- public functions ---


def sum(a: ArrayLike, /, axis: Axes = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """Sum over axes.

    Args:
        a: Any dtype. bool and integers below 32 bits are summed as int32 or uint32.
        axis: Axis or axes; negative ones count from the end; None takes all.
        keepdims: Keep the summed axes, with size 1.

    Raises:
        ValueError: `axis` names an axis twice.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.sum(mx.array([[1, 2], [3, 4]]), axis=0)
        array([4, 6], dtype=int32)
    """
    x, at = as_node(a), stream_of(stream)
    axes = all_axes("sum", axis, len(x.shape))
    x = cast_node(x, _accumulated(x.sig.dtype), at)
    return _finished(_fold_node(SUM, x, axes, 0, at), x.shape, axes, keepdims, at)


def prod(a: ArrayLike, /, axis: Axes = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """Product over axes.

    Args:
        a: Any dtype. bool and integers below 32 bits are multiplied as int32 or uint32.
        axis: Axis or axes; negative ones count from the end; None takes all.
        keepdims: Keep the folded axes, with size 1.

    Raises:
        ValueError: `axis` names an axis twice.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.prod(mx.array([1, 2, 3]))
        array(6, dtype=int32)
    """
    x, at = as_node(a), stream_of(stream)
    axes = all_axes("prod", axis, len(x.shape))
    x = cast_node(x, _accumulated(x.sig.dtype), at)
    return _finished(_fold_node(PROD, x, axes, 1, at), x.shape, axes, keepdims, at)


def max(a: ArrayLike, /, axis: Axes = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """The largest over axes; NaN where there is one. Equal ones share the gradient.

    Args:
        a: Any dtype.
        axis: Axis or axes; negative ones count from the end; None takes all.
        keepdims: Keep the folded axes, with size 1.

    Raises:
        ValueError: a folded axis has size 0, or `axis` names one twice.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.max(mx.array([[1, 5], [3, 4]]), axis=1)
        array([5, 4], dtype=int32)
    """
    x, at = as_node(a), stream_of(stream)
    axes = all_axes("max", axis, len(x.shape))
    return _finished(_extreme_node(MAX, x, axes, at), x.shape, axes, keepdims, at)


def min(a: ArrayLike, /, axis: Axes = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """The smallest over axes; NaN where there is one. Equal ones share the gradient.

    Args:
        a: Any dtype.
        axis: Axis or axes; negative ones count from the end; None takes all.
        keepdims: Keep the folded axes, with size 1.

    Raises:
        ValueError: a folded axis has size 0, or `axis` names one twice.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.min(mx.array([[1, 5], [3, 4]]), axis=1)
        array([1, 3], dtype=int32)
    """
    x, at = as_node(a), stream_of(stream)
    axes = all_axes("min", axis, len(x.shape))
    return _finished(_extreme_node(MIN, x, axes, at), x.shape, axes, keepdims, at)


def minmax(a: ArrayLike, /, axis: Axes = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> tuple[array, array]:
    """`(min, max)` over axes.

    Raises:
        ValueError: a folded axis has size 0, or `axis` names one twice.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.minmax(mx.array([1, 5, 3]))
        (array(1, dtype=int32), array(5, dtype=int32))
    """
    return min(a, axis, keepdims, stream=stream), max(a, axis, keepdims, stream=stream)


def all(a: ArrayLike, /, axis: Axes = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """Whether all elements over axes are true, that is not 0.

    Raises:
        ValueError: `axis` names an axis twice.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.all(mx.array([True, False]))
        array(False, dtype=bool)
    """
    return _truth(ALL, a, axis, keepdims, stream)


def any(a: ArrayLike, /, axis: Axes = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """Whether any element over axes is true, that is not 0.

    Raises:
        ValueError: `axis` names an axis twice.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.any(mx.array([True, False]))
        array(True, dtype=bool)
    """
    return _truth(ANY, a, axis, keepdims, stream)


def _truth(op: Reduction, a: ArrayLike, axis: Axes, keepdims: bool, stream: StreamOrDevice) -> array:
    x, at = as_node(a), stream_of(stream)
    axes = all_axes(op.name, axis, len(x.shape))
    return _finished(_fold_node(op, cast_node(x, bool_, at), axes, op is ALL, at), x.shape, axes, keepdims, at)


def count_nonzero(a: ArrayLike, /, *, axis: Axes = None, keepdims: bool = False, stream: StreamOrDevice = None) -> array:
    """How many elements over axes are not 0, as int32.

    Raises:
        ValueError: `axis` names an axis twice.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.count_nonzero(mx.array([0, 3, 0, 4]))
        array(2, dtype=int32)
    """
    x = as_node(a)
    return sum(e.not_equal(wrap(x), False if x.sig.dtype is bool_ else 0, stream), axis, keepdims, stream=stream)


def argmax(a: ArrayLike, /, axis: int | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """Where the largest element is, the first of equal ones; a NaN's place where there is one.

    Args:
        a: Any dtype.
        axis: Along which; None takes the flattened array.
        keepdims: Keep the folded axes, with size 1.

    Returns:
        uint32.

    Raises:
        ValueError: `a` is empty.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.argmax(mx.array([1, 5, 3]))
        array(1, dtype=uint32)
    """
    return _arg(ARGMAX, a, axis, keepdims, stream)


def argmin(a: ArrayLike, /, axis: int | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """Where the smallest element is, the first of equal ones; a NaN's place where there is one.

    Args:
        a: Any dtype.
        axis: Along which; None takes the flattened array.
        keepdims: Keep the folded axes, with size 1.

    Returns:
        uint32.

    Raises:
        ValueError: `a` is empty.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.argmin(mx.array([4, 1, 3]))
        array(1, dtype=uint32)
    """
    return _arg(ARGMIN, a, axis, keepdims, stream)


def _arg(op: Reduction, a: ArrayLike, axis: int | None, keepdims: bool, stream: StreamOrDevice) -> array:
    x, at = as_node(a), stream_of(stream)
    shape = x.shape
    if 0 in shape:
        raise ValueError(f"[{op.name}] the array is empty; its shape is {shape}.")
    if axis is None:
        axes = tuple(range(len(shape)))
        x = reshape_node(x, (size_of(shape),), at)
        along = 0
    else:
        along = one_axis(op.name, axis, len(shape))
        axes = (along,)
    if x.sig.dtype is complex64:  # the parts in order: among those of the best real part, the best imaginary one
        re, im = e.real(wrap(x)), e.imag(wrap(x))
        best = max(re, along, True) if op is ARGMAX else min(re, along, True)
        nan = e.isnan(wrap(x))
        worst = -math.inf if op is ARGMAX else math.inf
        x = e.where(nan, math.nan, e.where(re == best, im, worst))._node
    out = reduce_node(op, x, (along,), uint32, at)
    return _finished(out, shape, axes, keepdims, at)


def mean(a: ArrayLike, /, axis: Axes = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """Mean over axes.

    Args:
        a: Any dtype; integers and booleans are taken as float32.
        axis: Axis or axes; negative ones count from the end; None takes all.
        keepdims: Keep the folded axes, with size 1.

    Raises:
        ValueError: `axis` names an axis twice.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.mean(mx.array([1, 2, 4, 5]))
        array(3, dtype=float32)
    """
    x, at = as_node(a), stream_of(stream)
    axes = all_axes("mean", axis, len(x.shape))
    out = cast_node(_mean_node(_widened(x, at), axes, at), to_floating(x.sig.dtype), at)
    return _finished(out, x.shape, axes, keepdims, at)


def _count(x: Node, axes: tuple[int, ...]) -> int:
    return size_of(tuple(x.shape[k] for k in axes))


def _mean_node(x: Node, axes: tuple[int, ...], stream: Stream) -> Node:
    if not axes:
        return x
    return _divided(sum_node(x, axes, stream), _count(x, axes), stream)


def _divided(x: Node, n: float, stream: Stream) -> Node:
    return e.divide(wrap(x), float(n), stream)._node


def var(a: ArrayLike, /, axis: Axes = None, keepdims: bool = False, ddof: float = 0, *, stream: StreamOrDevice = None) -> array:
    """Variance over axes: the mean is taken first, so that data far from zero loses nothing.

    Args:
        a: Any dtype; integers and booleans are taken as float32. Complex numbers have a real variance.
        axis: Axis or axes; negative ones count from the end; None takes all.
        keepdims: Keep the folded axes, with size 1.
        ddof: Subtracted from the number of elements.

    Raises:
        ValueError: `axis` names an axis twice.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.var(mx.array([1.0, 2.0, 3.0, 4.0]))
        array(1.25, dtype=float32)
    """
    return _spread_of("var", a, axis, keepdims, ddof, stream, False)


def std(a: ArrayLike, /, axis: Axes = None, keepdims: bool = False, ddof: float = 0, *, stream: StreamOrDevice = None) -> array:
    """Standard deviation over axes, the root of the variance.

    Args:
        a: Any dtype; integers and booleans are taken as float32.
        axis: Axis or axes; negative ones count from the end; None takes all.
        keepdims: Keep the folded axes, with size 1.
        ddof: Subtracted from the number of elements.

    Raises:
        ValueError: `axis` names an axis twice.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.std(mx.array([1.0, 3.0]))
        array(1, dtype=float32)
    """
    return _spread_of("std", a, axis, keepdims, ddof, stream, True)


def _spread_of(op: str, a: ArrayLike, axis: Axes, keepdims: bool, ddof: float, stream: StreamOrDevice, root: bool) -> array:
    x, at = as_node(a), stream_of(stream)
    axes = all_axes(op, axis, len(x.shape))
    wide = _widened(x, at)
    centre = spread_node(_mean_node(wide, axes, at), x.shape, axes, at)
    away = e.subtract(wrap(wide), wrap(centre), stream)
    if away.dtype is complex64:
        squares = e.add(e.square(e.real(away, stream=stream)), e.square(e.imag(away, stream=stream)), stream)
    else:
        squares = e.square(away, stream=stream)
    out = _divided(sum_node(squares._node, axes, at), builtins.max(_count(x, axes) - ddof, 0), at)
    if root:
        out = e.sqrt(wrap(out), stream=stream)._node
    dtype = to_floating(x.sig.dtype)
    out = cast_node(out, float32 if dtype is complex64 else dtype, at)
    return _finished(out, x.shape, axes, keepdims, at)


def _top(x: Node, axes: tuple[int, ...], stream: Stream) -> Node:
    """The maximum over `axes` as a constant: what is subtracted before exponentials changes no result."""
    part = e.real(wrap(x))._node if x.sig.dtype is complex64 else x
    return e.stop_gradient(wrap(_extreme_node(MAX, part, axes, stream)))._node


def logsumexp(a: ArrayLike, /, axis: Axes = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """Logarithm of the sum of exponentials over axes, without overflow.

    Args:
        a: Any dtype; integers and booleans are taken as float32.
        axis: Axis or axes; negative ones count from the end; None takes all.
        keepdims: Keep the folded axes, with size 1.

    Raises:
        ValueError: `a` is empty, or `axis` names an axis twice.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.logsumexp(mx.array([1000.0, 1000.0]))
        array(1000.69, dtype=float32)

    Source: shifted form, Blanchard, Higham and Higham (2021), doi:10.1093/imanum/draa038.
    """
    x, at = as_node(a), stream_of(stream)
    axes = all_axes("logsumexp", axis, len(x.shape))
    if 0 in x.shape:
        raise ValueError(f"[logsumexp] the array is empty; its shape is {x.shape}.")
    wide = _widened(x, at)
    if not axes:
        return wrap(cast_node(wide, to_floating(x.sig.dtype), at))
    top = wrap(_top(wide, axes, at))
    top = e.where(e.isinf(top), 0, top)  # an infinite maximum speaks for itself
    shifted = wrap(wide) - wrap(spread_node(top._node, x.shape, axes, at))
    out = e.log(wrap(sum_node(e.exp(shifted)._node, axes, at))) + top
    return _finished(cast_node(out._node, to_floating(x.sig.dtype), at), x.shape, axes, keepdims, at)


def softmax(a: ArrayLike, /, axis: Axes = None, *, precise: bool = False, stream: StreamOrDevice = None) -> array:
    """`exp(a) / sum(exp(a))` over axes, without overflow.

    Args:
        a: Any dtype; integers and booleans are taken as float32.
        axis: Axis or axes to normalize over; None takes all.
        precise: As MLX's; the sums of 16-bit floats are always made in float32.

    Raises:
        ValueError: `axis` names an axis twice.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.softmax(mx.array([0.0, 0.0]))
        array([0.5, 0.5], dtype=float32)
    """
    x, at = as_node(a), stream_of(stream)
    axes = all_axes("softmax", axis, len(x.shape))
    if 0 in x.shape:
        return wrap(cast_node(x, to_floating(x.sig.dtype), at))
    wide = _widened(x, at)
    powers = e.exp(wrap(wide) - wrap(spread_node(_top(wide, axes, at), x.shape, axes, at)))
    total = spread_node(sum_node(powers._node, axes, at), x.shape, axes, at)
    return wrap(cast_node((powers / wrap(total))._node, to_floating(x.sig.dtype), at))
