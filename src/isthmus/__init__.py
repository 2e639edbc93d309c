"""isthmus: lazy arrays for machine learning with the interface of MLX.

Programs import the rooms that they need (``import isthmus.core as mx``, ``isthmus.nn``, ``isthmus.optimizers``,
``isthmus.utils``); this module holds the version and what looks into the machine: ``isthmus.stats()`` and
``isthmus.checked()``. Both are fetched on first use, so that ``import isthmus`` alone loads nothing else.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.schedule.api import checked, stats

__version__ = "0.1.0"
__all__ = ["__version__", "checked", "stats"]

_FROM_THE_SCHEDULE = ("checked", "stats")


def __getattr__(name: str) -> Any:
    if name in _FROM_THE_SCHEDULE:
        from isthmus.schedule import api

        return getattr(api, name)
    raise AttributeError(f"module 'isthmus' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_FROM_THE_SCHEDULE])
