"""Random numbers, equal to MLX's bit for bit: Threefry-2x32 with 20 rounds, counter-based.

A key is two uint32 words. RANDOM_BITS gives word `i` of a key as an expression of `i`, so random numbers are computed
where they are used and a kernel that drops out never stores its mask. The words of a draw are numbered so that counter
pair `(i, i + h)` gives words `i` and `i + h`, where `h` is half their number, rounded up. Without a key the global
state is split in two: one half is the new state, the other the key of this draw.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from isthmus.graph.array import array, broadcast_node, broadcast_shape, cast_node, show_shape, wrap
from isthmus.graph.device import Stream
from isthmus.graph.dtype import (
    Dtype,
    bfloat16,
    bool_,
    complex64,
    float16,
    float32,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from isthmus.graph.node import TRACE, Node, make
from isthmus.kernel import scalar as s
from isthmus.kernel.place import ONE, ORIGIN, product
from isthmus.ops import convert  # noqa: F401  (makes arrays of numbers)
from isthmus.ops.arguments import ArrayLike, StreamOrDevice, as_array, as_dtype, as_shape, number_as, one_axis, stream_of
from isthmus.ops.create import const_node, iota_node
from isthmus.ops.elementwise import abs as abs_
from isthmus.ops.elementwise import clip, erf, erfinv, floor, less, less_equal, log, log1p, minimum, sign, where
from isthmus.ops.families import Move, Place
from isthmus.ops.move import reshape_node, slice_node
from isthmus.ops.reduce import argmax, softmax
from isthmus.ops.reduce import sum as sum_

# --- random bits: input key (..., 2); output (..., *shape), a draw a key; attrs (count of leading axes,) ---


def _bits_lower(ctx: Any, node: Any, place: Place) -> s.Expr:
    lead = node.attrs[0]
    key0 = ctx.read(node, 0, (*place[:lead], ORIGIN))
    key1 = ctx.read(node, 0, (*place[:lead], ORIGIN.shift(ONE)))
    sizes = node.sizes[lead:]
    flat, stride = ORIGIN, ONE
    for form, size in zip(reversed(place[lead:]), reversed(sizes), strict=True):
        flat = flat + form.scale(stride)
        stride = stride * size

    def number(value: int) -> s.Expr:
        return s.index_const(value)

    at, count = ctx.index(flat), ctx.size(product(sizes))
    per_word = 4 // node.dtype.size
    word, words = at, count
    if per_word > 1:
        shift = number(per_word.bit_length() - 1)
        word, words = s.shr(at, shift), s.shr(s.add(count, number(per_word - 1)), shift)
    half = s.shr(s.add(words, number(1)), number(1))
    first = s.lt(word, half)
    low = s.select(first, word, s.sub(word, half))
    high = s.add(low, half)
    high = s.select(s.lt(high, words), high, number(0))
    x, y = s.threefry(key0, key1, s.cast(low, uint32), s.cast(high, uint32))
    value = s.select(first, x, y)
    if per_word > 1:
        part = s.and_(at, number(per_word - 1))
        value = s.shr(value, s.cast(s.mul(part, number(32 // per_word)), uint32))
    return s.cast(value, node.dtype)


def _bits_vmap(node: Node, args: Sequence[array], batched: Sequence[bool]) -> array:
    key = args[0]._node
    return wrap(make(RANDOM_BITS, (key,), (key.shape[0], *node.shape), node.sig.dtype, node.sig.stream, (node.sig.attrs[0] + 1,)))


RANDOM_BITS = Move(
    "random_bits",
    _bits_lower,
    None,
    None,
    _bits_vmap,
    new_sizes=True,
    demands=lambda node: [([(0, a)], [a]) for a in range(node.attrs[0])],
    weight=60,
)

_BY_WIDTH = {1: uint8, 2: uint16, 4: uint32}


def _bits_node(key: Node, shape: tuple[int, ...], dtype: Dtype, stream: Stream) -> Node:
    return make(RANDOM_BITS, (key,), shape, dtype, stream, (0,))


# --- keys and the global state ---


class RandomState(list[array]):
    """A list of one array, the key that the next draw without a key splits; `compile` can capture it."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


