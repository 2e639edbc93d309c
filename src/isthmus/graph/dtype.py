"""The fourteen element types, their categories and how they promote.

A `Dtype` is one of fourteen shared objects, compared by identity. Python scalars are *weak*: beside an array they
take the array's dtype unless their category (bool < integer < floating < complex) is higher.
"""

from __future__ import annotations

import enum
from typing import Any

import ml_dtypes
import numpy as np


class DtypeCategory(enum.Enum):
    """A set of dtypes, as in `numpy.issubdtype`."""

    complexfloating = 0
    floating = 1
    inexact = 2
    signedinteger = 3
    unsignedinteger = 4
    integer = 5
    number = 6
    generic = 7

    def __repr__(self) -> str:
        return f"DtypeCategory.{self.name}"

    def __str__(self) -> str:
        return f"DtypeCategory.{self.name}"


class Dtype:
    """An element type. `size` is in bytes.

    `rank` orders categories for weak scalars: 0 bool, 1 integer, 2 floating, 3 complex.
    """

    __slots__ = ("bits", "category", "code", "index", "name", "numpy", "rank", "size")

    def __init__(self, name: str, index: int, size: int, rank: int, category: str, numpy: Any, code: str) -> None:
        self.name = name
        self.index = index
        self.size = size
        self.rank = rank
        self.category = category
        self.numpy = np.dtype(numpy)
        self.code = code
        self.bits = size * 8

    def __repr__(self) -> str:
        return f"mlx.core.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_by_name, (self.name,))

    def __deepcopy__(self, memo: Any) -> Dtype:
        return self


bool_ = Dtype("bool", 0, 1, 0, "bool", np.bool_, "b1")
uint8 = Dtype("uint8", 1, 1, 1, "unsigned", np.uint8, "u8")
uint16 = Dtype("uint16", 2, 2, 1, "unsigned", np.uint16, "u16")
uint32 = Dtype("uint32", 3, 4, 1, "unsigned", np.uint32, "u32")
uint64 = Dtype("uint64", 4, 8, 1, "unsigned", np.uint64, "u64")
int8 = Dtype("int8", 5, 1, 1, "signed", np.int8, "i8")
int16 = Dtype("int16", 6, 2, 1, "signed", np.int16, "i16")
int32 = Dtype("int32", 7, 4, 1, "signed", np.int32, "i32")
int64 = Dtype("int64", 8, 8, 1, "signed", np.int64, "i64")
float16 = Dtype("float16", 9, 2, 2, "floating", np.float16, "f16")
float32 = Dtype("float32", 10, 4, 2, "floating", np.float32, "f32")
float64 = Dtype("float64", 11, 8, 2, "floating", np.float64, "f64")
bfloat16 = Dtype("bfloat16", 12, 2, 2, "floating", ml_dtypes.bfloat16, "bf16")
complex64 = Dtype("complex64", 13, 8, 3, "complex", np.complex64, "c64")

ALL: tuple[Dtype, ...] = (
    bool_, uint8, uint16, uint32, uint64, int8, int16, int32, int64, float16, float32, float64, bfloat16, complex64,
)  # fmt: skip

generic = DtypeCategory.generic
number = DtypeCategory.number
integer = DtypeCategory.integer
signedinteger = DtypeCategory.signedinteger
unsignedinteger = DtypeCategory.unsignedinteger
inexact = DtypeCategory.inexact
floating = DtypeCategory.floating
complexfloating = DtypeCategory.complexfloating

_PARENT: dict[str, str] = {
    "complexfloating": "inexact",
    "floating": "inexact",
    "inexact": "number",
    "signedinteger": "integer",
    "unsignedinteger": "integer",
    "integer": "number",
    "number": "generic",
}
_CATEGORY_OF: dict[str, str] = {
    "bool": "generic",
    "unsigned": "unsignedinteger",
    "signed": "signedinteger",
    "floating": "floating",
    "complex": "complexfloating",
}

_NAMES: dict[str, Dtype] = {d.name: d for d in ALL}
_FROM_NUMPY: dict[Any, Dtype] = {d.numpy: d for d in ALL}


def _by_name(name: str) -> Dtype:
    return _NAMES[name]


def from_numpy(dtype: Any) -> Dtype:
    """The dtype of a NumPy array; float64 stays float64 here, complex128 becomes complex64."""
    found = _FROM_NUMPY.get(np.dtype(dtype))
    if found is not None:
        return found
    if np.dtype(dtype) == np.complex128:
        return complex64
    raise TypeError(f"[array] NumPy dtype {dtype} has no counterpart; use one of {', '.join(_NAMES)}.")


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Whether a dtype or category lies within another, as in `numpy.issubdtype`.

    Args:
        arg1: A `Dtype` or `DtypeCategory`.
        arg2: A `Dtype` or `DtypeCategory`.

    Returns:
        True where every dtype of `arg1` is one of `arg2`.
    """
    if isinstance(arg2, Dtype):
        return arg1 is arg2
    at: str | None = _CATEGORY_OF[arg1.category] if isinstance(arg1, Dtype) else arg1.name
    while at is not None:
        if at == arg2.name:
            return True
        at = _PARENT.get(at)
    return False


def _promote_pair(a: Dtype, b: Dtype) -> Dtype:
    if a is b:
        return a
    if a.rank != b.rank and (a.rank == 0 or b.rank == 0):
        return a if a.rank > b.rank else b
    if a is complex64 or b is complex64:
        return complex64
    if a.rank == 2 or b.rank == 2:
        if a.rank != b.rank:
            return a if a.rank == 2 else b
        if a is float64 or b is float64:
            return float64
        return float32  # float32 with a half type, or float16 with bfloat16
    if a.category == b.category:
        return a if a.size > b.size else b
    signed, unsigned = (a, b) if a.category == "signed" else (b, a)
    if signed.size > unsigned.size:
        return signed
    return {1: int16, 2: int32, 4: int64, 8: float32}[unsigned.size]


PROMOTE: tuple[tuple[Dtype, ...], ...] = tuple(tuple(_promote_pair(a, b) for b in ALL) for a in ALL)


def promote(a: Dtype, b: Dtype) -> Dtype:
    """The smallest dtype that holds both, by MLX's table."""
    if a is b:
        return a
    return PROMOTE[a.index][b.index]


def to_floating(a: Dtype) -> Dtype:
    """`a` if it is floating or complex, else float32."""
    return a if a.rank >= 2 else float32
