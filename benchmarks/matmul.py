"""Matrix products of the CPU backend against NumPy and torch, in pairs, minima over interleaved rounds.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python benchmarks/matmul.py [--threads 2] [square mlp half vector small double]

Products run as a plan would run them: one call of the driver, operands bound beforehand, output recycled. Ratios are time of
isthmus over time of the other: below 1 is faster.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--no-torch", action="store_true")
parser.add_argument("what", nargs="*", default=[])
options = parser.parse_args()
for variable in ("ISTHMUS_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = str(options.threads)

import ml_dtypes
import numpy as np

from isthmus.backends.cpu import stream
from isthmus.backends.cpu.library import matmul

if options.threads == 1:
    os.sched_setaffinity(0, {1 if len(os.sched_getaffinity(0)) > 1 else 0})
torch = None
if not options.no_torch:
    import torch

    torch.set_num_threads(options.threads)

NUMPY = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float64": np.float64, "complex64": np.complex64}


class Bound:
    """Products `(a, b, c)` bound into one program; calling it runs them in order."""

    def __init__(self, *products: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
        block, program, self.keep = [], [], [products]
        for a, b, c in products:
            size = c.itemsize
            forms = [x.strides[-1] != size and x.shape[-2] > 1 for x in (a, b)]
            (plan,) = matmul.plan_matmul(str(c.dtype), *forms)
            batch = tuple((c.shape[i], a.strides[i] // size, b.strides[i] // size, 0) for i in range(c.ndim - 2))
            strides = [x.strides[-1 if t else -2] // size for x, t in zip((a, b), forms, strict=True)]
            launch = plan.bind(*c.shape[-2:], a.shape[-1], batch, *strides, threads=options.threads)
            scratch = np.zeros(launch.scratch_bytes + 64, np.uint8)
            self.keep.append(scratch)
            slots = list(launch.slots)
            slots[matmul.C], slots[matmul.A], slots[matmul.B] = c.ctypes.data, a.ctypes.data, b.ctypes.data
            slots[matmul.SCRATCH] = -(-scratch.ctypes.data // 64) * 64
            program += [launch.address, len(block), launch.units, launch.grain]
            block += slots
        self.block, self.program = np.array(block, np.int64), np.array(program, np.int64)
        self.args = self.block.ctypes.data, 0, 0, 0, self.program.ctypes.data, len(products)

    def __call__(self) -> None:
        stream.run(*self.args)


def pair(seconds: float, *calls: Callable[[], object] | None) -> list[float]:
    """Smallest time of each call for about `seconds` in all, in turns of 30 ms; OpenBLAS's threads spin for 26 ms after a call, so a pause before."""
    best = [float("inf")] * len(calls)
    end = time.perf_counter() + seconds
    turns = 0
    while time.perf_counter() < end or turns < 4:
        turns += 1
        for i, call in enumerate(calls):
            if call is None:
                continue
            if options.threads > 1:
                time.sleep(0.06)
            count = 0
            turn_end = time.perf_counter() + 0.03
            while True:
                start = time.perf_counter()
                call()
                stop = time.perf_counter()
                best[i] = min(best[i], stop - start)
                count += 1
                if stop > turn_end and count >= 3:
                    break
    return best


def draw(dtype: str, rows: int, cols: int, transposed: bool, batch: tuple[int, ...] = ()) -> np.ndarray:
    x = np.random.default_rng(0).standard_normal((*batch, *((cols, rows) if transposed else (rows, cols)))).astype(NUMPY[dtype])
    return x.swapaxes(-1, -2) if transposed else x


