"""Scatter kernels: stores at computed places, which may meet, in row-major order of the frame.

Axes that no computed index depends on are *free*: places that differ in them never meet. A thread takes one place of the
free axes, and walks the others in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus.backends.cuda.emit import Emitter
from isthmus.kernel.graph import Graph, walk_roots

if TYPE_CHECKING:
    from isthmus.backends.cuda.render import Rendered

BLOCK = 256


def scatter_launch(r: Rendered, sizes: tuple[int, ...], numbers: tuple[int, ...]) -> tuple[tuple[tuple[int, int, int], ...], int, tuple[int, ...]]:
    free = free_axes(r.graph)
    (number,) = r.variant("serial", lambda symbol: [serial_entry(r.graph, symbol, free)])
    return ((number, -(-r.count(sizes, free) // BLOCK), BLOCK),), 0, ()


def free_axes(graph: Graph) -> list[int]:
    kernel = graph.kernel
    keys: set[object] = set()
    for store in kernel.stages[0].stores:
        for e, _ in store.index.values:
            keys |= graph.nodes[graph.number(e)].deps
        if store.mask is not None:
            keys |= graph.nodes[graph.number(store.mask)].deps
        steps = [stride for _, stride in store.index.values]
        keys |= {axis for axis, stride in store.index.terms if stride in steps}
        keys |= set(range(len(kernel.axes))) - {axis for axis, _ in store.index.terms}
    return [k for k in range(len(kernel.axes)) if k not in keys]


def serial_entry(graph: Graph, symbol: str, free: list[int]) -> Emitter:
    em = Emitter(graph, symbol, BLOCK)
    stage = graph.kernel.stages[0]
    keys = [k for k in range(len(graph.kernel.axes)) if k not in free]
    em.do(f"const i64 unit = i64(blockIdx.x) * {BLOCK} + threadIdx.x;")
    em.do(f"if (unit >= {' * '.join(em.sizes[k] for k in free) or '1'}) return;")
    em.coordinates("unit", free, em.axes)
    with em.block_of(f"for (i64 i = 0; i < {' * '.join(em.sizes[k] for k in keys) or '1'}; i++)"):
        em.coordinates("i", keys, em.axes)
        em.prepare(walk_roots(graph, stage), 1, "1")
        for store in stage.stores:
            em.put(store, lane=False)
    return em
