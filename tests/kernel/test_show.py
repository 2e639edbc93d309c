"""The text of a kernel: readable (a golden file), the same every time, and all that tells kernels apart."""

from __future__ import annotations

import difflib
import os
import time
from pathlib import Path

from isthmus.graph.dtype import float16, float32, int32, int64, uint32
from isthmus.kernel import scalar as s
from isthmus.kernel.loops import Axis, Index, Kernel, Load, Reduce, Side, Slot, Stage, Store
from isthmus.kernel.scalar import Expr

GOLDEN = Path(__file__).parent.parent / "golden" / "kernels.txt"


def load(buffer, dtype, index, mask=None):
    return Expr("load", dtype, (), Load(buffer, index, mask))


def row(number, dtype=float32):
    return Expr("row", dtype, (), number)


def frame(first, reduced_last=True):
    return (Axis(Slot(first), False), Axis(Slot(first + 1), reduced_last))


def softmax() -> Kernel:
    at = Index(0, ((0, Slot(3)), (1, 1)))
    x = load(0, float32, at)
    e = s.exp(s.sub(x, row(0)))
    stages = (
        Stage((), (Reduce(0, "max", x, float32),)),
        Stage((), (Reduce(1, "sum", e, float32),)),
        Stage((Store(1, at, s.div(e, row(1))),)),
    )
    return Kernel("row", frame(2), (float32, float32), stages, 4)


def cross_entropy() -> Kernel:
    """Loss and gradient of float16 logits (rows of slot 6) for int32 targets; the weight of a row is a parameter."""
    at, a_row = Index(Slot(7), ((0, Slot(6)), (1, 1))), Index(0, ((0, 1),))
    x = s.cast(load(0, float16, at), float32)
    target = s.cast(load(1, int32, a_row), int64)
    e = s.exp(s.sub(x, row(0)))
    picked = s.cast(load(0, float16, Index(Slot(7), ((0, Slot(6)),), ((target, 1),))), float32)
    loss = s.sub(s.add(row(0), s.log(row(1))), picked)
    hot = s.select(s.eq(Expr("axis", int64, (), 1), target), s.const(1, float32), s.const(0, float32))
    weight = Expr("param", float32, (), Slot(8))
    gradient = s.cast(s.mul(s.sub(s.div(e, row(1)), hot), weight), float16)
    stages = (
        Stage((), (Reduce(0, "max", x, float32),)),
        Stage((Store(2, a_row, loss, full=False),), (Reduce(1, "sum", e, float32),)),
        Stage((Store(3, Index(0, ((0, Slot(6)), (1, 1))), gradient),)),
    )
    return Kernel("row", (Axis(Slot(5), False), Axis(Slot(6), True)), (float16, int32, float32, float16), stages, 9)


def norm_gradient() -> Kernel:
    at, a_row, along = Index(0, ((0, Slot(6)), (1, 1))), Index(0, ((0, 1),)), Index(0, ((1, 1),))
    ct, x, gamma = load(0, float32, at), load(1, float32, at), load(2, float32, along)
    g = s.mul(ct, gamma)
    scale = load(3, float32, a_row)
    stages = (
        Stage((), (Reduce(0, "sum", s.mul(g, x), float32),)),
        Stage((Store(4, at, s.mul(scale, s.sub(g, s.mul(x, row(0))))),), (), (Side(5, along, s.mul(ct, s.mul(x, scale))),)),
    )
    return Kernel("row", (Axis(Slot(6), False), Axis(Slot(7), True)), (float32,) * 6, stages, 8)


def pad() -> Kernel:
    i = Expr("axis", int64, (), 1)
    start = Expr("param", int64, (), Slot(2))
    inside = s.and_(s.ge(i, start), s.lt(i, s.add(start, Expr("param", int64, (), Slot(5)))))
    x = load(0, float32, Index(Slot(6), ((0, Slot(5)), (1, 1))), inside)
    value = s.select(inside, x, s.const(-1.5, float32))
    return Kernel("map", frame(3, False), (float32, float32), (Stage((Store(1, Index(0, ((0, Slot(4)), (1, 1))), value),)),), 7)


def column_argmax() -> Kernel:
    axes = (Axis(Slot(2), True), Axis(Slot(3), False))
    reduce = Reduce(0, "argmax", load(0, float16, Index(0, ((0, Slot(3)), (1, 1)))), uint32)
    return Kernel("column", axes, (float16, uint32), (Stage((Store(1, Index(0, ((1, 1),)), row(0, uint32), full=False),), (reduce,)),), 4)


