"""Where plans run: place 0 is the CPU, 1 + i is GPU i. What a plan asks of its backend is `Backend`."""

from __future__ import annotations

from typing import Any, Protocol


class Backend(Protocol):
    """What plans are made with. A kernel's or a product's `bind` says which entries of the program it becomes."""

    def render(self, kernel: Any) -> Any: ...

    def product(self, dtype: str, a_transposed: bool, b_transposed: bool, addend: bool) -> Any: ...

    def copy_entry(self) -> int: ...

    def copy_shape(self, nbytes: int) -> tuple[int, int]: ...

    def threads(self) -> int: ...


def backend_of(place: int) -> Backend:
    if place <= 0:
        from isthmus.backends.cpu import backend

        return backend
    from isthmus.backends.cuda.device import gpu

    return gpu(place - 1)
