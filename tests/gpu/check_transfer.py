"""Copies between host and GPU, and arrays shared with torch: values, then how fast. Run by hand: `python tests/gpu/check_transfer.py`.

A line for each that is wrong, and a count; exit code 1 if there is one. What needs torch on a GPU says so if it is not there.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src"))

import isthmus.core as mx

SIZES = (1, 3, 1000, 65536 // 4, 65536 // 4 + 1, (1 << 18) - 1, 1 << 18, (1 << 18) + 1, (1 << 20) * 3 + 5, 40_000_003)
wrong: list[str] = []
count = 0


def check(name: str, right: bool) -> None:
    global count
    count += 1
    if not right:
        wrong.append(name)
        print("wrong:", name, flush=True)


def copies() -> None:
    for n in SIZES:
        for dtype in (np.float32, np.int64, np.uint8):
            a = (np.arange(n) % 251).astype(dtype)
            x = mx.array(a)
            a += 1  # what was given must have been read
            y = x + 1
            check(f"{n} {dtype.__name__} up", bool(np.array_equal(np.array(y), a)))
            check(f"{n} {dtype.__name__} view", bool(np.array_equal(np.asarray(y), a)))
            check(f"{n} {dtype.__name__} again", bool(np.array_equal(np.array(y + 0), a)))
            check(f"{n} {dtype.__name__} reversed", bool(np.array_equal(np.array(mx.array(a[::-1])), a[::-1])))
        with mx.stream(mx.cpu):
            z = mx.arange(n, dtype=mx.float32) * 2
            mx.eval(z)
        w = mx.add(z, 1, stream=mx.gpu)
        u = mx.multiply(w, 2, stream=mx.cpu)
        check(f"{n} there and back", bool(np.array_equal(np.array(u), (np.arange(n, dtype=np.float32) * 2 + 1) * 2)))
        view = np.asarray(z)
        view[...] = 7
        check(f"{n} written by NumPy", bool((np.array(mx.add(z, 1, stream=mx.gpu)) == 8).all()))


def with_torch() -> None:
    try:
        import torch
    except ImportError:
        print("torch is not installed: nothing was shared with it")
        return
    if not torch.cuda.is_available():
        print("torch has no GPU: nothing was shared with it")
        return
    for n in (1, 5, 100_000, 10_000_000):
        t = torch.arange(n, device="cuda", dtype=torch.float32)
        x = mx.array(t)
        check(f"{n} from torch", bool(np.array_equal(np.array(x + 1), np.arange(n, dtype=np.float32) + 1)))
        y = x * 2
        mx.eval(y)
        s = torch.from_dlpack(y)
        check(f"{n} to torch, no copy", s.is_cuda and s.data_ptr() == y._node.buffer.gpu)
        check(f"{n} to torch", bool((s == t * 2).all().item()))
        s += 1
        torch.cuda.synchronize()
        check(f"{n} written by torch", bool(np.array_equal(np.array(y + 0), np.arange(n, dtype=np.float32) * 2 + 1)))
        del s, y, x
        x = mx.from_dlpack(t.reshape(-1, 1).expand(n, 2).t() if n < 1000 else t.view(2, -1).t())
        want = np.broadcast_to(np.arange(n, dtype=np.float32), (2, n)) if n < 1000 else np.arange(n, dtype=np.float32).reshape(2, -1).T
        check(f"{n} strides of torch", bool(np.array_equal(np.array(x + 0), want)))
    for dtype in (torch.bfloat16, torch.float16, torch.int64, torch.float64, torch.bool):
        t = torch.ones(1000, device="cuda", dtype=dtype)
        check(f"{dtype} from torch", np.array((mx.array(t) + mx.array(t)).astype(mx.float32)).sum() == (1000 if dtype is torch.bool else 2000))
    for _ in range(50):  # memory that torch takes back while it is still read here
        t = torch.full((1 << 22,), 3.0, device="cuda")
        x = mx.array(t)
        y = mx.exp(x) * 2 + x
        mx.async_eval(y)
        del t, x
        torch.full((1 << 22,), 5.0, device="cuda")
        check("memory given back", abs(float(np.array(y)[-1]) - (np.exp(3.0) * 2 + 3)) < 1e-3)


def in_a_child() -> None:
    """Pinned memory can be read by a process that was forked."""
    with mx.stream(mx.cpu):
        x = mx.arange(1 << 20, dtype=mx.float32)
        mx.eval(x)
    view = np.asarray(x)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if view.sum(dtype=np.float64) == (1 << 20) * ((1 << 20) - 1) / 2 else 1)
    check("pinned memory in a child", os.waitpid(pid, 0)[1] == 0)


def speed() -> None:
    n = 250_000_000
    a = np.ones(n, np.float32)

    def timed(name: str, prepare: Callable[[], Any], run: Callable[[Any], Any]) -> None:
        times = []
        for _ in range(5):
            x = prepare()
            mx.synchronize()
            start = time.perf_counter()
            y = run(x)
            times.append(time.perf_counter() - start)
            del x, y
        print(f"{name}: first {4e-9 * n / times[0]:.1f}, then {4e-9 * n / sorted(times[1:])[1]:.1f} GB/s", flush=True)

    def total(x: Any) -> Any:
        y = mx.sum(x)
        mx.eval(y)
        return y

    def pinned() -> Any:
        with mx.stream(mx.cpu):
            x = mx.zeros((n,)) + 1
            mx.eval(x)
        np.asarray(x)[0] = 2  # so that it is copied again
        return x

    def there() -> Any:
        y = mx.ones((n,)) + 1
        mx.eval(y)
        return y

    timed("NumPy to first use", lambda: a, lambda a: total(mx.array(a)))
    timed("pinned to first use", pinned, lambda x: total(mx.add(x, 0, stream=mx.gpu)))
    timed("back by np.array", there, np.array)
    timed("back by np.asarray", there, np.asarray)


def main() -> int:
    copies()
    with_torch()
    in_a_child()
    print(f"{count} checks, {len(wrong)} wrong", flush=True)
    if os.environ.get("ISTHMUS_GPU", "") == "":
        speed()
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
