"""Whether there are GPUs to run on; cheap where there are none."""

from __future__ import annotations

import ctypes
import functools
import os
from importlib.util import find_spec

FORKED = "[cuda] a process that was forked cannot use GPUs, as its parent has asked for them; start it by the spawn method of multiprocessing, or use mx.cpu in it."


@functools.cache
def gpu_count() -> int:
    """GPUs there are to use. `ISTHMUS_GPU`: "none", or "simulated" (or "simulated:2") for ones that are not there."""
    wanted = os.environ.get("ISTHMUS_GPU", "")
    if wanted.startswith("simulated"):
        return int(wanted.partition(":")[2] or 1)
    return 0 if wanted == "none" or not has_packages() else probe()


class _Process:
    """Whether this process was forked from one in which the driver was started; it would only fail here."""

    forked = False


process = _Process()


def _note_fork() -> None:
    process.forked = gpu_count.cache_info().currsize > 0 and gpu_count() > 0


os.register_at_fork(after_in_child=_note_fork)


def is_simulated() -> bool:
    return os.environ.get("ISTHMUS_GPU", "").startswith("simulated")


def has_packages() -> bool:
    """Whether the packages that run and compile kernels are installed."""
    try:
        return find_spec("cuda.bindings") is not None
    except ModuleNotFoundError:
        return False


def has_cublaslt() -> bool:
    """Whether cuBLASLt and the package that calls it are installed."""
    try:
        return find_spec("nvmath.bindings") is not None and find_spec("nvidia") is not None
    except ModuleNotFoundError:
        return False


def probe() -> int:
    """How many GPUs the driver shows; 0 without a driver. Takes 0.1 s where there is one."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if library.cuInit(0) != 0 or library.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value