def scatter_add() -> Kernel:
    at = s.cast(load(1, int32, Index(0, ((0, 1),))), int64)
    place = Index(0, ((1, 1),), ((at, Slot(4)),))
    value = load(2, float32, Index(0, ((0, Slot(4)), (1, 1))))
    return Kernel("scatter", frame(3, False), (float32, int32, float32), (Stage((Store(0, place, value, combine="add", mask=s.ge(at, s.index_const(0))),)),), 5)


KERNELS = [softmax, cross_entropy, norm_gradient, pad, column_argmax, scatter_add]


def test_the_text_is_the_golden_file():
    """`ISTHMUS_UPDATE_GOLDEN=1` writes it anew."""
    text = "\n\n".join(f"# {make.__name__}\n{make().text()}" for make in KERNELS) + "\n"
    if os.environ.get("ISTHMUS_UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    golden = GOLDEN.read_text()
    assert text == golden, "\n".join(difflib.unified_diff(golden.splitlines(), text.splitlines(), "golden", "now", lineterm=""))


def test_equal_kernels_built_apart_have_equal_text():
    for make in KERNELS:
        assert make().text() == make().text()


def one(value: Expr, buffers=(float32, float32), index=Index(0, ((0, 1),)), form="map", n_slots=9, size=Slot(2), **how) -> str:
    return Kernel(form, (Axis(size, False),), buffers, (Stage((Store(len(buffers) - 1, index, value, **how),)),), n_slots).text()


def test_what_differs_in_code_differs_in_text():
    line = Index(0, ((0, 1),))
    x = load(0, float32, line)
    i = Expr("axis", int64, (), 0)
    yes = s.ge(i, s.index_const(1))
    texts = [
        one(x),
        one(x, n_slots=10),
        one(x, size=4),
        one(x, size=Slot(3)),
        one(x, form="scatter"),
        one(x, form="scatter", combine="add"),
        one(x, form="scatter", combine="max"),
        one(x, full=False),
        one(x, mask=yes),
        one(x, index=Index(1, ((0, 1),))),
        one(x, index=Index(Slot(1), ((0, 1),))),
        one(x, index=Index(0, ((0, Slot(1)),))),
        one(x, index=Index(0, ((0, 2),))),
        one(x, index=Index(0, ((0, 1),), ((i, 1),))),
        one(x, index=Index(0, ((0, 1),), ((i, Slot(1)),))),
        one(x, index=Index(0, (), ((s.neg(i), 1),))),
        one(load(0, float32, line, yes)),
        one(load(1, float32, line)),
        one(load(0, float32, Index(0, ()))),
        one(s.const(1, float32)),
        one(s.const(1.0000001, float32)),
        one(s.const(0.0, float32)),
        one(s.const(-0.0, float32)),
        one(s.const(float("inf"), float32)),
        one(s.const(float("nan"), float32)),
        one(Expr("param", float32, (), Slot(3))),
        one(Expr("param", float32, (), Slot(4))),
        one(s.add(x, x)),
        one(s.sub(x, x)),
        one(s.cast(s.const(1, int32), float32)),
        one(s.cast(s.const(1, int64), float32)),
        one(load(0, float16, line), (float16, float16)),
    ]
    assert len(set(texts)) == len(texts)


def test_an_axis_as_a_computed_index_is_the_axis():
    x = load(0, float32, Index(0, ((0, 1),)))
    assert one(x, index=Index(0, (), ((Expr("axis", int64, (), 0), 1),))) == one(x)


def test_equal_expressions_are_shown_once():
    def e():
        return s.exp(load(0, float32, Index(0, ((0, 1),))))

    assert one(s.add(e(), e())).count("exp") == 1


def test_a_slot_may_be_a_plain_number():
    assert one(Expr("param", float32, (), 3)) == one(Expr("param", float32, (), Slot(3)))


def test_a_long_chain_does_not_recurse():
    x = load(0, float32, Index(0, ((0, 1),)))
    for _ in range(20_000):
        x = s.neg(x)
    assert one(x).count("neg") == 20_000


def test_fifty_instructions_take_less_than_300_us():
    x = load(0, float32, Index(Slot(4), ((0, Slot(5)),)))
    y = x
    for k in range(25):
        y = s.add(s.mul(y, x), s.const(k, float32))
    kernel = Kernel("map", (Axis(Slot(2), False),), (float32, float32), (Stage((Store(1, Index(0, ((0, 1),)), y),)),), 6)
    assert kernel.text().count(" = ") == 51

    def once() -> float:
        start = time.perf_counter()
        kernel.text()
        return time.perf_counter() - start

    assert min(once() for _ in range(200)) < 300e-6
