"""How a function made of many ops keeps 16-bit inputs exact: widen once, compute in float32, round once."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import isthmus.core as mx

F = TypeVar("F", bound=Callable[..., Any])

_NARROW = (mx.float16, mx.bfloat16)


def computed_in_float32(fn: F) -> F:
    """Let ``fn`` see its float16 and bfloat16 arguments as float32, and round its result to their dtype.

    The result has the dtype that promotion gives: with a float32 argument besides it stays float32. Arguments that
    are no arrays, integers and wider floats pass through.
    """

    @functools.wraps(fn)
    def widened(*args: Any, **kwargs: Any) -> Any:
        narrow = None
        mixed = False
        for x in (*args, *kwargs.values()):
            if isinstance(x, mx.array):
                dtype = x.dtype
                if dtype in _NARROW:
                    mixed = mixed or (narrow is not None and dtype != narrow)
                    narrow = dtype
                elif mx.issubdtype(dtype, mx.inexact):
                    mixed = True
        if narrow is None:
            return fn(*args, **kwargs)
        y = fn(*map(_widen, args), **{k: _widen(v) for k, v in kwargs.items()})
        return y if mixed else y.astype(narrow)

    return widened  # type: ignore[return-value]


def _widen(x: Any) -> Any:
    return x.astype(mx.float32) if isinstance(x, mx.array) and x.dtype in _NARROW else x
