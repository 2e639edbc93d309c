"""Host memory: blocks that are given back when their `Buffer` dies, kept, and handed out again.

Blocks come in size classes (multiples of 64 bytes up to 4 kB, then eighths of powers of two), and a freed one waits in
its class's list; recycled memory is mapped and often in cache, where fresh pages cost a fault each. From 1 MB on blocks
are mapped by themselves, so that letting go of one gives it back to the system, and from 2 MB on they ask for huge
pages: to write 40 MB for the first time then takes 2.7 ms where small pages take 15.

Nothing here locks: each step on the lists and counters is a single one under the interpreter's lock, also when a
`__del__` comes between two of them. After a fork both processes go on with what they had.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Callable
from typing import Any, Final

_ALIGNMENT: Final = 64                       # of every block: a cache line, and the widest vector
_SMALL: Final = 4096
_MAPPED: Final = 1 << 20                     # blocks from here on are mapped by themselves
_HUGE_PAGE: Final = 2 << 20


class Buffer:
    """A logical block of at least `nbytes` bytes, for as long as this object lives, with a copy on the host, on a GPU, or both.

    `ptr` is the address of the host's copy and `gpu` that of the copy on `place` (a `DevicePool`); each is 0 if there is no
    current copy there, and what one place writes is let go of at the other. What it holds at first is anything at all.
    `block_bytes` and `gpu_bytes` are the sizes of the pools' blocks, 0 if the memory is another's: then `owner` keeps it
    alive. `exports` counts views given to other libraries: such memory is not overwritten.
    """

    __slots__ = ("ptr", "nbytes", "block_bytes", "owner", "exports", "gpu", "gpu_bytes", "place")

    def __init__(self, ptr: int, nbytes: int, block_bytes: int, owner: object = None) -> None:
        self.ptr = ptr
        self.nbytes = nbytes
        self.block_bytes = block_bytes
        self.owner = owner
        self.exports = 0
        self.gpu = 0
        self.gpu_bytes = 0
        self.place: Any = None

    def __del__(self) -> None:
        if self.gpu_bytes:
            self.place.release(self.gpu, self.gpu_bytes)
        size = self.block_bytes
        if not size:
            return
        pool = _pool
        if pool is None:
            return  # the interpreter is ending, and has taken the module's names away
        pool.free[size].append(self.ptr)
        pool.active -= size
        pool.cached += size
        if pool.cached > pool.cache_limit:
            pool.shrink(pool.cache_limit, size)

    def __repr__(self) -> str:
        return f"Buffer({self.nbytes} bytes at {self.ptr:#x})"


class _Pool:
    """The counters, in bytes of blocks, and the free blocks of each size."""

    __slots__ = ("active", "peak", "cached", "cache_limit", "memory_limit", "free", "pin", "pinned")

    def __init__(self) -> None:
        self.active = 0
        self.peak = 0
        self.cached = 0
        self.memory_limit = _machine_bytes()
        self.cache_limit = self.memory_limit // 4
        self.free: dict[int, list[int]] = {}
        self.pin: Any = None                 # the driver of a GPU that has started
        self.pinned: dict[int, int] = {}     # bytes, by address

    def take(self, size: int, pin: bool) -> int:
        """The address of a block from the system, 0 if there is none to be had; a large one is pinned for the GPU if it can be."""
        ptr = _system_allocate(size)
        if pin and ptr and size >= _MAPPED and self.pin is not None and self.pin.pin(ptr, size):
            self.pinned[ptr] = size
        return ptr

    def fresh(self, nbytes: int, size: int, pin: bool) -> int:
        """The address of a new block, making room for it if need be."""
        self.free.setdefault(size, [])
        if self.active + self.cached + size > self.memory_limit:
            self.shrink(max(self.memory_limit - self.active - size, 0), 0)
            if self.active + size > self.memory_limit:
                raise MemoryError(
                    f"[allocate] no room for {nbytes} bytes: {self.active} are in use, and the memory limit is "
                    f"{self.memory_limit}; set_memory_limit raises it.")
        ptr = self.take(size, pin)
        if not ptr:
            cached = self.cached
            self.shrink(0, 0)
            ptr = self.take(size, pin)
            if not ptr:
                raise MemoryError(
                    f"[allocate] the system has no {nbytes} bytes left: {self.active} are in use, and letting go of "
                    f"{cached} kept for reuse was not enough.")
        return ptr

    def shrink(self, limit: int, keep: int) -> None:
        """Let go of free blocks until at most `limit` bytes of them are left: large ones first, those of size `keep` last."""
        sizes = sorted(self.free, reverse=True)
        if keep:
            sizes.remove(keep)
            sizes.append(keep)
        for size in sizes:
            blocks = self.free[size]
            while self.cached > limit:
                try:
                    ptr = blocks.pop()
                except IndexError:
                    break
                self.cached -= size
                if ptr in self.pinned:
                    del self.pinned[ptr]
                    if self.pin is not None:
                        self.pin.unpin(ptr)
                _system_free(ptr, size)


def pin_with(driver: Any) -> None:
    """From now on large blocks are pinned, so that a GPU copies from and to them at full speed; None: no more."""
    _pool.pin = driver


def is_pinned(address: int, nbytes: int) -> bool:
    """Whether memory lies in a pinned block."""
    return any(base <= address and address + nbytes <= base + size for base, size in _pool.pinned.items())


def allocate(nbytes: int, pin: bool = True) -> Buffer:
    """A block of at least `nbytes` bytes, aligned to 64; `pin`: a new one is pinned if it is large and a GPU has started.

    Raises:
        MemoryError: The memory limit would be passed, or the system has no more.
    """
    pool = _pool
    size = (nbytes + 63) & -64 if 0 < nbytes <= _SMALL else block_size(nbytes)
    try:
        ptr = pool.free[size].pop()
        pool.cached -= size
    except (KeyError, IndexError):
        ptr = pool.fresh(nbytes, size, pin)
    active = pool.active = pool.active + size
    if active > pool.peak:
        pool.peak = active
    return Buffer(ptr, nbytes, size)


def borrow(ptr: int, nbytes: int, owner: object) -> Buffer:
    """Memory that is not the pool's (a NumPy array's, a mapped file's), kept alive by `owner`; counted nowhere."""
    return Buffer(ptr, nbytes, 0, owner)


