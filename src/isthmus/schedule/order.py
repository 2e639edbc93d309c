"""The first pass of an eval: order the graph, and make the key its plan is found by.

The order is the iterative postorder from the outputs. The key lists, for each node, its signature's number and then its
inputs' numbers (as `~number`, so that the list can be read one way only); then the outputs. Beside it stands which nodes are
held, as one integer. No size, no dynamic number and no equality of sizes is in it (docs/design/plans.md).

A node is *held* if something besides this graph refers to it: its reference count exceeds the edges seen here plus a
constant, which is measured on a fresh node. Compiled by mypyc where possible.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from isthmus.graph.node import LEAF, Node, leaf, leaf_sig

NO_VALUE: Final = (
    "[eval] this array has no value: it belongs to a function that vmap or compile is looking at. Use mx.where in place of "
    "`if` on its values, and do not call eval, item or print inside."
)


class _Epoch:
    def __init__(self) -> None:
        self.now = 1


_EPOCH: Final = _Epoch()


class Ordered:
    """A graph in order: `nodes`, its `key`, which nodes are `held` (bits by number), and the `place` that all of it runs at."""

    __slots__ = ("held", "key", "nodes", "place")

    def __init__(self, nodes: list[Node], key: tuple[int, ...], held: int, place: int) -> None:
        self.nodes = nodes
        self.key = key
        self.held = held
        self.place = place


def walk(stack: list[Node], limit: int) -> tuple[list[Node], list[int], int, int]:
    """Up to `limit` nodes of one place in postorder, numbered in `num` and their edges counted in `uses`; the key's start;
    the mark; the place.

    `stack` holds what is still to come, the outputs at its bottom; a later call goes on from there.
    """
    mark = _EPOCH.now = _EPOCH.now + 1
    nodes: list[Node] = []
    key: list[int] = []
    count = 0
    place = -1
    while stack:
        node = stack[-1]
        if node.mark == mark:
            stack.pop()
            continue
        sig = node.sig
        if node.buffer is None:
            waiting = False
            for x in node.inputs:
                if x.mark != mark:
                    stack.append(x)
                    waiting = True
            if waiting:
                continue
            if sig.kind == LEAF:
                raise ValueError(NO_VALUE)
            if sig.place != place:
                if place >= 0:
                    break  # what follows runs elsewhere
                place = sig.place
            key.append(sig.number)
            for x in node.inputs:
                key.append(~x.num)
                x.uses += 1
        else:
            key.append(sig.number if sig.kind == LEAF else leaf_sig(node.shape, sig.dtype, sig.stream).number)
        stack.pop()
        node.mark = mark
        node.num = count
        node.uses = 0
        count += 1
        nodes.append(node)
        if count >= limit:
            break
    return nodes, key, mark, place


def held_bits(nodes: list[Node], constant: int) -> int:
    """Which nodes something outside this graph refers to, or whose memory is exported."""
    held = 0
    bit = 1
    for node in nodes:
        if sys.getrefcount(node) - node.uses > constant:
            held |= bit
        elif node.buffer is not None and node.buffer.exports:
            held |= bit
        bit += bit
    return held


def _measure() -> int:
    """The reference count of a node that nothing but the list refers to, as `held_bits` sees it."""
    for constant in range(1, 12):
        node = leaf(_NoBuffer(), (), _some_dtype())
        node.uses = 0
        nodes = [node]
        del node
        if held_bits(nodes, constant) == 0:
            return constant
    raise AssertionError("the reference count of a fresh node is not understood")


class _NoBuffer:
    def __init__(self) -> None:
        self.exports = 0


def _some_dtype() -> Any:
    from isthmus.graph.dtype import float32

    return float32


CONSTANT: Final = _measure()


def order(outputs: list[Node], stack: list[Node], limit: int) -> Ordered:
    """The next part of the graph of `outputs`, at most `limit` nodes of it; `stack` as of `walk`."""
    nodes, key, mark, place = walk(stack, limit)
    held = held_bits(nodes, CONSTANT)
    key.append(-1 - len(nodes))
    for node in outputs:
        if node.mark == mark:
            key.append(node.num)
    return Ordered(nodes, tuple(key), held, place)
