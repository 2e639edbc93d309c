"""Kernels as text, for people, golden files, and as the identity of a kernel.

One line an instruction, in the order of a stage (its walk, then what is done once a row), equal ones once; `i0` is a parallel axis, `r1` a reduced one, `row0` the
result of a reduction, `b0` a buffer, `p5` a parameter slot. A literal or parameter carries its dtype, so that the text
says all that the code depends on: two kernels of equal text may share it.
"""

from __future__ import annotations

from isthmus.kernel.loops import Index, Kernel, Load, Slot, Stage, linearize
from isthmus.kernel.scalar import Expr


def kernel_text(kernel: Kernel) -> str:
    axis_names = [f"{'r' if axis.reduced else 'i'}{k}" for k, axis in enumerate(kernel.axes)]
    axes = ", ".join(f"{name} < {axis.size!r}" for name, axis in zip(axis_names, kernel.axes, strict=True))
    buffers = ", ".join(f"b{k}: {dtype.name}" for k, dtype in enumerate(kernel.buffers))
    lines = [f"{kernel.form} over ({axes}) with {buffers}; {kernel.n_slots} slots"]
    numbers: dict[object, int] = {}
    known: dict[int, int] = {}
    names: list[str] = []  # by number
    n_lines = 0

    def value(e: Expr) -> str:
        return names[known[id(e)]]

    def place(index: Index) -> str:
        parts = [] if index.offset == 0 and isinstance(index.offset, int) else [repr(index.offset)]
        for axis, stride in index.terms:
            parts.append(axis_names[axis] if stride == 1 and isinstance(stride, int) else f"{axis_names[axis]}*{stride!r}")
        for v, stride in index.values:
            parts.append(value(v) if stride == 1 and isinstance(stride, int) else f"{value(v)}*{stride!r}")
        return " + ".join(parts) or "0"

    def instructions(expressions: list[Expr]) -> None:
        nonlocal n_lines
        for _, e, at in linearize(expressions, numbers, known):
            op = e.op
            if op == "const":
                names.append(f"{e.attr!r}:{e.dtype.code}")
            elif op == "param":
                names.append(f"{Slot(e.attr) if isinstance(e.attr, int) else e.attr!r}:{e.dtype.code}")
            elif op == "axis":
                names.append(axis_names[e.attr])
            elif op == "row":
                names.append(f"row{e.attr}")
            else:
                if op == "load":
                    load: Load = e.attr
                    text = f"load b{load.buffer}[{place(load.index)}]" + ("" if load.mask is None else f" if {value(load.mask)}")
                else:
                    text = f"{op}{'~' if e.attr is not None else ''} " + ", ".join([names[k] for k in at])
                names.append(f"%{n_lines}")
                lines.append(f"  %{n_lines}: {e.dtype.code} = {text}")
                n_lines += 1

    def stores(stage: Stage, full: bool) -> None:
        for store in stage.stores:
            if store.full is full:
                when = "" if store.mask is None else f" if {value(store.mask)}"
                lines.append(f"  {store.combine or 'store'} b{store.buffer}[{place(store.index)}] <- {value(store.value)}{when}" + ("" if full else " (once a row)"))

    for number, stage in enumerate(kernel.stages):
        if len(kernel.stages) > 1:
            lines.append(f"stage {number}:")
        instructions(stage_roots(stage, walk=True))
        stores(stage, full=True)
        for side in stage.sides:
            lines.append(f"  side sum b{side.buffer}[{place(side.index)}] <- {value(side.value)}")
        for r in stage.reduces:
            lines.append(f"  row{r.number}: {r.dtype.code} = {r.kind} {value(r.value)}")
        instructions(stage_roots(stage, walk=False))
        stores(stage, full=False)
    return "\n".join(lines)


def stage_roots(stage: Stage, walk: bool) -> list[Expr]:
    """What a stage evaluates at every place of its walk, or (not `walk`) after it, once a row."""
    found: list[Expr] = []
    for store in stage.stores:
        if store.full is walk:
            found += [v for v, _ in store.index.values]
            if store.mask is not None:
                found.append(store.mask)
            found.append(store.value)
    if walk:
        found += [r.value for r in stage.reduces]
        for side in stage.sides:
            found += [v for v, _ in side.index.values]
            found.append(side.value)
    return found
