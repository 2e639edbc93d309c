"""Work that only moves bytes: maps, rows, sums; GB/s count inputs and outputs once each.

No input fits in the 60 MB of L2 (the least is 64M bfloat16, 128 MB), so one set of inputs is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from common import GIB, Item, Setup, rate

EPS = 1e-5
SIZES = {"float32": 4, "bfloat16": 2}


def copy(s: Setup) -> dict[str, Any]:
    a = s.draw(s.size(GIB, 2**20) // 4)
    b = s.torch.empty_like(a)
    return rate(s.time_torch(lambda: b.copy_(a)), 2e-9 * a.numel() * 4)


def works(s: Setup) -> dict[str, tuple[Callable, dict[str, Callable], Callable, Callable]]:
    """name -> torch's function, isthmus's by name, JAX's; all of (x, w, b)."""

    def jnp() -> Any:
        return s.jax.numpy

    def F() -> Any:
        return s.torch.nn.functional

    def layer_norm_ops(x, w, b):
        mx = s.mx
        y = x.astype(mx.float32)
        y = (y - mx.mean(y, axis=-1, keepdims=True)) * mx.rsqrt(mx.var(y, axis=-1, keepdims=True) + EPS)
        return (y * w + b).astype(x.dtype)

    def rms_norm_ops(x, w, b):
        mx = s.mx
        y = x.astype(mx.float32)
        return (y * mx.rsqrt(mx.mean(mx.square(y), axis=-1, keepdims=True) + EPS) * w).astype(x.dtype)

    def from_nn(name):
        @cache
        def layer(n):
            from isthmus import nn

            return getattr(nn, name)(n, eps=EPS)

        def f(x, w, b):
            one = layer(x.shape[-1])
            one.weight = w
            if name == "LayerNorm":
                one.bias = b
            return one(x)

        return f

    def gelu(x, w, b):
        from isthmus import nn

        return nn.gelu(x * w + b)

    def jax_layer_norm(x, w, b):
        y = x.astype("float32")
        y = (y - y.mean(-1, keepdims=True)) * s.jax.lax.rsqrt(y.var(-1, keepdims=True) + EPS)
        return (y * w + b).astype(x.dtype)

    def jax_rms_norm(x, w, b):
        y = x.astype("float32")
        return (y * s.jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + EPS) * w).astype(x.dtype)

    rms = (
        lambda x, w, b: F().rms_norm(x, (x.shape[-1],), w, EPS),
        {"ops": rms_norm_ops, "nn": from_nn("RMSNorm"), "mx.fast": lambda x, w, b: s.mx.fast.rms_norm(x, w, EPS)},
        jax_rms_norm,
    )
    softmax = (lambda x, w, b: x.softmax(-1), {"": lambda x, w, b: s.mx.softmax(x, axis=-1)}, lambda x, w, b: s.jax.nn.softmax(x, axis=-1))
    return {
        "gelu(x * w + b)": (lambda x, w, b: F().gelu(x * w + b), {"": gelu}, lambda x, w, b: s.jax.nn.gelu(x * w + b, approximate=False)),
        "softmax": softmax,
        "layer norm": (
            lambda x, w, b: F().layer_norm(x, (x.shape[-1],), w, b, EPS),
            {"ops": layer_norm_ops, "nn": from_nn("LayerNorm"), "mx.fast": lambda x, w, b: s.mx.fast.layer_norm(x, w, b, EPS)},
            jax_layer_norm,
        ),
        "rms norm": rms,
        **{
            f"sum, {name}": (
                lambda x, w, b, axis=axis: x.sum() if axis is None else x.sum(axis),
                {"": lambda x, w, b, axis=axis: s.mx.sum(x, axis=axis)},
                lambda x, w, b, axis=axis: x.sum(axis),
            )
            for name, axis in (("last axis", -1), ("first axis", 0), ("all", None))
        },
        "argmax": (lambda x, w, b: x.argmax(-1), {"": lambda x, w, b: s.mx.argmax(x, axis=-1)}, lambda x, w, b: jnp().argmax(x, axis=-1)),
        "A.T + B": (lambda a, b, _: a.T + b, {"": lambda a, b, _: a.T + b}, lambda a, b, _: a.T + b),
        "softmax, long rows": softmax,
        "rms norm, long rows": rms,
    }


def output_bytes(work: str, shape: tuple[int, int], itemsize: int) -> int:
    if work.startswith("sum"):
        return itemsize * {"last axis": shape[0], "first axis": shape[1], "all": 1}[work[5:]]
    return 4 * shape[0] if work == "argmax" else itemsize * shape[0] * shape[1]


