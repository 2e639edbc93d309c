"""Nodes of the lazy graph, and the signatures that plans are keyed by.

A `Node` is one value: made by an op of some inputs, or a leaf with a buffer. Its `Sig` holds all that decides what code
runs (op, static attributes, dtype, stream), interned when the node is made, so a plan's key is a list of small integers.
`dyn` holds plain numbers that only flow into the code. Sizes are in neither.

After evaluation a node has a `buffer` (contiguous, row-major) and its inputs are dropped, so it is a leaf; a view of a
leaf stays a view and is never evaluated by itself. This file is compiled by mypyc where a compiler is found.
"""

from __future__ import annotations

import os
import sys
import threading
from types import CodeType
from typing import Any, Final

from isthmus.graph.device import Stream, defaults
from isthmus.graph.dtype import Dtype
from isthmus.graph.handle import mypyc_attr

# How the schedule treats an op.
LEAF: Final = 0  # a buffer, or a placeholder of a transform
VIEW: Final = 1  # reads one input at another place, and may share its buffer
MAP: Final = 2  # one value a place
REDUCE: Final = 3
UPDATE: Final = 4  # writes into a copy of its first input, or into it where that is allowed
LIBRARY: Final = 5  # a tuned routine
PART: Final = 6  # one output of a LIBRARY op of several

ROOT: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_DEPTH: Final = 0 if __file__.endswith(".so") else 2


class _Trace:
    """What a transform in progress says to the makers and evaluators of nodes.

    Attributes:
        depth: How many functions are being traced: above 0, evaluated nodes keep their inputs, and are put in `kept`.
        kept: Nodes that were evaluated so; their inputs are dropped when the outermost trace ends.
        code, lasti: While rules make nodes (gradients), the place in the program that those count as made at.
        lock: Held by every pass that uses the slots `mark`, `num` and `uses` of nodes.
    """

    __slots__ = ("code", "depth", "kept", "lasti", "lock")

    def __init__(self) -> None:
        self.depth = 0
        self.kept: list[Node] = []
        self.code: CodeType | None = None
        self.lasti = 0
        self.lock = threading.RLock()


TRACE: Final = _Trace()


@mypyc_attr(allow_interpreted_subclasses=True)
class Op:
    """An op's record. The families in `ops/families.py` fill in what each kind needs.

    Attributes:
        name: As users know it.
        kind: LEAF, VIEW, MAP, ... above.
        new_sizes: The output's sizes do not follow from the inputs' (broadcast, reshape, slice, ...): the signature
            then says which axes are 1.
    """

    def __init__(self, name: str, kind: int, new_sizes: bool = False) -> None:
        self.name = name
        self.kind = kind
        self.new_sizes = new_sizes
        self.sigs: dict[int, Sig] = {}  # of nodes without attributes, by dtype, pattern and stream
        self.number = len(OPS)
        self.host_only = False  # whether there is no GPU form of it: nodes for a GPU's stream run on the host
        self.indexed: Any = None  # of ops with index arrays: node -> [(input, the axis of input 0 that it indexes)]
        OPS.append(self)

    def __repr__(self) -> str:
        return self.name

    # What every record answers; the families say how (ops/families.py).

    def lower(self, ctx: Any, node: Any, place: Any) -> Any:
        """The scalar expression of the output at a place, for VIEW and MAP kinds."""
        raise AssertionError(f"{self.name} has no scalar form")

    def demands(self, node: Any) -> Any:
        """Which axes must be equal: `([(input, axis), ...], [output axis, ...])`, equal in product; two inputs and no
        output axis: those two are equal. What is not demanded here keeps maps from fusing, nothing worse."""
        return []

    def vjp(self, node: Node, y: Any, ct: Any, wanted: Any) -> Any:
        """The cotangents of the inputs."""
        raise ValueError(f"[vjp] {self.name} has no derivative.")

    def jvp(self, node: Node, y: Any, tangents: Any) -> Any:
        """The tangent of the output, or None."""
        raise ValueError(f"[jvp] {self.name} has no derivative.")

    def vmap(self, node: Node, args: Any, batched: Any) -> Any:
        """The output with a batch axis in front."""
        raise ValueError(f"[vmap] {self.name} has no batch form.")


OPS: Final[list[Op]] = []


class Sig:
    """What decides the code of a node, interned: two nodes with one `number` run the same code."""

    __slots__ = ("attrs", "dtype", "kind", "memo", "memo_left", "memo_right", "number", "op", "place", "stream")

    def __init__(self, op: Op, attrs: tuple[Any, ...], dtype: Dtype, stream: Stream, number: int) -> None:
        self.op = op
        self.attrs = attrs
        self.dtype = dtype
        self.stream = stream
        self.number = number
        self.kind = op.kind
        self.place = 0 if op.host_only else stream.place
        # Short ways to the signatures of element-wise nodes: of inputs like this one alone, of a real number and one, of one
        # and a real number.
        self.memo: dict[Op, Sig] = {}
        self.memo_left: dict[Op, Sig] = {}
        self.memo_right: dict[Op, Sig] = {}