def as_torch(x: np.ndarray) -> object:
    if x.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(x.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def line(name: str, dtype: str, m: int, n: int, k: int, form: str, batch: tuple[int, ...] = (), seconds: float = 1.0) -> list[float]:
    a, b = draw(dtype, m, k, form[0] == "t", batch), draw(dtype, k, n, form[1] == "t", batch)
    c, d = np.zeros((*batch, m, n), NUMPY[dtype]), np.zeros((*batch, m, n), NUMPY[dtype])
    ours = Bound((a, b, c))
    calls: list[Callable[[], object] | None] = [ours, None, None]
    if dtype in ("float32", "float64", "complex64"):
        calls[1] = lambda: np.matmul(a, b, out=d)
    else:  # what there is to beat: convert, and the float32 product of this library
        a32, b32 = draw("float32", m, k, form[0] == "t", batch), draw("float32", k, n, form[1] == "t", batch)
        c32 = np.zeros(c.shape, np.float32)
        calls[1] = Bound((a32, b32, c32))
    if torch is not None:
        ta, tb, tc = as_torch(a), as_torch(b), as_torch(d)
        calls[2] = lambda: torch.matmul(ta, tb, out=tc)
    times = pair(seconds, *calls)
    work = 2e-9 * m * n * k * int(np.prod(batch)) * (4 if dtype == "complex64" else 1)
    print(
        f"{name:22s} {dtype:9s} {form} {m:5d} {n:5d} {k:5d}  {times[0] * 1e6:10.1f} us {work / times[0]:6.0f} GFLOP/s"
        f"   / {'numpy' if dtype in ('float32', 'float64', 'complex64') else 'our float32'} {times[0] / times[1]:5.2f}"
        + (f"   / torch {times[0] / times[2]:5.2f}" if torch else "")
    )
    return times


def square() -> None:
    for n in (64, 128, 256, 512, 1000, 1024, 2000, 2048, 4096):
        for form in ("nn", "nt", "tn"):
            line("square", "float32", n, n, n, form, seconds=min(6.0, max(0.5, n**3 / 1e10)))


MLP = (
    ("forward 1", 256, 32, 784, "nt"), ("forward 2", 256, 32, 32, "nt"), ("forward 3", 256, 10, 32, "nt"), ("dW 3", 10, 32, 256, "tn"),
    ("dx 3", 256, 32, 10, "nn"), ("dW 2", 32, 32, 256, "tn"), ("dx 2", 256, 32, 32, "nn"), ("dW 1", 32, 784, 256, "tn"),
)  # fmt: skip


def mlp() -> None:
    totals = [0.0, 0.0, 0.0]
    operands = []
    for name, m, n, k, form in MLP:
        for i, t in enumerate(line(name, "float32", m, n, k, form)):
            totals[i] += t
        operands.append((draw("float32", m, k, form[0] == "t"), draw("float32", k, n, form[1] == "t"), np.zeros((m, n), np.float32)))

    step = Bound(*operands)

    def others() -> None:
        for a, b, c in operands:
            np.matmul(a, b, out=c)

    ours, numpy = pair(2.0, step, others)
    print(
        f"MLP step, 8 products: {ours * 1e6:.1f} us in one call, NumPy {numpy * 1e6:.1f} us, ratio {ours / numpy:.2f}; sums of lines {[round(t * 1e6, 1) for t in totals]}"
    )


def half() -> None:
    for dtype in ("bfloat16", "float16"):
        for n in (64, 256, 512, 1024, 2048):
            for form in ("nn", "nt", "tn"):
                line("square", dtype, n, n, n, form, seconds=min(4.0, max(0.5, n**3 / 1e10)))
        for name, m, n, k, form in MLP:
            line(name, dtype, m, n, k, form)


def vector() -> None:
    for dtype in ("float32", "bfloat16", "float16"):
        for m in (1, 2, 4, 8, 16):
            for form in ("nn", "nt"):
                line("rows x matrix", dtype, m, 4096, 4096, form)
        line("matrix x vector", dtype, 4096, 1, 4096, "nn")
        line("matrix x vector", dtype, 4096, 1, 4096, "tn")
        line("small", dtype, 1, 256, 256, "nn")
        line("small", dtype, 1, 256, 256, "nt")


def small() -> None:
    for dtype in ("float32", "bfloat16"):
        for n in (2, 4, 8, 16, 32, 64):
            line("batch 1000", dtype, n, n, n, "nn", (1000,))
            line("batch 1000", dtype, n, n, n, "nt", (1000,))
        line("attention q k", dtype, 128, 128, 64, "nt", (8, 8))
        line("attention p v", dtype, 128, 64, 128, "nn", (8, 8))


def double() -> None:
    for dtype in ("float64", "complex64"):
        for n in (32, 256, 1024, 2048):
            for form in ("nn", "nt", "tn"):
                line("square", dtype, n, n, n, form, seconds=min(4.0, max(0.5, n**3 / 3e9)))


if __name__ == "__main__":
    for section in (square, mlp, half, vector, small, double):
        if not options.what or section.__name__ in options.what:
            section()
