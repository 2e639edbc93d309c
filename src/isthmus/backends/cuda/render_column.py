"""Column kernels, and the side sums of row kernels: reductions over axes other than the last.

The column rule of this backend: the reduced axes are taken as one index i, cut into blocks of R (`block_rows`, of the
length alone). In a block 8 warps take the places in turn, each in order, and their totals are added in order; then the
blocks' totals in order.

A thread has V neighbouring columns, a warp 32 V. Variants: *tiles*, where a block of threads walks all of its columns'
places, stage by stage; and *blocks*, one for each block of R places, with a second launch that adds up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from isthmus.backends.cuda.emit import Emitter, identity_text, register_type
from isthmus.backends.cuda.render_map import strided
from isthmus.backends.cuda.render_row import CELL, accumulator, n_reduces
from isthmus.graph.dtype import Dtype, float32
from isthmus.kernel.graph import Graph, index_axes, row_roots, walk_roots
from isthmus.kernel.loops import Kernel, Reduce, Stage, Store
from isthmus.kernel.scalar import Expr, cast, is_half

if TYPE_CHECKING:
    from isthmus.backends.cuda.render import Rendered

BLOCK = 256
FINISH = 32  # columns of a block of threads that adds up blocks, which
AT_ONCE = 64  # it reads at once
WARPS = BLOCK // 32
MOST_BLOCKS = 128
ENOUGH_BLOCKS = 264


def block_rows(length: int) -> int:
    rows = 64
    while rows * MOST_BLOCKS < length:
        rows *= 2
    return rows


BLOCK_ROWS = f"i64 R = 64; while (R * {MOST_BLOCKS} < n) R *= 2;"


class Fold(NamedTuple):
    """A reduction of a column walk: of `value`, adding up in `dtype`; `number` tells them apart."""

    number: int
    kind: str
    value: Expr
    dtype: Dtype


def most_lanes(graph: Graph, last: int) -> int:
    """Columns of a thread: 16 bytes of what is read along them."""
    sizes = []
    for node in graph.nodes:
        if node.op == "load" and last in index_axes(node.attr.index):
            if strided(node.attr.index, last):
                return 1
            sizes.append(node.dtype.size)
    return max(1, min(8, 16 // min(sizes, default=16)))


def lanes_of(r: Rendered, last: int, columns: int, blocks: int) -> int:
    """As `most_lanes`, if that leaves enough blocks of threads."""
    lanes = r.lanes.get(last, 0)
    if not lanes:
        lanes = r.lanes[last] = most_lanes(r.graph, last)
    while lanes > 1 and (32 * lanes >= 2 * columns or blocks * -(-columns // (32 * lanes)) < ENOUGH_BLOCKS):
        lanes //= 2
    return lanes


def column_launch(r: Rendered, sizes: tuple[int, ...], numbers: tuple[int, ...]) -> tuple[tuple[tuple[int, int, int], ...], int, tuple[int, ...]]:
    columns, length = sizes[-1], r.count(sizes, r.reduced)
    outer = r.count(sizes, r.parallel[:-1])
    stages = r.kernel.stages
    blocks = -(-length // block_rows(length))
    split = len(stages) == 1 and blocks > 1
    lanes = lanes_of(r, len(sizes) - 1, columns, outer * (blocks if split else 1))
    tiles = outer * -(-columns // (32 * lanes))
    aligned = lanes > 1 and columns % lanes == 0 and r.aligned(len(sizes) - 1, lanes, numbers)
    name = ", aligned" if aligned else ""
    if not split:
        (number,) = r.variant(f"tiles {lanes}{name}", lambda symbol: [tiles_entry(r.graph, symbol, lanes, aligned)])
        return ((number, tiles, BLOCK),), 0, ()
    folds = [Fold(x.number, x.kind, x.value, accumulator(x)) for x in stages[0].reduces]
    numbers = r.variant(
        f"blocks {lanes}{name}",
        lambda symbol: [
            blocks_entry(Columns(r.graph, symbol, lanes, r.reduced, r.parallel, aligned=aligned), folds, stages[0]),
            blocks_finish(Columns(r.graph, symbol + "f", 1, r.reduced, r.parallel), folds, stages[0]),
        ],
    )
    return ((numbers[0], tiles * blocks, BLOCK), (numbers[1], -(-outer * columns // FINISH), BLOCK)), cells_bytes(folds, blocks * outer * columns), ()


def sides_launch(r: Rendered, rows: int, length: int, keep: int) -> tuple[tuple[tuple[int, int, int], ...], int]:
    """The side sums of a row kernel, as columns: folded over its rows. Row values are in the first `keep` bytes of scratch."""
    blocks = -(-rows // block_rows(rows))
    last = r.reduced[-1]
    columns = length  # an upper bound where several axes are reduced: then the last of them is what a warp runs along
    lanes = lanes_of(r, last, columns, blocks) if len(r.reduced) == 1 else 1

    def make(symbol: str) -> list[Emitter]:
        sides = [side for stage in r.kernel.stages for side in stage.sides]
        folds = side_folds(r.kernel)
        stores = tuple(
            Store(side.buffer, side.index, cast(Expr("row", fold.dtype, (), k), r.kernel.buffers[side.buffer]), False)
            for k, (side, fold) in enumerate(zip(sides, folds, strict=True))
        )
        stage = Stage(stores)
        graph = Graph(r.kernel)
        graph.add([store.value for store in stores])
        count = n_reduces(graph)
        first = Columns(graph, symbol + "s", lanes, r.parallel, r.reduced, count)
        second = Columns(graph, symbol + "t", 1, r.parallel, r.reduced, count)
        return [blocks_entry(first, folds, stage), blocks_finish(second, folds, stage)]

    numbers = r.variant(f"sides {lanes}", make, later=True)
    outer_tiles = -(-columns // (32 * lanes))
    return ((numbers[0], outer_tiles * blocks, BLOCK), (numbers[1], -(-columns // FINISH), BLOCK)), r.side_bytes * (blocks * columns + (blocks * columns & 1))


def side_folds(kernel: Kernel) -> list[Fold]:
    sides = [side for stage in kernel.stages for side in stage.sides]
    return [Fold(k, "sum", side.value, float32 if is_half(side.value.dtype) else side.value.dtype) for k, side in enumerate(sides)]


def cells_bytes(folds: list[Fold], cells: int) -> int:
    return sum(cell_size(fold) for fold in folds) * (cells + (cells & 1))


def cell_size(fold: Fold) -> int:
    return (8 if fold.dtype.size == 8 else 4) + (4 if fold.kind.startswith("arg") else 0)


class Columns:
    """What the functions of a walk along columns share. `folded` axes are reduced over; the last of `kept` runs along lanes.

    `row_values`: how many values of each folded place stand in scratch (of a row kernel, whose sides these are).
    """

    def __init__(self, graph: Graph, symbol: str, lanes: int, folded: list[int], kept: list[int], row_values: int = 0, aligned: bool = False) -> None:
        self.graph = graph
        self.em = em = Emitter(graph, symbol, BLOCK)
        self.lanes = lanes
        self.folded = folded
        self.outer_axes, self.last = kept[:-1], kept[-1]
        self.row_values = row_values
        em.aligned = aligned
        em.do(f"const i64 n = {' * '.join(em.sizes[k] for k in folded) or '1ll'};")
        em.do(f"const i64 columns = {em.sizes[self.last]};")
        em.do(f"const i64 outer = {' * '.join(em.sizes[k] for k in self.outer_axes) or '1ll'};")
        em.do(BLOCK_ROWS)
        em.do("const i64 blocks = (n + R - 1) / R;")
        em.lane_axes, em.contiguous = frozenset((self.last,)), self.last
        em.axes[self.last], em.lane_axis[self.last] = "c", "(c + @)"

    def tile(self, unit: str) -> None:
        """From the number of a tile: outer indices, columns."""
        em = self.em
        em.do(f"const i64 tiles = (columns + {32 * self.lanes - 1}) / {32 * self.lanes};")
        em.do(f"const i64 o = quotient({unit}, tiles);")
        em.do("const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;")
        em.do(f"const i64 c = (({unit} - o * tiles) * 32 + lane) * {self.lanes};")
        em.do(f"const int count = columns - c < {self.lanes} ? (columns > c ? int(columns - c) : 0) : {self.lanes};")

    def start(self, fold: Fold, name: str) -> None:
        arg = fold.kind.startswith("arg")
        kind = register_type(fold.dtype)
        self.em.do(f"{kind} {name}{fold.number}[{self.lanes}];" + (f" u32 {name}at{fold.number}[{self.lanes}];" if arg else ""))

    def reset(self, fold: Fold) -> None:
        arg = fold.kind.startswith("arg")
        text = f"accat{fold.number}[j] = 0xffffffffu" if arg else f"acc{fold.number}[j] = {identity_text(fold.kind, fold.dtype)}"
        self.em.do("#pragma unroll")
        self.em.do(f"for (int j = 0; j < {self.lanes}; j++) {text};")

    def merge(self, fold: Fold, acc: str, at: str, other: str, other_at: str) -> str:
        if fold.kind.startswith("arg"):
            better = self.em.better(fold.kind, fold.dtype)
            return (
                f"if ({other_at} != 0xffffffffu && ({at} == 0xffffffffu || {better}({other}, {acc}) || "
                f"(!{better}({acc}, {other}) && {other_at} < {at}))) {{ {acc} = {other}; {at} = {other_at}; }}"
            )
        return f"{acc} = {self.em.join(fold.kind, fold.dtype)}({acc}, {other});"

    def hoist(self, wanted: list[int]) -> None:
        """Loads that are the same for every folded place."""
        em, graph = self.em, self.graph
        folded = set(self.folded)
        same = [
            k for k in graph.needed(wanted, em.known)
            if graph.nodes[k].op == "load" and not any(d in folded or isinstance(d, tuple) for d in graph.nodes[k].deps)
        ]  # fmt: skip
        em.prepare(same, self.lanes, "count")

    def walk(self, begin: str, end: str, wanted: list[int], folds: list[Fold], stage: Stage | None) -> None:
        """Places `begin` to `end` of the folded axes, this warp's: full stores of `stage`, steps of `folds`."""
        em, graph = self.em, self.graph
        values = [graph.cast(fold.value, fold.dtype) for fold in folds]
        if len(graph.nodes) < 24:
            em.do("#pragma unroll 4")
        with em.block_of(f"for (i64 i = {begin} + warp; i < {end}; i += {WARPS})"):
            em.coordinates("i", self.folded, em.axes)
            for k in range(self.row_values):
                x = next(x for s in graph.kernel.stages for x in s.reduces if x.number == k)
                em.rows[k] = em.let(register_type(x.dtype), f"*(const {register_type(x.dtype)}*)(p{em.kernel.n_slots} + ({k} * n + i) * {CELL})")
            left = em.prepare([*wanted, *values], self.lanes, "count")
            stores = [store for store in stage.stores if store.full] if stage is not None else []
            packs: dict[int, str] = {}
            for k, store in enumerate(stores):
                if em.packed_store(store):
                    packs[k] = em.fresh()
                    em.do(em.pack_declaration(em.kernel.buffers[store.buffer], packs[k], self.lanes))
            with em.lane_loop(left, self.lanes):
                em.finish(left)
                for fold, value in zip(folds, values, strict=True):
                    for w in range(em.width):
                        j = em.at(w)
                        acc, at, name = f"acc{fold.number}[{j}]", f"accat{fold.number}[{j}]", em.lane_value(value, w)
                        if fold.kind.startswith("arg"):
                            em.do(f"if ({at} == 0xffffffffu || {em.better(fold.kind, fold.dtype)}({name}, {acc})) {{ {acc} = {name}; {at} = u32(i); }}")
                        else:
                            em.do(f"{acc} = {em.join(fold.kind, fold.dtype)}({acc}, {name});")
                for k, store in enumerate(stores):
                    if k in packs:
                        em.put_lane(packs[k], graph.number(store.value), em.kernel.buffers[store.buffer], self.lanes)
                    else:
                        for w in range(em.width):
                            em.put(store, w=w)
            for k, out in packs.items():
                em.store_pack(stores[k], out, self.lanes)

    def fold_warps(self, fold: Fold) -> None:
        """The totals of a block's warps, in every warp."""
        em = self.em
        n, width, arg = fold.number, 32 * self.lanes, fold.kind.startswith("arg")
        em.do(f"__shared__ {register_type(fold.dtype)} part{n}[{WARPS}][{width}];" + (f" __shared__ u32 part_at{n}[{WARPS}][{width}];" if arg else ""))
        em.do("#pragma unroll")
        em.do(f"for (int j = 0; j < {self.lanes}; j++) {{ part{n}[warp][lane + 32 * j] = acc{n}[j];" + (f" part_at{n}[warp][lane + 32 * j] = accat{n}[j];" if arg else "") + " }")
        em.do("__syncthreads();")
        with em.block_of(f"for (int j = 0; j < {self.lanes}; j++)", unroll=True):
            em.do(f"acc{n}[j] = part{n}[0][lane + 32 * j];" + (f" accat{n}[j] = part_at{n}[0][lane + 32 * j];" if arg else ""))
            em.do("#pragma unroll")
            em.do(f"for (int w = 1; w < {WARPS}; w++) {{ " + self.merge(fold, f"acc{n}[j]", f"accat{n}[j]", f"part{n}[w][lane + 32 * j]", f"part_at{n}[w][lane + 32 * j]") + " }")
        em.do("__syncthreads();")

    def cell(self, folds: list[Fold], fold: Fold, block: str, o: str, c: str, at: bool = False) -> str:
        """The address of a block's total in scratch (or of its index)."""
        before = sum(cell_size(f) for f in folds[: folds.index(fold)]) + (cell_size(fold) - 4 if at else 0)
        size = 4 if at else cell_size(fold) - (4 if fold.kind.startswith("arg") else 0)
        keep = f" + {self.row_values} * n * {CELL}" if self.row_values else ""
        return f"(p{self.em.kernel.n_slots}{keep} + {before} * cells + (({block} * outer + {o}) * columns + {c}) * {size})"


