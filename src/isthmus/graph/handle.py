"""The interpreted base of `array`: mypyc gives a class weak references and a `__dict__` only through one."""

from collections.abc import Callable
from typing import Any


class Handle:
    __slots__ = ()


def mypyc_attr(**attributes: Any) -> Callable[[type], type]:
    """Stands for `mypy_extensions.mypyc_attr` when the files run as they are."""
    return lambda cls: cls
