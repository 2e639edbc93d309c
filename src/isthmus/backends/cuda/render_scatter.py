"""Scatter kernels: stores at computed places, which may meet, as if in row-major order of the frame.

Axes that no computed index depends on, and along which places never meet, are *free*; the others are *key* axes, and a place
of theirs has a *key*, the part of the destination's index that they decide. Variants:

- *serial*: a thread takes one place of the free axes, and walks the key axes in order. For few keys.
- *sorted*: the keys are sorted with their places (library/sort.py), so that equal ones are a run, in order. Where a value
  replaces what was there, the last of each run is stored. Else runs are folded: within blocks of RUN sorted places in order,
  then the blocks that a run goes through in order. So the result is the same at every run, without atomics.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from isthmus.backends.cuda.emit import Emitter, memory_type, paired, register_type
from isthmus.backends.cuda.library.sort import LAYOUT, sort_phases, sort_words
from isthmus.graph.dtype import Dtype, float32
from isthmus.kernel.graph import Graph, walk_roots
from isthmus.kernel.loops import Index, Slot, Store
from isthmus.kernel.scalar import is_half

if TYPE_CHECKING:
    from isthmus.backends.cuda.render import Rendered

BLOCK = 256
RUN = 64  # sorted places that a thread folds
FEW_KEYS = 64  # that a thread may as well walk
MOST_KEYS = 1 << 31
AT_ONCE = 4  # places whose values are read before the first is folded


def scatter_launch(r: Rendered, sizes: tuple[int, ...], numbers: tuple[int, ...]) -> tuple[tuple[tuple[int, int, int], ...], int, tuple[int, ...]]:
    stage = r.kernel.stages[0]
    store = stage.stores[0]
    free, step = free_axes(r, sizes, numbers)
    keys = [k for k in range(len(sizes)) if k not in free]
    n, rest = r.count(sizes, keys), r.count(sizes, free)
    reads = any(node.op == "load" and node.attr.buffer == store.buffer for node in r.graph.nodes)
    name = "".join(f" {k}" for k in free)
    if n <= FEW_KEYS or n >= MOST_KEYS or len(stage.stores) > 1 or reads or not numbers:
        (number,) = r.variant(f"serial{name}", lambda symbol: [serial_entry(r.graph, symbol, free)])
        return ((number, -(-rest // BLOCK), BLOCK),), 0, ()
    # Lanes run along a free axis whose elements lie side by side in the destination.
    along = next((k for k in reversed(free) if dict(store.index.terms).get(k) == 1 and not isinstance(dict(store.index.terms)[k], Slot)), -1)
    size = r.kernel.buffers[store.buffer].size
    lanes = 1
    if along >= 0:
        lanes = max(1, min(8, 16 // size))
        while lanes > 1 and lanes > sizes[along]:
            lanes //= 2
    units = rest if along < 0 else rest // sizes[along] * -(-sizes[along] // lanes)
    sorts = sort_phases(r.kernel.n_slots, n)
    words = sort_words(n)
    words += words & 1
    if store.combine is None:
        first, last = r.variant(f"sorted {lanes}{name}", lambda symbol: [keys_entry(r.graph, symbol, free), last_entry(r.graph, symbol + "l", free, along, lanes)])
        return ((first, -(-n // BLOCK), BLOCK), *sorts, (last, -(-n * units // BLOCK), BLOCK)), 4 * words, (n, step)
    first, fold, join = r.variant(
        f"sorted {lanes}{name}",
        lambda symbol: [keys_entry(r.graph, symbol, free), fold_entry(r.graph, symbol + "f", free, along, lanes), join_entry(r.graph, symbol + "j", free, along, lanes)],
    )
    blocks = -(-n // RUN)
    shape = (-(-blocks * units // BLOCK), BLOCK)
    cells = 2 * blocks * units * lanes * max(4, total_type(store, r.kernel.buffers[store.buffer]).size)
    return ((first, -(-n // BLOCK), BLOCK), *sorts, (fold, *shape), (join, *shape)), 4 * words + cells, (n, step)


def total_type(store: Store, dtype: Dtype) -> Dtype:
    """What runs are folded in."""
    return float32 if is_half(dtype) and store.combine in ("add", "mul") else dtype


def key_axes(graph: Graph) -> set[int]:
    """Axes that a computed index, or whether anything is stored, depends on; and those that an index does not move with."""
    kernel = graph.kernel
    keys: set[int] = set()
    for store in kernel.stages[0].stores:
        for e in [e for e, _ in store.index.values] + ([store.mask] if store.mask is not None else []):
            keys |= {k for k in graph.nodes[graph.number(e)].deps if isinstance(k, int)}
        keys |= set(range(len(kernel.axes))) - {axis for axis, _ in store.index.terms}
    return keys


def free_axes(r: Rendered, sizes: tuple[int, ...], numbers: tuple[int, ...]) -> tuple[list[int], int]:
    """The free axes, and the step between keys: what the strides of the other axes and of computed indices are multiples of."""
    if r.key_axes is None:
        r.key_axes = key_axes(r.graph)
    if not numbers:
        return [], 1
    keys, step = set(r.key_axes), 1
    for store in r.kernel.stages[0].stores:
        keys, step = apart(store.index, keys, sizes, numbers)
    return [k for k in range(len(sizes)) if k not in keys], step


def apart(index: Index, keys: set[int], sizes: tuple[int, ...], numbers: tuple[int, ...]) -> tuple[set[int], int]:
    """`keys`, and those of the other axes along which places may meet; and the step between keys."""

    def number(x: int | Slot) -> int:
        return abs(numbers[x.number] if isinstance(x, Slot) else x)

    strides = {axis: number(stride) for axis, stride in index.terms}
    while True:
        step = 0
        for x in [number(stride) for _, stride in index.values] + [strides[k] for k in keys if k in strides]:
            step = gcd(step, x)
        extent = 1  # of the free axes so far, in elements
        for k in sorted((k for k in range(len(sizes)) if k not in keys), key=lambda k: strides[k]):
            if sizes[k] == 1:
                continue
            if strides[k] < extent or (step and strides[k] * (sizes[k] - 1) + extent > step):
                keys.add(k)
                break
            extent += strides[k] * (sizes[k] - 1)
        else:
            return keys, step or 1


def serial_entry(graph: Graph, symbol: str, free: list[int]) -> Emitter:
    em = Emitter(graph, symbol, BLOCK)
    stage = graph.kernel.stages[0]
    keys = [k for k in range(len(graph.kernel.axes)) if k not in free]
    em.do(f"const i64 unit = i64(blockIdx.x) * {BLOCK} + threadIdx.x;")
    em.do(f"if (unit >= {' * '.join(em.sizes[k] for k in free) or '1'}) return;")
    em.coordinates("unit", free, em.axes)
    with em.block_of(f"for (i64 i = 0; i < {' * '.join(em.sizes[k] for k in keys) or '1'}; i++)"):
        em.coordinates("i", keys, em.axes)
        em.prepare(walk_roots(graph, stage), 1, "1")
        for store in stage.stores:
            em.put(store, lane=False)
    return em


# -- sorted


def sorted_emitter(graph: Graph, symbol: str) -> Emitter:
    em = Emitter(graph, symbol, BLOCK)
    em.functions["layout"] = LAYOUT
    slot = graph.kernel.n_slots
    em.do(f"u32* const scratch = (u32*)p{slot}; const i64 N = p{slot + 1}, step = p{slot + 2};")
    return em


def keys_entry(graph: Graph, symbol: str, free: list[int]) -> Emitter:
    """The key of each place of the key axes, 0xffffffff where nothing is stored."""
    em = sorted_emitter(graph, symbol)
    (store,) = graph.kernel.stages[0].stores
    em.do(f"const i64 unit = i64(blockIdx.x) * {BLOCK} + threadIdx.x;")
    em.do("if (unit >= N) return;")
    em.coordinates("unit", [k for k in range(len(graph.kernel.axes)) if k not in free], em.axes)
    for k in free:
        em.axes[k] = "0ll"
    values = em.store_values(store)
    mask = [] if store.mask is None else [graph.number(store.mask)]
    em.prepare([*values, *mask], 1, "1")
    em.do(f"const i64 key = {em.index(store.index, values)} / step;")
    em.do("if (key >= 0xffffffffll) __trap();   // too many for 32 bits")
    em.do(f"KEYS(0)[unit] = {'' if store.mask is None else f'!{em.name(mask[0])} ? 0xffffffffu : '}u32(key);")
    em.do("PLACES(0)[unit] = u32(unit);")
    return em


def free_place(em: Emitter, free: list[int], along: int, lanes: int) -> None:
    """From `unit`, a pack of the free axes: their indices, and the part of the destination's index that they decide."""
    outer = [k for k in free if k != along]
    (store,) = em.kernel.stages[0].stores
    em.lane_axes, em.contiguous = (frozenset((along,)), along) if lanes > 1 else (frozenset(), -1)
    if along >= 0:
        em.do(f"const i64 packs = ({em.sizes[along]} + {lanes - 1}) / {lanes}, line = quotient(unit, packs), f = (unit - line * packs) * {lanes};")
        em.coordinates("line", outer, em.axes)
        em.axes[along] = "f"
        if lanes > 1:
            em.lane_axis[along] = "(f + @)"
        em.do(f"const int count = {em.sizes[along]} - f < {lanes} ? int({em.sizes[along]} - f) : {lanes};")
    else:
        em.coordinates("unit", outer, em.axes)
        em.do("const int count = 1;")
    offset = em.number(store.index.offset)
    terms = [f"{em.axes[axis]} * {em.number(stride)}" for axis, stride in store.index.terms if axis in free]
    em.do(f"const i64 within = {' + '.join([f'{offset} % step', *terms])};")


