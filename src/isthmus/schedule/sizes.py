"""A plan's nodes without their sizes: names for sizes, joined where ops demand that they are equal.

Each (node, axis) belongs to a class; an axis of size 1 is the number 1, the others are named `s<class>`. Equal sizes that
no op demands stay apart, so a plan made at one size is right at every other with the same key. A reshape that merges or
splits axes makes one name the product of others.
"""

from __future__ import annotations

from typing import Any

from isthmus.graph.dtype import Dtype
from isthmus.graph.node import LEAF, LEAF_OP, VIEW, Node
from isthmus.kernel.place import ONE, Poly, name, product


class PlanNode:
    """What a plan keeps of a node: its number, op, static attributes, dtype, inputs, and its sizes as polynomials."""

    __slots__ = ("apart", "attrs", "dtype", "held", "inputs", "kind", "merged", "number", "op", "rank", "sizes", "stream")

    def __init__(self, number: int, op: Any, attrs: tuple[Any, ...], dtype: Dtype, inputs: tuple[PlanNode, ...], kind: int, stream: Any, rank: int) -> None:
        self.number = number
        self.op = op
        self.attrs = attrs
        self.dtype = dtype
        self.inputs = inputs
        self.kind = kind
        self.stream = stream
        self.rank = rank
        self.sizes: tuple[Poly, ...] = ()
        self.held = False
        self.merged = False  # an earlier node is the same: nobody reads this one
        self.apart = False  # the node's own input is not the one in `inputs`, whose memory it therefore cannot share

    def count(self) -> Poly:
        """The number of elements."""
        return product(self.sizes)

    def __repr__(self) -> str:
        inputs = " ".join(f"%{i.number}" for i in self.inputs)
        sizes = ", ".join(map(repr, self.sizes))
        return f"%{self.number}: {self.dtype.name}[{sizes}] = {self.op.name} {inputs}".rstrip()


def plan_nodes(nodes: list[Node], held: int) -> tuple[list[PlanNode], dict[str, tuple[int, int]]]:
    """The nodes as a plan sees them, and where each size's name is read: name -> (node, axis)."""
    out: list[PlanNode] = []
    same: list[PlanNode] = []  # for each node, the one that stands for it
    replaced: list[bool] = []  # whether that is neither the node nor what it is an alias of
    first: dict[tuple[int, tuple[int, ...]], PlanNode] = {}
    for k, node in enumerate(nodes):
        sig = node.sig
        if node.buffer is not None and sig.kind != LEAF:
            p = PlanNode(k, LEAF_OP, (), sig.dtype, (), LEAF, sig.stream, len(node.shape))
        else:
            inputs = () if node.buffer is not None else tuple(same[x.num] for x in node.inputs)
            p = PlanNode(k, sig.op, sig.attrs, sig.dtype, inputs, sig.kind, sig.stream, len(node.shape))
        p.held = bool(held >> k & 1)
        p.apart = bool(p.inputs) and p.kind == VIEW and replaced[node.inputs[0].num]
        out.append(p)
        stands = p
        # Equal nodes are one, unless numbers that a plan cannot see (sizes, dynamic ones) might differ.
        own = True
        if p.inputs and sig.op.name in ("alias", "stop_gradient"):
            stands = p.inputs[0]
            p.merged = not p.held
            own = not p.apart
        elif p.inputs and not sig.op.new_sizes and not node.dyn:
            key = (sig.number, tuple(x.number for x in p.inputs))
            stands = first.setdefault(key, p)
            if stands is not p and p.held:
                stands = p
            p.merged = stands is not p
            own = stands is p
        same.append(stands)
        replaced.append(not own)
    return out, _name_sizes(out, [node.shape for node in nodes])


def _name_sizes(nodes: list[PlanNode], shapes: list[tuple[int, ...]]) -> dict[str, tuple[int, int]]:
    first = []  # number of the first axis of each node
    total = 0
    for shape in shapes:
        first.append(total)
        total += len(shape)
    parent = list(range(total))

    def find(a: int) -> int:
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        return a

    products: list[tuple[int, list[int]]] = []
    for p in nodes:
        base = first[p.number]
        for inputs, outputs in demands(p):
            at_in = [first[p.inputs[k].number] + axis for k, axis in inputs]
            at_out = [base + axis for axis in outputs]
            if len(at_in) == 1 and len(at_out) == 1:
                a, b = find(at_in[0]), find(at_out[0])
                if a != b:
                    parent[max(a, b)] = min(a, b)
            elif len(at_in) == 2 and not at_out:
                a, b = find(at_in[0]), find(at_in[1])
                if a != b:
                    parent[max(a, b)] = min(a, b)
            elif len(at_in) == 1 and len(at_out) > 1:
                products.append((at_in[0], at_out))
            elif len(at_out) == 1 and len(at_in) > 1:
                products.append((at_out[0], at_in))
    ones = [size == 1 for shape in shapes for size in shape]
    substituted: dict[int, Poly] = {}
    memo: dict[int, Poly] = {}

    def poly(a: int) -> Poly:
        a = find(a)
        if ones[a]:
            return ONE
        found = substituted.get(a)
        if found is None:
            return memo.setdefault(a, name(f"s{a}"))
        # A factor may itself have been substituted since.
        fresh = ONE
        for part in parts[a]:
            fresh = fresh * poly(part)
        return fresh

    parts: dict[int, list[int]] = {}
    for whole, factors in products:
        a = find(whole)
        if a in substituted or ones[a]:
            continue
        value = product([poly(f) for f in factors])
        if f"s{a}" in value.names():
            continue
        substituted[a] = value
        parts[a] = factors
    for p, shape in zip(nodes, shapes, strict=True):
        p.sizes = tuple(poly(first[p.number] + axis) for axis in range(len(shape)))
    where: dict[str, tuple[int, int]] = {}
    for p in nodes:
        for axis in range(len(p.sizes)):
            a = find(first[p.number] + axis)
            if not ones[a] and a not in substituted:
                where.setdefault(f"s{a}", (p.number, axis))
    return where


Demand = tuple[list[tuple[int, int]], list[int]]


def demands(p: PlanNode) -> list[Demand]:
    """Which axes an op demands to be equal: `([(input, axis), ...], [output axis, ...])`, equal in product."""
    rule = getattr(p.op, "demands", None)
    return [] if rule is None else rule(p)
