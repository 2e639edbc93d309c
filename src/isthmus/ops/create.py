"""Arrays made of numbers alone: constants, counts, masks.

The primitives are CONST (one number, which a plan takes as it comes) and IOTA (a count); all else is made of them, so
nothing here has memory of its own until something stores it.
"""

from __future__ import annotations

import builtins
import math
from typing import Any

from isthmus.graph.array import array, broadcast_node, cast_node, wrap
from isthmus.graph.device import Stream
from isthmus.graph.dtype import Dtype, bool_, float32, float64, int32, int64
from isthmus.graph.node import Node, make
from isthmus.kernel import scalar as s
from isthmus.ops import elementwise
from isthmus.ops.arguments import ArrayLike, StreamOrDevice, as_array, as_dtype, as_int, as_shape, default_dtype, number_as, stream_of
from isthmus.ops.families import Move, Place
from isthmus.ops.move import reshape_node

# --- const: dyn (value,) ---

CONST = Move("const", lambda ctx, node, place: ctx.number(node, 0, node.dtype), None, None, None)


def const_node(value: Any, dtype: Dtype, stream: Stream) -> Node:
    """A number without axes, `value` as `number_as` gives it."""
    return make(CONST, (), (), dtype, stream, (), (value,))


def full_node(shape: tuple[int, ...], value: Any, dtype: Dtype, stream: Stream) -> Node:
    node = const_node(value, dtype, stream)
    return broadcast_node(node, shape, stream) if shape else node


def zeros_node(shape: tuple[int, ...], dtype: Dtype, stream: Stream) -> Node:
    """Zeros, as a node."""
    return full_node(shape, 0.0 if dtype.rank == 2 else 0, dtype, stream)


# --- iota: attrs (code,); 0: dyn (start, step), 1: dyn (start,) and step one, 2: from 0 by one ---


def _iota_lower(ctx: Any, node: Any, place: Place) -> s.Expr:
    code, dtype = node.attrs[0], node.dtype
    at = ctx.index(place[0])
    if code == 2:
        return s.cast(at, dtype)
    wide = int64 if dtype.rank < 2 else float64
    at = s.cast(at, wide)
    if code == 0:
        at = s.mul(at, ctx.number(node, 1, wide))
    return s.cast(s.add(at, ctx.number(node, 0, wide)), dtype)


IOTA = Move("iota", _iota_lower, None, None, None, new_sizes=True)


def iota_node(n: int, start: Any, step: Any, dtype: Dtype, stream: Stream) -> Node:
    """`start + i * step` for `i` below `n`: exact for integers, in float64 and rounded once for the others."""
    if step == 1:
        return make(IOTA, (), (n,), dtype, stream, (1 if start else 2,), (start,) if start else ())
    return make(IOTA, (), (n,), dtype, stream, (0,), (start, step))


# --- public functions ---


def full(shape: Any, vals: ArrayLike, dtype: Dtype | None = None, *, stream: StreamOrDevice = None) -> array:
    """An array filled with `vals`.

    Args:
        shape: An integer or a sequence of them.
        vals: A number, or an array that broadcasts to `shape`.
        dtype: That of `vals` if None.

    Raises:
        ValueError: a negative size, or a number that `dtype` does not hold.

    Example:
        >>> mx.full((2, 2), 7)
        array([[7, 7],
               [7, 7]], dtype=int32)
    """
    sizes, at = as_shape("full", shape), stream_of(stream)
    if isinstance(vals, (bool, int, float, complex)):
        kind = default_dtype(vals) if dtype is None else as_dtype("full", dtype, float32)
        return wrap(full_node(sizes, number_as("full", vals, kind), kind, at))
    node = as_array(vals)._node
    node = cast_node(node, as_dtype("full", dtype, node.sig.dtype), at)
    return wrap(_broadcast_to(node, sizes, at))


def _broadcast_to(node: Node, shape: tuple[int, ...], stream: Stream) -> Node:
    from isthmus.ops.move import broadcast_to_node

    return broadcast_to_node("full", node, shape, stream)


def _filled(op: str, shape: Any, value: int, dtype: Dtype | None, stream: StreamOrDevice) -> array:
    kind = as_dtype(op, dtype, float32)
    return wrap(full_node(as_shape(op, shape), number_as(op, value, kind), kind, stream_of(stream)))


def zeros(shape: Any, dtype: Dtype | None = float32, *, stream: StreamOrDevice = None) -> array:
    """Zeros.

    Raises:
        ValueError: a negative size.

    Example:
        >>> mx.zeros((2,), mx.int32)
        array([0, 0], dtype=int32)
    """
    return _filled("zeros", shape, 0, dtype, stream)


def ones(shape: Any, dtype: Dtype | None = float32, *, stream: StreamOrDevice = None) -> array:
    """Ones.

    Raises:
        ValueError: a negative size.

    Example:
        >>> mx.ones((2,))
        array([1, 1], dtype=float32)
    """
    return _filled("ones", shape, 1, dtype, stream)


