"""A GPU that is not there: the methods of `Driver`, with memory of its own and work that is done late.

What is enqueued waits until something must be known, so an answer read too early is seen; memory is poisoned when it is
allocated and freed, so what was never copied, or was given away too early, is seen; kernels are run by the interpreter from
the parameters that lie in the simulated memory at that time. Addresses are no addresses of this process: a kernel that is
handed a host pointer, or leaves its allocation, raises a device fault.
"""

from __future__ import annotations

import bisect
import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from isthmus.backends.cuda.driver import DriverError
from isthmus.backends.cuda.functions import FUNCTIONS
from isthmus.backends.interrupts import interrupts
from isthmus.kernel.interpret import interpret
from isthmus.kernel.loops import Kernel

POISON = 0xCB
BASE = 1 << 44
ALIGN = 512
FAULT = 700


class Memory:
    """Simulated device memory: allocations by address."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0
        self.bases: list[int] = []
        self.blocks: dict[int, Any] = {}
        self.next = BASE

    def allocate(self, nbytes: int) -> int:
        if self.used + nbytes > self.total:
            return 0
        base = self.next
        self.next += (nbytes + 2 * ALIGN - 1) & -ALIGN  # a gap between allocations, which nothing may touch
        self.blocks[base] = np.full(nbytes, POISON, np.uint8)
        bisect.insort(self.bases, base)
        self.used += nbytes
        return base

    def free(self, base: int) -> None:
        self.used -= len(self.blocks[base])
        self.blocks[base][:] = POISON
        del self.blocks[base]
        self.bases.remove(base)

    def view(self, address: int, nbytes: int = -1) -> Any:
        """The bytes from an address to the end of its allocation, or `nbytes` of them."""
        at = bisect.bisect_right(self.bases, address) - 1
        if at < 0 or address - self.bases[at] >= len(self.blocks[self.bases[at]]) + (nbytes == 0):
            raise DriverError("a simulated kernel", FAULT, f"{address:#x} is no device memory")
        base = self.bases[at]
        block = self.blocks[base][address - base :]
        if nbytes > len(block):
            raise DriverError("a simulated kernel", FAULT, f"{nbytes} bytes at {address:#x} leave an allocation")
        return block if nbytes < 0 else block[:nbytes]


class Simulated:
    """As `Driver`. `fail` lists calls that are to fail: {"allocate": 2} the second allocation from now, and so on."""

    simulated = True
    arch = 90
    processors = 4
    name = "Simulated GPU"

    def __init__(self, index: int, total_bytes: int = 4 << 30) -> None:
        self.memory = Memory(total_bytes)
        self.total_bytes = total_bytes
        self.queue: list[Callable[[], None]] = []
        self.capturing = False
        self.captured: list[Callable[[], None]] = []
        self.fail: dict[str, int] = {}
        self.error: DriverError | None = None
        self.pinned: dict[int, Any] = {}
        self.launches = 0
        self.graphs_run = 0
        self.turn = threading.Lock()

    def enter(self) -> None:
        pass

    def fails(self, call: str) -> bool:
        if call not in self.fail:
            return False
        self.fail[call] -= 1
        if self.fail[call]:
            return False
        del self.fail[call]
        return True

    def allocate(self, nbytes: int) -> int:
        return 0 if self.fails("allocate") else self.memory.allocate(nbytes)

    def free(self, address: int) -> None:
        self.synchronize()
        self.memory.free(address)

    def memory_info(self) -> tuple[int, int]:
        return self.total_bytes - self.memory.used, self.total_bytes

    def allocate_pinned(self, nbytes: int) -> int:
        block = np.full(nbytes + 64, POISON, np.uint8)
        address = (block.ctypes.data + 63) & -64
        self.pinned[address] = block
        return address

    def free_pinned(self, address: int) -> None:
        del self.pinned[address]

    def pin(self, address: int, nbytes: int) -> bool:
        return True

    def unpin(self, address: int) -> None:
        pass

    def upload_large(self, to: int, from_host: int, nbytes: int, pinned: bool) -> None:
        self.upload(to, from_host, nbytes)
        self.synchronize()

    def download_large(self, to_host: int, source: int, nbytes: int, pinned: bool) -> None:
        self.download(to_host, source, nbytes)
        self.synchronize()

    stream = 0

    def let_wait(self, stream: int) -> None:
        self.synchronize()

    def put(self, work: Callable[[], None]) -> None:
        (self.captured if self.capturing else self.queue).append(work)

    def upload(self, to: int, from_host: int, nbytes: int) -> None:
        held = ctypes.string_at(from_host, nbytes)

        def work() -> None:
            self.memory.view(to, nbytes)[:] = np.frombuffer(held, np.uint8)

        self.put(work)

    def download(self, to_host: int, source: int, nbytes: int) -> None:
        def work() -> None:
            data = np.ascontiguousarray(self.memory.view(source, nbytes))
            ctypes.memmove(to_host, data.ctypes.data, nbytes)

        self.put(work)

    def copy(self, to: int, source: int, nbytes: int) -> None:
        def work() -> None:
            self.memory.view(to, nbytes)[:] = self.memory.view(source, nbytes).copy()

        self.put(work)

    def load(self, code: bytes, symbol: str, number: int) -> int:
        return number

    def launch(self, function: int, blocks: int, threads: int, arguments: int, overlap: bool = False) -> None:
        if self.fails("launch"):
            raise DriverError("cuLaunchKernel", 701, "too many resources requested for launch (injected)")
        meaning, slots = FUNCTIONS[function].meaning, FUNCTIONS[function].slots
        self.launches += 1
        cell, values = (ctypes.c_int64 * 2).from_address(arguments)
        table = ctypes.c_int64.from_address(cell).value
        brought = np.frombuffer(b"" if table else ctypes.string_at(values, 8 * slots), np.int64)

        def work() -> None:
            params = self.memory.view(table).view(np.int64) if table else brought
            if isinstance(meaning, Kernel):
                numbers, buffers = params[: meaning.n_slots].tolist(), []
                for address, dtype in zip(numbers, meaning.buffers, strict=False):
                    data = self.memory.view(address)
                    buffers.append(data[: len(data) // dtype.size * dtype.size].view(dtype.numpy))
                interpret(meaning, numbers, buffers)
            elif meaning is not None:
                meaning(self.memory, params)

        self.put(work)

    def begin_capture(self) -> None:
        self.capturing = True
        self.captured = []

    def end_capture(self) -> list[Callable[[], None]]:
        self.capturing = False
        return self.captured

    def run_graph(self, graph: list[Callable[[], None]]) -> None:
        self.graphs_run += 1
        self.queue.extend(graph)

    def free_graph(self, graph: Any) -> None:
        pass

    def query(self) -> None:
        self.synchronize()

    def synchronize(self) -> None:
        """Do what is enqueued, of one thread at a time; Ctrl-C waits for it, or the work at hand would be lost."""
        with self.turn:
            held = interrupts.hold()
            try:
                if self.error is not None:
                    raise self.error
                while self.queue:
                    self.queue.pop(0)()
            except DriverError as error:
                self.queue.clear()
                self.error = error if error.lost else None
                raise
            except IndexError as error:
                self.queue.clear()
                self.error = DriverError("a simulated kernel", FAULT, str(error))
                raise self.error from error
            finally:
                if held:
                    interrupts.release()
