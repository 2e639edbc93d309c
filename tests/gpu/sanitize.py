"""The kernels that are written by hand, at small sizes, for compute-sanitizer: `make sanitize-gpu`."""

from __future__ import annotations

import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src"))

import isthmus.core as mx


def main() -> None:
    rng = np.random.default_rng(0)
    draw = lambda *shape: mx.array(rng.standard_normal(shape).astype(np.float32))
    for m, n, k in [(5, 3, 70), (33, 40, 300), (64, 10, 32), (130, 70, 100)]:
        for dtype in (mx.float32, mx.bfloat16, mx.float64, mx.complex64):
            mx.eval(draw(m, k).astype(dtype) @ draw(k, n).astype(dtype), mx.addmm(draw(n).astype(dtype), draw(k, m).astype(dtype).T, draw(n, k).astype(dtype).T))
    for n in (65, 5000, 20_000):
        i = mx.array(rng.integers(0, 50, n).astype(np.int32))
        mx.eval(mx.zeros((50, 8)).at[i].add(draw(n, 8)), mx.zeros((50,)).at[i].maximum(draw(n)))
        y = mx.zeros((50, 3))
        y[i] = draw(n, 3)
        mx.eval(y)
    for n, length in [(3, 100), (3, 3000), (2, 9000), (300, 20_000), (2, 40_000)]:
        x = draw(n, length)
        mx.eval(mx.softmax(x, -1), x.sum(0), x.sum(), mx.argmax(x, -1), x.T + draw(length, n))
    mx.eval(mx.random.normal((1001,)), mx.random.randint(0, 10, (77,)))
    x = draw(64, 64)
    for _ in range(6):  # the third time it becomes a graph, whose first node writes the table
        x = mx.softmax(x @ x.T, -1).sum(0, keepdims=True) + x
        mx.eval(x)
    print("done")


if __name__ == "__main__":
    main()
