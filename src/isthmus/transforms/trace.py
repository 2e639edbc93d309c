"""What the transforms share: running a function on traced inputs, and listing what depends on them.

The graph is the tape. A traced input is a new handle on an *alias* node of its primal, so that a closure over the same
array is not differentiated; `order` then lists, from the outputs down, the nodes that depend on the aliases. After the
trace the handles are given their primals back, so whoever kept one (a module's parameters) holds the original.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from isthmus.graph.array import array, node_of, set_node
from isthmus.graph.node import LEAF_OP, TRACE, Node, intern_sig, ones_mask
from isthmus.ops.families import Linear

ALIAS = Linear(
    "alias",
    read=lambda ctx, node, place: place,
    transpose=lambda node, ct: ct,
    batch=lambda node, n: ((), (), (n, *node.shape)),
    axes=lambda node: [((k,), (k,)) for k in range(node.rank)],
    numpy=lambda node, a: a,
)


class Sources:
    """Traced inputs: their primals, alias nodes and handles."""

    __slots__ = ("handles", "nodes", "primals")

    def __init__(self) -> None:
        self.primals: list[Node] = []
        self.nodes: list[Node] = []
        self.handles: list[array] = []

    def add(self, x: array) -> array:
        """A traced handle in place of `x`."""
        primal = node_of(x)
        node = alias(primal)
        handle = array(node)
        self.primals.append(primal)
        self.nodes.append(node)
        self.handles.append(handle)
        return handle

    def restore(self) -> None:
        """Give the handles their primals back, but for those that the function has assigned to."""
        for handle, node, primal in zip(self.handles, self.nodes, self.primals, strict=True):
            if node_of(handle) is node:
                set_node(handle, primal)


def alias(primal: Node) -> Node:
    """The same value under another name."""
    if 0 in primal.shape:
        return Node(primal.sig, (), primal.shape, ()) if primal.buffer is None else _empty(primal)
    sig = primal.sig
    key = (sig.stream.number << 16) | sig.dtype.index
    found = ALIAS.sigs.get(key)
    if found is None:
        found = ALIAS.sigs[key] = intern_sig(ALIAS, (), sig.dtype, sig.stream, 0)
    return Node(found, (primal,), primal.shape, ())


def _empty(primal: Node) -> Node:
    node = Node(primal.sig, (), primal.shape, ())
    node.buffer = primal.buffer
    return node


class Tracing:
    """While a function is traced, evaluated nodes keep their inputs."""

    def __enter__(self) -> None:
        with TRACE.lock:
            TRACE.depth += 1

    def __exit__(self, *exc: object) -> None:
        with TRACE.lock:
            TRACE.depth -= 1
            if TRACE.depth:
                return
            kept, TRACE.kept = TRACE.kept, []
            for node in kept:
                node.sig = intern_sig(LEAF_OP, (len(node.shape),), node.sig.dtype, node.sig.stream, ones_mask(node.shape))
                node.inputs = ()
                node.dyn = ()


tracing = Tracing()


class Dependents:
    """The nodes that depend on some sources, in topological order.

    Attributes:
        nodes: The sources, then the others, each after its inputs.
        inputs: For each node that is not a source, the position of each of its inputs in `nodes`; -1 where an input
            does not depend on the sources.
        outputs: The position of each output; -1 likewise.
    """

    __slots__ = ("inputs", "nodes", "outputs")

    def __init__(self, nodes: list[Node], inputs: list[list[int]], outputs: list[int]) -> None:
        self.nodes = nodes
        self.inputs = inputs
        self.outputs = outputs


_epoch = [0]  # counts down, so that marks are apart from the schedule's, which counts up


def order(outputs: Sequence[Node], sources: Sequence[Node]) -> Dependents:
    """What of the graph of `outputs` depends on `sources`; without recursion."""
    with TRACE.lock:
        _epoch[0] = done = _epoch[0] - 2
        entered = done + 1
        nodes = list(sources)
        inputs: list[list[int]] = []
        for k, node in enumerate(nodes):
            node.mark = done
            node.num = k
        stack = list(reversed(outputs))
        while stack:
            node = stack[-1]
            mark = node.mark
            if mark == done:
                stack.pop()
                continue
            above = node.inputs
            if mark != entered:
                node.mark = entered
                waiting = False
                for x in above:
                    if x.mark != done:
                        stack.append(x)
                        waiting = True
                if waiting:
                    continue
            stack.pop()
            node.mark = done
            number = -1
            for x in above:
                if x.num >= 0:
                    number = len(nodes)
                    nodes.append(node)
                    inputs.append([x.num for x in above])
                    break
            node.num = number
        return Dependents(nodes, inputs, [node.num for node in outputs])


def arrays_of(name: str, what: str, xs: Any) -> list[array]:
    """`xs`, which must be a list or tuple of arrays.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(xs, (list, tuple)) or not all(isinstance(x, array) for x in xs):
        got = f"a {type(xs).__name__}" + (f" of {', '.join(type(x).__name__ for x in xs)}" if isinstance(xs, (list, tuple)) else "")
        raise TypeError(f"{name}(): incompatible function arguments: {what} must be a list of arrays; got {got}.")
    return list(xs)


def flat_outputs(name: str, out: Any) -> list[array]:
    """What a function of a list of arrays returned: an array, or a list or tuple of them.

    Raises:
        TypeError: it returned something else.
    """
    if isinstance(out, array):
        return [out]
    if isinstance(out, (list, tuple)) and all(isinstance(x, array) for x in out):
        return list(out)
    raise TypeError(f"[{name}] the function must return an array or a list of arrays; it returned a {type(out).__name__}.")


def checked_callable(name: str, fun: Any) -> Callable[..., Any]:
    if not callable(fun):
        raise TypeError(f"{name}(): incompatible function arguments: a function is needed; got a {type(fun).__name__}.")
    found: Callable[..., Any] = fun
    return found