def _checked_key(key: Any) -> Node:
    if not isinstance(key, array):
        raise TypeError(f"[random] a key is an array that mx.random.key or split made; got a {type(key).__name__}.")
    node = key._node
    if node.sig.dtype is not uint32:
        raise ValueError(f"[bits] Expected key type uint32 but received {node.sig.dtype.name}.")
    if node.shape != (2,):
        raise ValueError(f"[bits] Expected key shape (2) but received {show_shape(node.shape)}; mx.vmap draws for several keys.")
    return node


def _row(x: Node, k: int, stream: Stream) -> Node:
    return reshape_node(slice_node(x, (1, 0), (k,), (1, 2), stream), (2,), stream)


def _key_of(key: array | None, stream: Stream) -> Node:
    """The key of a draw: the given one, or a part of the global state."""
    if key is not None:
        return _checked_key(key)
    with TRACE.lock:
        both = _bits_node(_checked_key(state[0]), (2, 2), uint32, stream)
        state[0] = wrap(_row(both, 0, stream))
    return _row(both, 1, stream)


def _seed_words(op: str, seed: Any) -> list[int]:
    try:
        n = seed.__index__()
    except AttributeError:
        n = -1
    if not 0 <= n < 2**64:
        raise TypeError(f"{op}(): incompatible function arguments: a seed is an integer from 0 to 2**64 - 1; got {seed!r}.")
    return [n >> 32, n & 0xFFFFFFFF]


def key(seed: int) -> array:
    """A key from a number.

    Args:
        seed: From 0 to 2**64 - 1.

    Example:
        >>> mx.random.key(7)
        array([0, 7], dtype=uint32)
    """
    return array(_seed_words("key", seed), uint32)


def seed(seed: int) -> None:
    """Set the global state, from which draws without a key take theirs.

    Args:
        seed: From 0 to 2**64 - 1.
    """
    words = _seed_words("seed", seed)
    state[0] = array(words, uint32)


def split(key: array, num: int = 2, stream: StreamOrDevice = None) -> array:
    """New keys from one, which should not be used again.

    Args:
        key: A key.
        num: How many.

    Returns:
        `(num, 2)`, a key a row.

    Raises:
        ValueError: `key` is none.
    """
    return wrap(_bits_node(_checked_key(key), (*as_shape("split", num), 2), uint32, stream_of(stream)))


state = RandomState([array(_seed_words("seed", int.from_bytes(os.urandom(8), "little")), uint32)])


# --- draws ---


def bits(shape: Sequence[int] = (), width: int = 4, key: array | None = None, stream: StreamOrDevice = None) -> array:
    """Random bits.

    Args:
        shape: The shape of the result.
        width: Bytes of an element: 1, 2 or 4.
        key: A key, or None for the global state.

    Returns:
        uint8, uint16 or uint32.

    Raises:
        ValueError: another width, a negative size, or `key` is none.
    """
    dtype = _BY_WIDTH.get(width)
    if dtype is None:
        raise ValueError(f"[bits] Bit width must be in {{1, 2, 4}} but {width} was requested.")
    at = stream_of(stream)
    return wrap(_bits_node(_key_of(key, at), _shape("bits", shape), dtype, at))


def _shape(op: str, shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, (tuple, list)):
        raise TypeError(f"{op}(): incompatible function arguments: shape must be a list of integers; got {shape!r}.")
    return as_shape(op, shape)


def _real(op: str, dtype: Dtype | None) -> Dtype:
    dtype = as_dtype(op, dtype, float32)
    if dtype.rank != 2 or dtype.size == 8:
        raise ValueError(f"[{op}] Can only generate {op} numbers with real floating point type (float32, float16, bfloat16); got {dtype.name}.")
    return dtype


_LARGEST = {float32: float(np.nextafter(np.float32(1), np.float32(0))), float16: 1 - 2.0**-11, bfloat16: 1 - 2.0**-8}
_ABOVE_MINUS_ONE = -_LARGEST[float32]