def tiles_entry(graph: Graph, symbol: str, lanes: int, aligned: bool) -> Emitter:
    kernel = graph.kernel
    folded = [k for k, axis in enumerate(kernel.axes) if axis.reduced]
    kept = [k for k, axis in enumerate(kernel.axes) if not axis.reduced]
    col = Columns(graph, symbol, lanes, folded, kept, aligned=aligned)
    em = col.em
    em.do("const i64 tile = blockIdx.x;")
    col.tile("tile")
    em.do("if (o >= outer) return;")
    em.coordinates("o", col.outer_axes, em.axes)
    em.lane_rows = True
    for stage in kernel.stages:
        folds = [Fold(x.number, x.kind, x.value, accumulator(x)) for x in stage.reduces]
        wanted = walk_roots(graph, stage)
        col.hoist(wanted)
        for fold in folds:
            col.start(fold, "acc")
            col.start(fold, "tot")
        with em.block_of("for (i64 b = 0; b < blocks; b++)"):
            for fold in folds:
                col.reset(fold)
            col.walk("b * R", "(b + 1 < blocks ? (b + 1) * R : n)", wanted, folds, stage)
            for fold in folds:
                n = fold.number
                col.fold_warps(fold)
                at = f" totat{n}[j] = accat{n}[j];" if fold.kind.startswith("arg") else ""
                em.do("#pragma unroll")
                em.do(f"for (int j = 0; j < {lanes}; j++) {{ if (b == 0) {{ tot{n}[j] = acc{n}[j];{at} }} else {{ {col.merge(fold, f'tot{n}[j]', f'totat{n}[j]', f'acc{n}[j]', f'accat{n}[j]')} }} }}")
        totals(em, stage.reduces, "[j]")
        once = [store for store in stage.stores if not store.full]
        if once:
            with em.block_of("if (warp == 0)"):
                left = em.prepare(row_roots(graph, stage), lanes, "count")
                with em.lane_loop(left, lanes):
                    em.finish(left)
                    for store in once:
                        for w in range(em.width):
                            em.put(store, w=w)
    return em