def empty(shape: Any, dtype: Dtype | None = float32, *, stream: StreamOrDevice = None) -> array:
    """An array whose values do not matter; they are zeros.

    Raises:
        ValueError: a negative size.

    Example:
        >>> mx.empty((2, 3)).shape
        (2, 3)
    """
    return _filled("empty", shape, 0, dtype, stream)


def zeros_like(a: array, /, dtype: Dtype | None = None, *, stream: StreamOrDevice = None) -> array:
    """Zeros of the shape of `a`, and of its dtype if none is given.

    Example:
        >>> mx.zeros_like(mx.array([1.5, 2.5]))
        array([0, 0], dtype=float32)
    """
    return full_like(a, 0, dtype, stream=stream)


def ones_like(a: array, /, dtype: Dtype | None = None, *, stream: StreamOrDevice = None) -> array:
    """Ones of the shape of `a`, and of its dtype if none is given.

    Example:
        >>> mx.ones_like(mx.array([1.5, 2.5]))
        array([1, 1], dtype=float32)
    """
    return full_like(a, 1, dtype, stream=stream)


def empty_like(a: array, /, dtype: Dtype | None = None, *, stream: StreamOrDevice = None) -> array:
    """An array of the shape of `a` whose values do not matter; they are zeros.

    Example:
        >>> mx.empty_like(mx.array([1.5, 2.5])).shape
        (2,)
    """
    return full_like(a, 0, dtype, stream=stream)


def full_like(a: array, vals: ArrayLike, dtype: Dtype | None = None, *, stream: StreamOrDevice = None) -> array:
    """`vals` in the shape of `a`, and in its dtype if none is given.

    Example:
        >>> mx.full_like(mx.array([1.5, 2.5]), 4)
        array([4, 4], dtype=float32)
    """
    x = as_array(a)
    return full(x.shape, vals, x.dtype if dtype is None else dtype, stream=stream)


