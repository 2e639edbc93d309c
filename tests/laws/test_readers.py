"""The interpreter and the native kernels run the same plans to the same bits where arithmetic is exact, else within the row's ulps."""

from __future__ import annotations

import pytest

import isthmus.core as mx
from tests.laws.cases import CASES, Case
from tests.laws.drawn import arrays, call, check, draw, extremes, numbers, same_bits, size_of_terms, tolerance
from tests.laws.interpreted import interpreted
from tests.laws.test_bits import graph, largest
from tests.schedule.programs import program


@pytest.mark.parametrize("case", CASES, ids=str)
def test_interpreter_and_native_agree(case: Case, monkeypatch: pytest.MonkeyPatch):
    for dtype in case.dtypes:
        inputs = [arrays(draw(case, shapes, dtype)) for shapes in {largest(case), case.shapes[-1]}]
        if case.extremes:
            inputs.append(arrays(extremes(case, len(case.shapes[0]), dtype)))
        for xs in inputs:
            y = call(case, xs)
            mx.eval(y)
            with interpreted(monkeypatch):
                other = call(case, xs)
                mx.eval(other)
            what = f"{dtype} {[x.shape for x in xs]}"
            if case.exact:
                assert same_bits(y, other), f"{what}: native {numbers(y)} interpreted {numbers(other)}"
            else:
                values = [numbers(x) for x in xs]
                check(y, numbers(other), 2 * tolerance(case, y.dtype), size_of_terms(case, values, y.dtype), what)


@pytest.mark.parametrize("case", [c for c in CASES if c.exact], ids=str)
def test_fused_graphs_agree(case: Case, monkeypatch: pytest.MonkeyPatch):
    """A row's op between others, as in the bits law: one plan of fused kernels, read by both."""
    dtype = case.dtypes[len(case.name) % len(case.dtypes)]
    inputs = arrays(draw(case, largest(case), dtype))
    mine = graph(case, inputs, lambda x: x)
    mx.eval(mine[1:])
    with interpreted(monkeypatch) as interpreter:
        theirs = graph(case, inputs, lambda x: x)
        mx.eval(theirs[1:])
    assert interpreter.launches or 0 in mine[0].shape
    for a, b in zip(mine, theirs, strict=True):
        assert same_bits(a, b), dtype


@pytest.mark.parametrize("block", range(8))
def test_random_programs_agree(block: int, monkeypatch: pytest.MonkeyPatch):
    """Programs of exact ops alone (the random ones of tests/schedule, with cheap maps for the transcendental functions)."""
    stand_ins = {"sin": lambda x: x * 0.75 if mx.issubdtype(x.dtype, mx.floating) else x, "exp": lambda x: x + 1, "tanh": mx.negative, "softmax": lambda x, axis: x - mx.max(x, axis=axis, keepdims=True)}
    for name, f in stand_ins.items():
        monkeypatch.setattr(mx, name, f)
    import tests.schedule.programs as programs

    monkeypatch.setattr(programs, "UNARY", (mx.negative, mx.square, mx.abs, lambda a: a * 0.5, lambda a: 1 - a))
    for seed in range(1000 + block * 15, 1015 + block * 15):
        mine, _ = program(seed, lambda x: None, lambda: False)
        mx.eval(mine)
        with interpreted(monkeypatch):
            theirs, _ = program(seed, lambda x: None, lambda: False)
            mx.eval(theirs)
        for a, b in zip(mine, theirs, strict=True):
            assert same_bits(a, b), f"seed {seed}"
