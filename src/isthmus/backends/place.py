"""Where plans run: place 0 is the CPU, 1 + i is GPU i. What a plan asks of its backend is `Backend`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, Protocol

from isthmus.backends.cpu.memory import Buffer, borrow


class Backend(Protocol):
    """What plans are made with. A kernel's or a product's `bind` says which entries of the program it becomes."""

    def render(self, kernel: Any) -> Any: ...

    def product(self, dtype: str, a_transposed: bool, b_transposed: bool, addend: bool) -> Any: ...

    def copy_entry(self) -> int: ...

    def copy_shape(self, nbytes: int) -> tuple[int, int]: ...

    def threads(self) -> int: ...


LARGE: Final = 1 << 20  # bytes from which on values go straight to where they are used, by several threads or from pinned memory


def filled_at(place: int, address: int, nbytes: int) -> Buffer | None:
    """A buffer at a GPU with what is at a host address, which may be changed when this returns; None where there is no room."""
    from isthmus.backends.cuda.device import gpu

    return gpu(place - 1).filled(address, nbytes)


def read_into(buffer: Buffer, address: int, nbytes: int) -> None:
    """Copy the first bytes of a buffer that is on a GPU alone to a host address, and wait for them."""
    buffer.place.read_into(buffer, address, nbytes)


def gpu_info(index: int) -> dict[str, Any]:
    """What `mx.device_info` says of a GPU."""
    from isthmus.backends.cuda.device import gpu

    driver = gpu(index).driver
    free, total = driver.memory_info()
    return {
        "architecture": f"sm_{driver.arch}",
        "device_name": driver.name,
        "memory_size": total,
        "free_memory": free,
        "multiprocessors": driver.processors,
        "compute_capability_major": driver.arch // 10,
        "compute_capability_minor": driver.arch % 10,
    }


def gpu_of(buffer: Buffer) -> int:
    """The number of the GPU that a buffer's current copy is on, -1 where it is on the host (or on a simulated one)."""
    return -1 if buffer.ptr or not buffer.gpu or buffer.place.driver.simulated else int(buffer.place.index)


def lend(buffer: Buffer, stream: int | None) -> None:
    """Before another library reads what is on a GPU: its stream waits (None: CUDA's default one; -1: it needs none)."""
    if stream != -1:
        buffer.place.driver.let_wait(1 if stream is None or stream == 0 else stream)


def borrowed_at(index: int, address: int, nbytes: int, owner: Callable[[], None]) -> Buffer:
    """Another library's memory on a GPU as a buffer, never overwritten; `owner` is called when nothing here reads it any more."""
    from isthmus.backends.cuda.device import gpu

    pool = gpu(index).memory
    buffer = borrow(0, nbytes, Loan(owner, pool.driver))
    buffer.gpu, buffer.place, buffer.exports = address, pool, 1
    return buffer


def stream_of(index: int) -> int:
    """The handle of the stream that a GPU's work goes to."""
    from isthmus.backends.cuda.device import gpu

    return int(gpu(index).driver.stream)


class Loan:
    """Memory of another library: given back when this dies, its default stream waiting for what still reads it."""

    def __init__(self, owner: Callable[[], None], driver: Any) -> None:
        self.owner = owner
        self.driver = driver

    def __del__(self) -> None:
        if sys is None or sys.is_finalizing():
            return
        self.driver.let_wait(1)
        self.owner()


def backend_of(place: int) -> Backend:
    if place <= 0:
        from isthmus.backends.cpu import backend

        return backend
    from isthmus.backends.cuda.device import gpu

    return gpu(place - 1)
