"""Kernels to native code for the CPU: `render(kernel).bind(sizes, threads)`.

A kernel has *variants*, ways to walk it that suit different sizes: one is chosen when sizes are bound and compiled when
first chosen. Results do not depend on the variant, on threads or on grain: the order of sums is a rule
(docs/design/cpu_abi.md), and everything else is exact.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from math import prod
from typing import NamedTuple

from isthmus.backends.cpu.compile import compile_module
from isthmus.backends.cpu.render_column import block_entry, blocks_finish_entry, tile_entry, tile_lanes
from isthmus.backends.cpu.render_emit import Emitter, register_bytes
from isthmus.backends.cpu.render_loops import (
    SHORT,
    STRIP,
    TILES,
    flat_entry,
    flat_form,
    has_strips,
    map_entry,
    natural_lanes,
    scatter_entry,
    strips_entry,
    turned_entry,
    turned_loads,
)
from isthmus.backends.cpu.render_row import (
    BLOCK,
    CELL,
    CHUNK,
    rows_entry,
    side_bytes,
    side_finish_entry,
    split_finish_entry,
    split_stage_entry,
)
from isthmus.kernel.graph import Graph, Node, kept_nodes, walk_roots
from isthmus.kernel.loops import Kernel, Slot

PIECE = 65536  # work of a piece handed to a thread, in additions of float32 or so: some microseconds
ROW_COST = 64  # of a row beside its places: lanes folded, ends
KEEP_COST = 12  # an expression dearer than this is kept for later stages, in scratch
KEEP_BYTES = 1 << 18  # longest row whose values are kept in scratch for later stages: within the second cache


class Launch(NamedTuple):
    """What one launch of a kernel needs at given sizes.

    `phases` are `(entry address, units, grain)`, run in order, each after the one before has finished. `scratch_bytes`
    are wanted from the arena; `extra` are the values of the slots after `kernel.n_slots`, which holds its address.
    """

    phases: tuple[tuple[int, int, int], ...]
    scratch_bytes: int
    extra: tuple[int, ...]


class Rendered:
    """The native forms of one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.graph = Graph(kernel)
        self.name = "k" + hashlib.sha256(kernel.text().encode()).hexdigest()[:12]
        self.parallel = [k for k, axis in enumerate(kernel.axes) if not axis.reduced]
        self.reduced = [k for k, axis in enumerate(kernel.axes) if axis.reduced]
        self.sides = [side for stage in kernel.stages for side in stage.sides]
        self.kept = kept_nodes(self.graph, KEEP_COST) if kernel.form == "row" else []
        self.cost = 1 + sum(self.graph.cost(self.graph.needed(walk_roots(self.graph, stage), lambda k: False)) // 4 for stage in kernel.stages)
        self.cost += 2 * sum(r.kind.startswith("arg") for stage in kernel.stages for r in stage.reduces)
        self.cost += 4 * sum(node.op == "load" and gathers(node, len(kernel.axes) - 1) for node in self.graph.nodes)
        self.addresses: dict[str, tuple[int, ...]] = {}
        self.sources: dict[str, str] = {}
        self.n_slots = kernel.n_slots + 3
        self.cross = turned_loads(self.graph)[0] if kernel.form == "map" else -1
        tile = min(16, natural_lanes(self.graph, walk_roots(self.graph, kernel.stages[0])))
        self.turned_sides = (TILES[0] * tile, TILES[1] * tile)
        self.flat = flat_form(self.graph) if kernel.form == "map" else None
        self.strips = kernel.form == "scatter" and has_strips(self.graph)
        self.lanes = tile_lanes(self.graph) if kernel.form == "column" else (0, 0)
        self.bind: Callable[[tuple[int, ...], int], Launch] = {
            "map": self._bind_map,
            "row": self._bind_row,
            "column": self._bind_column,
            "scatter": self._bind_scatter,
        }[kernel.form]

    def source(self) -> str:
        """The IR of the variants made so far."""
        return "\n\n".join(f"; variant {name}\n{text}" for name, text in self.sources.items())

    def variant(self, name: str, make: Callable[[], list[Emitter]]) -> tuple[int, ...]:
        found = self.addresses.get(name)
        if found is None:
            entries = make()
            declarations: dict[str, None] = {}
            for entry in entries:
                declarations.update(entry.declarations)
            text = "\n\n".join([*declarations, *(entry.text() for entry in entries)])
            self.sources[name] = text
            symbols = [entry.symbol for entry in entries]
            made = compile_module(text, symbols)
            found = self.addresses[name] = tuple(made[s] for s in symbols)
        return found

    def grain(self, units: int, unit_cost: int, threads: int, multiple: int = 1) -> int:
        """Units of a piece: enough work to be worth handing over, and some pieces a thread to even out."""
        if units * unit_cost < 2 * PIECE or threads == 1:
            return units
        grain = max(PIECE // unit_cost, -(-units // (4 * threads)), 1)
        return -(-grain // multiple) * multiple

    def prepare(self, sizes: tuple[int, ...], threads: int) -> None:
        """Make the variants that other sizes would choose, for a kernel whose sizes were seen to change."""

        def like(parallel: int, reduced: int, last: int) -> tuple[int, ...]:
            of = dict.fromkeys(range(len(sizes)), 1)
            if self.parallel:
                of[self.parallel[0]] = parallel
            if self.reduced:
                of[self.reduced[0]] = reduced
            if self.kernel.form != "row" and sizes:
                of[len(sizes) - 1] = last
            return tuple(of.values())

        if self.kernel.form == "map":
            probes = [(4,) * len(sizes), (100,) * len(sizes)]
        elif self.kernel.form == "row":
            probes = [like(10_000, 100, 0), like(10_000, 1_000_000, 0), like(1, 10_000_000, 0)]
        elif self.kernel.form == "column":
            probes = [like(1, length, last) for length in (BLOCK, 1000) for last in (sizes[-1], 4096)]
        else:
            probes = []
        for probe in probes:
            self.bind(probe, threads)

    # -- map, scatter

    def _bind_map(self, sizes: tuple[int, ...], threads: int) -> Launch:
        if self.cross >= 0 and sizes[-1] > 7 and sizes[self.cross] > 7:
            return self._turned(sizes, threads)
        if self.flat is not None and sizes[-1] < SHORT:
            found = self.addresses.get("flat")
            if found is None:
                flat = self.flat
                found = self.variant("flat", lambda: [flat_entry(self.graph, flat, self.name + "s", self.name), map_entry(self.graph, self.name)])
            units = prod(sizes)
            return Launch(((found[0], units, self.grain(units, self.cost, threads, 1024)),), 0, (0, 0))
        (address,) = self.addresses.get("map") or self.variant("map", lambda: [map_entry(self.graph, self.name)])
        units = prod(sizes)
        return Launch(((address, units, self.grain(units, self.cost, threads, 1024)),), 0, (0, 0))

    def _turned(self, sizes: tuple[int, ...], threads: int) -> Launch:
        (address,) = self.addresses.get("turned") or self.variant("turned", lambda: [turned_entry(self.graph, self.name + "t")])
        down, across = self.turned_sides
        units = -(-sizes[-1] // across) * -(-sizes[self.cross] // down)
        for k, size in enumerate(sizes[:-1]):
            if k != self.cross:
                units *= size
        return Launch(((address, units, self.grain(units, down * across * self.cost * 2, threads)),), 0, (0, 0))

    def _bind_scatter(self, sizes: tuple[int, ...], threads: int) -> Launch:
        if self.strips:
            (address,) = self.addresses.get("strips") or self.variant("strips", lambda: [strips_entry(self.graph, self.name)])
            units = -(-sizes[-1] // STRIP)
            return Launch(((address, units, self.grain(units, prod(sizes) // units * self.cost, threads)),), 0, (0, 0))
        (address,) = self.addresses.get("scatter") or self.variant("scatter", lambda: [scatter_entry(self.graph, self.name)])
        units = prod(sizes)
        return Launch(((address, units, units),), 0, (0, 0))

    # -- row

    def _bind_row(self, sizes: tuple[int, ...], threads: int) -> Launch:
        rows, length = 1, 1
        for k in self.parallel:
            rows *= sizes[k]
        for k in self.reduced:
            length *= sizes[k]
        work = rows * length * self.cost
        if not self.sides and threads > 1 and rows < 4 * threads and length > 2 * CHUNK and work > 2 * PIECE:
            return self._split(rows, length, threads)
        kept_bytes = sum(register_bytes(self.graph.nodes[k].dtype) for _, k in self.kept) * length
        keep = 0 < kept_bytes <= KEEP_BYTES
        if self.sides:
            return self._rows_and_sides(rows, length, threads, kept_bytes if keep else 0)
        name = "rows, keeping" if keep else "rows"
        found = self.addresses.get(name)
        if found is None:
            found = self.variant(name, lambda: [rows_entry(self.graph, self.name, self.kept if keep else [])])
        stride = -(-kept_bytes // 128) * 128 if keep else 0
        return Launch(((found[0], rows, self.grain(rows, (length + ROW_COST) * self.cost, threads)),), stride * threads, (stride, 0))

    def _rows_and_sides(self, rows: int, length: int, threads: int, kept_bytes: int) -> Launch:
        kept = self.kept if kept_bytes else []
        address, finish = self.variant(
            "sides, keeping" if kept else "sides",
            lambda: [rows_entry(self.graph, self.name, kept), side_finish_entry(self.graph, self.name + "f")],
        )
        stride = -(-kept_bytes // 128) * 128
        blocks = -(-rows // BLOCK)
        partials = sum(map(side_bytes, self.sides)) * blocks * length
        return Launch(
            ((address, blocks, self.grain(blocks, BLOCK * length * self.cost, threads)), (finish, length, self.grain(length, blocks * len(self.sides), threads, 64))),
            stride * threads + partials,
            (stride, stride * threads),
        )

    def _split(self, rows: int, length: int, threads: int) -> Launch:
        stages = self.kernel.stages

        def make() -> list[Emitter]:
            entries = []
            for t, stage in enumerate(stages):
                entries.append(split_stage_entry(self.graph, f"{self.name}s{t}", t))
                if stage.reduces or any(not s.full for s in stage.stores):
                    entries.append(split_finish_entry(self.graph, f"{self.name}f{t}", t))
            return entries

        addresses = list(self.addresses.get("split") or self.variant("split", make))
        chunks = -(-length // CHUNK)
        grain = self.grain(rows * chunks, CHUNK * self.cost, threads)
        phases = []
        n = 0
        for stage in stages:
            phases.append((addresses[n], rows * chunks, grain))
            n += 1
            if stage.reduces or any(not s.full for s in stage.stores):
                phases.append((addresses[n], rows, rows))
                n += 1
        n_reduces = sum(len(stage.reduces) for stage in stages)
        return Launch(tuple(phases), n_reduces * rows * (chunks + 1) * CELL, (0, 0))

    # -- column

    def _bind_column(self, sizes: tuple[int, ...], threads: int) -> Launch:
        outer, length, columns = 1, 1, sizes[-1]
        for k in self.parallel[:-1]:
            outer *= sizes[k]
        for k in self.reduced:
            length *= sizes[k]
        least, lanes = self.lanes
        while lanes > least and lanes >= 2 * columns:
            lanes //= 2
        tiles = -(-columns // lanes)
        units = outer * tiles
        one = len(self.kernel.stages) == 1
        if one and length > BLOCK and (units < 4 * threads or columns > lanes):
            name = f"blocks {lanes}"
            found = self.addresses.get(name)
            if found is None:
                found = self.variant(
                    name,
                    lambda: [block_entry(self.graph, self.name + "b", lanes), blocks_finish_entry(self.graph, self.name + "f", lanes)],
                )
            blocks = -(-length // BLOCK)
            n_reduces = len(self.kernel.stages[0].reduces)
            return Launch(
                (
                    (found[0], units * blocks, self.grain(units * blocks, BLOCK * lanes * self.cost, threads, tiles)),
                    (found[1], units, self.grain(units, blocks * lanes * n_reduces, threads)),
                ),
                n_reduces * outer * blocks * columns * 16,
                (0, 0),
            )
        name = f"tiles {lanes}"
        found = self.addresses.get(name)
        if found is None:
            found = self.variant(name, lambda: [tile_entry(self.graph, self.name, lanes)])
        return Launch(((found[0], units, self.grain(units, length * lanes * self.cost, threads)),), 0, (0, 0))


def gathers(node: Node, last: int) -> bool:
    stride = dict(node.attr.index.terms).get(last, 0)
    return isinstance(stride, Slot) or abs(stride) > 1


_rendered: dict[str, Rendered] = {}


def render(kernel: Kernel) -> Rendered:
    """The native forms of `kernel`; equal kernels share them."""
    text = kernel.text()
    found = _rendered.get(text)
    if found is None:
        found = _rendered[text] = Rendered(kernel)
    return found
