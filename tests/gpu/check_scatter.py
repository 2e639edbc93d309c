"""Scatters on a GPU: values against the CPU backend, the same bits at every run; then how fast. Run by hand: `python tests/gpu/check_scatter.py`.

A line for each that is wrong, and a count; exit code 1 if there is one.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src"))

import isthmus.core as mx

DTYPES = [mx.float32, mx.bfloat16, mx.float16, mx.float64, mx.complex64, mx.int32, mx.uint8, mx.int64]
TOLERANCE = {mx.float32: 3e-5, mx.bfloat16: 3e-2, mx.float16: 4e-3, mx.float64: 1e-12, mx.complex64: 3e-5}
rng = np.random.default_rng(0)


def keys() -> Iterator[tuple[str, Any, int]]:
    """Name, keys, rows of the destination."""
    for n in (1, 63, 64, 65, 128, 129, 1000, 4095, 4096, 4097, 20000):
        yield f"{n} at random", rng.integers(0, max(1, n // 2), n), max(1, n // 2)
        yield f"{n} equal", np.full(n, 3), 5
        yield f"{n} sorted", np.sort(rng.integers(0, 40, n)), 40
        yield f"{n} negative", rng.integers(-300, 300, n), 300
    yield "many rows", rng.integers(0, 70000, 9000), 70000
    yield "more rows", rng.integers(0, 20_000_000, 3000), 20_000_000


def drawn(shape: tuple[int, ...]) -> Any:
    return rng.integers(-3, 4, shape).astype(np.float32) + (rng.standard_normal(shape).astype(np.float32) / 8)


def programs() -> Iterator[tuple[str, Any, list[Any], Any]]:
    for name, index, rows in keys():
        for width in (0, 1, 3, 8, 20) if rows < 100_000 else (0,):
            for dtype in DTYPES if len(index) <= 4097 and width in (0, 8) else DTYPES[:2]:
                shape = (rows,) if width == 0 else (rows, width)
                given = [drawn(shape), drawn((len(index), *shape[1:]))]
                i = index.astype(np.int32)
                label = f"{name}, width {width}"
                yield f"add {label}", lambda x, u, i=i: x.at[mx.array(i)].add(u), given, dtype
                yield f"set {label}", lambda x, u, i=i: set_rows(x, u, i), given, dtype
                if dtype is not mx.complex64:
                    yield f"maximum {label}", lambda x, u, i=i: x.at[mx.array(i)].maximum(u), given, dtype
    yield "overlapping strides", lambda x: mx.grad(lambda x: (mx.as_strided(x, (300, 3), (1, 1)) ** 2).sum())(x), [drawn((302,))], mx.float32
    yield "a window", lambda x: mx.grad(lambda x: (mx.as_strided(x, (30, 8, 8), (16, 4, 1)) ** 2).sum())(x), [drawn((600,))], mx.float32
    index = rng.integers(0, 50, (7, 300, 20)).astype(np.int32)
    yield "along an axis", lambda x, u: mx.grad(lambda x: (mx.take_along_axis(x, mx.array(index), axis=1) * u).sum())(x), [drawn((7, 50, 20)), drawn((7, 300, 20))], mx.float32


def set_rows(x: Any, u: Any, i: Any) -> Any:
    y = x + 0
    y[mx.array(i)] = u
    return y


def check(name: str, program: Any, given: list[Any], dtype: Any) -> str:
    out = []
    for device in (mx.gpu, mx.gpu, mx.gpu, mx.gpu, mx.cpu):
        with mx.stream(device):
            arrays = [mx.array(np.abs(x) if dtype is mx.uint8 else x).astype(dtype) for x in given]
            y = program(*arrays)
            out.append(np.array(y.astype(mx.float32) if dtype is mx.bfloat16 else y))
    if any(a.tobytes() != out[0].tobytes() for a in out[1:4]):
        return f"{name} {dtype}: other bits at another run"
    want = out[4]
    if dtype not in TOLERANCE:
        return "" if np.array_equal(out[0], want) else f"{name} {dtype}: differs in {int((out[0] != want).sum())} of {want.size}"
    error = np.abs(out[0] - want).max(initial=0) / max(1.0, np.abs(want).max(initial=0))
    return "" if error <= TOLERANCE[dtype] else f"{name} {dtype}: off by {error:.3g}"


def speed() -> None:
    for name, n, rows, width, dtype in [
        ("2^20 random rows of 512 into 2^20", 1 << 20, 1 << 20, 512, mx.float32),
        ("10^7 numbers into 10 bins", 10_000_000, 10, 0, mx.float32),
        ("4,096 tokens of 768 into 50,000", 4096, 50_000, 768, mx.float32),
        ("2^20 rows of 64, one key", 1 << 20, 4, 64, mx.float32),
    ]:
        shape = (rows,) if width == 0 else (rows, width)
        x, u = mx.zeros(shape), mx.random.normal((n, *shape[1:]))
        i = mx.array(np.random.default_rng(0).integers(0, 1 if "one key" in name else rows, n).astype(np.int32))
        mx.eval(x, u, i)
        times = []
        for _ in range(8):
            mx.synchronize()
            start = time.perf_counter()
            mx.eval(x.at[i].add(u))
            times.append(time.perf_counter() - start)
        nbytes = dtype.size * (2 * rows * max(1, width) + n * max(1, width)) + 4 * n
        best = sorted(times)[2]
        print(f"{name}: {best * 1e6:.0f} us, {nbytes / best / 1e9:.0f} GB/s", flush=True)


def main() -> int:
    wrong, count = 0, 0
    for name, program, given, dtype in programs():
        try:
            said = check(name, program, given, dtype)
        except Exception as error:
            said = f"{name} {dtype}: {type(error).__name__}: {str(error)[:300]}"
        count += 1
        if said:
            wrong += 1
            print(said, flush=True)
            if "lost" in said or wrong > 40:
                return 1
    print(f"{count} scatters, {wrong} wrong", flush=True)
    if os.environ.get("ISTHMUS_GPU", "") == "":
        speed()
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
