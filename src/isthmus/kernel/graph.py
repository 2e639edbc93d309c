"""A kernel's expressions as a list, equal ones once: what a renderer walks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from isthmus.graph.dtype import Dtype, bool_, complex64
from isthmus.kernel.loops import Index, Kernel, Slot, Stage, Store, linearize, roots
from isthmus.kernel.scalar import MATH, Expr, cast, is_half

_KEEP_NAN = MATH | frozenset("add sub mul div neg abs min max floor ceil trunc rint sqrt copysign".split())
_MATH_COST = 24  # of a function of mathlib, where an addition is 1


class Node:
    """A node of the kernel's expressions: what it depends on, and whether it is *tame*.

    A tame float32 has zeros in the low half of its bits where it is NaN: those made by arithmetic are, those that came
    from 16-bit floats, and what arithmetic makes of both. Rounding one to bfloat16 needs no look at NaN.
    """

    __slots__ = ("args", "attr", "deps", "dtype", "expr", "op", "tame")

    def __init__(self, expr: Expr, args: tuple[int, ...], deps: frozenset[object], tame: bool) -> None:
        self.expr = expr
        self.op = expr.op
        self.dtype = expr.dtype
        self.attr = expr.attr
        self.args = args
        self.deps = deps
        self.tame = tame


class Graph:
    """All expressions of a kernel, equal ones once, in evaluation order."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.nodes: list[Node] = []
        self._numbers: dict[object, int] = {}
        self._known: dict[int, int] = {}
        self._casts: dict[tuple[int, Dtype], Expr] = {}
        for stage in kernel.stages:
            self.add([*roots(stage), *(e for side in stage.sides for e, _ in side.index.values)])

    def add(self, expressions: list[Expr]) -> None:
        for number, e, at in linearize(expressions, self._numbers, self._known):
            assert number == len(self.nodes)
            deps: set[object] = set()
            for k in at:
                deps |= self.nodes[k].deps
            if e.op == "axis":
                deps.add(e.attr)
            elif e.op == "row":
                deps.add(("row", e.attr))
            elif e.op == "load":
                deps |= index_axes(e.attr.index)
            self.nodes.append(Node(e, at, frozenset(deps), self._is_tame(e, at)))

    def _is_tame(self, e: Expr, at: tuple[int, ...]) -> bool:
        if e.op == "cast":
            return is_half(e.dtype) or is_half(e.args[0].dtype) or e.args[0].dtype.rank < 2
        if e.op == "row":
            found = [r.value for stage in self.kernel.stages for r in stage.reduces if r.number == e.attr]
            at = tuple(self._known.get(id(value), len(self.nodes)) for value in found)
            return all(k < len(self.nodes) and self.nodes[k].tame for k in at)
        if e.op in ("const", "param"):
            return True
        if e.op == "select":
            at = at[1:]
        elif e.op not in _KEEP_NAN:
            return False
        return all(self.nodes[k].tame for k in at)

    def number(self, e: Expr) -> int:
        return self._known[id(e)]

    def cast(self, value: Expr, dtype: Dtype) -> int:
        """The node of `value` as `dtype`."""
        key = (self.number(value), dtype)
        e = self._casts.get(key)
        if e is None:
            e = self._casts[key] = cast(value, dtype)  # kept, as expressions are known by their identity
            self.add([e])
        return self.number(e)

    def needed(self, wanted: Iterable[int], have: Callable[[int], bool]) -> list[int]:
        """What must be evaluated for `wanted`, in order, beyond what one has."""
        found: set[int] = set()
        stack = [k for k in wanted if not have(k)]
        while stack:
            k = stack.pop()
            if k in found:
                continue
            found.add(k)
            stack.extend(a for a in self.nodes[k].args if a not in found and not have(a))
        return sorted(found)

    def cost(self, numbers: Iterable[int]) -> int:
        return sum(_MATH_COST if self.nodes[k].op in MATH else 6 if self.nodes[k].op in ("div", "sqrt", "idiv", "imod", "ipow") else 1 for k in numbers)


def index_axes(index: Index) -> set[object]:
    return {axis for axis, stride in index.terms if isinstance(stride, Slot) or stride != 0}


def store_roots(graph: Graph, stores: Iterable[Store]) -> list[int]:
    found: list[int] = []
    for store in stores:
        found += [graph.number(e) for e, _ in store.index.values]
        found += [graph.number(store.mask)] if store.mask is not None else []
        found.append(graph.number(store.value))
    return found


def walk_roots(graph: Graph, stage: Stage) -> list[int]:
    """What a stage evaluates at every place of its walk."""
    found = store_roots(graph, [s for s in stage.stores if s.full])
    found += [graph.number(r.value) for r in stage.reduces]
    for side in stage.sides:
        found += [graph.number(side.value)]
    return found


def row_roots(graph: Graph, stage: Stage) -> list[int]:
    return store_roots(graph, [s for s in stage.stores if not s.full])


def kept_nodes(graph: Graph, least_cost: int) -> list[tuple[int, int]]:
    """`(stage, node)`: what later stages of a row want again and costs at least so much, and the stage that computes it first."""
    reduced = {k for k, axis in enumerate(graph.kernel.axes) if axis.reduced}
    last = max(reduced)  # what does not vary along it is made once a segment, where there is no place of its own to keep it at

    def once(k: int) -> bool:
        return not graph.nodes[k].deps & reduced

    first: dict[int, int] = {}
    kept: dict[int, int] = {}
    for t, stage in enumerate(graph.kernel.stages):
        wanted = walk_roots(graph, stage)
        needed = graph.needed(wanted, lambda k: once(k) or k in kept)
        fresh = [k for k in needed if k not in first]
        seen = {a for k in fresh for a in graph.nodes[k].args} | set(wanted)
        for k in sorted(seen):
            dtype = graph.nodes[k].dtype
            if k in first and first[k] < t and k not in kept and last in graph.nodes[k].deps and dtype is not bool_ and dtype is not complex64:
                if graph.cost(graph.needed([k], lambda a: once(a) or a in kept)) >= least_cost:
                    kept[k] = first[k]
        for k in fresh:
            first[k] = t
    return [(t, k) for k, t in kept.items()]
