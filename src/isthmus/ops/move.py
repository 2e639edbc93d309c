"""Views and moves of elements: what is read at another place, and how that place follows from the output's.

The primitives are TRANSPOSE, RESHAPE, BROADCAST, SLICE, ALIAS (views: index arithmetic on one input, never a copy by
themselves) and PAD, CONCATENATE (which choose by index). The public functions below are made of them. Static attributes
say which axes; starts, sizes and widths are dynamic.
"""

from __future__ import annotations

from typing import Any

from isthmus.graph.array import array, special, wrap
from isthmus.graph.device import Stream
from isthmus.graph.node import Node, make
from isthmus.kernel import scalar as s
from isthmus.kernel.place import ONE, ORIGIN, ZERO, Form, axis_form, product, value_form
from isthmus.ops.families import Linear, Move, Place

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
    import numpy as np

    axes = node.sig.attrs[0]
    kept = [k for k in axes if k >= 0]
    a = a.transpose(kept + [k for k in range(a.ndim) if k not in kept]).reshape([a.shape[k] for k in kept])
    a = a.reshape([node.shape[k] if x >= 0 else 1 for k, x in enumerate(axes)])
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
    return make(BROADCAST, (x,), shape, x.sig.dtype, stream, (axes,))


def broadcast_node(x: Node, shape: tuple[int, ...], stream: Stream) -> Node:
    """`x` repeated to `shape` by NumPy's rule, which must allow it."""
    gap = len(shape) - len(x.shape)
    axes = tuple(-1 if k < gap or (x.shape[k - gap] == 1 and shape[k] != 1) else k - gap for k in range(len(shape)))
    return make(BROADCAST, (x,), shape, x.sig.dtype, stream, (axes,))


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
    import numpy as np

    codes = node.sig.attrs[0]
    offset, strides = 0, list(a.strides)
    for axis, start, step in _slice_dyn(codes):
        offset += node.dyn[start] * a.strides[axis]
        strides[axis] *= -1 if codes[axis] == 2 else node.dyn[step] if codes[axis] == 3 else 1
    first = a[tuple(builtin_slice(node.dyn[start], None) for axis, start, _ in ())]
    if offset == 0:
        return np.lib.stride_tricks.as_strided(first, node.shape, strides)
    base = a[tuple(_starts(node, len(a.shape)))]
    return np.lib.stride_tricks.as_strided(base, node.shape, strides)


def _starts(node: Node, rank: int) -> list[Any]:
    starts = [0] * rank
    for axis, start, _ in _slice_dyn(node.sig.attrs[0]):
        starts[axis] = node.dyn[start]
    return [builtin_slice(k, None) for k in starts]


builtin_slice = slice

SLICE = Linear(
    "slice",
    read=_slice_read,
    transpose=lambda node, ct: wrap(make(PAD, (ct._node,), node.inputs[0].shape, ct.dtype, node.sig.stream, node.sig.attrs, node.dyn)),
    batch=lambda node, n: (((0, *node.sig.attrs[0]),), node.dyn, (n, *node.shape)),
    numpy=_slice_numpy,
    new_sizes=True,
)


def slice_node(x: Node, codes: tuple[int, ...], dyn: tuple[int, ...], shape: tuple[int, ...], stream: Stream) -> Node:
    if not any(codes):
        return x
    return make(SLICE, (x,), shape, x.sig.dtype, stream, (codes,), dyn)


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
    return ctx.read(node, 0, tuple(source), mask)


def _pad_again(node: Node, x: array) -> array:
    return wrap(make(PAD, (x._node,), node.shape, x.dtype, node.sig.stream, node.sig.attrs, node.dyn))


PAD = Move(
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
    begin, value = ZERO, None
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
    return value


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

