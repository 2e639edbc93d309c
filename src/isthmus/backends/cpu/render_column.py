"""Entries of column kernels: the last axis is parallel, so each lane is a column with sums of its own.

A tile of columns walks the reduced axes in blocks of 64 and superblocks of 64 blocks (the column rule,
docs/design/cpu_abi.md). Either a unit is a tile with all its stages, or, for one stage with many places to reduce, a
unit is a block of a tile and a second phase adds the blocks up.
"""

from __future__ import annotations

from collections.abc import Callable

from isthmus.backends.cpu.compile import host
from isthmus.backends.cpu.render_emit import Emitter, Value, register_bytes
from isthmus.backends.cpu.render_loops import Odometer, full_stores, natural_lanes
from isthmus.backends.cpu.render_reduce import Accumulator, is_ordered, join
from isthmus.graph.dtype import bool_, complex64
from isthmus.kernel.graph import Graph, row_roots, walk_roots
from isthmus.kernel.loops import Reduce

BLOCK = 64
SUPER = 64 * 64
CELL = 16  # bytes of partial result a place: planes of values (8 each), imaginary parts (4), indices (4)


class ColumnWalk:
    """What the entries of one column kernel share."""

    def __init__(self, graph: Graph, symbol: str, lanes: int) -> None:
        self.graph = graph
        self.kernel = graph.kernel
        self.out = out = Emitter(graph, symbol, 2)
        axes = self.kernel.axes
        self.last = len(axes) - 1
        self.outer = [k for k, axis in enumerate(axes[:-1]) if not axis.reduced]
        self.reduced = [k for k, axis in enumerate(axes) if axis.reduced]
        self.place = Odometer(out, self.outer)
        self.inside = Odometer(out, self.reduced)
        self.length = out.product(self.reduced)
        self.columns = out.size(self.last)
        self.tiles = out.i64("udiv", out.i64("add", self.columns, lanes - 1), lanes)
        self.known: set[object] = set()
        out.vector_axis, out.lanes = self.last, lanes
        for stage in self.kernel.stages:
            out.hoist(walk_roots(graph, stage), set())

    def at_tile(self, outer: str, tile: str, body: Callable[[], None], twice: bool) -> None:
        """`body` at one tile of columns of one place of the outer axes; `twice`: with a form for whole tiles."""
        out = self.out
        self.place.start(outer)
        self.place.read()
        first = out.i64("mul", tile, out.lanes)
        count = out.i64("sub", self.columns, first)
        whole = out.op(f"icmp sge i64 {count}, {out.lanes}")
        out.vector_start = first
        self.known = {*self.outer, self.last}

        def fresh(mask: str | None) -> None:
            out.mask = mask
            out.rows = {}
            self.known = {*self.outer, self.last}
            body()
            out.mask = None

        if twice or host().simd_bytes < 64:
            with out.when(whole):
                fresh(None)
            with out.when(out.op(f"xor i1 {whole}, true")):
                fresh(out.first_lanes(count))
        else:
            fresh(out.first_lanes(out.least(count, str(out.lanes))))

    def walk(self, t: int, accumulators: list[Accumulator], start: str, stop: str) -> None:
        out, stage = self.out, self.kernel.stages[t]
        single = len(self.reduced) == 1
        if not single:
            self.inside.start(start)
        wanted = walk_roots(self.graph, stage)
        with out.loop(start, stop) as i:
            if single:
                out.axes[self.reduced[0]] = i
            else:
                self.inside.read()
            out.evaluate(wanted)
            index = None
            if any(a.arg for a in accumulators):
                index = out.splat("i32", out.op(f"trunc i64 {i} to i32"), out.lanes)
            for a in accumulators:
                a.add(out.of(a.reduce.value), index)
            full_stores(out, [s for s in stage.stores if s.full])
            if not single:
                self.inside.step()
        for axis in self.reduced:
            out.axes.pop(axis, None)

    def enter(self, t: int) -> list[Accumulator]:
        out, stage = self.out, self.kernel.stages[t]
        out.hoist(walk_roots(self.graph, stage), self.known)
        found = [Accumulator(out, r, out.lanes) for r in stage.reduces]
        for a in found:
            a.masked = False
        return found

    def leave(self, t: int, results: list[tuple[Reduce, Value]]) -> None:
        out, stage = self.out, self.kernel.stages[t]
        for reduce, value in results:
            out.rows[reduce.number] = value
            self.known.add(("row", reduce.number))
        stores = [s for s in stage.stores if not s.full]
        if stores:
            out.evaluate(row_roots(self.graph, stage))
            full_stores(out, stores)


