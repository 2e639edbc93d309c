"""The CPU as plans see it (backends/place.py)."""

from __future__ import annotations

from isthmus.backends.cpu import stream
from isthmus.backends.cpu.library.matmul import Product, plan_matmul
from isthmus.backends.cpu.render import Rendered
from isthmus.backends.cpu.render import render as render_kernel
from isthmus.kernel.loops import Kernel

COPY_GRAIN = 1 << 18  # bytes of a copy that one thread takes at a time


def render(kernel: Kernel) -> Rendered:
    return render_kernel(kernel)


def product(dtype: str, a_transposed: bool, b_transposed: bool, addend: bool) -> Product:
    (made,) = plan_matmul(dtype, a_transposed, b_transposed, addend)
    return made


def copy_entry() -> int:
    return stream.entry("copy")


def copy_shape(nbytes: int) -> tuple[int, int]:
    return nbytes, max(COPY_GRAIN, nbytes // (4 * stream.threads()) & -64)


def threads() -> int:
    return stream.threads()
