"""`mx.metal`: there is no Metal here, and programs that ask learn so; the memory functions are those of `mx`."""

from typing import Any

from isthmus.schedule.api import (
    clear_cache,
    get_active_memory,
    get_cache_memory,
    get_peak_memory,
    reset_peak_memory,
    set_cache_limit,
    set_memory_limit,
    set_wired_limit,
)


def is_available() -> bool:
    """False."""
    return False


def device_info() -> dict[str, Any]:
    """Nothing."""
    return {}


def start_capture(path: str) -> None:
    """Metal's traces are not to be had.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError(f"[metal.start_capture] there is no Metal here, so no trace can be written to {path!r}.")


def stop_capture() -> None:
    """Nothing is being captured."""


__all__ = [
    "clear_cache",
    "device_info",
    "get_active_memory",
    "get_cache_memory",
    "get_peak_memory",
    "is_available",
    "reset_peak_memory",
    "set_cache_limit",
    "set_memory_limit",
    "set_wired_limit",
    "start_capture",
    "stop_capture",
]
