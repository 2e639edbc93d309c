"""The loops around the expressions: the entries of map and scatter kernels, and what walks have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from isthmus.backends.cpu.compile import host
from isthmus.backends.cpu.render_emit import Emitter, Graph, register_bytes
from isthmus.kernel.loops import Stage, Store


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


def natural_lanes(graph: Graph, wanted: Iterable[int]) -> int:
    """Lanes so that the widest common value fills a register (int64 indices beside smaller values do not count)."""
    sizes = [register_bytes(graph.nodes[k].dtype) for k in graph.needed(wanted, lambda k: False) if graph.nodes[k].deps]
    sizes = [s for s in sizes if s < 8] or [8]
    if any(graph.nodes[k].dtype.code == "f64" for k in graph.needed(wanted, lambda k: False)):
        sizes = [8]
    return max(4, host().simd_bytes // max(sizes))


class Odometer:
    """The indices of some axes, the last fastest, as cells; `start(flat)` sets them, `step()` goes one on."""

    def __init__(self, out: Emitter, axes: list[int]) -> None:
        self.out = out
        self.list = axes
        self.cells = {axis: out.variable("i64", "0") for axis in axes}

    def start(self, flat: str) -> None:
        out = self.out
        for axis in reversed(self.list[1:]):
            size = out.size(axis)
            quotient = out.int("udiv", flat, size)
            out.do(f"store i64 {out.int('sub', flat, out.int('mul', quotient, size))}, ptr {self.cells[axis]}")
            flat = quotient
        if self.list:
            out.do(f"store i64 {flat}, ptr {self.cells[self.list[0]]}")

    def read(self) -> None:
        """Make them the emitter's indices."""
        for axis in self.list:
            self.out.axes[axis] = self.out.op(f"load i64, ptr {self.cells[axis]}")

    def step(self) -> None:
        out = self.out
        carry = "1"
        for axis in reversed(self.list):
            now = out.int("add", out.op(f"load i64, ptr {self.cells[axis]}"), carry)
            if axis == self.list[0]:
                out.do(f"store i64 {now}, ptr {self.cells[axis]}")
                return
            full = out.op(f"icmp eq i64 {now}, {out.size(axis)}")
            out.do(f"store i64 {out.op(f'select i1 {full}, i64 0, i64 {now}')}, ptr {self.cells[axis]}")
            carry = out.op(f"zext i1 {full} to i64")


def vector_loop(out: Emitter, start: str, stop: str, body: Callable[[], None]) -> None:
    """`body` over the vector axis from `start` to `stop`: whole vectors, then one with a mask."""
    n = out.lanes
    count = out.int("sub", stop, start)
    whole = out.int("add", start, out.op(f"and i64 {count}, {-n}"))
    with out.loop(start, whole, n) as i:
        out.vector_start, out.mask = i, None
        body()
    rest = out.int("sub", stop, whole)
    with out.when(out.op(f"icmp sgt i64 {rest}, 0")):
        out.vector_start, out.mask = whole, out.first_lanes(rest)
        body()
    out.mask = None


def full_stores(out: Emitter, stores: Iterable[Store]) -> None:
    """Everything is read before anything is written: a buffer may be written in place."""
    stores = list(stores)
    for store in stores:
        for e, _ in store.index.values:
            out.of(e)
        if store.mask is not None:
            out.of(store.mask)
        out.of(store.value)
    for store in stores:
        out.store(store)


# -- map and scatter


def map_entry(graph: Graph, symbol: str, unroll: int = 1) -> Emitter:
    """Units are the places of the frame in row-major order."""
    kernel = graph.kernel
    stage = kernel.stages[0]
    out = Emitter(graph, symbol, 0)
    wanted = walk_roots(graph, stage)
    if not kernel.axes:
        full_stores(out, stage.stores)
        return out
    last = len(kernel.axes) - 1
    outer = list(range(last))
    out.lanes = natural_lanes(graph, wanted) * unroll
    out.vector_axis = last
    out.hoist(wanted, set())

    def body() -> None:
        out.scopes.append({})
        full_stores(out, stage.stores)
        out.scopes.pop()

    def hoist_bases(allowed: set[object]) -> None:
        out.hoist(wanted, allowed)
        for store in stage.stores:
            out.hoist_base(store.buffer, store.index, allowed)

    if not outer:
        hoist_bases(set())
        vector_loop(out, "%begin", "%end", body)
        return out
    size = out.size(last)
    first = out.int("udiv", "%begin", size)
    place = Odometer(out, outer)
    place.start(first)
    inner = out.variable("i64", out.int("sub", "%begin", out.int("mul", first, size)))
    done = out.variable("i64", "%begin")

    def more() -> str:
        return out.op(f"icmp slt i64 {out.op(f'load i64, ptr {done}')}, %end")

    with out.repeat(more):
        place.read()
        start = out.op(f"load i64, ptr {inner}")
        at = out.op(f"load i64, ptr {done}")
        stop = out.least(size, out.int("add", start, out.int("sub", "%end", at)))
        hoist_bases(set(outer))
        vector_loop(out, start, stop, body)
        out.do(f"store i64 {out.int('add', at, out.int('sub', stop, start))}, ptr {done}")
        out.do(f"store i64 0, ptr {inner}")
        place.step()
    return out


def scatter_entry(graph: Graph, symbol: str) -> Emitter:
    """Units are the places of the frame, walked in order by one thread: stores may meet."""
    kernel = graph.kernel
    stage = kernel.stages[0]
    out = Emitter(graph, symbol, 0)
    if not kernel.axes:
        full_stores(out, stage.stores)
        return out
    wanted = walk_roots(graph, stage)
    last = len(kernel.axes) - 1
    outer = list(range(last))
    out.hoist([], set())
    for k in graph.needed(wanted, lambda k: False):
        if graph.nodes[k].op in ("const", "param"):
            out.value(k)
    place = Odometer(out, outer)
    with out.loop("0", out.product(outer)):
        place.read()
        with out.loop("0", out.size(last)) as i:
            out.axes[last] = i
            full_stores(out, stage.stores)
        place.step()
    return out
