"""Reductions over axes.

A reduction of a transposed value is made as one of the value itself (the order of its sums then follows what is in
memory, held or not), and the reduced axes are removed; `keepdims` puts them back by a reshape.
"""

from __future__ import annotations

from isthmus.graph.array import array, cast_node, wrap
from isthmus.graph.device import Stream
from isthmus.graph.node import Node, make
from isthmus.ops.families import Reduction
from isthmus.ops.move import TRANSPOSE, broadcast_node_by, transpose_node

SUM = Reduction(
    "sum",
    "sum",
    vjp=lambda node, y, ct, wanted: [spread(node, ct)],
    jvp=lambda node, y, tangents: wrap(reduce_node(SUM, tangents[0]._node, node.sig.attrs[0], node.sig.dtype, node.sig.stream)),
)


def spread(node: Node, y: array) -> array:
    """A reduction's output, repeated over the axes it folded."""
    x = node.inputs[0]
    kept = [k for k in range(len(x.shape)) if k not in node.sig.attrs[0]]
    axes = tuple(kept.index(k) if k in kept else -1 for k in range(len(x.shape)))
    return wrap(broadcast_node_by(y._node, axes, x.shape, node.sig.stream))


def reduce_node(op: Reduction, x: Node, axes: tuple[int, ...], dtype: object, stream: Stream) -> Node:
    """`op` of `x` over `axes` (ascending, not empty)."""
    if x.sig.op is TRANSPOSE:
        perm = x.sig.attrs[0]
        base = x.inputs[0]
        folded = tuple(sorted(perm[a] for a in axes))
        out = reduce_node(op, base, folded, dtype, stream)
        kept_base = [k for k in range(len(perm)) if k not in folded]
        wanted = [perm[k] for k in range(len(perm)) if k not in axes]
        return transpose_node(out, tuple(kept_base.index(k) for k in wanted), stream)
    shape = tuple(n for k, n in enumerate(x.shape) if k not in axes)
    return make(op, (x,), shape, dtype, stream, (axes,))


def sum_node(x: Node, axes: tuple[int, ...], stream: Stream) -> Node:
    """Sum over `axes`, in float32 for the 16-bit floats, rounded once."""
    axes = tuple(sorted(axes))
    if not axes:
        return x
    dtype = x.sig.dtype
    if dtype.name in ("float16", "bfloat16"):
        from isthmus.graph.dtype import float32

        return cast_node(reduce_node(SUM, cast_node(x, float32, stream), axes, float32, stream), dtype, stream)
    return reduce_node(SUM, x, axes, dtype, stream)
