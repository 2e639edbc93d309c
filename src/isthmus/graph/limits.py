"""The limits of dtypes, and questions about how they convert."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from isthmus.graph.array import array
from isthmus.graph.dtype import Dtype, bfloat16, bool_, complex64, float32, promote


class finfo:
    """The limits of a floating dtype; of complex64 those of its parts.

    Args:
        dtype: A floating or complex dtype.

    Attributes:
        dtype: The dtype asked about.
        bits: Bits of a number, of one part for complex64.
        min, max: The finite ends.
        eps: The distance from 1 to the next larger number.
        smallest_normal: The smallest positive number of full precision.

    Raises:
        ValueError: the dtype is an integer's or bool.
    """

    __slots__ = ("bits", "dtype", "eps", "max", "min", "smallest_normal")

    def __init__(self, dtype: Dtype, /) -> None:
        if not isinstance(dtype, Dtype):
            raise TypeError(f"[finfo] a dtype such as mx.float32 is needed; got {dtype!r}.")
        if dtype.rank < 2:
            raise ValueError(f"[finfo] {dtype.name} is not inexact; iinfo knows about integers.")
        part = float32 if dtype is complex64 else dtype
        of: Any = ml_dtypes.finfo if part is bfloat16 else np.finfo
        limits: Any = of(part.numpy)
        self.dtype = dtype
        self.bits = part.bits
        self.min = float(limits.min)
        self.max = float(limits.max)
        self.eps = float(limits.eps)
        self.smallest_normal = float(limits.smallest_normal)

    def __repr__(self) -> str:
        return f"finfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype.name})"


class iinfo:
    """The limits of an integer dtype.

    Args:
        dtype: An integer dtype.

    Attributes:
        dtype: The dtype asked about.
        min, max: The ends.

    Raises:
        ValueError: the dtype is not an integer's.
    """

    __slots__ = ("dtype", "max", "min")

    def __init__(self, dtype: Dtype, /) -> None:
        if not isinstance(dtype, Dtype):
            raise TypeError(f"[iinfo] a dtype such as mx.int32 is needed; got {dtype!r}.")
        if dtype.rank != 1:
            raise ValueError(f"[iinfo] {dtype.name} is not an integer dtype; finfo knows about floats.")
        limits = np.iinfo(dtype.numpy)
        self.dtype = dtype
        self.min = int(limits.min)
        self.max = int(limits.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype.name})"


def result_type(*arrays_and_dtypes: Any) -> Dtype:
    """The dtype that arrays and dtypes promote to together.

    Raises:
        ValueError: nothing, or something else, is given.

    Example:
        >>> mx.result_type(mx.int8, mx.uint8)
        mlx.core.int16
    """
    found: Dtype | None = None
    for x in arrays_and_dtypes:
        if not isinstance(x, (array, Dtype)):
            raise ValueError(f"[result_type] arrays or dtypes are needed; got {type(x).__name__}.")
        dtype = x.dtype if isinstance(x, array) else x
        found = dtype if found is None else promote(found, dtype)
    if found is None:
        raise ValueError("[result_type] at least one array or dtype is needed.")
    return found


def can_cast(from_: Any, to: Dtype) -> bool:
    """Whether a dtype converts to another by promotion.

    Example:
        >>> mx.can_cast(mx.float32, mx.int32)
        False
    """
    return result_type(from_, to) is to


_KINDS: dict[str, Callable[[Dtype], bool]] = {
    "bool": lambda d: d is bool_,
    "signed integer": lambda d: d.category == "signed",
    "unsigned integer": lambda d: d.category == "unsigned",
    "integral": lambda d: d.rank == 1,
    "real floating": lambda d: d.rank == 2,
    "complex floating": lambda d: d.rank == 3,
    "numeric": lambda d: d.rank > 0,
}


def isdtype(dtype: Dtype, kind: Any) -> bool:
    """Whether a dtype is of a kind, as the array API standard names them.

    Args:
        dtype: The dtype asked about.
        kind: A dtype, one of "bool", "signed integer", "unsigned integer", "integral", "real floating",
            "complex floating", "numeric", or a tuple of these.

    Raises:
        ValueError: `kind` is something else.

    Example:
        >>> mx.isdtype(mx.float32, ("integral", "real floating"))
        True
    """
    if isinstance(kind, Dtype):
        return dtype is kind
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"[isdtype] {kind!r} is no kind of dtype; there are {', '.join(_KINDS)}.")
        return _KINDS[kind](dtype)
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    raise ValueError(f"[isdtype] a dtype, a string or a tuple of these is needed; got {kind!r}.")