_interned: Final[dict[tuple[Any, ...], Sig]] = {}


def intern_sig(op: Op, attrs: tuple[Any, ...], dtype: Dtype, stream: Stream, ones: int) -> Sig:
    key = (op.number, attrs, dtype.index, stream.number, ones)
    found = _interned.get(key)
    if found is None:
        found = _interned.setdefault(key, Sig(op, attrs, dtype, stream, len(_interned)))
    return found


class _Outside:
    """The code object that was last found to lie outside isthmus, so that a loop's line is looked at once."""

    def __init__(self) -> None:
        self.code: CodeType | None = None


_OUTSIDE: Final = _Outside()
_getframe: Final = sys._getframe


class Node:
    """One value of the graph.

    `num` and `mark` belong to the pass that walks the graph at the moment (under the schedule's lock).
    """

    __slots__ = ("buffer", "code", "dyn", "inputs", "lasti", "mark", "num", "shape", "sig", "uses")
    num: int
    uses: int

    def __init__(self, sig: Sig, inputs: tuple[Node, ...], shape: tuple[int, ...], dyn: tuple[Any, ...]) -> None:
        self.sig = sig
        self.inputs = inputs
        self.shape = shape
        self.dyn = dyn
        self.buffer: Any = None
        self.mark = 0
        if TRACE.code is not None:
            self.code: CodeType = TRACE.code
            self.lasti: int = TRACE.lasti
            return
        frame = _getframe(_DEPTH)
        code = frame.f_code
        if code is not _OUTSIDE.code:
            while code.co_filename.startswith(ROOT) and frame.f_back is not None:
                frame = frame.f_back
                code = frame.f_code
            _OUTSIDE.code = code
        self.code = code
        self.lasti = frame.f_lasti

    @property
    def op(self) -> Op:
        return self.sig.op

    @property
    def dtype(self) -> Dtype:
        return self.sig.dtype

    def __repr__(self) -> str:
        inputs = ", ".join(i.sig.op.name for i in self.inputs)
        return f"<{self.sig.op.name}({inputs}) {self.sig.dtype.name}{list(self.shape)}>"


def where_made(node: Node) -> str:
    """`file:line` of the line that made a node."""
    return line_of(node.code, node.lasti)


def line_of(code: Any, lasti: int) -> str:
    """`file:line` of an instruction."""
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= lasti < end and number is not None:
            line = number
    return f"{code.co_filename}:{line}"


def ones_mask(shape: tuple[int, ...]) -> int:
    mask = 1
    for size in shape:
        mask = mask * 2 + (1 if size == 1 else 0)
    return mask


def size_of(shape: tuple[int, ...]) -> int:
    n = 1
    for size in shape:
        n *= size
    return n


LEAF_OP: Final = Op("leaf", LEAF, new_sizes=True)
PLACEHOLDER: Final = Op("placeholder", LEAF, new_sizes=True)


def make(
    op: Op,
    inputs: tuple[Node, ...],
    shape: tuple[int, ...],
    dtype: Dtype,
    stream: Stream,
    attrs: tuple[Any, ...] = (),
    dyn: tuple[Any, ...] = (),
) -> Node:
    """A node of any op; a value without elements is a leaf at once."""
    if 0 in shape:
        return leaf(EMPTY.buffer, shape, dtype)
    return Node(intern_sig(op, attrs, dtype, stream, ones_mask(shape) if op.new_sizes else 0), inputs, shape, dyn)


def leaf(buffer: Any, shape: tuple[int, ...], dtype: Dtype) -> Node:
    """A node that has its value: `buffer` holds it contiguous and row-major."""
    node = Node(leaf_sig(shape, dtype, defaults.stream), (), shape, ())
    node.buffer = buffer
    return node


def leaf_sig(shape: tuple[int, ...], dtype: Dtype, stream: Stream) -> Sig:
    """The signature of a leaf. Values without elements have their own, as their readers never become nodes."""
    return intern_sig(LEAF_OP, (len(shape), 0 in shape), dtype, stream, ones_mask(shape))


def placeholder(shape: tuple[int, ...], dtype: Dtype) -> Node:
    """A node without a value, for a transform that only looks at the graph."""
    return Node(intern_sig(PLACEHOLDER, (len(shape),), dtype, defaults.stream, ones_mask(shape)), (), shape, ())


class _Empty:
    """Holds the buffer of all values without elements; the backend that allocates sets it."""

    def __init__(self) -> None:
        self.buffer: Any = b""


EMPTY: Final = _Empty()