def goal(work: str, dtype: str) -> Any:
    if work.startswith("sum"):
        return 4300
    if "long rows" in work:
        return {"float32": 3600, "bfloat16": 3000}[dtype]
    return 4000 if work == "argmax" else (0.92, "copy, 1 GiB")


def items(s: Setup) -> list[Item]:
    rows, long, square = s.size((65536, 4096), (96, 512)), s.size((2048, 131072), (4, 8192)), s.size((8192, 8192), (128, 128))

    @cache
    def base(dtype: str) -> Any:
        # Not of mean 0: the relative error of a sum of 2^28 would say nothing.
        return s.draw(rows[0] * rows[1], dtype=dtype, mean=0.25)

    @cache
    def torch_inputs(work: str, dtype: str) -> tuple[Any, ...]:
        if work == "A.T + B":
            n = square[0] * square[1]
            x = base(dtype)
            return x[:n].view(square), (x[n : 2 * n] if x.numel() >= 2 * n else x[:n] * 2).view(square), None
        shape = long if "long rows" in work else rows
        x = base(dtype)[: shape[0] * shape[1]].view(shape)
        return x, *weights(shape[1], dtype)

    @cache
    def weights(n: int, dtype: str) -> tuple[Any, Any]:
        return s.draw(n, dtype=dtype), s.draw(n, dtype=dtype)

    kept: dict[tuple[Any, ...], Any] = {}  # isthmus's copies of the inputs in use

    def isthmus_inputs(work: str, dtype: str) -> list[Any]:
        inputs = torch_inputs(work, dtype)
        keys = [None if x is None else (x.data_ptr(), tuple(x.shape)) for x in inputs]
        for key in set(kept) - set(keys):
            del kept[key]
        for key, x in zip(keys, inputs):
            if key is not None and key not in kept:
                kept[key] = s.to_isthmus(x)
        return [None if key is None else kept[key] for key in keys]

    def reference(f: Callable, inputs: tuple[Any, ...]) -> Any:
        return f(*(None if x is None else x.double() for x in inputs))

    def run_isthmus(work: str, dtype: str, torch_f: Callable, f: Callable, amount: float) -> dict[str, Any]:
        inputs = torch_inputs(work, dtype)
        mine = isthmus_inputs(work, dtype)
        result = f(*mine)
        s.mx.eval(result)
        if work == "argmax":  # where values tie, any of them is right
            x = inputs[0]
            wrong = int((x.gather(1, s.to_torch(result)[:, None])[:, 0] != x.amax(-1)).sum())
            assert wrong == 0, f"wrong result: {wrong} of {x.shape[0]} rows name a smaller element"
            error = 0.0
        else:
            error = s.error(result, reference(torch_f, inputs), dtype)
        del result
        return rate(s.time_isthmus(lambda: f(*mine)), amount, error=error)

    def run_torch(work: str, dtype: str, f: Callable, amount: float) -> dict[str, Any]:
        inputs = torch_inputs(work, dtype)
        return rate(s.time_torch(lambda: f(*inputs)), amount)

    def run_compiled(work: str, dtype: str, f: Callable, amount: float) -> dict[str, Any]:
        return rate(s.time_torch(s.compiled(f, *torch_inputs(work, dtype))), amount)

    def run_jax(work: str, dtype: str, f: Callable, amount: float) -> dict[str, Any]:
        inputs = [None if x is None else s.to_jax(x) for x in torch_inputs(work, dtype)]
        g = s.jax.jit(f)
        return rate(s.time_jax(lambda: g(*inputs)), amount)

    found = [Item("copy, 1 GiB", "torch", "GB/s", lambda: copy(s))]
    for dtype in ("float32", "bfloat16"):
        for work, (torch_f, ours, jax_f) in works(s).items():
            shape = square if work == "A.T + B" else long if "long rows" in work else rows
            read = shape[0] * shape[1] * (2 if work == "A.T + B" else 1) * SIZES[dtype]
            amount = 1e-9 * (read + output_bytes(work, shape, SIZES[dtype]))  # the rows w and b: 8 kB
            row = f"{work}, {dtype}"
            bind = (work, dtype)
            found.append(Item(row, "torch", "GB/s", lambda a=(*bind, torch_f, amount): run_torch(*a)))
            if not s.quick:
                found.append(Item(row, "torch.compile", "GB/s", lambda a=(*bind, torch_f, amount): run_compiled(*a)))
            found.append(Item(row, "JAX jit", "GB/s", lambda a=(*bind, jax_f, amount): run_jax(*a)))
            for variant, f in ours.items():
                if variant == "mx.fast" and not hasattr(s.mx, "fast"):
                    continue
                name = f"{row}, {variant}" if variant else row
                found.append(Item(name, "isthmus", "GB/s", lambda a=(*bind, torch_f, f, amount): run_isthmus(*a), goal(work, dtype), row))
    return found
