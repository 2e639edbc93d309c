"""Kernels to CUDA C++: `render(kernel).bind(sizes, threads)`.

As on the CPU, a kernel has *variants*, ways to walk it that suit different sizes, and results do not depend on which is
taken: the order of sums is a rule of lengths (docs/design/cuda.md), and everything else is exact. A launch's program
entry is the number of a function, its parameters' slot, blocks, and threads of a block; grids have one axis, and a block
beyond the work ends at once, so that a grid may be rounded up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from math import prod
from typing import NamedTuple

from isthmus.backends.cuda.emit import Emitter
from isthmus.backends.cuda.functions import Function, by_value, number_of
from isthmus.backends.cuda.render_column import column_launch
from isthmus.backends.cuda.render_map import map_launch
from isthmus.backends.cuda.render_row import row_launch
from isthmus.backends.cuda.render_scatter import scatter_launch
from isthmus.kernel.graph import Graph
from isthmus.kernel.loops import Kernel, Slot


class Launch(NamedTuple):
    """As of backends/cpu/render.py: `phases` are `(number of a function, blocks, threads of a block)`."""

    phases: tuple[tuple[int, int, int], ...]
    scratch_bytes: int
    extra: tuple[int, ...]


class Rendered:
    """The forms of one kernel."""

    def __init__(self, kernel: Kernel, clusters: bool) -> None:
        self.kernel = kernel
        self.clusters = clusters  # whether blocks can share memory
        self.graph = Graph(kernel)
        self.name = "k" + hashlib.sha256(kernel.text().encode()).hexdigest()[:12]
        self.parallel = [k for k, axis in enumerate(kernel.axes) if not axis.reduced]
        self.reduced = [k for k, axis in enumerate(kernel.axes) if axis.reduced]
        self.n_slots = kernel.n_slots + 3
        self.addresses: dict[str, tuple[int, ...]] = {}  # variant -> its functions' numbers
        self.sources: dict[str, str] = {}
        self.launch: Callable[[Rendered, tuple[int, ...], tuple[int, ...]], tuple[tuple[tuple[int, int, int], ...], int, tuple[int, ...]]] = {
            "map": map_launch,
            "row": row_launch,
            "column": column_launch,
            "scatter": scatter_launch,
        }[kernel.form]

    def source(self) -> str:
        """The texts of the variants made so far, without the prelude."""
        return "\n\n".join(f"// variant {name}\n{text}" for name, text in self.sources.items())

    def variant(self, name: str, make: Callable[[str], list[Emitter]], later: bool = False) -> tuple[int, ...]:
        """The functions of a variant; `make` is given the name that theirs start with. `later`: they come after another's."""
        found = self.addresses.get(name)
        if found is None:
            entries = make(self.name + "".join(c if c.isalnum() else "_" for c in name))
            texts = [entry.text() for entry in entries]
            self.sources[name] = "\n\n".join(texts)
            found = self.addresses[name] = tuple(
                number_of(Function(entry.symbol, text, None if k or later else self.kernel, entry.cluster, by_value(self.n_slots))) for k, (entry, text) in enumerate(zip(entries, texts, strict=True))
            )
        return found

    def bind(self, sizes: tuple[int, ...], threads: int, numbers: tuple[int, ...] = ()) -> Launch:
        """The launch for these sizes of the kernel's axes; `numbers` are the parameter slots, as far as sizes decide them."""
        return Launch(*self.launch(self, sizes, numbers))

    def aligned(self, axis: int, lanes: int, numbers: tuple[int, ...]) -> bool:
        """Whether packs of `lanes` elements along `axis` lie at multiples of their length, in buffers that do."""
        if not numbers:
            return False
        indices = [node.attr.index for node in self.graph.nodes if node.op == "load"]
        for stage in self.kernel.stages:
            indices += [store.index for store in stage.stores] + [side.index for side in stage.sides]
        for index in indices:
            if dict(index.terms).get(axis) != 1 or isinstance(dict(index.terms)[axis], Slot):
                continue  # not read in packs
            steps = [index.offset, *(stride for at, stride in index.terms if at != axis), *(stride for _, stride in index.values)]
            if isinstance(index.offset, Slot) or any((numbers[x.number] if isinstance(x, Slot) else x) % lanes for x in steps):
                return False
        return True

    def prepare(self, sizes: tuple[int, ...], threads: int) -> None:
        """Make the variants that sizes somewhat larger than these will ask for."""
        for factor in (2, 4, 8):
            for k in range(len(sizes)):
                self.bind(tuple(size * factor if k == at and size > 1 else size for at, size in enumerate(sizes)), threads)

    def count(self, sizes: tuple[int, ...], axes: list[int]) -> int:
        return prod(sizes[k] for k in axes)


_rendered: dict[tuple[str, bool], Rendered] = {}


def render(kernel: Kernel, arch: int) -> Rendered:
    """The forms of `kernel` for a chip; equal kernels share them."""
    key = (kernel.text(), arch >= 90)
    found = _rendered.get(key)
    if found is None:
        found = _rendered[key] = Rendered(kernel, arch >= 90)
    return found