def totals(em: Emitter, reduces: tuple[Reduce, ...], lane: str) -> None:
    for x in reduces:
        em.rows[x.number] = f"tot{'at' if x.kind.startswith('arg') else ''}{x.number}{lane}"


def blocks_entry(col: Columns, folds: list[Fold], stage: Stage) -> Emitter:
    em, graph = col.em, col.graph
    em.do(f"const i64 all_tiles = outer * ((columns + {32 * col.lanes - 1}) / {32 * col.lanes});")
    em.do("const i64 b = quotient(blockIdx.x, all_tiles), tile = blockIdx.x - b * all_tiles;")
    em.do("if (b >= blocks) return;")
    col.tile("tile")
    em.coordinates("o", col.outer_axes, em.axes)
    em.do("const i64 cells = (blocks * outer * columns + 1) & -2ll;")
    wanted = [graph.cast(fold.value, fold.dtype) for fold in folds]
    full = [store for store in stage.stores if store.full]
    if full:
        wanted += walk_roots(graph, stage)
    col.hoist(wanted)
    for fold in folds:
        col.start(fold, "acc")
        col.reset(fold)
    col.walk("b * R", "(b + 1 < blocks ? (b + 1) * R : n)", wanted, folds, stage)
    for fold in folds:
        n = fold.number
        col.fold_warps(fold)
        with em.block_of("if (warp == 0)"), em.block_of(f"for (int j = 0; j < {col.lanes}; j++)", unroll=True), em.block_of("if (j < count)"):
            em.do(f"*({register_type(fold.dtype)}*){col.cell(folds, fold, 'b', 'o', '(c + j)')} = acc{n}[j];")
            if fold.kind.startswith("arg"):
                em.do(f"*(u32*){col.cell(folds, fold, 'b', 'o', '(c + j)', True)} = accat{n}[j];")
    return em


