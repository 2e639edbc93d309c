"""Cost of the graph itself, in one run with the MLX wheel: making a node, building and replaying a chain, a new binding.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python benchmarks/graph.py

Times are minima of interleaved rounds, in microseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import isthmus
import isthmus.core as ix
from isthmus.schedule import run as schedule

OPS = 1000


def chain(mx: Any) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """Building a chain of adds of two arrays of four numbers, and evaluating it."""
    x, one = mx.ones((4,)), mx.ones((4,))
    mx.eval(x, one)

    def build() -> Any:
        y = x
        for _ in range(OPS):
            y = y + one
        return y

    return build, mx.eval


def mixed(mx: Any) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """The same of public functions and Python numbers."""
    x = mx.ones((4,))
    mx.eval(x)

    def build() -> Any:
        y = x
        for _ in range(OPS // 4):
            y = mx.sin(y)
            y = y * 0.5
            y = mx.maximum(y, x)
            y = 1.0 - y
        return y

    return build, mx.eval


def measure(sides: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]], rounds: int = 40) -> dict[str, tuple[float, float]]:
    best = dict.fromkeys(sides, (1000000000.0, 1000000000.0))
    for _ in range(rounds):
        for name, (build, evaluate) in sides.items():
            start = time.perf_counter()
            y = build()
            middle = time.perf_counter()
            evaluate(y)
            end = time.perf_counter()
            del y
            a, b = best[name]
            best[name] = (min(a, middle - start), min(b, end - start))
    return {name: (a * 1e6 / OPS, b * 1e6 / OPS) for name, (a, b) in best.items()}


def binding() -> tuple[float, int]:
    """What a new size costs beyond a hit, with an MLP's forward and gradient whose batch grows by one."""
    w1, w2 = ix.array(np.ones((32, 64), np.float32)), ix.array(np.ones((8, 32), np.float32))
    ix.eval(w1, w2)

    def graph(n: int) -> list[Any]:
        x = xs[n]
        loss, grads = ix.value_and_grad(lambda a, b: (ix.maximum(x @ a.T, 0) @ b.T).square().mean(), argnums=(0, 1))(w1, w2)
        return [loss, *grads]

    xs = {n: ix.array(np.ones((n, 64), np.float32)) for n in range(2, 300)}
    ix.eval(list(xs.values()))
    for n in (2, 3, 299):
        ix.eval(graph(n))
    fresh, again, nodes = [], [], 0
    for n in range(4, 200):
        for times in (fresh, again):
            nodes_of = [a._node for a in graph(n)]
            start = time.perf_counter()
            schedule.evaluate(nodes_of)
            times.append(time.perf_counter() - start)
    plan = max(schedule.plans(), key=lambda p: len(p.bindings))
    nodes = len(plan.nodes)
    return float(np.median(fresh) - np.median(again)) * 1e6, nodes


def main() -> None:
    import mlx.core as peer

    compiled = "mypyc" if isthmus.stats()["compiled"] else "plain CPython"
    print(f"isthmus runs as {compiled}; MLX {peer.__version__}\n")
    print("| chain of 1,000 | isthmus, us a node | MLX | ratio | build + eval, us an op | MLX | ratio |")
    print("|---|---|---|---|---|---|---|")
    for title, make in (("x + y", chain), ("functions and numbers", mixed)):
        found = measure({"isthmus": make(ix), "mlx": make(peer)})
        a, b = found["isthmus"], found["mlx"]
        print(f"| {title} | {a[0]:.3f} | {b[0]:.3f} | {a[0] / b[0]:.2f} | {a[1]:.3f} | {b[1]:.3f} | {a[1] / b[1]:.2f} |")
    median, nodes = binding()
    print(f"\nA new binding of a plan of {nodes} nodes: {median:.1f} us more than a hit (goal {5 + 0.2 * nodes:.1f}).")


if __name__ == "__main__":
    main()
