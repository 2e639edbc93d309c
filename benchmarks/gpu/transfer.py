"""1 GB to the GPU until it is first used (a sum), and back into NumPy: GB/s of the one direction."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from common import Item, Setup


def items(s: Setup) -> list[Item]:
    count = s.size(250_000_000, 100_000)
    repeats = 3 if s.quick else 5

    @cache
    def source() -> Any:
        import numpy as np

        return np.random.default_rng(0).random(count, np.float32)

    @cache
    def total() -> float:
        import numpy as np

        return float(source().sum(dtype=np.float64))

    def timed(prepare: Callable[[], Any], call: Callable[[Any], Any], check: Callable[[Any], None]) -> dict[str, Any]:
        """The first call is kept apart: it makes kernels, buffers, pools."""
        times = []
        for _ in range(repeats + 1):
            x = prepare()
            start = time.perf_counter()
            y = call(x)
            times.append(time.perf_counter() - start)
            if len(times) <= 2:
                check(y)
            del x, y
        seconds = statistics.median(times[1:])
        return {
            "value": 4e-9 * count / seconds,
            "us": seconds * 1e6,
            "least_us": min(times[1:]) * 1e6,
            "most_us": max(times[1:]) * 1e6,
            "note": f"first {4e-9 * count / times[0]:.1f}",
        }

    def same_sum(y: Any) -> None:
        found = float(y)
        assert abs(found / total() - 1) < 1e-5, f"wrong result: the sum is {found}, expected {total()}"

    def same_values(y: Any) -> None:
        import numpy as np

        assert np.array_equal(np.asarray(y), source() + np.float32(1)), "wrong result: values differ"

    # --- there ---

    def up_isthmus() -> dict[str, Any]:
        mx = s.mx

        def call(a: Any) -> Any:
            y = mx.sum(mx.array(a))
            mx.eval(y)
            return y

        return timed(source, call, lambda y: same_sum(y.item()))

    def up_torch() -> dict[str, Any]:
        def call(a: Any) -> Any:
            y = s.torch.from_numpy(a).to(s.torch_device).sum()
            s.torch_wait()
            return y

        return timed(source, call, same_sum)

    def up_jax() -> dict[str, Any]:
        f = s.jax.jit(lambda x: x.sum())
        return timed(source, lambda a: f(s.jax.device_put(a)).block_until_ready(), same_sum)

    def pinned_isthmus() -> dict[str, Any]:
        import numpy as np

        mx = s.mx
        gpu = mx.gpu if s.device == "gpu" else mx.cpu

        def prepare() -> Any:
            x = mx.add(mx.zeros((count,), stream=mx.cpu), 0.5, stream=mx.cpu)
            mx.eval(x)
            np.asarray(x)[...] = source()  # what a loader does: it writes into memory that isthmus allocated
            return x

        def call(x: Any) -> Any:
            y = mx.sum(x, stream=gpu)
            mx.eval(y)
            return y

        return timed(prepare, call, lambda y: same_sum(y.item()))

    def pinned_torch() -> dict[str, Any]:
        @cache
        def prepare() -> Any:
            x = s.torch.from_numpy(source())
            return x.pin_memory() if s.torch_device == "cuda" else x

        def call(x: Any) -> Any:
            y = x.to(s.torch_device, non_blocking=True).sum()
            s.torch_wait()
            return y

        return timed(prepare, call, same_sum)

    # --- and back ---

    def down_isthmus(how: str) -> Callable[[], dict[str, Any]]:
        def run() -> dict[str, Any]:
            import numpy as np

            mx = s.mx
            x = mx.array(source())

            def prepare() -> Any:
                y = x + 1
                mx.eval(y)
                return y

            return timed(prepare, getattr(np, how), same_values)

        return run

    def down_torch() -> dict[str, Any]:
        x = s.torch.from_numpy(source()).to(s.torch_device)

        def prepare() -> Any:
            y = x + 1
            s.torch_wait()
            return y

        return timed(prepare, lambda y: y.cpu().numpy(), same_values)

    def down_torch_pinned() -> dict[str, Any]:
        x = s.torch.from_numpy(source()).to(s.torch_device)
        out = s.torch.empty(count, pin_memory=s.torch_device == "cuda")

        def prepare() -> Any:
            y = x + 1
            s.torch_wait()
            return y

        def call(y: Any) -> Any:
            out.copy_(y, non_blocking=True)
            s.torch_wait()
            return out

        return timed(prepare, call, same_values)

    def down_jax() -> dict[str, Any]:
        import numpy as np

        x = s.jax.device_put(source())
        return timed(lambda: (x + 1).block_until_ready(), np.array, same_values)

    up, pinned, down, view = (
        "NumPy to first use",
        "pinned to first use (isthmus: view of a cpu array)",
        "back: np.array(x)",
        "back, pinned (isthmus: np.asarray(x))",
    )
    return [
        Item(up, "torch", "GB/s", up_torch),
        Item(up, "JAX jit", "GB/s", up_jax),
        Item(up, "isthmus", "GB/s", up_isthmus, 20),
        Item(pinned, "torch", "GB/s", pinned_torch),
        Item(pinned, "isthmus", "GB/s", pinned_isthmus, 50),
        Item(down, "torch", "GB/s", down_torch),
        Item(down, "JAX jit", "GB/s", down_jax),
        Item(down, "isthmus", "GB/s", down_isthmus("array"), 12),
        Item(view, "torch", "GB/s", down_torch_pinned),
        Item(view, "isthmus", "GB/s", down_isthmus("asarray"), 50),
    ]
