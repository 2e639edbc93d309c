"""The training step of MLX's MNIST example (benchmarks/mnist_mlp.py) on the GPU: microseconds a step."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import mnist_mlp
from common import Item, Setup


def items(s: Setup) -> list[Item]:
    block, blocks, warm = s.size((200, 5 if s.quick else 9, 50), (3, 2, 2))
    checked = 20

    def timed(step: Callable[[], Any], wait: Callable[[], Any]) -> dict[str, Any]:
        for _ in range(warm):
            step()
        wait()
        times = []
        for _ in range(blocks):
            start = time.perf_counter()
            for _ in range(block):
                step()
            wait()
            times.append((time.perf_counter() - start) / block * 1e6)
        value = statistics.median(times)
        return {"value": value, "least_us": min(times), "most_us": max(times), "note": f"{1e6 / value:,.0f} steps/s"}

    def isthmus_step(asynchronous: bool) -> tuple[Callable[[], Any], Any]:
        mx = s.mx
        from isthmus import nn, optimizers

        model = nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))
        optimizer = optimizers.SGD(learning_rate=mnist_mlp.RATE)
        x, y = (mx.array(a) for a in mnist_mlp.data())
        mx.eval(model.parameters(), x, y)
        loss_and_grad = nn.value_and_grad(model, lambda model, x, y: nn.losses.cross_entropy(model(x), y, reduction="mean"))
        evaluate = mx.async_eval if asynchronous else mx.eval

        def step() -> Any:
            loss, grads = loss_and_grad(model, x, y)
            optimizer.update(model, grads)
            evaluate(model.parameters(), optimizer.state)
            return loss

        return step, model

    def torch_step(state: list[Any] | None = None, double: bool = False) -> Callable[[], Any]:
        torch = s.torch
        torch.set_grad_enabled(True)
        layers = torch.nn
        model = layers.Sequential(layers.Linear(784, 32), layers.ReLU(), layers.Linear(32, 32), layers.ReLU(), layers.Linear(32, 10)).to(s.torch_device)
        x, y = (torch.tensor(a, device=s.torch_device) for a in mnist_mlp.data())
        if double:
            model, x = model.double(), x.double()
        if state is not None:
            with torch.no_grad():
                for p, value in zip(model.parameters(), state, strict=True):
                    p.copy_(torch.tensor(value))
        optimizer = torch.optim.SGD(model.parameters(), lr=mnist_mlp.RATE)

        def step() -> Any:
            optimizer.zero_grad()
            loss = layers.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    def run_isthmus(asynchronous: bool) -> dict[str, Any]:
        import numpy as np

        step, model = isthmus_step(asynchronous)
        state = [np.array(layer[name]) for layer in model.layers if "weight" in layer for name in ("weight", "bias")]
        theirs = torch_step(state, double=True)
        for _ in range(checked):
            ours, reference = step(), theirs()
        error = abs(ours.item() / reference.item() - 1)
        assert error < 1e-4, f"wrong result: after {checked} steps the loss is {ours.item()}, torch's in float64 {reference.item()}"
        return {**timed(step, s.mx.synchronize), "error": error}

    def run_torch(wait_each: bool) -> dict[str, Any]:
        step = torch_step()

        def waiting() -> None:
            step()
            s.torch_wait()

        return timed(waiting if wait_each else step, s.torch_wait)

    def run_jax(wait_each: bool) -> dict[str, Any]:
        assert s.jax
        if wait_each:
            return timed(mnist_mlp.jax_step(), lambda: None)
        # The step of mnist_mlp.py without its wait, which comes once a block.
        jax, last = s.jax, []
        wait = jax.block_until_ready
        jax.block_until_ready = lambda x: last.__setitem__(slice(None), [x])
        try:
            return timed(mnist_mlp.jax_step(), lambda: wait(last))
        finally:
            jax.block_until_ready = wait

    each, free = "wait each step (isthmus: eval)", "no wait (isthmus: async_eval)"
    return [
        Item(each, "torch", "us", lambda: run_torch(True)),
        Item(each, "JAX jit", "us", lambda: run_jax(True)),
        Item(each, "isthmus", "us", lambda: run_isthmus(False), 1e6 / 5000),
        Item(free, "torch", "us", lambda: run_torch(False)),
        Item(free, "JAX jit", "us", lambda: run_jax(False)),
        Item(free, "isthmus", "us", lambda: run_isthmus(True), 1e6 / 7000),
    ]
