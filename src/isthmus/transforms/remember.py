"""Backward passes that are remembered.

The rules of ops look at a node's signature, its shapes and numbers, and at which nodes its inputs are; never at values. So
graphs that agree in those (of the same *form*) have backward passes that agree too, and a form that comes a second time
has the nodes that its rules made written down: the third time they are made again from the list, without asking a rule.
A plain training loop builds the same graph at every step; the rules took most of its time (docs/design/plans.md).

Compiled by mypyc where possible.
"""

from __future__ import annotations

from typing import Any, Final

from isthmus.graph.array import array
from isthmus.graph.node import LEAF, TRACE, VIEW, Node, Sig
from isthmus.transforms.trace import Dependents

LONGEST: Final = 4096  # nodes of a graph whose backward pass is remembered
MOST: Final = 512  # forms


class Pass:
    """The nodes of a backward pass, in order; those made before are counted from 0, those of the graph back from -1.

    Attributes:
        refs: For each node its inputs.
        lines: For each node the one of the graph on whose line it counts as made.
        results: The cotangent of each source, or None.
    """

    __slots__ = ("dyns", "lines", "refs", "results", "shapes", "sigs")

    def __init__(self) -> None:
        self.sigs: list[Sig] = []
        self.refs: list[list[int]] = []
        self.shapes: list[tuple[int, ...]] = []
        self.dyns: list[tuple[Any, ...]] = []
        self.lines: list[int] = []
        self.results: list[int | None] = []

    def again(self, graph: list[Node]) -> list[array | None]:
        """The pass over another graph of the form."""
        made: list[Node] = []
        sigs, shapes, dyns, lines = self.sigs, self.shapes, self.dyns, self.lines
        k = 0
        try:
            for refs in self.refs:
                line = graph[lines[k]]
                TRACE.code = line.code
                TRACE.lasti = line.lasti
                made.append(Node(sigs[k], tuple([made[at] if at >= 0 else graph[~at] for at in refs]), shapes[k], dyns[k]))
                k += 1
        finally:
            TRACE.code = None
        return [None if at is None else array(made[at] if at >= 0 else graph[~at]) for at in self.results]


class Forms:
    """The passes that are known, by form; None where a form came once, or cannot be remembered (`never`)."""

    def __init__(self) -> None:
        self.passes: dict[tuple[Any, ...], Pass | None] = {}
        self.never: set[tuple[Any, ...]] = set()


FORMS: Final = Forms()


def form_of(found: Dependents, n_sources: int, seeds: list[Node]) -> tuple[list[Node], tuple[Any, ...]]:
    """The nodes that rules can reach (those of `found` first), and the form.

    A node that does not depend on the sources is in it with what its rules see: itself, and, as rules look through views,
    what it is a view of.
    """
    nodes, inputs = found.nodes, found.inputs
    graph = list(nodes)
    form: list[Any] = [n_sources, len(nodes)]
    others: dict[int, int] = {}
    for k in range(n_sources):
        node = nodes[k]
        form.append(node.sig.number)
        form.append(node.shape)
    for k in range(n_sources, len(nodes)):
        node = nodes[k]
        above = inputs[k - n_sources]
        form.append(node.sig.number)
        form.append(node.shape)
        form.append(node.dyn)
        form.append(len(above))
        for j, at in enumerate(above):
            if at >= 0:
                form.append(2 * at)
            else:
                add_other(node.inputs[j], graph, form, others)
    form += found.outputs
    for node in seeds:
        if node.inputs:  # it may be one that depends on the sources, or a view of one
            for at, x in enumerate(nodes):
                others[id(x)] = at
        add_other(node, graph, form, others)
    return graph, tuple(form)


def add_other(node: Node, graph: list[Node], form: list[Any], others: dict[int, int]) -> None:
    while True:
        at = others.get(id(node))
        if at is not None:
            form.append(2 * at + 1)
            return
        form.append(-1)
        form.append(node.sig.number)
        form.append(node.shape)
        form.append(node.dyn)
        others[id(node)] = len(graph)
        graph.append(node)
        if node.sig.kind != VIEW or node.buffer is not None or not node.inputs:
            return
        node = node.inputs[0]


def written_down(graph: list[Node], results: list[array | None]) -> Pass | None:
    """The nodes between a graph and the results of its backward pass; None if one is neither of the graph nor new."""
    found = Pass()
    numbers: dict[int, int] = {id(node): ~k for k, node in reversed(list(enumerate(graph)))}
    lines: dict[tuple[int, int], int] = {(id(node.code), node.lasti): k for k, node in reversed(list(enumerate(graph)))}
    for ct in results:
        stack = [] if ct is None else [ct._node]
        while stack:
            node = stack[-1]
            if id(node) in numbers:
                stack.pop()
                continue
            if node.mark != 0 or node.sig.kind == LEAF or node.buffer is not None:
                return None  # one that a pass over the graph has seen, or with a value of its own
            waiting = [x for x in node.inputs if id(x) not in numbers]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            line = lines.get((id(node.code), node.lasti))
            if line is None:
                return None
            numbers[id(node)] = len(found.sigs)
            found.sigs.append(node.sig)
            found.refs.append([numbers[id(x)] for x in node.inputs])
            found.shapes.append(node.shape)
            found.dyns.append(node.dyn)
            found.lines.append(line)
        found.results.append(None if ct is None else numbers[id(ct._node)])
    return found
