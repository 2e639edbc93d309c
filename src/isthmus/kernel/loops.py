"""Loops over scalar expressions: the one description of a launch that every backend and the interpreter read.

A `Kernel` runs over a *frame*: its axes, in order, outermost first. Axes are parallel, or reduced (those of a row).
Its `form` says how it is walked; what it computes is the same for every walk:

- `map`: no reduced axis, one stage: for each place, the stores.
- `row`: the last axis is reduced. For each row (a place of the parallel axes), stage by stage: walk the reduced axes in
  row-major order doing the stage's full stores and reductions, then the stage's row stores. Reductions add up in the
  *row rule* order (docs/design/cpu_abi.md), and later stages may read their results (`row` expressions).
- `column`: the last axis is parallel; the same meaning, with the *column rule*.
- `scatter`: as `map`, in row-major order and never in parallel, since stores at computed places may meet.

A *side sum* (row form only) adds a value over the parallel axes for each place of the reduced axes (column rule).

Parameters are 8-byte slots `p[0..]`: `p[k]` is the address of buffer `k`; the others hold integers (sizes, strides and
offsets in elements) or the bits of a float64, as the leaf that reads them says. Only structure is in a kernel, never a
size, so one compiled kernel serves all shapes. Two kernels with equal `text()` are the same kernel.
"""

from __future__ import annotations

from typing import NamedTuple

from isthmus.graph.dtype import Dtype
from isthmus.kernel.scalar import Expr


class Slot(NamedTuple):
    """A parameter slot, where an `int` would be a literal."""

    number: int

    def __repr__(self) -> str:
        return f"p{self.number}"


class Index(NamedTuple):
    """An element's place in a buffer: `offset + sum(axis * stride) + sum(value * stride)`.

    `values` are int64 expressions, already within bounds.
    """

    offset: int | Slot
    terms: tuple[tuple[int, int | Slot], ...]  # (frame axis, stride), axes ascending
    values: tuple[tuple[Expr, int | Slot], ...] = ()


class Load(NamedTuple):
    """The payload of a `load` leaf. Where `mask` (a bool expression) is false nothing is read and the value is 0."""

    buffer: int
    index: Index  # type: ignore[assignment]  # tuple's own index is not used
    mask: Expr | None = None


class Store(NamedTuple):
    """`buffer[index] = value`; `combine` (add, mul, max, min) joins it with what is there (scatter form only).

    `full` stores run at every place of the frame; others once a row, after their stage's walk (value and index then
    depend on parallel axes and `row` expressions only).
    """

    buffer: int
    index: Index  # type: ignore[assignment]  # tuple's own index is not used
    value: Expr
    full: bool = True
    combine: str | None = None
    mask: Expr | None = None


class Reduce(NamedTuple):
    """A reduction of `value` over the reduced axes: sum, prod, max, min, all, any, argmax, argmin.

    Its result, of dtype `dtype` (the accumulator's; uint32 for argmax and argmin), is read as `row` leaf `number`.
    """

    number: int
    kind: str
    value: Expr
    dtype: Dtype


class Side(NamedTuple):
    """A sum of `value` over the parallel axes, stored per place of the reduced axes; `index` uses reduced axes only."""

    buffer: int
    index: Index  # type: ignore[assignment]  # tuple's own index is not used
    value: Expr


class Stage(NamedTuple):
    stores: tuple[Store, ...] = ()
    reduces: tuple[Reduce, ...] = ()
    sides: tuple[Side, ...] = ()


class Axis(NamedTuple):
    size: int | Slot
    reduced: bool


class Kernel(NamedTuple):
    form: str
    axes: tuple[Axis, ...]
    buffers: tuple[Dtype, ...]  # by number; p[k] is the address of buffer k
    stages: tuple[Stage, ...]
    n_slots: int

    def text(self) -> str:
        """The kernel as readable lines; equal text means equal code."""
        from isthmus.kernel.show import kernel_text

        return kernel_text(self)


def roots(stage: Stage) -> list[Expr]:
    """Every expression a stage evaluates, index and mask expressions included (loads' own are reached by `children`)."""
    found: list[Expr] = []
    for store in stage.stores:
        found += [e for e, _ in store.index.values]
        if store.mask is not None:
            found.append(store.mask)
        found.append(store.value)
    found += [r.value for r in stage.reduces]
    found += [s.value for s in stage.sides]
    return found


def children(e: Expr) -> tuple[Expr, ...]:
    """What must be evaluated before `e`: its arguments, or for a load its computed indices and mask."""
    if e.op != "load":
        return e.args
    load: Load = e.attr
    inner = tuple(v for v, _ in load.index.values)
    return inner if load.mask is None else (*inner, load.mask)


def linearize(expressions: list[Expr], numbers: dict[object, int], known: dict[int, int]) -> list[tuple[int, Expr, tuple[int, ...]]]:
    """The expressions in evaluation order, equal ones once: `(number, expression, numbers of its children)`.

    `numbers` (structure -> number) and `known` (id of an Expr -> number) carry over between calls that share values.
    """
    lines: list[tuple[int, Expr, tuple[int, ...]]] = []
    for root in expressions:
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            e, ready = stack.pop()
            if id(e) in known:
                continue
            inner = children(e)
            if not ready:
                stack.append((e, True))
                stack.extend((c, False) for c in reversed(inner) if id(c) not in known)
                continue
            at = tuple(known[id(c)] for c in inner)
            attr = e.attr
            if e.op == "load":
                load: Load = attr
                strides = tuple(stride for _, stride in load.index.values)
                attr = (load.buffer, load.index.offset, load.index.terms, strides, load.mask is not None)
            elif e.op == "const":
                attr = repr(attr)
            key = (e.op, e.dtype.index, at, attr)
            number = numbers.get(key)
            if number is None:
                number = numbers[key] = len(numbers)
                lines.append((number, e, at))
            known[id(e)] = number
    return lines
