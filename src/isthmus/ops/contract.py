"""Matrix products, and what is made of them.

MATMUL and ADDMM are computed by the backend's library; everything else here is a composition. A product with one matrix
on the right folds the leading axes of the left one into its rows, so that it is one large product and not a batch of
small ones. Transposed operands stay views, which the library reads as they are; a gradient is made in the layout of the
array it belongs to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from isthmus.graph.array import array, broadcast_node, broadcast_shape, cast_node, show_shape, special, wrap
from isthmus.graph.device import Stream
from isthmus.graph.dtype import Dtype, complex64, promote
from isthmus.graph.node import Node, make
from isthmus.ops.arguments import StreamOrDevice, as_array, one_axis, stream_of
from isthmus.ops.create import zeros_node
from isthmus.ops.elementwise import conjugate, multiply
from isthmus.ops.families import Demand, Opaque
from isthmus.ops.move import TRANSPOSE, reshape_node, transpose_node
from isthmus.ops.reduce import sum_node

# --- matmul: inputs a (..., M, K) and b (..., K, N) of equal leading axes ---


def swapped(x: Node) -> Node:
    """`x` with its last two axes exchanged: a view."""
    n = len(x.shape)
    return transpose_node(x, (*range(n - 2), n - 1, n - 2), x.sig.stream)


def _conjugated(x: Node) -> Node:
    return x if x.sig.dtype is not complex64 else conjugate(wrap(x))._node


def _is_swapped(x: Node) -> bool:
    """Whether the rows of a matrix lie across memory."""
    n = len(x.shape)
    return x.sig.op is TRANSPOSE and x.sig.attrs[0][-1] != n - 1


def _folded(x: Node, stream: Stream) -> Node:
    """All axes but the last as one."""
    return reshape_node(x, (math.prod(x.shape[:-1]), x.shape[-1]), stream)


def product_node(a: Node, b: Node, stream: Stream) -> Node:
    """The product of `a` (..., M, K) and `b` (..., K, N), whose leading axes broadcast and whose dtypes agree."""
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    batch = a.shape[:-2]
    if batch != b.shape[:-2]:
        batch = broadcast_shape(batch, b.shape[:-2])
    shape = (*batch, m, n)
    dtype = a.sig.dtype
    if k == 0 or 0 in shape:
        return zeros_node(shape, dtype, stream)
    if len(b.shape) == 2 and len(a.shape) > 2:
        folded = make(MATMUL, (_folded(a, stream), b), (math.prod(shape[:-1]), n), dtype, stream)
        return reshape_node(folded, shape, stream)
    if batch:
        a, b = broadcast_node(a, (*batch, m, k), stream), broadcast_node(b, (*batch, k, n), stream)
    return make(MATMUL, (a, b), shape, dtype, stream)


def _left(ct: Node, a: Node, b: Node, stream: Stream) -> Node:
    """The cotangent of `a`, laid out as `a` is."""
    if _is_swapped(a):
        return swapped(product_node(_conjugated(b), swapped(ct), stream))
    return product_node(ct, swapped(_conjugated(b)), stream)


def _right(ct: Node, a: Node, b: Node, stream: Stream) -> Node:
    """The cotangent of `b`, laid out as `b` is."""
    if _is_swapped(b):
        return swapped(product_node(swapped(ct), _conjugated(a), stream))
    return product_node(swapped(_conjugated(a)), ct, stream)


def _matmul_vjp(node: Node, y: array, ct: array, wanted: Sequence[bool]) -> list[array | None]:
    (a, b), stream = node.inputs, node.sig.stream
    return [
        wrap(_left(ct._node, a, b, stream)) if wanted[0] else None,
        wrap(_right(ct._node, a, b, stream)) if wanted[1] else None,
    ]


def _matmul_jvp(node: Node, y: array, tangents: Sequence[array | None]) -> array | None:
    (a, b), (ta, tb), stream = node.inputs, tangents, node.sig.stream
    out = None if ta is None else wrap(product_node(ta._node, b, stream))
    if tb is not None:
        more = wrap(product_node(a, tb._node, stream))
        out = more if out is None else out + more
    return out


def _matmul_vmap(node: Node, args: Sequence[array], batched: Sequence[bool]) -> array:
    a, b = args[0]._node, args[1]._node
    return wrap(product_node(_spread(a, b, batched[0]), _spread(b, a, batched[1]), node.sig.stream))


def _spread(x: Node, other: Node, batched: bool) -> Node:
    """A batched operand beside one of more axes: the batch axis stays in front."""
    gap = len(other.shape) - len(x.shape)
    return reshape_node(x, (x.shape[0], *[1] * gap, *x.shape[1:]), x.sig.stream) if batched and gap > 0 else x


def _product_demands(first: int) -> Callable[[Any], list[Demand]]:
    """M, N and the leading axes are the output's, K is one size; the inputs before `first` have the output's shape."""

    def demands(node: Any) -> list[Demand]:
        r = node.rank
        out: list[Demand] = [([(k, a)], [a]) for k in range(first) for a in range(r)]
        out += [([(k, a)], [a]) for k in (first, first + 1) for a in range(r - 2)]
        return [*out, ([(first, r - 2)], [r - 2]), ([(first + 1, r - 1)], [r - 1]), ([(first, r - 1), (first + 1, r - 2)], [])]

    return demands


MATMUL = Opaque("matmul", _matmul_vjp, _matmul_jvp, _matmul_vmap, demands=_product_demands(0))

# --- addmm: inputs c, a, b; c has the output's shape; dyn (alpha, beta): alpha * (a @ b) + beta * c ---


def _scaled(x: Node, by: float) -> Node:
    return x if by == 1 else (wrap(x) * by)._node


def _addmm_node(c: Node, a: Node, b: Node, alpha: float, beta: float, stream: Stream) -> Node:
    """`alpha * (a @ b) + beta * c`, where `c` broadcasts to the product's shape and dtypes agree."""
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    batch = a.shape[:-2]
    if batch != b.shape[:-2]:
        batch = broadcast_shape(batch, b.shape[:-2])
    shape = (*batch, m, n)
    if k == 0 or 0 in shape:
        return broadcast_node(_scaled(c, beta), shape, stream)
    dtype = a.sig.dtype
    if len(b.shape) == 2 and len(a.shape) > 2:
        rows = math.prod(shape[:-1])
        if math.prod(c.shape[:-1]) == 1:
            c = broadcast_node(reshape_node(c, c.shape[-1:], stream), (rows, n), stream)
        else:
            c = reshape_node(broadcast_node(c, shape, stream), (rows, n), stream)
        folded = make(ADDMM, (c, _folded(a, stream), b), (rows, n), dtype, stream, (), (alpha, beta))
        return reshape_node(folded, shape, stream)
    c = broadcast_node(c, shape, stream)
    if batch:
        a, b = broadcast_node(a, (*batch, m, k), stream), broadcast_node(b, (*batch, k, n), stream)
    return make(ADDMM, (c, a, b), shape, dtype, stream, (), (alpha, beta))


