"""Every form of kernel on a GPU, against the CPU backend: run by hand, `python tests/gpu/check_kernels.py`.

A line for each program that is wrong, and a count; exit code 1 if there is one. Sizes lie around the edges of tiles, packs,
chunks and blocks. Forms that only large arrays ask for are asked for here by small ones too.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src"))

import isthmus.core as mx
from isthmus import nn
from isthmus.backends.cuda import render, render_map

FLOATS = [mx.float32, mx.bfloat16, mx.float16, mx.float64]
# Allowed difference as a part of the largest value: the CPU adds in another order.
TOLERANCE = {mx.float32: 2e-5, mx.bfloat16: 2e-2, mx.float16: 2e-3, mx.float64: 1e-12, mx.complex64: 2e-5}
Program = Callable[..., Any]


def maps() -> Iterator[tuple[str, Program, list[tuple[int, ...]]]]:
    for shape in [(1,), (7,), (4096,), (4100,), (33, 64), (37, 65), (5, 3, 128), (130, 1024)]:
        yield f"gelu {shape}", lambda x, w: nn.gelu(x * w + w), [shape, shape[-1:]]
        yield f"softsign by rows {shape}", lambda x, s: mx.tanh(x / s) * s + x / 3, [shape, (*shape[:-1], 1)]
    for shape in [(64, 64), (128, 64), (65, 130), (16, 17), (100, 63), (3, 64, 128), (2, 70, 33)]:
        turned = (*shape[:-2], shape[-1], shape[-2])
        yield f"transposed add {shape}", lambda a, b: mx.swapaxes(a, -1, -2) + b, [turned, shape]
        yield f"two transposed {shape}", lambda a, b: mx.exp(mx.swapaxes(a, -1, -2)) * mx.swapaxes(b, -1, -2)[..., :1, :], [turned, turned]


def rows() -> Iterator[tuple[str, Program, list[tuple[int, ...]]]]:
    for n, length in itertools.product((1, 3, 70), (1, 31, 32, 257, 1024, 1032, 4096, 4104, 9000)):
        yield f"softmax {n}x{length}", lambda x: mx.softmax(x, -1), [(n, length)]
        yield f"rms {n}x{length}", lambda x, w: x * mx.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w, [(n, length), (length,)]
        yield f"max, argmax {n}x{length}", lambda x: x.max(-1) + mx.argmax(x, -1).astype(x.dtype), [(n, length)]
    for length in (16384, 16388, 40000, 131072, 131073, 300000):
        yield f"softmax 2x{length}", lambda x: mx.softmax(x, -1), [(2, length)]
        yield f"sums 2x{length}", lambda x: x.mean(-1), [(2, length)]


def columns() -> Iterator[tuple[str, Program, list[tuple[int, ...]]]]:
    for n, width in itertools.product((1, 8, 63, 64, 65, 1000, 20000), (1, 3, 32, 100, 256)):
        yield f"sum of columns {n}x{width}", lambda x: x.mean(0), [(n, width)]
        yield f"max, argmax of columns {n}x{width}", lambda x: x.max(0) + mx.argmax(x, 0).astype(x.dtype), [(n, width)]
    yield "middle axis", lambda x: x.mean(1), [(5, 700, 40)]
    yield "all", lambda x: x.mean(), [(300, 700)]


def products() -> Iterator[tuple[str, Program, list[tuple[int, ...]]]]:
    for m, n, k in [(1, 1, 1), (5, 3, 70), (33, 40, 300), (256, 32, 784), (784, 32, 256), (256, 10, 32), (64, 64, 513), (1, 4096, 1024), (130, 70, 1000), (300, 300, 300)]:
        yield f"product {m}x{k}x{n}", lambda a, b: a @ b / 10, [(m, k), (k, n)]
        yield f"turned product {m}x{k}x{n}", lambda a, b: mx.addmm(mx.ones((b.shape[0],), dtype=a.dtype), a.T, b.T) / 10, [(k, m), (n, k)]
    yield "products of many axes", lambda a, b: a @ b, [(2, 1, 3, 1, 2, 5, 7), (1, 2, 1, 3, 2, 7, 4)]


def compare(name: str, program: Program, shapes: list[tuple[int, ...]], dtype: Any) -> str:
    rng = np.random.default_rng(0)
    drawn = [rng.standard_normal(shape).astype(np.float32) + (0.1 if k else 0) for k, shape in enumerate(shapes)]
    out = []
    for device in (mx.gpu, mx.cpu):
        with mx.stream(device):
            y = program(*[mx.array(x).astype(dtype) for x in drawn])
            out.append(np.asarray(y.astype(mx.float64 if dtype is not mx.complex64 else dtype)))
    got, want = out
    if got.shape != want.shape:
        return f"{name} {dtype}: shape {got.shape}, not {want.shape}"
    error = np.abs(got - want).max(initial=0) / max(1.0, np.abs(want).max(initial=0))
    return "" if error <= TOLERANCE[dtype] else f"{name} {dtype}: off by {error:.3g}"


def main() -> int:
    wrong, count = [], 0
    for small in (False, True):
        if small:
            render_map.MANY_PACKS, render_map.LONG = 1, 0
            render._rendered.clear()
            from isthmus.schedule.run import _families

            _families.clear()
        groups = [maps()] if small else [maps(), rows(), columns(), products()]
        for name, program, shapes in itertools.chain(*groups):
            for dtype in FLOATS:
                try:
                    said = compare(name, program, shapes, dtype)
                except Exception as error:
                    said = f"{name} {dtype}: {type(error).__name__}: {str(error)[:300]}"
                count += 1
                if said:
                    wrong.append(said)
                    print(said, flush=True)
                    if "lost" in said:
                        return 1
    print(f"{count} programs, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
