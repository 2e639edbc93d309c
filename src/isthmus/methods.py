"""One table from method name to op; the named methods of `array` are fastened on from it when this is imported.

This is also where values are asked for: `item`, printing, NumPy and the other readers evaluate first, then look.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from isthmus.backends.cpu import memory as cpu_memory
from isthmus.backends.place import gpu_info, gpu_of, lend
from isthmus.graph.array import array, special, wrap
from isthmus.graph.device import DeviceType, as_device, check_available, default_device
from isthmus.graph.dtype import Dtype, bfloat16
from isthmus.graph.node import Node
from isthmus.graph.show import array_text
from isthmus.ops import contract, convert, dlpack, elementwise, index, move, reduce  # noqa: F401  (contract: for operator @)
from isthmus.ops.arguments import StreamOrDevice
from isthmus.schedule.worker import evaluate

# --- evaluation ---


def values(a: array, export: bool = False) -> Any:
    """The values as a NumPy array on the same memory."""
    return convert.host_view(evaluated(a), export)


def evaluated(a: array) -> Node:
    node = a._node
    if node.buffer is None and 0 not in node.shape:
        evaluate([node])
    return node


# --- readers ---


def item(a: array) -> Any:
    """The value of an array of one element as a Python number.

    Raises:
        ValueError: it has none or several.

    Example:
        >>> mx.array(1.5).item()
        1.5
    """
    node = a._node
    if node.buffer is None and 0 not in node.shape:
        evaluate([node])
    return convert.item(node)


def tolist(a: array) -> Any:
    """The values as nested lists, or as a Python number if there are no axes.

    Example:
        >>> mx.array([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
    """
    node = a._node
    if node.buffer is None and 0 not in node.shape:
        evaluate([node])
    return convert.to_list(node)


def _index(a: array) -> int:
    if a.shape or a.dtype.rank != 1:
        raise TypeError(f"an integer array without axes is needed for an index; got {a.dtype.name} of shape {a.shape}.")
    return int(item(a))


def _repr(a: array) -> str:
    return array_text(values(a), a.dtype)


def _format(a: array, spec: str) -> str:
    if a.shape and not spec:
        return _repr(a)
    if a.shape:
        raise TypeError(f"unsupported format string {spec!r} for an array of shape {a.shape}; .item() gives one number.")
    return format(item(a), spec)


def _to_numpy(a: array, dtype: Any = None, copy: Any = None) -> Any:
    if dtype is not None and a.dtype.numpy != dtype:
        if copy is False:
            raise ValueError(f"[__array__] a copy is needed to give {a.dtype.name} as {np.dtype(dtype)}.")
        return values(a).astype(dtype)
    if copy:
        return convert.host_copy(evaluated(a))
    return values(a, export=True)


def _bytes(a: array) -> bytes:
    return bytes(values(a).tobytes())


def _rebuild(kind: type[array], raw: bytes, shape: tuple[int, ...], dtype: Dtype) -> Any:
    out = kind.__new__(kind)
    out.__setstate__((raw, shape, dtype))
    return out


def _getstate(a: array) -> tuple[bytes, tuple[int, ...], Dtype]:
    return _bytes(a), a.shape, a.dtype


def _setstate(state: tuple[bytes, tuple[int, ...], Dtype]) -> Node:
    raw, shape, dtype = state
    return convert.from_host(np.frombuffer(raw, dtype.numpy).reshape(shape), dtype)


def _reduce(a: array) -> Any:
    return _rebuild, (type(a), *_getstate(a))


def _deepcopy(a: array) -> array:
    return wrap(a._node)  # values never change in place, handles do


def _assign(a: array, b: array) -> None:
    a._node = b._node


def _dlpack_device(a: array) -> tuple[int, int]:
    there = convert.gpu_view(evaluated(a))
    return (1, 0) if there is None else (2, gpu_of(there[1]))


def _dlpack(a: array, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None) -> Any:
    there = convert.gpu_view(evaluated(a)) if dl_device is None or dl_device[0] == dlpack.CUDA else None
    if there is not None:
        found, buffer = there
        index = gpu_of(buffer)
        if dl_device is not None and tuple(dl_device)[1] != index:
            raise BufferError(f"[__dlpack__] the array is on GPU {index}, device (2, {index}); it was asked for on {dl_device}.")
        lend(buffer, stream)
        return dlpack.capsule(found, a.dtype, (dlpack.CUDA, index))
    if dl_device is not None and tuple(dl_device) != (1, 0):
        raise BufferError(f"[__dlpack__] the array is on the CPU, device (1, 0); it was asked for on {dl_device}.")
    found = values(a, export=True)
    return dlpack.capsule(found.copy() if copy else found, a.dtype)


# --- methods that take their arguments otherwise than the function does ---


def _astype(self: array, dtype: Dtype, stream: StreamOrDevice = None) -> array:
    """This array in another dtype, as `mx.astype`."""
    return elementwise.astype(self, dtype, stream=stream)


def _view(self: array, dtype: Dtype, *, stream: StreamOrDevice = None) -> array:
    """The same bytes as another dtype, as `mx.view`."""
    return move.view(self, dtype, stream)


def _reshape(self: array, *shape: Any, stream: StreamOrDevice = None) -> array:
    """This array in another shape, given as one sequence or as several integers; as `mx.reshape`."""
    one = len(shape) == 1 and not isinstance(shape[0], int)
    return move.reshape(self, shape[0] if one else shape, stream=stream)


def _transpose(self: array, *axes: Any, stream: StreamOrDevice = None) -> array:
    """This array with its axes in another order, given as one sequence or as several integers; as `mx.transpose`."""
    if len(axes) == 1 and (axes[0] is None or not isinstance(axes[0], int)):
        return move.transpose(self, axes[0], stream=stream)
    return move.transpose(self, axes if axes else None, stream=stream)


def _var(self: array, axis: Any = None, keepdims: bool = False, ddof: int = 0, *, correction: float | None = None, stream: StreamOrDevice = None) -> array:
    """The variance, as `mx.var`; `correction` is another name of `ddof`."""
    return reduce.var(self, axis, keepdims, ddof if correction is None else correction, stream=stream)


def _std(self: array, axis: Any = None, keepdims: bool = False, ddof: int = 0, *, correction: float | None = None, stream: StreamOrDevice = None) -> array:
    """The standard deviation, as `mx.std`; `correction` is another name of `ddof`."""
    return reduce.std(self, axis, keepdims, ddof if correction is None else correction, stream=stream)


METHODS: dict[str, Callable[..., Any]] = {
    "abs": elementwise.abs,
    "all": reduce.all,
    "any": reduce.any,
    "argmax": reduce.argmax,
    "argmin": reduce.argmin,
    "astype": _astype,
    "conj": elementwise.conjugate,
    "cos": elementwise.cos,
    "diag": move.diag,
    "diagonal": move.diagonal,
    "exp": elementwise.exp,
    "flatten": move.flatten,
    "item": item,
    "log": elementwise.log,
    "log10": elementwise.log10,
    "log1p": elementwise.log1p,
    "log2": elementwise.log2,
    "logsumexp": reduce.logsumexp,
    "max": reduce.max,
    "mean": reduce.mean,
    "min": reduce.min,
    "moveaxis": move.moveaxis,
    "prod": reduce.prod,
    "reciprocal": elementwise.reciprocal,
    "reshape": _reshape,
    "round": elementwise.round,
    "rsqrt": elementwise.rsqrt,
    "sin": elementwise.sin,
    "split": move.split,
    "sqrt": elementwise.sqrt,
    "square": elementwise.square,
    "squeeze": move.squeeze,
    "std": _std,
    "sum": reduce.sum,
    "swapaxes": move.swapaxes,
    "tolist": tolist,
    "transpose": _transpose,
    "var": _var,
    "view": _view,
}

PROPERTIES: dict[str, Callable[[array], Any]] = {
    "T": lambda a: move.transpose(a),
    "mT": lambda a: move.matrix_transpose(a),
    "real": lambda a: elementwise.real(a),
    "imag": lambda a: elementwise.imag(a),
    "at": index.ArrayAt,
}

special.call.update(
    power=elementwise.power,
    assign=_assign,
    item=item,
    index=_index,
    repr=_repr,
    format=_format,
    bytes=_bytes,
    to_numpy=_to_numpy,
    dlpack=_dlpack,
    as_strided=move.as_strided,
    dlpack_device=_dlpack_device,
    reduce=_reduce,
    deepcopy=_deepcopy,
    getstate=_getstate,
    setstate=_setstate,
)


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as a method: one that mypyc compiled does not bind `self` by itself."""
    if isinstance(function, types.FunctionType):
        return function

    @functools.wraps(function)
    def method(self: array, *args: Any, **keywords: Any) -> Any:
        return function(self, *args, **keywords)

    return method


for _name, _function in METHODS.items():
    setattr(array, _name, _method(_function))
for _name, _function in PROPERTIES.items():
    setattr(array, _name, property(_function))


# --- the buffer protocol ---


def _export(a: array, flags: int) -> memoryview:
    """`memoryview(a)`: the values themselves, writable."""
    return memoryview(_numpy_for_buffer(a))


def _fasten_buffer_protocol() -> None:
    """Give `array` the buffer protocol: by `__buffer__` from Python 3.12 on, before that in the C slot of its type."""
    if sys.version_info >= (3, 12):
        array.__buffer__ = _export  # type: ignore[attr-defined]
        return
    if sys.implementation.name != "cpython":
        return

    slot = _buffer_slot()
    if not slot:
        return
    prototype = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)
    get_buffer: Any = ctypes.pythonapi.PyObject_GetBuffer
    get_buffer.argtypes, get_buffer.restype = (ctypes.py_object, ctypes.c_void_p, ctypes.c_int), ctypes.c_int

    def fill(a: Any, view: int, flags: int) -> int:
        # The view then belongs to the NumPy array, which keeps the memory alive and lets go of it by itself.
        try:
            return int(get_buffer(_numpy_for_buffer(a), view, flags))
        except BaseException:  # ctypes can hand no exception on: -1 becomes a SystemError
            return -1

    callback = prototype(fill)
    _kept.append(callback)
    # A class made by Python has the table already, with no functions in it.
    table = ctypes.c_void_p.from_address(id(array) + slot).value
    if table:
        ctypes.c_void_p.from_address(table).value = ctypes.cast(callback, ctypes.c_void_p).value


def _numpy_for_buffer(a: array) -> Any:
    if a.dtype is bfloat16:  # so that NumPy goes on to ask __array__, which knows
        raise BufferError("the buffer protocol has no format for bfloat16; a.view(mx.uint16) has its bits, numpy.array(a) its values.")
    return values(a, export=True)


def _buffer_slot() -> int:
    """The offset of `tp_as_buffer` in a type, found where `bytes` and `bytearray` have it and `int` and `object` do not."""
    # PyTypeObject: PyVarObject (3 words), then name, basicsize, itemsize, dealloc, vectorcall_offset, getattr, setattr,
    # as_async, repr, as_number, as_sequence, as_mapping, hash, call, str, getattro, setattro, as_buffer.
    word = ctypes.sizeof(ctypes.c_void_p)
    offset = word * (3 + 17)
    read = ctypes.c_void_p.from_address
    found = [read(id(kind) + offset).value for kind in (bytes, bytearray, memoryview, np.ndarray)]
    absent = [read(id(kind) + offset).value for kind in (int, float, dict, object)]
    return offset if all(found) and not any(absent) else 0


_kept: list[Any] = []
_fasten_buffer_protocol()


# --- the machine ---


def device_info(d: Any = None) -> dict[str, Any]:
    """What is known of a device: its architecture, its name, its memory in bytes.

    Raises:
        ValueError: the device is not there.
    """
    device = default_device() if d is None else as_device(d)
    check_available(device)
    if device.type is DeviceType.gpu:
        return gpu_info(device.index)
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            name = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), name)
    except OSError:
        pass
    return {"architecture": platform.machine(), "device_name": name, "memory_size": cpu_memory.get_memory_limit()}
