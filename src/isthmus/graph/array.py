"""`array`, the user's handle on a node, and the making of element-wise nodes.

Edges join nodes, so a handle can be given another node (`x[i] = v`) while earlier readers keep the old one. The special
methods stand here, a line each; those that are not element-wise call what `special` was given when the ops were imported.

Element-wise nodes are made here because they are most of any graph: an operand of the same dtype and shape takes the
short way, and a Python number becomes a dynamic number of the node rather than a node. Compiled by mypyc where possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from isthmus.graph.device import Stream, as_stream, defaults
from isthmus.graph.dtype import (
    ALL,
    PROMOTE,
    Dtype,
    bool_,
    complex64,
    float32,
    int32,
)
from isthmus.graph.handle import Handle, mypyc_attr
from isthmus.graph.node import MAP, Node, Op, Sig, intern_sig, make, size_of


@mypyc_attr(allow_interpreted_subclasses=True)
class ElementwiseOp(Op):
    """An op that acts on each place alone.

    Attributes:
        arity: How many arguments.
        compute: The dtype the arguments are brought to, by the index of their common dtype; None where not defined.
        result: The dtype of the result, likewise.
        refuse: What to say of a dtype that is not defined, with `{dtype}` in it; and the exception's type.
    """

    def __init__(self, name: str, arity: int, compute: list[Dtype | None], result: list[Dtype | None], refuse: str, error: type[Exception]) -> None:
        Op.__init__(self, name, MAP)
        self.arity = arity
        self.compute = compute
        self.result = result
        self.refuse = refuse
        self.error = error

    def refused(self, dtype: Dtype) -> Exception:
        return self.error(f"[{self.name}] " + self.refuse.replace("{dtype}", dtype.name))


NO_OP: Final = ElementwiseOp("not imported", 0, [], [], "{dtype}", ValueError)


class Special:
    """What the special methods call: ops and functions, filled in when the ops are imported (`methods.py`)."""

    def __init__(self) -> None:
        self.call: dict[str, Callable[..., Any]] = {}
        self.abs: ElementwiseOp = NO_OP
        self.add: ElementwiseOp = NO_OP
        self.bitwise_and: ElementwiseOp = NO_OP
        self.bitwise_invert: ElementwiseOp = NO_OP
        self.bitwise_or: ElementwiseOp = NO_OP
        self.bitwise_xor: ElementwiseOp = NO_OP
        self.divide: ElementwiseOp = NO_OP
        self.equal: ElementwiseOp = NO_OP
        self.floor_divide: ElementwiseOp = NO_OP
        self.greater: ElementwiseOp = NO_OP
        self.greater_equal: ElementwiseOp = NO_OP
        self.left_shift: ElementwiseOp = NO_OP
        self.less: ElementwiseOp = NO_OP
        self.less_equal: ElementwiseOp = NO_OP
        self.multiply: ElementwiseOp = NO_OP
        self.negative: ElementwiseOp = NO_OP
        self.not_equal: ElementwiseOp = NO_OP
        self.remainder: ElementwiseOp = NO_OP
        self.right_shift: ElementwiseOp = NO_OP
        self.subtract: ElementwiseOp = NO_OP
        self.cast: ElementwiseOp | None = None
        self.broadcast: Callable[[Node, tuple[int, ...], Stream], Node] | None = None


special: Final = Special()

_INT_RANGE: Final[list[tuple[int, int]]] = [
    (0, 1) if d is bool_ else (0, 2**d.bits - 1) if d.category == "unsigned" else (-(2 ** (d.bits - 1)), 2 ** (d.bits - 1) - 1) for d in ALL
]


@mypyc_attr(allow_interpreted_subclasses=True)
class array(Handle):
    """An n-dimensional array, evaluated when its value is needed.

    Args:
        val: A number, a nested list or tuple, a NumPy array, another array, or anything with the buffer protocol,
            `__array__` or `__dlpack__`.
        dtype: The element type; from `val` if not given (Python floats: float32; integers: int32, int64 where they
            need it; float64 NumPy arrays: float32).

    Raises:
        ValueError: nested lists of uneven length, or values of a type that has no dtype.
        TypeError: `val` is none of the above.
    """

    def __init__(self, val: Any, dtype: Dtype | None = None) -> None:
        if type(val) is Node and dtype is None:
            self._node: Node = val
        else:
            self._node = special.call["init"](val, dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
        return self._node.shape

    @property
    def dtype(self) -> Dtype:
        """The element type."""
        return self._node.sig.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._node.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return size_of(self._node.shape)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self._node.sig.dtype.size

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return size_of(self._node.shape) * self._node.sig.dtype.size

    # Element-wise operators.
    def __add__(self, other: Any) -> Any:
        return binary(special.add, self, other, None)

    def __radd__(self, other: Any) -> Any:
        return binary(special.add, other, self, None)

    def __iadd__(self, other: Any) -> Any:
        return in_place(self, special.add, other)

    def __sub__(self, other: Any) -> Any:
        return binary(special.subtract, self, other, None)

    def __rsub__(self, other: Any) -> Any:
        return binary(special.subtract, other, self, None)

    def __isub__(self, other: Any) -> Any:
        return in_place(self, special.subtract, other)

    def __mul__(self, other: Any) -> Any:
        return binary(special.multiply, self, other, None)

    def __rmul__(self, other: Any) -> Any:
        return binary(special.multiply, other, self, None)

    def __imul__(self, other: Any) -> Any:
        return in_place(self, special.multiply, other)

    def __truediv__(self, other: Any) -> Any:
        return binary(special.divide, self, other, None)

    def __rtruediv__(self, other: Any) -> Any:
        return binary(special.divide, other, self, None)

    def __itruediv__(self, other: Any) -> Any:
        if self._node.sig.dtype.rank < 2:
            raise ValueError(f"[divide] an array of {self._node.sig.dtype.name} cannot hold a quotient; x = x / y gives a new one.")
        return in_place(self, special.divide, other)

    def __div__(self, other: Any) -> Any:
        return binary(special.divide, self, other, None)

    def __rdiv__(self, other: Any) -> Any:
        return binary(special.divide, other, self, None)

    def __floordiv__(self, other: Any) -> Any:
        return binary(special.floor_divide, self, other, None)

    def __rfloordiv__(self, other: Any) -> Any:
        return binary(special.floor_divide, other, self, None)

    def __ifloordiv__(self, other: Any) -> Any:
        return in_place(self, special.floor_divide, other)

    def __mod__(self, other: Any) -> Any:
        return binary(special.remainder, self, other, None)

    def __rmod__(self, other: Any) -> Any:
        return binary(special.remainder, other, self, None)

    def __imod__(self, other: Any) -> Any:
        return in_place(self, special.remainder, other)

    def __pow__(self, other: Any) -> Any:
        return special.call["power"](self, other)

    def __rpow__(self, other: Any) -> Any:
        return special.call["power"](other, self)

    def __ipow__(self, other: Any) -> Any:
        special.call["assign"](self, special.call["power"](self, other))
        return self

    def __and__(self, other: Any) -> Any:
        return binary(special.bitwise_and, self, other, None)

    def __rand__(self, other: Any) -> Any:
        return binary(special.bitwise_and, other, self, None)

    def __iand__(self, other: Any) -> Any:
        return in_place(self, special.bitwise_and, other)

    def __or__(self, other: Any) -> Any:
        return binary(special.bitwise_or, self, other, None)

    def __ror__(self, other: Any) -> Any:
        return binary(special.bitwise_or, other, self, None)

    def __ior__(self, other: Any) -> Any:
        return in_place(self, special.bitwise_or, other)

    def __xor__(self, other: Any) -> Any:
        return binary(special.bitwise_xor, self, other, None)

    def __rxor__(self, other: Any) -> Any:
        return binary(special.bitwise_xor, other, self, None)

    def __ixor__(self, other: Any) -> Any:
        return in_place(self, special.bitwise_xor, other)

    def __lshift__(self, other: Any) -> Any:
        return binary(special.left_shift, self, other, None)

    def __rlshift__(self, other: Any) -> Any:
        return binary(special.left_shift, other, self, None)

    def __ilshift__(self, other: Any) -> Any:
        return in_place(self, special.left_shift, other)

    def __rshift__(self, other: Any) -> Any:
        return binary(special.right_shift, self, other, None)

    def __rrshift__(self, other: Any) -> Any:
        return binary(special.right_shift, other, self, None)

    def __irshift__(self, other: Any) -> Any:
        return in_place(self, special.right_shift, other)

    def __eq__(self, other: Any) -> Any:
        if not is_operand(other):
            return unequal_type(other, False, "__eq__")
        return binary(special.equal, self, other, None)

    def __ne__(self, other: Any) -> Any:
        if not is_operand(other):
            return unequal_type(other, True, "__ne__")
        return binary(special.not_equal, self, other, None)

    def __lt__(self, other: Any) -> Any:
        return binary(special.less, self, other, None)

    def __le__(self, other: Any) -> Any:
        return binary(special.less_equal, self, other, None)

    def __gt__(self, other: Any) -> Any:
        return binary(special.greater, self, other, None)

    def __ge__(self, other: Any) -> Any:
        return binary(special.greater_equal, self, other, None)

    def __hash__(self) -> int:
        return id(self) >> 4

    def __neg__(self) -> Any:
        return unary(special.negative, self, None)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return unary(special.abs, self, None)

    def __invert__(self) -> Any:
        return unary(special.bitwise_invert, self, None)

    def __matmul__(self, other: Any) -> Any:
        return special.call["matmul"](self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return special.call["matmul"](other, self)

    def __imatmul__(self, other: Any) -> Any:
        special.call["assign"](self, special.call["matmul"](self, other))
        return self

    # Values and containers: these evaluate.
    def __bool__(self) -> bool:
        return bool(special.call["item"](self))

    def __int__(self) -> int:
        return int(special.call["item"](self))

    def __float__(self) -> float:
        return float(special.call["item"](self))

    def __complex__(self) -> complex:
        return complex(special.call["item"](self))

    def __index__(self) -> int:
        return int(special.call["index"](self))

    def __len__(self) -> int:
        if not self._node.shape:
            raise TypeError("len() of a 0-dimensional array; use .item() for its value.")
        return self._node.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self._node.shape:
            raise TypeError("iteration over a 0-dimensional array; use .item() for its value.")
        return iter([self[i] for i in range(self._node.shape[0])])

    def __getitem__(self, key: Any) -> Any:
        return special.call["getitem"](self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        special.call["setitem"](self, key, value)

    def __repr__(self) -> str:
        return str(special.call["repr"](self))

    def __str__(self) -> str:
        return str(special.call["repr"](self))

    def __format__(self, spec: str) -> str:
        return str(special.call["format"](self, spec))

    def __bytes__(self) -> bytes:
        return bytes(special.call["bytes"](self))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return special.call["to_numpy"](self, dtype, copy)

    def __array_namespace__(self, api_version: Any = None) -> Any:
        return special.call["namespace"](api_version)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None) -> Any:
        return special.call["dlpack"](self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = special.call["dlpack_device"](self)
        return device

    def __reduce__(self) -> Any:
        return special.call["reduce"](self)

    def __copy__(self) -> Any:
        return wrap(self._node)

    def __deepcopy__(self, memo: Any) -> Any:
        return special.call["deepcopy"](self)

    def __getstate__(self) -> Any:
        return special.call["getstate"](self)

    def __setstate__(self, state: Any) -> None:
        self._node = special.call["setstate"](state)


def wrap(node: Node) -> array:
    """A new handle on a node."""
    return array(node)


def node_of(a: array) -> Node:
    return a._node


def set_node(a: array, node: Node) -> None:
    """Give a handle another node."""
    a._node = node


def is_operand(x: Any) -> bool:
    """Whether an operator takes `x`: a number, an array, or something that can become one."""
    if isinstance(x, (array, bool, int, float, complex)):
        return True
    return not isinstance(x, (str, bytes)) and (hasattr(x, "__array__") or hasattr(x, "__mlx_array__"))


def unequal_type(other: Any, answer: bool, name: str) -> bool:
    """`x == "a"` is plain False, as MLX has it; None raises."""
    if other is None:
        raise TypeError(f"{name}(): an array cannot be compared with None; use `is None`.")
    return answer


_WORDS: Final[dict[str, str]] = {
    "add": "addition",
    "subtract": "subtraction",
    "multiply": "multiplication",
    "divide": "division",
    "floor_divide": "floor division",
    "remainder": "modulus",
    "less": "less than",
    "less_equal": "less than or equal",
    "greater": "greater than",
    "greater_equal": "greater than or equal",
}


def in_place(a: array, op: ElementwiseOp, b: Any) -> array:
    """`a op= b`: the handle gets the new node, in its own dtype, as in MLX."""
    a._node = binary(op, a, b, None)._node
    return a


def unary(op: ElementwiseOp, a: Any, stream: Any) -> array:
    """`op` of one argument."""
    x: array = a if isinstance(a, array) else special.call["as_array"](a, None)
    node = x._node
    if stream is None:
        # The short way: as the last node of this op with an input of this kind.
        sig = node.sig.memo.get(op)
        if sig is not None and sig.stream is defaults.stream:
            return array(Node(sig, (node,), node.shape, ()))
    s = as_stream(stream)
    dtype = node.sig.dtype
    compute = op.compute[dtype.index]
    if compute is None:
        raise op.refused(dtype)
    before = node
    if compute is not dtype:
        node = cast_node(node, compute, s)
    out = elementwise_node(op, (node,), (), 0, compute, node.shape, s)
    if node is before and out.buffer is None:
        node.sig.memo[op] = out.sig
    return array(out)


def binary(op: ElementwiseOp, a: Any, b: Any, stream: Any) -> array:
    """`op` of two arguments, of which one may be a Python number."""
    if isinstance(a, array):
        x = a._node
        if isinstance(b, array):
            y = b._node
            if stream is None and x.shape == y.shape and x.sig.dtype is y.sig.dtype:
                sig = x.sig.memo.get(op)
                if sig is not None and sig.stream is defaults.stream:
                    return array(Node(sig, (x, y), x.shape, ()))
            return array(_arrays(op, x, y, as_stream(stream)))
        if isinstance(b, (bool, int, float, complex)):
            if stream is None:
                sig = x.sig.memo_right.get(op)
                if sig is not None and sig.stream is defaults.stream and not isinstance(b, complex):
                    return array(Node(sig, (x,), x.shape, (b,)))
            return array(_with_number(op, x, b, False, as_stream(stream)))
    elif isinstance(b, array) and isinstance(a, (bool, int, float, complex)):
        y = b._node
        if stream is None:
            sig = y.sig.memo_left.get(op)
            if sig is not None and sig.stream is defaults.stream and not isinstance(a, complex):
                return array(Node(sig, (y,), y.shape, (a,)))
        return array(_with_number(op, y, a, True, as_stream(stream)))
    s = as_stream(stream)
    if a is None or b is None:
        raise TypeError(f"[{op.name}] incompatible arguments: got {_type_name(a)} and {_type_name(b)}; arrays or numbers are needed.")
    for operand in (a, b):
        if isinstance(operand, str):
            raise ValueError(f"Cannot perform {_WORDS.get(op.name, op.name)} on {_type_name(a)} and {_type_name(b)}")
    left: array = special.call["as_array"](a, None)
    right: array = special.call["as_array"](b, None)
    return array(_arrays(op, left._node, right._node, s))


def _type_name(x: Any) -> str:
    return "an isthmus array" if isinstance(x, array) else type(x).__name__


def _arrays(op: ElementwiseOp, x: Node, y: Node, s: Stream) -> Node:
    dtype = x.sig.dtype
    if dtype is not y.sig.dtype:
        dtype = PROMOTE[dtype.index][y.sig.dtype.index]
    compute = op.compute[dtype.index]
    if compute is None:
        raise op.refused(dtype)
    whole = x.shape == y.shape and x.sig.dtype is compute and y.sig.dtype is compute
    if x.sig.dtype is not compute:
        x = cast_node(x, compute, s)
    if y.sig.dtype is not compute:
        y = cast_node(y, compute, s)
    shape = x.shape
    if shape != y.shape:
        if not y.shape:
            pass
        elif not shape:
            shape = y.shape
        else:
            shape = broadcast_shape(shape, y.shape)
            x = broadcast_node(x, shape, s)
            y = broadcast_node(y, shape, s)
    out = elementwise_node(op, (x, y), (), 0, compute, shape, s)
    if whole and out.buffer is None:
        x.sig.memo[op] = out.sig
    return out


def _with_number(op: ElementwiseOp, x: Node, number: Any, first: bool, s: Stream) -> Node:
    before = dtype = x.sig.dtype
    wide = number_dtype(number, dtype)
    if wide is not dtype:
        x = cast_node(x, wide, s)
        dtype = wide
    if dtype.rank <= 1:
        check_range(number, dtype)
    compute = op.compute[dtype.index]
    if compute is None:
        raise op.refused(dtype)
    if compute is not dtype:
        x = cast_node(x, compute, s)
        return elementwise_node(op, (x,), (number,), 1 if first else 2, compute, x.shape, s)
    out = elementwise_node(op, (x,), (number,), 1 if first else 2, compute, x.shape, s)
    if dtype.rank == 2 and wide is before and out.buffer is None:
        # Any real number beside this float goes the short way; integers need their range looked at.
        if first:
            x.sig.memo_left[op] = out.sig
        else:
            x.sig.memo_right[op] = out.sig
    return out


def number_dtype(number: Any, dtype: Dtype) -> Dtype:
    """The dtype of an array of `dtype` beside a Python number: its own, or the number's default if of a higher category."""
    if isinstance(number, bool):
        return dtype
    if isinstance(number, int):
        return int32 if dtype.rank < 1 else dtype
    if isinstance(number, float):
        return float32 if dtype.rank < 2 else dtype
    return complex64


