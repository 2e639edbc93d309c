"""The loops around the expressions: the entries of map and scatter kernels, and what walks have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from isthmus.backends.cpu.compile import host
from isthmus.backends.cpu.render_emit import Emitter, memory_type, register_bytes
from isthmus.graph.dtype import complex64
from isthmus.kernel.graph import Graph, Node, index_axes, walk_roots
from isthmus.kernel.loops import Axis, Index, Kernel, Load, Slot, Stage, Store
from isthmus.kernel.scalar import Expr


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
            quotient = out.i64("udiv", flat, size)
            out.do(f"store i64 {out.i64('sub', flat, out.i64('mul', quotient, size))}, ptr {self.cells[axis]}")
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
            now = out.i64("add", out.op(f"load i64, ptr {self.cells[axis]}"), carry)
            if axis == self.list[0]:
                out.do(f"store i64 {now}, ptr {self.cells[axis]}")
                return
            full = out.op(f"icmp eq i64 {now}, {out.size(axis)}")
            out.do(f"store i64 {out.op(f'select i1 {full}, i64 0, i64 {now}')}, ptr {self.cells[axis]}")
            carry = out.op(f"zext i1 {full} to i64")


def vector_loop(out: Emitter, start: str, stop: str, body: Callable[[], None]) -> None:
    """`body` over the vector axis from `start` to `stop`: whole vectors, then one with a mask."""
    n = out.lanes
    count = out.i64("sub", stop, start)
    whole = out.i64("add", start, out.op(f"and i64 {count}, {-n}"))
    with out.loop(start, whole, n) as i:
        out.vector_start, out.mask = i, None
        body()
    rest = out.i64("sub", stop, whole)
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


def map_entry(graph: Graph, symbol: str) -> Emitter:
    """Units are the places of the frame in row-major order."""
    kernel = graph.kernel
    stage = kernel.stages[0]
    out = Emitter(graph, symbol, 2)
    wanted = walk_roots(graph, stage)
    if not kernel.axes:
        full_stores(out, stage.stores)
        return out
    last = len(kernel.axes) - 1
    outer = list(range(last))
    # Two vectors a turn where a function's long chain leaves the machine waiting: gelu 40.7 -> 37.0 us for 1e5 places.
    out.lanes = natural_lanes(graph, wanted) * (2 if 24 <= graph.cost(graph.needed(wanted, lambda k: False)) <= 90 else 1)
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
    first = out.i64("udiv", "%begin", size)
    place = Odometer(out, outer)
    place.start(first)
    inner = out.variable("i64", out.i64("sub", "%begin", out.i64("mul", first, size)))
    done = out.variable("i64", "%begin")

    def more() -> str:
        return out.op(f"icmp slt i64 {out.op(f'load i64, ptr {done}')}, %end")

    with out.repeat(more):
        place.read()
        start = out.op(f"load i64, ptr {inner}")
        at = out.op(f"load i64, ptr {done}")
        stop = out.least(size, out.i64("add", start, out.i64("sub", "%end", at)))
        hoist_bases(set(outer))
        vector_loop(out, start, stop, body)
        out.do(f"store i64 {out.i64('add', at, out.i64('sub', stop, start))}, ptr {done}")
        out.do(f"store i64 0, ptr {inner}")
        place.step()
    return out


# -- a transposed operand: read in square tiles


def turned_loads(graph: Graph) -> tuple[int, list[Node]]:
    """An axis before the last, and the loads that lie densely along it but not along the last; (-1, []) if there are none."""
    kernel = graph.kernel
    last = len(kernel.axes) - 1
    found: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if node.op != "load" or node.attr.mask is not None or node.attr.index.values:
            continue
        strides = dict(node.attr.index.terms)
        along = strides.get(last, 0)
        if isinstance(along, int) and along in (0, 1, -1):
            continue
        for axis, stride in strides.items():
            if axis != last and isinstance(stride, int) and stride == 1:
                found.setdefault(axis, []).append(node)
    return max(found.items(), key=lambda item: len(item[1]), default=(-1, []))


# Tiles of a unit, down the other axis and along the last: long runs of the other operands, pages of the turned one used
# again while their addresses are at hand. Prefetching the turned one by hand changed nothing beyond noise.
TILES = (4, 16)


def turned_entry(graph: Graph, symbol: str) -> Emitter:
    """As `map_entry`; units are squares of the axis `turned_loads` names and the last axis, for each place of the others.

    Measured on x.T + y in float32, 1 thread: 316 x 316 from 26 us (gathers) to 12, 3162 x 3162 from 16 ms to 9 (of 4 KB
    pages; there the walk of the page tables is what is waited for).
    """
    kernel = graph.kernel
    stage = kernel.stages[0]
    cross, loads = turned_loads(graph)
    last = len(kernel.axes) - 1
    others = [k for k in range(last) if k != cross]
    out = Emitter(graph, symbol, 2)
    wanted = walk_roots(graph, stage)
    n = out.lanes = min(16, natural_lanes(graph, wanted))
    sides = [n * t for t in TILES]
    out.vector_axis = last
    out.hoist(wanted, set())
    down, across = (out.i64("udiv", out.i64("add", out.size(k), side - 1), side) for k, side in zip((cross, last), sides, strict=True))
    place = Odometer(out, others)
    tiles = {id(node): out.variable(f"[{n * n} x {tile_type(node)}]") for node in loads}
    with out.loop("%begin", "%end") as unit:
        above = out.i64("udiv", unit, across)
        column = out.i64("sub", unit, out.i64("mul", above, across))
        outer = out.i64("udiv", above, down)
        row = out.i64("sub", above, out.i64("mul", outer, down))
        place.start(outer)
        place.read()
        out.hoist(wanted, set(others))
        starts = [out.i64("mul", row, sides[0]), out.i64("mul", column, sides[1])]
        stops = [out.least(out.size(axis), out.i64("add", start, side)) for axis, start, side in zip((cross, last), starts, sides, strict=True)]
        with out.loop(starts[0], stops[0], n) as i0, out.loop(starts[1], stops[1], n) as j0:
            height, width = (out.least(out.i64("sub", stop, at), str(n)) for stop, at in zip(stops, (i0, j0), strict=True))
            for node in loads:
                turn(out, node, cross, (i0, height), (j0, width), tiles[id(node)])
            out.vector_start = j0

            def rows(i0: str = i0, height: str = height) -> None:
                with out.loop("0", height) as i:
                    out.axes[cross] = out.i64("add", i0, i)
                    for node in loads:
                        ty = tile_type(node)
                        out.tiles[id(node)] = out.op(f"getelementptr {ty}, ptr {tiles[id(node)]}, i64 {out.i64('mul', i, n)}")
                    full_stores(out, stage.stores)

            if host().simd_bytes == 64:
                out.mask = out.first_lanes(width)
                rows()
            else:
                whole = out.op(f"icmp eq i64 {width}, {n}")
                with out.when(whole):
                    rows()
                with out.when(out.op(f"xor i1 {whole}, true")):
                    out.mask = out.first_lanes(width)
                    rows()
            out.mask = None
            out.axes.pop(cross)
    return out


def tile_type(node: Node) -> str:
    return "i64" if node.dtype is complex64 else memory_type(node.dtype)


def turn(out: Emitter, node: Node, cross: int, i: tuple[str, str], j: tuple[str, str], tile: str) -> None:
    """Read a square, `n` places along `cross` at a time, and lay it out with the last axis fastest."""
    n, ty = out.lanes, tile_type(node)
    index: Index = node.attr.index
    out.axes[cross] = i[0]
    base, _ = out.base(node.attr.buffer, index)
    out.scopes[-1].clear()  # the base moves on with the rows
    stride = out.number(out.stride_of(index))
    mask = out.first_lanes(i[1])
    vectors = []
    align = 4 if node.dtype is complex64 else node.dtype.size
    for k in range(n):
        inside = out.least(str(k), out.i64("sub", j[1], 1))  # places beyond the edge read the last row again
        at = out.i64("mul", out.i64("add", j[0], inside), stride)
        vectors.append(out.read(ty, n, align, out.op(f"getelementptr {ty}, ptr {base}, i64 {at}"), mask))
    v = f"<{n} x {ty}>"
    size = 1
    while size < n:  # perfect shuffles of the first half with the second
        mixed = []
        for k in range(n // 2):
            for part in (0, 1):
                order = ", ".join(f"i32 {(part * n + m) // 2 + n * (m % 2)}" for m in range(n))
                mixed.append(out.op(f"shufflevector {v} {vectors[k]}, {v} {vectors[k + n // 2]}, <{n} x i32> <{order}>"))
        vectors, size = mixed, size * 2
    for k, name in enumerate(vectors):
        out.do(f"store {v} {name}, ptr {out.op(f'getelementptr {ty}, ptr {tile}, i64 {k * n}')}, align {align}")


# -- a short last axis: all axes as one, where everything lies so


SHORT = 64  # a last axis below this is short


class Flat(NamedTuple):
    """A map over several axes as one over their places, which holds where `dense` accesses turn out dense at run time."""

    graph: Graph
    dense: list[Index]
    periodic: dict[int, Index]  # loads (by number in `graph`) that depend on the last axis alone, and where they are


def flat_form(graph: Graph) -> Flat | None:
    kernel = graph.kernel
    last = len(kernel.axes) - 1
    if last < 1 or any(node.op == "axis" for node in graph.nodes):
        return None
    dense: list[Index] = []
    periodic: dict[int, Index] = {}
    made: list[Expr] = []

    def is_dense(index: Index) -> bool:
        strides = dict(index.terms)
        if index.values or strides.keys() != set(range(last + 1)) or strides[last] != 1 or isinstance(strides[last], Slot):
            return False
        dense.append(index)
        return True

    periodic_exprs: list[tuple[Expr, Index]] = []
    for node in graph.nodes:
        e = node.expr
        if node.op == "load":
            load: Load = node.attr
            if load.mask is not None or load.index.values:
                return None
            axes = index_axes(load.index)
            if axes == {last}:
                # Not to be taken for a dense load of the same buffer: a second axis tells them apart.
                e = Expr("load", e.dtype, (), Load(load.buffer, Index(load.index.offset, ((0, 1), (1, dict(load.index.terms)[last])))))
                periodic_exprs.append((e, load.index))
            elif is_dense(load.index):
                e = Expr("load", e.dtype, (), Load(load.buffer, Index(load.index.offset, ((0, 1),))))
            elif axes:
                return None
        elif node.args:
            e = Expr(e.op, e.dtype, tuple(made[k] for k in node.args), e.attr)
        made.append(e)
    stores = []
    for store in kernel.stages[0].stores:
        if store.mask is not None or not is_dense(store.index):
            return None
        stores.append(Store(store.buffer, Index(store.index.offset, ((0, 1),)), made[graph.number(store.value)]))
    flat = Graph(Kernel("map", (Axis(0, False), Axis(1, False)), kernel.buffers, (Stage(tuple(stores)),), kernel.n_slots))
    for e, index in periodic_exprs:
        periodic[flat.number(e)] = index
    return Flat(flat, dense, periodic)


def flat_entry(graph: Graph, flat: Flat, symbol: str, general: str) -> Emitter:
    """Units are places, as those of `general`, the symbol that is called where not all is dense.

    What depends on the last axis alone is laid out in a table a vector longer than the axis, and read from the place
    where the vector's first place stands in it.
    """
    kernel = graph.kernel
    out = Emitter(flat.graph, symbol, 2)
    wanted = walk_roots(flat.graph, kernel.stages[0]._replace(stores=flat.graph.kernel.stages[0].stores))
    n = out.lanes = natural_lanes(flat.graph, wanted)
    out.vector_axis = 0
    last = len(kernel.axes) - 1
    size = out.number(kernel.axes[last].size)
    fits = "true"
    for index in dict.fromkeys(flat.dense):
        strides = dict(index.terms)
        for k in range(last):
            whole = out.i64("mul", out.number(strides[k + 1]), out.number(kernel.axes[k + 1].size))
            if whole != out.number(strides[k]):
                same = out.op(f"icmp eq i64 {out.number(strides[k])}, {whole}")
                fits = same if fits == "true" else out.op(f"and i1 {fits}, {same}")
    if fits != "true":
        out.do(f"br i1 {fits}, label %flat, label %general")
        out.block("general")
        out.do(f"call void @{general}(ptr %p, i64 %begin, i64 %end, i64 %worker)")
        out.do("ret void")
        out.block("flat")
    tables: dict[int, str] = {}
    with out.loop("0", out.i64("add", size, n)) as i:
        at = out.i64("urem", i, size)
        for k, index in flat.periodic.items():
            node = flat.graph.nodes[k]
            ty = tile_type(node)
            tables[k] = out.variable(f"[{SHORT + n} x {ty}]")
            place = out.i64("add", out.number(index.offset), out.i64("mul", at, out.number(dict(index.terms)[last])))
            align = 4 if node.dtype is complex64 else node.dtype.size
            found = out.op(f"load {ty}, ptr {out.op(f'getelementptr {ty}, ptr {out.pointers[node.attr.buffer]}, i64 {place}')}, align {align}")
            out.do(f"store {ty} {found}, ptr {out.op(f'getelementptr {ty}, ptr {tables[k]}, i64 {i}')}, align {align}")
    out.hoist([k for k in wanted if k not in flat.periodic], set())
    step = out.i64("urem", n, size)
    phase = out.variable("i64", out.i64("urem", "%begin", size))

    def body() -> None:
        out.scopes.append({})
        at = out.op(f"load i64, ptr {phase}")
        for k, table in tables.items():
            node = flat.graph.nodes[k]
            out.tiles[id(node)] = out.op(f"getelementptr {tile_type(node)}, ptr {table}, i64 {at}")
        full_stores(out, flat.graph.kernel.stages[0].stores)
        following = out.i64("add", at, step)
        back = out.op(f"select i1 {out.op(f'icmp sge i64 {following}, {size}')}, i64 {size}, i64 0")
        out.do(f"store i64 {out.i64('sub', following, back)}, ptr {phase}")
        out.scopes.pop()

    vector_loop(out, "%begin", "%end", body)
    return out


# -- scatter


STRIP = 64  # places of the last axis that a unit of `strips_entry` takes


def has_strips(graph: Graph) -> bool:
    """Whether a scatter's last axis can be done in vectors: its one store lies densely along it."""
    kernel = graph.kernel
    (stage,) = kernel.stages
    if not kernel.axes or len(stage.stores) != 1:
        return False
    (store,) = stage.stores
    last = len(kernel.axes) - 1
    if any(node.op == "load" and node.attr.buffer == store.buffer for node in graph.nodes):
        return False
    if any(last in graph.nodes[graph.number(e)].deps for e, _ in store.index.values):
        return False
    stride = dict(store.index.terms).get(last, 0)
    return isinstance(stride, int) and stride == 1