def _addmm_vjp(node: Node, y: array, ct: array, wanted: Sequence[bool]) -> list[array | None]:
    (_, a, b), (alpha, beta), stream = node.inputs, node.dyn, node.sig.stream
    scaled = _scaled(ct._node, alpha) if wanted[1] or wanted[2] else ct._node
    return [
        wrap(_scaled(ct._node, beta)) if wanted[0] else None,
        wrap(_left(scaled, a, b, stream)) if wanted[1] else None,
        wrap(_right(scaled, a, b, stream)) if wanted[2] else None,
    ]


def _addmm_jvp(node: Node, y: array, tangents: Sequence[array | None]) -> array | None:
    (_, a, b), (tc, ta, tb), (alpha, beta), stream = node.inputs, tangents, node.dyn, node.sig.stream
    out = None if tc is None else wrap(_scaled(tc._node, beta))
    for t, left, right in ((ta, ta, wrap(b)), (tb, wrap(a), tb)):
        if t is None or left is None or right is None:
            continue
        if out is None:
            out = wrap(_scaled(product_node(left._node, right._node, stream), alpha))
        else:
            out = wrap(_addmm_node(out._node, left._node, right._node, alpha, 1.0, stream))
    return out


def _addmm_vmap(node: Node, args: Sequence[array], batched: Sequence[bool]) -> array:
    c, a, b = (x._node for x in args)
    longest = max((a, b), key=lambda x: len(x.shape))
    a, b = _spread(a, longest, batched[1]), _spread(b, longest, batched[2])
    alpha, beta = node.dyn
    if not batched[1] and not batched[2]:
        product = make(MATMUL, (a, b), node.shape, node.sig.dtype, node.sig.stream)
        out: array = wrap(_scaled(product, alpha)) + wrap(_scaled(c, beta))
        return out
    return wrap(_addmm_node(c, a, b, alpha, beta, node.sig.stream))


