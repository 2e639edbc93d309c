"""Device memory: a pool for each GPU, and copies between it and the host.

Everything is in the order of the device's one stream: a block that is let go of may be handed out at once, since what
still reads it was enqueued before what will write it. Blocks come in the size classes of the host's pool; a freed one
waits in its class's list, from which the lowest address goes out first, so that a loop finds the same addresses again
(graphs hold those of library calls). What is not found there is cut from free ranges of large segments; when those are short
the lists are emptied into them, neighbours merged, and segments that are free as a whole go back to the driver.

Copies of LARGE bytes and more go through staging.py, or straight where the host's memory is pinned, and are done when they
return; smaller ones go in stream order.
"""

from __future__ import annotations

from ctypes import memmove
from heapq import heappop, heappush
from typing import Any

from isthmus.backends.cpu.memory import Buffer, adopt, allocate, block_size, drop_gpu, is_pinned
from isthmus.backends.cuda.driver import DriverError
from isthmus.backends.place import LARGE as LARGE_COPY
from isthmus.graph.node import TRACE, Node, where_made

SEGMENT = 64 << 20
LARGE = 8 << 20  # from here on a request has a segment of its own, rounded to ROUND
ROUND = 2 << 20
STAGED = 64 << 10  # a copy up to here goes through pinned memory, so that the wait is all it costs
SHOWN = 8  # arrays that an out-of-memory error names
GONE = "[cuda] this array was being overwritten in place when a launch of the same eval failed; its value is gone."


