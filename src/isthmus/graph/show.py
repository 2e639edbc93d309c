"""What arrays and graphs look like as text.

`array_text` prints values as MLX does: six significant digits, and of an axis longer than six the first and last three.
`show` lists a graph, a line a node: `%2: float32[4] = sqrt %1`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from isthmus.graph.array import ElementwiseOp, array
from isthmus.graph.dtype import Dtype
from isthmus.graph.node import Node

_EDGE = 3  # elements kept at either end of a long axis


class PrintOptions:
    """How arrays are printed.

    Args:
        precision: Digits after the point; -1 is six significant digits.
    """

    __slots__ = ("precision",)

    def __init__(self, precision: int = -1) -> None:
        self.precision = precision


_options = PrintOptions()


class PrintOptionsContext:
    """Options in force inside a `with`."""

    def __init__(self, precision: int) -> None:
        self.precision = precision

    def __enter__(self) -> PrintOptionsContext:
        self.before = _options.precision
        _options.precision = self.precision
        return self

    def __exit__(self, *exc: object) -> None:
        _options.precision = self.before


def printoptions(precision: int = -1) -> PrintOptionsContext:
    """Print with these options inside a `with`.

    Args:
        precision: Digits after the point; -1 is six significant digits.

    Example:
        >>> with mx.printoptions(precision=2):
        ...     print(mx.array(1 / 3))
        array(0.33, dtype=float32)
    """
    return PrintOptionsContext(precision)


def set_printoptions(precision: int = -1) -> None:
    """Print with these options from now on.

    Args:
        precision: Digits after the point; -1 is six significant digits.
    """
    _options.precision = precision


def get_printoptions() -> PrintOptions:
    """The options in force."""
    return PrintOptions(_options.precision)


def array_text(values: Any, dtype: Dtype) -> str:
    """`array(..., dtype=...)` of a NumPy array."""
    return f"array({_axis_text(values, dtype, 7)}, dtype={dtype.name})"


def _axis_text(values: Any, dtype: Dtype, indent: int) -> str:
    if values.ndim == 0:
        return _number_text(values[()], dtype)
    n = values.shape[0]
    shown: list[int | None] = list(range(n)) if n <= 2 * _EDGE else [*range(_EDGE), None, *range(n - _EDGE, n)]
    between = ", " if values.ndim == 1 else ",\n" + " " * indent
    return "[" + between.join("..." if k is None else _axis_text(values[k, ...], dtype, indent + 1) for k in shown) + "]"


def _number_text(value: Any, dtype: Dtype) -> str:
    if dtype.rank == 3:
        re, im = float(value.real), float(value.imag)
        return f"{_float_text(re)}{'' if im < 0 else '+'}{_float_text(im)}j"  # MLX writes 1+-0j
    return _float_text(float(value)) if dtype.rank == 2 else str(value)


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "-nan" if math.copysign(1.0, value) < 0 else "nan"
    precision = _options.precision
    if precision == -1:
        return f"{value:g}"
    return f"{value:.{precision if precision >= 0 else 6}f}"


def order(outputs: list[Node]) -> list[Node]:
    """The graph of `outputs`, inputs before what is made of them."""
    found: list[Node] = []
    seen: set[int] = set()
    stack = [(node, False) for node in reversed(outputs)]
    while stack:
        node, ready = stack.pop()
        if ready:
            found.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            if node.buffer is None:
                stack.extend((x, False) for x in reversed(node.inputs) if id(x) not in seen)
    return found


def show(*arrays: array | Node) -> str:
    """The graph of arrays as text, without evaluating it.

    A line names a node's dtype, sizes, op and arguments, then its attributes; dynamic numbers stand behind `|`.
    """
    return "\n".join(_lines([x._node if isinstance(x, array) else x for x in arrays]))


def _lines(outputs: list[Node]) -> Iterator[str]:
    nodes = order(outputs)
    number = {id(node): k for k, node in enumerate(nodes)}
    for k, node in enumerate(nodes):
        left = f"%{k}: {node.sig.dtype.name}[{', '.join(map(str, node.shape))}]"
        if node.buffer is not None:
            yield f"{left} = buffer"
            continue
        op, inputs, numbers = node.sig.op, [f"%{number[id(x)]}" for x in node.inputs], list(map(str, node.dyn))
        if isinstance(op, ElementwiseOp):  # numbers stand where the user gave them
            pattern, arrays, given = node.sig.attrs[0], iter(inputs), iter(numbers)
            words = [next(given) if pattern >> j & 1 else next(arrays) for j in range(op.arity)]
        else:
            words = [*inputs, *map(str, node.sig.attrs), *(["|", *numbers] if numbers else [])]
        yield " ".join([left, "=", op.name, *words])
