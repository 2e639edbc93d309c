"""What a kernel computes again, and what waits for it in memory, is bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import isthmus.core as mx
from isthmus.schedule.run import plans

INDEX = np.random.default_rng(1).integers(0, 300, 300)
CHAINS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "flip": (lambda x: x[::-1] * 0.5 + x * 0.5, lambda y: y[::-1] * 0.5 + y * 0.5),
    "roll": (lambda x: mx.roll(x, 1) + x * 0.5, lambda y: np.roll(y, 1) + y * 0.5),
    "heat": (lambda x: x + 0.1 * (mx.roll(x, 1) - 2 * x + mx.roll(x, -1)), lambda y: y + 0.1 * (np.roll(y, 1) - 2 * y + np.roll(y, -1))),
    "where": (lambda x: mx.where(x > 0, x[::-1], x) * 0.9, lambda y: np.where(y > 0, y[::-1], y) * 0.9),
    "gather": (lambda x: x[mx.array(INDEX)] * 0.5 + x * 0.5, lambda y: y[INDEX] * 0.5 + y * 0.5),
    "pad": (lambda x: mx.maximum(x, mx.pad(x[:-1], (1, 0))) * 0.99, lambda y: np.maximum(y, np.pad(y[:-1], (1, 0))) * 0.99),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_that_reads_at_two_places_a_step_stays_small(name: str) -> None:
    step, reference = CHAINS[name]
    y = np.random.default_rng(0).standard_normal(300)
    x = mx.array(y.astype(np.float32))
    for _ in range(30):
        x, y = step(x), reference(y)
    before = {id(plan) for plan in plans()}
    mx.eval(x)
    np.testing.assert_allclose(np.array(x), y, rtol=1e-4, atol=1e-4 * np.abs(y).max())
    made = [plan for plan in plans() if id(plan) not in before]
    lines = [step.built.kernel.text().count("\n") for plan in made for step in plan.steps if step.built is not None]
    assert max(lines, default=0) < 400


def test_products_that_feed_an_accumulator_do_not_wait_for_each_other() -> None:
    n = 200
    x, total = mx.ones((n, n)), mx.zeros((n, n))
    mx.eval(x, total)
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    for i in range(64):
        total = total + mx.sin(x * i) @ x
    mx.eval(total)
    assert mx.get_peak_memory() - before < 12 * 4 * n * n
    np.testing.assert_allclose(np.array(total)[0, 0], sum(n * np.sin(i) for i in range(64)), rtol=1e-3, atol=1e-2)


def test_what_temporaries_were_in_is_cache_and_obeys_its_limit() -> None:
    n = 300
    x = mx.ones((n, n))
    mx.eval(x)
    mx.clear_cache()
    before = mx.get_active_memory()
    y = (mx.sin(x) @ x) @ x
    mx.eval(y)
    del y
    assert mx.get_active_memory() == before
    assert mx.get_cache_memory() > 0
    limit = mx.set_cache_limit(0)
    try:
        assert mx.get_cache_memory() == 0
    finally:
        mx.set_cache_limit(limit)
