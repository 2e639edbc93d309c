"""Matrix products, TFLOP/s beside torch's; float32 is float32 everywhere (no TF32: its error would be 3e-4)."""

from __future__ import annotations

from typing import Any

from common import Item, Setup, micros, rate


def items(s: Setup) -> list[Item]:
    def product(name: str, dtype: str, a_shape: tuple[int, ...], b_shape: tuple[int, ...], addend: bool = False, small: bool = False) -> list[Item]:
        made: list[Any] = []
        work = 2e-12 * b_shape[-1]
        for n in a_shape:
            work *= n

        def inputs() -> list[Any]:
            if not made:
                made.extend([s.draw(*a_shape, dtype=dtype), s.draw(*b_shape, dtype=dtype)] + [s.draw(b_shape[-1], dtype=dtype)] * addend)
            return made

        def answer(times: dict[str, float], **more: Any) -> dict[str, Any]:
            return micros(times, **more) if small else rate(times, work, **more)

        def run_torch() -> dict[str, Any]:
            a, b, *c = inputs()
            return answer(s.time_torch((lambda: s.torch.addmm(c[0], a, b)) if addend else (lambda: s.torch.matmul(a, b))))

        def run_jax() -> dict[str, Any]:
            arrays = [s.to_jax(x) for x in inputs()]
            precision = "highest" if dtype == "float32" else None  # JAX's own choice for float32 is TF32
            g = s.jax.jit(lambda a, b, c=0: s.jax.numpy.matmul(a, b, precision=precision) + c)
            return answer(s.time_jax(lambda: g(*arrays)))

        def run_isthmus() -> dict[str, Any]:
            mx = s.mx
            a, b, *c = (s.to_isthmus(x) for x in inputs())
            f = (lambda: mx.addmm(c[0], a, b)) if addend else (lambda: a @ b)
            ta, tb, *tc = (x.double() for x in inputs())
            reference = s.torch.matmul(ta, tb)
            if addend:
                reference += tc[0]
            del ta, tb
            error = s.error(f(), reference, dtype)
            del reference
            found = answer(s.time_isthmus(f), error=error)
            made.clear()
            return found

        unit = "us" if small else "TFLOP/s"
        peers = [Item(name, "torch", unit, run_torch)]
        if not s.quick:
            peers.append(Item(name, "JAX jit", unit, run_jax))
        return peers + [Item(name, "isthmus", unit, run_isthmus, (0.98, "torch"))]

    n, m, k = s.size(8192, 64), s.size(4096, 48), s.size(1024, 32)
    return [
        *product(f"bfloat16 {n}^3", "bfloat16", (n, n), (n, n)),
        *product(f"bfloat16 {m}^3", "bfloat16", (m, m), (m, m)),
        *product(f"float32 {m}^3", "float32", (m, m), (m, m)),
        *product(f"bfloat16 64 x {k}^3", "bfloat16", (64, k, k), (64, k, k)),
        *product(f"addmm bfloat16 {m}^3 + row", "bfloat16", (m, m), (m, m), addend=True),
        *product("float32 (256x784)@(784x32)", "float32", (256, 784), (784, 32), small=True),
    ]