def host_address(buffer: Buffer) -> int:
    """The address of a buffer's bytes on the host, copied there from the GPU if need be."""
    if not buffer.ptr:
        buffer.place.bring_home(buffer)
    return buffer.ptr


def adopt(buffer: Buffer, block: Buffer) -> None:
    """Make a fresh buffer's block the host's copy of another's."""
    buffer.ptr, buffer.block_bytes = block.ptr, block.block_bytes
    block.block_bytes = 0


def drop_host(buffer: Buffer) -> None:
    """Let go of the host's copy: the GPU's was written."""
    Buffer(buffer.ptr, 0, buffer.block_bytes)  # which dies here, and gives the block back
    buffer.ptr = buffer.block_bytes = 0


def drop_gpu(buffer: Buffer) -> None:
    """Let go of the GPU's copy: the host's was, or may be, written."""
    if buffer.gpu_bytes:
        buffer.place.release(buffer.gpu, buffer.gpu_bytes)
    buffer.gpu = buffer.gpu_bytes = 0


def block_size(nbytes: int) -> int:
    """The size of the block that a request is given: at most an eighth more, from 4 kB on."""
    if nbytes <= _SMALL:
        if nbytes < 0:
            raise ValueError(f"[allocate] nbytes is {nbytes}; it must not be negative.")
        return max((nbytes + 63) & -64, _ALIGNMENT)
    step = 1 << ((nbytes - 1).bit_length() - 4)
    return (nbytes + step - 1) & -step


def buffer_view(buffer: Buffer, offset: int, nbytes: int) -> memoryview:
    """`nbytes` writable bytes of `buffer` from `offset` on; the view keeps the buffer alive."""
    assert 0 <= offset <= offset + nbytes <= buffer.nbytes, (offset, nbytes, buffer)
    memory: Any = _Memory.from_address(host_address(buffer) + offset)
    memory.buffer = buffer
    return memoryview(memory)[:nbytes]


