"""The training step of MLX's MNIST example (784-32-32-10, batch 256, SGD), plain loop, evaluated each step, beside its peers.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python benchmarks/mnist_mlp.py [--rounds 3] [--compiled PATH]

Each peer runs in a process of its own with two threads, in turn, for some rounds; the table has the median of all timed
blocks of 100 steps, in microseconds a step, and the ratio to isthmus. `--compiled` names a folder with the build that mypyc
compiled (`make test-core` leaves one in build/mypyc).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

BATCH, SIZES, RATE, BLOCK = 256, (784, 32, 32, 10), 0.1, 100


def data():
    import numpy as np

    rng = np.random.default_rng(0)
    return rng.random((BATCH, SIZES[0]), np.float32), rng.integers(0, 10, BATCH)


def mlx_like(mx, nn, optim) -> Callable[[], None]:
    model = nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = optim.SGD(learning_rate=RATE)
    x, y = (mx.array(a) for a in data())
    mx.eval(model.parameters(), x, y)

    def loss_fn(model, x, y):
        return nn.losses.cross_entropy(model(x), y, reduction="mean")

    loss_and_grad = nn.value_and_grad(model, loss_fn)

    def step() -> None:
        _loss, grads = loss_and_grad(model, x, y)
        optimizer.update(model, grads)
        mx.eval(model.parameters(), optimizer.state)

    return step


def isthmus_step() -> Callable[[], None]:
    import isthmus.core as mx
    from isthmus import nn, optimizers

    return mlx_like(mx, nn, optimizers)


def mlx_step() -> Callable[[], None]:
    import mlx.core as mx
    from mlx import nn, optimizers

    return mlx_like(mx, nn, optimizers)


def torch_step() -> Callable[[], None]:
    import torch

    torch.set_num_threads(2)
    layers = torch.nn
    model = layers.Sequential(layers.Linear(784, 32), layers.ReLU(), layers.Linear(32, 32), layers.ReLU(), layers.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    x, y = (torch.tensor(a) for a in data())

    def step() -> None:
        optimizer.zero_grad()
        loss = layers.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    return step


def jax_step() -> Callable[[], None]:
    import jax
    import jax.numpy as jnp

    key = jax.random.key(0)
    params = [(jax.random.normal(key, (n, m)) * 0.05, jnp.zeros(n)) for m, n in zip(SIZES, SIZES[1:])]
    x, y = (jnp.array(a) for a in data())

    def loss(params, x, y):
        for k, (w, b) in enumerate(params):
            x = x @ w.T + b
            if k < len(params) - 1:
                x = jnp.maximum(x, 0)
        return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()

    @jax.jit
    def update(params, x, y):
        value, grads = jax.value_and_grad(loss)(params, x, y)
        return jax.tree.map(lambda p, g: p - RATE * g, params, grads), value

    def step() -> None:
        nonlocal params
        params, _value = update(params, x, y)
        jax.block_until_ready(params)

    return step


PEERS = {"isthmus": isthmus_step, "isthmus, mypyc": isthmus_step, "JAX jit": jax_step, "torch eager": torch_step, "MLX": mlx_step}


def child(name: str) -> None:
    step = PEERS[name]()
    for _ in range(10 if name == "MLX" else 50):
        step()
    times = []
    for _ in range(2 if name == "MLX" else 15):
        start = time.perf_counter()
        for _ in range(BLOCK):
            step()
        times.append((time.perf_counter() - start) / BLOCK * 1e6)
    print(json.dumps(times))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compiled", type=Path, default=Path("build/mypyc"))
    parser.add_argument("--child")
    args = parser.parse_args()
    if args.child:
        return child(args.child)
    found: dict[str, list[float]] = {}
    for _ in range(args.rounds):
        for name in PEERS:
            env = dict(os.environ, ISTHMUS_NUM_THREADS="2", OMP_NUM_THREADS="2")
            if name == "isthmus, mypyc":
                if not args.compiled.exists():
                    continue
                env["PYTHONPATH"] = str(args.compiled.resolve())
            try:
                run = subprocess.run([sys.executable, __file__, "--child", name], capture_output=True, text=True, env=env, check=True)
            except subprocess.CalledProcessError as e:
                print(f"{name} did not run: {e.stderr.strip().splitlines()[-1]}", file=sys.stderr)
                continue
            found.setdefault(name, []).extend(json.loads(run.stdout))
    ours = statistics.median(found.get("isthmus, mypyc") or found["isthmus"])
    print("| MNIST MLP step, 2 threads | median, us | least, us | times isthmus" + (" (mypyc)" if "isthmus, mypyc" in found else "") + " |")
    print("|---|---|---|---|")
    for name, times in found.items():
        print(f"| {name} | {statistics.median(times):.0f} | {min(times):.0f} | {statistics.median(times) / ours:.2f} |")


if __name__ == "__main__":
    main()
