"""Map kernels: for each place of the frame, the stores. A thread takes V places that lie side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from isthmus.backends.cuda.emit import Emitter, memory_type
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


def map_launch(r: Rendered, sizes: tuple[int, ...], numbers: tuple[int, ...]) -> Shape:
    if not sizes:
        (number,) = r.variant("one", lambda symbol: [map_entry(r.graph, symbol, 1)])
        return ((number, 1, 32),), 0, ()
    last = len(sizes) - 1
    inner, outer = sizes[last], r.count(sizes, list(range(last)))
    cross = turned_axis(r.graph)
    if cross >= 0 and inner >= TILE // 4 and sizes[cross] >= TILE // 4:
        (number,) = r.variant("turned", lambda symbol: [turned_entry(r.graph, symbol, cross)])
        tiles = -(-inner // TILE) * -(-sizes[cross] // TILE) * (outer // sizes[cross])
        return ((number, tiles, BLOCK),), 0, ()
    lanes = pack_lanes(r.graph)
    while lanes > 1 and lanes > inner:
        lanes //= 2
    whole = "" if lanes == 1 or inner % lanes else "aligned" if r.aligned(last, lanes, numbers) else "whole"
    (number,) = r.variant(f"lanes {lanes}{', ' + whole if whole else ''}", lambda symbol: [map_entry(r.graph, symbol, lanes, whole)])
    units = outer * -(-inner // lanes)
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
    return found.pop()


def turned_entry(graph: Graph, symbol: str, cross: int) -> Emitter:
    """A block does a tile of the last axis and `cross`: turned loads are read along `cross`, kept, and used along the last.

    Tiles are TILE by TILE; a warp walks a line of the tile, and lines in shared memory lie a 4-byte word further apart than the tile is wide.
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
    turned = []
    for k, node in enumerate(graph.nodes):
        if node.op == "load" and strided(node.attr.index, last):
            turned.append(k)
    for k in turned:
        dtype = graph.nodes[k].dtype
        em.do(f"__shared__ {memory_type(dtype)} tile{k}[{TILE}][{TILE + max(1, 4 // dtype.size)}];")
    # 16-bit values go two at a time: 4 bytes of a thread, so that a warp reads and writes whole lines.
    pairs = 2 if all(is_half(graph.nodes[k].dtype) for k in turned) else 1

    def lines(then: Callable[[], None], x: str, y: str, along: str, size: str) -> None:
        em.do("#pragma unroll")
        with em.block_of(f"for (int k = ty; k < {TILE}; k += {BLOCK // 32})"), em.block_of(f"for (int l = {pairs} * tx; l < {TILE}; l += {32 * pairs})", unroll=True):
            em.do(f"const i64 x = x0 + {x}, y = y0 + {y};")
            with em.block_of(f"if (x < {em.sizes[last]} && y < {em.sizes[cross]})"):
                em.do(f"const int count = {size} - {along} < {pairs} ? int({size} - {along}) : {pairs};")
                then()

    def read() -> None:
        for k in turned:
            load: Load = graph.nodes[k].attr
            at = f"b{load.buffer} + {em.index(load.index)}"
            if pairs == 2:
                em.do(f"u32 pair{k}[1]; load2<2>(pair{k}, {at}, count); *(u32*)&tile{k}[k][l] = pair{k}[0];")
            else:
                em.do(f"tile{k}[k][l] = *({at});")

    def write() -> None:
        for k in turned:
            if pairs == 2:
                em.do(f"const u32 pack{k}[1] = {{u32(tile{k}[l][k].bits) | u32(tile{k}[l + 1][k].bits) << 16}};")
                em.packs[-1][k] = f"pack{k}"
            else:
                got = f"tile{k}[l][k]"
                em.scopes[-1][k] = f"({got} != 0)" if graph.nodes[k].dtype is bool_ else f"get({got})"
        if pairs == 2:
            em.lane_axes, em.contiguous, em.lane_axis[last] = frozenset((last,)), last, "(x + @)"
        walk(em, pairs)

    em.axes[last], em.axes[cross] = "x", "y"
    lines(read, "k", "l", "y", em.sizes[cross])
    em.do("__syncthreads();")
    lines(write, "l", "k", "x", em.sizes[last])
    return em