def units_text(em: Emitter, free: list[int], along: int, lanes: int) -> str:
    parts = [em.sizes[k] for k in free if k != along]
    if along >= 0:
        parts.append(f"(({em.sizes[along]} + {lanes - 1}) / {lanes})")
    return " * ".join(parts) or "1ll"


def last_entry(graph: Graph, symbol: str, free: list[int], along: int, lanes: int) -> Emitter:
    """The last value of each run to where it belongs."""
    em = sorted_emitter(graph, symbol)
    stage = graph.kernel.stages[0]
    (store,) = stage.stores
    dtype = graph.kernel.buffers[store.buffer]
    em.do(f"const i64 units = {units_text(em, free, along, lanes)}, all = i64(blockIdx.x) * {BLOCK} + threadIdx.x, at = quotient(all, units), unit = all - at * units;")
    em.do("if (at >= N) return;")
    em.do("const u32* const keys = KEYS(SORTED); const u32 key = keys[at];")
    em.do("if (key == 0xffffffffu || (at + 1 < N && keys[at + 1] == key)) return;")
    em.do("const i64 place = PLACES(SORTED)[at];")
    free_place(em, free, along, lanes)
    em.coordinates("place", [k for k in range(len(graph.kernel.axes)) if k not in free], em.axes)
    value = graph.number(store.value)
    left = em.prepare([value], lanes, "count")
    em.do(em.pack_declaration(dtype, "out", lanes) if lanes > 1 else f"{memory_type(dtype)} out[1];")
    if lanes > 1:
        with em.lane_loop(left, lanes):
            em.finish(left)
            em.put_lane("out", value, dtype, lanes)
    else:
        em.do(f"put(out[0], {em.lane_value(value, 0)});")
    em.do(f"store{'2' if paired(dtype, lanes) else ''}<{lanes}>(b{store.buffer} + (i64(key) * step + within), out, count);")
    return em