def tile_entry(graph: Graph, symbol: str, lanes: int) -> Emitter:
    """Units are tiles of columns, for each place of the outer axes."""
    walk = ColumnWalk(graph, symbol, lanes)
    out = walk.out

    def stages() -> None:
        for t in range(len(walk.kernel.stages)):
            accumulators = walk.enter(t)
            walk.leave(t, whole_walk(walk, t, accumulators))

    with out.loop("%begin", "%end") as unit:
        outer = out.i64("udiv", unit, walk.tiles)
        tile = out.i64("sub", unit, out.i64("mul", outer, walk.tiles))
        walk.at_tile(outer, tile, stages, len(walk.kernel.stages) == 1)
    return out


def whole_walk(walk: ColumnWalk, t: int, accumulators: list[Accumulator]) -> list[tuple[Reduce, Value]]:
    out = walk.out
    ordered = [a for a in accumulators if is_ordered(a.reduce)]
    for a in accumulators:
        a.reset("zeroinitializer")
    if not ordered:
        walk.walk(t, accumulators, "0", walk.length)
        return [(a.reduce, a.result(*a.state())) for a in accumulators]
    supers, totals = [Accumulator(out, a.reduce, out.lanes) for a in ordered], [Accumulator(out, a.reduce, out.lanes) for a in ordered]
    for a in totals:
        a.reset()
    with out.loop("0", walk.length, SUPER) as first:
        for a in supers:
            a.reset()
        with out.loop(first, out.least(walk.length, out.i64("add", first, SUPER)), BLOCK) as start:
            for a in ordered:
                a.reset()
            walk.walk(t, accumulators, start, out.least(walk.length, out.i64("add", start, BLOCK)))
            for a, above in zip(ordered, supers, strict=True):
                above.set(join(out, a.kind, above.get(), a.get()))
        for a, above in zip(supers, totals, strict=True):
            above.set(join(out, a.kind, above.get(), a.get()))
    found = []
    for a in accumulators:
        source = totals[ordered.index(a)] if a in ordered else a
        found.append((a.reduce, source.result(*source.state())))
    return found


# -- two phases


class Planes:
    """Partial results in scratch: for each reduction, place of the outer axes and block, a row of columns."""

    def __init__(self, walk: ColumnWalk) -> None:
        self.walk = walk
        out = walk.out
        self.blocks = out.i64("udiv", out.i64("add", walk.length, BLOCK - 1), BLOCK)
        self.places = out.i64("mul", out.i64("mul", out.product(walk.outer), self.blocks), walk.columns)
        self.base = out.op(f"inttoptr i64 {out.slots[walk.kernel.n_slots]} to ptr")
        self.order = [r.number for r in walk.kernel.stages[0].reduces]

    def pointers(self, a: Accumulator, outer: str, block: str) -> list[tuple[str, str]]:
        """`(element type, pointer)` of value, imaginary part, index."""
        out, walk = self.walk.out, self.walk
        start = out.i64("mul", out.i64("mul", self.places, self.order.index(a.reduce.number)), CELL)
        row = out.i64("mul", out.i64("add", out.i64("mul", outer, self.blocks), block), walk.columns)
        at = out.i64("add", row, out.vector_start)
        found = []
        for ty, plane, wanted in (("i8" if a.dtype is bool_ else a.ty, 0, True), ("float", 8, bool(a.imag)), ("i32", 12, a.arg)):
            if wanted:
                base = out.op(f"getelementptr i8, ptr {self.base}, i64 {out.i64('add', start, out.i64('mul', self.places, plane))}")
                found.append((ty, out.op(f"getelementptr {ty}, ptr {base}, i64 {at}")))
        return found

    def put(self, a: Accumulator, outer: str, block: str) -> None:
        out = self.walk.out
        value, index = a.state()
        names = [out.to_memory(value) if a.dtype is bool_ else value.name]
        names += [value.imag] if a.imag else []
        names += [index] if a.arg else []
        for (ty, pointer), name in zip(self.pointers(a, outer, block), names, strict=True):
            out.write(ty, out.lanes, 1 if ty == "i8" else 4, name, pointer, out.mask)

    def get(self, a: Accumulator, outer: str, block: str) -> tuple[Value, str]:
        out = self.walk.out
        names = [out.read(ty, out.lanes, 1 if ty == "i8" else 4, pointer, out.mask) for ty, pointer in self.pointers(a, outer, block)]
        value = out.from_memory(names[0], bool_, out.lanes) if a.dtype is bool_ else Value(names[0], a.dtype, out.lanes, names[1] if a.imag else "")
        return value, names[-1] if a.arg else ""


