"""`vmap`: a function of one example carried over a batch.

The function is traced once, with placeholders of the shape of one example; then the nodes that depend on them are made
again with the batch axis in front. A value is not known during the trace, so a Python branch on one raises.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from isthmus.graph.array import array, node_of, wrap
from isthmus.graph.errors import AxisError
from isthmus.graph.node import TRACE, Node, make, placeholder
from isthmus.graph.tree import array_leaf, leaves, map_leaves, prefix_leaves, rebuild
from isthmus.ops.move import CONCATENATE, broadcast_node_by, reshape_node, slice_node, transpose_node
from isthmus.transforms.trace import checked_callable, order


def batched_forward(outputs: Sequence[Node], values: Sequence[array], sources: Sequence[Node]) -> list[array | None]:
    """`outputs` with a batch axis in front, from `values`, which are `sources` with one; None where there is no batch."""
    found = order(outputs, sources)
    first = len(sources)
    out: list[Any] = list(values)
    try:
        for y, above in zip(found.nodes[first:], found.inputs, strict=True):
            TRACE.code = y.code
            TRACE.lasti = y.lasti
            batched = [a >= 0 for a in above]
            args = [out[a] if a >= 0 else wrap(x) for a, x in zip(above, y.inputs, strict=True)]
            made = y.sig.op.vmap(y, args, batched)
            out.append(one_by_one(y, args, batched) if made is None else made)
    finally:
        TRACE.code = None
    return [out[at] if at >= 0 else None for at in found.outputs]


def one_by_one(y: Node, args: Sequence[array], batched: Sequence[bool]) -> array:
    """The batch form of an op that has none: the op of each example, put together."""
    size = next(a.shape[0] for a, b in zip(args, batched, strict=True) if b)
    stream, shape = y.sig.stream, (1, *y.shape)
    if not size:
        return wrap(make(y.sig.op, (), (0, *y.shape), y.sig.dtype, stream))
    parts = []
    for k in range(size):
        inputs = []
        for a, b in zip(args, batched, strict=True):
            x = node_of(a)
            if b:
                x = reshape_node(slice_node(x, (1, *[0] * (len(x.shape) - 1)), (k,), (1, *x.shape[1:]), stream), x.shape[1:], stream)
            inputs.append(x)
        parts.append(reshape_node(make(y.sig.op, tuple(inputs), y.shape, y.sig.dtype, stream, y.sig.attrs, y.dyn), shape, stream))
    return wrap(make(CONCATENATE, tuple(parts), (size, *y.shape), y.sig.dtype, stream, (0,)))


def _axis_of(axis: Any) -> int | None:
    if axis is not None and (not isinstance(axis, int) or isinstance(axis, bool)):
        raise ValueError(f"[vmap] axis must be int or None; got {axis!r}.")
    return axis


def _to_front(x: Node, axis: int) -> Node:
    perm = (axis, *(k for k in range(len(x.shape)) if k != axis))
    return transpose_node(x, perm, x.sig.stream)


def _from_front(x: Node, axis: int) -> Node:
    perm = list(range(1, len(x.shape)))
    perm.insert(axis, 0)
    return transpose_node(x, tuple(perm), x.sig.stream)


def _per_argument(in_axes: Any, args: tuple[Any, ...]) -> list[Any]:
    """`in_axes` for each argument. With one argument it may be that argument's own tree, as in MLX, or a tuple of one."""
    if isinstance(in_axes, int):
        return [in_axes] * len(args)
    if len(args) == 1:
        own = isinstance(in_axes, dict) or isinstance(args[0], (list, tuple))
        return [in_axes if own or len(in_axes) != 1 else in_axes[0]]
    if isinstance(in_axes, dict) or len(in_axes) != len(args):
        raise ValueError(f"[vmap] in_axes must be a prefix of the tree of arguments: {in_axes!r} for {len(args)} arguments.")
    return list(in_axes)