ADDMM = Opaque("addmm", _addmm_vjp, _addmm_jvp, _addmm_vmap, demands=_product_demands(1))


# --- public functions ---


def _matrices(op: str, a: array, b: array) -> tuple[Node, Node, bool, bool]:
    """Both as matrices, and whether each was a vector."""
    x, y = as_array(a)._node, as_array(b)._node
    if not x.shape or not y.shape:
        raise ValueError(
            f"[{op}] Got 0 dimension input. Inputs must have at least one dimension: a is {show_shape(x.shape)}, b is {show_shape(y.shape)}; multiply by a scalar with `*`."
        )
    row, column = len(x.shape) == 1, len(y.shape) == 1
    k, rows = x.shape[-1], y.shape[0 if column else -2]
    if k != rows:
        raise ValueError(f"[{op}] inner dimensions differ: a is {show_shape(x.shape)}, b is {show_shape(y.shape)}; {k} must equal {rows}.")
    if row:
        x = reshape_node(x, (1, k), x.sig.stream)
    if column:
        y = reshape_node(y, (k, 1), y.sig.stream)
    return x, y, row, column


def inexact(op: str, dtypes: Sequence[Dtype]) -> Dtype:
    """The common dtype, floating or complex."""
    common = dtypes[0]
    for d in dtypes[1:]:
        common = promote(common, d)
    if common.rank < 2:
        names = ", ".join(d.name for d in dtypes[:-1]) + f" and {dtypes[-1].name}"
        raise ValueError(
            f"[{op}] Only inexact types are supported but {names} were provided which results in {common.name}, which is not a floating point type; convert with astype."
        )
    return common


def _without(x: Node, shape: tuple[int, ...], row: bool, column: bool, stream: Stream) -> array:
    """A product without the axes that vectors were given."""
    if not row and not column:
        return wrap(x)
    core = shape[:-2] + (() if row else shape[-2:-1]) + (() if column else shape[-1:])
    return wrap(reshape_node(x, core, stream))


def matmul(a: array, b: array, /, *, stream: StreamOrDevice = None) -> array:
    """Matrix product.

    Args:
        a: `(..., M, K)`, or `(K,)` as one row.
        b: `(..., K, N)`, or `(K,)` as one column. Leading axes broadcast.

    Returns:
        `(..., M, N)` without the axes that vectors were given; the common dtype, which is floating or complex. 16-bit
        floats are summed in float32.

    Raises:
        ValueError: the inner sizes differ, one of both has no axis, or the common dtype is an integer.

    Example:
        >>> mx.matmul(mx.array([[1.0, 2.0], [3.0, 4.0]]), mx.array([1.0, 1.0]))
        array([3, 7], dtype=float32)
    """
    s = stream_of(stream)
    x, y, row, column = _matrices("matmul", a, b)
    if x.sig.dtype is not y.sig.dtype or x.sig.dtype.rank < 2:
        dtype = inexact("matmul", (x.sig.dtype, y.sig.dtype))
        x, y = cast_node(x, dtype, s), cast_node(y, dtype, s)
    out = product_node(x, y, s)
    return _without(out, out.shape, row, column, s)


def addmm(c: array, a: array, b: array, /, alpha: float = 1.0, beta: float = 1.0, *, stream: StreamOrDevice = None) -> array:
    """`alpha * (a @ b) + beta * c`.

    Args:
        c: Broadcasts to the product.
        a: As for `matmul`.
        b: As for `matmul`.
        alpha: What the product is multiplied by.
        beta: What `c` is multiplied by.

    Returns:
        Shape and dtype as of `matmul`, with `c` among the dtypes; rounded once.

    Raises:
        ValueError: as `matmul`, or `c` does not broadcast to the product.

    Example:
        >>> mx.addmm(mx.array([1.0, 2.0]), mx.ones((2, 3)), mx.ones((3, 2)), alpha=2.0)
        array([[7, 8],
               [7, 8]], dtype=float32)
    """
    s = stream_of(stream)
    z = as_array(c)._node
    x, y, row, column = _matrices("addmm", a, b)
    dtype = inexact("addmm", (x.sig.dtype, y.sig.dtype, z.sig.dtype))
    x, y, z = cast_node(x, dtype, s), cast_node(y, dtype, s), cast_node(z, dtype, s)
    shape = (*broadcast_shape(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1])
    core = shape[:-2] + (() if row else shape[-2:-1]) + (() if column else shape[-1:])
    if broadcast_shape(z.shape, core) != core:
        raise ValueError(f"[addmm] input c must broadcast to the output shape: c is {show_shape(z.shape)}, the product {show_shape(core)}.")
    if row or column:  # c against the product's own axes, before those of the vectors are put back
        z = reshape_node(broadcast_node(z, core, s), shape, s)
    return _without(_addmm_node(z, x, y, float(alpha), float(beta), s), shape, row, column, s)