def active_bytes() -> int:
    """Bytes in blocks that are in use."""
    return _pool.active


def peak_bytes() -> int:
    """The most that `active_bytes` has been since the start or `reset_peak`."""
    return _pool.peak


def reset_peak() -> None:
    """Count the peak from zero again; it is what is in use from the next allocation on."""
    _pool.peak = 0


def cache_bytes() -> int:
    """Bytes in free blocks kept for reuse."""
    return _pool.cached


def clear_cache() -> None:
    """Give all free blocks back to the system."""
    _pool.shrink(0, 0)


def set_cache_limit(limit: int) -> int:
    """Keep at most `limit` bytes of free blocks; the limit before."""
    previous = _pool.cache_limit
    _pool.cache_limit = limit
    _pool.shrink(limit, 0)
    return previous


def set_memory_limit(limit: int) -> int:
    """Refuse to have more than `limit` bytes in use; the limit before."""
    previous = _pool.memory_limit
    _pool.memory_limit = limit
    if _pool.active + _pool.cached > limit:
        _pool.shrink(max(limit - _pool.active, 0), 0)  # what is kept is handed out without asking
    return previous


def get_memory_limit() -> int:
    """The most bytes that may be in use."""
    return _pool.memory_limit


# From the system

# Longer than any block: a view of it is cut to size, so that a type per length need not be made.
_Memory: Final = ctypes.c_uint8 * (1 << 62)

_libc: Final = ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None)
_MAP_ANONYMOUS: Final = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
_MAP_FAILED: Final = (1 << 64) - 1


def _declare(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    function: Any = getattr(_libc, name)
    function.restype = result
    function.argtypes = arguments
    typed: Callable[..., Any] = function
    return typed


if sys.platform == "win32":
    _aligned_malloc = _declare("_aligned_malloc", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
    _aligned_free = _declare("_aligned_free", None, ctypes.c_void_p)

    def _system_allocate(size: int) -> int:
        """Address of a block, 0 if there is none to be had."""
        return int(_aligned_malloc(size, _ALIGNMENT) or 0)

    def _system_free(ptr: int, size: int) -> None:
        _aligned_free(ptr)
else:
    _aligned_alloc = _declare("aligned_alloc", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
    _free = _declare("free", None, ctypes.c_void_p)
    _mmap = _declare("mmap", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                     ctypes.c_int, ctypes.c_int64)
    _munmap = _declare("munmap", ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
    _madvise = _declare("madvise", ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

    def _system_allocate(size: int) -> int:
        """Address of a block, 0 if there is none to be had."""
        if size < _MAPPED:
            return int(_aligned_alloc(_ALIGNMENT, size) or 0)
        # One huge page more than asked for, and the ends given back, so that the block starts on a huge page.
        spare = _HUGE_PAGE if size >= _HUGE_PAGE else 0
        base = _mmap(None, size + spare, mmap.PROT_READ | mmap.PROT_WRITE, _MAP_ANONYMOUS, -1, 0)
        if base is None or base == _MAP_FAILED:
            return 0
        if not spare:
            return int(base)
        ptr: int = (base + spare - 1) & -spare
        if ptr > base:
            _munmap(base, ptr - base)
        if base + spare > ptr:
            _munmap(ptr + size, base + spare - ptr)
        if hasattr(mmap, "MADV_HUGEPAGE"):   # Linux
            _madvise(ptr, size, mmap.MADV_HUGEPAGE)
        return ptr

    def _system_free(ptr: int, size: int) -> None:
        if size < _MAPPED:
            _free(ptr)
        else:
            _munmap(ptr, size)


def _machine_bytes() -> int:
    """Memory of the machine, or of the container that this process is in."""
    total = 8 << 30
    if hasattr(os, "sysconf"):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as file:
                total = min(total, int(file.read()))
        except (OSError, ValueError):        # no such file; or "max"
            pass
    return total


_pool: Final = _Pool()
