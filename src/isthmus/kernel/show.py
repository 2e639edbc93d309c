"""Kernels as text, for people, golden files, and as the identity of a kernel."""

from __future__ import annotations

from isthmus.kernel.loops import Index, Kernel, Load, linearize, roots
from isthmus.kernel.scalar import Expr


def kernel_text(kernel: Kernel) -> str:
    axes = ", ".join(f"{'r' if axis.reduced else 'i'}{k} < {axis.size}" for k, axis in enumerate(kernel.axes))
    buffers = ", ".join(f"b{k}: {dtype.name}" for k, dtype in enumerate(kernel.buffers))
    lines = [f"{kernel.form} over ({axes}) with {buffers}"]
    numbers: dict[object, int] = {}
    known: dict[int, int] = {}

    def value(e: Expr) -> str:
        return f"%{known[id(e)]}"

    def place(index: Index) -> str:
        parts = [] if index.offset == 0 and isinstance(index.offset, int) else [f"{index.offset}"]
        for axis, stride in index.terms:
            name = f"{'r' if kernel.axes[axis].reduced else 'i'}{axis}"
            parts.append(name if stride == 1 and isinstance(stride, int) else f"{name}*{stride}")
        parts += [f"{value(v)}*{stride}" for v, stride in index.values]
        return " + ".join(parts) or "0"

    for number, stage in enumerate(kernel.stages):
        if len(kernel.stages) > 1:
            lines.append(f"stage {number}:")
        for k, e, at in linearize(roots(stage), numbers, known):
            if e.op == "load":
                load: Load = e.attr
                text = f"load b{load.buffer}[{place(load.index)}]" + ("" if load.mask is None else f" if {value(load.mask)}")
            elif e.args:
                text = f"{e.op} " + ", ".join(f"%{a}" for a in at)
            else:
                text = f"{e.op} {e.attr!r}"
            lines.append(f"  %{k}: {e.dtype.code} = {text}")
        for r in stage.reduces:
            lines.append(f"  row {r.number}: {r.dtype.code} = {r.kind} {value(r.value)}")
        for store in stage.stores:
            how = store.combine or "store"
            when = "" if store.mask is None else f" if {value(store.mask)}"
            each = "" if store.full else " (once a row)"
            lines.append(f"  {how} b{store.buffer}[{place(store.index)}] <- {value(store.value)}{when}{each}")
        for side in stage.sides:
            lines.append(f"  side sum b{side.buffer}[{place(side.index)}] <- {value(side.value)}")
    return "\n".join(lines)