def inner(a: array, b: array, /, *, stream: StreamOrDevice = None) -> array:
    """Sum of products over the last axes; a plain product if one has no axis.

    Args:
        a: `(..., K)`.
        b: `(..., K)`.

    Returns:
        The other axes of `a`, then those of `b`.

    Raises:
        ValueError: the last sizes differ, or the common dtype is an integer.

    Example:
        >>> mx.inner(mx.array([1.0, 2.0]), mx.array([3.0, 4.0]))
        array(11, dtype=float32)
    """
    x, y = as_array(a), as_array(b)
    if not x.shape or not y.shape:
        return multiply(x, y, stream=stream)
    if x.shape[-1] != y.shape[-1]:
        raise ValueError(f"[inner] a and b must have the same last dimension: a is {show_shape(x.shape)}, b is {show_shape(y.shape)}.")
    return tensordot(x, y, ([-1], [-1]), stream=stream)


def outer(a: array, b: array, /, *, stream: StreamOrDevice = None) -> array:
    """Every product of an element of `a` with one of `b`, both flattened.

    Returns:
        `(size of a, size of b)`, of the common dtype.

    Example:
        >>> mx.outer(mx.array([1, 2]), mx.array([3, 4]))
        array([[3, 4],
               [6, 8]], dtype=int32)
    """
    s = stream_of(stream)
    x, y = as_array(a), as_array(b)
    return multiply(wrap(reshape_node(x._node, (x.size, 1), s)), wrap(reshape_node(y._node, (1, y.size), s)), stream=stream)


def tensordot(a: array, b: array, /, axes: int | Sequence[Sequence[int]] = 2, *, stream: StreamOrDevice = None) -> array:
    """Sum of products over pairs of axes.

    Args:
        a: Any shape.
        b: Any shape.
        axes: The axes of `a` and those of `b` that are summed over; or how many, the last of `a` and the first of `b`.

    Returns:
        The other axes of `a`, then those of `b`.

    Raises:
        ValueError: sizes of a pair differ, the numbers of axes differ, or the common dtype is an integer.
        IndexError: an axis is out of range.

    Example:
        >>> mx.tensordot(mx.ones((2, 3)), mx.ones((2, 3)))
        array(6, dtype=float32)
    """
    s = stream_of(stream)
    x, y = as_array(a)._node, as_array(b)._node
    if isinstance(axes, int):
        if axes < 0:
            raise ValueError(f"[tensordot] axis must be greater or equal to 0; got {axes}.")
        if axes > min(len(x.shape), len(y.shape)):
            raise ValueError(
                f"[tensordot] axis must be less than the number of dimensions of a and b: {axes} axes of {show_shape(x.shape)} and {show_shape(y.shape)}."
            )
        left: Sequence[int] = range(len(x.shape) - axes, len(x.shape))
        right: Sequence[int] = range(axes)
    else:
        if len(axes) != 2 or isinstance(axes[0], int) or isinstance(axes[1], int):
            raise TypeError(f"tensordot(): incompatible function arguments: axes must be an integer or two lists of them; got {axes!r}.")
        if len(axes[0]) != len(axes[1]):
            raise ValueError(f"[tensordot] axes must have the same size; got {len(axes[0])} for a and {len(axes[1])} for b.")
        left = [one_axis("tensordot", k, len(x.shape)) for k in axes[0]]
        right = [one_axis("tensordot", k, len(y.shape)) for k in axes[1]]
    if any(x.shape[p] != y.shape[q] for p, q in zip(left, right, strict=True)):
        raise ValueError(
            f"[tensordot] a and b must have the same shape on the contracted axes: a is {show_shape(x.shape)}, b is {show_shape(y.shape)}, axes {[*left]} and {[*right]}."
        )
    dtype = inexact("tensordot", (x.sig.dtype, y.sig.dtype))
    x, y = cast_node(x, dtype, s), cast_node(y, dtype, s)
    keep_x = [k for k in range(len(x.shape)) if k not in left]
    keep_y = [k for k in range(len(y.shape)) if k not in right]
    shape = (*(x.shape[k] for k in keep_x), *(y.shape[k] for k in keep_y))
    inner_size = math.prod(x.shape[k] for k in left)
    rows, columns = math.prod(x.shape[k] for k in keep_x), math.prod(y.shape[k] for k in keep_y)
    x = reshape_node(transpose_node(x, (*keep_x, *left), s), (rows, inner_size), s)
    # Where b is summed over its last axis its rows are read across, as a view, rather than copied.
    if right and sorted(right) == list(range(len(y.shape) - len(right), len(y.shape))) and list(right) == sorted(right):
        y = swapped(reshape_node(y, (columns, inner_size), s))
    else:
        y = reshape_node(transpose_node(y, (*right, *keep_y), s), (inner_size, columns), s)
    return wrap(reshape_node(product_node(x, y, s), shape, s))


