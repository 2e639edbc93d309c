"""GPUs as the schedule sees them: plans are rendered for one, bound, and run on its stream.

A plan's numbers live in a *table* on the device: the block of backends/cpu (parameters of every launch), written before
each run by one copy. Kernels read their parameters there, so launches never change with addresses, sizes or numbers: a
sequence of launches that comes a third time becomes a graph, and any binding of the plan that asks for the same sequence
(grids are rounded up, so growing sizes do) replays it.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from typing import Any, Final

from isthmus.backends.cpu import stream as cpu_stream
from isthmus.backends.cpu.memory import Buffer, drop_gpu, drop_host
from isthmus.backends.cuda.compile import compile_sources
from isthmus.backends.cuda.driver import Driver, DriverError
from isthmus.backends.cuda.find import has_cublaslt, is_simulated
from isthmus.backends.cuda.functions import FUNCTIONS, Function, number_of
from isthmus.backends.cuda.library.calls import CALLS
from isthmus.backends.cuda.library.cublaslt import WORKSPACE_BYTES
from isthmus.backends.cuda.library.gemm import ALPHA, BETA, Gemm
from isthmus.backends.cuda.memory import DevicePool
from isthmus.backends.cuda.render import Rendered, render
from isthmus.backends.cuda.simulate import Simulated
from isthmus.graph.node import Node, where_made
from isthmus.kernel.loops import Kernel

MOST_GRAPHS: Final = 8  # of a plan
MOST_SEEN: Final = 512  # sequences of a plan that are counted
CAPTURE_AT: Final = 3  # a sequence of launches that comes so often becomes a graph
COPY = r"""
extern "C" __global__ void __launch_bounds__(256) copy_bytes(const i64* p) {
    RELEASE
    u8* const to = (u8*)slot(p); const u8* const from = (const u8*)slot(p + 1); const i64 n = slot(p + 2);
    AWAIT
    const i64 i = (i64(blockIdx.x) * 256 + threadIdx.x) * 16;
    if (i >= n) return;
    u8 x[16];
    const int count = n - i < 16 ? int(n - i) : 16;
    load<16>(x, from + i, count);
    store<16>(to + i, x, count);
}
"""


def _copy_meaning(memory: Any, p: int) -> None:
    to, source, n = memory.numbers(p, 3)
    memory.view(to, n)[:] = memory.view(source, n).copy()


class OnDevice:
    """What a plan has on its device: the table, the arguments of its launches, and graphs by sequence of launches."""

    __slots__ = ("arguments", "graphs", "nbytes", "seen", "table")

    def __init__(self, table: Buffer) -> None:
        self.table = table
        self.nbytes = table.nbytes
        self.arguments: dict[int, Any] = {}
        self.graphs: dict[tuple[int, ...], Any] = {}
        self.seen: dict[tuple[int, ...], int] = {}


class Gpu:
    """One GPU, started."""

    def __init__(self, index: int, driver: Any) -> None:
        self.index = index
        self.driver = driver
        self.memory = DevicePool(driver)
        self.handles: dict[int, Any] = {}
        self.arena: Buffer | None = None
        self._workspace: Buffer | None = None
        self._library: bool | None = None
        self.busy = False
        self.lost = ""
        self.recent: deque[Node] = deque(maxlen=256)
        self.counters = {"launches": 0, "graphs": 0, "graph_launches": 0, "kernels_loaded": 0}

    # -- what plans are made with

    def render(self, kernel: Kernel) -> Rendered:
        return render(kernel, self.driver.arch)

    def product(self, dtype: str, a_transposed: bool, b_transposed: bool, addend: bool) -> Gemm:
        return Gemm(dtype, a_transposed, b_transposed, addend, self.has_library())

    def has_library(self) -> bool:
        """Whether cuBLASLt is installed."""
        if self._library is None:
            self._library = not self.driver.simulated and has_cublaslt()
        return self._library

    def copy_entry(self) -> int:
        return number_of(Function("copy_bytes", COPY, _copy_meaning))

    def copy_shape(self, nbytes: int) -> tuple[int, int]:
        return -(-nbytes // 4096), 256

    def threads(self) -> int:
        return int(self.driver.processors)

    def allocate(self, nbytes: int) -> Buffer:
        return self.memory.allocate(nbytes)

    # -- running

    def run(self, plan: Any, b: Any, nodes: list[Node], outs: list[Any]) -> None:
        """Enqueue a bound plan. `outs` are its outputs' buffers, fresh or taken from leaves."""
        if self.lost:
            raise RuntimeError(self.lost)
        self.driver.enter()
        try:
            self._run(plan, b, nodes, outs)
        except DriverError as error:
            self.fault(error)

    def _run(self, plan: Any, b: Any, nodes: list[Node], outs: list[Any]) -> None:
        driver = self.driver
        pointers = plan.read_pointers(nodes)
        copied: list[Buffer] = []
        if 0 in pointers or any(nodes[n].buffer.place is not self.memory for n in plan.leaves):
            for n in plan.leaves:
                buffer = nodes[n].buffer
                if not buffer.gpu or buffer.place is not self.memory:
                    self.memory.bring(buffer)
                    if buffer.exports:
                        copied.append(buffer)
            pointers = plan.read_pointers(nodes)
        if not b.n_entries:
            return
        fresh = [buffer.gpu for k, buffer in enumerate(outs) if plan.taken[k] < 0]
        prefix = (self.arena_address(b.arena_bytes), *pointers, *fresh)
        numbers = plan.read_numbers(nodes, prefix)
        try:
            plan.pack(plan.table, 0, *prefix, *numbers)
        except struct.error:
            plan.pack(plan.table, 0, *prefix, *[x - (1 << 64) if isinstance(x, int) and x >= 1 << 63 else x for x in numbers])
        # The CPU's driver writes the numbers that change into the block; there is no program for it to run.
        cpu_stream.run(b.block_address, plan.table_address, b.patches_address, plan.n_patches, b.program_address, 0)
        state = plan.on_device
        if state is None:
            state = plan.on_device = OnDevice(self.memory.allocate(8 * len(b.block)))
        if b.launches is None:
            self.prepare(b, state)
        driver.upload(state.table.gpu, b.block_address, state.nbytes)
        self.busy = True
        self.recent.append(nodes[-1])
        calls = {slot: tuple(b.block[slot : slot + 4]) + tuple(b.block[slot + ALPHA : slot + BETA + 1]) for slot in b.calls}
        key = (*b.launches, *[x for call in calls.values() for x in call])
        graph = state.graphs.get(key)
        if graph is None:
            graph = self.graph(state, key, b.launches, calls)
        if graph is not None:
            driver.run_graph(graph)
            self.counters["graph_launches"] += 1
        else:
            self.launch(state, b.launches, calls)
        for k, n in enumerate(plan.taken):
            if n >= 0 and outs[k].ptr:
                drop_host(outs[k])
        for buffer in copied:
            drop_gpu(buffer)

    def launch(self, state: OnDevice, launches: tuple[int, ...], calls: dict[int, tuple[int, ...]]) -> None:
        driver, handles, arguments = self.driver, self.handles, state.arguments
        self.counters["launches"] += len(launches) // 4
        for k in range(0, len(launches), 4):
            number, slot = launches[k], launches[k + 1]
            if number >= 0:
                driver.launch(handles[number], launches[k + 2], launches[k + 3], arguments[slot])
            else:
                alpha, beta = struct.unpack("dd", struct.pack("qq", *calls[slot][4:]))
                call = CALLS[-1 - number]
                c, a, b, d, *_ = calls[slot]
                call.run(self, (c, a, b, d), alpha if call.spec.ldd >= 0 else 1.0, beta if call.spec.ldd >= 0 else 0.0, arguments[slot])

    def prepare(self, b: Any, state: OnDevice) -> None:
        """Load what a binding's program needs, and round its grids."""
        program = list(b.program[: 4 * b.n_entries])
        self.load_missing([program[k] for k in range(0, len(program), 4) if program[k] >= 0])
        b.calls = tuple(program[k + 1] for k in range(0, len(program), 4) if program[k] < 0)
        for k in range(0, len(program), 4):
            program[k + 2] = rounded(program[k + 2], FUNCTIONS[program[k]].cluster if program[k] >= 0 else 1)
            slot = program[k + 1]
            if slot not in state.arguments:
                state.arguments[slot] = self.driver.arguments(state.table.gpu + 8 * slot)
        b.launches = tuple(program)

    def load_missing(self, wanted: list[int]) -> None:
        numbers = sorted(set(wanted) - self.handles.keys())
        if not numbers:
            return
        functions = [FUNCTIONS[n] for n in numbers]
        codes = [b""] * len(functions) if self.driver.simulated else compile_sources([f.source for f in functions], self.driver.arch)
        for n, function, code in zip(numbers, functions, codes, strict=True):
            self.handles[n] = self.driver.load(code, function.symbol, n)
            self.counters["kernels_loaded"] += 1

    def workspace(self) -> int:
        """The address of what library calls may use for themselves."""
        if self._workspace is None:
            self._workspace = self.memory.allocate(WORKSPACE_BYTES)
        return self._workspace.gpu

    def graph(self, state: OnDevice, key: tuple[int, ...], launches: tuple[int, ...], calls: dict[int, tuple[int, ...]]) -> Any:
        """The graph of a sequence that has come often enough, or None."""
        count = state.seen.get(key, 0) + 1
        state.seen[key] = count
        if len(state.seen) > MOST_SEEN:
            state.seen.clear()
        if count < CAPTURE_AT or len(launches) < 8:
            return None
        if len(state.graphs) >= MOST_GRAPHS:
            oldest = next(iter(state.graphs))
            self.driver.free_graph(state.graphs.pop(oldest))
            state.seen.pop(oldest, None)
        self.driver.begin_capture()
        try:
            self.launch(state, launches, calls)
        finally:
            graph = self.driver.end_capture()
        state.graphs[key] = graph
        self.counters["graphs"] += 1
        return graph

    def arena_address(self, nbytes: int) -> int:
        if nbytes == 0:
            return 0
        if self.arena is None or self.arena.nbytes < nbytes:
            self.arena = None
            self.arena = self.memory.allocate(nbytes + nbytes // 8)
        return self.arena.gpu

    def clear_cache(self) -> None:
        """Give memory that no array and no plan holds back to the driver."""
        self.arena = None
        self.memory.clear_cache()

    # -- waiting, and what goes wrong

    def synchronize(self) -> None:
        """Wait for all that was enqueued.

        Raises:
            RuntimeError: something of it failed, naming the lines it may have come from.
        """
        if self.lost:
            raise RuntimeError(self.lost)
        if self.busy:
            self.busy = False
            try:
                self.driver.synchronize()
            except DriverError as error:
                self.fault(error)
            self.recent.clear()

    def fault(self, error: DriverError) -> None:
        lines = list(dict.fromkeys(where_made(node) for node in self.recent))[-SHOWN_LINES:]
        self.recent.clear()
        text = f"{error} It came of work that was enqueued by arrays made at: " + "; ".join(lines or ["(nothing)"])
        if error.lost:
            text += f". {self.driver.name} is lost to this process; arrays that are on the host can still be used."
            self.lost = text
        raise RuntimeError(text) from error


SHOWN_LINES: Final = 6


def rounded(blocks: int, multiple: int) -> int:
    """A grid at most an eighth larger, so that sizes that grow ask for the same launch for a while."""
    step = max(1 << max(0, blocks.bit_length() - 4), multiple)
    return -(-blocks // step) * step


_gpus: dict[int, Gpu] = {}


def gpu(index: int) -> Gpu:
    """The GPU of a number, started when it is first asked for.

    Raises:
        RuntimeError: it cannot be started.
    """
    found = _gpus.get(index)
    if found is None:
        found = _gpus[index] = Gpu(index, Simulated(index) if is_simulated() else Driver(index))
    return found


def started() -> list[Gpu]:
    return list(_gpus.values())


def synchronize() -> None:
    """Wait for all GPUs."""
    for one in started():
        one.synchronize()


def _forget() -> None:
    for one in _gpus.values():
        one.lost = "[cuda] a process that was forked cannot use the GPU of its parent; start it with the spawn method of multiprocessing."


os.register_at_fork(after_in_child=_forget)