def fold_parts(graph: Graph, symbol: str, free: list[int], along: int, lanes: int) -> tuple[Emitter, Store, Dtype, str]:
    """The beginning of `fold_entry` and `join_entry`: block, unit, the totals that they hand on."""
    em = sorted_emitter(graph, symbol)
    (store,) = graph.kernel.stages[0].stores
    total = total_type(store, graph.kernel.buffers[store.buffer])
    em.do(f"const i64 units = {units_text(em, free, along, lanes)}, all = i64(blockIdx.x) * {BLOCK} + threadIdx.x, block = quotient(all, units), unit = all - block * units;")
    em.do(f"const i64 first = block * {RUN}, end = first + {RUN} < N ? first + {RUN} : N;")
    em.do("if (first >= N) return;")
    em.do("const u32* const keys = KEYS(SORTED);")
    kind = register_type(total)
    em.do(f"{kind}* const totals = ({kind}*)(scratch + ((4 * N + 257 * TILES + 2) & -2ll));")
    em.do("#undef TOTAL")
    em.do(f"#define TOTAL(block, tail, j) totals[((2 * (block) + (tail)) * units + unit) * {lanes} + (j)]")
    return em, store, total, kind


def apply(em: Emitter, store: Store, total: Dtype, lanes: int, name: str) -> None:
    """Join totals with what is in the destination at `key`."""
    dtype = em.kernel.buffers[store.buffer]
    join = em.join(str(store.combine), total)
    rounded = {"bfloat16": "round_b", "float16": "round_h"}.get(dtype.name, register_type(dtype))
    em.do(f"{memory_type(dtype)}* const to = b{store.buffer} + (i64(key) * step + within); {memory_type(dtype)} there[{lanes}];")
    em.do(f"load<{lanes}>(there, to, count);")
    em.do("#pragma unroll")
    em.do(f"for (int j = 0; j < {lanes}; j++) put(there[j], {rounded}({join}({register_type(total)}(get(there[j])), {name}[j])));")
    em.do(f"store<{lanes}>(to, there, count);")


