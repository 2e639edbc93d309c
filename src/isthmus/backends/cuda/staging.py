"""Large copies between pageable host memory and a GPU, by threads that each have a pinned block and a stream.

The GPU copies from pinned memory alone at full speed, and one thread fills that at a fifth of it. So threads take chunks in
turn: one is copied into the thread's block, sent, and waited for, while the others do the same; on the way back the pages of
fresh memory are also touched first by several. Order with the computing stream is kept by an event that each stream waits for.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Final

from isthmus.backends.interrupts import interrupts

CHUNK: Final = 4 << 20
MOST_THREADS: Final = 8


class Staging:
    """The threads of one GPU."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.own = threading.local()
        self.count = max(1, min(MOST_THREADS, (os.cpu_count() or 1) // 2))
        self.pool = ThreadPoolExecutor(self.count, "isthmus-copy")

    def up(self, to: int, host: int, nbytes: int, after: Any) -> None:
        """Host to device, done when this returns; `after` is an event that must have come first."""
        cu = self.driver.cu

        def chunk(block: int, stream: Any, at: int, n: int) -> None:
            ctypes.memmove(block, host + at, n)
            self.driver.check("cuMemcpyHtoDAsync", *cu.cuMemcpyHtoDAsync(to + at, block, n, stream))
            self.driver.check("cuStreamSynchronize", *cu.cuStreamSynchronize(stream))

        self.run(chunk, nbytes, after)

    def down(self, host: int, source: int, nbytes: int, after: Any) -> None:
        """Device to host, done when this returns."""
        cu = self.driver.cu

        def chunk(block: int, stream: Any, at: int, n: int) -> None:
            self.driver.check("cuMemcpyDtoHAsync", *cu.cuMemcpyDtoHAsync(block, source + at, n, stream))
            self.driver.check("cuStreamSynchronize", *cu.cuStreamSynchronize(stream))
            ctypes.memmove(host + at, block, n)

        self.run(chunk, nbytes, after)

    def run(self, chunk: Callable[[int, Any, int, int], None], nbytes: int, after: Any) -> None:
        chunks = itertools.count(0, CHUNK)  # a step of it is one under the interpreter's lock

        def work() -> None:
            block, stream = self.block_and_stream()
            self.driver.check("cuStreamWaitEvent", *self.driver.cu.cuStreamWaitEvent(stream, after, 0))
            while (at := next(chunks)) < nbytes:
                chunk(block, stream, at, min(CHUNK, nbytes - at))

        held = interrupts.hold()  # the threads write to memory that must not be let go of meanwhile
        try:
            tasks = [self.pool.submit(work) for _ in range(min(self.count, -(-nbytes // CHUNK)))]
            wait(tasks)
        finally:
            if held:
                interrupts.release()
        for task in tasks:
            task.result()

    def block_and_stream(self) -> tuple[int, Any]:
        """This thread's."""
        own = self.own
        if not hasattr(own, "stream"):
            self.driver.enter()
            own.stream = self.driver.check("cuStreamCreate", *self.driver.cu.cuStreamCreate(1))
            own.block = self.driver.allocate_pinned(CHUNK)
            if not own.block:
                del own.stream
                raise MemoryError(f"[allocate] the system has no {CHUNK} bytes of pinned memory left, which copies to and from the GPU go through.")
        return own.block, own.stream
