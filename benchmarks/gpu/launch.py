"""What a small kernel costs: chains of them, and the wait for one number. Microseconds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from common import Item, Setup, micros

PAIRS, WIDTH = 10, 64


def items(s: Setup) -> list[Item]:
    steps, least_n = s.size((400, 256), (6, 16))
    adds = s.size(1000, 50)

    # --- 20 dependent kernels: each is a sum over what the one before made, so that no two are one kernel ---

    @cache
    def chain_inputs() -> tuple[Any, Any]:
        return s.draw(least_n + 2 * steps, WIDTH), s.draw(WIDTH)

    def chain(x: Any, h: Any, n: int, axis: str) -> Any:
        part = x[:n]
        for _ in range(PAIRS):
            rows = (part * h).sum(**{axis: 1}).reshape(n, 1)
            h = (part * rows).mean(**{axis: 0})
        return h

    def sizes(turn: int) -> range:
        """A slice that grows by a row a step; the second turn, which is timed, has sizes that the first has not seen."""
        return range(least_n + turn * steps, least_n + (turn + 1) * steps)

    def chain_checked() -> tuple[Any, Any, float]:
        x, h = chain_inputs()
        mine = s.to_isthmus(x), s.to_isthmus(h)
        error = 0.0
        for n in (least_n, least_n + 1, least_n + 7):
            error = max(error, s.error(chain(*mine, n, "axis"), chain(x.double(), h.double(), n, "dim"), "float32", 1e-4))
        return *mine, error

    def chain_torch() -> dict[str, Any]:
        x, h = chain_inputs()
        for turn in range(2):
            start = time.perf_counter()
            for n in sizes(turn):
                chain(x, h, n, "dim")
            s.torch_wait()
        return {"value": (time.perf_counter() - start) / steps * 1e6}

    def chain_loop(wait: bool) -> Callable[[], dict[str, Any]]:
        def run() -> dict[str, Any]:
            mx = s.mx
            x, h, error = chain_checked()
            evaluate = mx.eval if wait else mx.async_eval
            for turn in range(2):
                mx.synchronize()
                start = time.perf_counter()
                for n in sizes(turn):
                    evaluate(chain(x, h, n, "axis"))
                mx.synchronize()
                total = time.perf_counter() - start
            return {"value": total / steps * 1e6, "error": error}

        return run

    @cache
    def replayed() -> tuple[float, float, float, float]:
        """Microseconds a step: all of it, the host's part, and the making of the graph, which is not in either."""
        mx = s.mx
        x, h, error = chain_checked()
        for turn in range(2):
            start = time.perf_counter()
            graphs = [chain(x, h, n, "axis") for n in sizes(turn)]
            made = time.perf_counter()
            host = []
            mx.synchronize()
            begin = time.perf_counter()
            for y in graphs:
                before = time.perf_counter()
                mx.async_eval(y)
                host.append(time.perf_counter() - before)
            mx.synchronize()
            end = time.perf_counter()
        # The first calls find the queue empty; later ones may wait for the GPU and would say nothing of the host.
        return (end - begin) / steps * 1e6, statistics.median(host[: max(20, steps // 10)]) * 1e6, (made - start) / steps * 1e6, error

    # --- 1,000 adds ---

    @cache
    def pair() -> tuple[Any, Any]:
        return s.draw(1024), s.draw(1024)

    def adds_isthmus(evaluate: str) -> Callable[[], dict[str, Any]]:
        def run() -> dict[str, Any]:
            mx = s.mx
            tx, ty = pair()
            first, y = s.to_isthmus(tx), s.to_isthmus(ty)
            each = {"one": None, "each": mx.eval, "async": mx.async_eval}[evaluate]
            x = first

            def loop() -> Any:
                nonlocal x
                x = first
                for _ in range(adds):
                    x = x + y
                    if each is not None:
                        each(x)
                mx.eval(x)
                return x

            reference = tx.clone()
            for _ in range(adds):
                reference += ty
            error = s.error(loop(), reference.double(), "float32")
            found = s.time(loop, lambda _: None)
            return {"value": found["alone"] / adds * 1e6, "error": error}

        return run

    def adds_torch(each: bool) -> Callable[[], dict[str, Any]]:
        def run() -> dict[str, Any]:
            first, y = pair()

            def loop() -> Any:
                x = first
                for _ in range(adds):
                    x = x + y
                    if each:
                        s.torch_wait()
                s.torch_wait()
                return x

            return {"value": s.time(loop, lambda _: None)["alone"] / adds * 1e6}

        return run

    def adds_jax(each: bool) -> Callable[[], dict[str, Any]]:
        def run() -> dict[str, Any]:
            first, y = (s.to_jax(x) for x in pair())

            def loop() -> Any:
                x = first
                for _ in range(adds):
                    x = x + y
                    if each:
                        x.block_until_ready()
                return x.block_until_ready()

            return {"value": s.time(loop, lambda _: None)["alone"] / adds * 1e6}

        return run

    # --- one op and the wait for it ---

    def single(x: Any, y: Any, call: Callable[[Any, Any], Any]) -> dict[str, Any]:
        def many() -> None:
            for _ in range(s.size(200, 5)):
                call(x, y)

        found = s.time(many, lambda _: None)
        return {k: v / s.size(200, 5) for k, v in micros(found).items()}

    def tiny_isthmus() -> dict[str, Any]:
        tx, ty = pair()
        x, y = s.to_isthmus(tx), s.to_isthmus(ty)
        error = s.error(x + y, tx.double() + ty.double(), "float32")
        return {**single(x, y, lambda x, y: s.mx.eval(x + y)), "error": error}

    def tiny_torch() -> dict[str, Any]:
        def call(x, y):
            x + y
            s.torch_wait()

        return single(*pair(), call)

    def tiny_jax() -> dict[str, Any]:
        f = s.jax.jit(lambda x, y: x + y)
        return single(*(s.to_jax(x) for x in pair()), lambda x, y: f(x, y).block_until_ready())

    def item_isthmus() -> dict[str, Any]:
        tx, ty = (x[:1] for x in pair())
        x, y = s.to_isthmus(tx), s.to_isthmus(ty)
        assert (x + y).item() == (tx + ty).item(), "wrong result"
        return {**single(x, y, lambda x, y: (x + y).item()), "error": 0.0}

    def item_torch() -> dict[str, Any]:
        return single(*(x[:1] for x in pair()), lambda x, y: (x + y).item())

    def item_jax() -> dict[str, Any]:
        f = s.jax.jit(lambda x, y: x + y)
        return single(*(s.to_jax(x[:1].clone()) for x in pair()), lambda x, y: f(x, y).item())

    def part(k: int) -> Callable[[], dict[str, Any]]:
        return lambda: {"value": replayed()[k], "error": replayed()[3]}

    loop = "20 kernels, sizes change, us a step"
    thousand = f"{adds} adds of 1,024, us an op"
    found = [
        Item(f"{loop}: loop, async_eval", "torch", "us", chain_torch),
        Item(f"{loop}: loop, async_eval", "isthmus", "us", chain_loop(wait=False)),
        Item(f"{loop}: loop, eval", "isthmus", "us", chain_loop(wait=True), peers=f"{loop}: loop, async_eval"),
        Item(f"{loop}: replay of graphs made before", "isthmus", "us", part(0), 20, f"{loop}: loop, async_eval"),
        Item(f"{loop}: host's part of that", "isthmus", "us", part(1), 6),
        Item(f"{loop}: making the graph", "isthmus", "us", part(2)),
    ]
    for how, name, each, goal in (("one", "one eval", False, 1.5), ("async", "async_eval each", False, None), ("each", "eval each", True, None)):
        row = f"{thousand}: {name}"
        if how != "async":
            found += [Item(row, "torch", "us", adds_torch(each)), Item(row, "JAX", "us", adds_jax(each))]
        found.append(Item(row, "isthmus", "us", adds_isthmus(how), goal, f"{thousand}: one eval" if how == "async" else None))
    return found + [
        Item("x + y and wait", "torch", "us", tiny_torch),
        Item("x + y and wait", "JAX", "us", tiny_jax),
        Item("x + y and wait", "isthmus", "us", tiny_isthmus, 12),
        Item("(x + y).item()", "torch", "us", item_torch),
        Item("(x + y).item()", "JAX", "us", item_jax),
        Item("(x + y).item()", "isthmus", "us", item_isthmus, 12),
    ]
