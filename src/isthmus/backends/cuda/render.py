"""Kernels to CUDA C++: `render(kernel).bind(sizes, threads)`.

As on the CPU, a kernel has *variants*, ways to walk it that suit different sizes, and results do not depend on which is
taken: the order of sums is a rule of lengths (docs/design/cuda.md), and everything else is exact. A launch's program
entry is the number of a function, its parameters' slot, blocks, and threads of a block; grids have one axis, and a block
beyond the work ends at once, so that a grid may be rounded up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from math import gcd, prod
from typing import NamedTuple

from isthmus.backends.cuda.emit import Emitter
from isthmus.backends.cuda.functions import Function, by_value, number_of
from isthmus.backends.cuda.render_column import cell_size, column_launch, side_folds
from isthmus.backends.cuda.render_map import map_launch
from isthmus.backends.cuda.render_row import n_reduces, row_launch
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
        self.steps: dict[int, tuple[list[int], int]] = {}  # axis -> `steps_across`
        self.key_axes: set[int] | None = None  # of a scatter
        self.lanes: dict[int, int] = {}  # last kept axis -> columns of a thread, where there are many
        self.n_reduces = n_reduces(self.graph)
        self.side_bytes = sum(cell_size(fold) for fold in side_folds(kernel))  # of the totals of a block and column
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
        found = self.steps.get(axis)
        if found is None:
            found = self.steps[axis] = self.steps_across(axis)
        slots, fixed = found
        if not numbers or fixed % lanes:
            return False
        return not any(numbers[slot] % lanes for slot in slots)

    def steps_across(self, axis: int) -> tuple[list[int], int]:
        """By what packs along `axis` move: slots of the steps that sizes decide, and the greatest common divisor of the others."""
        slots: dict[int, None] = {}
        fixed = 0
        indices = [node.attr.index for node in self.graph.nodes if node.op == "load"]
        for stage in self.kernel.stages:
            indices += [store.index for store in stage.stores] + [side.index for side in stage.sides]
        for index in indices:
            along = dict(index.terms).get(axis)
            if isinstance(along, Slot) or along != 1:
                continue  # not read in packs
            if isinstance(index.offset, Slot):
                return [], 1
            for x in [index.offset, *(stride for at, stride in index.terms if at != axis), *(stride for _, stride in index.values)]:
                if isinstance(x, Slot):
                    slots[x.number] = None
                else:
                    fixed = gcd(fixed, x)
        return list(slots), fixed

    def prepare(self, sizes: tuple[int, ...], threads: int) -> None:
        """Make the variants that sizes somewhat larger than these will ask for."""
        for factor in (2, 4, 8):
            for k in range(len(sizes)):
                self.bind(tuple(size * factor if k == at and size > 1 else size for at, size in enumerate(sizes)), threads)

    def count(self, sizes: tuple[int, ...], axes: list[int]) -> int:
        return prod([sizes[k] for k in axes])


_rendered: dict[tuple[str, bool], Rendered] = {}


def render(kernel: Kernel, arch: int) -> Rendered:
    """The forms of `kernel` for a chip; equal kernels share them."""
    key = (kernel.text(), arch >= 90)
    found = _rendered.get(key)
    if found is None:
        found = _rendered[key] = Rendered(kernel, arch >= 90)
    return found
