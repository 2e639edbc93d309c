"""How long a fresh process takes to its first results: seconds from after the import. Caches are in a folder of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from typing import Any

from common import Item, Setup

ISTHMUS = """
import json, sys, time
start = time.perf_counter()
import isthmus.core as mx
imported = time.perf_counter()
if sys.argv[1] == "cpu":
    mx.set_default_device(mx.cpu)
import numpy as np
a = np.random.default_rng(0).random(1000, np.float32)
before = time.perf_counter()
x = mx.array(a)
y = x * 2 + 1
mx.eval(y)
first = time.perf_counter()
z = mx.tanh(y) * mx.sigmoid(x - 0.5) + mx.sqrt(x)
mx.eval(z)
fused = time.perf_counter()
r = mx.sum(mx.exp(z - mx.max(z)) * x)
mx.eval(r)
second = time.perf_counter()
mx.eval(mx.tanh(y) * mx.sigmoid(x - 0.5) + mx.sqrt(x))
again = time.perf_counter()
d = a.astype(np.float64)
e = np.tanh(2 * d + 1) / (1 + np.exp(0.5 - d)) + np.sqrt(d)
assert np.allclose(np.array(z), e, 1e-5, 1e-6), "wrong result"
assert np.allclose(r.item(), (np.exp(e - e.max()) * d).sum(), 1e-5), "wrong result"
print(json.dumps(dict(imports=imported - start, first=first - before, fused=fused - first, reduce=second - fused, again=again - second)))
"""

TORCH = """
import json, sys, time
start = time.perf_counter()
import torch
imported = time.perf_counter()
import numpy as np
a = np.random.default_rng(0).random(1000, np.float32)
before = time.perf_counter()
y = (torch.from_numpy(a).to("cuda" if sys.argv[1] == "gpu" else "cpu") * 2 + 1).cpu()
print(json.dumps(dict(imports=imported - start, first=time.perf_counter() - before)))
"""

JAX = """
import json, sys, time
start = time.perf_counter()
import jax, jax.numpy as jnp
imported = time.perf_counter()
import numpy as np
a = np.random.default_rng(0).random(1000, np.float32)
before = time.perf_counter()
x = jnp.asarray(a)
y = jax.jit(lambda x: x * 2 + 1)(x).block_until_ready()
first = time.perf_counter()
z = jax.jit(lambda x, y: jnp.tanh(y) * jax.nn.sigmoid(x - 0.5) + jnp.sqrt(x))(x, y).block_until_ready()
fused = time.perf_counter()
r = jax.jit(lambda x, z: (jnp.exp(z - z.max()) * x).sum())(x, z).block_until_ready()
print(json.dumps(dict(imports=imported - start, first=first - before, fused=fused - first, reduce=time.perf_counter() - fused)))
"""


def items(s: Setup) -> list[Item]:
    @cache
    def process(program: str, temperature: str) -> dict[str, float]:
        """The times of one process with an empty cache, or, once that has run, of the best of two that find it full."""
        if temperature == "warm":
            process(program, "cold")
        folder = os.path.join(tempfile.gettempdir(), f"isthmus-bench-start-{os.getpid()}")
        if temperature == "cold":
            shutil.rmtree(folder, ignore_errors=True)
        env = dict(os.environ, ISTHMUS_CACHE_DIR=folder, CUDA_CACHE_PATH=os.path.join(folder, "driver"))
        found = []
        for _ in range(2 if temperature == "warm" else 1):
            run = subprocess.run([sys.executable, "-c", program, s.device], capture_output=True, text=True, env=env, timeout=120)
            if run.returncode:
                raise RuntimeError((run.stderr.strip().splitlines() or [f"exit status {run.returncode}"])[-1])
            found.append(json.loads(run.stdout.strip().splitlines()[-1]))
        if temperature == "warm":
            shutil.rmtree(folder, ignore_errors=True)
        return min(found, key=lambda times: times["first"])

    def part(program: str, temperature: str, name: str) -> Callable[[], dict[str, Any]]:
        return lambda: {"value": process(program, temperature)[name]}

    found = []
    for row, temperature, name, goal in (
        ("import", "cold", "imports", None),
        ("first result, cold caches", "cold", "first", None),
        ("a fused kernel, cold", "cold", "fused", 0.1),
        ("a fused row kernel, cold", "cold", "reduce", 0.1),
        ("import, again", "warm", "imports", None),
        ("first result, warm disk cache", "warm", "first", 0.5),
        ("a fused kernel, warm disk cache", "warm", "fused", None),
        ("the fused kernel again, same process", "warm", "again", None),
    ):
        if temperature == "cold":
            if name in ("imports", "first"):
                found.append(Item(row, "torch", "s", part(TORCH, "cold", name)))
            found.append(Item(row, "JAX jit", "s", part(JAX, "cold", name)))
        found.append(Item(row, "isthmus", "s", part(ISTHMUS, temperature, name), goal))
    return found
