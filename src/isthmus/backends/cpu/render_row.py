"""Entries of row kernels: each row's stages by one thread, or a long row's chunks by all.

Both walk flat places `i` of the row in groups of 32 lanes that begin at multiples of 32, so that lane `i % 32` and chunk
`i // 4096` of the row rule (docs/design/cpu_abi.md) are where they belong however the places lie in memory.
"""

from __future__ import annotations

from isthmus.backends.cpu.render_emit import Emitter, Value, literal, register_bytes, register_type
from isthmus.backends.cpu.render_loops import Odometer, full_stores, natural_lanes, vector_loop
from isthmus.backends.cpu.render_reduce import Accumulator, identity, is_ordered, join
from isthmus.graph.dtype import Dtype, bool_, complex64, float32, uint32
from isthmus.kernel.graph import Graph, row_roots, walk_roots
from isthmus.kernel.loops import Reduce, Side, Stage
from isthmus.kernel.scalar import is_half

LANES = 32
CHUNK = 4096
BLOCK = 64
CELL = 16  # bytes of a partial result: 8 of value, 4 of index


class RowWalk:
    """What the entries of one row kernel share."""

    def __init__(self, graph: Graph, symbol: str, n_extra: int, kept: list[tuple[int, int]]) -> None:
        self.graph = graph
        self.kernel = graph.kernel
        self.out = Emitter(graph, symbol, n_extra)
        self.parallel = [k for k, axis in enumerate(self.kernel.axes) if not axis.reduced]
        self.reduced = [k for k, axis in enumerate(self.kernel.axes) if axis.reduced]
        self.last = self.reduced[-1]
        self.place = Odometer(self.out, self.parallel)
        self.segment = Odometer(self.out, self.reduced[:-1])
        self.length = self.out.product(self.reduced)
        self.kept = kept
        self.kept_rows: dict[int, str] = {}
        self.known: set[object] = set(self.parallel)
        self.sides: list[str] = []  # this block's rows of side partials

    def scratch(self, offset: str = "0") -> str:
        pointer = self.out.op(f"inttoptr i64 {self.out.slots[self.kernel.n_slots]} to ptr")
        return pointer if offset == "0" else self.out.op(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    # -- one stage over a part of the row

    def lanes_of(self, stage: Stage) -> int:
        if any(is_ordered(r) for r in stage.reduces):
            return LANES
        return min(LANES, 2 * natural_lanes(self.graph, walk_roots(self.graph, stage)))

    def enter(self, t: int) -> list[Accumulator]:
        """Stand at the row's place, ready to walk stage `t`: what a row needs is computed once."""
        out, stage = self.out, self.kernel.stages[t]
        out.vector_axis, out.lanes, out.mask = self.last, self.lanes_of(stage), None
        out.saved = {k: self.kept_rows[k] for first, k in self.kept if first < t}
        out.hoist(walk_roots(self.graph, stage), self.known)
        for store in stage.stores:
            if store.full:
                out.hoist_base(store.buffer, store.index, self.known)
        return [Accumulator(out, r, out.lanes) for r in stage.reduces]

    def first_index(self, start: str) -> str:
        out = self.out
        low = out.op(f"trunc i64 {start} to i32")
        return out.op(f"add <{out.lanes} x i32> {out.splat('i32', low, out.lanes)}, {out.iota('i32', out.lanes)}")

    def body(self, t: int, accumulators: list[Accumulator], flat: str) -> None:
        out, stage = self.out, self.kernel.stages[t]
        out.scopes.append({})
        out.saved_at = flat
        out.evaluate(walk_roots(self.graph, stage))
        index = self.first_index(flat) if any(a.arg for a in accumulators) else None
        for accumulator in accumulators:
            accumulator.add(out.of(accumulator.reduce.value), index)
        for first, k in self.kept:
            if first == t:
                out.save(k, self.kept_rows[k])
        full_stores(out, [s for s in stage.stores if s.full])
        for side, row in zip(stage.sides, self.sides, strict=False):
            self.add_side(out.of(side.value), row, flat)
        out.scopes.pop()

    def walk(self, t: int, accumulators: list[Accumulator], start: str, stop: str) -> None:
        """Flat places `start` (a multiple of 32) to `stop`."""
        out = self.out
        if not self.segment.list:
            vector_loop(out, start, stop, lambda: self.body(t, accumulators, out.vector_start))
            return
        n, size = out.lanes, out.size(self.last)
        segment = out.i64("udiv", start, size)
        self.segment.start(segment)
        flat = out.variable("i64", start)
        base = out.variable("i64", out.i64("mul", segment, size))  # of the segment

        def before(limit: str) -> str:
            return out.op(f"icmp slt i64 {out.op(f'load i64, ptr {flat}')}, {limit}")

        with out.repeat(lambda: before(stop)):
            self.segment.read()
            origin = out.op(f"load i64, ptr {base}")
            end = out.least(stop, out.i64("add", origin, size))
            out.hoist(walk_roots(self.graph, self.kernel.stages[t]), self.known | set(self.segment.list))
            with out.repeat(lambda: before(end)):
                at = out.op(f"load i64, ptr {flat}")
                low = out.op(f"and i64 {at}, {n - 1}")
                count = out.i64("sub", end, at)
                whole = out.op(f"and i64 {count}, {-n}")
                aligned = out.op(f"select i1 {out.op(f'icmp eq i64 {low}, 0')}, i64 {whole}, i64 0")
                to = out.i64("add", at, aligned)
                with out.loop(at, to, n) as i:
                    out.vector_start, out.mask = out.i64("sub", i, origin), None
                    self.body(t, accumulators, i)
                low = out.op(f"and i64 {to}, {n - 1}")
                group = out.i64("sub", to, low)
                high = out.least(str(n), out.i64("sub", end, group))
                with out.when(out.op(f"icmp slt i64 {low}, {high}")):
                    out.vector_start, out.mask = out.i64("sub", group, origin), out.first_lanes(high, low)
                    self.body(t, accumulators, group)
                out.do(f"store i64 {out.i64('add', group, high)}, ptr {flat}")
                out.mask = None
            out.do(f"store i64 {out.i64('add', origin, size)}, ptr {base}")
            self.segment.step()
            for axis in self.segment.list:
                del out.axes[axis]

    # -- row stores

    def leave(self, t: int, results: list[tuple[Reduce, Value]]) -> None:
        """After the walk of stage `t`: its results are known, and its row stores are done."""
        out, stage = self.out, self.kernel.stages[t]
        for reduce, value in results:
            out.rows[reduce.number] = value
            self.known.add(("row", reduce.number))
        stores = [s for s in stage.stores if not s.full]
        if stores:
            out.vector_axis, out.lanes, out.mask = None, 0, None
            out.evaluate(row_roots(self.graph, stage))
            full_stores(out, stores)

    # -- side sums: a block of 64 rows adds up in a row of partials

    def add_side(self, value: Value, row: str, flat: str) -> None:
        out = self.out
        dtype = float32 if is_half(value.dtype) else value.dtype
        value = out.widen(out.cast(value, dtype), out.lanes)
        ty, size = register_type(dtype), register_bytes(dtype)
        if dtype is complex64:
            pointer = out.op(f"getelementptr i64, ptr {row}, i64 {flat}")
            out.store_run(dtype, join(out, "sum", out.load_run(dtype, pointer, out.mask), value), pointer, out.mask)
            return
        pointer = out.op(f"getelementptr {ty}, ptr {row}, i64 {flat}")
        old = Value(out.read(ty, out.lanes, size, pointer, out.mask), dtype, out.lanes)
        out.write(ty, out.lanes, size, join(out, "sum", old, value).name, pointer, out.mask)


def rows_entry(graph: Graph, symbol: str, kept: list[tuple[int, int]]) -> Emitter:
    """Units are rows (blocks of 64 rows where there are side sums). Extra slots: scratch bytes a worker, then bytes
    of scratch before the side partials."""
    walk = RowWalk(graph, symbol, 2, kept)
    out, kernel = walk.out, walk.kernel
    extra = out.slots[kernel.n_slots + 1 :]
    if kept:
        at = walk.scratch(out.i64("mul", "%worker", extra[0]))
        for _, k in kept:
            walk.kept_rows[k] = at
            at = out.op(f"getelementptr i8, ptr {at}, i64 {out.i64('mul', walk.length, register_bytes(graph.nodes[k].dtype))}")
    for stage in kernel.stages:
        out.hoist(walk_roots(graph, stage), set())
    sides = [side for stage in kernel.stages for side in stage.sides]
    if not sides:
        walk.place.start("%begin")
        with out.loop("%begin", "%end"):
            one_row(walk)
        return out
    rows = out.product(walk.parallel)
    blocks = out.i64("udiv", out.i64("add", rows, BLOCK - 1), BLOCK)
    partials = side_partials(walk, extra[1], blocks)
    with out.loop("%begin", "%end") as block:
        first = out.i64("mul", block, BLOCK)
        last = out.least(rows, out.i64("add", first, BLOCK))
        mine = []
        for side, pointer in zip(sides, partials, strict=True):
            bytes_ = out.i64("mul", walk.length, side_bytes(side))
            row = out.op(f"getelementptr i8, ptr {pointer}, i64 {out.i64('mul', block, bytes_)}")
            out.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
            out.do(f"call void @llvm.memset.p0.i64(ptr {row}, i8 0, i64 {bytes_}, i1 false)")
            mine.append(row)
        walk.place.start(first)
        with out.loop(first, last):
            one_row(walk, mine)
    return out


def side_partials(walk: RowWalk, offset: str, blocks: str) -> list[str]:
    """Where the partial rows of each side sum begin."""
    out = walk.out
    at = walk.scratch(offset)
    found = []
    for stage in walk.kernel.stages:
        for side in stage.sides:
            found.append(at)
            bytes_ = out.i64("mul", out.i64("mul", walk.length, side_bytes(side)), blocks)
            at = out.op(f"getelementptr i8, ptr {at}, i64 {bytes_}")
    return found


def one_row(walk: RowWalk, sides: list[str] | None = None) -> None:
    out, kernel = walk.out, walk.kernel
    walk.known = set(walk.parallel)
    out.rows = {}
    walk.place.read()
    n_sides = 0
    for t, stage in enumerate(kernel.stages):
        accumulators = walk.enter(t)
        if sides is not None:
            walk.sides = sides[n_sides : n_sides + len(stage.sides)]
            n_sides += len(stage.sides)
        walk.leave(t, walk_row(walk, t, accumulators))
    walk.place.step()


def walk_row(walk: RowWalk, t: int, accumulators: list[Accumulator]) -> list[tuple[Reduce, Value]]:
    """Stage `t` over a whole row, with the level of chunks where there are ordered sums."""
    out = walk.out
    ordered = [a for a in accumulators if is_ordered(a.reduce)]
    for a in accumulators:
        if a not in ordered:
            a.reset(out.iota("i32", out.lanes))
    if not ordered:
        walk.walk(t, accumulators, "0", walk.length)
        return [(a.reduce, a.result(*a.fold())) for a in accumulators]
    long = out.op(f"icmp sgt i64 {walk.length}, {CHUNK}")
    levels = [Level(out, a) for a in ordered]
    with out.when(long):
        for level in levels:
            level.reset()
    with out.loop("0", walk.length, CHUNK) as start:
        for a in ordered:
            a.reset()
        walk.walk(t, accumulators, start, out.least(walk.length, out.i64("add", start, CHUNK)))
        totals = [a.fold()[0] for a in ordered]
        for level, total in zip(levels, totals, strict=True):
            level.total(total)
        with out.when(long):
            for level, total in zip(levels, totals, strict=True):
                level.add(out.i64("lshr", start, 12), total)
    with out.when(long):
        for level in levels:
            level.fold()
    results = []
    for a in accumulators:
        value = a.result(*((levels[ordered.index(a)].get(), "") if a in ordered else a.fold()))
        results.append((a.reduce, value))
    return results


class Level:
    """Totals of chunks, in 32 lanes of memory, and the result."""

    def __init__(self, out: Emitter, like: Accumulator) -> None:
        self.out = out
        self.like = like
        self.parts = 2 if like.imag else 1
        self.lanes = [out.variable(f"<{LANES} x {like.ty}>") for _ in range(self.parts)]
        self.cells = [out.variable(like.ty) for _ in range(self.parts)]

    def reset(self) -> None:
        ty = self.like.ty
        starts = [identity(self.like.kind, self.like.dtype), literal(0, self.like.dtype)]
        for cell, start in zip(self.lanes, starts, strict=False):
            self.out.do(f"store <{LANES} x {ty}> {self.out.splat(ty, start, LANES)}, ptr {cell}")

    def total(self, value: Value) -> None:
        for cell, name in zip(self.cells, (value.name, value.imag), strict=False):
            self.out.do(f"store {self.like.ty} {name}, ptr {cell}")

    def add(self, chunk: str, value: Value) -> None:
        out, ty = self.out, self.like.ty
        lane = out.op(f"and i64 {chunk}, {LANES - 1}")
        pointers = [out.op(f"getelementptr {ty}, ptr {cell}, i64 {lane}") for cell in self.lanes]
        names = [out.op(f"load {ty}, ptr {p}") for p in pointers]
        new = join(out, self.like.kind, Value(names[0], self.like.dtype, 0, names[1] if self.parts == 2 else ""), value)
        for pointer, name in zip(pointers, (new.name, new.imag), strict=False):
            out.do(f"store {ty} {name}, ptr {pointer}")

    def fold(self) -> None:
        out, ty = self.out, self.like.ty
        names = [out.op(f"load <{LANES} x {ty}>, ptr {cell}") for cell in self.lanes]
        value = Value(names[0], self.like.dtype, LANES, names[1] if self.parts == 2 else "")
        n = LANES
        while n > 1:
            n //= 2
            value = join(out, self.like.kind, self.like.half(value, n, 0), self.like.half(value, n, 1))
        self.total(Value(*(out.op(f"extractelement <1 x {ty}> {value.name}, i64 0"), value.dtype, 0), out.op(f"extractelement <1 x {ty}> {value.imag}, i64 0") if value.imag else ""))

    def get(self) -> Value:
        names = [self.out.op(f"load {self.like.ty}, ptr {cell}") for cell in self.cells]
        return Value(names[0], self.like.dtype, 0, names[1] if self.parts == 2 else "")


# -- split: the chunks of long rows are the units


class Partials:
    """Cells in scratch: one for each reduction, row and chunk, then one for each reduction and row."""

    def __init__(self, walk: RowWalk) -> None:
        self.walk = walk
        out = walk.out
        self.rows = out.product(walk.parallel)
        self.chunks = out.i64("udiv", out.i64("add", walk.length, CHUNK - 1), CHUNK)
        self.order = [r.number for stage in walk.kernel.stages for r in stage.reduces]
        self.base = walk.scratch()

    def cell(self, reduce: Reduce, row: str, chunk: str) -> str:
        out = self.walk.out
        at = out.i64("add", out.i64("mul", out.i64("add", out.i64("mul", self.order.index(reduce.number), self.rows), row), self.chunks), chunk)
        return out.op(f"getelementptr i8, ptr {self.base}, i64 {out.i64('mul', at, CELL)}")

    def result(self, reduce: Reduce, row: str) -> str:
        out = self.walk.out
        before = out.i64("mul", out.i64("mul", len(self.order), self.rows), self.chunks)
        at = out.i64("add", out.i64("add", before, out.i64("mul", self.order.index(reduce.number), self.rows)), row)
        return out.op(f"getelementptr i8, ptr {self.base}, i64 {out.i64('mul', at, CELL)}")

    def put(self, pointer: str, value: Value, index: str = "") -> None:
        out = self.walk.out
        if value.dtype is bool_:
            out.do(f"store i8 {out.to_memory(value)}, ptr {pointer}")
        else:
            out.do(f"store {register_type(value.dtype)} {value.name}, ptr {pointer}")
        if value.imag:
            out.do(f"store float {value.imag}, ptr {out.op(f'getelementptr i8, ptr {pointer}, i64 4')}")
        if index:
            out.do(f"store i32 {index}, ptr {out.op(f'getelementptr i8, ptr {pointer}, i64 8')}")

    def get(self, pointer: str, like: Accumulator) -> tuple[Value, str]:
        out = self.walk.out
        if like.dtype is bool_:
            value = out.from_memory(out.op(f"load i8, ptr {pointer}"), bool_, 0)
        else:
            imag = out.op(f"load float, ptr {out.op(f'getelementptr i8, ptr {pointer}, i64 4')}") if like.imag else ""
            value = Value(out.op(f"load {like.ty}, ptr {pointer}"), like.dtype, 0, imag)
        index = out.op(f"load i32, ptr {out.op(f'getelementptr i8, ptr {pointer}, i64 8')}") if like.arg else ""
        return value, index

    def known_rows(self, stages: int, row: str) -> None:
        """Results of the stages before `stages` become known."""
        out = self.walk.out
        for stage in self.walk.kernel.stages[:stages]:
            for r in stage.reduces:
                like = Accumulator(out, r, 0)
                if like.arg:
                    value = Value(out.op(f"load i32, ptr {self.result(r, row)}"), uint32, 0)
                else:
                    value, _ = self.get(self.result(r, row), like)
                out.rows[r.number] = value
                self.walk.known.add(("row", r.number))


def split_stage_entry(graph: Graph, symbol: str, t: int) -> Emitter:
    """Units are the chunks of all rows; partial results go to scratch."""
    walk = RowWalk(graph, symbol, 2, [])
    out = walk.out
    partials = Partials(walk)
    out.hoist(walk_roots(graph, walk.kernel.stages[t]), set())
    with out.loop("%begin", "%end") as unit:
        row = out.i64("udiv", unit, partials.chunks)
        chunk = out.i64("sub", unit, out.i64("mul", row, partials.chunks))
        walk.place.start(row)
        walk.place.read()
        walk.known = set(walk.parallel)
        partials.known_rows(t, row)
        accumulators = walk.enter(t)
        start = out.i64("mul", chunk, CHUNK)
        for a in accumulators:
            a.reset(walk.first_index(start) if a.arg else None)
        walk.walk(t, accumulators, start, out.least(walk.length, out.i64("add", start, CHUNK)))
        for a in accumulators:
            value, index = a.fold()
            partials.put(partials.cell(a.reduce, row, chunk), value, index)
    return out


def split_finish_entry(graph: Graph, symbol: str, t: int) -> Emitter:
    """Units are rows: chunks' partial results become the row's, and the stage's row stores are done."""
    walk = RowWalk(graph, symbol, 2, [])
    out = walk.out
    partials = Partials(walk)
    out.lanes = 0
    with out.loop("%begin", "%end") as row:
        walk.place.start(row)
        walk.place.read()
        walk.known = set(walk.parallel)
        partials.known_rows(t, row)
        results = []
        for r in walk.kernel.stages[t].reduces:
            like = Accumulator(out, r, 0)
            first, index = partials.get(partials.cell(r, row, "0"), like)
            if is_ordered(r):
                level = Level(out, like)
                level.total(first)
                with out.when(out.op(f"icmp sgt i64 {partials.chunks}, 1")):
                    level.reset()
                    with out.loop("0", partials.chunks) as chunk:
                        level.add(chunk, partials.get(partials.cell(r, row, chunk), like)[0])
                    level.fold()
                value = like.result(level.get(), "")
            else:
                like.noting = False
                like.set(first)
                if like.arg:
                    out.do(f"store i32 {index}, ptr {like.index}")
                with out.loop("1", partials.chunks) as chunk:
                    other, j = partials.get(partials.cell(r, row, chunk), like)
                    old, i = like.state()
                    if like.arg:
                        best, k = like.pick(old, i, other, j)
                        out.do(f"store i32 {k}, ptr {like.index}")
                    else:
                        best = join(out, r.kind, old, other)
                    like.set(best)
                value = like.result(*like.state())
            partials.put(partials.result(r, row), value)
            results.append((r, value))
        walk.leave(t, results)
    return out


def side_finish_entry(graph: Graph, symbol: str) -> Emitter:
    """Units are the places of the reduced axes: blocks' partial sums become the side sums."""
    walk = RowWalk(graph, symbol, 2, [])
    out, kernel = walk.out, walk.kernel
    extra = out.slots[kernel.n_slots + 1 :]
    rows = out.product(walk.parallel)
    blocks = out.i64("udiv", out.i64("add", rows, BLOCK - 1), BLOCK)
    partials = side_partials(walk, extra[1], blocks)
    sides = [side for stage in kernel.stages for side in stage.sides]
    size = out.size(walk.last)
    place = walk.segment
    out.vector_axis, out.lanes = walk.last, LANES
    first = out.i64("udiv", "%begin", size)
    place.start(first)
    inner = out.variable("i64", out.i64("sub", "%begin", out.i64("mul", first, size)))
    done = out.variable("i64", "%begin")
    with out.repeat(lambda: out.op(f"icmp slt i64 {out.op(f'load i64, ptr {done}')}, %end")):
        place.read()
        at, start = out.op(f"load i64, ptr {done}"), out.op(f"load i64, ptr {inner}")
        stop = out.least(size, out.i64("add", start, out.i64("sub", "%end", at)))

        def body() -> None:
            out.scopes.append({})
            flat = out.i64("add", at, out.i64("sub", out.vector_start, start))
            for side, base in zip(sides, partials, strict=True):
                dtype = float32 if is_half(side.value.dtype) else side.value.dtype
                total = sum_blocks(walk, base, dtype, blocks, flat)
                target = kernel.buffers[side.buffer]
                out.put(target, side.buffer, side.index, out.cast(total, target), None)
            out.scopes.pop()

        vector_loop(out, start, stop, body)
        out.do(f"store i64 {out.i64('add', at, out.i64('sub', stop, start))}, ptr {done}")
        out.do(f"store i64 0, ptr {inner}")
        place.step()
    return out


def side_bytes(side: Side) -> int:
    """Bytes of a partial sum."""
    return 4 if is_half(side.value.dtype) else max(1, side.value.dtype.size)


def sum_blocks(walk: RowWalk, base: str, dtype: Dtype, blocks: str, flat: str) -> Value:
    """Superblocks of 64 blocks in order, then these in order."""
    out = walk.out
    ty = register_type(dtype)
    vector = f"<{out.lanes} x {ty}>"
    zero = out.splat(ty, literal(0, dtype), out.lanes)
    parts = 2 if dtype is complex64 else 1
    totals, supers = [out.variable(vector, zero) for _ in range(parts)], [out.variable(vector) for _ in range(parts)]

    def get(cells: list[str]) -> Value:
        names = [out.op(f"load {vector}, ptr {cell}") for cell in cells]
        return Value(names[0], dtype, out.lanes, names[1] if parts == 2 else "")

    def put(cells: list[str], value: Value) -> None:
        for cell, name in zip(cells, (value.name, value.imag), strict=False):
            out.do(f"store {vector} {name}, ptr {cell}")

    with out.loop("0", blocks, BLOCK) as first:
        put(supers, Value(zero, dtype, out.lanes, zero))
        with out.loop(first, out.least(blocks, out.i64("add", first, BLOCK))) as block:
            at = out.i64("add", out.i64("mul", block, walk.length), flat)
            if dtype is complex64:
                row = out.load_run(dtype, out.op(f"getelementptr i64, ptr {base}, i64 {at}"), out.mask)
            else:
                pointer = out.op(f"getelementptr {ty}, ptr {base}, i64 {at}")
                row = Value(out.read(ty, out.lanes, register_bytes(dtype), pointer, out.mask), dtype, out.lanes)
            put(supers, join(out, "sum", get(supers), row))
        put(totals, join(out, "sum", get(totals), get(supers)))
    return get(totals)
