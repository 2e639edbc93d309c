"""What the compiled classes need from interpreted code.

mypyc gives a class weak references and a `__dict__` only through an interpreted base; and it reads the decorator
`mypyc_attr` without running it, so that no run-time dependency on mypy_extensions is needed.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**attributes: Any) -> Any:
        return lambda cls: cls


class Handle:
    """The base of `array`."""

    __slots__ = ()

    def __index__(self) -> int:
        """Gives compiled classes the slot that `list[x]` asks; what they define is called."""
        raise TypeError(f"{type(self).__name__} is no index")