def _unit(key: Node, shape: tuple[int, ...], dtype: Dtype, stream: Stream) -> array:
    """Uniform in [0, 1): words over their range, in float32, held below 1 and rounded."""
    words = wrap(cast_node(_bits_node(key, shape, uint32, stream), float32, stream))
    held = minimum(words / float(2**32), _LARGEST[dtype])
    return wrap(cast_node(held._node, dtype, stream))


def _rounded(x: Any, dtype: Dtype) -> Any:
    return float(dtype.numpy.type(x))


def _between(key: Node, low: Any, high: Any, shape: tuple[int, ...], dtype: Dtype, stream: Stream) -> array:
    """Uniform in [low, high): `u * (high - low) + low`, in `dtype`."""
    u = _unit(key, shape, dtype, stream)
    if isinstance(low, array) or isinstance(high, array):
        low, high = (wrap(cast_node(as_array(x)._node, dtype, stream)) for x in (low, high))
        moved: array = u * (high - low) + low
        return moved
    low, high = _rounded(low, dtype), _rounded(high, dtype)
    width = _rounded(high - low, dtype)
    if width != 1:
        u = u * width
    return u + low if low else u


def _fits(op: str, shape: tuple[int, ...], *values: Any) -> None:
    """Raises unless what is drawn broadcasts to just `shape`."""
    found = shape
    for v in values:
        if isinstance(v, array):
            found = broadcast_shape(found, v.shape)
    if found != shape:
        raise ValueError(f"[{op}] Cannot generate random values of shape {show_shape(shape)} from broadcasted shape {show_shape(found)}.")


def _limit(x: ArrayLike) -> Any:
    """A number as it is, anything else as an array."""
    return x if isinstance(x, (bool, int, float)) else as_array(x)


def uniform(
    low: ArrayLike = 0,
    high: ArrayLike = 1,
    shape: Sequence[int] = (),
    dtype: Dtype | None = float32,
    key: array | None = None,
    stream: StreamOrDevice = None,
) -> array:
    """Uniform random numbers in `[low, high)`.

    Args:
        low: The lower end, a number or an array that broadcasts to `shape`.
        high: The upper end, likewise.
        shape: The shape of the result.
        dtype: float32, float16 or bfloat16.
        key: A key, or None for the global state.

    Raises:
        ValueError: another dtype, `low` or `high` do not fit `shape`, or `key` is none.

    Example:
        >>> mx.random.uniform(shape=(2,), key=mx.random.key(0))
        array([0.216295, 0.804124], dtype=float32)
    """
    at, dtype, size = stream_of(stream), _real("uniform", dtype), _shape("uniform", shape)
    low, high = _limit(low), _limit(high)
    _fits("uniform", size, low, high)
    return _between(_key_of(key, at), low, high, size, dtype, at)


def _standard(key: Node, shape: tuple[int, ...], dtype: Dtype, stream: Stream) -> array:
    """Normal numbers over sqrt(2), in `dtype`."""
    u = _between(key, _ABOVE_MINUS_ONE, 1.0, shape, float32, stream)
    return wrap(cast_node(erfinv(u, stream=stream)._node, dtype, stream))


def normal(
    shape: Sequence[int] = (),
    dtype: Dtype | None = float32,
    loc: ArrayLike | None = None,
    scale: ArrayLike | None = None,
    key: array | None = None,
    stream: StreamOrDevice = None,
) -> array:
    """Normally distributed random numbers.

    Args:
        shape: The shape of the result.
        dtype: float32, float16, bfloat16 or complex64 (parts of variance 1/2 each).
        loc: The mean, 0 if None.
        scale: The standard deviation, 1 if None.
        key: A key, or None for the global state.

    Raises:
        ValueError: another dtype, or `key` is none.

    Example:
        >>> mx.random.normal((2,), key=mx.random.key(0))
        array([-0.784766, 0.856445], dtype=float32)
    """
    at, size = stream_of(stream), _shape("normal", shape)
    dtype = as_dtype("normal", dtype, float32)
    if dtype is complex64:
        parts = _standard(_key_of(key, at), (*size, 2), float32, at)
        re, im = (wrap(_last(parts._node, k, at)) for k in range(2))
        out: array = re + im * 1j
        by: Any = 1.0
    else:
        if dtype.rank != 2 or dtype.size == 8:
            raise ValueError(f"[normal] Only floating point (float32, float16, bfloat16) and complex64 types are supported; got {dtype.name}.")
        out, by = _standard(_key_of(key, at), size, dtype, at), _rounded(math.sqrt(2), dtype)
    if isinstance(scale, (bool, int, float)):
        by = _rounded(by * _rounded(scale, dtype), dtype) if dtype is not complex64 else by * scale
    elif scale is not None:
        by = _in(scale, dtype, at) * by
    if isinstance(by, array) or by != 1:
        out = out * by
    if loc is not None:
        out = out + _in(loc, dtype, at)
    return out


