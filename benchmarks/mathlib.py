"""The CPU backend's math functions beside NumPy and torch on one thread: ns an element, medians of interleaved rounds.

    PYTHONPATH=src python benchmarks/mathlib.py [--dtype f64] [--only exp] [--width 64] [--size 16384]

Arrays that stay in the first or second cache; results go into arrays that exist already (torch and NumPy: `out=`).
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import statistics
import time
from functools import partial

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import scipy.special
import torch

from isthmus.backends.cpu import mathlib
from isthmus.backends.cpu.compile import FUNCTION_ATTRIBUTES, compile_module
from isthmus.backends.cpu.mathlib_parts import FUNCTIONS

TORCH = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh",
}  # fmt: skip
NUMPY = {"erf": scipy.special.erf, "erfinv": scipy.special.erfinv, "sigmoid": scipy.special.expit, "pow": np.power}


def compiled(name: str, dtype: str, width: int):
    """`run(out, a, b, n)` over n elements, a multiple of the width."""
    symbol, texts = mathlib.function(name, dtype, width)
    count = FUNCTIONS[name][0]
    scalar = {"f32": "float", "f64": "double"}[dtype]
    kind = re.match(r"define internal (.*) @", texts[-1])[1]
    loads = "\n".join(
        f"  %p{k} = getelementptr {scalar}, ptr %a{k}, i64 %i\n  %l{k} = load {kind}, ptr %p{k}, align 4" for k in range(count)
    )
    text = f"""
define void @run(ptr noalias %out, {", ".join(f"ptr noalias %a{k}" for k in range(count))}, i64 %n) {FUNCTION_ATTRIBUTES} {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{loads}
  %r = call {kind} @{symbol}({", ".join(f"{kind} %l{k}" for k in range(count))})
  %q = getelementptr {scalar}, ptr %out, i64 %i
  store {kind} %r, ptr %q, align 4
  %next = add i64 %i, {width}
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
    address = compile_module("\n".join(texts) + text, ["run"])["run"]
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (count + 1), ctypes.c_int64)(address)


def inputs(name: str, count: int, dtype, size: int) -> list[np.ndarray]:
    x = np.random.default_rng(0).normal(0, 2, size)
    if name.startswith("log") or name == "pow":
        x = np.abs(x)
    elif name == "arccosh":
        x = 1 + np.abs(x)
    elif name in ("arctanh", "arcsin", "arccos", "erfinv"):
        x = np.tanh(x)
    return [x.astype(dtype), np.random.default_rng(1).normal(0, 2, size).astype(dtype)][:count]


def interleaved(calls: list, rounds: int) -> list[float]:
    """Median seconds of each."""
    times: list[list[float]] = [[] for _ in calls]
    with np.errstate(all="ignore"):
        for _ in range(rounds):
            for call, taken in zip(calls, times):
                start = time.perf_counter()
                call()
                taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="f32,f64")
    parser.add_argument("--only", default="")
    parser.add_argument("--width", type=int, default=0, help="lanes; two 512-bit registers if not given")
    parser.add_argument("--size", type=int, default=16384)
    parser.add_argument("--rounds", type=int, default=41)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for code in options.dtype.split(","):
        dtype = {"f32": np.float32, "f64": np.float64}[code]
        width = options.width or {"f32": 32, "f64": 16}[code]
        print(f"{code}, {width} lanes, {options.size} elements: ns an element\n{'':10}{'isthmus':>9}{'numpy':>9}{'torch':>9}")
        for name, (count, _) in FUNCTIONS.items():
            if options.only and name not in options.only.split(","):
                continue
            xs = inputs(name, count, dtype, options.size)
            out, tensors = np.empty_like(xs[0]), [torch.from_numpy(x) for x in xs]
            result = torch.empty_like(tensors[0])
            run, addresses = compiled(name, code, width), [out.ctypes.data, *(x.ctypes.data for x in xs), out.size]
            theirs = NUMPY.get(name) or getattr(np, name)
            its = getattr(torch, TORCH.get(name, name))
            calls = [partial(run, *addresses), partial(theirs, *xs, out=out), partial(its, *tensors, out=result)]
            times = interleaved(calls, options.rounds)
            print(f"{name:10}" + "".join(f"{t / out.size * 1e9:9.3f}" for t in times), flush=True)


if __name__ == "__main__":
    main()
