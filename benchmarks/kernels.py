"""Rendered CPU kernels beside NumPy, torch and JAX, in interleaved rounds; minima in microseconds.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE PYTHONPATH=src python benchmarks/kernels.py [--threads 2] [--only softmax] [--no-compile]

The kernels run through the plan driver (stream.run), in recycled buffers; torch writes into fresh ones, as it does for
its users, JAX too.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--only", default="")
parser.add_argument("--sizes", default="1000,100000,10000000")
parser.add_argument("--seconds", type=float, default=0.6)
parser.add_argument("--no-compile", action="store_true")
parser.add_argument("--peers", default="torch,compile,jax")
options = parser.parse_args()
os.environ["ISTHMUS_NUM_THREADS"] = str(options.threads)
if options.threads == 1:
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import ml_dtypes
import numpy as np
import torch

from isthmus.backends.cpu import stream
from isthmus.backends.cpu.render import render
from isthmus.graph.dtype import bfloat16, float16, float32
from isthmus.kernel import scalar as s
from isthmus.kernel.loops import Axis, Index, Kernel, Load, Reduce, Slot, Stage, Store
from isthmus.kernel.scalar import Expr

torch.set_num_threads(options.threads)
torch.set_grad_enabled(False)


def load(buffer, dtype, *terms):
    return Expr("load", dtype, (), Load(buffer, Index(0, tuple(terms))))


def row(k):
    return Expr("row", float32, (), k)


def full_row(buffer, value):
    return Store(buffer, Index(0, ((0, Slot(5)), (1, 1))), value)


def gelu(x):
    half, one, r = (s.const(v, x.dtype) for v in (0.5, 1.0, 0.5**0.5))
    return s.mul(s.mul(x, half), s.add(one, s.erf(s.mul(x, r))))


class Bench:
    """One kernel at one size: a call for us, and calls for the peers."""

    def __init__(self, kernel, numbers, buffers, sizes):
        made = render(kernel)
        launch = made.bind(tuple(sizes), options.threads)
        self.buffers = buffers
        self.scratch = np.empty(launch.scratch_bytes + 64, np.uint8)
        slots = [b.ctypes.data for b in buffers] + list(numbers) + [-(-self.scratch.ctypes.data // 64) * 64, *launch.extra]
        self.block = np.array(slots, np.int64)
        program = [x for address, units, grain in launch.phases for x in (address, 0, units, grain)]
        self.program = np.array(program, np.int64)
        self.table = np.zeros(1, np.int64)
        self.arguments = (self.block.ctypes.data, self.table.ctypes.data, self.program.ctypes.data, 0, self.program.ctypes.data, len(launch.phases))

    def __call__(self):
        stream.run(*self.arguments)


NUMPY = {float32: np.float32, bfloat16: ml_dtypes.bfloat16, float16: np.float16}
TORCH = {float32: torch.float32, bfloat16: torch.bfloat16, float16: torch.float16}


def data(dtype, *shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(NUMPY[dtype])


def as_torch(a):
    if a.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(a.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(a.copy())


def row_shape(n):
    return {1000: (10, 100), 100_000: (100, 1000), 10_000_000: (10_000, 1000)}.get(n, (max(1, n // 1000), 1000))


def cases(n):
    for dtype in (float32, bfloat16):
        name = dtype.name
        x, w, b = (load(k, dtype, (0, 1)) for k in range(3))
        flat = (Axis(Slot(4), False),)
        out = Index(0, ((0, 1),))
        arrays = [data(dtype, n, seed=k) for k in range(3)]
        fresh = np.zeros(n, NUMPY[dtype])
        tag = f"{name} {n:.0e}"
        yield f"x*w+b {tag}", Bench(Kernel("map", flat, (dtype,) * 4, (Stage((Store(3, out, s.add(s.mul(x, w), b)),)),), 5), [n], [*arrays, fresh], [n]), lambda x, w, b: x * w + b, arrays
        yield f"gelu(x*w+b) {tag}", Bench(Kernel("map", flat, (dtype,) * 4, (Stage((Store(3, out, gelu(s.add(s.mul(x, w), b))),)),), 5), [n], [*arrays, fresh.copy()], [n]), "gelu", arrays
        rows, columns = row_shape(n)
        frame = (Axis(Slot(4), False), Axis(Slot(5), True))
        a = arrays[0].reshape(rows, columns)
        x = s.cast(load(0, dtype, (0, Slot(5)), (1, 1)), float32)
        e = s.exp(s.sub(x, row(0)))
        stages = (Stage((), (Reduce(0, "max", x, float32),)), Stage((), (Reduce(1, "sum", e, float32),)), Stage((full_row(3, s.cast(s.div(e, row(1)), dtype)),)))
        numbers, sizes = [rows, columns], [rows, columns]
        yield f"softmax {tag}", Bench(Kernel("row", frame, (dtype,) * 4, stages, 6), numbers, [*arrays, fresh.copy()], sizes), lambda x: torch.softmax(x, -1), [a]
        weight = load(1, dtype, (1, 1))
        mean = s.div(row(0), s.cast(Expr("param", s.int64, (), 5), float32))
        scale = s.div(s.const(1.0, float32), s.sqrt(s.add(mean, s.const(1e-5, float32))))
        y = s.cast(s.mul(s.mul(x, scale), s.cast(weight, float32)), dtype)
        stages = (Stage((), (Reduce(0, "sum", s.mul(x, x), float32),)), Stage((full_row(3, y),)))
        yield f"rms_norm {tag}", Bench(Kernel("row", frame, (dtype,) * 4, stages, 6), numbers, [*arrays, fresh.copy()], sizes), "rms", [a, arrays[1][:columns]]
        for kind in ("sum", "max", "argmax"):
            acc = s.uint32 if kind == "argmax" else float32
            back = s.cast(Expr("row", acc, (), 0), dtype) if kind != "argmax" else Expr("row", acc, (), 0)
            o = np.zeros(rows, NUMPY[dtype] if kind != "argmax" else np.uint32)
            stages = (Stage((Store(3, out, back, False),), (Reduce(0, kind, x if kind != "argmax" else load(0, dtype, (0, Slot(5)), (1, 1)), acc),)),)
            buffers = (dtype,) * 3 + ((dtype if kind != "argmax" else acc),)
            call = {"sum": lambda x: x.sum(-1), "max": lambda x: x.amax(-1), "argmax": lambda x: x.argmax(-1)}[kind]
            yield f"{kind} last {tag}", Bench(Kernel("row", frame, buffers, stages, 6), numbers, [*arrays, o], sizes), call, [a]
        x1 = s.cast(load(0, dtype, (0, 1)), float32)
        stages = (Stage((Store(3, Index(0, ()), s.cast(row(0), dtype), False),), (Reduce(0, "sum", x1, float32),)),)
        yield f"sum all {tag}", Bench(Kernel("row", (Axis(Slot(4), True),), (dtype,) * 4, stages, 5), [n], [*arrays, fresh.copy()], [n]), lambda x: x.sum(), [arrays[0]]
        stages = (Stage((Store(3, Index(0, ((1, 1),)), s.cast(row(0), dtype), False),), (Reduce(0, "sum", x, float32),)),)
        yield f"sum first {tag}", Bench(Kernel("column", (Axis(Slot(4), True), Axis(Slot(5), False)), (dtype,) * 4, stages, 6), numbers, [*arrays, fresh.copy()], sizes), lambda x: x.sum(0), [a]
        side = max(1, int(n**0.5))
        p, q = load(0, dtype, (0, 1), (1, Slot(4))), load(1, dtype, (0, Slot(5)), (1, 1))
        stages = (Stage((Store(3, Index(0, ((0, Slot(5)), (1, 1))), s.add(p, q)),)),)
        square = (Axis(Slot(4), False), Axis(Slot(5), False))
        yield f"x.T+y {tag}", Bench(Kernel("map", square, (dtype,) * 4, stages, 6), [side, side], [*arrays, fresh.copy()], [side, side]), lambda x, y: x.T + y, [v[: side * side].reshape(side, side) for v in arrays[:2]]
        p = load(0, dtype, (0, 3), (1, 1))
        stages = (Stage((Store(3, Index(0, ((0, 3), (1, 1))), s.mul(p, load(1, dtype, (1, 1)))),)),)
        third = n // 3
        yield f"(n, 3) * w {tag}", Bench(Kernel("map", (Axis(Slot(4), False), Axis(3, False)), (dtype,) * 4, stages, 5), [third], [*arrays, fresh.copy()], [third, 3]), lambda x, w: x * w, [arrays[0][: third * 3].reshape(third, 3), arrays[1][:3]]
        xs = s.cast(load(0, dtype, (0, 10), (1, 1)), float32)
        tenth = n // 10
        e = s.exp(s.sub(xs, row(0)))
        stages = (Stage((), (Reduce(0, "max", xs, float32),)), Stage((), (Reduce(1, "sum", e, float32),)), Stage((Store(3, Index(0, ((0, 10), (1, 1))), s.cast(s.div(e, row(1)), dtype)),)))
        yield f"softmax of 10 {tag}", Bench(Kernel("row", (Axis(Slot(4), False), Axis(10, True)), (dtype,) * 4, stages, 5), [tenth], [*arrays, fresh.copy()], [tenth, 10]), lambda x: torch.softmax(x, -1), [arrays[0][: tenth * 10].reshape(tenth, 10)]


def peers(what, arrays):
    import torch.nn.functional as F

    def torch_gelu(x, w, b):
        return F.gelu(x * w + b)

    def torch_rms(x, w):
        return F.rms_norm(x, (x.shape[-1],), w, 1e-5)

    function = {"gelu": torch_gelu, "rms": torch_rms}.get(what, what) if isinstance(what, str) else what
    inputs = [as_torch(a) for a in arrays]
    found: dict[str, Callable[[], object]] = {}
    wanted = options.peers.split(",")
    if "torch" in wanted:
        found["torch"] = lambda: function(*inputs)
    if "compile" in wanted and not options.no_compile:
        compiled = torch.compile(function, dynamic=False)
        compiled(*inputs)
        found["compile"] = lambda: compiled(*inputs)
    if "jax" in wanted:
        import jax
        import jax.numpy as jnp

        def jax_function(*xs):
            if what == "gelu":
                return jax.nn.gelu(xs[0] * xs[1] + xs[2], approximate=False)
            if what == "rms":
                x = xs[0].astype(jnp.float32)
                return (x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * xs[1].astype(jnp.float32)).astype(xs[0].dtype)
            try:
                return function(*xs)
            except Exception:
                return jax.nn.softmax(xs[0], -1) if not hasattr(xs[0], "amax") else None

        names = {"amax": "max"}
        source = getattr(what, "__code__", None)
        if source is not None and "softmax" in source.co_names:
            jitted = jax.jit(lambda x: jax.nn.softmax(x, -1))
        elif source is not None and set(names) & set(source.co_names):
            jitted = jax.jit(lambda x: x.max(-1))
        else:
            jitted = jax.jit(jax_function)
        given = [jnp.asarray(a) for a in arrays]
        jitted(*given).block_until_ready()
        found["jax"] = lambda: jitted(*given).block_until_ready()
    return found


def measure(calls, seconds):
    best = dict.fromkeys(calls, float("inf"))
    end = time.perf_counter() + seconds * len(calls)
    counts = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        counts[name] = max(1, min(2000, int(2e-3 / max(1e-7, time.perf_counter() - start))))
    while time.perf_counter() < end:
        for name, call in calls.items():
            n = counts[name]
            start = time.perf_counter()
            for _ in range(n):
                call()
            best[name] = min(best[name], (time.perf_counter() - start) / n)
    return best


def main():
    print(f"threads {options.threads}; us")
    for n in map(int, options.sizes.split(",")):
        for name, ours, what, arrays in cases(n):
            if not all(part in name for part in options.only.split(",")):
                continue
            best = measure({"isthmus": ours, **peers(what, arrays)}, options.seconds)
            ours_us = best.pop("isthmus") * 1e6
            others = "  ".join(f"{k} {v * 1e6:9.1f}" for k, v in best.items())
            ratio = min(best.values()) * 1e6 / ours_us if best else 0
            print(f"{name:26s} {ours_us:9.1f}  {others}   best/ours {ratio:.2f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
