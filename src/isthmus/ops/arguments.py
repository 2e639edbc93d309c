"""What users pass, brought to one form: arrays, axes, shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from isthmus.graph.array import array, check_range, special
from isthmus.graph.device import Stream, as_stream, defaults
from isthmus.graph.dtype import Dtype, bool_, complex64, float32, int32, int64
from isthmus.graph.errors import AxisError
from isthmus.graph.node import Node

ArrayLike = Any  # an array, a number, or something that becomes an array
StreamOrDevice = Any  # None, a Stream, a Device or a DeviceType
Axes = Any  # None, an integer or a sequence of integers


def as_array(x: ArrayLike) -> array:
    """`x` as an array."""
    if isinstance(x, array):
        return x
    found: array = special.call["as_array"](x, None)
    return found


def as_node(x: ArrayLike) -> Node:
    return as_array(x)._node


def stream_of(stream: StreamOrDevice) -> Stream:
    return defaults.stream if stream is None else as_stream(stream)


def one_axis(op: str, axis: int, rank: int) -> int:
    """An axis counted from the front.

    Raises:
        AxisError: it is out of range (both an IndexError and a ValueError).
        TypeError: it is no integer.
    """
    if type(axis) is not int:
        axis = as_int(op, "axis", axis)
    if not -rank <= axis < rank:
        raise AxisError(f"[{op}] axis {axis} is out of range for an array of {rank} dimensions.")
    return axis if axis >= 0 else axis + rank


def all_axes(op: str, axis: Axes, rank: int) -> tuple[int, ...]:
    """Axes counted from the front, ascending; `None` is all of them.

    Raises:
        AxisError: one is out of range.
        ValueError: one comes twice.
    """
    if axis is None:
        return tuple(range(rank))
    if type(axis) is int:
        return (one_axis(op, axis, rank),)
    if not isinstance(axis, (tuple, list)):
        return (one_axis(op, axis, rank),)
    found = sorted(one_axis(op, a, rank) for a in axis)
    for k in range(1, len(found)):
        if found[k] == found[k - 1]:
            raise ValueError(f"[{op}] axis {found[k]} is named twice in {tuple(axis)}.")
    return tuple(found)


def as_int(op: str, name: str, value: Any) -> int:
    """An integer argument, from anything that Python takes as an index.

    Raises:
        TypeError: it is no integer.
    """
    try:
        return int(value.__index__())
    except AttributeError:
        raise TypeError(f"[{op}] {name} must be an integer; got {value!r}.") from None


def as_shape(op: str, shape: Any) -> tuple[int, ...]:
    """A shape argument: an integer or a sequence of them, none negative.

    Raises:
        TypeError: a size is no integer.
        ValueError: a size is negative.
    """
    if not isinstance(shape, (tuple, list)):
        shape = (as_int(op, "shape", shape),)
    out = []
    for size in shape:
        n = size if type(size) is int else as_int(op, "a size", size)
        if n < 0:
            raise ValueError(f"[{op}] sizes must not be negative; got {tuple(shape)}.")
        out.append(n)
    return tuple(out)


def as_ints(op: str, name: str, values: Any) -> tuple[int, ...]:
    """An integer or a sequence of integers, as a tuple."""
    if isinstance(values, Sequence):
        for v in values:
            if type(v) is not int:
                return tuple([as_int(op, name, v) for v in values])
        return tuple(values)
    return (as_int(op, name, values),)


def default_dtype(value: Any) -> Dtype:
    """The dtype of a Python number on its own.

    Raises:
        ValueError: an integer that int64 does not hold.
    """
    if isinstance(value, bool):
        return bool_
    if isinstance(value, int):
        if -(2**31) <= value < 2**31:
            return int32
        if -(2**63) <= value < 2**63:
            return int64
        raise ValueError(f"[array] {value} does not fit int64; dtype=mx.uint64 holds up to 2**64 - 1, mx.float32 rounds.")
    return float32 if isinstance(value, float) else complex64


def as_dtype(op: str, dtype: Any, default: Dtype) -> Dtype:
    """A dtype, or `default` for None.

    Raises:
        TypeError: it is something else.
    """
    if dtype is None:
        return default
    if not isinstance(dtype, Dtype):
        raise TypeError(f"{op}(): incompatible function arguments: dtype must be one such as mx.float32; got {dtype!r}.")
    return dtype


def number_as(op: str, value: Any, dtype: Dtype) -> Any:
    """A Python number as the number that `dtype` is filled from: cut, not rounded, for integers.

    Raises:
        ValueError: it is not finite or out of range, and `dtype` is an integer's.
    """
    if dtype.rank == 3:
        return complex(value)
    if isinstance(value, complex):
        value = value.real
    if dtype.rank == 2:
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if dtype.rank == 0:
        return value != 0
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"[{op}] {value} has no value in {dtype.name}.")
    whole = int(value)
    check_range(whole, dtype)
    return whole - 2**64 if whole >= 2**63 else whole  # dynamic integers are int64; the bits are uint64's
