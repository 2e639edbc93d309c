"""What the tables share: the options, the three frameworks, how a call is timed, and how isthmus's result is checked.

A table is a module with `items(setup)`, a list of `Item`; nothing runs before an item's `run` is called. `run.py` does that
in a child process, in order, so what several items need is made once (`functools.cache`) and by the first that needs it.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

MIB, GIB = 2**20, 2**30
sys.path.append(str(Path(__file__).parent.parent))  # benchmarks/mnist_mlp.py


@dataclass
class Item:
    """One measurement: what is done (the row), by whom (the column), in which unit the answer comes."""

    row: str
    who: str
    unit: str  # "GB/s" and "TFLOP/s": more is better; else a time
    run: Callable[[], dict[str, Any]]  # {"value": ...} and what else is to be kept: "alone_us", "error", "note"
    goal: float | tuple[float, str] | None = None  # of isthmus: a value, or a share of another row or of a peer in this row
    peers: str | None = None  # the row whose peers this one is compared with, where it has none of its own


class Setup:
    """Options, and the frameworks, each imported when first asked for."""

    def __init__(self, device: str, quick: bool, tiny: bool) -> None:
        self.device, self.quick, self.tiny = device, quick, tiny
        self.repeats = 5 if quick else 9

    def size(self, full: Any, tiny: Any) -> Any:
        return tiny if self.tiny else full

    @cached_property
    def mx(self) -> Any:
        import isthmus.core as mx

        if self.device == "cpu":
            mx.set_default_device(mx.cpu)
        elif not mx.cuda.is_available():
            raise RuntimeError("isthmus sees no GPU; --device cpu runs the scripts without one.")
        return mx

    @cached_property
    def torch(self) -> Any:
        import torch

        torch.set_grad_enabled(False)
        torch.manual_seed(0)
        return torch

    @cached_property
    def torch_device(self) -> str:
        simulated = os.environ.get("ISTHMUS_GPU", "").startswith("simulated")  # a trial of the GPU's way, where there is none
        return "cpu" if self.device == "cpu" or simulated else "cuda"

    @cached_property
    def jax(self) -> Any:
        import jax

        return jax

    # --- time ---

    def time(self, call: Callable[[], Any], wait: Callable[[Any], Any], alone: Callable[[], Any] | None = None) -> dict[str, float]:
        """Seconds of one call: the median of batches of enqueued calls with one wait each; and of calls waited for one by one."""
        alone = alone or (lambda: wait(call()))
        for _ in range(3):
            alone()
        once = min(self._clock(alone) for _ in range(3))
        count = 2 if self.tiny else 100 if once < 1e-4 else 10 if once < 0.03 else 3

        def batch() -> None:
            last = None
            for _ in range(count):
                last = call()
            wait(last)

        batch()
        batches = [self._clock(batch) / count for _ in range(self.repeats)]
        singles = [self._clock(alone) for _ in range(self.repeats)]
        return {"seconds": statistics.median(batches), "least": min(batches), "most": max(batches), "alone": statistics.median(singles)}

    @staticmethod
    def _clock(call: Callable[[], Any]) -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    def torch_wait(self, _last: Any = None) -> None:
        if self.torch_device == "cuda":
            self.torch.cuda.synchronize()

    def time_isthmus(self, f: Callable[[], Any]) -> dict[str, float]:
        mx = self.mx
        return self.time(lambda: mx.async_eval(f()), lambda _: mx.synchronize(), lambda: mx.eval(f()))

    def time_torch(self, f: Callable[[], Any]) -> dict[str, float]:
        return self.time(f, self.torch_wait)

    def time_jax(self, f: Callable[[], Any]) -> dict[str, float]:
        return self.time(f, self.jax.block_until_ready)

    def compiled(self, f: Callable[..., Any], *args: Any) -> Callable[[], Any]:
        """torch.compile of `f`, at work on `args`."""
        self.torch._dynamo.reset()
        g = self.torch.compile(f, dynamic=False, fullgraph=True)
        return lambda: g(*args)

    # --- values: torch draws them, the others get the same ---

    def draw(self, *shape: int, dtype: str = "float32", mean: float = 0.0) -> Any:
        torch = self.torch
        return (torch.randn(shape, device=self.torch_device) + mean).to(getattr(torch, dtype))

    def to_isthmus(self, x: Any) -> Any:
        import ml_dtypes

        torch = self.torch
        if x.dtype == torch.bfloat16:
            return self.mx.array(x.view(torch.int16).cpu().numpy().view(ml_dtypes.bfloat16))
        if x.dtype == torch.int64:  # indices
            x = x.to(torch.int32)
        return self.mx.array(x.cpu().numpy())

    def to_jax(self, x: Any) -> Any:
        if x.dtype == self.torch.int64:
            x = x.to(self.torch.int32)
        return self.jax.dlpack.from_dlpack(x)

    def to_torch(self, x: Any) -> Any:
        """An isthmus array, by way of the host."""
        import numpy as np

        a = np.array(x)
        if a.dtype.name == "bfloat16":
            return self.torch.from_numpy(a.view(np.int16)).to(self.torch_device).view(self.torch.bfloat16)
        if a.dtype.kind == "u":
            a = a.astype(np.int64)
        return self.torch.from_numpy(a).to(self.torch_device)

    def error(self, result: Any, reference: Any, dtype: str, tolerance: float | None = None) -> float:
        """|result - reference| / |reference| in float64.

        Raises:
            AssertionError: it is larger than rounding explains: 1e-5 for float32 (TF32 gives 3e-4), 1e-2 for bfloat16.
        """
        limit = tolerance or {"float32": 1e-5, "bfloat16": 1e-2}[dtype]
        y = self.to_torch(result)
        assert tuple(y.shape) == tuple(reference.shape), f"shape {tuple(y.shape)}, expected {tuple(reference.shape)}"
        y = y.double()
        found = float((y - reference).norm() / reference.norm())
        del y, reference
        if self.torch_device == "cuda":
            self.torch.cuda.empty_cache()
        assert found <= limit, f"wrong result: relative error {found:.3g}, at most {limit:g} expected"  # NaN fails, too
        return found


def rate(times: dict[str, float], amount: float, **more: Any) -> dict[str, Any]:
    """A result in amount a second, in units of 1e9 (bytes) or 1e12 (operations) as the caller scales it."""
    return {
        "value": amount / times["seconds"],
        "us": times["seconds"] * 1e6,
        "least_us": times["least"] * 1e6,
        "most_us": times["most"] * 1e6,
        "alone_us": times["alone"] * 1e6,
        **more,
    }


def micros(times: dict[str, float], **more: Any) -> dict[str, Any]:
    return {**rate(times, 1.0), "value": times["seconds"] * 1e6, **more}


def context_lost(setup: Setup) -> bool:
    """Whether the GPU answers no more in this process, after a row failed."""
    if setup.torch_device == "cpu" or "torch" not in sys.modules:
        return False
    try:
        setup.torch.cuda.synchronize()
        return False
    except Exception:
        return True


def environment(device: str) -> dict[str, str]:
    """For a child: no framework takes all of the GPU's memory, none is held to one thread."""
    env = dict(os.environ, XLA_PYTHON_CLIENT_PREALLOCATE="false", TF_CPP_MIN_LOG_LEVEL="3")
    if device == "cpu":
        env.update(JAX_PLATFORMS="cpu")
    source = Path(__file__).parents[2] / "src"
    env["PYTHONPATH"] = os.pathsep.join(p for p in (os.environ.get("PYTHONPATH"), str(source)) if p)
    return env
