"""20,000 training steps in a plain loop: memory of the GPU and of the process stay within 1 % of what they were after 1,000.

    python tests/gpu/soak.py [steps]
"""

from __future__ import annotations

import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src"))

import isthmus
import isthmus.core as mx
from isthmus import nn, optimizers


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    rng = np.random.default_rng(0)
    images, labels = rng.standard_normal((4096, 784)).astype(np.float32), rng.integers(0, 10, 4096).astype(np.int32)
    model = nn.Sequential(nn.Linear(784, 32), nn.relu, nn.Linear(32, 32), nn.relu, nn.Linear(32, 10))
    optimizer = optimizers.Adam(learning_rate=1e-3)
    step = nn.value_and_grad(model, lambda m, x, y: nn.losses.cross_entropy(m(x), y, reduction="mean"))
    first: tuple[int, int] | None = None
    losses = []
    for k in range(steps):
        at = k * 256 % 4096
        n = 256 if k % 16 else 200  # a short batch now and then
        loss, gradients = step(model, mx.array(images[at : at + n]), mx.array(labels[at : at + n]))
        optimizer.update(model, gradients)
        if k % 3:
            mx.async_eval(loss, model.parameters(), optimizer.state)
        else:
            mx.eval(loss, model.parameters(), optimizer.state)
        if k % 1000 == 999:
            mx.synchronize()
            losses.append(loss.item())
            now = mx.get_active_memory(), resident()
            if first is None:
                first = now
            print(f"step {k + 1}: {now[0]} bytes in use, {now[1] / 1e6:.1f} MB resident, loss {losses[-1]:.4f}, plans {isthmus.stats()['plans']}", flush=True)
    assert first is not None
    grown = [(b - a) / a for a, b in zip(first, (mx.get_active_memory(), resident()), strict=True)]
    print(f"grown since step 1,000: in use {grown[0]:.2%}, resident {grown[1]:.2%}")
    return 0 if max(grown) <= 0.01 and losses[-1] < losses[0] else 1


if __name__ == "__main__":
    raise SystemExit(main())