class DevicePool:
    """The memory of one GPU. Counters are in bytes of blocks, as of the host's pool."""

    def __init__(self, driver: Any, index: int = 0) -> None:
        self.driver = driver
        self.index = index
        self.lost = ""  # why this device cannot be used any more
        self.fault: Any = None  # what turns the driver's errors into ones that name lines; it raises
        self.active = 0
        self.peak = 0
        self.cached = 0
        self.memory_limit = int(driver.total_bytes * 0.95)
        self.cache_limit = self.memory_limit
        self.lists: dict[int, list[int]] = {}
        self.ranges: dict[int, int] = {}  # free: address -> bytes
        self.segments: dict[int, int] = {}
        self.held = 0  # bytes of segments
        self.pinned = 0  # a small block of pinned memory, for answers

    # -- blocks

    def allocate(self, nbytes: int) -> Buffer:
        """A buffer with memory on this device alone.

        Raises:
            MemoryError: there is no room, or the limit would be passed.
        """
        buffer = Buffer(0, nbytes, 0)
        self.give(buffer)
        return buffer

    def give(self, buffer: Buffer) -> None:
        """Put memory of this device behind a buffer; what it holds is anything at all."""
        size = max(block_size(buffer.nbytes), 512)
        if self.active + size > self.memory_limit:
            raise MemoryError(self.no_room(buffer.nbytes, f"the memory limit is {self.memory_limit}; set_memory_limit raises it"))
        try:
            address = heappop(self.lists[size])
            self.cached -= size
        except (KeyError, IndexError):
            address = self.cut(size, buffer.nbytes)
        active = self.active = self.active + size
        if active > self.peak:
            self.peak = active
        buffer.gpu, buffer.gpu_bytes, buffer.place = address, size, self

    def release(self, address: int, size: int) -> None:
        if heappush is None:
            return  # the interpreter is ending, and has taken the module's names away
        heappush(self.lists.setdefault(size, []), address)
        self.active -= size
        self.cached += size

    def cut(self, size: int, nbytes: int) -> int:
        """A block from a free range, making one if need be."""
        if self.lost:
            raise RuntimeError(self.lost)
        size = (size + 511) & -512
        for attempt in range(3):
            found = 0
            for address, length in self.ranges.items():
                if length >= size and (not found or length < self.ranges[found]):
                    found = address
            if found:
                length = self.ranges.pop(found)
                if length > size:
                    self.ranges[found + size] = length - size
                return found
            if attempt == 0:
                want = (size + ROUND - 1) & -ROUND if size >= LARGE else SEGMENT
                if self.held + want <= self.memory_limit or not self.cached:
                    self.grow(want)
            elif attempt == 1:
                self.merge(give_back=True)
                self.grow((size + ROUND - 1) & -ROUND)
        raise MemoryError(self.no_room(nbytes, "the device has no more"))

    def grow(self, nbytes: int) -> None:
        try:
            address = self.driver.allocate(nbytes)
        except DriverError as error:  # of work before, perhaps
            self.fault(error)
        if address:
            self.segments[address] = nbytes
            self.ranges[address] = nbytes
            self.held += nbytes

    def merge(self, give_back: bool) -> None:
        """Empty the lists into the free ranges, join neighbours, and (`give_back`) let go of segments that are free as a whole."""
        for size, blocks in self.lists.items():
            while blocks:
                self.ranges[blocks.pop()] = (size + 511) & -512
        self.cached = 0
        joined: dict[int, int] = {}
        last = -1
        for address in sorted(self.ranges):
            if last >= 0 and last + joined[last] == address and address not in self.segments:
                joined[last] += self.ranges[address]
            else:
                last = address
                joined[address] = self.ranges[address]
        self.ranges = joined
        if give_back:
            whole = [address for address, nbytes in self.segments.items() if self.ranges.get(address) == nbytes]
            for address in whole:
                try:
                    self.driver.free(address)
                except DriverError as error:
                    self.fault(error)
                self.held -= self.segments.pop(address)
                del self.ranges[address]

    def no_room(self, nbytes: int, why: str) -> str:
        lines = [f"[allocate] no room for {f'{nbytes} bytes' if nbytes else 'what a launch needs'} on {self.driver.name}: {self.active} are in use, and {why}."]
        lines += [f"  {size} bytes: {shape} made at {line}" for size, shape, line in largest(self)]
        return "\n".join(lines)

    def set_cache_limit(self, limit: int) -> int:
        before, self.cache_limit = self.cache_limit, limit
        if self.cached > limit:
            self.merge(give_back=True)
        return before

    def set_memory_limit(self, limit: int) -> int:
        before, self.memory_limit = self.memory_limit, limit
        return before

    def get_memory_limit(self) -> int:
        return self.memory_limit

    def clear_cache(self) -> None:
        """Give all free memory back to the driver."""
        if self.lost:
            return  # it went with the context
        self.merge(give_back=True)

    # -- copies

    def bring(self, buffer: Buffer) -> None:
        """Copy a buffer here from where it is."""
        if self.lost:
            raise RuntimeError(self.lost)
        if not buffer.gpu and not buffer.ptr:
            raise RuntimeError(GONE)
        if buffer.gpu:  # on another device
            buffer.place.bring_home(buffer)
            drop_gpu(buffer)
        self.give(buffer)
        try:
            self.fill(buffer, buffer.ptr)
        except DriverError:
            drop_gpu(buffer)
            raise

    def fill(self, buffer: Buffer, host: int) -> None:
        """Copy from the host into a buffer's memory here; the host's may be changed when this returns."""
        if buffer.nbytes < LARGE_COPY:
            self.driver.upload(buffer.gpu, host, buffer.nbytes)
        else:
            self.driver.upload_large(buffer.gpu, host, buffer.nbytes, is_pinned(host, buffer.nbytes))

    def read_into(self, buffer: Buffer, host: int, nbytes: int) -> None:
        """Copy a buffer's first bytes to the host, and wait for them."""
        if self.lost:
            raise RuntimeError(self.lost)
        if not buffer.gpu:
            raise RuntimeError(GONE)
        try:
            if nbytes >= LARGE_COPY:
                self.driver.download_large(host, buffer.gpu, nbytes, is_pinned(host, nbytes))
            elif nbytes <= STAGED:
                if not self.pinned:
                    self.pinned = self.driver.allocate_pinned(STAGED)
                at = self.pinned or host
                self.driver.download(at, buffer.gpu, nbytes)
                self.driver.synchronize()
                if at != host:
                    memmove(host, at, nbytes)
            else:
                self.driver.download(host, buffer.gpu, nbytes)
                self.driver.synchronize()
        except DriverError as error:
            self.fault(error)

    def give_up(self, buffer: Buffer) -> None:
        """Let go of a copy here whose bytes are no value any more; if there is none on the host, its readers are told so."""
        drop_gpu(buffer)

    def bring_home(self, buffer: Buffer) -> None:
        """Copy a buffer to the host, and wait for it."""
        with TRACE.lock:
            if buffer.ptr:
                return
            block = allocate(buffer.nbytes, pin=False)
            self.read_into(buffer, block.ptr, buffer.nbytes)
            adopt(buffer, block)


def largest(pool: DevicePool) -> list[tuple[int, str, str]]:
    """The largest arrays on a device: bytes, what they are, the line that made them."""
    import gc

    found: dict[int, tuple[int, str, str]] = {}
    for x in gc.get_objects():
        if type(x) is Node and x.buffer is not None and getattr(x.buffer, "place", None) is pool and x.buffer.gpu:
            found[id(x.buffer)] = (x.buffer.gpu_bytes, f"{x.sig.dtype.name}{x.shape}", where_made(x))
    return sorted(found.values(), reverse=True)[:SHOWN]
