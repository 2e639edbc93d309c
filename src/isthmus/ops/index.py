"""Reading and writing at indices.

GATHER, TAKE_ALONG_AXIS and DYNAMIC_SLICE read at computed places; SCATTER, SCATTER_ALONG_AXIS, SLICE_UPDATE and
DYNAMIC_SLICE_UPDATE write into a copy of their first input (or into it, where nobody else can see). `x[key]` is a slice
of what the key slices, then a gather of the axes that it has index arrays for; assignment goes the same way back. An
index array's values wrap once if negative and are then held inside the axis; `isthmus.checked()` refuses others.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from isthmus.graph.array import array, broadcast_node, broadcast_shape, cast_node, set_node, show_shape, special, wrap
from isthmus.graph.device import Stream, defaults
from isthmus.graph.dtype import Dtype, bfloat16, bool_, float16, float32, int32, int64
from isthmus.graph.node import Node, make, size_of
from isthmus.kernel import scalar as s
from isthmus.kernel.place import value_form
from isthmus.ops.arguments import StreamOrDevice, as_array, as_int, number_as, one_axis, stream_of
from isthmus.ops.convert import host_view
from isthmus.ops.create import const_node, full_node, iota_node, zeros_node
from isthmus.ops.elementwise import divide, equal, logical_and, maximum, minimum, where
from isthmus.ops.families import Demand, Move, Place, Update
from isthmus.ops.move import SLICE, broadcast_node_by, reshape_node, slice_node, transpose_node

Indices = Sequence[Node]


def _inside(ctx: Any, node: Any, k: int, place: Place, axis: int) -> s.Expr:
    """Index input `k` at `place` as an int64 within axis `axis` of input 0: negative ones count from the end."""
    at = s.cast(ctx.read(node, k, place), int64)
    size, zero = ctx.size(node.inputs[0].sizes[axis]), s.index_const(0)
    dtype = node.inputs[k].dtype
    if dtype.category == "signed":
        at = s.select(s.lt(at, zero), s.add(at, size), at)
    if dtype.category == "signed" or dtype.size == 8:
        at = s.max_(at, zero)
    return s.min_(at, s.sub(size, s.index_const(1)))


def _one(dtype: Dtype) -> Any:
    return 1.0 if dtype.rank == 2 else 1


def _front(x: Node, at: int, count: int, stream: Stream) -> Node:
    """Axes `at` to `at + count` moved to the front."""
    n = len(x.shape)
    return transpose_node(x, (*range(at, at + count), *range(at), *range(at + count, n)), stream)


def _zeros_of(x: Node, stream: Stream) -> array:
    return wrap(zeros_node(x.shape, x.sig.dtype, stream))


def _repeated(a: array, batched: bool, n: int) -> array:
    """`a` with a batch axis of size `n` in front."""
    return a if batched else wrap(broadcast_node(a._node, (n, *a.shape), a._node.sig.stream))


def _batch_size(args: Sequence[array], batched: Sequence[bool]) -> int:
    return next(a.shape[0] for a, b in zip(args, batched, strict=True) if b)


def _over_batch(args: Sequence[array], batched: Sequence[bool], axes: tuple[int, ...], n: int, counts: bool) -> tuple[list[Node], tuple[int, ...]]:
    """Index arrays with the batch axis in front; with `counts`, one more that counts the batch, for axis 0."""
    indices = [_repeated(a, b, n)._node for a, b in zip(args, batched, strict=True)]
    if not counts:
        return indices, axes
    shape = indices[0].shape
    stream = indices[0].sig.stream
    count = broadcast_node_by(iota_node(n, 0, 1, int32, stream), (0, *[-1] * (len(shape) - 1)), shape, stream)
    return [count, *indices], (0, *(a + 1 for a in axes))


# --- gather: inputs x, then an index array for each of `axes`, all of one shape; attrs (axes, at): the index axes stand at
#     `at` in the output, among the other axes of x ---


def _gather_lower(ctx: Any, node: Any, place: Place) -> s.Expr:
    axes, at = node.attrs
    rank = node.inputs[1].rank
    rest = iter((*place[:at], *place[at + rank :]))
    own = place[at : at + rank]
    source = [value_form(_inside(ctx, node, 1 + axes.index(a), own, a)) if a in axes else next(rest) for a in range(node.inputs[0].rank)]
    out: s.Expr = ctx.read(node, 0, tuple(source))
    return out


def _gather_vjp(node: Node, y: array, ct: array, wanted: Sequence[bool]) -> list[array | None]:
    none: list[array | None] = [None] * len(node.inputs)
    if not wanted[0]:
        return none
    x, *indices = node.inputs
    axes, at = node.sig.attrs
    stream = node.sig.stream
    update = _front(ct._node, at, len(indices[0].shape), stream)
    none[0] = wrap(scatter_node(zeros_node(x.shape, ct.dtype, stream), update, indices, axes, "add", stream))
    return none


def _gather_jvp(node: Node, y: array, tangents: Sequence[array | None]) -> array | None:
    axes, at = node.sig.attrs
    return None if tangents[0] is None else wrap(gather_node(tangents[0]._node, node.inputs[1:], axes, at, node.sig.stream))


def _gather_vmap(node: Node, args: Sequence[array], batched: Sequence[bool]) -> array:
    axes, at = node.sig.attrs
    stream = node.sig.stream
    x = args[0]._node
    if not any(batched[1:]):
        return wrap(gather_node(x, [a._node for a in args[1:]], tuple(a + 1 for a in axes), at + 1, stream))
    n = _batch_size(args, batched)
    indices, axes = _over_batch(args[1:], batched[1:], axes, n, batched[0])
    return wrap(_front(gather_node(x, indices, axes, at, stream), at, 1, stream))


def _gather_demands(node: Any) -> list[Demand]:
    axes, at = node.attrs
    rank = node.inputs[1].rank
    rest = [a for a in range(node.inputs[0].rank) if a not in axes]
    out: list[Demand] = [([(k, a)], [at + a]) for k in range(1, len(node.inputs)) for a in range(rank)]
    return out + [([(0, a)], [p if p < at else p + rank]) for p, a in enumerate(rest)]


GATHER = Move(
    "gather",
    _gather_lower,
    _gather_vjp,
    _gather_jvp,
    _gather_vmap,
    demands=_gather_demands,
    aligned=lambda node, k: None if k == 0 else tuple(range(node.attrs[1], node.attrs[1] + node.inputs[1].rank)),
    weight=2,
)


def gather_node(x: Node, indices: Indices, axes: tuple[int, ...], at: int, stream: Stream) -> Node:
    """`x` at `indices` along `axes`; the indices' axes stand at `at`."""
    own = indices[0].shape
    rest = [n for a, n in enumerate(x.shape) if a not in axes]
    shape = (*rest[:at], *own, *rest[at:])
    if 0 not in shape and 0 in x.shape:
        raise ValueError(f"[gather] Cannot do a non-empty take from an empty axis: x is {show_shape(x.shape)}, the indices {show_shape(own)}.")
    return make(GATHER, (x, *indices), shape, x.sig.dtype, stream, (axes, at))


