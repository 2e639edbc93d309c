"""GPUs as the schedule sees them: plans are rendered for one, bound, and run on its stream.

A plan's numbers are its block, as on the CPU: the parameters of every launch. A launch by itself brings its part of
the block along. A sequence of launches that comes a third time becomes a graph, whose kernels read their parameters in a
*table* on the device, so that it never changes with addresses, sizes or numbers; any binding of the plan that asks for the
same sequence (grids are rounded up, so growing sizes do) replays it. The table is written by the graph's first node, from
a ring in pinned memory where the host leaves a block a run.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from array import array as flat_array
from collections import deque
from typing import Any, Final

from isthmus.backends.cpu import stream as cpu_stream
from isthmus.backends.cpu.memory import Buffer, drop_gpu, drop_host, pin_with
from isthmus.backends.cuda.compile import compile_sources
from isthmus.backends.cuda.driver import OUT_OF_MEMORY, Driver, DriverError
from isthmus.backends.cuda.find import FORKED, has_cublaslt, is_simulated, process
from isthmus.backends.cuda.functions import FUNCTIONS, MOST_VALUES, Function, number_of
from isthmus.backends.cuda.library.calls import CALLS
from isthmus.backends.cuda.library.cublaslt import WORKSPACE_BYTES
from isthmus.backends.cuda.library.gemm import ALPHA, BETA, Gemm
from isthmus.backends.cuda.memory import DevicePool
from isthmus.backends.cuda.render import Rendered, render
from isthmus.backends.cuda.simulate import Simulated
from isthmus.backends.interrupts import interrupts
from isthmus.graph.node import TRACE, Node, line_of
from isthmus.kernel.loops import Kernel

MOST_GRAPHS: Final = 8  # of a plan
MOST_SEEN: Final = 512  # sequences of a plan that are counted
CAPTURE_AT: Final = 3  # a sequence of launches that comes so often becomes a graph
COPY = r"""
extern "C" __global__ void __launch_bounds__(256) copy_bytes(PARAMETERS(3)) {
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
# The last block to end counts the turn, for the next one to read the next place in the ring, and tells the host.
WRITE_TABLE = r"""
extern "C" __global__ void __launch_bounds__(256) write_table(PARAMETERS(6)) {
    RELEASE
    i64* const to = (i64*)slot(p); const i64* const ring = (const i64*)slot(p + 1); const i64 words = slot(p + 2), places = slot(p + 3);
    u64* const turns = (u64*)slot(p + 4); u64* const taken = (u64*)slot(p + 5);
    AWAIT
    u64 turn; asm volatile("ld.volatile.global.b64 %0, [%1];" : "=l"(turn) : "l"(turns));
    const i64 k = 2 * (i64(blockIdx.x) * 256 + threadIdx.x);
    if (k < words) {
        i64 x, y;
        asm volatile("ld.volatile.global.v2.b64 {%0, %1}, [%2];" : "=l"(x), "=l"(y) : "l"(ring + i64(turn % places) * words + k));
        to[k] = x; to[k + 1] = y;
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence();
    u32* const ended = (u32*)(turns + 1);
    if (atomicAdd(ended, 1u) != gridDim.x - 1) return;
    *ended = 0;
    *turns = turn + 1;
    __threadfence_system();
    asm volatile("st.volatile.global.b64 [%0], %1;" :: "l"(taken), "l"(turn + 1));
}
"""
PLACES: Final = 8  # in a ring
SLAB: Final = 1 << 20  # bytes of pinned memory that rings are cut from


def _copy_meaning(memory: Any, p: Any) -> None:
    to, source, n = p[:3].tolist()
    memory.view(to, n)[:] = memory.view(source, n).copy()


def _write_meaning(memory: Any, p: Any) -> None:
    to, ring, words, places, turns, taken = p[:6].tolist()
    turn = memory.view(turns, 8).view("q")
    memory.view(to, 8 * words)[:] = memoryview((ctypes.c_uint8 * (8 * words)).from_address(ring + int(turn[0]) % places * 8 * words))
    turn[0] += 1
    ctypes.c_int64.from_address(taken).value = int(turn[0])


class Sequence:
    """Launches that bindings of a plan have in common, and the graphs made of them.

    Attributes:
        launches: For each a function's number, its parameters' slot, blocks, threads of a block.
        calls: The slots of library calls; graphs hold their operands, and are found by them.
        by_value: Whether all launches can bring their parameters.
        seen: How often it has come, by the calls' operands.
    """

    __slots__ = ("by_value", "calls", "graphs", "launches", "seen")

    def __init__(self, launches: tuple[int, ...]) -> None:
        entries = [launches[k : k + 4] for k in range(0, len(launches), 4)]
        self.launches = launches
        self.calls = tuple(entry[1] for entry in entries if entry[0] < 0)
        self.by_value = all(entry[0] < 0 or FUNCTIONS[entry[0]].slots > 0 for entry in entries)
        self.graphs: dict[Any, Any] = {}
        self.seen: dict[Any, int] = {}


class OnDevice:
    """What a plan has on its device: the table and its ring, and the sequences of launches that its bindings ask for."""

    __slots__ = ("address", "device", "graphs", "nbytes", "ring", "sequences", "table", "taken", "write", "written")

    def __init__(self, device: Any, words: int) -> None:
        self.device = device
        self.nbytes = 16 * -(-words // 2)
        self.sequences: dict[tuple[int, ...], Sequence] = {}
        self.graphs: list[tuple[Sequence, Any]] = []  # the keys of all sequences' graphs, the oldest first
        self.table: Buffer | None = None
        self.address = 0  # of the table
        self.ring = 0
        self.taken: Any = None  # a counter of the places that were read
        self.written = 0
        self.write: Any = None  # the arguments of the kernel that writes the table

    def start(self) -> None:
        """Make the table."""
        device, words = self.device, self.nbytes // 8
        if not self.ring:
            self.ring = device.ring(64 + PLACES * self.nbytes)
        table = device.allocate(self.nbytes + 16)
        self.address = table.gpu
        # A local would not live long enough: mypyc lets go of it at its last use, which is to ask for its address.
        device.driver.upload(self.address + self.nbytes, NO_VALUES.buffer_info()[0], 16)
        self.taken = ctypes.c_int64.from_address(self.ring)
        self.taken.value = self.written = 0
        values = flat_array("q", (self.address, self.ring + 64, words, PLACES, self.address + self.nbytes, self.ring))
        pair = flat_array("q", (NO_TABLE.buffer_info()[0], values.buffer_info()[0]))
        self.write = (pair.buffer_info()[0], pair, values)
        self.table = table

    def put(self, block_address: int, words: int) -> None:
        """Leave a block in the ring, for the next write to take; when that is enqueued, `written` counts."""
        while self.written - self.taken.value >= PLACES:
            self.device.driver.query()
        ctypes.memmove(self.ring + 64 + self.written % PLACES * self.nbytes, block_address, 8 * words)

    def __del__(self) -> None:
        if sys is not None and not sys.is_finalizing():  # None: the interpreter is ending, and has taken the module's names away
            self.device.retired.append(([sequence.graphs[key] for sequence, key in self.graphs], self.ring, self.nbytes))


NO_TABLE: Final = flat_array("q", (0,))


class Gpu:
    """One GPU, started."""

    def __init__(self, index: int, driver: Any) -> None:
        self.index = index
        self.driver = driver
        self.memory = DevicePool(driver, index)
        self.memory.fault = self.fault
        self.handles: dict[int, Any] = {}
        self.arena: Buffer | None = None
        self._workspace: Buffer | None = None
        self._library: bool | None = None
        self.enqueued = 0  # runs, and how many of them were waited for
        self.waited = 0
        self.lost = ""
        self.recent: deque[tuple[Any, int]] = deque(maxlen=256)  # lines that made what was enqueued
        self.rings: dict[int, list[int]] = {}  # by bytes, those that no plan has any more
        self.slab = 0  # where rings are cut from
        self.slab_bytes = 0
        self.retired: list[tuple[list[Any], int, int]] = []  # graphs and rings of plans that are gone
        self.counters = {"launches": 0, "graphs": 0, "graph_launches": 0, "kernels_loaded": 0}

    def stats(self) -> dict[str, Any]:
        """What `isthmus.stats()` says of it."""
        memory = self.memory
        return {"name": self.driver.name, **self.counters, "active_bytes": memory.active, "peak_bytes": memory.peak, "cached_bytes": memory.cached}

    # -- what plans are made with

    def render(self, kernel: Kernel) -> Rendered:
        return render(kernel, self.driver.arch)

    def product(self, dtype: str, a_transposed: bool, b_transposed: bool, addend: bool) -> Gemm:
        return Gemm(dtype, a_transposed, b_transposed, addend, self.has_library(), self.driver.arch >= 90)

    def has_library(self) -> bool:
        """Whether cuBLASLt is installed."""
        if self._library is None:
            self._library = not self.driver.simulated and has_cublaslt()
        return self._library

    def copy_entry(self) -> int:
        return number_of(Function("copy_bytes", COPY, _copy_meaning, slots=3))

    def copy_shape(self, nbytes: int) -> tuple[int, int]:
        return -(-nbytes // 4096), 256

    def threads(self) -> int:
        return int(self.driver.processors)

    def allocate(self, nbytes: int) -> Buffer:
        return self.memory.allocate(nbytes)

    def filled(self, address: int, nbytes: int) -> Buffer | None:
        """A buffer with what is at a host address; None where there is no room."""
        with TRACE.lock:
            if self.lost:
                return None
            self.driver.enter()
            try:
                buffer = self.memory.allocate(nbytes)
            except MemoryError:
                return None
            try:
                self.memory.fill(buffer, address)
            except DriverError as error:
                self.fault(error)
            return buffer

    # -- running

    def run(self, plan: Any, b: Any, nodes: list[Node], outs: list[Any]) -> None:
        """Enqueue a bound plan. `outs` are its outputs' buffers, fresh or taken from leaves."""
        if self.lost:
            raise RuntimeError(self.lost)
        self.driver.enter()
        try:
            self._run(plan, b, nodes, outs)
        except DriverError as error:
            if error.begun:
                for k, n in enumerate(plan.taken):
                    if n >= 0:
                        self.memory.give_up(outs[k])  # it may have been overwritten
            self.fault(error)

    def _run(self, plan: Any, b: Any, nodes: list[Node], outs: list[Any]) -> None:
        driver = self.driver
        pointers = plan.read_pointers(nodes)
        copied: list[Buffer] = []
        if 0 in pointers or (len(_gpus) > 1 and any(nodes[n].buffer.place is not self.memory for n in plan.leaves)):
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
            state = plan.on_device = OnDevice(self, len(b.block))
        sequence: Sequence = b.sequence or self.prepare(b, state)
        interrupts.hold()
        self.enqueued += 1
        last = nodes[-1]
        self.recent.append((last.code, last.lasti))
        key = [x for slot in sequence.calls for x in (*b.block[slot : slot + 4], *b.block[slot + ALPHA : slot + BETA + 1])]
        calls = tuple(key)
        graph = sequence.graphs.get(calls)
        if graph is None:
            graph = self.graph(state, b, sequence, calls)
        if graph is not None:
            state.put(b.block_address, len(b.block))
            driver.run_graph(graph)
            state.written += 1
            self.counters["graph_launches"] += 1
        elif sequence.by_value:
            self.launch(sequence, b.arguments, calls, False)
        else:
            if state.table is None:
                state.start()
            state.put(b.block_address, len(b.block))
            self.write_table(state)
            state.written += 1
            self.launch(sequence, self.from_table(state, sequence), calls, False)
        for k, n in enumerate(plan.taken):
            if n >= 0 and outs[k].ptr:
                drop_host(outs[k])
        for buffer in copied:
            drop_gpu(buffer)

    def launch(self, sequence: Sequence, arguments: Any, calls: tuple[int, ...], overlap: bool) -> None:
        """Enqueue launches and calls one by one. `arguments` are pairs for each; `calls` are six numbers for each call."""
        driver, handles, launches = self.driver, self.handles, sequence.launches
        address: int = arguments.buffer_info()[0]
        self.counters["launches"] += len(launches) // 4
        call_at = k = 0
        try:
            for k in range(0, len(launches), 4):
                number = launches[k]
                if number >= 0:
                    # The first one reads a table that has just been written.
                    driver.launch(handles[number], launches[k + 2], launches[k + 3], address + 4 * k, overlap and k > 0)
                else:
                    c, a, b, d, alpha_bits, beta_bits = calls[call_at : call_at + 6]
                    call_at += 6
                    alpha, beta = struct.unpack("dd", struct.pack("qq", alpha_bits, beta_bits))
                    call = CALLS[-1 - number]
                    call.run(self, (c, a, b, d), alpha if call.spec.ldd >= 0 else 1.0, beta if call.spec.ldd >= 0 else 0.0, address + 4 * k)
        except DriverError as error:
            error.begun = k > 0 and not overlap  # in a capture nothing is
            raise

    def prepare(self, b: Any, state: OnDevice) -> Sequence:
        """Load what a binding's program needs, round its grids, and lay out what its launches bring."""
        program = list(b.program[: 4 * b.n_entries])
        self.load_missing([program[k] for k in range(0, len(program), 4) if program[k] >= 0])
        arguments = flat_array("q")
        none = NO_TABLE.buffer_info()[0]
        for k in range(0, len(program), 4):
            number = program[k]
            program[k + 2] = rounded(program[k + 2], FUNCTIONS[number].cluster if number >= 0 else 1)
            arguments.extend((none, b.block_address + 8 * program[k + 1]))
        launches = tuple(program)
        sequence = state.sequences.get(launches)
        if sequence is None:
            if len(state.sequences) >= MOST_SEEN:
                state.sequences = {launches: known for launches, known in state.sequences.items() if known.graphs}
            sequence = state.sequences[launches] = Sequence(launches)
        b.arguments = arguments
        b.sequence = sequence
        return sequence

    def from_table(self, state: OnDevice, sequence: Sequence) -> Any:
        """The arguments of launches that read the table; they must live until all are enqueued."""
        n = len(sequence.launches) // 4
        pairs = flat_array("q", bytes(24 * n))  # and the table's addresses behind them
        first = pairs.buffer_info()[0]
        for k in range(n):
            pairs[2 * k] = first + 16 * n + 8 * k
            pairs[2 * k + 1] = NO_VALUES.buffer_info()[0]
            pairs[2 * n + k] = state.address + 8 * sequence.launches[4 * k + 1]
        return pairs

    def write_table(self, state: OnDevice) -> None:
        number = number_of(WRITE)
        if number not in self.handles:
            self.load_missing([number])
        self.driver.launch(self.handles[number], -(-state.nbytes // 4096), 256, state.write[0])

    def load_missing(self, wanted: list[int]) -> None:
        numbers = sorted({n for n in wanted if n not in self.handles})
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

    def graph(self, state: OnDevice, b: Any, sequence: Sequence, calls: tuple[int, ...]) -> Any:
        """The graph of a sequence that has come often enough, or None."""
        count = sequence.seen.get(calls, 0) + 1
        if len(sequence.seen) > MOST_SEEN:
            sequence.seen.clear()
        sequence.seen[calls] = count
        if count < CAPTURE_AT or len(sequence.launches) < 8:
            return None
        self.tidy()
        if state.table is None:
            state.start()
        if len(state.graphs) >= MOST_GRAPHS:
            old, key = state.graphs.pop(0)
            self.driver.free_graph(old.graphs.pop(key))
            old.seen.pop(key, None)
        arguments = self.from_table(state, sequence)
        number = number_of(WRITE)
        self.load_missing([number])
        self.driver.begin_capture()
        try:
            self.write_table(state)
            self.launch(sequence, arguments, calls, True)
        finally:
            graph = self.driver.end_capture()
        sequence.graphs[calls] = graph
        state.graphs.append((sequence, calls))
        self.counters["graphs"] += 1
        return graph

    def ring(self, nbytes: int) -> int:
        """The address of pinned memory for a plan's ring."""
        nbytes = 1 << (nbytes - 1).bit_length()
        known = self.rings.get(nbytes)
        if known:
            self.driver.synchronize()  # what its last plan left there has been taken
            return known.pop()
        if nbytes > self.slab_bytes:
            self.slab_bytes = max(nbytes, SLAB)
            self.slab = self.driver.allocate_pinned(self.slab_bytes)
            if not self.slab:
                self.slab_bytes = 0
                raise MemoryError(f"[allocate] the system has no {nbytes} bytes of pinned memory left for the parameters of a plan.")
        self.slab_bytes -= nbytes
        return self.slab + self.slab_bytes

    def tidy(self) -> None:
        """Take back what plans had that are gone."""
        while self.retired:
            graphs, ring, nbytes = self.retired.pop()
            for graph in graphs:
                self.driver.free_graph(graph)
            if ring:
                self.rings.setdefault(1 << (64 + PLACES * nbytes - 1).bit_length(), []).append(ring)

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
        enqueued = self.enqueued
        if self.waited == enqueued:
            return
        try:
            self.driver.synchronize()
        except DriverError as error:
            self.waited = enqueued
            self.fault(error)
        self.waited = max(self.waited, enqueued)
        if self.enqueued == enqueued:
            self.recent.clear()

    def lose(self, why: str) -> None:
        """From here on this process cannot use the device. What goes on on the host has nothing to wait for."""
        self.lost = self.memory.lost = why
        self.waited = self.enqueued

    def fault(self, error: DriverError) -> None:
        lines = list(dict.fromkeys([line_of(code, lasti) for code, lasti in self.recent]))[-SHOWN_LINES:]
        self.recent.clear()
        if error.code == OUT_OF_MEMORY:
            raise MemoryError(self.memory.no_room(0, str(error))) from error
        text = f"{error} It came of work that was enqueued by arrays made at: " + "; ".join(lines or ["(nothing)"])
        if error.lost:
            text += f". {self.driver.name} is lost to this process; arrays that are on the host can still be used."
            self.lose(text)
        raise RuntimeError(text) from error


SHOWN_LINES: Final = 6
NO_VALUES: Final = flat_array("q", bytes(8 * (MOST_VALUES + 1)))  # what is copied of a launch that reads the table
WRITE: Final = Function("write_table", WRITE_TABLE, _write_meaning, slots=6)


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
        if process.forked:
            raise RuntimeError(FORKED)
        found = _gpus[index] = Gpu(index, Simulated(index) if is_simulated() else Driver(index))
        pin_with(found.driver)
    return found


def started() -> list[Gpu]:
    return list(_gpus.values())


def synchronize() -> None:
    """Wait for all GPUs."""
    for one in started():
        one.synchronize()


def _forget() -> None:
    pin_with(None)
    for one in _gpus.values():
        one.lose(FORKED)


os.register_at_fork(after_in_child=_forget)
