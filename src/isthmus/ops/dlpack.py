"""DLPack, the exchange of arrays in memory between frameworks (dmlc.github.io/dlpack): both ways, by ctypes.

NumPy's own knows no bfloat16. A capsule holds a DLManagedTensor: the tensor's description, and whom to call when it is
no longer needed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from isthmus.graph.dtype import Dtype

_CPU, CUDA, _CUDA_HOST = 1, 2, 3
_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_api: Any = ctypes.pythonapi
_api.PyCapsule_GetPointer.argtypes, _api.PyCapsule_GetPointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
_api.PyCapsule_SetName.argtypes, _api.PyCapsule_SetName.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int
_api.PyCapsule_IsValid.argtypes, _api.PyCapsule_IsValid.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int
_api.PyCapsule_New.argtypes, _api.PyCapsule_New.restype = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p), ctypes.py_object

# --- in ---

_FROM_CODE: dict[tuple[int, int], Any] = {
    **{(_INT, bits): np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{(_UINT, bits): np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{(_FLOAT, bits): np.dtype(f"f{bits // 8}") for bits in (16, 32, 64)},
    **{(_COMPLEX, bits): np.dtype(f"c{bits // 8}") for bits in (64, 128)},
    (_BFLOAT, 16): np.dtype(ml_dtypes.bfloat16),
    (_BOOL, 8): np.dtype(np.bool_),
}


class _Held:
    """Calls a tensor's deleter when nothing reads its memory any more."""

    def __init__(self, managed: _Managed, address: int) -> None:
        self.deleter = managed.deleter
        self.address = address

    def release(self) -> None:
        deleter, self.deleter = self.deleter, None
        if deleter:
            _Deleter(deleter)(self.address)

    def __del__(self) -> None:
        self.release()


def to_numpy(x: Any) -> Any:
    """A NumPy array on the memory of anything with `__dlpack__`, which is taken over.

    Raises:
        BufferError: the memory is not on the CPU.
        TypeError: no such dtype is known.
    """
    device = device_of(x)
    if device[0] not in (_CPU, _CUDA_HOST):
        raise BufferError(f"[from_dlpack] the array is on DLPack device {device}, not on the CPU; move it there first.")
    return _read(x.__dlpack__())


def device_of(x: Any) -> tuple[int, int]:
    kind, index = x.__dlpack_device__() if hasattr(x, "__dlpack_device__") else (_CPU, 0)
    return int(kind), int(index)


class OnGpu:
    """Memory on a GPU that was taken over: where it begins, its bytes, what lies there in elements, and whom to tell at the end."""

    def __init__(self, address: int, nbytes: int, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, release: Callable[[], None]) -> None:
        self.address = address
        self.nbytes = nbytes
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.offset = offset
        self.release = release


def on_gpu(x: Any, stream: int) -> OnGpu:
    """The memory of anything with `__dlpack__` that is on a GPU, ready for work on `stream`."""
    shape, strides, dtype, start, low, high, held = _taken(x.__dlpack__(stream=stream))
    count = 0 if 0 in shape else high - low + 1
    return OnGpu(start, count * dtype.itemsize, dtype, shape, strides, -low, held.release)


def _read(capsule: Any) -> Any:
    shape, strides, dtype, start, low, high, held = _taken(capsule)
    if 0 in shape:
        return np.empty(shape, dtype)
    memory: Any = (ctypes.c_uint8 * ((high - low + 1) * dtype.itemsize)).from_address(start)
    memory.held = held
    return np.ndarray(shape, dtype, memory, -low * dtype.itemsize, [step * dtype.itemsize for step in strides])


def _taken(capsule: Any) -> tuple[Any, ...]:
    """A capsule's shape, strides, dtype, first address, least and greatest offset in elements; and what holds its memory."""
    if not _api.PyCapsule_IsValid(capsule, b"dltensor"):
        raise ValueError("[from_dlpack] a capsule named 'dltensor', not yet used, is needed.")
    address = _api.PyCapsule_GetPointer(capsule, b"dltensor")
    managed = _Managed.from_address(address)
    tensor = managed.tensor
    dtype = _FROM_CODE.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1:
        raise TypeError(f"[from_dlpack] DLPack type code {tensor.code} of {tensor.bits} bits, {tensor.lanes} lanes, has no counterpart.")
    shape = tuple(tensor.shape[k] for k in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[k] for k in range(tensor.ndim))
    else:
        strides = tuple(int(np.prod(shape[k + 1 :], dtype=np.int64)) for k in range(len(shape)))
    _api.PyCapsule_SetName(capsule, b"used_dltensor")
    held = _Held(managed, address)
    low = sum((n - 1) * step for n, step in zip(shape, strides, strict=True) if step < 0)
    high = sum((n - 1) * step for n, step in zip(shape, strides, strict=True) if step > 0)
    return shape, strides, dtype, (tensor.data or 0) + tensor.byte_offset + low * dtype.itemsize, low, high, held


# --- out ---

_given: dict[int, tuple[Any, ...]] = {}  # what tensors given away keep alive, by address


def _release(address: int) -> None:
    _given.pop(address, None)


def _capsule_gone(capsule: int) -> None:
    """A capsule that nobody has used is let go of."""
    if _raw_is_valid(capsule, b"dltensor"):
        _given.pop(_raw_pointer(capsule, b"dltensor"), None)


_release_pointer = _Deleter(_release)
_capsule_gone_pointer = _Deleter(_capsule_gone)


# The same functions, taking the address of a capsule that is being destroyed.
_raw_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_raw_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))

_CODES = {"bool": _BOOL, "signed": _INT, "unsigned": _UINT, "floating": _FLOAT, "complex": _COMPLEX}
_NAME = b"dltensor"


def capsule(a: Any, dtype: Dtype, device: tuple[int, int] = (_CPU, 0)) -> Any:
    """A capsule on the memory of a NumPy array of `dtype`, which it keeps alive. On a GPU the array only says where it is."""
    code = _BFLOAT if dtype.name == "bfloat16" else _CODES[dtype.category]
    sizes = (ctypes.c_int64 * a.ndim)(*a.shape)
    steps = (ctypes.c_int64 * a.ndim)(*(step // a.itemsize for step in a.strides))
    managed = _Managed()
    tensor = managed.tensor
    tensor.data = a.ctypes.data
    tensor.device_type, tensor.device_id, tensor.ndim = *device, a.ndim
    tensor.code, tensor.bits, tensor.lanes = code, dtype.bits, 1
    tensor.shape = ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = ctypes.cast(_release_pointer, ctypes.c_void_p).value
    address = ctypes.addressof(managed)
    _given[address] = (managed, a, sizes, steps)
    return _api.PyCapsule_New(address, _NAME, ctypes.cast(_capsule_gone_pointer, ctypes.c_void_p))