def vecdot(a: array, b: array, /, *, axis: int = -1, stream: StreamOrDevice = None) -> array:
    """Sum of `conj(a) * b` along one axis.

    Args:
        a: Broadcasts with `b`.
        b: Broadcasts with `a`.
        axis: The axis, counted in the broadcast shape.

    Returns:
        The broadcast shape without `axis`.

    Raises:
        ValueError: one of both has no axis, or their shapes do not broadcast.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.vecdot(mx.array([[1.0, 2.0], [3.0, 4.0]]), mx.array([[1.0, 1.0], [2.0, 2.0]]))
        array([3, 14], dtype=float32)
    """
    s = stream_of(stream)
    x, y = as_array(a), as_array(b)
    if not x.shape or not y.shape:
        raise ValueError(f"[vecdot] inputs must be at least 1D; a is {show_shape(x.shape)}, b is {show_shape(y.shape)}.")
    if x.dtype is complex64:
        x = conjugate(x, stream=stream)
    both = multiply(x, y, stream=stream)
    from isthmus.ops.reduce import sum as sum_

    return sum_(both, one_axis("vecdot", axis, len(both.shape)), stream=s)


def kron(a: array, b: array, *, stream: StreamOrDevice = None) -> array:
    """Kronecker product: `b` repeated in blocks, each multiplied by an element of `a`.

    Args:
        a: Any shape; the shorter one gets axes of size 1 in front.
        b: Any shape.

    Returns:
        The sizes of `a` times those of `b`.

    Raises:
        ValueError: one is empty.

    Example:
        >>> mx.kron(mx.array([1, 2]), mx.array([1, 1]))
        array([1, 1, 2, 2], dtype=int32)
    """
    s = stream_of(stream)
    x, y = as_array(a)._node, as_array(b)._node
    if 0 in x.shape or 0 in y.shape:
        raise ValueError(f"[kron] Input arrays cannot be empty: a is {show_shape(x.shape)}, b is {show_shape(y.shape)}.")
    rank = max(len(x.shape), len(y.shape))
    p = (*[1] * (rank - len(x.shape)), *x.shape)
    q = (*[1] * (rank - len(y.shape)), *y.shape)
    left = reshape_node(x, tuple(n for size in p for n in (size, 1)), s)
    right = reshape_node(y, tuple(n for size in q for n in (1, size)), s)
    both = multiply(wrap(left), wrap(right), stream=stream)
    return wrap(reshape_node(both._node, tuple(m * n for m, n in zip(p, q, strict=True)), s))


special.call["matmul"] = lambda a, b: matmul(_operand(a, b), _operand(b, a))


def _operand(x: Any, other: Any) -> array:
    if not isinstance(x, array) and not hasattr(x, "__array__"):
        raise TypeError(f"__matmul__(): incompatible function arguments: arrays are needed; got {type(x).__name__} beside {type(other).__name__}.")
    return as_array(x)


__all__ = ["ADDMM", "MATMUL", "addmm", "inner", "kron", "matmul", "outer", "sum_node", "tensordot", "vecdot"]