# --- take_along_axis: inputs x and an index array of its rank, equal to it but along `axis`; attrs (axis,) ---


def _along(ctx: Any, node: Any, k: int, place: Place) -> Place:
    axis = node.attrs[0]
    return (*place[:axis], value_form(_inside(ctx, node, k, place, axis)), *place[axis + 1 :])


def _take_along_vjp(node: Node, y: array, ct: array, wanted: Sequence[bool]) -> list[array | None]:
    if not wanted[0]:
        return [None, None]
    x, index = node.inputs
    axis, stream = node.sig.attrs[0], node.sig.stream
    if index.shape[axis] != 1:
        return [wrap(scatter_along_node(zeros_node(x.shape, ct.dtype, stream), ct._node, index, axis, "add", stream)), None]
    # One index a row: a comparison, which stays in the kernel of the rows, where a scatter would end it.
    n = x.shape[axis]
    counted = iota_node(n, 0, 1, int32 if n < 2**31 else int64, stream)
    at = wrap(cast_node(index, counted.sig.dtype, stream))
    if index.sig.dtype.category == "signed":
        at = where(at < 0, at + n, at)
    axes = tuple(0 if a == axis else -1 for a in range(len(x.shape)))
    here = equal(wrap(broadcast_node_by(counted, axes, x.shape, stream)), at)
    return [where(here, ct, 0), None]


def _take_along_jvp(node: Node, y: array, tangents: Sequence[array | None]) -> array | None:
    return None if tangents[0] is None else wrap(take_along_node(tangents[0]._node, node.inputs[1], node.sig.attrs[0], node.sig.stream))


def _take_along_vmap(node: Node, args: Sequence[array], batched: Sequence[bool]) -> array:
    n = _batch_size(args, batched)
    x, index = (_repeated(a, b, n)._node for a, b in zip(args, batched, strict=True))
    return wrap(take_along_node(x, index, node.sig.attrs[0] + 1, node.sig.stream))


TAKE_ALONG_AXIS = Move(
    "take_along_axis",
    lambda ctx, node, place: ctx.read(node, 0, _along(ctx, node, 1, place)),
    _take_along_vjp,
    _take_along_jvp,
    _take_along_vmap,
    demands=lambda node: [([(1, a)], [a]) for a in range(node.rank)] + [([(0, a)], [a]) for a in range(node.rank) if a != node.attrs[0]],
    aligned=lambda node, k: None if k == 0 else tuple(range(node.rank)),
    weight=2,
)


def take_along_node(x: Node, index: Node, axis: int, stream: Stream) -> Node:
    return make(TAKE_ALONG_AXIS, (x, index), index.shape, x.sig.dtype, stream, (axis,))


# --- scatter: inputs x, the update, then an index array for each of `axes`; attrs (axes, mode). The update has the index
#     axes in front and then the other axes of x. scatter_along_axis: inputs x, update, index; attrs (axis, mode) ---


def _scatter_write(ctx: Any, node: Any, place: Place) -> tuple[Place, None]:
    axes = node.attrs[0]
    rank = node.inputs[2].rank
    own, rest = place[:rank], iter(place[rank:])
    return tuple(value_form(_inside(ctx, node, 2 + axes.index(a), own, a)) if a in axes else next(rest) for a in range(node.rank)), None


def _mode(node: Any) -> str | None:
    mode: str | None = node.attrs[1]
    return mode