def _last(x: Node, k: int, stream: Stream) -> Node:
    """Place `k` of the last axis."""
    codes = (*[0] * (len(x.shape) - 1), 1)
    return reshape_node(slice_node(x, codes, (k,), (*x.shape[:-1], 1), stream), x.shape[:-1], stream)


def _in(x: ArrayLike, dtype: Dtype, stream: Stream) -> Any:
    return x if isinstance(x, (bool, int, float)) else wrap(cast_node(as_array(x)._node, dtype, stream))


def bernoulli(p: ArrayLike = 0.5, shape: Sequence[int] | None = None, key: array | None = None, stream: StreamOrDevice = None) -> array:
    """True with probability `p`.

    Args:
        p: A number or an array of floats.
        shape: The shape of the result; that of `p` if None.
        key: A key, or None for the global state.

    Returns:
        bool.

    Raises:
        ValueError: `p` is not floating or does not fit `shape`, or `key` is none.

    Example:
        >>> mx.random.bernoulli(0.5, (4,), key=mx.random.key(0))
        array([False, True, False, True], dtype=bool)
    """
    at = stream_of(stream)
    q = as_array(p)
    if q.dtype.rank != 2:
        raise ValueError(f"[bernoulli] bernoulli probability `p` must be a float type; got {q.dtype.name}.")
    size = q.shape if shape is None else _shape("bernoulli", shape)
    _fits("bernoulli", size, q)
    words = wrap(cast_node(_bits_node(_key_of(key, at), size, uint32, at), float32, at))
    if isinstance(p, float):
        return less(words, _rounded(np.float32(p) * np.float32(2**32), float32), stream=at)
    return less(words, wrap(cast_node(q._node, float32, at)) * float(2**32), stream=at)


_WIDE = 2**24  # float32 counts up to here


def randint(
    low: ArrayLike,
    high: ArrayLike,
    shape: Sequence[int] = (),
    dtype: Dtype | None = int32,
    key: array | None = None,
    stream: StreamOrDevice = None,
) -> array:
    """Uniform random integers in `[low, high)`.

    Args:
        low: The least value, a number or an array that broadcasts to `shape`.
        high: One more than the largest, likewise.
        shape: The shape of the result.
        dtype: An integer type or bool.
        key: A key, or None for the global state.

    Returns:
        As MLX, bit for bit, where float32 holds all values exactly; numbers beyond 2**24 are drawn without bias from 64
        bits instead.

    Raises:
        ValueError: `dtype` is not of integers, `low` or `high` do not fit `shape`, or `key` is none.

    Example:
        >>> mx.random.randint(0, 10, (4,), key=mx.random.key(0))
        array([9, 2, 6, 2], dtype=int32)
    """
    at, size = stream_of(stream), _shape("randint", shape)
    dtype = int32 if dtype is None else dtype
    if dtype.rank > 1:
        raise ValueError(f"[randint] randint only accepts integer dtypes and bool; got {dtype.name}.")
    low, high = _limit(low), _limit(high)
    _fits("randint", size, low, high)
    word = _key_of(key, at)
    if isinstance(low, int) and isinstance(high, int) and high > low and (max(abs(low), abs(high)) > _WIDE or high - low > _WIDE):
        return _wide_integers(word, low, high - low, size, dtype, at)
    drawn = wrap(cast_node(floor(_between(word, low, high, size, float32, at))._node, dtype, at))
    if isinstance(high, array):
        return minimum(drawn, wrap(cast_node(high._node, dtype, at)) - 1) if dtype is not bool_ else drawn
    return drawn if dtype is bool_ else where(drawn < int(high), drawn, max(int(low), int(high) - 1)) if _holds(dtype, high) else drawn