def blocks_finish(col: Columns, folds: list[Fold], stage: Stage) -> Emitter:
    """A warp's lane a column: adds the blocks' totals in order, as all warps have read them, and does the stage's stores."""
    em, graph = col.em, col.graph
    em.do("const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;")
    em.do(f"const i64 unit = i64(blockIdx.x) * {FINISH} + lane;")
    em.do("const bool live = unit < outer * columns;")
    em.do("const i64 o = quotient(unit, columns), c = unit - o * columns;")
    em.do("const i64 cells = (blocks * outer * columns + 1) & -2ll;")
    em.lane_axes = frozenset()
    for fold in folds:
        n, kind, arg = fold.number, register_type(fold.dtype), fold.kind.startswith("arg")
        em.do(f"{kind} tot{n}{{}};" + (f" u32 totat{n} = 0;" if arg else ""))
        with em.block_of(f"for (i64 begin = 0; begin < blocks; begin += {AT_ONCE})"):
            parts = [("", kind), ("_at", "u32")] if arg else [("", kind)]
            for at, dtype in parts:
                em.do(f"__shared__ {dtype} part{at}{n}[{AT_ONCE}][32]; {dtype} read{at}[{AT_ONCE // WARPS}];")
            with em.block_of(f"for (int e = 0; e < {AT_ONCE // WARPS}; e++)", unroll=True):
                em.do(f"const i64 b = begin + warp + {WARPS} * e;")
                for at, dtype in parts:
                    em.do(f"read{at}[e] = live && b < blocks ? *(const {dtype}*){col.cell(folds, fold, 'b', 'o', 'c', bool(at))} : {dtype}{{}};")
            em.do("__syncthreads();")
            em.do("#pragma unroll")
            em.do(f"for (int e = 0; e < {AT_ONCE // WARPS}; e++) {{ " + " ".join(f"part{at}{n}[warp + {WARPS} * e][lane] = read{at}[e];" for at, _ in parts) + " }")
            em.do("__syncthreads();")
            with em.block_of("if (warp == 0)"):
                em.do(f"const int count = blocks - begin < {AT_ONCE} ? int(blocks - begin) : {AT_ONCE};")
                with em.block_of("#pragma unroll 8\n    for (int e = 0; e < count; e++)"):
                    first = f"tot{n} = part{n}[e][lane];" + (f" totat{n} = part_at{n}[e][lane];" if arg else "")
                    em.do(f"if (begin + e == 0) {{ {first} }} else {{ {col.merge(fold, f'tot{n}', f'totat{n}', f'part{n}[e][lane]', f'part_at{n}[e][lane]')} }}")
        em.rows[n] = f"tot{'at' if arg else ''}{n}"
    em.do("if (warp != 0 || !live) return;")
    em.coordinates("o", col.outer_axes, em.axes)
    em.prepare(row_roots(graph, stage), 1, "1")
    for store in stage.stores:
        if not store.full:
            em.put(store, lane=False)
    return em