def _batch_size(xs: list[Any], axes: list[Any]) -> int:
    """The size of the mapped axes, checked."""
    sizes: list[int] = []
    for x, axis in zip(xs, axes, strict=True):
        if axis is None:
            continue
        rank = len(array_leaf(x, "an argument of a function under vmap").shape)
        if not -rank <= axis < rank:
            raise AxisError(f"[vmap] Invalid vectorization axis {axis} for array with shape {x.shape}.")
        sizes.append(x.shape[axis])
    if not sizes:
        raise ValueError("[vmap] At least one of in_axes must be non-None.")
    for size in sizes:
        if size != sizes[0]:
            raise ValueError(f"[vmap] Inconsistent axis sizes: {sizes[0]} and {size}.")
    return sizes[0]


def _placed(y: Node, given: array | None, axis: int | None, size: int) -> array:
    """An output with its batch axis at `axis`; repeated where it does not depend on the batch."""
    if axis is None:
        if given is not None:
            raise ValueError("[vmap] an output depends on the batch but its out_axes is None; give it an axis.")
        return wrap(y)
    rank = len(y.shape)
    if not -rank - 1 <= axis <= rank:
        raise AxisError(f"[vmap] Invalid output vectorization axis {axis} for array with shape {y.shape}.")
    axis %= rank + 1
    if given is None:
        shape = (*y.shape[:axis], size, *y.shape[axis:])
        return wrap(broadcast_node_by(y, tuple(-1 if k == axis else k - (k > axis) for k in range(rank + 1)), shape, y.sig.stream))
    return wrap(_from_front(node_of(given), axis))


def vmap(fun: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """A function that does for each place of an axis what `fun` does for one example.

    Args:
        fun: Takes arrays or trees of arrays and returns an array or a tree of arrays.
        in_axes: The axis of each argument that counts the examples: an integer, None (the argument is the same for
            all), or a tree of them that is a prefix of the arguments.
        out_axes: Where that axis goes in each output, likewise; None: the output does not depend on the example.

    Returns:
        The function of the whole batch; it takes positional arguments only.

    Raises:
        TypeError: `in_axes` or `out_axes` is None, or keyword arguments were passed.
        ValueError: The sizes of the axes differ, no argument has one, an argument or output is not an array, or
            `in_axes` is not a prefix of the arguments.
        IndexError: An axis is out of range.

    Example:
        >>> mx.vmap(lambda x, y: (x * y).sum(), in_axes=(0, None))(mx.ones((2, 3)), mx.arange(3))
        array([3, 3], dtype=float32)
    """
    checked_callable("vmap", fun)
    for name, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        if axes is None:
            raise TypeError(f"vmap(): incompatible function arguments: {name} must be an integer or a tree of integers and None; got None.")
        map_leaves(_axis_of, axes)

    def batched(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            raise TypeError("[vmap] Keyword arguments are not supported.")
        axes: list[Any] = []
        for arg, prefix in zip(args, _per_argument(in_axes, args), strict=True):
            axes += prefix_leaves(prefix, arg, "[vmap] in_axes")
        xs = leaves(list(args))
        size = _batch_size(xs, axes)
        handles: list[Any] = []
        sources: list[Node] = []
        values: list[array] = []
        for x, axis in zip(xs, axes, strict=True):
            if axis is None:
                handles.append(wrap(node_of(x)) if isinstance(x, array) else x)
                continue
            whole = _to_front(node_of(x), axis % len(x.shape))
            sources.append(placeholder(whole.shape[1:], whole.sig.dtype))
            values.append(wrap(whole))
            handles.append(wrap(sources[-1]))
        result = fun(*rebuild(list(args), iter(handles)))
        outs = [node_of(array_leaf(y, "the output of a function under vmap")) for y in leaves(result)]
        places = prefix_leaves(out_axes, result, "[vmap] out_axes")
        found = batched_forward(outs, values, sources)
        return rebuild(result, iter([_placed(y, given, axis, size) for y, given, axis in zip(outs, found, places, strict=True)]))

    return functools.wraps(fun, updated=())(batched)
