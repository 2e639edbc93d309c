"""Views and moves of elements: what is read at another place, and how that place follows from the output's.

The primitives are TRANSPOSE, RESHAPE, BROADCAST, SLICE, ALIAS (views: index arithmetic on one input, never a copy by
themselves) and PAD, CONCATENATE (which choose by index). The public functions below are made of them. Static attributes
say which axes; starts, sizes and widths are dynamic.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from isthmus.graph.array import array, broadcast_shape, cast_node, show_shape, special, wrap
from isthmus.graph.device import Stream
from isthmus.graph.dtype import Dtype, bool_, complex64, float32, promote, uint8, uint16, uint32, uint64
from isthmus.graph.node import Node, make, size_of
from isthmus.kernel import scalar as s
from isthmus.kernel.place import ONE, ORIGIN, ZERO, Form, axis_form, product, value_form
from isthmus.ops.arguments import (
    ArrayLike,
    Axes,
    StreamOrDevice,
    all_axes,
    as_array,
    as_int,
    as_ints,
    as_node,
    as_shape,
    one_axis,
    stream_of,
)
from isthmus.ops.families import Linear, Move, Place, Update

# --- transpose: attrs (perm,); output axis k is input axis perm[k] ---


def inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    out = [0] * len(perm)
    for k, p in enumerate(perm):
        out[p] = k
    return tuple(out)


TRANSPOSE = Linear(
    "transpose",
    read=lambda ctx, node, place: tuple(place[k] for k in inverse(node.attrs[0])),
    transpose=lambda node, ct: wrap(transpose_node(ct._node, inverse(node.sig.attrs[0]), node.sig.stream)),
    batch=lambda node, n: (((0, *(p + 1 for p in node.sig.attrs[0])),), (), (n, *node.shape)),
    axes=lambda node: [((p,), (k,)) for k, p in enumerate(node.attrs[0])],
    numpy=lambda node, a: a.transpose(node.sig.attrs[0]),
)


def transpose_node(x: Node, perm: tuple[int, ...], stream: Stream) -> Node:
    """`x` with its axes in another order; a transpose of a transpose is one, and none where nothing moves."""
    if x.sig.op is TRANSPOSE:
        inner = x.sig.attrs[0]
        x, perm = x.inputs[0], tuple(inner[p] for p in perm)
    if perm == tuple(range(len(perm))):
        return x
    return make(TRANSPOSE, (x,), tuple(x.shape[p] for p in perm), x.sig.dtype, stream, (perm,))


# --- reshape: attrs (groups,); each group is (count of input axes, count of output axes) of equal product ---


def reshape_groups(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The least groups of neighbouring axes with equal products; axes of size 1 stand apart, as (1, 0) and (0, 1)."""
    groups: list[tuple[int, int]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        if i < len(old) and old[i] == 1:
            groups.append((1, 0))
            i += 1
            continue
        if j < len(new) and new[j] == 1:
            groups.append((0, 1))
            j += 1
            continue
        p, q, a, b = i + 1, j + 1, old[i], new[j]
        while a != b:
            if a < b:
                a *= old[p]
                p += 1
            else:
                b *= new[q]
                q += 1
        groups.append((p - i, q - j))
        i, j = p, q
    return tuple(groups)


def _group_axes(groups: tuple[tuple[int, int], ...]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    out, i, j = [], 0, 0
    for p, q in groups:
        out.append((tuple(range(i, i + p)), tuple(range(j, j + q))))
        i, j = i + p, j + q
    return out


def _reshape_read(ctx: Any, node: Any, place: Place) -> Place:
    """The input's place: merged axes are taken apart by division, split ones put together."""
    sizes = node.inputs[0].sizes
    out: list[Form] = [ORIGIN] * len(sizes)
    for ins, outs in _group_axes(node.attrs[0]):
        if not ins or not outs:
            continue
        total, stride = ORIGIN, ONE
        for k in reversed(outs):
            total = total + place[k].scale(stride)
            stride = stride * node.sizes[k]
        if len(ins) == 1:
            out[ins[0]] = total
            continue
        if parts := _unmerge(ctx, total, [sizes[k] for k in ins]):
            for k, part in zip(ins, parts, strict=True):
                out[k] = part
            continue
        rest = ctx.index(total)
        for k in reversed(ins[1:]):
            size = ctx.size(sizes[k])
            out[k] = value_form(s.imod(rest, size))
            rest = s.idiv(rest, size)
        out[ins[0]] = value_form(rest)
    return tuple(out)


def _unmerge(ctx: Any, total: Form, sizes: list[Any]) -> list[Form] | None:
    """The parts of an index that is visibly `a * stride_a + b * stride_b + ...` over axes of just those sizes."""
    if total.values or total.offset.terms or len(total.terms) > len(sizes):
        return None
    strides = [product(sizes[k + 1 :]) for k in range(len(sizes))]
    parts: list[Form] = [ORIGIN] * len(sizes)
    used: set[int] = set()
    for axis, coefficient in total.terms:
        for k, stride in enumerate(strides):
            if k not in used and stride == coefficient and ctx.frame_size(axis) == sizes[k]:
                parts[k] = axis_form(axis)
                used.add(k)
                break
        else:
            return None
    return parts


RESHAPE = Linear(
    "reshape",
    read=_reshape_read,
    transpose=lambda node, ct: wrap(reshape_node(ct._node, node.inputs[0].shape, node.sig.stream)),
    batch=lambda node, n: ((((1, 1), *node.sig.attrs[0]) if n != 1 else ((1, 0), (0, 1), *node.sig.attrs[0]),), (), (n, *node.shape)),
    axes=lambda node: _group_axes(node.attrs[0]),
    numpy=lambda node, a: a.reshape(node.shape),
    new_sizes=True,
)


def reshape_node(x: Node, shape: tuple[int, ...], stream: Stream) -> Node:
    """`x` in another shape of the same number of elements."""
    if x.sig.op is RESHAPE:
        x = x.inputs[0]
    if shape == x.shape:
        return x
    if 0 in shape:
        return make(RESHAPE, (x,), shape, x.sig.dtype, stream)
    return make(RESHAPE, (x,), shape, x.sig.dtype, stream, (reshape_groups(x.shape, shape),))


# --- broadcast: attrs (axes,); output axis k is input axis axes[k], or new (or of size 1 there) where that is -1 ---


def _broadcast_transpose(node: Node, ct: array) -> array:
    from isthmus.ops.reduce import sum_node

    axes = node.sig.attrs[0]
    out = sum_node(ct._node, tuple(k for k, a in enumerate(axes) if a < 0), node.sig.stream)
    return wrap(reshape_node(out, node.inputs[0].shape, node.sig.stream))


def _broadcast_read(ctx: Any, node: Any, place: Place) -> Place:
    out = [ORIGIN] * len(node.inputs[0].sizes)
    for k, a in enumerate(node.attrs[0]):
        if a >= 0:
            out[a] = place[k]
    return tuple(out)


def _broadcast_numpy(node: Node, a: Any) -> Any:
    axes = node.sig.attrs[0]
    a = a[tuple(builtins.slice(None) if k in axes else 0 for k in range(a.ndim))]
    a = a[tuple(builtins.slice(None) if k >= 0 else None for k in axes)]
    return np.broadcast_to(a, node.shape)


BROADCAST = Linear(
    "broadcast",
    read=_broadcast_read,
    transpose=_broadcast_transpose,
    batch=lambda node, n: (((0, *(a + 1 if a >= 0 else -1 for a in node.sig.attrs[0])),), (), (n, *node.shape)),
    axes=lambda node: [((a,), (k,)) if a >= 0 else ((), (k,)) for k, a in enumerate(node.attrs[0])],
    numpy=_broadcast_numpy,
    new_sizes=True,
)


def broadcast_node_by(x: Node, axes: tuple[int, ...], shape: tuple[int, ...], stream: Stream) -> Node:
    """`x` repeated: output axis k of `shape` is axis `axes[k]` of `x`, or new where that is -1."""
    if x.sig.op is BROADCAST:
        inner = x.sig.attrs[0]
        x, axes = x.inputs[0], tuple([inner[a] if a >= 0 else -1 for a in axes])
    return make(BROADCAST, (x,), shape, x.sig.dtype, stream, (axes,))


def broadcast_node(x: Node, shape: tuple[int, ...], stream: Stream) -> Node:
    """`x` repeated to `shape` by NumPy's rule, which must allow it."""
    if x.shape == shape:
        return x
    gap = len(shape) - len(x.shape)
    axes = [-1] * len(shape)
    for k, n in enumerate(x.shape):
        if n != 1 or shape[k + gap] == 1:
            axes[k + gap] = k
    return broadcast_node_by(x, tuple(axes), shape, stream)


def broadcast_to_node(op: str, x: Node, shape: tuple[int, ...], stream: Stream) -> Node:
    """`x` repeated to `shape`.

    Raises:
        ValueError: NumPy's rule does not allow it.
    """
    gap = len(shape) - len(x.shape)
    if gap < 0 or any(m != n and m != 1 for m, n in zip(x.shape, shape[gap:], strict=True)):
        raise ValueError(f"[{op}] shape {show_shape(x.shape)} cannot be broadcast to {show_shape(shape)}: sizes must agree or be 1, from the last axis on.")
    return broadcast_node(x, shape, stream)


special.broadcast = broadcast_node

# --- slice: attrs (codes,); code of an axis: 0 whole, 1 step one, 2 step minus one, 3 another step.
#     dyn: for each sliced axis its start, and for code 3 its step ---


def _slice_dyn(codes: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """(axis, number of its start in dyn, number of its step or -1)."""
    out, at = [], 0
    for axis, code in enumerate(codes):
        if code:
            out.append((axis, at, at + 1 if code == 3 else -1))
            at += 2 if code == 3 else 1
    return out


def _slice_read(ctx: Any, node: Any, place: Place) -> Place:
    codes = node.attrs[0]
    out = list(place)
    for axis, start, step in _slice_dyn(codes):
        form = place[axis]
        if codes[axis] == 2:
            form = form.scale(ONE.times(-1))
        elif codes[axis] == 3:
            form = form.scale(ctx.dyn(node, step))
        out[axis] = form.shift(ctx.dyn(node, start))
    return tuple(out)


def _slice_numpy(node: Node, a: Any) -> Any:
    codes, index = node.sig.attrs[0], [builtins.slice(None)] * a.ndim
    for axis, start, step in _slice_dyn(codes):
        first = node.dyn[start]
        by = -1 if codes[axis] == 2 else node.dyn[step] if codes[axis] == 3 else 1
        end = first + by * node.shape[axis]
        index[axis] = builtins.slice(first, end if end >= 0 else None, by)
    return a[tuple(index)]


SLICE = Linear(
    "slice",
    read=_slice_read,
    transpose=lambda node, ct: wrap(make(PAD, (ct._node,), node.inputs[0].shape, ct.dtype, node.sig.stream, node.sig.attrs, node.dyn)),
    batch=lambda node, n: (((0, *node.sig.attrs[0]),), node.dyn, (n, *node.shape)),
    numpy=_slice_numpy,
    new_sizes=True,
)


def slice_node(x: Node, codes: tuple[int, ...], dyn: tuple[int, ...], shape: tuple[int, ...], stream: Stream) -> Node:
    """The part of `x` that codes and dyn say; a slice of a slice is one."""
    if not any(codes):
        return x
    if x.sig.op is SLICE:
        codes, dyn = _composed(x, codes, dyn)
        x = x.inputs[0]
    return make(SLICE, (x,), shape, x.sig.dtype, stream, (codes,), dyn)


def _starts_and_steps(codes: tuple[int, ...], dyn: tuple[int, ...]) -> dict[int, tuple[int, int]]:
    return {axis: (dyn[start], dyn[step] if step >= 0 else -1 if codes[axis] == 2 else 1) for axis, start, step in _slice_dyn(codes)}


def _composed(inner: Node, codes: tuple[int, ...], dyn: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    below, above = _starts_and_steps(inner.sig.attrs[0], inner.dyn), _starts_and_steps(codes, dyn)
    new_codes: list[int] = []
    new_dyn: list[int] = []
    for axis, (c, d) in enumerate(zip(inner.sig.attrs[0], codes, strict=True)):
        # Decided by the codes, not by the numbers: 1 and 2 are the signs, and two signs make one.
        code = d if c <= 1 and d else c if d <= 1 else 1 if c == d == 2 else 3
        first, by = below.get(axis, (0, 1))
        start, step = above.get(axis, (0, 1))
        new_codes.append(code)
        if code:
            new_dyn.append(first + start * by)
        if code == 3:
            new_dyn.append(by * step)
    return tuple(new_codes), tuple(new_dyn)


# --- pad: the transpose of slice, zeros elsewhere; attrs and dyn as slice's ---


def _pad_lower(ctx: Any, node: Any, place: Place) -> s.Expr:
    codes = node.attrs[0]
    source = list(place)
    mask = None
    for axis, start, step in _slice_dyn(codes):
        form = place[axis].shift(ctx.dyn(node, start).times(-1))
        if codes[axis] == 2:
            form = form.scale(ONE.times(-1))
        at = ctx.index(form)
        fits = None
        if codes[axis] == 3:
            by = ctx.size(ctx.dyn(node, step))
            fits = s.eq(s.imod(at, by), s.index_const(0))
            at = s.idiv(at, by)
            form = value_form(at)
        inside = s.and_(s.ge(at, s.index_const(0)), s.lt(at, ctx.size(node.inputs[0].sizes[axis])))
        if fits is not None:
            inside = s.and_(inside, fits)
        mask = inside if mask is None else s.and_(mask, inside)
        source[axis] = form
    value: s.Expr = ctx.read(node, 0, tuple(source), mask)
    return value


def _pad_again(node: Node, x: array) -> array:
    return wrap(make(PAD, (x._node,), node.shape, x.dtype, node.sig.stream, node.sig.attrs, node.dyn))


PAD: Move = Move(
    "pad",
    lower=_pad_lower,
    vjp=lambda node, y, ct, wanted: [wrap(slice_node(ct._node, node.sig.attrs[0], node.dyn, node.inputs[0].shape, node.sig.stream))],
    jvp=lambda node, y, tangents: _pad_again(node, tangents[0]),
    vmap=lambda node, args, batched: wrap(
        make(PAD, (args[0]._node,), (args[0].shape[0], *node.shape), args[0].dtype, node.sig.stream, ((0, *node.sig.attrs[0]),), node.dyn)
    ),
    new_sizes=True,
    demands=lambda node: [([(0, a)], [a]) for a, code in enumerate(node.attrs[0]) if code == 0],
)

# --- concatenate: attrs (axis,) ---


def _concatenate_lower(ctx: Any, node: Any, place: Place) -> s.Expr:
    axis = node.attrs[0]
    at = ctx.index(place[axis])
    begin = ZERO
    value: Any = None
    mask: Any
    for k, x in enumerate(node.inputs):
        end = begin + x.sizes[axis]
        mask = None
        if k > 0:
            mask = s.ge(at, ctx.size(begin))
        if k < len(node.inputs) - 1:
            below = s.lt(at, ctx.size(end))
            mask = below if mask is None else s.and_(mask, below)
        part = ctx.read(node, k, (*place[:axis], place[axis].shift(begin.times(-1)), *place[axis + 1 :]), mask)
        value = part if value is None else s.select(mask, part, value)
        begin = end
    assert value is not None
    return value  # type: ignore[no-any-return]


def _concatenate_vjp(node: Node, y: array, ct: array, wanted: Any) -> list[array | None]:
    axis, out, begin = node.sig.attrs[0], [], 0
    codes = tuple(1 if k == axis else 0 for k in range(len(node.shape)))
    for x, want in zip(node.inputs, wanted, strict=True):
        out.append(wrap(slice_node(ct._node, codes, (begin,), x.shape, node.sig.stream)) if want else None)
        begin += x.shape[axis]
    return out


def _concatenate_jvp(node: Node, y: array, tangents: Any) -> array:
    from isthmus.ops.create import zeros_node

    parts = tuple(t._node if t is not None else zeros_node(x.shape, x.sig.dtype, node.sig.stream) for t, x in zip(tangents, node.inputs, strict=True))
    return wrap(make(CONCATENATE, parts, node.shape, node.sig.dtype, node.sig.stream, node.sig.attrs))


def _concatenate_vmap(node: Node, args: Any, batched: Any) -> array:
    n = next(a.shape[0] for a, b in zip(args, batched, strict=True) if b)
    parts = tuple(a._node if b else broadcast_node(a._node, (n, *a.shape), node.sig.stream) for a, b in zip(args, batched, strict=True))
    return wrap(make(CONCATENATE, parts, (n, *node.shape), node.sig.dtype, node.sig.stream, (node.sig.attrs[0] + 1,)))


CONCATENATE = Move(
    "concatenate",
    _concatenate_lower,
    _concatenate_vjp,
    _concatenate_jvp,
    _concatenate_vmap,
    new_sizes=True,
    demands=lambda node: [([(k, a)], [a]) for k in range(len(node.inputs)) for a in range(node.rank) if a != node.attrs[0]],
)


def part_node(x: Node, axis: int, start: int, stop: int, stream: Stream) -> Node:
    """`x` from `start` to `stop` along one axis."""
    shape = (*x.shape[:axis], stop - start, *x.shape[axis + 1 :])
    return slice_node(x, tuple(int(k == axis) for k in range(len(shape))), (start,), shape, stream)


_MOST_PARTS = 8  # of one concatenate: each place is compared with the bounds of all


def concatenate_nodes(parts: Sequence[Node], axis: int, stream: Stream) -> Node:
    """Parts of one dtype, one after the other; many are joined as a tree."""
    parts = [x for x in parts if x.shape[axis]] or parts[:1]
    while len(parts) > 1:
        parts = [_concatenate_few(parts[k : k + _MOST_PARTS], axis, stream) for k in range(0, len(parts), _MOST_PARTS)]
    return parts[0]


def _concatenate_few(parts: Sequence[Node], axis: int, stream: Stream) -> Node:
    if len(parts) == 1:
        return parts[0]
    total = 0
    for x in parts:
        total += x.shape[axis]
    first = parts[0].shape
    return make(CONCATENATE, tuple(parts), (*first[:axis], total, *first[axis + 1 :]), parts[0].sig.dtype, stream, (axis,))


# --- as_strided: input 0 has one axis; dyn (offset, a stride for each axis) ---


def _strided_form(ctx: Any, node: Any, place: Place) -> Form:
    total = ORIGIN
    for k, form in enumerate(place):
        total = total + form.scale(ctx.dyn(node, k + 1))
    return total.shift(ctx.dyn(node, 0))


def _strided_transpose(node: Node, ct: array) -> array:
    from isthmus.ops.create import zeros_node

    x, stream = node.inputs[0], node.sig.stream
    zeros = zeros_node(x.shape, ct.dtype, stream)
    return wrap(make(ADD_STRIDED, (zeros, ct._node), x.shape, ct.dtype, stream, ((),), node.dyn))


def _strided_batch(node: Node, n: int) -> Any:
    raise ValueError("[vmap] as_strided has no batch form: its strides are those of the whole array.")


AS_STRIDED = Linear(
    "as_strided",
    read=lambda ctx, node, place: (_strided_form(ctx, node, place),),
    transpose=_strided_transpose,
    batch=_strided_batch,
    numpy=lambda node, a: np.lib.stride_tricks.as_strided(a[node.dyn[0] :], node.shape, [n * a.itemsize for n in node.dyn[1:]]),
    new_sizes=True,
)
ADD_STRIDED = Update(
    "add_strided",
    combine=lambda node: "add",
    write=lambda ctx, node, place: ((_strided_form(ctx, node, place),), None),
    serial=True,
    vjp=lambda node, y, ct, wanted: [
        ct,
        wrap(make(AS_STRIDED, (ct._node,), node.inputs[1].shape, ct.dtype, node.sig.stream, ((),), node.dyn)) if wanted[1] else None,
    ],
    jvp=lambda node, y, tangents: _strided_transpose(
        make(AS_STRIDED, (node.inputs[0],), node.inputs[1].shape, y.dtype, node.sig.stream, ((),), node.dyn), tangents[1]
    ),
    vmap=lambda node, args, batched: _strided_batch(node, 0),
)

# --- view: the same bytes as another dtype. The last axis is cut or joined where the sizes differ ---

_WORD: dict[int, Dtype] = {1: uint8, 2: uint16, 4: uint32, 8: uint64}


def _to_bits(x: s.Expr) -> s.Expr:
    if x.dtype is complex64:
        re, im = (s.cast(s.bitcast(part(x), uint32), uint64) for part in (s.real, s.imag))
        return s.or_(re, s.shl(im, s.const(32, uint64)))
    return s.cast(x, uint8) if x.dtype is bool_ else s.bitcast(x, _WORD[x.dtype.size])


def _from_bits(bits: s.Expr, dtype: Dtype) -> s.Expr:
    if dtype is complex64:
        parts = (s.cast(word, uint32) for word in (bits, s.shr(bits, s.const(32, uint64))))
        return s.make_complex(*(s.bitcast(p, float32) for p in parts))
    return s.ne(bits, s.const(0, uint8)) if dtype is bool_ else s.bitcast(bits, dtype)


def _view_lower(ctx: Any, node: Any, place: Place) -> s.Expr:
    old, new = node.inputs[0].dtype, node.dtype
    if old.size == new.size:
        return _from_bits(_to_bits(ctx.read(node, 0, place)), new)
    word = _WORD[new.size]
    if old.size > new.size:
        ratio = s.index_const(old.size // new.size)
        at = ctx.index(place[-1])
        bits = _to_bits(ctx.read(node, 0, (*place[:-1], value_form(s.idiv(at, ratio)))))
        by = s.mul(s.imod(at, ratio), s.index_const(new.bits))
        return _from_bits(s.cast(s.shr(bits, s.cast(by, bits.dtype)), word), new)
    ratio = new.size // old.size
    total: Any = None
    for k in range(ratio):
        last = place[-1].scale(ONE.times(ratio)).shift(ONE.times(k))
        part = s.shl(s.cast(_to_bits(ctx.read(node, 0, (*place[:-1], last))), word), s.const(k * old.bits, word))
        total = part if total is None else s.or_(total, part)
    return _from_bits(total, new)


VIEW = Move(
    "view",
    _view_lower,
    None,
    None,
    lambda node, args, batched: view(args[0], node.sig.dtype, node.sig.stream),
    new_sizes=True,
    demands=lambda node: [([(0, a)], [a]) for a in range(node.rank - (node.inputs[0].dtype.size != node.dtype.size))],
    aligned=lambda node, k: tuple(range(node.rank)) if node.inputs[0].dtype.size == node.dtype.size else None,
)


# --- public functions: shapes ---


def reshape(a: ArrayLike, /, shape: Any, *, stream: StreamOrDevice = None) -> array:
    """`a` in another shape, its elements in the same order.

    Args:
        a: Any array.
        shape: Sizes; one may be -1, and follows from the others.

    Raises:
        ValueError: the number of elements differs, or two sizes are -1.

    Example:
        >>> mx.reshape(mx.arange(6), (2, -1))
        array([[0, 1, 2],
               [3, 4, 5]], dtype=int32)
    """
    x = as_node(a)
    sizes = as_ints("reshape", "a size", shape)
    n = size_of(x.shape)
    known, inferred = 1, -1
    for k, size in enumerate(sizes):
        if size < 0:
            if size != -1 or inferred >= 0:
                raise ValueError(f"[reshape] sizes must not be negative but for one -1; got {show_shape(sizes)}.")
            inferred = k
        else:
            known *= size
    if inferred >= 0:
        if known == 0:
            raise ValueError(f"[reshape] -1 cannot be inferred beside a size of 0 in {show_shape(sizes)}.")
        sizes = (*sizes[:inferred], n // known, *sizes[inferred + 1 :])
        known *= n // known
    if known != n:
        raise ValueError(f"[reshape] an array of shape {show_shape(x.shape)} has {n} elements; shape {show_shape(sizes)} has {known}.")
    return wrap(reshape_node(x, sizes, stream_of(stream)))


def flatten(a: ArrayLike, /, start_axis: int = 0, end_axis: int = -1, *, stream: StreamOrDevice = None) -> array:
    """The axes from `start_axis` to `end_axis` as one; an array without axes gets one.

    Raises:
        ValueError: `start_axis` lies behind `end_axis`.

    Example:
        >>> mx.flatten(mx.zeros((2, 3, 4)), 1).shape
        (2, 12)
    """
    x = as_node(a)
    rank = len(x.shape)
    if rank == 0:
        return wrap(reshape_node(x, (1,), stream_of(stream)))
    first = builtins.max(0, start_axis + rank if start_axis < 0 else start_axis)
    last = builtins.min(rank - 1, end_axis + rank if end_axis < 0 else end_axis)
    if last < first:
        raise ValueError(f"[flatten] start_axis {start_axis} must not lie behind end_axis {end_axis}, for {rank} dimensions.")
    shape = (*x.shape[:first], size_of(x.shape[first : last + 1]), *x.shape[last + 1 :])
    return wrap(reshape_node(x, shape, stream_of(stream)))


def unflatten(a: ArrayLike, /, axis: int, shape: Any, *, stream: StreamOrDevice = None) -> array:
    """One axis as several.

    Args:
        a: Any array.
        axis: The axis to take apart.
        shape: Sizes instead of it; one may be -1.

    Raises:
        ValueError: the sizes do not fit, or there are none.

    Example:
        >>> mx.unflatten(mx.arange(6), 0, (2, 3)).shape
        (2, 3)
    """
    x = as_node(a)
    at = one_axis("unflatten", axis, len(x.shape))
    sizes = as_ints("unflatten", "a size", shape)
    if not sizes:
        raise ValueError("[unflatten] the shape to take an axis apart into is empty.")
    n, known = x.shape[at], 1
    for size in sizes:
        known *= size if size != -1 else 1
    if sizes.count(-1) == 1 and known:
        sizes = tuple(n // known if size == -1 else size for size in sizes)
    if size_of(sizes) != n or builtins.min(sizes) < 0:
        raise ValueError(f"[unflatten] axis {axis} has size {n}, which cannot be taken apart into {show_shape(as_ints('unflatten', 'a size', shape))}.")
    return wrap(reshape_node(x, (*x.shape[:at], *sizes, *x.shape[at + 1 :]), stream_of(stream)))


def squeeze(a: ArrayLike, /, axis: Axes = None, *, stream: StreamOrDevice = None) -> array:
    """`a` without axes of size 1.

    Args:
        a: Any array.
        axis: Axis or axes to remove; all of size 1 if None.

    Raises:
        ValueError: the size of an axis is not 1, or one is named twice.
        IndexError: an axis is out of range.

    Example:
        >>> mx.squeeze(mx.zeros((1, 2, 1))).shape
        (2,)
    """
    x = as_node(a)
    if axis is None:
        axes = tuple(k for k, n in enumerate(x.shape) if n == 1)
    else:
        axes = all_axes("squeeze", axis, len(x.shape))
        for k in axes:
            if x.shape[k] != 1:
                raise ValueError(f"[squeeze] axis {k} has size {x.shape[k]}; only axes of size 1 can go.")
    return wrap(reshape_node(x, tuple(n for k, n in enumerate(x.shape) if k not in axes), stream_of(stream)))


def expand_dims(a: ArrayLike, /, axis: int | Sequence[int], *, stream: StreamOrDevice = None) -> array:
    """`a` with new axes of size 1, at these places of the result.

    Raises:
        ValueError: a place is named twice.
        IndexError: a place is out of range.

    Example:
        >>> mx.expand_dims(mx.zeros((2, 3)), (0, -1)).shape
        (1, 2, 3, 1)
    """
    x = as_node(a)
    places = as_ints("expand_dims", "axis", axis)
    rank = len(x.shape) + len(places)
    new = all_axes("expand_dims", places, rank)
    sizes = iter(x.shape)
    return wrap(reshape_node(x, tuple(1 if k in new else next(sizes) for k in range(rank)), stream_of(stream)))


def atleast_1d(*arys: ArrayLike, stream: StreamOrDevice = None) -> Any:
    """Arrays with at least one axis; one array alone is returned as such, several as a list.

    Example:
        >>> mx.atleast_1d(mx.array(1.0)).shape
        (1,)
    """
    return _at_least("atleast_1d", arys, lambda shape: shape or (1,), stream)


def atleast_2d(*arys: ArrayLike, stream: StreamOrDevice = None) -> Any:
    """Arrays with at least two axes, new ones in front; one array alone is returned as such, several as a list.

    Example:
        >>> mx.atleast_2d(mx.array([1.0, 2.0])).shape
        (1, 2)
    """
    return _at_least("atleast_2d", arys, lambda shape: (*[1] * (2 - len(shape)), *shape), stream)


def atleast_3d(*arys: ArrayLike, stream: StreamOrDevice = None) -> Any:
    """Arrays with at least three axes: `(n,)` becomes `(1, n, 1)`, `(m, n)` becomes `(m, n, 1)`.

    Example:
        >>> mx.atleast_3d(mx.array([1.0, 2.0])).shape
        (1, 2, 1)
    """
    return _at_least("atleast_3d", arys, lambda shape: ((1, 1, 1), (1, *shape, 1), (*shape, 1), shape)[builtins.min(len(shape), 3)], stream)


def _at_least(op: str, arys: Sequence[ArrayLike], shape: Any, stream: StreamOrDevice) -> Any:
    at = stream_of(stream)
    out = [wrap(reshape_node(x, shape(x.shape), at)) for x in map(as_node, arys)]
    return out[0] if len(out) == 1 else out


# --- public functions: the order of axes ---


def transpose(a: ArrayLike, /, axes: Sequence[int] | None = None, *, stream: StreamOrDevice = None) -> array:
    """`a` with its axes in another order.

    Args:
        a: Any array.
        axes: Which axis comes where; the reverse order if None.

    Raises:
        ValueError: `axes` does not name each axis once.
        IndexError: an axis is out of range.

    Example:
        >>> mx.transpose(mx.zeros((2, 3, 4)), (1, 0, 2)).shape
        (3, 2, 4)
    """
    x = as_node(a)
    rank = len(x.shape)
    if axes is None:
        return wrap(transpose_node(x, tuple(range(rank - 1, -1, -1)), stream_of(stream)))
    given = as_ints("transpose", "an axis", axes)
    if len(given) != rank:
        raise ValueError(f"[transpose] {len(given)} axes are named for an array of {rank} dimensions.")
    perm = tuple(one_axis("transpose", k, rank) for k in given)
    if len(set(perm)) != rank:
        raise ValueError(f"[transpose] an axis is named twice in {given}.")
    return wrap(transpose_node(x, perm, stream_of(stream)))


permute_dims = transpose


def matrix_transpose(a: ArrayLike, /, *, stream: StreamOrDevice = None) -> array:
    """`a` with its last two axes exchanged.

    Raises:
        ValueError: fewer than two dimensions.

    Example:
        >>> mx.matrix_transpose(mx.zeros((2, 3, 4))).shape
        (2, 4, 3)
    """
    x = as_node(a)
    rank = len(x.shape)
    if rank < 2:
        raise ValueError(f"[matrix_transpose] at least two dimensions are needed; the shape is {show_shape(x.shape)}.")
    return wrap(transpose_node(x, (*range(rank - 2), rank - 1, rank - 2), stream_of(stream)))


def swapaxes(a: ArrayLike, /, axis1: int, axis2: int, *, stream: StreamOrDevice = None) -> array:
    """`a` with two axes exchanged.

    Raises:
        IndexError: an axis is out of range.

    Example:
        >>> mx.swapaxes(mx.zeros((2, 3, 4)), 0, -1).shape
        (4, 3, 2)
    """
    x = as_node(a)
    perm = list(range(len(x.shape)))
    i, j = (one_axis("swapaxes", k, len(perm)) for k in (axis1, axis2))
    perm[i], perm[j] = perm[j], perm[i]
    return wrap(transpose_node(x, tuple(perm), stream_of(stream)))


def moveaxis(a: ArrayLike, /, source: int | Sequence[int], destination: int | Sequence[int], *, stream: StreamOrDevice = None) -> array:
    """`a` with axes moved to other places, the others in order.

    Args:
        a: Any array.
        source: Which axis, or axes.
        destination: Where each shall be.

    Raises:
        ValueError: the numbers of axes differ, or one is named twice.
        IndexError: an axis is out of range.

    Example:
        >>> mx.moveaxis(mx.zeros((2, 3, 4)), 0, -1).shape
        (3, 4, 2)
    """
    x = as_node(a)
    rank = len(x.shape)
    froms = [one_axis("moveaxis", k, rank) for k in as_ints("moveaxis", "source", source)]
    places = [one_axis("moveaxis", k, rank) for k in as_ints("moveaxis", "destination", destination)]
    if len(set(froms)) != len(froms) or len(set(places)) != len(froms) or len(places) != len(froms):
        raise ValueError(f"[moveaxis] source {source} and destination {destination} must name as many axes, each once.")
    perm = [k for k in range(rank) if k not in froms]
    for place, k in sorted(zip(places, froms, strict=True)):
        perm.insert(place, k)
    return wrap(transpose_node(x, tuple(perm), stream_of(stream)))


def flip(a: ArrayLike, /, axis: Axes = None, *, stream: StreamOrDevice = None) -> array:
    """`a` in reverse order along axes, all if None.

    Raises:
        IndexError: an axis is out of range.

    Example:
        >>> mx.flip(mx.array([1, 2, 3]))
        array([3, 2, 1], dtype=int32)
    """
    x = as_node(a)
    axes = all_axes("flip", axis, len(x.shape))
    codes = tuple(2 if k in axes else 0 for k in range(len(x.shape)))
    return wrap(slice_node(x, codes, tuple(x.shape[k] - 1 for k in axes), x.shape, stream_of(stream)))


# --- public functions: broadcasting ---


def broadcast_to(a: ArrayLike, /, shape: Any, *, stream: StreamOrDevice = None) -> array:
    """`a` repeated to `shape` by NumPy's rule; nothing is copied.

    Raises:
        ValueError: the rule does not allow it.

    Example:
        >>> mx.broadcast_to(mx.array([1, 2]), (2, 2))
        array([[1, 2],
               [1, 2]], dtype=int32)
    """
    return wrap(broadcast_to_node("broadcast_to", as_node(a), as_shape("broadcast_to", shape), stream_of(stream)))


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that shapes broadcast to.

    Raises:
        ValueError: they do not, or none is given.

    Example:
        >>> mx.broadcast_shapes((1, 2), (3, 1))
        (3, 2)
    """
    if not shapes:
        raise ValueError("[broadcast_shapes] at least one shape is needed.")
    out: tuple[int, ...] = ()
    for shape in shapes:
        out = broadcast_shape(out, tuple(shape))
    return out


def broadcast_arrays(*arrays: ArrayLike, stream: StreamOrDevice = None) -> list[array]:
    """Arrays repeated to their common shape.

    Raises:
        ValueError: there is none.

    Example:
        >>> [x.shape for x in mx.broadcast_arrays(mx.zeros((2, 1)), mx.zeros((3,)))]
        [(2, 3), (2, 3)]
    """
    if not arrays:
        return []
    nodes = [as_node(x) for x in arrays]
    shape = broadcast_shapes(*(x.shape for x in nodes))
    return [wrap(broadcast_node(x, shape, stream_of(stream))) for x in nodes]


def meshgrid(*arrays: ArrayLike, sparse: bool = False, indexing: str | None = "xy", stream: StreamOrDevice = None) -> tuple[array, ...]:
    """Coordinates of a grid, an array for each axis.

    Args:
        *arrays: The coordinates along each axis.
        sparse: Leave each array 1 long along the other axes.
        indexing: "xy": the first array runs along the second axis; "ij": along the first.

    Raises:
        ValueError: `indexing` is neither.

    Example:
        >>> [x.shape for x in mx.meshgrid(mx.arange(2), mx.arange(3))]
        [(3, 2), (3, 2)]
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"[meshgrid] indexing must be 'xy' or 'ij'; got {indexing!r}.")
    at, n = stream_of(stream), len(arrays)
    out = []
    for k, x in enumerate(map(as_node, arrays)):
        axis = 1 - k if indexing == "xy" and k < 2 and n > 1 else k
        out.append(wrap(reshape_node(x, tuple(size_of(x.shape) if axis == j else 1 for j in range(n)), at)))
    return tuple(out) if sparse else tuple(broadcast_arrays(*out, stream=stream))


# --- public functions: joining and splitting ---


def _common(op: str, arrays: Any, at: Stream) -> list[Node]:
    """Arrays as nodes of their common dtype."""
    nodes = [as_node(x) for x in arrays]
    if not nodes:
        raise ValueError(f"[{op}] no arrays are given; at least one is needed.")
    dtype = nodes[0].sig.dtype
    for x in nodes:
        dtype = promote(dtype, x.sig.dtype)
    return [cast_node(x, dtype, at) for x in nodes]


def concatenate(arrays: Sequence[ArrayLike], axis: int | None = 0, *, stream: StreamOrDevice = None) -> array:
    """Arrays one after the other.

    Args:
        arrays: Of equal sizes but for `axis`.
        axis: Along which; None flattens them first.

    Returns:
        Their common dtype.

    Raises:
        ValueError: the shapes do not fit, or there are no arrays.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.concatenate([mx.array([1, 2]), mx.array([3.5])])
        array([1, 2, 3.5], dtype=float32)
    """
    at = stream_of(stream)
    nodes = _common("concatenate", arrays, at)
    if axis is None:
        nodes = [reshape_node(x, (size_of(x.shape),), at) for x in nodes]
        axis = 0
    shape = nodes[0].shape
    k = one_axis("concatenate", axis, len(shape))
    for x in nodes:
        if len(x.shape) != len(shape) or x.shape[:k] != shape[:k] or x.shape[k + 1 :] != shape[k + 1 :]:
            raise ValueError(f"[concatenate] shapes {show_shape(shape)} and {show_shape(x.shape)} must agree but for axis {k}, along which they are joined.")
    return wrap(concatenate_nodes(nodes, k, at))


concat = concatenate


def stack(arrays: Sequence[ArrayLike], axis: int = 0, *, stream: StreamOrDevice = None) -> array:
    """Arrays of equal shape along a new axis.

    Returns:
        Their common dtype.

    Raises:
        ValueError: the shapes differ, or there are no arrays.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.stack([mx.array([1, 2]), mx.array([3, 4])])
        array([[1, 2],
               [3, 4]], dtype=int32)
    """
    at = stream_of(stream)
    nodes = _common("stack", arrays, at)
    shape = nodes[0].shape
    for x in nodes:
        if x.shape != shape:
            raise ValueError(f"[stack] all shapes must agree; got {show_shape(shape)} and {show_shape(x.shape)}.")
    k = one_axis("stack", axis, len(shape) + 1)
    tall = (*shape[:k], 1, *shape[k:])
    return wrap(concatenate_nodes([reshape_node(x, tall, at) for x in nodes], k, at))


def unstack(x: ArrayLike, /, *, axis: int = 0, stream: StreamOrDevice = None) -> tuple[array, ...]:
    """The parts along an axis, without it.

    Raises:
        IndexError: `axis` is out of range.

    Example:
        >>> mx.unstack(mx.array([[1, 2], [3, 4]]))
        (array([1, 2], dtype=int32), array([3, 4], dtype=int32))
    """
    node, at = as_node(x), stream_of(stream)
    k = one_axis("unstack", axis, len(node.shape))
    rest = (*node.shape[:k], *node.shape[k + 1 :])
    return tuple(wrap(reshape_node(part_node(node, k, i, i + 1, at), rest, at)) for i in range(node.shape[k]))


def split(a: ArrayLike, /, indices_or_sections: int | Sequence[int], axis: int = 0, *, stream: StreamOrDevice = None) -> list[array]:
    """The parts of `a` along an axis.

    Args:
        a: Any array.
        indices_or_sections: How many parts of equal size; or where the parts after the first begin.
        axis: Along which.

    Raises:
        ValueError: the size is no multiple of the number of parts.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.split(mx.arange(5), [2])
        [array([0, 1], dtype=int32), array([2, 3, 4], dtype=int32)]
    """
    x, at = as_node(a), stream_of(stream)
    k = one_axis("split", axis, len(x.shape))
    n = x.shape[k]
    if isinstance(indices_or_sections, (tuple, list)):
        ends = as_ints("split", "an index", indices_or_sections)
        inner = [builtins.min(builtins.max(i + n if i < 0 else i, 0), n) for i in ends]
        bounds = [0, *inner, n]
    else:
        parts = as_int("split", "the number of parts", indices_or_sections)
        if parts < 1:
            raise ValueError(f"[split] the number of parts must be positive; got {parts}.")
        if n % parts:
            raise ValueError(f"[split] axis {axis} of size {n} cannot be split into {parts} equal parts; the shape is {show_shape(x.shape)}.")
        bounds = [n // parts * i for i in range(parts + 1)]
    return [wrap(part_node(x, k, i, builtins.max(i, j), at)) for i, j in zip(bounds, bounds[1:], strict=False)]


def repeat(array: ArrayLike, repeats: int, axis: int | None = None, *, stream: StreamOrDevice = None) -> array:
    """Each element so many times in a row.

    Args:
        array: Any array.
        repeats: How often.
        axis: Along which; None flattens the array first.

    Raises:
        ValueError: `repeats` is negative.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.repeat(mx.array([1, 2]), 2)
        array([1, 1, 2, 2], dtype=int32)
    """
    x, at = as_node(array), stream_of(stream)
    count = as_int("repeat", "repeats", repeats)
    if count < 0:
        raise ValueError(f"[repeat] repeats must not be negative; got {count}.")
    if axis is None:
        x, axis = reshape_node(x, (size_of(x.shape),), at), 0
    k = one_axis("repeat", axis, len(x.shape))
    before, n, after = x.shape[:k], x.shape[k], x.shape[k + 1 :]
    axes = (*range(k + 1), -1, *range(k + 1, len(x.shape)))
    wide = broadcast_node_by(x, axes, (*before, n, count, *after), at)
    return wrap(reshape_node(wide, (*before, n * count, *after), at))


def tile(a: ArrayLike, reps: int | Sequence[int], /, *, stream: StreamOrDevice = None) -> array:
    """`a` as a whole so many times along each axis.

    Args:
        a: Any array.
        reps: How often, for the last axes; more than there are make new axes.

    Raises:
        ValueError: one is negative.

    Example:
        >>> mx.tile(mx.array([1, 2]), 2)
        array([1, 2, 1, 2], dtype=int32)
    """
    x, at = as_node(a), stream_of(stream)
    counts = as_ints("tile", "reps", reps)
    if counts and builtins.min(counts) < 0:
        raise ValueError(f"[tile] reps must not be negative; got {counts}.")
    rank = builtins.max(len(counts), len(x.shape))
    counts = (*[1] * (rank - len(counts)), *counts)
    shape = (*[1] * (rank - len(x.shape)), *x.shape)
    x = reshape_node(x, shape, at)
    axes = tuple(b for k in range(rank) for b in (-1, k))
    wide = broadcast_node_by(x, axes, tuple(n for pair in zip(counts, shape, strict=True) for n in pair), at)
    return wrap(reshape_node(wide, tuple(m * n for m, n in zip(counts, shape, strict=True)), at))


def roll(a: ArrayLike, /, shift: int | Sequence[int], axis: Axes = None, *, stream: StreamOrDevice = None) -> array:
    """`a` with its elements moved along axes; what leaves at one end enters at the other.

    Args:
        a: Any array.
        shift: By how many places, one number or one for each axis.
        axis: Axis or axes; None rolls the flattened array.

    Raises:
        ValueError: fewer shifts than axes.
        IndexError: an axis is out of range.

    Example:
        >>> mx.roll(mx.arange(4), 1)
        array([3, 0, 1, 2], dtype=int32)
    """
    x, at = as_node(a), stream_of(stream)
    shifts = as_ints("roll", "shift", shift)
    if axis is None:
        flat = reshape_node(x, (size_of(x.shape),), at)
        return wrap(reshape_node(_rolled(flat, builtins.sum(shifts), 0, at), x.shape, at))
    axes = as_ints("roll", "axis", axis)
    if len(shifts) == 1:
        shifts = shifts * len(axes)
    elif len(axes) == 1:
        shifts = (builtins.sum(shifts),)
    if len(shifts) != len(axes):
        raise ValueError(f"[roll] {len(shifts)} shifts are given for {len(axes)} axes.")
    for by, k in zip(shifts, axes, strict=True):
        x = _rolled(x, by, one_axis("roll", k, len(x.shape)), at)
    return wrap(x)


def _rolled(x: Node, by: int, axis: int, stream: Stream) -> Node:
    n = x.shape[axis]
    by = by % n if n else 0
    if by == 0:
        return x
    return concatenate_nodes([part_node(x, axis, n - by, n, stream), part_node(x, axis, 0, n - by, stream)], axis, stream)


def pad(
    a: ArrayLike,
    pad_width: Any,
    mode: str = "constant",
    constant_values: ArrayLike = 0,
    *,
    stream: StreamOrDevice = None,
) -> array:
    """`a` with more elements before and behind.

    Args:
        a: Any array.
        pad_width: How many: a number for all ends, `(before, behind)` for all axes, or one such pair for each axis.
        mode: "constant"; "edge": the outermost element again; "reflect": mirrored at the outermost element.
        constant_values: What is filled in, for "constant".

    Raises:
        ValueError: a width is negative, their number does not fit, or there is no such mode.

    Example:
        >>> mx.pad(mx.array([1, 2]), (1, 2))
        array([0, 1, 2, 0, 0], dtype=int32)
    """
    x, at = as_node(a), stream_of(stream)
    widths = _pad_widths(pad_width, len(x.shape))
    if mode == "constant":
        return wrap(_padded(x, widths, constant_values, at))
    if mode not in ("edge", "reflect"):
        raise ValueError(f"[pad] there is no mode {mode!r}; there are 'constant', 'edge' and 'reflect'.")
    for k, (before, behind) in enumerate(widths):
        x = _with_edges(x, k, before, behind, at) if mode == "edge" else _reflected(x, k, before, behind, at)
    return wrap(x)


def _pad_widths(pad_width: Any, rank: int) -> list[tuple[int, int]]:
    if isinstance(pad_width, (tuple, list)):
        if pad_width and isinstance(pad_width[0], (tuple, list)):
            pairs = [as_ints("pad", "a width", pair) for pair in pad_width]
        else:
            pairs = [as_ints("pad", "a width", pad_width)]
    else:
        pairs = [(as_int("pad", "pad_width", pad_width),)]
    pairs = [pair * 2 if len(pair) == 1 else pair for pair in pairs]
    if len(pairs) == 1:
        pairs = pairs * rank
    if len(pairs) != rank or any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"[pad] pad_width {pad_width} does not fit an array of {rank} dimensions: a pair for each axis is needed, or one for all.")
    if any(n < 0 for pair in pairs for n in pair):
        raise ValueError(f"[pad] widths must not be negative; got {pad_width}.")
    return [(pair[0], pair[1]) for pair in pairs]


def _padded(x: Node, widths: Sequence[tuple[int, int]], value: ArrayLike, stream: Stream) -> Node:
    shape = tuple(before + n + behind for n, (before, behind) in zip(x.shape, widths, strict=True))
    if shape == x.shape:
        return x
    codes = tuple(int(before + behind > 0) for before, behind in widths)
    starts = tuple(before for before, behind in widths if before + behind)
    plain = not isinstance(value, array) and value == 0
    if 0 in x.shape:
        from isthmus.ops.create import full

        return full(shape, value, x.sig.dtype)._node
    out = make(PAD, (x,), shape, x.sig.dtype, stream, (codes,), starts)
    if plain:
        return out
    from isthmus.ops.create import full_node
    from isthmus.ops.elementwise import astype, where

    inside = make(PAD, (full_node(x.shape, True, bool_, stream),), shape, bool_, stream, (codes,), starts)
    return where(wrap(inside), wrap(out), astype(as_array(value), x.sig.dtype, stream=stream), stream=stream)._node


def _with_edges(x: Node, axis: int, before: int, behind: int, stream: Stream) -> Node:
    n = x.shape[axis]
    if before + behind == 0:
        return x
    if n == 0:
        return _padded(x, [(before, behind) if k == axis else (0, 0) for k in range(len(x.shape))], 0, stream)
    parts = [x]
    for width, at in ((before, 0), (behind, n - 1)):
        edge = part_node(x, axis, at, at + 1, stream)
        edge = broadcast_node(edge, (*x.shape[:axis], width, *x.shape[axis + 1 :]), stream)
        parts.insert(0 if at == 0 and len(parts) == 1 else len(parts), edge)
    return concatenate_nodes(parts, axis, stream)


def _reflected(x: Node, axis: int, before: int, behind: int, stream: Stream) -> Node:
    n = x.shape[axis]
    if builtins.max(before, behind) > 0 and builtins.max(before, behind) >= n:
        raise ValueError(f"[pad] 'reflect' needs widths below the size of an axis; axis {axis} has size {n}, the widths are {before} and {behind}.")
    codes = tuple(2 if k == axis else 0 for k in range(len(x.shape)))
    parts = [x]
    if before:
        parts.insert(0, slice_node(x, codes, (before,), (*x.shape[:axis], before, *x.shape[axis + 1 :]), stream))
    if behind:
        parts.append(slice_node(x, codes, (n - 2,), (*x.shape[:axis], behind, *x.shape[axis + 1 :]), stream))
    return concatenate_nodes(parts, axis, stream)


# --- public functions: diagonals ---


def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1, stream: StreamOrDevice = None) -> array:
    """The diagonal of two axes, as the last axis.

    Args:
        a: At least two dimensions.
        offset: Which diagonal: 0 the main one, above it where positive.
        axis1: Whose index grows along the diagonal.
        axis2: Whose index is that plus `offset`.

    Raises:
        ValueError: fewer than two dimensions, or equal axes.
        IndexError: an axis is out of range.

    Example:
        >>> mx.diagonal(mx.arange(6).reshape(2, 3), 1)
        array([1, 5], dtype=int32)
    """
    x, at = as_node(a), stream_of(stream)
    rank = len(x.shape)
    if rank < 2:
        raise ValueError(f"[diagonal] at least two dimensions are needed; the shape is {show_shape(x.shape)}.")
    i, j = one_axis("diagonal", axis1, rank), one_axis("diagonal", axis2, rank)
    if i == j:
        raise ValueError(f"[diagonal] axis1 and axis2 must differ; both are {i}.")
    x = transpose_node(x, (*(k for k in range(rank) if k not in (i, j)), i, j), at)
    (*batch, n, m), k = x.shape, as_int("diagonal", "offset", offset)
    size = builtins.max(0, builtins.min(n, m - k) if k >= 0 else builtins.min(n + k, m))
    # In the two axes walked as one, the diagonal is every (m + 1)-th element.
    flat = reshape_node(x, (*batch, n * m), at)
    codes = (*[0] * len(batch), 3)
    return wrap(slice_node(flat, codes, (k if k >= 0 else -k * m, m + 1), (*batch, size), at))


def diag(a: ArrayLike, /, k: int = 0, *, stream: StreamOrDevice = None) -> array:
    """A matrix with `a` on diagonal `k`; of a matrix, that diagonal.

    Raises:
        ValueError: neither one nor two dimensions.

    Example:
        >>> mx.diag(mx.array([1, 2]))
        array([[1, 0],
               [0, 2]], dtype=int32)
    """
    x, at = as_node(a), stream_of(stream)
    if len(x.shape) == 2:
        return diagonal(a, k, 0, 1, stream)
    if len(x.shape) != 1:
        raise ValueError(f"[diag] one or two dimensions are needed; the shape is {show_shape(x.shape)}.")
    n = x.shape[0] + builtins.abs(k)
    if x.shape[0] == 0:
        return wrap(_padded(reshape_node(x, (0, 0), at), [(0, n), (0, n)], 0, at))
    flat = make(PAD, (x,), (n * n,), x.sig.dtype, at, ((3,),), (k if k >= 0 else -k * n, n + 1))
    return wrap(reshape_node(flat, (n, n), at))


def trace(a: ArrayLike, /, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Dtype | None = None, *, stream: StreamOrDevice = None) -> array:
    """The sum of a diagonal.

    Args:
        a: At least two dimensions.
        offset: Which diagonal: 0 the main one, above it where positive.
        axis1: Whose index grows along the diagonal.
        axis2: Whose index is that plus `offset`.
        dtype: Added up in this dtype; as `mx.sum` if None.

    Raises:
        ValueError: fewer than two dimensions, or equal axes.

    Example:
        >>> mx.trace(mx.eye(3))
        array(3, dtype=float32)
    """
    from isthmus.ops.reduce import sum

    line = diagonal(a, offset, axis1, axis2, stream)
    return sum(line if dtype is None else wrap(cast_node(line._node, dtype, stream_of(stream))), -1, stream=stream)


def diff(a: ArrayLike, /, n: int = 1, axis: int = -1, *, stream: StreamOrDevice = None) -> array:
    """Differences of neighbours along an axis, `n` times over; booleans are compared.

    Raises:
        ValueError: `n` is negative.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.diff(mx.array([1, 4, 9]))
        array([3, 5], dtype=int32)
    """
    from isthmus.ops.elementwise import not_equal, subtract

    x, at = as_node(a), stream_of(stream)
    k = one_axis("diff", axis, len(x.shape))
    if n < 0:
        raise ValueError(f"[diff] n must not be negative; got {n}.")
    op = not_equal if x.sig.dtype is bool_ else subtract
    for _ in range(n):
        size = x.shape[k]
        if size <= 1:
            return wrap(part_node(x, k, 0, 0, at))
        x = op(wrap(part_node(x, k, 1, size, at)), wrap(part_node(x, k, 0, size - 1, at)), stream)._node
    return wrap(x)


# --- public functions: memory ---


def contiguous(a: ArrayLike, /, allow_col_major: bool = False, *, stream: StreamOrDevice = None) -> array:
    """`a` itself: values are stored row by row here.

    Example:
        >>> mx.contiguous(mx.array([1, 2]))
        array([1, 2], dtype=int32)
    """
    return wrap(as_node(a))


def as_strided(a: ArrayLike, /, shape: Any = None, strides: Any = None, offset: int = 0, *, stream: StreamOrDevice = None) -> array:
    """Elements of the flattened `a` at `offset + sum(index * stride)`.

    Args:
        a: Any array; taken row by row.
        shape: Of the result; that of `a` if None.
        strides: In elements, one for each axis; row by row if None.
        offset: Of the first element.

    Raises:
        ValueError: an element would lie outside `a`.

    Example:
        >>> mx.as_strided(mx.arange(4), (3, 2), (1, 1))
        array([[0, 1],
               [1, 2],
               [2, 3]], dtype=int32)
    """
    x, at = as_node(a), stream_of(stream)
    sizes = x.shape if shape is None else as_shape("as_strided", shape)
    if strides is None:
        steps = tuple(size_of(sizes[k + 1 :]) for k in range(len(sizes)))
    else:
        steps = as_ints("as_strided", "a stride", strides)
    if len(steps) != len(sizes):
        raise ValueError(f"[as_strided] {len(steps)} strides are given for {len(sizes)} axes.")
    n, start = size_of(x.shape), as_int("as_strided", "offset", offset)
    if 0 not in sizes:
        reach = [(size - 1) * step for size, step in zip(sizes, steps, strict=True)]
        low = start + builtins.sum(r for r in reach if r < 0)
        high = start + builtins.sum(r for r in reach if r > 0)
        if low < 0 or high >= n:
            raise ValueError(f"[as_strided] elements {low} to {high} are asked for; the array has {n}.")
    flat = reshape_node(x, (n,), at)
    return wrap(make(AS_STRIDED, (flat,), sizes, x.sig.dtype, at, ((),), (start, *steps)))


def view(a: ArrayLike, dtype: Dtype, stream: StreamOrDevice = None) -> array:
    """The same bytes as another dtype; the last axis grows or shrinks where the sizes differ.

    Raises:
        TypeError: `dtype` is no dtype of `mx`.
        ValueError: the last axis does not come out even, or there is none.

    Example:
        >>> mx.view(mx.array([1.0, 2.0]), mx.int32)
        array([1065353216, 1073741824], dtype=int32)
    """
    x = as_node(a)
    if not isinstance(dtype, Dtype):
        raise TypeError(f"[view] a dtype such as mx.float32 is needed; got {dtype!r}.")
    old = x.sig.dtype
    if old is dtype:
        return wrap(x)
    shape = x.shape
    if old.size != dtype.size:
        if not shape:
            raise ValueError(f"[view] an array without axes keeps its size; {old.name} and {dtype.name} differ in theirs.")
        nbytes = shape[-1] * old.size
        if nbytes % dtype.size:
            raise ValueError(f"[view] the last axis has {nbytes} bytes, which is no multiple of the {dtype.size} of {dtype.name}.")
        shape = (*shape[:-1], nbytes // dtype.size)
    return wrap(make(VIEW, (x,), shape, dtype, stream_of(stream)))
