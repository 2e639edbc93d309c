"""Map kernels: for each place of the frame, the stores. A thread takes V places that lie side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from isthmus.backends.cuda.emit import Emitter, memory_type, register_type
from isthmus.graph.dtype import bool_
from isthmus.kernel.graph import Graph, index_axes, walk_roots
from isthmus.kernel.loops import Index, Load, Slot, Stage
from isthmus.kernel.scalar import is_half

if TYPE_CHECKING:
    from isthmus.backends.cuda.render import Rendered

Shape = tuple[tuple[tuple[int, int, int], ...], int, tuple[int, ...]]  # phases, scratch bytes, extra numbers

BLOCK = 256
PACK_BYTES = 16
TILE = 64  # sides of a tile that is turned
PACKS = 4  # of a thread, in kernels of
LONG = 8  # operations or more,
SHARED_BYTES = 48 << 10  # that a block may have
MANY_PACKS = 1 << 20  # where there are so many packs
FUNCTIONS = frozenset(("exp", "log", "erf", "tanh", "sigmoid", "div", "sqrt", "rsqrt", "sin", "cos", "power"))


def map_launch(r: Rendered, sizes: tuple[int, ...], numbers: tuple[int, ...]) -> Shape:
    if not sizes:
        (number,) = r.variant("one", lambda symbol: [map_entry(r.graph, symbol, 1)])
        return ((number, 1, 32),), 0, ()
    last = len(sizes) - 1
    inner, outer = sizes[last], r.count(sizes, list(range(last)))
    cross = turned_axis(r.graph)
    if cross >= 0 and inner >= TILE // 4 and sizes[cross] >= TILE // 4:
        whole = inner % TILE == 0 and sizes[cross] % TILE == 0 and r.aligned(last, 2, numbers) and r.aligned(cross, 2, numbers)
        (number,) = r.variant(f"turned{', whole' if whole else ''}", lambda symbol: [turned_entry(r.graph, symbol, cross, whole)])
        tiles = -(-inner // TILE) * -(-sizes[cross] // TILE) * (outer // sizes[cross])
        return ((number, tiles, BLOCK),), 0, ()
    lanes = pack_lanes(r.graph)
    while lanes > 1 and lanes > inner:
        lanes //= 2
    whole = "" if lanes == 1 or inner % lanes else "aligned" if r.aligned(last, lanes, numbers) else "whole"
    name = f"lanes {lanes}{', ' + whole if whole else ''}"
    units = outer * -(-inner // lanes)
    if whole and units >= MANY_PACKS and is_long(r.graph):
        (number,) = r.variant(f"{name}, {PACKS} packs", lambda symbol: [packs_entry(r.graph, symbol, lanes, whole)])
        return ((number, packs_blocks(len(sizes), inner // lanes, outer), BLOCK),), 0, ()
    (number,) = r.variant(name, lambda symbol: [map_entry(r.graph, symbol, lanes, whole)])
    block = BLOCK if units >= BLOCK else 64
    return ((number, -(-units // block), block),), 0, ()


def strided(index: Index, axis: int) -> bool:
    """Whether an index runs along `axis` in steps other than 1."""
    stride = dict(index.terms).get(axis, 0)
    return isinstance(stride, Slot) or stride not in (0, 1)


def pack_lanes(graph: Graph) -> int:
    """Places of a thread: as many as make 16 bytes of the narrowest value that is read or stored side by side."""
    kernel = graph.kernel
    last = len(kernel.axes) - 1
    sizes = []
    for node in graph.nodes:
        if node.op == "load":
            load: Load = node.attr
            if strided(load.index, last):
                return 1
            if last in index_axes(load.index):
                sizes.append(node.dtype.size)
    for store in kernel.stages[0].stores:
        if strided(store.index, last):
            return 1
        sizes.append(kernel.buffers[store.buffer].size)
    return max(1, min(8, PACK_BYTES // min(sizes, default=PACK_BYTES)))


def map_entry(graph: Graph, symbol: str, lanes: int, whole: str = "") -> Emitter:
    em = Emitter(graph, symbol, BLOCK)
    axes = list(range(len(graph.kernel.axes)))
    em.do("const i64 unit = i64(blockIdx.x) * blockDim.x + threadIdx.x;")
    if not axes:
        em.do("if (unit > 0) return;")
    else:
        last = axes[-1]
        em.do(f"const i64 inner = {em.sizes[last]};")
        packs = "inner" if lanes == 1 else f"(inner + {lanes - 1}) / {lanes}"
        if len(axes) > 1:
            em.do(f"const i64 packs = {packs};")
            outer = " * ".join(em.sizes[k] for k in axes[:-1])
            em.do(f"if (unit >= packs * {outer}) return;")
            em.do("const i64 row = quotient(unit, packs);")
            em.do(f"const i64 i = (unit - row * packs) * {lanes};")
            em.coordinates("row", axes[:-1], em.axes)
        else:
            em.do(f"const i64 i = unit * {lanes};")
            em.do("if (i >= inner) return;")
        em.axes[last] = "i"
        if lanes > 1:
            em.whole, em.aligned = bool(whole), whole == "aligned"
            em.do(f"const int count = {lanes};" if whole else f"const int count = inner - i < {lanes} ? int(inner - i) : {lanes};")
            em.lane_axes, em.contiguous = frozenset((last,)), last
            em.lane_axis[last] = "(i + @)"
    walk(em, lanes)
    return em


def walk(em: Emitter, lanes: int) -> None:
    """The stores of a map at `lanes` places."""
    stage = em.graph.kernel.stages[0]
    if lanes == 1:
        em.prepare(walk_roots(em.graph, stage), 1, "1")
        for store in stage.stores:
            em.put(store, lane=False)
        return
    store_packs(em, stage, lanes)


def store_packs(em: Emitter, stage: Stage, lanes: int) -> None:
    """The full stores of a stage at a pack's places."""
    graph = em.graph
    left = em.prepare(walk_roots(graph, stage), lanes, "count")
    outs: dict[int, str] = {}
    for k, store in enumerate(stage.stores):
        if em.packed_store(store):
            outs[k] = em.fresh()
            em.do(em.pack_declaration(em.kernel.buffers[store.buffer], outs[k], lanes))
    with em.lane_loop(left, lanes):
        em.finish(left)
        for k, store in enumerate(stage.stores):
            if k in outs:
                em.put_lane(outs[k], graph.number(store.value), em.kernel.buffers[store.buffer], lanes)
            else:
                for w in range(em.width):
                    em.put(store, w=w)
    for k, out in outs.items():
        em.store_pack(stage.stores[k], out, lanes)