def arange(start: Any = None, stop: Any = None, step: Any = None, dtype: Dtype | None = None, *, stream: StreamOrDevice = None) -> array:
    """`start`, `start + step`, ... before `stop`. With one number, that is `stop`, and `start` is 0.

    Args:
        start: The first.
        stop: Not reached.
        step: The difference; 1 if None.
        dtype: If None: float32 where a number is a float, else int32, or int64 where int32 does not hold them.

    Returns:
        One-dimensional; floats are `start + i * step` rounded once.

    Raises:
        TypeError: not numbers.
        ValueError: NaN, an infinite length, a step of 0, or dtype bool.

    Example:
        >>> mx.arange(2, 8, 3)
        array([2, 5], dtype=int32)
    """
    if isinstance(step, Dtype):  # arange(stop, step, dtype)
        start, stop, step, dtype = 0, start, stop, step
    if stop is None:
        start, stop = 0, start
    elif start is None:
        start = 0
    if step is None:
        step = 1
    for value in (start, stop, step):
        if isinstance(value, bool):
            raise ValueError("[arange] booleans are not counted; got a bool.")
        if not isinstance(value, (int, float)):
            raise TypeError(f"[arange] numbers are needed; got {type(value).__name__}.")
    whole = not any(isinstance(value, float) for value in (start, stop, step))
    dtype = as_dtype("arange", dtype, float32 if not whole else int32 if all(-(2**31) <= v < 2**31 for v in (start, stop)) else int64)
    if dtype is bool_:
        raise ValueError("[arange] booleans are not counted; got dtype bool.")
    if step == 0:
        raise ValueError("[arange] step is 0; the count would never end.")
    if whole:
        n = max(0, -((start - stop) // step))
    else:
        length = (stop - start) / step
        if not math.isfinite(length):
            raise ValueError(f"[arange] from {start} to {stop} by {step} has no length.")
        n = max(0, math.ceil(length))
    if dtype.rank < 2:  # as NumPy: the first two elements say what is counted
        if not all(math.isfinite(v) for v in (start, step)):
            raise ValueError(f"[arange] from {start} to {stop} by {step} has no length.")
        first = int(start)
        start, step = first, int(start + step) - first
    else:
        start, step = float(start), float(step)
    return wrap(iota_node(n, start, step, dtype, stream_of(stream)))


def linspace(start: Any, stop: Any, num: int | None = 50, endpoint: bool | Dtype = True, dtype: Dtype | None = float32, stream: StreamOrDevice = None) -> array:
    """`num` numbers at equal distances, from `start` to `stop`.

    Args:
        start: The first; a number or an array without axes.
        stop: The last, or the one after it.
        num: How many.
        endpoint: Whether `stop` is the last.
        dtype: float32 if None.

    Raises:
        ValueError: `num` is negative.

    Example:
        >>> mx.linspace(0, 1, 5)
        array([0, 0.25, 0.5, 0.75, 1], dtype=float32)
    """
    if isinstance(endpoint, Dtype):  # linspace(start, stop, num, dtype)
        dtype = endpoint
        endpoint = True
    n = as_int("linspace", "num", 50 if num is None else num)
    if n < 0:
        raise ValueError(f"[linspace] num must not be negative; got {n}.")
    at, kind = stream_of(stream), as_dtype("linspace", dtype, float32)
    gaps = n - 1 if endpoint else n
    if gaps <= 0:
        return full((n,), start, kind, stream=stream)
    if isinstance(start, (int, float)) and isinstance(stop, (int, float)):
        steps = wrap(iota_node(n, float(start), (stop - start) / gaps, float64 if kind.rank < 2 else kind, at))
    else:
        share = wrap(iota_node(n, 0.0, 1 / gaps, float64, at))
        steps = start + (stop - start) * share
    if endpoint:
        last = wrap(iota_node(n, 0, 1, int64, at)) == n - 1
        steps = elementwise.where(last, stop, steps, stream=stream)
    return wrap(cast_node(steps._node, kind, at))


def _grid(op: str, n: int, m: int | None, k: int, stream: Stream) -> tuple[array, array]:
    """Row numbers plus `k`, as a column, and column numbers, as a row."""
    rows, columns = as_int(op, "n", n), as_int(op, "m", n if m is None else m)
    if rows < 0 or columns < 0:
        raise ValueError(f"[{op}] sizes must not be negative; got {rows} by {columns}.")
    kind = int32 if builtins.max(rows + builtins.abs(k), columns) < 2**31 else int64
    down = reshape_node(iota_node(rows, as_int(op, "k", k), 1, kind, stream), (rows, 1), stream)
    return wrap(down), wrap(iota_node(columns, 0, 1, kind, stream))


def eye(n: int, m: int | None = None, k: int = 0, dtype: Dtype | None = float32, *, stream: StreamOrDevice = None) -> array:
    """Ones on a diagonal, zeros elsewhere.

    Args:
        n: Rows.
        m: Columns; `n` if None.
        k: Which diagonal: 0 the main one, above it where positive.
        dtype: float32 if None.

    Raises:
        ValueError: a negative size.

    Example:
        >>> mx.eye(2)
        array([[1, 0],
               [0, 1]], dtype=float32)
    """
    at = stream_of(stream)
    rows, columns = _grid("eye", n, m, k, at)
    return wrap(cast_node((rows == columns)._node, as_dtype("eye", dtype, float32), at))


def identity(n: int, dtype: Dtype | None = float32, *, stream: StreamOrDevice = None) -> array:
    """The identity matrix.

    Raises:
        ValueError: a negative size.

    Example:
        >>> mx.identity(2)
        array([[1, 0],
               [0, 1]], dtype=float32)
    """
    return eye(n, n, 0, dtype, stream=stream)


def tri(n: int, m: int | None = None, k: int = 0, dtype: Dtype | None = None, *, stream: StreamOrDevice = None) -> array:
    """Ones at and below a diagonal, zeros above.

    Args:
        n: Rows.
        m: Columns; `n` if None.
        k: Which diagonal: 0 the main one, above it where positive.
        dtype: float32 if None.

    Raises:
        ValueError: a negative size.

    Example:
        >>> mx.tri(2)
        array([[1, 0],
               [1, 1]], dtype=float32)
    """
    at = stream_of(stream)
    rows, columns = _grid("tri", n, m, k, at)
    return wrap(cast_node((rows >= columns)._node, float32 if dtype is None else dtype, at))


def _triangle(op: str, x: ArrayLike, k: int, lower: bool, stream: StreamOrDevice) -> array:
    a = as_array(x)
    if a.ndim < 2:
        raise ValueError(f"[{op}] at least two dimensions are needed; the shape is {a.shape}.")
    rows, columns = _grid(op, a.shape[-2], a.shape[-1], k if lower else k - 1, stream_of(stream))
    zero: Any = False if a.dtype is bool_ else 0
    return elementwise.where(rows >= columns, a if lower else zero, zero if lower else a, stream=stream)


def tril(x: array, k: int = 0, *, stream: StreamOrDevice = None) -> array:
    """The last two axes at and below diagonal `k`, zeros above.

    Raises:
        ValueError: fewer than two dimensions.

    Example:
        >>> mx.tril(mx.ones((2, 2)))
        array([[1, 0],
               [1, 1]], dtype=float32)
    """
    return _triangle("tril", x, k, True, stream)


def triu(x: array, k: int = 0, *, stream: StreamOrDevice = None) -> array:
    """The last two axes at and above diagonal `k`, zeros below.

    Raises:
        ValueError: fewer than two dimensions.

    Example:
        >>> mx.triu(mx.ones((2, 2)))
        array([[1, 1],
               [0, 1]], dtype=float32)
    """
    return _triangle("triu", x, k, False, stream)
