"""Backward passes that are made again from a list are those that the rules make."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import isthmus.core as mx
from isthmus import nn
from isthmus.schedule.order import walk
from isthmus.transforms import vjp as vjp_module
from isthmus.transforms.remember import FORMS, Forms


@pytest.fixture
def forms(monkeypatch: pytest.MonkeyPatch) -> Forms:
    """No form is known."""
    fresh = Forms()
    monkeypatch.setattr(FORMS, "passes", fresh.passes)
    monkeypatch.setattr(FORMS, "never", fresh.never)
    return fresh


def graph_of(outputs: list[Any]) -> list[Any]:
    """The graph as its ordered signatures, edges, numbers, shapes, and the code that made it."""
    nodes, key, _, _ = walk([y._node for y in reversed(outputs)], 1 << 20)
    return [key, [(n.dyn, n.shape, n.code) for n in nodes]]


def drawn(*shape: int) -> mx.array:
    return mx.array(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32))


def network(w: mx.array, v: mx.array) -> mx.array:
    h = nn.relu(drawn(4, 5) @ w)
    return nn.losses.cross_entropy(h @ v, mx.array([0, 2, 1, 0]), reduction="mean")


PROGRAMS = [
    (network, [(5, 6), (6, 3)]),
    (lambda x: (mx.softmax(x.T, -1) ** 2).sum(), [(3, 4)]),
    (lambda x, y: (x[1:] * y[:-1]).sum() + x.max(), [(5,), (5,)]),
    (lambda x, w: ((x @ w.T).astype(mx.bfloat16) * 3).sum().astype(mx.float32), [(3, 4), (2, 4)]),
    (lambda x: mx.take(x, mx.array([2, 0, 2]), axis=0).prod(), [(3, 2)]),
    (lambda x: mx.concatenate([x, x * x, mx.stop_gradient(x)]).std(), [(4,)]),
]


@pytest.mark.parametrize(("program", "shapes"), PROGRAMS)
def test_made_again_a_pass_is_what_the_rules_make(forms: Forms, program: Any, shapes: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [drawn(*shape) for shape in shapes]
    mx.eval(arguments)
    gradient = mx.grad(program, argnums=list(range(len(shapes))))
    graphs = []
    for turn in range(3):
        if turn == 2:
            monkeypatch.setattr(vjp_module, "by_rules", None)  # the third time no rule is asked
        found = gradient(*arguments)
        graphs.append(graph_of(list(found)))
        mx.eval(found)
    assert graphs[1] == graphs[0]
    assert graphs[2] == graphs[0]


def test_other_shapes_numbers_and_inputs_are_other_forms(forms: Forms) -> None:
    def run(x: mx.array, k: float, twice: bool) -> Any:
        y = drawn(*x.shape)
        return mx.grad(lambda x: ((x * y) ** k * (y if twice else drawn(*x.shape) + 1)).sum())(x)

    for _ in range(3):
        for n, k, twice in [(3, 2.0, True), (3, 3.0, True), (4, 2.0, True), (3, 2.0, False)]:
            x = np.linspace(0.5, 1, n).astype(np.float32)
            y = np.asarray(drawn(n)).astype(np.float64)
            z = y if twice else y + 1
            got = np.asarray(run(mx.array(np.abs(x)), k, twice))
            with np.errstate(invalid="ignore"):
                want = k * (x * y) ** (k - 1) * y * z
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_cotangent_that_is_part_of_the_graph(forms: Forms) -> None:
    def pulled(same: bool) -> Any:
        x = mx.array([1.0, 2.0])
        y = x * 3
        return mx.vjp(lambda x: [mx.sin(x), x * x], [x], [y if same else mx.array([3.0, 6.0]) * 1, x * 3])[1][0]

    want = 3 * np.array([1.0, 2.0]) * (np.cos([1.0, 2.0]) + 2 * np.array([1.0, 2.0]))
    for _ in range(3):
        for same in (True, False):
            np.testing.assert_allclose(np.asarray(pulled(same)), want, rtol=1e-6)


def test_nested_transforms_are_remembered(forms: Forms) -> None:
    f = lambda x: (mx.exp(x) * x).sum()
    second = mx.grad(lambda x: mx.grad(f)(x).sum())
    x = mx.array([0.5, 1.0])
    for _ in range(4):
        np.testing.assert_allclose(np.asarray(second(x)), np.exp([0.5, 1.0]) * (np.array([0.5, 1.0]) + 2), rtol=1e-5)
        batched = mx.vmap(mx.grad(lambda x: mx.sin(x) * x))(x)
        np.testing.assert_allclose(np.asarray(batched), np.sin([0.5, 1.0]) + np.array([0.5, 1.0]) * np.cos([0.5, 1.0]), rtol=1e-5)
    assert any(found is not None for found in FORMS.passes.values())
