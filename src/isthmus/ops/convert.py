"""From what others hold to arrays and back: numbers, nested lists, NumPy, the buffer protocol, DLPack.

Values from outside are copied into a buffer of our own. On the way out `host_view` is a NumPy array on the buffer itself;
while one that was given away lives, the buffer counts it as an export and is not overwritten. Nothing here evaluates:
methods.py does, before it asks for a view.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from typing import Any

import numpy as np

from isthmus.backends.cpu.memory import Buffer, allocate, buffer_view, drop_gpu, host_address
from isthmus.backends.place import LARGE, borrowed_at, filled_at, gpu_of, read_into, stream_of
from isthmus.graph.array import array, cast_node, check_range, special, wrap
from isthmus.graph.device import Device, DeviceType, default_stream, defaults, device_count
from isthmus.graph.dtype import (
    ALL,
    Dtype,
    bfloat16,
    bool_,
    complex64,
    float16,
    float32,
    float64,
    from_numpy,
    int32,
    int64,
    uint64,
)
from isthmus.graph.node import EMPTY, Node, leaf, leaf_sig, size_of
from isthmus.ops.arguments import default_dtype

EMPTY.buffer = allocate(0)

# --- in ---

_CTYPES: dict[Dtype, Any] = {
    d: getattr(ctypes, "c_" + {"float32": "float", "float64": "double"}.get(d.name, d.name)) for d in ALL if d.rank < 2 or d in (float32, float64)
}


def init(val: Any, dtype: Dtype | None) -> Node:
    """The node of `mx.array(val, dtype)`."""
    if dtype is not None and not isinstance(dtype, Dtype):
        raise TypeError(f"[array] dtype must be one such as mx.float32; got {dtype!r}.")
    if isinstance(val, array):
        return val._node if dtype is None else cast_node(val._node, dtype, defaults.stream)
    if isinstance(val, (bool, int, float, complex)):
        return number_leaf(val, default_dtype(val) if dtype is None else dtype)
    if isinstance(val, (list, tuple)):
        return _from_nested(val, dtype)
    if hasattr(val, "__dlpack_device__") and not isinstance(val, np.ndarray):
        found = _from_gpu(val)
        if found is not None:
            return found if dtype is None else cast_node(found, dtype, defaults.stream)
    if val is None:
        raise TypeError("[array] None has no value; numbers, sequences or arrays are needed.")
    return from_host(_on_host(val), dtype)


def _from_gpu(val: Any) -> Node | None:
    """A node on another library's memory on a GPU that isthmus uses, or None."""
    from isthmus.ops import dlpack

    kind, index = dlpack.device_of(val)
    if kind != dlpack.CUDA or index >= device_count(DeviceType.gpu):
        return None
    found = dlpack.on_gpu(val, stream_of(index))
    dtype = from_numpy(found.dtype)
    if 0 in found.shape:
        return leaf(EMPTY.buffer, found.shape, dtype)
    flat = leaf(borrowed_at(index, found.address, found.nbytes, found.release), (found.nbytes // dtype.size,), dtype)
    expected = 1
    dense = True
    for size, step in zip(reversed(found.shape), reversed(found.strides), strict=True):
        dense = dense and (size == 1 or step == expected)
        expected *= size
    at = default_stream(Device(DeviceType.gpu, index))
    if dense:
        flat.shape = found.shape
        flat.sig = leaf_sig(found.shape, dtype, at)
        return flat
    return special.call["as_strided"](wrap(flat), found.shape, found.strides, found.offset, stream=at)._node  # type: ignore[no-any-return]


def gpu_view(node: Node) -> tuple[Any, Buffer] | None:
    """A NumPy array that says where a value's elements lie on a GPU (it must not be read), and the buffer; None if it is on the host."""
    views: list[Node] = []
    while node.buffer is None:
        views.append(node)
        node = node.inputs[0]
    if 0 in node.shape or gpu_of(node.buffer) < 0:
        return None
    memory: Any = (ctypes.c_uint8 * (size_of(node.shape) * node.sig.dtype.size)).from_address(node.buffer.gpu)
    memory.export = Lent(node.buffer)
    a = np.frombuffer(memory, node.sig.dtype.numpy).reshape(node.shape)
    for view in reversed(views):
        a = view.sig.op.numpy(view, a)  # type: ignore[attr-defined]
    return a, node.buffer


class Lent:
    """Counts as an export of a buffer on a GPU for as long as it lives."""

    __slots__ = ("buffer",)

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        buffer.exports += 1

    def __del__(self) -> None:
        self.buffer.exports -= 1


def as_array(x: Any, dtype: Dtype | None) -> array:
    """An argument of an op as an array: all that `mx.array` takes but lists."""
    if isinstance(x, array):
        return x
    if isinstance(x, (list, tuple)):
        raise ValueError(f"Invalid type {type(x).__name__} received in array initialization; wrap it in mx.array.")
    return wrap(init(x, dtype))


def number_leaf(value: Any, dtype: Dtype) -> Node:
    """A Python number with memory of its own.

    Raises:
        ValueError: it is not finite or out of range, and `dtype` is an integer's.
    """
    buffer = allocate(dtype.size)
    if isinstance(value, complex) and dtype is not complex64:
        value = value.real
    if dtype.rank == 1:
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"[array] {value} has no value in {dtype.name}.")
        value = int(value)
        check_range(value, dtype)
    cell = _CTYPES.get(dtype)
    if cell is not None:
        try:
            cell.from_address(buffer.ptr).value = value
        except OverflowError:  # an integer beyond the floats
            cell.from_address(buffer.ptr).value = math.copysign(math.inf, value)
    else:
        with np.errstate(over="ignore"):
            np.frombuffer(buffer_view(buffer, 0, dtype.size), dtype.numpy)[0] = value
    return leaf(buffer, (), dtype)


def from_host(a: Any, dtype: Dtype | None) -> Node:
    """A leaf with the values of a NumPy array; float64 becomes float32 unless `dtype` says otherwise.

    Raises:
        ValueError: values that are not finite are to become integers.
        TypeError: NumPy's dtype has no counterpart.
    """
    kind = from_numpy(a.dtype.newbyteorder("=")) if dtype is None else dtype
    if dtype is None and kind is float64:
        kind = float32
    if a.size == 0:
        return leaf(EMPTY.buffer, a.shape, kind)
    if a.dtype.kind == "c" and kind is not complex64:
        a = a.real
    if kind.rank == 1 and a.dtype.kind == "f" and not np.isfinite(a).all():
        raise ValueError(f"[array] NaN and infinity have no value in {kind.name}.")
    same = kind.numpy == a.dtype
    if same and a.nbytes >= LARGE and defaults.stream.place > 0 and a.flags.c_contiguous:
        found = filled_at(defaults.stream.place, a.ctypes.data, a.nbytes)
        if found is not None:
            return leaf(found, a.shape, kind)
    buffer = allocate(a.size * kind.size)
    out = _numpy_of(buffer, a.shape, kind)
    if same:
        np.copyto(out, a)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            np.copyto(out, a, casting="unsafe")
    return leaf(buffer, a.shape, kind)


def _invalid(x: Any) -> ValueError:
    return ValueError(f"Invalid type {type(x).__name__} received in array initialization.")


def _on_host(val: Any) -> Any:
    """A NumPy array of anything that offers its memory."""
    if isinstance(val, (np.ndarray, np.generic)):
        a = np.asarray(val)
        if a.dtype.kind in "OSUVMm" and from_numpy_or_none(a.dtype) is None:
            raise _invalid(a.flat[0] if a.size and a.dtype.kind == "O" else val)
        return a
    if hasattr(val, "__mlx_array__"):
        return host_view(val.__mlx_array__()._node)
    if isinstance(val, str):
        raise _invalid(val)
    if hasattr(val, "__dlpack__"):
        from isthmus.ops import dlpack

        return dlpack.to_numpy(val)
    try:
        return np.asarray(memoryview(val))
    except TypeError:
        pass
    if hasattr(val, "__array__"):
        return _on_host(np.asarray(val))
    raise _invalid(val)


def from_numpy_or_none(dtype: Any) -> Dtype | None:
    try:
        return from_numpy(dtype)
    except TypeError:
        return None


_NUMBERS = frozenset((bool, int, float, complex))


def _from_nested(val: Any, dtype: Dtype | None) -> Node:
    kinds: set[type] = set()
    shape = _nested_shape(val, kinds)
    if not kinds <= _NUMBERS:
        for kind in kinds:
            if issubclass(kind, (array, np.ndarray)):
                return _stacked(val, dtype)
    flat: Any = val
    for _ in range(len(shape) - 1):
        flat = itertools.chain.from_iterable(flat)
    numbers = flat if isinstance(flat, (list, tuple)) else list(flat)
    return _from_numbers(numbers, kinds, shape, dtype)


def _nested_shape(val: Any, kinds: set[type]) -> tuple[int, ...]:
    """The shape of nested lists; the types of what is in them are put into `kinds`."""
    types = set(map(type, val))
    if types <= _NUMBERS:
        kinds |= types
        return (len(val),)
    shapes = set()
    for x in val:
        if isinstance(x, (list, tuple)):
            shapes.add(_nested_shape(x, kinds))
        elif isinstance(x, (array, np.ndarray)):
            kinds.add(type(x))
            shapes.add(tuple(x.shape))
        elif isinstance(x, (bool, int, float, complex, np.generic)):
            kinds.add(type(x))
            shapes.add(())
        else:
            raise _invalid(x)
    if len(shapes) > 1:
        raise ValueError(f"[array] nested sequences must have uniform lengths; found the shapes {' and '.join(map(str, sorted(shapes)[:2]))}.")
    return (len(val), *shapes.pop())


def _from_numbers(numbers: Any, kinds: set[type], shape: tuple[int, ...], dtype: Dtype | None) -> Node:
    if any(issubclass(k, complex) or issubclass(k, np.complexfloating) for k in kinds):
        return from_host(np.array(numbers, np.complex128).reshape(shape), dtype)
    if not kinds or any(issubclass(k, (float, np.floating)) for k in kinds):
        flat = np.array(numbers, np.float64).reshape(shape)
        if dtype is not None and dtype.rank == 1:
            _check_numbers(flat, dtype)
        return from_host(flat, float32 if dtype is None else dtype)
    if dtype is bool_ or (dtype is None and all(issubclass(k, (bool, np.bool_)) for k in kinds)):
        return from_host(np.array([bool(x) for x in numbers]).reshape(shape), bool_)
    if dtype is not None and dtype.rank > 1:
        return from_host(np.array(numbers, np.float64).reshape(shape), dtype)
    try:
        whole = np.array(numbers, np.uint64 if dtype is uint64 else np.int64).reshape(shape)
    except OverflowError:
        for x in numbers:
            check_range(int(x), int64 if dtype is None else dtype)
        raise
    if dtype is None:
        dtype = int32 if whole.min() >= -(2**31) and whole.max() < 2**31 else int64
    elif dtype is not int64:
        _check_numbers(whole, dtype)
    return from_host(whole, dtype)


def _check_numbers(a: Any, dtype: Dtype) -> None:
    """Python integers must fit the dtype they are given."""
    if a.size and np.isfinite(a).all():
        check_range(int(a.min()), dtype)
        check_range(int(a.max()), dtype)


def _stacked(val: Any, dtype: Dtype | None) -> Node:
    """Nested lists with arrays among them, as a stack of their parts; derivatives pass."""
    from isthmus.ops.move import stack

    out = stack([wrap(init(x, None)) for x in val])
    return out._node if dtype is None else cast_node(out._node, dtype, defaults.stream)


# --- out ---


class _Export:
    """Counts as an export of a buffer for as long as it lives."""

    __slots__ = ("buffer",)

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        buffer.exports += 1
        drop_gpu(buffer)  # whoever has the view may write; a GPU that reads it copies it again

    def __del__(self) -> None:
        self.buffer.exports -= 1


def _numpy_of(buffer: Buffer, shape: tuple[int, ...], dtype: Dtype, export: bool = False) -> Any:
    memory = buffer_view(buffer, 0, size_of(shape) * dtype.size)
    if export:
        owner: Any = memory.obj
        owner.export = _Export(buffer)
    return np.frombuffer(memory, dtype.numpy).reshape(shape)


def _has_value(node: Node) -> bool:
    return node.buffer is not None


def host_view(node: Node, export: bool = False) -> Any:
    """A NumPy array on the memory of an evaluated node, or of the one it is a view of.

    With `export` the memory is not overwritten while the NumPy array, or one made from it, lives.
    """
    if 0 in node.shape:
        return np.empty(node.shape, node.sig.dtype.numpy)
    views: list[Node] = []
    while not _has_value(node):
        inputs = node.inputs
        if inputs:
            views.append(node)
            node = inputs[0]
        else:  # another thread has just evaluated it
            assert _has_value(node), f"{node!r} has no value"
    a = _numpy_of(node.buffer, node.shape, node.sig.dtype, export)
    for view in reversed(views):
        a = view.sig.op.numpy(view, a)  # type: ignore[attr-defined]
    return a


def host_copy(node: Node) -> Any:
    """A NumPy array of its own with the values of an evaluated node."""
    buffer = node.buffer
    nbytes = size_of(node.shape) * node.sig.dtype.size
    if buffer is None or buffer.ptr or nbytes < LARGE:
        return host_view(node).copy()
    block = allocate(nbytes)  # pinned, and kept when the array dies, where fresh memory would be a page fault every 4 kB
    read_into(buffer, block.ptr, nbytes)
    return _numpy_of(block, node.shape, node.sig.dtype)


def item(node: Node) -> Any:
    """The Python number of an evaluated node with one element.

    Raises:
        ValueError: it has none or several.
    """
    dtype = node.sig.dtype
    if node.buffer is not None and size_of(node.shape) == 1:
        cell = _CTYPES.get(dtype)
        if cell is not None:
            return cell.from_address(host_address(node.buffer)).value
    if size_of(node.shape) != 1:
        raise ValueError(f"[convert] only arrays of one element become Python numbers; the shape is {node.shape}.")
    value = host_view(node).reshape(())[()]
    return float(value) if dtype is bfloat16 or dtype is float16 else value.item()


def to_list(node: Node) -> Any:
    """Nested lists of an evaluated node's values."""
    a = host_view(node)
    if node.sig.dtype is bfloat16:
        a = a.astype(np.float32)
    return a.tolist()


special.call["init"] = init
special.call["as_array"] = as_array


# --- public functions ---


def asarray(a: Any, dtype: Dtype | None = None, *, copy: bool | None = None) -> array:
    """`a` as an array; an array that has the dtype already is returned as it is.

    Args:
        a: All that `mx.array` takes.
        dtype: As for `mx.array`.
        copy: True: never return `a` itself; False: refuse where memory would be copied.

    Raises:
        ValueError: `copy` is False and `a` is not an array of that dtype.

    Example:
        >>> mx.asarray([1, 2])
        array([1, 2], dtype=int32)
    """
    if isinstance(a, array) and (dtype is None or a.dtype is dtype):
        return wrap(a._node) if copy else a
    if copy is False:
        raise ValueError(f"[asarray] {type(a).__name__} cannot become an array without a copy; copy=None allows it.")
    return array(a, dtype)


def from_dlpack(x: Any, /, *, copy: bool | None = None) -> array:
    """An array with the values of anything that has `__dlpack__`: a copy of what is on the CPU; what is on a GPU is shared.

    Memory on a GPU is not copied, and must not be written while the array lives.

    Raises:
        BufferError: `x` is neither on the CPU nor on a GPU that isthmus uses.

    Example:
        >>> mx.from_dlpack(np.array([1, 2], np.int16))
        array([1, 2], dtype=int16)
    """
    if isinstance(x, array):
        return wrap(x._node)
    if not hasattr(x, "__dlpack__"):
        raise TypeError(f"[from_dlpack] {type(x).__name__} has no __dlpack__; mx.array takes more.")
    return wrap(init(x, None))
