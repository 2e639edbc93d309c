"""Row kernels: stage by stage over each row, with reductions between.

The row rule of this backend: the reduced axes are taken as one index i. A row is cut into chunks of CHUNK; in one, groups
of 8 elements go to T threads in turn (group g to thread g % T; T is 32 up to SHORT elements, 128 up to MIDDLE, else 256), each
thread adds its elements in order, and the threads are added in halves (l + (l ^ 16), 8, 4, 2, 1 in a warp, then the same of
the warps). The chunks' totals are reduced as a row by the same rule (without the middle length).

Variants: a warp, a block or a cluster of blocks a row with the row in registers; a block that walks its row chunk by chunk,
once a stage; and *split*, a block a chunk and launches between the stages, for few long rows. A side sum is a column kernel of its own, with
the row values it needs kept in scratch (render_column.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus.backends.cuda.emit import Emitter, identity_text, register_type
from isthmus.graph.dtype import Dtype
from isthmus.kernel.graph import Graph, kept_nodes, row_roots, walk_roots
from isthmus.kernel.loops import Reduce, Stage

if TYPE_CHECKING:
    from isthmus.backends.cuda.render import Rendered

SHORT = 1024
MIDDLE = 4096
CHUNK = 16384
GROUP = 8
# Rows of whole groups; each of them at a multiple of its bytes; and each thread has all of its groups, so that nothing asks
# and all are read at once.
WHOLE, ALIGNED, EVEN = "whole", "aligned", "even"
BLOCK = 256
WARPS = BLOCK // 32
CLUSTER = 8  # blocks that share a row, a chunk each, where the chip can (sm_90 on)
MOST_CHUNKS = 1024  # of a row that one block walks
CELL = 16  # bytes of a total in scratch: the value, and the index of an arg-reduction
FEW_BLOCKS = 264  # rows that keep the chip busy
KEEP_COST = 24
KEEP_REGISTERS = 96


def row_launch(r: Rendered, sizes: tuple[int, ...], numbers: tuple[int, ...]) -> tuple[tuple[tuple[int, int, int], ...], int, tuple[int, ...]]:
    rows, length = r.count(sizes, r.parallel), r.count(sizes, r.reduced)
    sides = r.side_bytes > 0
    keep = CELL * rows * r.n_reduces if sides else 0
    whole = "" if length % GROUP or len(r.reduced) > 1 else ALIGNED if r.aligned(r.reduced[0], GROUP, numbers) else WHOLE
    if (length > CHUNK and rows < FEW_BLOCKS and not sides) or length > CHUNK * MOST_CHUNKS:
        assert not sides, "a side sum beside rows of over 16M elements"
        return split_launch(r, rows, length, whole)

    def even(capacity: int) -> str:
        """`whole`, or EVEN where rows have just so many elements (or a multiple of them, in chunks)."""
        return EVEN if whole == ALIGNED and length % capacity == 0 else whole

    if length <= SHORT:
        groups = 1 if length <= 32 * GROUP else 2 if length <= 64 * GROUP else 4
        whole = even(groups * 32 * GROUP)
        (number,) = r.variant(variant_name(f"warp {groups}", whole), lambda symbol: [rows_entry(r.graph, symbol, 32, groups, sides, whole)])
        phases = [(number, -(-rows // WARPS), BLOCK)]
    elif length <= CHUNK:
        threads = 128 if length <= MIDDLE else BLOCK
        groups = next(e for e in (2, 4, 8) if e * threads * GROUP >= length)
        whole = even(groups * threads * GROUP)
        (number,) = r.variant(variant_name(f"block {threads} {groups}", whole), lambda symbol: [rows_entry(r.graph, symbol, threads, groups, sides, whole)])
        phases = [(number, rows, threads)]
    elif length <= CLUSTER * CHUNK and r.clusters and pays_to_keep(r):
        blocks = next(c for c in (2, 4, 8) if c * CHUNK >= length)
        groups = CHUNK // BLOCK // GROUP
        whole = even(blocks * CHUNK)
        (number,) = r.variant(variant_name(f"cluster {blocks}", whole), lambda symbol: [rows_entry(r.graph, symbol, BLOCK, groups, sides, whole, blocks)])
        phases = [(number, rows * blocks, BLOCK)]
    else:
        whole = even(CHUNK)
        (number,) = r.variant(variant_name("loop", whole), lambda symbol: [rows_entry(r.graph, symbol, BLOCK, 0, sides, whole)])
        phases = [(number, rows, BLOCK)]
    if not sides:
        return tuple(phases), 0, ()
    from isthmus.backends.cuda.render_column import sides_launch

    more, scratch = sides_launch(r, rows, length, keep)
    return (*phases, *more), keep + scratch, ()


def variant_name(form: str, whole: str) -> str:
    return f"{form}, {whole}" if whole else form


def pays_to_keep(r: Rendered) -> bool:
    """Whether a long row is worth being held by a cluster, whose blocks wait for each other: if else it would be read three times, or is wide."""
    passes = sum(1 for stage in r.kernel.stages if stage.reduces)
    return passes > 1 or all(node.dtype.size > 2 for node in r.graph.nodes if node.op == "load")


def n_reduces(graph: Graph) -> int:
    return sum(len(stage.reduces) for stage in graph.kernel.stages)


class Rows:
    """What the functions of one row kernel share."""

    def __init__(self, graph: Graph, symbol: str, whole: str = "", threads: int = BLOCK) -> None:
        self.em = em = Emitter(graph, symbol, threads)
        self.warps = threads // 32
        em.whole, em.aligned = bool(whole), whole in (ALIGNED, EVEN)
        self.even = whole == EVEN
        self.graph = graph
        kernel = graph.kernel
        self.parallel = [k for k, axis in enumerate(kernel.axes) if not axis.reduced]
        self.reduced = [k for k, axis in enumerate(kernel.axes) if axis.reduced]
        self.rows = " * ".join(em.sizes[k] for k in self.parallel) or "1ll"
        self.reduces = [x for stage in kernel.stages for x in stage.reduces]
        em.do(f"const i64 n = {' * '.join(em.sizes[k] for k in self.reduced)};")
        em.do(f"const i64 rows = {self.rows};")
        em.lane_axes = frozenset(self.reduced)
        if len(self.reduced) == 1:
            em.contiguous = self.reduced[0]
            em.axes[self.reduced[0]] = "i"
            em.lane_axis[self.reduced[0]] = "(i + @)"

    def lanes(self, stage: Stage, kept: dict[int, str], outs: bool) -> None:
        """A group's eight places: the full stores (if `outs`), and each reduction's step."""
        em, graph = self.em, self.graph
        values = [graph.cast(x.value, accumulator(x)) for x in stage.reduces]
        wanted = [*walk_roots(graph, stage)] if outs else []
        left = em.prepare([*wanted, *values], GROUP, "count")
        packs: dict[int, str] = {}
        full = [store for store in stage.stores if store.full] if outs else []
        for k, store in enumerate(full):
            if em.packed_store(store):
                packs[k] = em.fresh()
                em.do(em.pack_declaration(em.kernel.buffers[store.buffer], packs[k], GROUP))
        args = [x for x in stage.reduces if x.kind.startswith("arg")]
        for x in args:
            kind = register_type(accumulator(x))
            em.do(f"{kind} val{x.number}[{GROUP}], best{x.number} = {kind}{{}};")
        with em.lane_loop(left, GROUP):
            if len(self.reduced) > 1:
                em.do("const i64 place = i + j;")
                em.coordinates("place", self.reduced, em.lane_axis)
            em.finish(left, kept)
            for k, name in kept.items():
                if k in left:
                    for w in range(em.width):
                        em.do(f"{name}[{em.at(w)}] = {em.lane_value(k, w)};")
            for x, value in zip(stage.reduces, values, strict=True):
                for w in range(em.width):
                    self.step(x, em.lane_value(value, w), em.at(w))
            for k, store in enumerate(full):
                if k in packs:
                    em.put_lane(packs[k], graph.number(store.value), em.kernel.buffers[store.buffer], GROUP)
                else:
                    for w in range(em.width):
                        em.put(store, w=w)
        for x in args:
            self.group_best(x)
        for k, out in packs.items():
            em.store_pack(full[k], out, GROUP)

    def count_lanes(self, otherwise: str) -> None:
        """How many of a group's places are there; `otherwise` none is."""
        em = self.em
        if em.whole:
            if not self.even:
                em.do(f"if (i >= n) {otherwise};")
            em.do(f"const int count = {GROUP};")
        else:
            em.do(f"const int count = n - i < {GROUP} ? int(n - i) : {GROUP};")
            em.do(f"if (count <= 0) {otherwise};")

    # -- reductions

    def start(self, x: Reduce, prefix: str = "acc") -> None:
        kind = accumulator(x)
        if x.kind.startswith("arg"):
            self.em.do(f"{register_type(kind)} {prefix}{x.number} = {register_type(kind)}{{}}; u32 {prefix}at{x.number} = 0xffffffffu;")
        else:
            self.em.do(f"{register_type(kind)} {prefix}{x.number} = {identity_text(x.kind, kind)};")

    def step(self, x: Reduce, value: str, j: str) -> None:
        """One element of a group; of an arg-reduction only the group's best is kept, and looked at in `group_best`."""
        acc, there = f"acc{x.number}", "" if self.em.whole else f"if ({j} < count) "
        if x.kind.startswith("arg"):
            best = self.em.join(x.kind[3:], accumulator(x))
            self.em.do(f"val{x.number}[{j}] = {value};")
            self.em.do(f"{there}best{x.number} = {j} == 0 ? {value} : {best}(best{x.number}, {value});")
        else:
            self.em.do(f"{there}{acc} = {self.em.join(x.kind, accumulator(x))}({acc}, {value});")

    def group_best(self, x: Reduce) -> None:
        """If a group's best displaces what was found, its first place."""
        n, kind = x.number, register_type(accumulator(x))
        better = self.em.better(x.kind, accumulator(x))
        with self.em.block_of(f"if (accat{n} == 0xffffffffu || {better}(best{n}, acc{n}))"):
            self.em.do(f"const {kind} best = best{n};")
            self.em.do("int at = -1;")
            same = "val{n}[j].re == best.re && val{n}[j].im == best.im" if kind == "c64" else "val{n}[j] == best || val{n}[j] != val{n}[j]"
            self.em.do("#pragma unroll")
            self.em.do(f"for (int j = {GROUP - 1}; j >= 0; j--) if (j < count && ({same.format(n=n)})) at = j;")
            self.em.do(f"acc{n} = best; accat{n} = u32(i + (at < 0 ? 0 : at));")

    def fold_cluster(self, x: Reduce, blocks: int) -> None:
        """The total of a row from those of its cluster's blocks, a chunk each."""
        em = self.em
        n, kind, arg = x.number, register_type(accumulator(x)), x.kind.startswith("arg")
        em.do(f"__shared__ {kind} own{n}, all{n}[{blocks}];" + (f" __shared__ u32 own_at{n}, all_at{n}[{blocks}];" if arg else ""))
        em.do(f"if (t == 0) {{ own{n} = acc{n};" + (f" own_at{n} = accat{n};" if arg else "") + " }")
        em.do("cluster_sync();")
        em.do(f"if (t < {blocks}) {{ all{n}[t] = of_block(&own{n}, t);" + (f" all_at{n}[t] = of_block(&own_at{n}, t);" if arg else "") + " }")
        em.do("__syncthreads();")
        self.fold_totals(x, f"((n + {CHUNK - 1}) / {CHUNK})", f"all{n}[k]", f"all_at{n}[k]")
        self.total(x, f"sum{n}", f"sumat{n}")

    def merge(self, x: Reduce, acc: str, at: str, other: str, other_at: str) -> str:
        """Code that joins another total into one."""
        if x.kind.startswith("arg"):
            better = self.em.better(x.kind, accumulator(x))
            return (
                f"if ({other_at} != 0xffffffffu && ({at} == 0xffffffffu || {better}({other}, {acc}) || "
                f"(!{better}({acc}, {other}) && {other_at} < {at}))) {{ {acc} = {other}; {at} = {other_at}; }}"
            )
        return f"{acc} = {self.em.join(x.kind, accumulator(x))}({acc}, {other});"

    def fold(self, x: Reduce, widths: str, prefix: str = "acc") -> None:
        """Adds lanes in halves: after it every lane has the total."""
        em = self.em
        acc, at = f"{prefix}{x.number}", f"{prefix}at{x.number}"
        kind = register_type(accumulator(x))
        if x.kind.startswith("arg") and kind != "c64":
            # The best value first, then the first place of those that have it (NaN is unequal to itself).
            join = em.join(x.kind[3:], accumulator(x))
            with em.block_of("if (true)"):
                em.do(f"const {kind} own = {acc}; const bool there = {at} != 0xffffffffu;")
                em.do(f"{kind} best = there ? own : {identity_text(x.kind[3:], accumulator(x))};")
                em.do("#pragma unroll")
                em.do(f"for (int by = {widths}; by; by >>= 1) best = {join}(best, turn(best, by));")
                em.do(f"{at} = there && (own == best || own != own) ? {at} : 0xffffffffu; {acc} = best;")
                em.do("#pragma unroll")
                em.do(f"for (int by = {widths}; by; by >>= 1) {at} = min({at}, turn({at}, by));")
            return
        with em.block_of(f"for (int by = {widths}; by; by >>= 1)", unroll=True):
            em.do(f"const {kind} other = turn({acc}, by);")
            if x.kind.startswith("arg"):
                em.do(f"const u32 other_at = turn({at}, by);")
            em.do(self.merge(x, acc, at, "other", "other_at"))

    def fold_block(self, x: Reduce, again: bool) -> None:
        """The total of a block's threads, in every thread. `again`: this code runs more than once."""
        em = self.em
        acc, at, kind = f"acc{x.number}", f"accat{x.number}", register_type(accumulator(x))
        arg = x.kind.startswith("arg")
        self.fold(x, "16")
        em.do(f"__shared__ {kind} warps{x.number}[{self.warps}];" + (f" __shared__ u32 warps_at{x.number}[{self.warps}];" if arg else ""))
        em.do(f"if (threadIdx.x % 32 == 0) {{ warps{x.number}[threadIdx.x / 32] = {acc};" + (f" warps_at{x.number}[threadIdx.x / 32] = {at};" if arg else "") + " }")
        em.do("__syncthreads();")
        em.do(f"{acc} = warps{x.number}[threadIdx.x % {self.warps}];" + (f" {at} = warps_at{x.number}[threadIdx.x % {self.warps}];" if arg else ""))
        self.fold(x, str(self.warps // 2))
        if again:
            em.do("__syncthreads();")

    def fold_totals(self, x: Reduce, count: str, cell: str, cell_at: str) -> None:
        """Reduces `count` totals (C++ of total k: `cell`, `cell_at`), at most SHORT of them, by the row rule; every warp does it."""
        em = self.em
        self.start(x, "sum")
        with em.block_of(f"for (i64 g = threadIdx.x % 32; g * {GROUP} < {count}; g += 32)"), em.block_of(f"for (i64 k = g * {GROUP}; k < {count} && k < g * {GROUP} + {GROUP}; k++)"):
            em.do(self.merge(x, f"sum{x.number}", f"sumat{x.number}", cell, cell_at))
        self.fold(x, "16", "sum")

    def total(self, x: Reduce, name: str, at: str) -> None:
        """`name` (or `at`) is the value of a reduction from here on."""
        self.em.rows[x.number] = self.em.let(register_type(x.dtype), f"{register_type(x.dtype)}({at if x.kind.startswith('arg') else name})")

    def row_stores(self, stage: Stage, when: str) -> None:
        em = self.em
        once = [store for store in stage.stores if not store.full]
        if once:
            lane_axes, em.lane_axes = em.lane_axes, frozenset()
            em.prepare(row_roots(self.graph, stage), 1, "1")
            with em.block_of(f"if ({when})"):
                for store in once:
                    em.put(store, lane=False)
            em.lane_axes = lane_axes

    def uniform(self, stage: Stage) -> None:
        """Writes what a stage needs that is the same along the row."""
        em = self.em
        wanted = [*walk_roots(self.graph, stage), *(self.graph.cast(x.value, accumulator(x)) for x in stage.reduces)]
        same = [k for k in self.graph.needed(wanted, em.known) if not em.varies(k)]
        em.prepare(same, 1, "1")


def accumulator(x: Reduce) -> Dtype:
    """The dtype that a reduction adds up in; of an arg-reduction that of what is compared."""
    if x.kind.startswith("arg"):
        return x.value.dtype
    return x.dtype


def kept_packs(graph: Graph, rows: Rows, groups: int) -> tuple[list[int], list[int]]:
    """Loads and dear values that several stages want, as far as registers go."""
    stages = graph.kernel.stages
    em = rows.em
    seen: dict[int, int] = {}
    loads = []
    for t, stage in enumerate(stages):
        for k in graph.needed(walk_roots(graph, stage), lambda k: False):
            node = graph.nodes[k]
            if node.op == "load" and em.varies(k) and em.side_by_side(node):
                if seen.setdefault(k, t) < t and k not in loads:
                    loads.append(k)
    registers = sum(groups * GROUP * max(1, graph.nodes[k].dtype.size) // 4 for k in loads)
    if registers > KEEP_REGISTERS:
        loads = []
        registers = 0
    values = []
    for _, k in kept_nodes(graph, KEEP_COST):
        need = groups * GROUP * (2 if graph.nodes[k].dtype.size == 8 else 1)
        if registers + need <= KEEP_REGISTERS and graph.nodes[k].op != "load":
            values.append(k)
            registers += need
    return loads, values


def rows_entry(graph: Graph, symbol: str, threads: int, groups: int, keep_rows: bool, whole: str, cluster: int = 1) -> Emitter:
    """`threads` threads a row: `groups` groups of each in registers, or (0) chunk by chunk; or `cluster` blocks, a chunk each."""
    rows = Rows(graph, symbol, whole, BLOCK if threads == 32 else threads)
    em = rows.em
    em.cluster = cluster
    if cluster > 1:
        em.do(f"const i64 row = blockIdx.x / {cluster}; const int chunk = blockIdx.x % {cluster};")
    elif threads == 32:
        em.do(f"const i64 row = i64(blockIdx.x) * {WARPS} + threadIdx.x / 32;")
    else:
        em.do("const i64 row = blockIdx.x;")
    em.do("if (row >= rows) return;")
    em.do(f"const int t = threadIdx.x{' % 32' if threads == 32 else ''};")
    em.coordinates("row", rows.parallel, em.axes)
    loads, values = kept_packs(graph, rows, groups) if groups else ([], [])
    arrays: dict[int, str] = {}
    for k in loads:
        arrays[k] = em.fresh()
        em.do(em.pack_declaration(graph.nodes[k].dtype, arrays[k], GROUP, f"[{groups}]"))
    for k in values:
        arrays[k] = em.fresh()
        em.do(f"{register_type(graph.nodes[k].dtype)} {arrays[k]}[{groups}][{GROUP}];")
    first_of = dict.fromkeys(values, True)
    for stage in graph.kernel.stages:
        rows.uniform(stage)
        for x in stage.reduces:
            rows.start(x)
        if groups:
            with em.block_of(f"for (int e = 0; e < {groups}; e++)", unroll=True):
                em.do(f"const i64 i = {f'chunk * {CHUNK} + ' if cluster > 1 else ''}i64(t + e * {threads}) * {GROUP};")
                rows.count_lanes("continue")
                fresh = [k for k in loads if em.pack(k) is None and k in graph.needed(walk_roots(graph, stage), em.known)]
                for k in fresh:
                    em.prepare(graph.nodes[k].args, GROUP, "count")
                    em.load_pack(k, f"{arrays[k]}[e]", GROUP, "count")
                    em.packs[0][k] = f"{arrays[k]}[e]"
                used = {k: f"{arrays[k]}[e]" for k in values if first_of[k]}
                rows.lanes(stage, used, True)
            needed = set(graph.needed(walk_roots(graph, stage), lambda k: False))
            for k in values:
                if first_of[k] and k in needed:
                    first_of[k] = False
                    em.scopes[0][k] = f"{arrays[k]}[e][j]"
            for x in stage.reduces:
                if threads == 32:
                    rows.fold(x, "16")
                else:
                    rows.fold_block(x, False)
                if cluster > 1:
                    rows.fold_cluster(x, cluster)
                else:
                    rows.total(x, f"acc{x.number}", f"accat{x.number}")
        else:
            chunk_loop(rows, stage)
        first = "t == 0 && chunk == 0" if cluster > 1 else "t == 0"
        rows.row_stores(stage, first)
        if keep_rows:
            for x in stage.reduces:
                em.do(f"if ({first}) *({register_type(x.dtype)}*)({row_cell(em, x, 'row')}) = {em.rows[x.number]};")
    if cluster > 1 and rows.reduces:
        em.do("cluster_sync();")  # a block's totals are read by the others
    return em


def chunk_loop(rows: Rows, stage: Stage) -> None:
    em = rows.em
    arg = {x.number: x.kind.startswith("arg") for x in stage.reduces}
    for x in stage.reduces:
        em.do(f"__shared__ {register_type(accumulator(x))} totals{x.number}[{MOST_CHUNKS}];" + (f" __shared__ u32 totals_at{x.number}[{MOST_CHUNKS}];" if arg[x.number] else ""))
    with em.block_of(f"for (i64 c = 0; c * {CHUNK} < n; c++)"):
        for x in stage.reduces:
            reset(rows, x)
        if rows.even:
            em.do("#pragma unroll 4")
        with em.block_of(f"for (int e = 0; e < {CHUNK // BLOCK // GROUP}; e++)"):
            em.do(f"const i64 i = c * {CHUNK} + (t + e * {BLOCK}) * {GROUP};")
            rows.count_lanes("break")
            rows.lanes(stage, {}, True)
        for x in stage.reduces:
            rows.fold_block(x, True)
            em.do(f"if (t == 0) {{ totals{x.number}[c] = acc{x.number};" + (f" totals_at{x.number}[c] = accat{x.number};" if arg[x.number] else "") + " }")
    if stage.reduces:
        em.do("__syncthreads();")
    for x in stage.reduces:
        rows.fold_totals(x, f"((n + {CHUNK - 1}) / {CHUNK})", f"totals{x.number}[k]", f"totals_at{x.number}[k]")
        rows.total(x, f"sum{x.number}", f"sumat{x.number}")


def reset(rows: Rows, x: Reduce) -> None:
    if x.kind.startswith("arg"):
        rows.em.do(f"accat{x.number} = 0xffffffffu;")
    else:
        rows.em.do(f"acc{x.number} = {identity_text(x.kind, accumulator(x))};")


# -- split


def scratch(em: Emitter) -> str:
    return f"p{em.kernel.n_slots}"


def row_cell(em: Emitter, x: Reduce, row: str) -> str:
    """Where the value of a reduction of a row is kept."""
    return f"{scratch(em)} + ({x.number} * rows + {row}) * {CELL}"


def chunk_cell(em: Emitter, x: Reduce, reduces: int, row: str, chunk: str) -> str:
    return f"{scratch(em)} + ({reduces} * rows + ({x.number} * rows + {row}) * chunks + {chunk}) * {CELL}"


def split_launch(r: Rendered, rows: int, length: int, whole: str) -> tuple[tuple[tuple[int, int, int], ...], int, tuple[int, ...]]:
    stages = r.kernel.stages
    chunks = -(-length // CHUNK)

    def make(symbol: str) -> list[Emitter]:
        entries = []
        for t, stage in enumerate(stages):
            entries.append(split_entry(r.graph, f"{symbol}_{t}", t, whole))
            if finishes(stage):
                entries.append(finish_entry(r.graph, f"{symbol}_{t}f", t))
        return entries

    numbers = iter(r.variant(f"split{', ' + whole if whole else ''}", make))
    phases = []
    for stage in stages:
        phases.append((next(numbers), rows * chunks, BLOCK))
        if finishes(stage):
            phases.append((next(numbers), rows, BLOCK))
    return tuple(phases), n_reduces(r.graph) * rows * (chunks + 1) * CELL, ()


def finishes(stage: Stage) -> bool:
    return bool(stage.reduces) or any(not store.full for store in stage.stores)


def read_rows(rows: Rows, before: int) -> None:
    """Row values of the stages before, from scratch."""
    em = rows.em
    for stage in rows.graph.kernel.stages[:before]:
        for x in stage.reduces:
            em.rows[x.number] = em.let(register_type(x.dtype), f"*(const {register_type(x.dtype)}*)({row_cell(em, x, 'row')})")


def split_entry(graph: Graph, symbol: str, number: int, whole: str) -> Emitter:
    """A chunk of one stage: full stores, and the chunk's totals."""
    rows = Rows(graph, symbol, whole)
    em = rows.em
    stage = graph.kernel.stages[number]
    em.do(f"const i64 chunks = (n + {CHUNK - 1}) / {CHUNK};")
    em.do("const i64 row = quotient(blockIdx.x, chunks), c = blockIdx.x - row * chunks;")
    em.do("if (row >= rows) return;")
    em.do("const int t = threadIdx.x;")
    em.coordinates("row", rows.parallel, em.axes)
    read_rows(rows, number)
    rows.uniform(stage)
    for x in stage.reduces:
        rows.start(x)
    with em.block_of(f"for (int e = 0; e < {CHUNK // BLOCK // GROUP}; e++)", unroll=len(graph.nodes) < 24):
        em.do(f"const i64 i = c * {CHUNK} + (t + e * {BLOCK}) * {GROUP};")
        rows.count_lanes("continue")
        rows.lanes(stage, {}, True)
    for x in stage.reduces:
        rows.fold_block(x, False)
        cell = em.let("i64", chunk_cell(em, x, len(rows.reduces), "row", "c"))
        em.do(f"if (t == 0) {{ *({register_type(accumulator(x))}*)({cell}) = acc{x.number};" + (f" *(u32*)({cell} + 8) = accat{x.number};" if x.kind.startswith("arg") else "") + " }")
    return em


def finish_entry(graph: Graph, symbol: str, number: int) -> Emitter:
    """After a stage: the totals of each row from those of its chunks, and the row's stores."""
    rows = Rows(graph, symbol)
    em = rows.em
    stage = graph.kernel.stages[number]
    em.do(f"const i64 chunks = (n + {CHUNK - 1}) / {CHUNK};")
    em.do("const i64 row = blockIdx.x;")
    em.do("if (row >= rows) return;")
    em.do("const int t = threadIdx.x;")
    em.coordinates("row", rows.parallel, em.axes)
    read_rows(rows, number)
    for x in stage.reduces:
        kind = register_type(accumulator(x))
        cells = em.let("i64", chunk_cell(em, x, len(rows.reduces), "row", "0"))
        rows.start(x)
        em.do(f"__shared__ {kind} totals{x.number}[{MOST_CHUNKS}]; __shared__ u32 totals_at{x.number}[{MOST_CHUNKS}];")
        with em.block_of(f"if (chunks <= {SHORT})"):
            with em.block_of(f"for (i64 k = t; k < chunks; k += {BLOCK})"):
                em.do(f"totals{x.number}[k] = *(const {kind}*)({cells} + k * {CELL});")
                em.do(f"totals_at{x.number}[k] = *(const u32*)({cells} + k * {CELL} + 8);")
            em.do("__syncthreads();")
            rows.fold_totals(x, "chunks", f"totals{x.number}[k]", f"totals_at{x.number}[k]")
            em.do(f"acc{x.number} = sum{x.number};" + (f" accat{x.number} = sumat{x.number};" if x.kind.startswith("arg") else ""))
        with em.block_of("else"):
            with em.block_of(f"for (i64 c = 0; c * {CHUNK} < chunks; c++)"):
                reset(rows, x)
                with em.block_of(f"for (int e = 0; e < {CHUNK // BLOCK // GROUP}; e++)"), em.block_of(f"for (int j = 0; j < {GROUP}; j++)", unroll=True):
                    em.do(f"const i64 k = c * {CHUNK} + (t + e * {BLOCK}) * {GROUP} + j;")
                    em.do(f"if (k < chunks) {{ const {kind} other = *(const {kind}*)({cells} + k * {CELL}); const u32 other_at = *(const u32*)({cells} + k * {CELL} + 8);")
                    em.do(rows.merge(x, f"acc{x.number}", f"accat{x.number}", "other", "other_at") + " (void)other_at; }")
                rows.fold_block(x, True)
                em.do(f"if (t == 0) {{ totals{x.number}[c] = acc{x.number};" + (f" totals_at{x.number}[c] = accat{x.number};" if x.kind.startswith("arg") else "") + " }")
            em.do("__syncthreads();")
            with em.block_of(f"if (chunks > {CHUNK})"):
                rows.fold_totals(x, f"((chunks + {CHUNK - 1}) / {CHUNK})", f"totals{x.number}[k]", f"totals_at{x.number}[k]")
                em.do(f"acc{x.number} = sum{x.number};" + (f" accat{x.number} = sumat{x.number};" if x.kind.startswith("arg") else ""))
        rows.total(x, f"acc{x.number}", f"accat{x.number}")
        em.do(f"if (t == 0) *({register_type(x.dtype)}*)({row_cell(em, x, 'row')}) = {em.rows[x.number]};")
    rows.row_stores(stage, "t == 0")
    return em