class _Written:
    """The rules of both scatters, in terms of reading and writing at a node's places."""

    def read(self, node: Node, x: Node) -> array:
        """`x`, of input 0's shape, where the update goes."""
        axes = node.sig.attrs[0]
        if node.sig.op is SCATTER:
            return wrap(gather_node(x, node.inputs[2:], axes, 0, node.sig.stream))
        return wrap(take_along_node(x, node.inputs[2], axes, node.sig.stream))

    def write(self, node: Node, x: Node, update: Node, mode: str | None) -> array:
        axes = node.sig.attrs[0]
        if node.sig.op is SCATTER:
            return wrap(scatter_node(x, update, node.inputs[2:], axes, mode, node.sig.stream))
        return wrap(scatter_along_node(x, update, node.inputs[2], axes, mode, node.sig.stream))

    def partials(self, node: Node, y: array) -> tuple[array, array]:
        """The derivatives of y, at each place by x there, and for each element of the update."""
        x, update, *_ = node.inputs
        dtype, stream = x.sig.dtype, node.sig.stream
        zeros = zeros_node(x.shape, dtype, stream)
        u = wrap(update)
        if node.sig.attrs[1] == "mul":
            # y / u, but where u is 0: there the product of the others, if it is the only zero.
            is_zero = u == 0
            zeros_here = self.write(node, zeros, cast_node(is_zero._node, dtype, stream), "add")
            nonzero = where(is_zero, 1, u)
            by_x = self.write(node, full_node(x.shape, _one(dtype), dtype, stream), update, "mul")
            others = self.write(node, x, nonzero._node, "mul")
            none, one = self.read(node, (zeros_here == 0)._node), self.read(node, (zeros_here == 1)._node)
            others_here = self.read(node, others._node)
            return by_x, where(none, others_here / nonzero, where(logical_and(one, is_zero), others_here, 0))
        # max, min: to x where it stayed, else shared by the elements that won.
        stayed = equal(y, wrap(x))
        won = logical_and(equal(u, self.read(node, y._node)), equal(self.read(node, stayed._node), False))
        count = self.write(node, zeros, cast_node(won._node, dtype, stream), "add")
        here = self.read(node, count._node)
        return where(stayed, wrap(full_node((), _one(dtype), dtype, stream)), 0), where(won, 1 / maximum(here, 1), 0)

    def vjp(self, node: Node, y: array, ct: array, wanted: Sequence[bool]) -> list[array | None]:
        out: list[array | None] = [None] * len(node.inputs)
        mode, update = node.sig.attrs[1], node.inputs[1]
        if mode is None or mode == "add":
            if wanted[0]:
                out[0] = ct if mode == "add" else self.write(node, ct._node, zeros_node(update.shape, ct.dtype, node.sig.stream), None)
            if wanted[1]:
                out[1] = self.read(node, ct._node)
            return out
        by_x, by_update = self.partials(node, y)
        if wanted[0]:
            out[0] = ct * by_x
        if wanted[1]:
            out[1] = self.read(node, ct._node) * by_update
        return out

    def jvp(self, node: Node, y: array, tangents: Sequence[array | None]) -> array | None:
        tx, tu = tangents[0], tangents[1]
        if tx is None and tu is None:
            return None
        mode, (x, update, *_), stream = node.sig.attrs[1], node.inputs, node.sig.stream
        if mode == "add" and tu is None:
            return tx
        if tx is None:
            tx = _zeros_of(x, stream)
        if tu is None:
            tu = _zeros_of(update, stream)
        if mode is None or mode == "add":
            return self.write(node, tx._node, tu._node, mode)
        by_x, by_update = self.partials(node, y)
        return self.write(node, (tx * by_x)._node, (tu * by_update)._node, "add")


_written = _Written()


def _scatter_vmap(node: Node, args: Sequence[array], batched: Sequence[bool]) -> array:
    axes, mode = node.sig.attrs
    stream = node.sig.stream
    n = _batch_size(args, batched)
    rank = len(node.inputs[2].shape)
    x, update = _repeated(args[0], batched[0], n)._node, _repeated(args[1], batched[1], n)._node
    if not any(batched[2:]):
        front = transpose_node(update, (*range(1, rank + 1), 0, *range(rank + 1, len(update.shape))), stream)
        return wrap(scatter_node(x, front, [a._node for a in args[2:]], tuple(a + 1 for a in axes), mode, stream))
    indices, axes = _over_batch(args[2:], batched[2:], axes, n, True)
    return wrap(scatter_node(x, update, indices, axes, mode, stream))


def _scatter_along_vmap(node: Node, args: Sequence[array], batched: Sequence[bool]) -> array:
    n = _batch_size(args, batched)
    x, update, index = (_repeated(a, b, n)._node for a, b in zip(args, batched, strict=True))
    axis, mode = node.sig.attrs
    return wrap(scatter_along_node(x, update, index, axis + 1, mode, node.sig.stream))


def _scatter_demands(node: Any) -> list[Demand]:
    axes, rank = node.attrs[0], node.inputs[2].rank
    rest = [a for a in range(node.rank) if a not in axes]
    out: list[Demand] = [([(1, a), (k, a)], []) for k in range(2, len(node.inputs)) for a in range(rank)]
    return out + [([(1, rank + p)], [a]) for p, a in enumerate(rest)]


SCATTER = Update("scatter", _mode, _scatter_write, True, _written.vjp, _written.jvp, _scatter_vmap, demands=_scatter_demands)
SCATTER_ALONG_AXIS = Update(
    "scatter_along_axis",
    _mode,
    lambda ctx, node, place: (_along(ctx, node, 2, place), None),
    True,
    _written.vjp,
    _written.jvp,
    _scatter_along_vmap,
    demands=lambda node: [([(1, a), (2, a)], []) for a in range(node.rank)] + [([(1, a)], [a]) for a in range(node.rank) if a != node.attrs[0]],
)


def _update_node(op: Update, x: Node, update: Node, indices: Indices, axes: Any, mode: str | None, stream: Stream) -> Node:
    dtype = x.sig.dtype
    if 0 in update.shape or 0 in x.shape:
        if 0 in x.shape and 0 not in update.shape:
            raise ValueError(f"[{op.name}] Cannot write {show_shape(update.shape)} elements into an empty axis: x is {show_shape(x.shape)}.")
        return x
    if dtype is bool_ and mode in ("add", "mul"):
        mode = "max" if mode == "add" else "min"
    if mode in ("add", "mul") and (dtype is float16 or dtype is bfloat16):
        wide = _update_node(op, cast_node(x, float32, stream), cast_node(update, float32, stream), indices, axes, mode, stream)
        return cast_node(wide, dtype, stream)
    return make(op, (x, update, *indices), x.shape, dtype, stream, (axes, mode))


def scatter_node(x: Node, update: Node, indices: Indices, axes: tuple[int, ...], mode: str | None, stream: Stream) -> Node:
    """`x` with `update` (index axes, then the others) joined in by `mode`; 16-bit sums and products round once."""
    return _update_node(SCATTER, x, update, indices, axes, mode, stream)


def scatter_along_node(x: Node, update: Node, index: Node, axis: int, mode: str | None, stream: Stream) -> Node:
    return _update_node(SCATTER_ALONG_AXIS, x, update, (index,), axis, mode, stream)


# --- slice update: inputs x and the update; attrs and dyn as slice's ---


def _slice_update_vjp(node: Node, y: array, ct: array, wanted: Sequence[bool]) -> list[array | None]:
    update, stream = node.inputs[1], node.sig.stream
    codes = node.sig.attrs[0]
    return [
        wrap(slice_update_node(ct._node, zeros_node(update.shape, ct.dtype, stream), codes, node.dyn, stream)) if wanted[0] else None,
        wrap(slice_node(ct._node, codes, node.dyn, update.shape, stream)) if wanted[1] else None,
    ]