def check_range(number: int, dtype: Dtype) -> None:
    """A Python integer must fit the integer dtype it joins."""
    low, high = _INT_RANGE[dtype.index]
    if not low <= number <= high:
        raise ValueError(f"Converting {number} to {dtype.name} would result in overflow; {dtype.name} holds {low} to {high}.")


def elementwise_node(op: ElementwiseOp, inputs: tuple[Node, ...], numbers: tuple[Any, ...], pattern: int, compute: Dtype, shape: tuple[int, ...], s: Stream) -> Node:
    """The node of an element-wise op; bit k of `pattern` says that argument k is a number."""
    if 0 in shape:
        result = op.result[compute.index]
        assert result is not None
        return make(op, inputs, shape, result, s)
    key = (s.number << 16) | (pattern << 8) | compute.index
    sig = op.sigs.get(key)
    if sig is None:
        sig = _new_sig(op, pattern, compute, s, key)
    return Node(sig, inputs, shape, numbers)


def _new_sig(op: ElementwiseOp, pattern: int, compute: Dtype, s: Stream, key: int) -> Sig:
    result = op.result[compute.index]
    assert result is not None, (op, compute)
    sig = op.sigs[key] = intern_sig(op, (pattern, compute), result, s, 0)
    return sig


def apply(op: ElementwiseOp, args: tuple[Any, ...], stream: Any = None) -> array:
    """`op` of any number of arrays and numbers, of one common dtype (select: see ops/elementwise.py)."""
    if len(args) == 1:
        return unary(op, args[0], stream)
    if len(args) == 2:
        return binary(op, args[0], args[1], stream)
    s = defaults.stream if stream is None else as_stream(stream)
    nodes: list[Node] = [x._node for x in args if isinstance(x, array)]
    dtype = nodes[0].sig.dtype
    for node in nodes:
        dtype = PROMOTE[dtype.index][node.sig.dtype.index]
    for x in args:
        if not isinstance(x, array):
            dtype = number_dtype(x, dtype)
    compute = op.compute[dtype.index]
    if compute is None:
        raise op.refused(dtype)
    return array(typed_node(op, args, [compute] * len(args), compute, s))


