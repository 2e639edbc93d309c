"""Fitting a plan to sizes: all that stays the same from run to run with those sizes.

What does not depend on sizes is laid out once in a `Frame` when the plan is made; `bind` fills in the numbers. In a loop
whose sizes grow this happens at every step, so it is short, and compiled by mypyc where possible.
"""

from __future__ import annotations

from array import array as flat_array
from typing import Any, Final

ALIGN: Final = 64


class StepFrame:
    """One launch as `bind` sees it.

    Attributes:
        bind: A kernel's or product's `bind`.
        product: Whether it is a library product, which is bound by M, N, K, strides and batch.
        first, count: Where its sizes stand among the plan's values.
        at: Its first slot in the block.
        extra: The slot of a kernel's first extra number.
        scratch: The position in the patches of its scratch address's triple.
        copy_bytes: Where the bytes of a copy before it stand among the values, or -1; `copy_at` is that copy's first slot.
    """

    __slots__ = ("at", "axes", "bind", "copy_at", "copy_bytes", "count", "extra", "first", "launch", "numbers", "product", "scratch")

    def __init__(self, bind: Any, product: bool, first: int, count: int, at: int, extra: int, scratch: int, copy_bytes: int, copy_at: int) -> None:
        self.bind = bind
        self.product = product
        self.first = first
        self.count = count
        self.at = at
        self.extra = extra
        self.scratch = scratch
        self.copy_bytes = copy_bytes
        self.copy_at = copy_at
        self.axes: Any = None  # the sizes it was last bound to, with
        self.numbers: tuple[int, ...] = ()  # the slots that a GPU looks at, and
        self.launch: Any = None  # what came of them


class Frame:
    """What all bindings of a plan share.

    Attributes:
        block: The block with zeros where numbers go; `size_slots` are the slots of the first values.
        patches: The patch triples; `temporaries` are `(position of an offset, slot of the arena)`.
        arena_first, n_arena: The sizes of the arena's slots among the values.
        outs_first, n_outs: The bytes of the outputs among the values.
        numbers: Whether kernels are bound with their parameter slots too (by them a GPU tells what is aligned).
        copy_entry: The address of the copy entry; `copy_shape(bytes)` are its units and grain.
    """

    __slots__ = ("arena_first", "block", "copy_entry", "copy_shape", "n_arena", "n_outs", "numbers", "outs_first", "patches", "size_slots", "steps", "temporaries", "threads")

    def __init__(
        self,
        block: list[int],
        size_slots: list[int],
        patches: list[int],
        temporaries: list[tuple[int, int]],
        arena_first: int,
        n_arena: int,
        outs_first: int,
        n_outs: int,
        copy_entry: int,
        copy_shape: Any,
        threads: int,
        steps: list[StepFrame],
        numbers: bool,
    ) -> None:
        self.block = block
        self.size_slots = size_slots
        self.patches = flat_array("q", patches or [0])
        self.temporaries = temporaries
        self.arena_first = arena_first
        self.n_arena = n_arena
        self.outs_first = outs_first
        self.n_outs = n_outs
        self.copy_entry = copy_entry
        self.copy_shape = copy_shape
        self.threads = threads
        self.steps = steps
        self.numbers = numbers


class Binding:
    """A plan at particular sizes: buffers of numbers that the driver reads."""

    __slots__ = ("arena_bytes", "arguments", "block", "block_address", "n_entries", "out_bytes", "patches", "patches_address", "program", "program_address", "sequence")

    def __init__(self, block: Any, patches: Any, program: Any, n_entries: int, arena_bytes: int, out_bytes: tuple[int, ...]) -> None:
        self.block = block
        self.patches = patches
        self.program = program
        self.block_address: int = block.buffer_info()[0]
        self.patches_address: int = patches.buffer_info()[0]
        self.program_address: int = program.buffer_info()[0]
        self.n_entries = n_entries
        self.arena_bytes = arena_bytes
        self.out_bytes = out_bytes
        self.sequence: Any = None  # what a GPU makes of the program, and
        self.arguments: Any = None  # of each of its launches, where they bring their parameters


def bind(frame: Frame, values: tuple[int, ...]) -> Binding:
    """The binding to the sizes that `values` were computed from (`Plan.values`)."""
    block = frame.block.copy()
    for k, slot in enumerate(frame.size_slots):
        block[slot] = values[k]
    offset = 0
    slot_offsets: list[int] = []
    for k in range(frame.arena_first, frame.arena_first + frame.n_arena):
        slot_offsets.append(offset)
        offset += (values[k] + ALIGN - 1) & -ALIGN
    patches = frame.patches[:]
    for position, at_slot in frame.temporaries:
        patches[position] = slot_offsets[at_slot]
    scratch_most = 0
    program: list[int] = []
    threads = frame.threads
    for step in frame.steps:
        axes = values[step.first : step.first + step.count]
        at = step.at
        if step.copy_bytes >= 0:
            nbytes = values[step.copy_bytes]
            block[step.copy_at + 2] = nbytes
            program += (frame.copy_entry, step.copy_at, *frame.copy_shape(nbytes))
        launch = step.launch
        numbers = () if step.product or not frame.numbers else tuple(block[at : step.extra])
        if axes != step.axes or numbers != step.numbers:
            if step.product:
                batch = tuple([axes[i : i + 4] for i in range(7, step.count, 4)])
                launch = step.bind(axes[0], axes[1], axes[2], batch, axes[3], axes[4], axes[5], axes[6], threads)
            else:
                launch = step.bind(axes, threads, numbers) if frame.numbers else step.bind(axes, threads)
            step.axes = axes
            step.numbers = numbers
            step.launch = launch
        scratch: int = launch.scratch_bytes
        if scratch:
            patches[step.scratch + 2] = offset
            if scratch > scratch_most:
                scratch_most = scratch
        if step.product:
            slots: list[int] = launch.slots
            block[at : at + len(slots)] = slots
            program += (launch.address, at, launch.units, launch.grain)
        else:
            k = step.extra
            for extra in launch.extra:
                block[k] = extra
                k += 1
            for address, units, grain in launch.phases:
                program += (address, at, units, grain)
    n_entries = len(program) // 4
    return Binding(
        flat_array("q", block or [0]),
        patches,
        flat_array("q", program or [0]),
        n_entries,
        offset + scratch_most,
        values[frame.outs_first : frame.outs_first + frame.n_outs],
    )
