"""What isthmus reaches on an NVIDIA GPU, beside torch (and JAX) in the same run.

    python benchmarks/gpu/run.py [--only copy,rows,...] [--out DIR] [--peers]

GB/s count inputs and outputs once each, over the median of several batches of runs; the first row is what a device copy
reaches here and now. Every result is compared with torch's before it is timed. Times are of `async_eval` calls enqueued
one after the other, and one wait.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "src"))

import numpy as np

import isthmus.core as mx
from isthmus import nn, optimizers

LINES: list[str] = []


def say(text: str) -> None:
    print(text, flush=True)
    LINES.append(text)


def ours(run: Callable[[], Any], repeat: int = 10, rounds: int = 5) -> float:
    """Seconds of one run."""
    for _ in range(4):
        mx.eval(run())
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(repeat):
            mx.async_eval(run())
        mx.synchronize()
        times.append((time.perf_counter() - start) / repeat)
    return statistics.median(times)


def theirs(run: Callable[[], Any], repeat: int = 10, rounds: int = 5) -> float:
    import torch

    for _ in range(3):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(repeat):
            run()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / repeat)
    return statistics.median(times)


def check(name: str, got: mx.array, want: Any, tolerance: float) -> str:
    a = np.array(got.astype(mx.float32)).ravel()[: 1 << 22].astype(np.float64)
    b = want.float().flatten()[: 1 << 22].cpu().numpy().astype(np.float64)
    error = float(np.linalg.norm(a - b) / (np.linalg.norm(b) + 1e-30))
    return "" if error < tolerance else f"  WRONG: relative error {error:.2e}"


def bandwidth(peers: bool) -> None:
    import torch

    say("| work | us | GB/s | % of copy | torch eager GB/s |\n| --- | --- | --- | --- | --- |")
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    copy = 2 * source.nbytes / theirs(lambda: target.copy_(source)) / 1e9
    say(f"| device copy of 1 GiB (torch) | | {copy:.0f} | 100 | |")
    del source, target
    torch.cuda.empty_cache()
    rows, cols = 65536, 4096
    for dtype, kind in ((mx.bfloat16, torch.bfloat16), (mx.float32, torch.float32)):
        host = np.random.default_rng(0).standard_normal((rows // 8, cols), np.float32)
        t = torch.from_numpy(host).cuda().repeat(8, 1).to(kind)
        x = mx.tile(mx.array(host), (8, 1)).astype(dtype)
        w, b = mx.random.normal((cols,)).astype(dtype), mx.random.normal((cols,)).astype(dtype)
        tw, tb = torch.from_numpy(np.array(w.astype(mx.float32))).cuda().to(kind), torch.from_numpy(np.array(b.astype(mx.float32))).cuda().to(kind)
        mx.eval(x, w, b)
        whole = x.nbytes
        n, fn = dtype.__repr__().split(".")[-1], torch.nn.functional
        loose = 2e-2 if kind is torch.bfloat16 else 1e-5
        table: list[tuple[str, Callable[[], Any], Callable[[], Any], int]] = [
            ("gelu(x * w + b)", lambda: nn.gelu(x * w + b), lambda: fn.gelu(t * tw + tb), 2 * whole),
            ("softmax", lambda: mx.softmax(x, axis=-1), lambda: torch.softmax(t, -1), 2 * whole),
            ("layer norm", lambda: layer_norm(x, w, b), lambda: fn.layer_norm(t, (cols,), tw, tb), 2 * whole),
            ("rms norm", lambda: rms_norm(x, w), lambda: fn.rms_norm(t, (cols,), tw), 2 * whole),
            ("sum, last axis", lambda: x.sum(-1), lambda: t.sum(-1), whole),
            ("sum, first axis", lambda: x.sum(0), lambda: t.sum(0), whole),
            ("sum, all", lambda: x.sum(), lambda: t.sum(), whole),
            ("argmax, last axis", lambda: mx.argmax(x, -1), lambda: t.argmax(-1), whole),
        ]
        for name, run, peer, moved in table:
            row(f"{name} {n}", run, peer, moved, copy, loose if "sum" not in name else 5e-2)
        a, c = x[:8192].reshape(8192, 4096)[:4096], x[4096:8192]
        at, ct = t[:4096], t[4096:8192]
        big, tbig = mx.concatenate([a, c], 0).reshape(8192, 4096), None
        del big, tbig
        sq, sq2 = x[:16384].reshape(8192, 8192), x[16384:32768].reshape(8192, 8192)
        mx.eval(sq, sq2)
        tsq, tsq2 = t[:16384].reshape(8192, 8192), t[16384:32768].reshape(8192, 8192)
        row(f"A.T + B, 8192 {n}", lambda: sq.T + sq2, lambda: tsq.T + tsq2, 3 * sq.nbytes, copy, loose)
        del sq, sq2, tsq, tsq2, a, c, at, ct
        long, tlong = x.reshape(2048, 131072), t.reshape(2048, 131072)
        mx.eval(long)
        row(f"softmax of rows of 131072 {n}", lambda: mx.softmax(long, axis=-1), lambda: torch.softmax(tlong, -1), 2 * whole, copy, loose)
        row(f"rms norm of rows of 131072 {n}", lambda: rms_norm(long, None), lambda: fn.rms_norm(tlong, (131072,)), 2 * whole, copy, loose)
        del x, t, long, tlong
        mx.clear_cache()
        torch.cuda.empty_cache()


def layer_norm(x: mx.array, w: mx.array, b: mx.array) -> mx.array:
    y = x.astype(mx.float32)
    mean = y.mean(-1, keepdims=True)
    centred = y - mean
    return (centred * mx.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * w + b).astype(x.dtype)


def rms_norm(x: mx.array, w: mx.array | None) -> mx.array:
    y = x.astype(mx.float32)
    y = y * mx.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5)
    return (y if w is None else y * w).astype(x.dtype)


def row(name: str, run: Callable[[], Any], peer: Callable[[], Any], moved: int, copy: float, tolerance: float) -> None:
    try:
        wrong = check(name, run(), peer(), tolerance)
        took = ours(run)
        rate = moved / took / 1e9
        say(f"| {name} | {took * 1e6:.0f} | {rate:.0f} | {100 * rate / copy:.0f} | {moved / theirs(peer) / 1e9:.0f} |{wrong}")
    except Exception as error:
        say(f"| {name} | {type(error).__name__}: {str(error).splitlines()[0][:300]} |")
        traceback.print_exc()


def gather(peers: bool) -> None:
    import torch

    rows, cols = 1 << 20, 512
    x, index = mx.random.normal((rows, cols)), mx.array(np.random.default_rng(0).integers(0, rows, rows).astype(np.int32))
    update = mx.random.normal((rows, cols))
    mx.eval(x, index, update)
    tx, tu = torch.randn(rows, cols, device="cuda"), torch.randn(rows, cols, device="cuda")
    ti = torch.from_numpy(np.array(index)).cuda().long()
    took, peer = ours(lambda: mx.take(x, index, axis=0)), theirs(lambda: tx.index_select(0, ti))
    say(f"| gather of 2^20 rows of 512 | {2 * x.nbytes / took / 1e9:.0f} GB/s | torch {2 * x.nbytes / peer / 1e9:.0f} |")
    took, peer = ours(lambda: x.at[index].add(update), 3, 3), theirs(lambda: tx.index_add(0, ti, tu), 3, 3)
    say(f"| scatter-add of as many | {3 * x.nbytes / took / 1e9:.0f} GB/s | torch {3 * x.nbytes / peer / 1e9:.0f} |")


def matmul(peers: bool) -> None:
    import torch

    for name, a, b in (
        ("bfloat16", (8192, 8192), (8192, 8192)), ("bfloat16", (4096, 4096), (4096, 4096)), ("float32", (4096, 4096), (4096, 4096)),
        ("bfloat16", (64, 1024, 1024), (64, 1024, 1024)), ("float32", (256, 784), (784, 32)), ("bfloat16", (1, 4096), (4096, 14336)),
    ):  # fmt: skip
        try:
            x, y = mx.random.normal(a).astype(getattr(mx, name)), mx.random.normal(b).astype(getattr(mx, name))
            mx.eval(x, y)
            tx, ty = (torch.from_numpy(np.array(v.astype(mx.float32))).cuda().to(getattr(torch, name)) for v in (x, y))
            wrong = check(name, x @ y, tx @ ty, 1e-2 if name == "bfloat16" else 1e-5)
            flops = 2 * np.prod(a, dtype=np.float64) * b[-1]
            took, peer = ours(lambda: x @ y), theirs(lambda: tx @ ty)
            say(f"| {name} {a} @ {b} | {took * 1e6:.1f} us, {flops / took / 1e12:.1f} TFLOP/s | torch {peer * 1e6:.1f} us, {flops / peer / 1e12:.1f} |{wrong}")
        except Exception as error:
            say(f"| {name} {a} | {type(error).__name__}: {str(error).splitlines()[0][:300]} |")


def launch(peers: bool) -> None:
    x, y = mx.random.normal((1000,)), mx.random.normal((1000,))
    mx.eval(x, y)

    def adds() -> mx.array:
        z = x
        for _ in range(1000):
            z = z + y
            mx.async_eval(z)
        return z

    mx.eval(adds())
    start = time.perf_counter()
    mx.eval(adds())
    say(f"| 1000 adds, async_eval each | {(time.perf_counter() - start) * 1e3:.2f} us an op |")

    def chain() -> mx.array:
        z = x
        for _ in range(1000):
            z = z + y
        return z

    for _ in range(4):
        mx.eval(chain())
    start = time.perf_counter()
    for _ in range(5):
        mx.eval(chain())
    say(f"| 1000 adds, one eval | {(time.perf_counter() - start) / 5 * 1e3:.2f} us an op |")
    for name, run in (("tiny op and eval", lambda: mx.eval(x + y)), ("item()", lambda: x.sum().item())):
        for _ in range(20):
            run()
        start = time.perf_counter()
        for _ in range(500):
            run()
        say(f"| {name} | {(time.perf_counter() - start) / 500 * 1e6:.1f} us |")
    grown = mx.random.normal((4096,))
    mx.eval(grown)

    def steps(n: int) -> mx.array:
        z = grown[:n]
        for _ in range(10):
            z = grown[:n] * mx.softmax(z) - z.max()
        return z

    for n in range(1000, 1040):
        mx.eval(steps(n))
    before = mx_stats()
    start = time.perf_counter()
    for n in range(1040, 1540):
        mx.async_eval(steps(n))
    host = (time.perf_counter() - start) / 500
    mx.synchronize()
    say(f"| a chain of small kernels whose size grows | {(time.perf_counter() - start) / 500 * 1e6:.1f} us a step, host {host * 1e6:.1f} | {before} {mx_stats()} |")


def mx_stats() -> str:
    import isthmus
    from isthmus.backends.cuda.device import gpu

    s = isthmus.stats()
    return f"plans {s['plans']}, bindings {s['bindings']}, {gpu(0).counters}"


def mnist(peers: bool) -> None:
    import isthmus

    rng = np.random.default_rng(0)
    x, t = mx.array(rng.standard_normal((256, 784), np.float32)), mx.array(rng.integers(0, 10, 256).astype(np.int32))
    for wait in (True, False):
        model = nn.Sequential(nn.Linear(784, 32), nn.relu, nn.Linear(32, 32), nn.relu, nn.Linear(32, 10))
        optimizer = optimizers.SGD(learning_rate=0.01)
        step = nn.value_and_grad(model, lambda m, x, t: nn.losses.cross_entropy(m(x), t, reduction="mean"))
        mx.eval(model.parameters())

        def one() -> None:
            loss, grads = step(model, x, t)
            optimizer.update(model, grads)
            (mx.eval if wait else mx.async_eval)(loss, model.parameters(), optimizer.state)

        for _ in range(30):
            one()
        mx.synchronize()
        start = time.perf_counter()
        for _ in range(1000):
            one()
        mx.synchronize()
        say(f"| MNIST MLP step, {'eval' if wait else 'async_eval'} | {1000 / (time.perf_counter() - start):.0f} steps/s | compiled {isthmus.stats()['compiled']} | {mx_stats()} |")


def transfer(peers: bool) -> None:
    a = np.random.default_rng(0).standard_normal(1 << 28, np.float32)
    for name in ("first", "again"):
        start = time.perf_counter()
        x = mx.array(a)
        mx.eval(x[:1] + 1)
        up = time.perf_counter() - start
        y = x * 2
        mx.eval(y)
        start = time.perf_counter()
        np.array(y)
        down = time.perf_counter() - start
        say(f"| 1 GiB from NumPy, {name} | {a.nbytes / up / 1e9:.1f} GB/s | back {a.nbytes / down / 1e9:.1f} |")
        del x, y


TABLES: dict[str, Callable[[bool], None]] = {
    "bandwidth": bandwidth, "matmul": matmul, "gather": gather, "launch": launch, "mnist": mnist, "transfer": transfer,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default=",".join(TABLES))
    parser.add_argument("--out", default="")
    parser.add_argument("--peers", action="store_true")
    args = parser.parse_args()
    say(f"{time.strftime('%Y-%m-%d')}, {sys.version.split()[0]}, {' '.join(sys.argv)}")
    for name in args.only.split(","):
        say(f"\n## {name}\n")
        try:
            TABLES[name](args.peers)
        except Exception as error:
            say(f"{name}: {type(error).__name__}: {error}")
            traceback.print_exc()
        if args.out:
            with open(os.path.join(args.out, f"gpu-{args.only.replace(',', '-')[:40]}.md"), "w") as file:
                file.write("\n".join(LINES) + "\n")


if __name__ == "__main__":
    main()