def _slice_update_jvp(node: Node, y: array, tangents: Sequence[array | None]) -> array | None:
    if tangents[0] is None and tangents[1] is None:
        return None
    stream = node.sig.stream
    tx, tu = (_zeros_of(x, stream) if t is None else t for x, t in zip(node.inputs, tangents, strict=True))
    return wrap(slice_update_node(tx._node, tu._node, node.sig.attrs[0], node.dyn, stream))


def _slice_update_vmap(node: Node, args: Sequence[array], batched: Sequence[bool]) -> array:
    n = _batch_size(args, batched)
    x, update = (_repeated(a, b, n)._node for a, b in zip(args, batched, strict=True))
    return wrap(slice_update_node(x, update, (0, *node.sig.attrs[0]), node.dyn, node.sig.stream))


SLICE_UPDATE = Update(
    "slice_update",
    lambda node: None,
    lambda ctx, node, place: (SLICE.read_at(ctx, node, place), None),
    False,
    _slice_update_vjp,
    _slice_update_jvp,
    _slice_update_vmap,
    demands=lambda node: [([(1, a)], [a]) for a, code in enumerate(node.attrs[0]) if code == 0],
)


def slice_update_node(x: Node, update: Node, codes: tuple[int, ...], dyn: tuple[int, ...], stream: Stream) -> Node:
    """`x` with `update` where a slice of `codes` and `dyn` would read."""
    if 0 in update.shape:
        return x
    return update if not any(codes) else make(SLICE_UPDATE, (x, update), x.shape, x.sig.dtype, stream, (codes,), dyn)


# --- slices that begin where an array says: inputs x, (update,) starts (k,); attrs (axes,) ---


def _start(ctx: Any, node: Any, k: int, number: int, axis: int, size: Any) -> s.Expr:
    """The start of axis `axis`: held so that `size` elements follow."""
    at = s.cast(ctx.read(node, k, (value_form(s.index_const(number)),)), int64)
    last = s.sub(ctx.size(node.inputs[0].sizes[axis]), ctx.size(size))
    zero = s.index_const(0)
    at = s.select(s.lt(at, zero), s.add(at, ctx.size(node.inputs[0].sizes[axis])), at)
    return s.max_(s.min_(at, last), zero)


def _dynamic_place(ctx: Any, node: Any, k: int, place: Place, sizes: Any) -> Place:
    out = list(place)
    for number, axis in enumerate(node.attrs[0]):
        out[axis] = out[axis] + value_form(_start(ctx, node, k, number, axis, sizes[axis]))
    return tuple(out)


def _dynamic_again(node: Node, x: Node, starts: Node, axes: tuple[int, ...], shape: tuple[int, ...]) -> array:
    return wrap(make(DYNAMIC_SLICE, (x, starts), shape, x.sig.dtype, node.sig.stream, (axes,)))


def _dynamic_slice_vjp(node: Node, y: array, ct: array, wanted: Sequence[bool]) -> list[array | None]:
    if not wanted[0]:
        return [None, None]
    x, starts = node.inputs
    zeros = zeros_node(x.shape, ct.dtype, node.sig.stream)
    return [wrap(make(DYNAMIC_SLICE_UPDATE, (zeros, ct._node, starts), x.shape, ct.dtype, node.sig.stream, node.sig.attrs)), None]


def _dynamic_slice_jvp(node: Node, y: array, tangents: Sequence[array | None]) -> array | None:
    t = tangents[0]
    return None if t is None else _dynamic_again(node, t._node, node.inputs[1], node.sig.attrs[0], node.shape)


def _dynamic_slice_vmap(node: Node, args: Sequence[array], batched: Sequence[bool]) -> array | None:
    if batched[1]:
        return None  # a start of its own for each: one by one
    x, starts = args[0]._node, args[1]._node
    return _dynamic_again(node, x, starts, tuple(a + 1 for a in node.sig.attrs[0]), (x.shape[0], *node.shape))


DYNAMIC_SLICE: Move = Move(
    "dynamic_slice",
    lambda ctx, node, place: ctx.read(node, 0, _dynamic_place(ctx, node, 1, place, node.sizes)),
    _dynamic_slice_vjp,
    _dynamic_slice_jvp,
    _dynamic_slice_vmap,
    new_sizes=True,
    weight=2,
)


def _dynamic_update_again(node: Node, x: Node, update: Node) -> array:
    return wrap(make(DYNAMIC_SLICE_UPDATE, (x, update, node.inputs[2]), node.shape, x.sig.dtype, node.sig.stream, node.sig.attrs))


def _dynamic_update_vjp(node: Node, y: array, ct: array, wanted: Sequence[bool]) -> list[array | None]:
    _, update, starts = node.inputs
    return [
        _dynamic_update_again(node, ct._node, zeros_node(update.shape, ct.dtype, node.sig.stream)) if wanted[0] else None,
        _dynamic_again(node, ct._node, starts, node.sig.attrs[0], update.shape) if wanted[1] else None,
        None,
    ]


def _dynamic_update_jvp(node: Node, y: array, tangents: Sequence[array | None]) -> array | None:
    if tangents[0] is None and tangents[1] is None:
        return None
    tx, tu = (_zeros_of(x, node.sig.stream) if t is None else t for x, t in zip(node.inputs[:2], tangents[:2], strict=True))
    return _dynamic_update_again(node, tx._node, tu._node)


def _dynamic_update_vmap(node: Node, args: Sequence[array], batched: Sequence[bool]) -> array | None:
    if batched[2]:
        return None
    n = _batch_size(args, batched)
    x, update = (_repeated(a, b, n)._node for a, b in zip(args[:2], batched[:2], strict=True))
    axes = tuple(a + 1 for a in node.sig.attrs[0])
    return wrap(make(DYNAMIC_SLICE_UPDATE, (x, update, args[2]._node), x.shape, x.sig.dtype, node.sig.stream, (axes,)))


DYNAMIC_SLICE_UPDATE = Update(
    "dynamic_slice_update",
    lambda node: None,
    lambda ctx, node, place: (_dynamic_place(ctx, node, 2, place, node.inputs[1].sizes), None),
    False,
    _dynamic_update_vjp,
    _dynamic_update_jvp,
    _dynamic_update_vmap,
)