def strips_entry(graph: Graph, symbol: str) -> Emitter:
    """Units are strips of the last axis; each walks all other places in order, so what meets, meets in order.

    Strips are independent if rows of the target do not overlap; where they may (a stride below the last axis's size),
    the first unit does all.
    """
    kernel = graph.kernel
    stage = kernel.stages[0]
    (store,) = stage.stores
    out = Emitter(graph, symbol, 2)
    wanted = walk_roots(graph, stage)
    last = len(kernel.axes) - 1
    outer = list(range(last))
    out.lanes, out.vector_axis = natural_lanes(graph, wanted), last
    size = out.size(last)
    strides = [out.number(s) for k, s in store.index.terms if k != last] + [out.number(s) for _, s in store.index.values]
    apart = "true"
    least = strides[0] if strides else ""
    for stride in strides[1:]:
        least = out.least(least, stride)
    if strides:
        wide = out.op(f"icmp sge i64 {least}, {size}")
        safe = out.op(f"select i1 {wide}, i64 {least}, i64 1")
        rest = "0"
        for stride in strides:
            rest = out.i64("or", rest, out.i64("urem", stride, safe)) if rest != "0" else out.i64("urem", stride, safe)
        apart = out.op(f"and i1 {wide}, {out.op(f'icmp eq i64 {rest}, 0')}")
    strips = out.op(f"udiv i64 {out.op(f'add i64 {size}, {STRIP - 1}')}, {STRIP}")
    nothing = out.op(f"select i1 {out.op('icmp eq i64 %begin, 0')}, i64 {strips}, i64 0")
    begin = out.op(f"select i1 {apart}, i64 %begin, i64 0")
    end = out.op(f"select i1 {apart}, i64 %end, i64 {nothing}")
    start = out.i64("mul", begin, STRIP)
    stop = out.least(size, out.i64("mul", end, STRIP))
    out.hoist(wanted, set())
    place = Odometer(out, outer)

    def body() -> None:
        out.scopes.append({})
        full_stores(out, stage.stores)
        out.scopes.pop()

    with out.when(out.op(f"icmp slt i64 {start}, {stop}")), out.loop("0", out.product(outer)):
        place.read()
        out.hoist(wanted, set(outer))
        out.hoist_base(store.buffer, store.index, set(outer))
        vector_loop(out, start, stop, body)
        place.step()
    return out


def scatter_entry(graph: Graph, symbol: str) -> Emitter:
    """Units are the places of the frame, walked in order by one thread: stores may meet."""
    kernel = graph.kernel
    stage = kernel.stages[0]
    out = Emitter(graph, symbol, 2)
    if not kernel.axes:
        full_stores(out, stage.stores)
        return out
    last = len(kernel.axes) - 1
    outer = list(range(last))
    for k in graph.needed(walk_roots(graph, stage), lambda k: False):
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
