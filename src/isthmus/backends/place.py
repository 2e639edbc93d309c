"""Where plans run: place 0 is the CPU, 1 + i is GPU i. What a plan asks of its backend is `Backend`."""

from __future__ import annotations

from typing import Any, Final, Protocol

from isthmus.backends.cpu.memory import Buffer


class Backend(Protocol):
    """What plans are made with. A kernel's or a product's `bind` says which entries of the program it becomes."""

    def render(self, kernel: Any) -> Any: ...

    def product(self, dtype: str, a_transposed: bool, b_transposed: bool, addend: bool) -> Any: ...

    def copy_entry(self) -> int: ...

    def copy_shape(self, nbytes: int) -> tuple[int, int]: ...

    def threads(self) -> int: ...


LARGE: Final = 1 << 20  # bytes from which on values go straight to where they are used


def filled_at(place: int, address: int, nbytes: int) -> Buffer | None:
    """A buffer at a GPU with what is at a host address, which may be changed when this returns; None where there is no room."""
    from isthmus.backends.cuda.device import gpu

    return gpu(place - 1).filled(address, nbytes)


def read_into(buffer: Buffer, address: int, nbytes: int) -> None:
    """Copy the first bytes of a buffer that is on a GPU alone to a host address, and wait for them."""
    buffer.place.read_into(buffer, address, nbytes)


def backend_of(place: int) -> Backend:
    if place <= 0:
        from isthmus.backends.cpu import backend

        return backend
    from isthmus.backends.cuda.device import gpu

    return gpu(place - 1)