GATHER.indexed = lambda node: [(1 + k, axis) for k, axis in enumerate(node.sig.attrs[0])]
TAKE_ALONG_AXIS.indexed = lambda node: [(1, node.sig.attrs[0])]
SCATTER.indexed = lambda node: [(2 + k, axis) for k, axis in enumerate(node.sig.attrs[0])]
SCATTER_ALONG_AXIS.indexed = lambda node: [(2, node.sig.attrs[0])]

# --- keys: what x[key] means ---

_CHECKED_SIZE = 64  # index arrays in host memory of at most so many elements are checked when they are used


class Key:
    """A key taken apart.

    Attributes:
        codes, dyn: The slice it takes of x, as SLICE's; integers are slices of one element.
        sliced: The shape of that slice.
        kept: That shape without the axes of integers.
        indices, axes: Index arrays (of one shape) and the axes of `kept` that they belong to.
        at: Where their axes stand among the others of `kept`.
        shape: The shape of x[key].
    """

    __slots__ = ("at", "axes", "codes", "dyn", "indices", "kept", "shape", "sliced")

    def __init__(self, x: Node, key: Any) -> None:
        entries = _entries(x, key if isinstance(key, tuple) else (key,))
        codes: list[int] = []
        dyn: list[int] = []
        sliced: list[int] = []
        kept: list[int] = []
        indices: list[Node] = []
        axes: list[int] = []
        shape: list[int] = []
        places: list[int] = []  # of integers and index arrays among the entries
        at_shape = at_kept = -1
        own: tuple[int, ...] = ()
        for place, entry in enumerate(entries):
            if entry is None:
                shape.append(1)
                continue
            axis = len(codes)
            n = x.shape[axis]
            if isinstance(entry, slice):
                size = _slice_axis(entry, n, codes, dyn)
                sliced.append(size)
                kept.append(size)
                shape.append(size)
                continue
            places.append(place)
            if at_shape < 0:
                at_shape, at_kept = len(shape), len(kept) - len(axes)
            if isinstance(entry, int):
                if not -n <= entry < n:
                    raise IndexError(f"[index] {entry} is out of range for axis {axis} of an array of shape {show_shape(x.shape)}; it has {n} elements.")
                codes.append(1)
                dyn.append(entry + n if entry < 0 else entry)
                sliced.append(1)
                continue
            codes.append(0)
            sliced.append(n)
            own = broadcast_shape(own, entry.shape)
            indices.append(entry)
            axes.append(len(kept))
            kept.append(n)
            _check(entry, n, axis, x)
        self.codes, self.dyn = tuple(codes), tuple(dyn)
        self.sliced, self.kept = tuple(sliced), tuple(kept)
        self.indices = [broadcast_node(i, own, i.sig.stream) for i in indices]
        self.axes = tuple(axes)
        if indices:
            # NumPy's rule: side by side, their axes stay where the first was; apart, they come first.
            if places[-1] - places[0] + 1 != len(places):
                at_shape = at_kept = 0
            shape[at_shape:at_shape] = own
        self.at = at_kept
        self.shape = tuple(shape)

    def view(self, x: Node, stream: Stream) -> Node:
        """The slice of `x`, without the axes of integers."""
        return reshape_node(slice_node(x, self.codes, self.dyn, self.sliced, stream), self.kept, stream)

    def read(self, x: Node, stream: Stream) -> Node:
        """`x[key]`."""
        out = self.view(x, stream)
        if self.indices:
            out = gather_node(out, self.indices, self.axes, self.at, stream)
        return reshape_node(out, self.shape, stream)

    def write(self, x: Node, value: Node, mode: str | None, stream: Stream) -> Node:
        """`x` with `value`, of the shape of `x[key]`, joined in; with index arrays, by `mode`."""
        if self.indices:
            own = self.indices[0].shape
            rest = [n for a, n in enumerate(self.kept) if a not in self.axes]
            value = reshape_node(value, (*rest[: self.at], *own, *rest[self.at :]), stream)
            value = scatter_node(self.view(x, stream), _front(value, self.at, len(own), stream), self.indices, self.axes, mode, stream)
        return slice_update_node(x, reshape_node(value, self.sliced, stream), self.codes, self.dyn, stream)


def _slice_axis(key: slice, n: int, codes: list[int], dyn: list[int]) -> int:
    """Adds an axis' code and numbers; its size."""
    start, stop, step = key.start, key.stop, key.step
    if start is None and stop is None and (step is None or step == 1):
        codes.append(0)
        return n
    for bound in (start, stop, step):
        if bound is not None and (isinstance(bound, array) or not hasattr(bound, "__index__")):
            raise ValueError(f"[slice] Slice indices must be integers or None; got {type(bound).__name__}; mx.slice takes a start that is an array.")
    if step is not None and operator.index(step) == 0:
        raise ValueError("[slice] the step must not be 0.")
    first, last, by = key.indices(n)
    size = len(range(first, last, by))
    codes.append(1 if by == 1 else 2 if by == -1 else 3)
    dyn.append(first)
    if codes[-1] == 3:
        dyn.append(by)
    return size


def _entries(x: Node, key: tuple[Any, ...]) -> list[Any]:
    """One entry an axis (integer, slice or index array) and None for each new axis; masks as the indices of what is true."""
    out: list[Any] = []
    used, ellipsis = 0, -1
    for k in key:
        if k is None:
            out.append(None)
        elif k is Ellipsis:
            if ellipsis >= 0:
                raise ValueError("An index can only have a single ellipsis (...).")
            ellipsis = len(out)
        elif isinstance(k, slice):
            out.append(k)
            used += 1
        elif isinstance(k, (bool, float, complex, str, bytes)):
            raise ValueError(f"Cannot index mlx array using the given type: {type(k).__name__}; integers, slices, None, ... and arrays of integers can.")
        elif type(k) is int:
            out.append(k)
            used += 1
        elif isinstance(k, (array, list, tuple, np.ndarray)):
            index = _index_array(k)
            if index.sig.dtype is bool_:
                out += [i._node for i in _nonzero(x, index, used if ellipsis < 0 else None)]
                used += len(index.shape)
            else:
                out.append(index)
                used += 1
        elif hasattr(k, "__index__"):
            out.append(operator.index(k))
            used += 1
        else:
            raise ValueError(f"Cannot index mlx array using the given type: {type(k).__name__}; integers, slices, None, ... and arrays of integers can.")
    rank = len(x.shape)
    if used > rank:
        raise ValueError(f"Too many indices for array with {rank} dimensions: {used} were given.")
    whole = [slice(None)] * (rank - used)
    if ellipsis < 0:
        return out + whole
    return out[:ellipsis] + whole + out[ellipsis:]