def typed_node(op: ElementwiseOp, args: tuple[Any, ...], dtypes: list[Dtype], compute: Dtype, s: Stream) -> Node:
    """The node of `op` where argument k is brought to `dtypes[k]`, broadcasting together."""
    nodes: list[Node] = []
    numbers: list[Any] = []
    pattern = 0
    for k, x in enumerate(args):
        if isinstance(x, array):
            node = x._node
            nodes.append(node if node.sig.dtype is dtypes[k] else cast_node(node, dtypes[k], s))
        else:
            if dtypes[k].rank <= 1:
                check_range(x, dtypes[k])
            numbers.append(x)
            pattern |= 1 << k
    shape: tuple[int, ...] = ()
    for node in nodes:
        if node.shape != shape:
            shape = broadcast_shape(shape, node.shape)
    nodes = [n if not n.shape or n.shape == shape else broadcast_node(n, shape, s) for n in nodes]
    return elementwise_node(op, tuple(nodes), tuple(numbers), pattern, compute, shape, s)


def cast_node(node: Node, dtype: Dtype, s: Stream) -> Node:
    """`node` as `dtype`."""
    if node.sig.dtype is dtype:
        return node
    op = special.cast
    assert op is not None
    if 0 in node.shape:
        return make(op, (node,), node.shape, dtype, s)
    key = (s.number << 16) | (node.sig.dtype.index << 8) | dtype.index
    sig = op.sigs.get(key)
    if sig is None:
        sig = op.sigs[key] = intern_sig(op, (0, node.sig.dtype), dtype, s, 0)
    return Node(sig, (node,), node.shape, ())


def broadcast_node(node: Node, shape: tuple[int, ...], s: Stream) -> Node:
    if node.shape == shape:
        return node
    make_broadcast = special.broadcast
    assert make_broadcast is not None
    return make_broadcast(node, shape, s)


def broadcast_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that two shapes broadcast to.

    Raises:
        ValueError: two sizes differ and neither is 1.
    """
    if len(a) < len(b):
        longer, shorter = b, a
    else:
        longer, shorter = a, b
    out = list(longer)
    gap = len(longer) - len(shorter)
    for k in range(len(shorter)):
        m, n = longer[gap + k], shorter[k]
        if m != n:
            if m == 1:
                out[gap + k] = n
            elif n != 1:
                raise ValueError(f"[broadcast_shapes] Shapes {show_shape(a)} and {show_shape(b)} cannot be broadcast: sizes {m} and {n} meet; they must agree or one be 1.")
    return tuple(out)


def show_shape(shape: tuple[int, ...]) -> str:
    return "(" + ",".join(map(str, shape)) + ")"