def _holds(dtype: Dtype, high: Any) -> bool:
    low_end = 0 if dtype.category == "unsigned" else -(2 ** (dtype.bits - 1))
    high_end = 2**dtype.bits - 1 if dtype.category == "unsigned" else 2 ** (dtype.bits - 1) - 1
    return low_end <= int(high) - 1 and int(high) <= high_end


def _wide_integers(key: Node, low: int, count: int, shape: tuple[int, ...], dtype: Dtype, stream: Stream) -> array:
    """`low` and above, below `low + count`: the high part of a 64-bit draw times `count` (the remainder from 2**32 on)."""
    words = _bits_node(key, (2, *shape), uint32, stream)
    codes = (1, *[0] * len(shape))
    a, b = (wrap(cast_node(reshape_node(slice_node(words, codes, (k,), (1, *shape), stream), shape, stream), uint64, stream)) for k in range(2))
    if count < 2**32:
        offset = (a * count + ((b * count) >> 32)) >> 32
    else:
        offset = ((a << 32) + b) % wrap(const_node(number_as("randint", count, uint64), uint64, stream))
    offset = wrap(cast_node(offset._node, int64, stream))
    return wrap(cast_node((offset + low)._node if -(2**63) <= low < 2**63 else offset._node, dtype, stream))


def truncated_normal(
    lower: ArrayLike,
    upper: ArrayLike,
    shape: Sequence[int] | None = None,
    dtype: Dtype | None = float32,
    key: array | None = None,
    stream: StreamOrDevice = None,
) -> array:
    """Standard normal random numbers between `lower` and `upper`.

    Args:
        lower: The lower end.
        upper: The upper end; both broadcast to `shape`.
        shape: The shape of the result; what both broadcast to if None.
        dtype: float32, float16 or bfloat16.
        key: A key, or None for the global state.

    Raises:
        ValueError: another dtype, the ends do not fit `shape`, or `key` is none.

    Example:
        >>> mx.random.truncated_normal(-1.0, 1.0, (2,), key=mx.random.key(0))
        array([-0.506315, 0.546452], dtype=float32)
    """
    at, dtype = stream_of(stream), _real("truncated_normal", dtype)
    low, high = (wrap(cast_node(as_array(x)._node, dtype, at)) for x in (lower, upper))
    size = broadcast_shape(low.shape, high.shape) if shape is None else _shape("truncated_normal", shape)
    _fits("truncated_normal", size, low, high)
    root = _rounded(math.sqrt(2), dtype)
    u = _between(_key_of(key, at), erf(low / root, stream=at), erf(high / root, stream=at), size, dtype, at)
    return clip(erfinv(u, stream=at) * root, low, high, stream=at)


def gumbel(shape: Sequence[int] = (), dtype: Dtype | None = float32, key: array | None = None, stream: StreamOrDevice = None) -> array:
    """Random numbers of the standard Gumbel distribution.

    Args:
        shape: The shape of the result.
        dtype: float32, float16 or bfloat16.
        key: A key, or None for the global state.

    Raises:
        ValueError: another dtype, or `key` is none.

    Example:
        >>> mx.random.gumbel((2,), key=mx.random.key(0))
        array([-0.425993, 1.52325], dtype=float32)
    """
    at, dtype = stream_of(stream), _real("gumbel", dtype)
    u = _between(_key_of(key, at), 0.0, 1.0, _shape("gumbel", shape), dtype, at)
    out: array = -log(-log(u, stream=at), stream=at)
    return out


