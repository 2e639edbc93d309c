"""`isthmus.checked()`: before a graph runs, every index array in it is evaluated and looked at, on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from isthmus.backends.cpu import memory as cpu_memory
from isthmus.graph.node import Node, where_made


def check_indices(outputs: list[Node], evaluate: Callable[[list[Node]], None]) -> None:
    """Look at every index array that `outputs` depend on.

    Raises:
        IndexError: an index is out of range, naming the op and the line that made it.
    """
    seen: set[int] = set()
    found: list[tuple[Node, Node, int]] = []
    stack = list(outputs)
    while stack:
        node = stack.pop()
        if id(node) in seen or node.buffer is not None:
            continue
        seen.add(id(node))
        stack.extend(node.inputs)
        rule = node.sig.op.indexed
        if rule is not None:
            found += [(node, node.inputs[k], axis) for k, axis in rule(node)]
    found.reverse()
    evaluate([index for _, index, _ in found])
    for node, index, axis in found:
        values = host_view(index)
        size = node.inputs[0].shape[axis]
        low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
        if low < -size or high >= size:
            wrong = high if high >= size else low
            raise IndexError(
                f"[{node.sig.op.name}] index {wrong} is out of range for axis {axis} of size {size} ({-size} to {size - 1}); "
                f"the op was made at {where_made(node)}."
            )


def host_view(node: Node) -> Any:
    """An evaluated node's values as a NumPy array on its memory."""
    if node.buffer is None:
        return node.sig.op.numpy(node, host_view(node.inputs[0]))  # type: ignore[attr-defined]
    nbytes = node.sig.dtype.size
    for size in node.shape:
        nbytes *= size
    return np.frombuffer(cpu_memory.buffer_view(node.buffer, 0, nbytes), node.sig.dtype.numpy).reshape(node.shape)
