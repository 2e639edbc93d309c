"""Shapes, strides, axes and keys drawn at random: integers, so NumPy's answer is the only one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import isthmus.core as mx

LAWS = settings(max_examples=60, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
FULL = hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=5)


def counted(shape: tuple[int, ...]) -> np.ndarray:
    return (np.arange(math.prod(shape), dtype=np.int32) * 7 - 11).reshape(shape)


def same(got: Any, want: Any) -> None:
    a, b = np.array(got), np.asarray(want)
    assert a.shape == b.shape
    np.testing.assert_array_equal(a, b)


@st.composite
def views(draw: Any, shapes: Any = FULL) -> tuple[mx.array, np.ndarray]:
    """An array seen through up to three views, of both kinds; now and then in memory in between."""
    v = counted(draw(shapes))
    x = mx.array(v)
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from("transpose slice flip reshape broadcast expand map".split()))
        if kind == "transpose":
            perm = draw(st.permutations(range(v.ndim)))
            x, v = mx.transpose(x, perm), v.transpose(perm)
        elif kind == "slice" and v.ndim:
            key = draw(hnp.basic_indices(v.shape, allow_newaxis=True, max_dims=5))
            x, v = x[key], v[key]
        elif kind == "flip" and v.ndim:
            axis = draw(st.integers(-v.ndim, v.ndim - 1))
            x, v = mx.flip(x, axis), np.flip(v, axis)
        elif kind == "reshape" and v.size:
            parts = draw(st.sampled_from([d for d in range(1, v.size + 1) if v.size % d == 0]))
            x, v = mx.reshape(x, (parts, -1)), v.reshape(parts, -1)
        elif kind == "broadcast" and v.size < 500 and v.ndim < 5:
            n = draw(st.integers(1, 3))
            x, v = mx.broadcast_to(x, (n, *v.shape)), np.broadcast_to(v, (n, *v.shape))
        elif kind == "expand" and v.ndim < 5:
            axis = draw(st.integers(0, v.ndim))
            x, v = mx.expand_dims(x, axis), np.expand_dims(v, axis)
        else:
            x, v = x * 3 - 1, v * 3 - 1
        if draw(st.booleans()) and draw(st.booleans()):
            mx.eval(x)
    return x, np.asarray(v)


@LAWS
@given(views(SHAPES))
def test_views_of_views(pair):
    same(*pair)


@LAWS
@given(views(), st.data())
def test_reductions_over_any_axes(pair, data):
    x, v = pair
    axes = tuple(data.draw(st.sets(st.integers(-v.ndim, v.ndim - 1), max_size=v.ndim).filter(lambda s: len({a % max(v.ndim, 1) for a in s}) == len(s)))) if v.ndim else ()
    keepdims = data.draw(st.booleans())
    axis: Any = data.draw(st.sampled_from([axes, None]))
    same(mx.sum(x, axis=axis, keepdims=keepdims), np.sum(v, axis=axis, keepdims=keepdims, dtype=np.int32))
    same(mx.prod(x, axis=axis, keepdims=keepdims), np.prod(v, axis=axis, keepdims=keepdims, dtype=np.int32))
    same(mx.any(x % 3, axis=axis, keepdims=keepdims), np.any(v % 3, axis=axis, keepdims=keepdims))
    if v.size:
        same(mx.max(x, axis=axis, keepdims=keepdims), np.max(v, axis=axis, keepdims=keepdims))
        one = data.draw(st.sampled_from([None, *range(-v.ndim, v.ndim)]))
        same(mx.argmin(x % 5, axis=one, keepdims=keepdims), np.argmin(v % 5, axis=one, keepdims=keepdims))


@LAWS
@given(hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=4, min_side=0, max_side=4))
def test_broadcasting(drawn):
    shapes, result = drawn.input_shapes, drawn.result_shape
    vs = [counted(s) for s in shapes]
    xs = [mx.array(v) for v in vs]
    got = mx.where(xs[0] % 2 == 0, xs[1] - xs[0], xs[2] * xs[1])
    same(got, np.where(vs[0] % 2 == 0, vs[1] - vs[0], vs[2] * vs[1]))
    assert got.shape == result == mx.broadcast_shapes(*shapes)


@LAWS
@given(views(), st.data())
def test_keys_read_and_write(pair, data):
    x, v = pair
    key = data.draw(st.one_of(hnp.basic_indices(v.shape, allow_newaxis=True, max_dims=5), _integer_keys(v.shape)))
    at = tuple(mx.array(k) if isinstance(k, np.ndarray) else k for k in (key if isinstance(key, tuple) else (key,)))
    want = v[key]
    same(x[at], want)
    values = counted(np.shape(want)) * 3
    keep, y = x, x + 0
    y[at] = mx.array(values)
    w = v.copy()
    w[key] = values
    same(y, w)
    if not any(isinstance(k, mx.array) for k in at):
        w = v.copy()
        w[key] += values
        same(x.at[at].add(mx.array(values)), w)
    same(keep, v)


@st.composite
def _integer_keys(draw: Any, shape: tuple[int, ...]) -> Any:
    """An index array without equal places along one axis, slices elsewhere."""
    if not shape or 0 in shape:
        return ()
    axis = draw(st.integers(0, len(shape) - 1))
    n = shape[axis]
    places = draw(st.lists(st.integers(0, n - 1), unique=True, min_size=1, max_size=n))
    signed = [p - n if draw(st.booleans()) else p for p in places]
    before = [draw(st.sampled_from([slice(None), slice(None, None, -1), slice(1, None)])) for _ in range(axis)]
    return (*before, np.array(signed))


@LAWS
@given(views(), st.data())
def test_moves(pair, data):
    x, v = pair
    if not v.ndim:
        return
    axis = data.draw(st.integers(-v.ndim, v.ndim - 1))
    shift = data.draw(st.integers(-7, 7))
    same(mx.roll(x, shift, axis), np.roll(v, shift, axis))
    same(mx.roll(x, shift), np.roll(v, shift))
    same(mx.concatenate([x, x * 2, x], axis), np.concatenate([v, v * 2, v], axis))
    same(mx.stack([x, x + 1], axis), np.stack([v, v + 1], axis))
    same(mx.repeat(x, 2, axis), np.repeat(v, 2, axis))
    widths = [tuple(data.draw(st.integers(0, 2)) for _ in range(2)) for _ in range(v.ndim)]
    same(mx.pad(x, widths, constant_values=5), np.pad(v, widths, constant_values=5))
    cuts = sorted(data.draw(st.lists(st.integers(0, v.shape[axis]), max_size=2)))
    for a, b in zip(mx.split(x, cuts, axis), np.split(v, cuts, axis), strict=True):
        same(a, b)
    other = data.draw(st.integers(-v.ndim, v.ndim - 1))
    same(mx.moveaxis(x, axis, other) + mx.swapaxes(mx.moveaxis(x, axis, other), 0, 0), 2 * np.moveaxis(v, axis, other))
    if v.size:
        order = np.argsort(v * 31 % 17, axis=axis)
        same(mx.take_along_axis(x, mx.array(order.astype(np.int32)), axis=axis), np.take_along_axis(v, order, axis))


@LAWS
@given(st.data())
def test_products(data):
    """Matrices as views of any kind, batch axes that broadcast; small integers, so that every dtype is exact."""
    dtype = data.draw(st.sampled_from([mx.float32, mx.float64, mx.complex64, mx.bfloat16]))
    batch = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=2, min_side=1, max_side=3)).input_shapes
    m, k, n = (data.draw(st.integers(1, 9)) for _ in range(3))

    def matrix(shape: tuple[int, ...]) -> tuple[mx.array, np.ndarray]:
        turned = data.draw(st.booleans())
        own = (*shape[:-2], shape[-1], shape[-2]) if turned else shape
        keys = [data.draw(st.sampled_from([(s, slice(None)), (s + 1, slice(1, None)), (s, slice(None, None, -1)), (2 * s, slice(None, None, 2)), (2 * s, slice(None, None, -2))])) for s in own]
        base = counted(tuple(size for size, _ in keys)) % 4
        key = tuple(key for _, key in keys)
        x, v = mx.array(base).astype(dtype)[key], base[key]
        return (mx.swapaxes(x, -1, -2), v.swapaxes(-1, -2)) if turned else (x, v)

    (a, va), (b, vb) = matrix((*batch[0], m, k)), matrix((*batch[1], k, n))
    same((a @ b).astype(mx.complex64), va @ vb)
    c, vc = matrix((*np.broadcast_shapes(*batch), m, n))
    same(mx.addmm(c, a, b, alpha=2.0, beta=-1.0).astype(mx.complex64), 2 * (va @ vb) - vc)
