"""Whether there are GPUs to run on; cheap where there are none."""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from importlib.util import find_spec

OLDEST = 70
MAJOR, MINOR = 75, 76  # attributes of a device
FORKED = "[cuda] a process that was forked cannot use GPUs, as its parent has asked for them; start it by the spawn method of multiprocessing, or use mx.cpu in it."


@functools.cache
def gpu_count() -> int:
    """GPUs there are to use. `ISTHMUS_GPU`: "none", or "simulated" (or "simulated:2") for ones that are not there."""
    wanted = os.environ.get("ISTHMUS_GPU", "")
    if wanted.startswith("simulated"):
        return int(wanted.partition(":")[2] or 1)
    if wanted == "none" or not has_packages():
        return 0
    chips = probe()
    why = "" if not chips else unusable(chips)
    if why:
        warnings.warn(f"[cuda] {why} The CPU is used; isthmus doctor says more.", stacklevel=2)
    return 0 if why else len(chips)


def unusable(chips: list[int]) -> str:
    """Why GPUs of these compute capabilities (90 for 9.0) cannot be used; empty if they can."""
    from isthmus.backends.cuda.compile import libraries

    if min(chips) < OLDEST:
        return f"The GPU's compute capability is {min(chips) / 10}, which is too old: {OLDEST / 10} is needed."
    if not any(os.path.isabs(path) for path in libraries()):
        try:
            ctypes.CDLL("libnvrtc.so.13" if min(chips) >= 75 else "libnvrtc.so.12")
        except OSError:
            return f"NVRTC, which compiles kernels, is not installed: pip install 'isthmus[{'cuda13' if min(chips) >= 75 else 'cuda12'}]' brings it."
    return ""


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


def probe() -> list[int]:
    """The compute capabilities of the GPUs that the driver shows; none without a driver. Takes 0.1 s where there is one."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count, major, minor = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_int(0)
    if library.cuInit(0) != 0 or library.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    chips = []
    for k in range(count.value):
        library.cuDeviceGetAttribute(ctypes.byref(major), MAJOR, k)
        library.cuDeviceGetAttribute(ctypes.byref(minor), MINOR, k)
        chips.append(10 * major.value + minor.value)
    return chips