def laplace(
    shape: Sequence[int] = (),
    dtype: Dtype | None = float32,
    loc: ArrayLike = 0.0,
    scale: ArrayLike = 1.0,
    key: array | None = None,
    stream: StreamOrDevice = None,
) -> array:
    """Random numbers of a Laplace distribution.

    Args:
        shape: The shape of the result.
        dtype: float32, float16 or bfloat16.
        loc: The mean.
        scale: The mean distance from it.
        key: A key, or None for the global state.

    Raises:
        ValueError: another dtype, or `key` is none.

    Example:
        >>> mx.random.laplace((2,), key=mx.random.key(0))
        array([0.837963, -0.937127], dtype=float32)
    """
    at, dtype = stream_of(stream), _real("laplace", dtype)
    u = _between(_key_of(key, at), _ABOVE_MINUS_ONE, 1.0, _shape("laplace", shape), float32, at)
    out = wrap(cast_node((sign(u, stream=at) * log1p(-abs_(u, stream=at), stream=at))._node, dtype, at))
    if not (isinstance(scale, (int, float)) and scale == 1):
        out = out * _in(scale, dtype, at)
    return out if isinstance(loc, (int, float)) and loc == 0 else out + _in(loc, dtype, at)


def categorical(
    logits: array,
    axis: int = -1,
    shape: Sequence[int] | None = None,
    num_samples: int | None = None,
    key: array | None = None,
    stream: StreamOrDevice = None,
) -> array:
    """Random categories, by the logarithms of their weights.

    Args:
        logits: Along `axis`, the logarithms; they need not be normalized.
        axis: The axis of categories.
        shape: The shape of the result; must be what the others axes of `logits` broadcast to.
        num_samples: How many draws for each of the others axes, along a new last axis of the result.
        key: A key, or None for the global state.

    Returns:
        uint32.

    Raises:
        ValueError: both `shape` and `num_samples` are given, `shape` does not fit, or `key` is none.
        IndexError: `axis` is out of range.

    Example:
        >>> mx.random.categorical(mx.array([0.0, 100.0]), key=mx.random.key(0))
        array(1, dtype=uint32)
    """
    at = stream_of(stream)
    x = as_array(logits)._node
    axis = one_axis("categorical", axis, len(x.shape))
    if shape is not None and num_samples is not None:
        raise ValueError("[categorical] At most one of shape or num_samples can be specified.")
    rank, n = len(x.shape), x.shape[axis]
    others = (*x.shape[:axis], *x.shape[axis + 1 :])
    back = axis - rank  # the axis of categories, from the end
    if num_samples is not None:
        size = (*others, *as_shape("categorical", num_samples))
        noise_shape = (*x.shape, size[-1])
        x = reshape_node(x, (*x.shape, 1), at)
        back -= 1
    else:
        size = others if shape is None else _shape("categorical", shape)
        if broadcast_shape(size, others) != size:
            raise ValueError(
                f"[categorical] Requested shape {show_shape(size)} is not broadcast compatible with the shape {show_shape(others)} of the other axes."
            )
        split_at = len(size) + 1 + back
        noise_shape = (*size[:split_at], n, *size[split_at:])
    word = _key_of(key, at)
    if rank == 1 and size and n <= _LONGEST_TABLE:
        return _by_table(word, wrap(reshape_node(x, (n,), at)), size, at)
    noise = -log(-log(_between(word, 0.0, 1.0, noise_shape, float32, at), stream=at), stream=at)
    return argmax(wrap(broadcast_node(x, noise_shape, at)) + noise, back, stream=at)


_LONGEST_TABLE = 4096  # categories; a cumulative sum of more is not worth its square


def _by_table(key: Node, logits: array, size: tuple[int, ...], stream: Stream) -> array:
    """Categories of one distribution: how many cumulative weights a uniform number is above, as in MLX."""
    n = logits.shape[0]
    weights = softmax(wrap(cast_node(logits._node, float32, stream)), -1, stream=stream)
    count = wrap(iota_node(n, 0, 1, int32, stream))
    below = less_equal(count, wrap(reshape_node(count._node, (n, 1), stream)), stream)
    table = sum_(where(below, weights, 0.0, stream=stream), -1, stream=stream)
    u = _between(key, 0.0, 1.0, (*size, 1), float32, stream)
    above = wrap(cast_node(less(table, u, stream)._node, uint32, stream))
    return minimum(sum_(above, -1, stream=stream), n - 1, stream=stream)


__all__ = [
    "bernoulli",
    "bits",
    "categorical",
    "gumbel",
    "key",
    "laplace",
    "normal",
    "randint",
    "seed",
    "split",
    "state",
    "truncated_normal",
    "uniform",
]