def fold_entry(graph: Graph, symbol: str, free: list[int], along: int, lanes: int) -> Emitter:
    """Fold the runs of RUN sorted places. What goes on before or after them is left for `join_entry`: a head, and a tail."""
    em, store, total, kind = fold_parts(graph, symbol, free, along, lanes)
    key_list = [k for k in range(len(graph.kernel.axes)) if k not in free]
    free_place(em, free, along, lanes)
    em.do("const u32* const places = PLACES(SORTED);")
    em.do("u32 key = keys[first]; bool head = first > 0 && keys[first - 1] == key, fresh = true;")
    em.do(f"{kind} acc[{lanes}];")
    value = graph.cast(store.value, total)
    needed = graph.needed([value], em.known)
    moving = set(key_list)
    shared = [k for k in needed if moving.isdisjoint(graph.nodes[k].deps) and (not em.varies(k) or graph.nodes[k].op == "load")]
    em.prepare(shared, lanes, "count")
    early = [k for k in needed if not moving.isdisjoint(graph.nodes[k].deps) and graph.nodes[k].op == "load" and not graph.nodes[k].args]
    packs = {k: em.fresh() for k in early if lanes > 1 and em.side_by_side(graph.nodes[k])}
    singles = {k: em.fresh() for k in early if k not in packs and not em.varies(k)}
    for k, name in packs.items():
        em.do(em.pack_declaration(graph.nodes[k].dtype, name, lanes, f"[{AT_ONCE}]"))
    for k, name in singles.items():
        em.do(f"{register_type(graph.nodes[k].dtype)} {name}[{AT_ONCE}];")
    with em.block_of(f"for (i64 i = first; i < end && key != 0xffffffffu; i += {AT_ONCE})"):
        with em.block_of(f"for (int e = 0; e < {AT_ONCE}; e++)", unroll=True):
            em.do("if (i + e >= end) break;")
            em.do("const i64 place = places[i + e];")
            em.coordinates("place", key_list, em.axes)
            for k, name in packs.items():
                em.load_pack(k, f"{name}[e]", lanes, "count")
            for k, name in singles.items():
                em.do(f"{name}[e] = {em.value(k)};")
        with em.block_of(f"for (int e = 0; e < {AT_ONCE}; e++)", unroll=True):
            em.do("if (i + e >= end || key == 0xffffffffu) break;")
            em.do("const i64 place = places[i + e];")
            em.coordinates("place", key_list, em.axes)
            for k, name in packs.items():
                em.packs[-1][k] = f"{name}[e]"
            for k, name in singles.items():
                em.scopes[-1][k] = f"{name}[e]"
            left = em.prepare([value], lanes, "count")
            join = em.join(str(store.combine), total)
            if lanes > 1:
                with em.lane_loop(left, lanes):
                    em.finish(left)
                    for w in range(em.width):
                        j = em.at(w)
                        em.do(f"acc[{j}] = fresh ? {em.lane_value(value, w)} : {join}(acc[{j}], {em.lane_value(value, w)});")
            else:
                em.do(f"acc[0] = fresh ? {em.lane_value(value, 0)} : {join}(acc[0], {em.lane_value(value, 0)});")
            em.do("fresh = false;")
            em.do("const u32 next = i + e + 1 < N ? keys[i + e + 1] : ~key;")
            with em.block_of("if (next != key || i + e + 1 == end)"):
                with em.block_of("if (head || next == key)"):
                    em.do(f"store<{lanes}>(&TOTAL(block, !head, 0), acc, {lanes});")
                with em.block_of("else"):
                    apply(em, store, total, lanes, "acc")
                em.do("key = next; head = false; fresh = true;")
    return em


def join_entry(graph: Graph, symbol: str, free: list[int], along: int, lanes: int) -> Emitter:
    """Runs that begin in this block and go on: its tail, and the heads of the blocks up to the run's end, in order."""
    em, store, total, kind = fold_parts(graph, symbol, free, along, lanes)
    em.do("const u32 key = keys[end - 1];")
    em.do("if (end == N || keys[end] != key || key == 0xffffffffu || (first > 0 && keys[first - 1] == key)) return;")
    free_place(em, free, along, lanes)
    em.do("i64 low = block + 1, high = TILES * 64;   // of the block in which the run ends")
    with em.block_of("while (low < high)"):
        em.do(f"const i64 middle = (low + high) / 2, after = (middle + 1) * {RUN};")
        em.do("if (after >= N || keys[after] != key) high = middle; else low = middle + 1;")
    em.do(f"{kind} acc[{lanes}];")
    em.do(f"load<{lanes}>(acc, &TOTAL(block, 1, 0), {lanes});")
    join = em.join(str(store.combine), total)
    em.do("#pragma unroll 8")
    with em.block_of("for (i64 other = block + 1; other <= low; other++)"):
        em.do(f"{kind} more[{lanes}];")
        em.do(f"load<{lanes}>(more, &TOTAL(other, 0, 0), {lanes});")
        em.do("#pragma unroll")
        em.do(f"for (int j = 0; j < {lanes}; j++) acc[j] = {join}(acc[j], more[j]);")
    apply(em, store, total, lanes, "acc")
    return em


