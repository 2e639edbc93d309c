"""The bits law: what is held, or evaluated on the way, never changes a result."""

from __future__ import annotations

import random

import numpy as np
import pytest

import isthmus.core as mx
from tests.schedule.programs import program


def bits(x: mx.array) -> bytes:
    return np.array(x.view(mx.uint16) if x.dtype is mx.bfloat16 else x).tobytes()


def run(seed: int, evaluate, keep) -> list[bytes]:
    outputs, kept = program(seed, evaluate, keep)
    mx.eval(outputs)
    del kept
    return [bits(x) for x in outputs]


@pytest.mark.parametrize("block", range(12))
def test_what_is_held_changes_no_bit(block):
    for seed in range(block * 25, block * 25 + 25):
        each = run(seed, mx.eval, lambda: False)
        nothing = run(seed, lambda x: None, lambda: False)
        draw = random.Random(seed)
        some = run(seed, lambda x: mx.eval(x) if draw.random() < 0.2 else None, lambda: draw.random() < 0.4)
        assert each == nothing, f"seed {seed}: fused differs from evaluated one by one"
        assert each == some, f"seed {seed}: held values change the result"


def test_views_of_equal_nodes_have_values_of_their_own():
    """Two equal sines are computed once; a reshape of the second must not be left to read the leaf that the first one took over."""
    x = mx.array(np.linspace(-2, 2, 70, dtype=np.float32).reshape(1, 70))
    mx.eval(x)
    want = np.sin(np.array(x))
    for view in (lambda s: s.reshape(70), lambda s: s.T, lambda s: mx.stop_gradient(s).reshape(7, 10).T, lambda s: mx.sum(s, axis=0)):
        y = x * 1.0
        mx.eval(y)
        half, seen = mx.sin(y) * 0.5, view(mx.sin(y))
        del y
        mx.eval(half, seen)
        np.testing.assert_allclose(np.array(half), want * 0.5, atol=1e-6)
        np.testing.assert_allclose(np.sort(np.array(seen).ravel()), np.sort(want.ravel()), atol=1e-6)