def block_entry(graph: Graph, symbol: str, lanes: int) -> Emitter:
    """Units are blocks of 64 places to reduce, of a tile of columns (fastest), of a place of the outer axes."""
    walk = ColumnWalk(graph, symbol, lanes)
    out = walk.out
    planes = Planes(walk)
    with out.loop("%begin", "%end") as unit:
        above = out.i64("udiv", unit, walk.tiles)
        tile = out.i64("sub", unit, out.i64("mul", above, walk.tiles))
        outer = out.i64("udiv", above, planes.blocks)
        block = out.i64("sub", above, out.i64("mul", outer, planes.blocks))
        start = out.i64("mul", block, BLOCK)

        def body() -> None:
            accumulators = walk.enter(0)
            for a in accumulators:
                a.reset(out.splat("i32", out.op(f"trunc i64 {start} to i32"), out.lanes))
            walk.walk(0, accumulators, start, out.least(walk.length, out.i64("add", start, BLOCK)))
            for a in accumulators:
                planes.put(a, outer, block)

        walk.at_tile(outer, tile, body, True)
    return out


def blocks_finish_entry(graph: Graph, symbol: str, lanes: int) -> Emitter:
    """Units are tiles of columns, for each place of the outer axes: blocks add up, and the row stores are done."""
    walk = ColumnWalk(graph, symbol, lanes)
    out = walk.out
    planes = Planes(walk)
    stage = walk.kernel.stages[0]
    with out.loop("%begin", "%end") as unit:
        outer = out.i64("udiv", unit, walk.tiles)
        tile = out.i64("sub", unit, out.i64("mul", outer, walk.tiles))

        def body() -> None:
            totals = [Accumulator(out, r, out.lanes) for r in stage.reduces]
            supers = [Accumulator(out, r, out.lanes) for r in stage.reduces]
            for a in totals:
                a.noting = a.masked = False
                a.reset("zeroinitializer")
            with out.loop("0", planes.blocks, BLOCK) as first:
                for a in supers:
                    a.noting = a.masked = False
                    a.reset("zeroinitializer")
                with out.loop(first, out.least(planes.blocks, out.i64("add", first, BLOCK))) as block:
                    for a, total in zip(supers, totals, strict=True):
                        value, index = planes.get(a, outer, block)
                        target = a if is_ordered(a.reduce) else total
                        if a.arg:
                            best, k = target.pick(*target.state(), value, index)
                            out.do(f"store <{out.lanes} x i32> {k}, ptr {target.index}")
                        else:
                            best = join(out, a.kind, target.get(), value)
                        target.set(best)
                for a, total in zip(supers, totals, strict=True):
                    if is_ordered(a.reduce):
                        total.set(join(out, a.kind, total.get(), a.get()))
            walk.leave(0, [(a.reduce, a.result(*a.state())) for a in totals])

        walk.at_tile(outer, tile, body, False)
    return out


def tile_lanes(graph: Graph) -> tuple[int, int]:
    """Least and most lanes of a tile.

    One stage takes wide tiles where the work is cheap, so that each row of a tile is some whole cache lines. Several
    stages take narrow ones, so that a later stage finds the tile in the cache: softmax of 10000 x 1000 over its first
    axis took 11.5 ms with 16 lanes, 21 ms with 32 (1 thread, float32).
    """
    wanted = [k for stage in graph.kernel.stages for k in walk_roots(graph, stage)]
    natural = natural_lanes(graph, wanted)
    if len(graph.kernel.stages) > 1:
        half = any(node.op == "load" and node.dtype.size < 4 for node in graph.nodes)
        return natural, 2 * natural if half else natural
    states = sum((2 if r.dtype is complex64 or r.kind.startswith("arg") else 1) * (2 if register_bytes(r.dtype) > 4 else 1) for r in graph.kernel.stages[0].reduces)
    dear = graph.cost(graph.needed(wanted, lambda k: False)) > 40
    return natural, natural if dear or states > 3 else 2 * natural if states > 1 else 4 * natural