def is_long(graph: Graph) -> bool:
    """Whether a thread computes so much that what it does once (parameters, coordinates, reciprocals) should serve several packs."""
    ops = [node.op for node in graph.nodes if node.op not in ("load", "axis", "const", "param", "row")]
    return len(ops) >= LONG or not FUNCTIONS.isdisjoint(ops)


def packs_blocks(rank: int, packs: int, outer: int) -> int:
    return -(-packs // BLOCK) * -(-outer // PACKS) if rank > 1 else -(-packs // (BLOCK * PACKS))


def packs_entry(graph: Graph, symbol: str, lanes: int, whole: str) -> Emitter:
    """A thread takes PACKS packs: at the same places of neighbouring rows, or a block apart where there is one axis.

    All packs are read before the first is written: the compiler cannot know that they are others.
    """
    em = Emitter(graph, symbol, BLOCK)
    axes = list(range(len(graph.kernel.axes)))
    last, outer = axes[-1], axes[:-1]
    em.whole, em.aligned = True, whole == "aligned"
    em.lane_axes, em.contiguous, em.lane_axis[last] = frozenset((last,)), last, "(i + @)"
    em.do(f"const i64 inner = {em.sizes[last]}; const int count = {lanes};")
    if outer:
        em.do(f"const i64 columns = (inner / {lanes} + {BLOCK - 1}) / {BLOCK}, group = quotient(blockIdx.x, columns), rows = {' * '.join(em.sizes[k] for k in outer)};")
        em.do(f"const i64 i = ((blockIdx.x - group * columns) * {BLOCK} + threadIdx.x) * {lanes};")
        em.do("if (i >= inner) return;")
        start = [f"const i64 row = group * {PACKS} + e;", "if (row >= rows) break;"]
    else:
        start = [f"const i64 i = (i64(blockIdx.x) * {BLOCK * PACKS} + e * {BLOCK} + threadIdx.x) * {lanes};", "if (i >= inner) break;"]
    em.axes[last] = "i"
    stage = graph.kernel.stages[0]
    needed = graph.needed(walk_roots(graph, stage), em.known)
    moving = set(outer) if outer else {last}

    def moves(k: int) -> bool:
        return not moving.isdisjoint(graph.nodes[k].deps)

    # What all packs share; then those that can be read at once.
    shared = [k for k in needed if not moves(k) and (not em.varies(k) or graph.nodes[k].op == "load")]
    em.prepare(shared, lanes, "count")
    for k in needed:
        node = graph.nodes[k]
        if node.op == "div" and em.is_divided(node) and not moves(node.args[1]):
            em.divisor(node.args[1])
    loads = [k for k in needed if moves(k) and graph.nodes[k].op == "load" and not graph.nodes[k].args]
    names = {k: em.fresh() for k in loads if em.side_by_side(graph.nodes[k])}
    singles = {k: em.fresh() for k in loads if not em.varies(k)}
    for k, name in names.items():
        em.do(em.pack_declaration(graph.nodes[k].dtype, name, lanes, f"[{PACKS}]"))
    for k, name in singles.items():
        em.do(f"{register_type(graph.nodes[k].dtype)} {name}[{PACKS}];")
    head = f"for (int e = 0; e < {PACKS}; e++)"
    with em.block_of(head, unroll=True):
        begin_pack(em, start, outer)
        for k, name in names.items():
            em.load_pack(k, f"{name}[e]", lanes, "count")
        for k, name in singles.items():
            em.do(f"{name}[e] = {em.value(k)};")
    with em.block_of(head, unroll=True):
        begin_pack(em, start, outer)
        for k, name in names.items():
            em.packs[-1][k] = f"{name}[e]"
        for k, name in singles.items():
            em.scopes[-1][k] = f"{name}[e]"
        store_packs(em, stage, lanes)
    return em


def begin_pack(em: Emitter, start: list[str], outer: list[int]) -> None:
    for line in start:
        em.do(line)
    em.coordinates("row", outer, em.axes)


# -- turned: loads that run along another axis than the last go through shared memory


def turned_axis(graph: Graph) -> int:
    """The axis along which loads that jump along the last one are consecutive, or -1."""
    kernel = graph.kernel
    last = len(kernel.axes) - 1
    found = set()
    for node in graph.nodes:
        if node.op == "load" and last >= 1:
            load: Load = node.attr
            if not strided(load.index, last):
                continue
            terms = dict(load.index.terms)
            unit = [axis for axis, stride in terms.items() if stride == 1 and not isinstance(stride, Slot)]
            if load.mask is not None or load.index.values or len(unit) != 1:
                return -1
            found.add(unit[0])
    if len(found) != 1 or any(strided(store.index, last) for store in kernel.stages[0].stores):
        return -1
    if sum(TILE * tile_pitch(node.dtype.size) * node.dtype.size for node in graph.nodes if node.op == "load" and strided(node.attr.index, last)) > SHARED_BYTES:
        return -1
    return found.pop()


def tile_pitch(size: int) -> int:
    """Elements of a line of a tile: lines lie a 4-byte word further apart than the tile is wide, so that a column is in many banks."""
    return TILE + max(1, 4 // size)


def turned_entry(graph: Graph, symbol: str, cross: int, whole: bool) -> Emitter:
    """A block does a tile of the last axis and `cross`: turned loads are read along `cross`, kept, and used along the last.

    Tiles are TILE by TILE, a warp has whole lines of them. All that can be read is read before anything else, so that it is
    on its way at once. `whole`: tiles are full, and pairs lie at multiples of their bytes.
    """
    em = Emitter(graph, symbol, BLOCK)
    axes = list(range(len(graph.kernel.axes)))
    last = axes[-1]
    others = [k for k in axes[:-1] if k != cross]
    em.do(f"const i64 tiles_x = ({em.sizes[last]} + {TILE - 1}) / {TILE}, tiles_y = ({em.sizes[cross]} + {TILE - 1}) / {TILE};")
    em.do("const i64 tile = blockIdx.x, line = quotient(tile, tiles_x), rest = quotient(line, tiles_y);")
    outer = " * ".join(em.sizes[k] for k in others) or "1"
    em.do(f"if (rest >= {outer}) return;")
    em.do(f"const i64 x0 = (tile - line * tiles_x) * {TILE}, y0 = (line - rest * tiles_y) * {TILE};")
    em.do("const int tx = threadIdx.x % 32, ty = threadIdx.x / 32;")
    em.coordinates("rest", others, em.axes)
    em.axes[last], em.axes[cross] = "x", "y"
    loads = [k for k, node in enumerate(graph.nodes) if node.op == "load"]
    turned = [k for k in loads if strided(graph.nodes[k].attr.index, last)]
    # 16-bit values go two at a time: 4 bytes of a thread, so that a warp reads and writes whole lines.
    pairs = 2 if all(is_half(graph.nodes[k].dtype) for k in turned) else 1
    em.whole = em.aligned = whole
    em.lane_axes, em.contiguous, em.lane_axis[last] = (frozenset((last,)), last, "(x + @)") if pairs == 2 else (frozenset(), -1, "x")
    straight = [k for k in loads if k not in turned and not graph.nodes[k].args and (pairs == 1 or em.side_by_side(graph.nodes[k]))]
    steps, across = TILE // (BLOCK // 32), TILE // (32 * pairs)
    for k in turned:
        dtype = graph.nodes[k].dtype
        em.do(f"__shared__ __align__(8) {memory_type(dtype)} tile{k}[{TILE}][{tile_pitch(dtype.size)}];")
        em.do(f"u32 turned{k}[{steps}][{across}][1];" if pairs == 2 else f"{memory_type(dtype)} turned{k}[{steps}][{across}];")
    for k in straight:
        dtype = graph.nodes[k].dtype
        em.do(em.pack_declaration(dtype, f"straight{k}", pairs, f"[{steps}][{across}]") if pairs == 2 else f"{register_type(dtype)} straight{k}[{steps}][{across}];")

    def sweep(then: Callable[[], None], reading: bool) -> None:
        down, along = f"ty + {BLOCK // 32} * e", f"{pairs} * (tx + 32 * l)"
        with em.block_of(f"for (int e = 0; e < {steps}; e++)", unroll=True), em.block_of(f"for (int l = 0; l < {across}; l++)", unroll=True):
            em.do(f"const i64 x = x0 + {down if reading else along}, y = y0 + {along if reading else down};")
            if whole:
                em.do(f"const int count = {pairs};")
                then()
                return
            size, at = (em.sizes[cross], "y") if reading else (em.sizes[last], "x")
            with em.block_of(f"if (x < {em.sizes[last]} && y < {em.sizes[cross]})"):
                em.do(f"const int count = {size} - {at} < {pairs} ? int({size} - {at}) : {pairs};")
                then()

    def read() -> None:
        for k in turned:
            load: Load = graph.nodes[k].attr
            at = f"b{load.buffer} + {em.index(load.index)}"
            em.do(f"load2<2, {int(whole)}>(turned{k}[e][l], {at}, count);" if pairs == 2 else f"turned{k}[e][l] = *({at});")

    def read_straight() -> None:
        for k in straight:
            if pairs == 2:
                em.load_pack(k, f"straight{k}[e][l]", 2, "count")
            else:
                em.do(f"straight{k}[e][l] = {em.value(k)};")

    def keep() -> None:
        line, at = f"ty + {BLOCK // 32} * e", f"{pairs} * (tx + 32 * l)"
        for k in turned:
            em.do(f"*(u32*)&tile{k}[{line}][{at}] = turned{k}[e][l][0];" if pairs == 2 else f"tile{k}[{line}][{at}] = turned{k}[e][l];")

    def write() -> None:
        em.do(f"const int at_y = ty + {BLOCK // 32} * e, at_x = {pairs} * (tx + 32 * l);")
        for k in turned:
            if pairs == 2:
                em.do(f"const u32 pack{k}[1] = {{u32(tile{k}[at_x][at_y].bits) | u32(tile{k}[at_x + 1][at_y].bits) << 16}};")
                em.packs[-1][k] = f"pack{k}"
            else:
                got = f"tile{k}[at_x][at_y]"
                em.scopes[-1][k] = f"({got} != 0)" if graph.nodes[k].dtype is bool_ else f"get({got})"
        for k in straight:
            (em.packs if pairs == 2 else em.scopes)[-1][k] = f"straight{k}[e][l]"
        walk(em, pairs)

    sweep(read, True)
    if straight:
        sweep(read_straight, False)
    sweep(keep, True)
    em.do("__syncthreads();")
    sweep(write, False)
    return em