def _index_array(k: Any) -> Node:
    """An index array: integers, or booleans."""
    if isinstance(k, (list, tuple)) and not len(k):
        return zeros_node((0,), int32, defaults.stream)
    node = array(k)._node if isinstance(k, (list, tuple)) else as_array(k)._node
    dtype = node.sig.dtype
    if dtype.rank > 1:
        raise ValueError(f"[gather] Got indices with invalid dtype. Indices must be integral; got {dtype.name}.")
    return node


def _known(node: Node) -> list[int] | None:
    """The values of a small index array that lies in host memory."""
    n = size_of(node.shape)
    if node.buffer is None or not node.buffer.ptr or not 0 < n <= _CHECKED_SIZE:
        return None
    values: list[int] = host_view(node).ravel().tolist()
    return values


def _check(index: Node, n: int, axis: int, x: Node) -> None:
    """Refuses indices that are known to be out of range."""
    values = _known(index)
    if values is None or n == 0:
        return
    for value in (min(values), max(values)):
        if not -n <= value < n:
            raise IndexError(f"[gather] index {value} is out of range for axis {axis} of an array of shape {show_shape(x.shape)}; it has {n} elements.")


def _host(a: array) -> Any:
    """The values of an array, as a NumPy array: evaluates."""
    return special.call["to_numpy"](a, None, None)


def _check_mask(mask: Node, shape: tuple[int, ...]) -> None:
    if mask.shape != shape[: len(mask.shape)]:
        raise ValueError(
            f"[index] The boolean mask should have the same shape as the beginning of the indexed array but the mask has shape {show_shape(mask.shape)} and the array has shape {show_shape(shape)}."
        )


def _nonzero(x: Node, mask: Node, axis: int | None) -> list[array]:
    """Where a mask is true, an index array an axis: how many depends on the values, so this evaluates."""
    if axis is not None:
        _check_mask(mask, x.shape[axis:])
    return [as_array(i.astype(np.int32 if mask.shape[k] < 2**31 else np.int64)) for k, i in enumerate(np.nonzero(_host(wrap(mask))))]


def _mask_of(x: Node, key: Any) -> array | None:
    """The mask, if a key is one boolean array (and not a single boolean)."""
    if isinstance(key, (list, np.ndarray)):
        key = array(key)
    if isinstance(key, array) and key.dtype is bool_:
        _check_mask(key._node, x.shape)
        return key
    return None


def _spread_mask(mask: array, x: Node) -> array:
    """A mask of the leading axes, with the others after it."""
    return wrap(reshape_node(mask._node, (*mask.shape, *[1] * (len(x.shape) - len(mask.shape))), x.sig.stream))


def getitem(x: array, key: Any) -> array:
    """`x[key]`: a copy of what the key says, by NumPy's rules."""
    node, stream = x._node, defaults.stream
    if type(key) is int and node.shape:
        n = node.shape[0]
        if not -n <= key < n:
            raise IndexError(f"[index] {key} is out of range for axis 0 of an array of shape {show_shape(node.shape)}; it has {n} elements.")
        codes = (1, *[0] * (len(node.shape) - 1))
        one = slice_node(node, codes, (key + n if key < 0 else key,), (1, *node.shape[1:]), stream)
        return wrap(reshape_node(one, node.shape[1:], stream))
    return wrap(Key(node, key).read(node, stream))


def setitem(x: array, key: Any, value: Any) -> None:
    """`x[key] = value`: gives `x` a new node, which all its names see. Among equal indices any one may win."""
    node, stream = x._node, defaults.stream
    if isinstance(key, bool):
        if not key:
            return
        key = ()
    mask = _mask_of(node, key)
    if mask is not None and _fits_mask(value):
        set_node(x, where(_spread_mask(mask, node), wrap(_value(value, node.sig.dtype, (), stream)), x)._node)
        return
    parsed = Key(node, key)
    set_node(x, parsed.write(node, _value(value, node.sig.dtype, parsed.shape, stream, mask is not None), None, stream))


def _fits_mask(value: Any) -> bool:
    """Whether a value under a mask is a single one."""
    return not isinstance(value, (array, list, tuple, np.ndarray)) or (isinstance(value, array) and value.size == 1)


def _value(value: Any, dtype: Dtype, shape: tuple[int, ...], stream: Stream, by_mask: bool = False) -> Node:
    """An assigned value in a dtype and shape."""
    if isinstance(value, (bool, int, float, complex)):
        node = const_node(number_as("index", value, dtype), dtype, stream)
    else:
        if value is None:
            raise TypeError("__setitem__(): incompatible function arguments: None cannot be assigned; a number or an array can.")
        if isinstance(value, (str, bytes)):
            raise ValueError(f"Invalid type {type(value).__name__} received in array initialization.")
        node = cast_node(as_array(value)._node, dtype, stream)
    if node.shape == shape:
        return node
    gap = len(node.shape) - len(shape)
    if gap > 0 and all(n == 1 for n in node.shape[:gap]):
        node = reshape_node(node, node.shape[gap:], stream)
    fits = len(node.shape) <= len(shape) and all(m in (1, n) for m, n in zip(reversed(node.shape), reversed(shape), strict=False))
    if not fits and by_mask:
        # As in MLX: the values are used up in order.
        n = size_of(shape)
        if size_of(node.shape) < n:
            raise ValueError(f"[index] the mask selects {n} elements, the value of shape {show_shape(node.shape)} has fewer.")
        flat = slice_node(reshape_node(node, (size_of(node.shape),), stream), (1,), (0,), (n,), stream)
        return reshape_node(flat, shape, stream)
    if not fits:
        raise ValueError(f"[broadcast_shapes] Shapes {show_shape(node.shape)} and {show_shape(shape)} cannot be broadcast: the value must fit what is indexed.")
    return broadcast_node(node, shape, stream)


