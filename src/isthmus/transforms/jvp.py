"""`jvp`: tangents carried forwards through the graph of a traced function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from isthmus.graph.array import array, cast_node, node_of, wrap
from isthmus.graph.node import TRACE, Node
from isthmus.ops.create import zeros_node
from isthmus.transforms.trace import Sources, arrays_of, checked_callable, flat_outputs, order, tracing


def forward(outputs: Sequence[Node], tangents: Sequence[array], sources: Sequence[Node]) -> list[array | None]:
    """The tangents of `outputs` from those of `sources`; None where an output does not vary."""
    found = order(outputs, sources)
    first = len(sources)
    ts: list[array | None] = list(tangents)
    try:
        for y, above in zip(found.nodes[first:], found.inputs, strict=True):
            given = [ts[a] if a >= 0 else None for a in above]
            t = None
            if any(g is not None for g in given):
                TRACE.code = y.code
                TRACE.lasti = y.lasti
                t = y.sig.op.jvp(y, array(y), given)
            ts.append(t)
    finally:
        TRACE.code = None
    return [ts[at] if at >= 0 else None for at in found.outputs]


def jvp(fun: Callable[..., Any], primals: Sequence[array], tangents: Sequence[array]) -> tuple[list[array], list[array]]:
    """The product of the Jacobian of a function with tangents.

    Args:
        fun: Takes the primals as separate arguments; returns an array or a list of arrays.
        primals: Where the Jacobian is taken.
        tangents: One for each primal, of its shape.

    Returns:
        The outputs of `fun`, and a tangent for each of them (zeros where it does not vary).

    Raises:
        TypeError: `primals` or `tangents` are not lists of arrays, or `fun` returned something else.
        ValueError: Number or shapes of `tangents` differ from those of `primals`.

    Example:
        >>> mx.jvp(mx.square, [mx.array(3.0)], [mx.array(1.0)])
        ([array(9, dtype=float32)], [array(6, dtype=float32)])
    """
    checked_callable("jvp", fun)
    xs, ts = arrays_of("jvp", "primals", primals), arrays_of("jvp", "tangents", tangents)
    if len(xs) != len(ts):
        raise ValueError(f"[jvp] Number of inputs does not match number of tangents: {len(xs)} and {len(ts)}.")
    for x, t in zip(xs, ts, strict=True):
        if x.shape != t.shape:
            raise ValueError(f"[jvp] Input shape does not match shape of tangent: {x.shape} and {t.shape}.")
    sources = Sources()
    with tracing:
        try:
            outputs = flat_outputs("jvp", fun(*[sources.add(x) for x in xs]))
            nodes = [node_of(y) for y in outputs]
        finally:
            sources.restore()
        brought = [wrap(cast_node(node_of(t), x.dtype, node_of(x).sig.stream)) for x, t in zip(xs, ts, strict=True)]
        found = forward(nodes, brought, sources.nodes)
    return outputs, [t if t is not None else wrap(zeros_node(y.shape, y.sig.dtype, y.sig.stream)) for t, y in zip(found, nodes, strict=True)]