class ArrayAt:
    """`x.at[key]`: what is written there is joined with what is there, each of several equal indices counting.

    Example:
        >>> mx.zeros((3,)).at[mx.array([0, 0, 2])].add(1)
        array([2, 0, 1], dtype=float32)
    """

    __slots__ = ("_key", "_x")

    def __init__(self, x: array, key: Any = Ellipsis) -> None:
        self._x = x
        self._key: tuple[Any] | None = None if key is Ellipsis else (key,)

    def __getitem__(self, key: Any) -> ArrayAt:
        out = ArrayAt(self._x)
        out._key = (key,)
        return out

    def _join(self, value: Any, mode: str, plain: Any) -> array:
        if self._key is None:
            raise ValueError("Must give indices to array.at (e.g. `x.at[0].add(4)`).")
        x, key, stream = self._x, self._key[0], defaults.stream
        node = x._node
        dtype = node.sig.dtype
        mask = _mask_of(node, key)
        if mask is not None and _fits_mask(value):
            joined = plain(x, wrap(_value(value, dtype, (), stream)))
            return where(_spread_mask(mask, node), wrap(cast_node(joined._node, dtype, stream)), x)
        parsed = Key(node, key)
        brought = _value(value, dtype, parsed.shape, stream, mask is not None)
        if not parsed.indices:
            joined = plain(wrap(parsed.read(node, stream)), wrap(brought))
            return wrap(parsed.write(node, cast_node(joined._node, dtype, stream), None, stream))
        if mode == "sub":
            return wrap(parsed.write(node, (-wrap(brought))._node, "add", stream))
        if mode == "div":
            by = parsed.write(full_node(node.shape, _one(dtype), dtype, stream), brought, "mul", stream)
            return wrap(cast_node(divide(x, wrap(by))._node, dtype, stream))
        return wrap(parsed.write(node, brought, mode, stream))

    def add(self, value: Any) -> array:
        """A copy of x with `value` added there."""
        return self._join(value, "add", operator.add)

    def subtract(self, value: Any) -> array:
        """A copy of x with `value` subtracted there."""
        return self._join(value, "sub", operator.sub)

    def multiply(self, value: Any) -> array:
        """A copy of x multiplied by `value` there."""
        return self._join(value, "mul", operator.mul)

    def divide(self, value: Any) -> array:
        """A copy of x divided by `value` there; integers are cut."""
        return self._join(value, "div", operator.truediv)

    def maximum(self, value: Any) -> array:
        """A copy of x with the larger of it and `value` there."""
        return self._join(value, "max", maximum)

    def minimum(self, value: Any) -> array:
        """A copy of x with the smaller of it and `value` there."""
        return self._join(value, "min", minimum)


# --- public functions ---


def take(a: array, /, indices: int | array, axis: int | None = None, *, stream: StreamOrDevice = None) -> array:
    """Elements at indices along one axis.

    Args:
        a: Any shape; flattened if `axis` is None.
        indices: An integer or an array of them, of any shape; negative ones count from the end.
        axis: The axis.

    Returns:
        The shape of `a` with the shape of `indices` in place of `axis`.

    Raises:
        ValueError: `indices` is not of integers, or the axis is empty and `indices` is not.
        IndexError: `axis`, or an index that is known, is out of range.

    Example:
        >>> mx.take(mx.array([[1, 2, 3], [4, 5, 6]]), mx.array([2, 0]), axis=1)
        array([[3, 1],
               [6, 4]], dtype=int32)
    """
    at = stream_of(stream)
    x = as_array(a)._node
    if axis is None:
        x, axis = reshape_node(x, (size_of(x.shape),), at), 0
    axis = one_axis("take", axis, len(x.shape))
    n = x.shape[axis]
    if not isinstance(indices, (array, list, tuple, np.ndarray)):
        k = as_int("take", "indices", indices)
        if not -n <= k < n:
            raise IndexError(f"[take] {k} is out of range for axis {axis} of an array of shape {show_shape(x.shape)}; it has {n} elements.")
        codes = tuple(1 if i == axis else 0 for i in range(len(x.shape)))
        one = slice_node(x, codes, (k + n if k < 0 else k,), (*x.shape[:axis], 1, *x.shape[axis + 1 :]), at)
        return wrap(reshape_node(one, (*x.shape[:axis], *x.shape[axis + 1 :]), at))
    index = _index_array(indices)
    if index.sig.dtype is bool_:
        raise ValueError("[take] Boolean indices not supported; use a[mask].")
    _check(index, n, axis, x)
    return wrap(gather_node(x, [index], (axis,), axis, at))


def _along_arguments(op: str, a: array, indices: array, axis: int | None, at: Stream) -> tuple[Node, Node, int]:
    """Both of one rank and equal but along the axis."""
    x, index = as_array(a)._node, _index_array(indices)
    if index.sig.dtype is bool_:
        raise ValueError(f"[{op}] Boolean indices not supported; use a[mask].")
    if axis is None:
        x, axis = reshape_node(x, (size_of(x.shape),), at), 0
    axis = one_axis(op, axis, len(x.shape))
    if len(index.shape) != len(x.shape):
        raise ValueError(f"[{op}] Indices of dimension {len(index.shape)} does not match array of dimension {len(x.shape)}.")
    others = broadcast_shape((*x.shape[:axis], 1, *x.shape[axis + 1 :]), (*index.shape[:axis], 1, *index.shape[axis + 1 :]))
    x = broadcast_node(x, (*others[:axis], x.shape[axis], *others[axis + 1 :]), at)
    index = broadcast_node(index, (*others[:axis], index.shape[axis], *others[axis + 1 :]), at)
    if 0 in x.shape and 0 not in index.shape:
        raise ValueError(f"[{op}] the axis is empty: a is {show_shape(x.shape)}, the indices {show_shape(index.shape)}.")
    return x, index, axis


def take_along_axis(a: array, /, indices: array, axis: int | None = -1, *, stream: StreamOrDevice = None) -> array:
    """Along one axis, the elements that an array of the same rank says.

    Args:
        a: Any shape; flattened if `axis` is None.
        indices: Integers; broadcasts with `a` but along `axis`. Negative ones count from the end.
        axis: The axis.

    Returns:
        The broadcast shape, with the size of `indices` along `axis`.

    Raises:
        ValueError: ranks differ, shapes do not broadcast, or `indices` is not of integers.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.take_along_axis(mx.array([[1, 2, 3], [4, 5, 6]]), mx.array([[2], [0]]), axis=1)
        array([[3],
               [4]], dtype=int32)
    """
    at = stream_of(stream)
    x, index, axis = _along_arguments("take_along_axis", a, indices, axis, at)
    _check(index, x.shape[axis], axis, x)
    return wrap(take_along_node(x, index, axis, at))


def put_along_axis(a: array, /, indices: array, values: array, axis: int | None = None, *, stream: StreamOrDevice = None) -> array:
    """A copy of `a` with values put along one axis where an array of the same rank says.

    Args:
        a: Any shape; taken as flattened if `axis` is None.
        indices: Integers; broadcasts with `a` but along `axis`.
        values: Broadcasts to `indices`.
        axis: The axis.

    Returns:
        Shape and dtype of `a`.

    Raises:
        ValueError: ranks differ, shapes do not broadcast, or `indices` is not of integers.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.put_along_axis(mx.zeros((2, 3)), mx.array([[2], [0]]), mx.array(5.0), axis=1)
        array([[0, 0, 5],
               [5, 0, 0]], dtype=float32)
    """
    at = stream_of(stream)
    shape = as_array(a).shape
    x, index, axis = _along_arguments("put_along_axis", a, indices, axis, at)
    _check(index, x.shape[axis], axis, x)
    update = _value(values, x.sig.dtype, index.shape, at)
    return wrap(reshape_node(scatter_along_node(x, update, index, axis, None, at), shape, at))


def _starts(op: str, start: Any, axes: Sequence[int], rank: int, at: Stream) -> tuple[Node, tuple[int, ...]]:
    """The starts as a vector, and their axes."""
    node = as_array(start)._node
    if node.sig.dtype.rank > 1:
        raise ValueError(f"[{op}] Start indices must be integers, got type {node.sig.dtype.name}.")
    if size_of(node.shape) != len(axes):
        raise ValueError(f"[{op}] Number of starting indices {size_of(node.shape)} does not match number of axes {len(axes)}.")
    found = tuple(one_axis(op, a, rank) for a in axes)
    if len(set(found)) != len(found):
        raise ValueError(f"[{op}] an axis is named twice in {tuple(axes)}.")
    return reshape_node(node, (len(axes),), at), found


def slice_at(a: array, start_indices: array, axes: Sequence[int], slice_size: Sequence[int], *, stream: StreamOrDevice = None) -> array:
    """A part of an array that begins where another array says.

    Args:
        a: Any shape.
        start_indices: Where the part begins, along each of `axes`; held so that it lies within `a`.
        axes: The axes; the part begins at 0 along the others.
        slice_size: The size of the part, along every axis.

    Raises:
        ValueError: the starts are not integers or not as many as `axes`, or a size is larger than the axis.

    Example:
        >>> mx.slice(mx.array([[1, 2, 3], [4, 5, 6]]), mx.array(1), axes=(0,), slice_size=(1, 2))
        array([[4, 5]], dtype=int32)
    """
    at = stream_of(stream)
    x = as_array(a)._node
    size = tuple(as_int("slice", "slice_size", n) for n in slice_size)
    starts, found = _starts("slice", start_indices, axes, len(x.shape), at)
    if len(size) != len(x.shape) or any(not 0 <= m <= n for m, n in zip(size, x.shape, strict=True)):
        raise ValueError(f"[slice] Invalid slice size {show_shape(size)} for array with shape {show_shape(x.shape)}.")
    codes = tuple(1 if m != n and k not in found else 0 for k, (m, n) in enumerate(zip(size, x.shape, strict=True)))
    part = tuple(m if c else n for m, n, c in zip(size, x.shape, codes, strict=True))
    x = slice_node(x, codes, tuple(0 for c in codes if c), part, at)
    return wrap(make(DYNAMIC_SLICE, (x, starts), size, x.sig.dtype, at, (found,)) if found else x)


def slice_update(a: array, update: array, start_indices: array, axes: Sequence[int], *, stream: StreamOrDevice = None) -> array:
    """A copy of an array with a part overwritten that begins where another array says.

    Args:
        a: Any shape.
        update: The part; at most as large as `a`, along each axis; it gets the dtype of `a`.
        start_indices: Where the part begins, along each of `axes`; held so that it lies within `a`.
        axes: The axes; the part begins at 0 along the others.

    Raises:
        ValueError: the starts are not integers or not as many as `axes`, or the part is larger than `a`.

    Example:
        >>> mx.slice_update(mx.zeros((2, 3)), mx.ones((1, 2)), mx.array([1, 1]), axes=(0, 1))
        array([[0, 0, 0],
               [0, 1, 1]], dtype=float32)
    """
    at = stream_of(stream)
    x = as_array(a)._node
    u = cast_node(as_array(update)._node, x.sig.dtype, at)
    starts, found = _starts("slice_update", start_indices, axes, len(x.shape), at)
    if len(u.shape) > len(x.shape):
        raise ValueError(f"[slice_update] Invalid update of shape {show_shape(u.shape)} for array with shape {show_shape(x.shape)}.")
    u = reshape_node(u, (*[1] * (len(x.shape) - len(u.shape)), *u.shape), at)
    if any(m > n for m, n in zip(u.shape, x.shape, strict=True)):
        raise ValueError(f"[slice_update] Invalid update of shape {show_shape(u.shape)} for array with shape {show_shape(x.shape)}: it is larger.")
    if 0 in u.shape:
        return wrap(x)
    return wrap(make(DYNAMIC_SLICE_UPDATE, (x, u, starts), x.shape, x.sig.dtype, at, (found,)))


special.call["getitem"] = getitem
special.call["setitem"] = setitem
