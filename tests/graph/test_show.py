"""How arrays and graphs print."""

import numpy as np
import pytest

import isthmus.core as mx
from isthmus.graph.show import show


def test_long_axes_are_cut():
    assert repr(mx.arange(6)) == "array([0, 1, 2, 3, 4, 5], dtype=int32)"
    assert repr(mx.arange(7)) == "array([0, 1, 2, ..., 4, 5, 6], dtype=int32)"
    assert repr(mx.zeros((7, 2))).count("\n") == 6


def test_printoptions_hold_inside_with():
    x = mx.array([1 / 3, 2.5])
    with mx.printoptions(precision=2):
        assert str(x) == "array([0.33, 2.50], dtype=float32)"
    assert str(x) == "array([0.333333, 2.5], dtype=float32)"
    assert mx.get_printoptions().precision == -1


# Expressions of mx, printed by MLX and by us.
PRINTED = [
    "mx.arange(24).reshape(2, 3, 4)",
    "mx.zeros((8, 7, 8))",
    "mx.zeros((1, 1, 2, 2, 2))",
    "mx.zeros((2, 0, 3))",
    "mx.zeros((0, 3))",
    "mx.array([1e10, 1e-10, 123456789.0, 0.1, -0.0, float('inf')])",
    "mx.array([-float('inf'), 1e6, 1e5, 999999.5, 1 / 3, 100000.0])",
    "mx.array([1e300, 1 / 3], dtype=mx.float64)",
    "mx.array([1 + 2j, -1 - 2j, complex(0.1, 1e-7), complex(1, -0.0), complex(float('nan'), float('inf'))])",
    "mx.array([True, False])",
    "mx.array([200, 3], dtype=mx.uint8)",
    "mx.array(-3, dtype=mx.int8)",
    "mx.array(True)",
    "mx.array(1.0)",
    "mx.array([65504, 1e-7, 6e-8], dtype=mx.float16)",
    "mx.array([1.1, 3e38], dtype=mx.bfloat16)",
    "mx.finfo(mx.float16)",
    "mx.iinfo(mx.uint64)",
    "mx.floating",
    "mx.float32",
    "mx.cpu",
    "mx.Device(mx.cpu)",
]


@pytest.mark.parametrize("text", PRINTED)
def test_printing_is_mlxs(text):
    mlx = pytest.importorskip("mlx.core")
    assert repr(eval(text, {"mx": mx})) == repr(eval(text, {"mx": mlx}))


def test_show_lists_a_graph():
    x = mx.array(np.ones((2, 3), np.float32))
    assert show((x.T * 2 + x.T)[1:]).splitlines() == [
        "%0: float32[2, 3] = buffer",
        "%1: float32[3, 2] = transpose %0 (1, 0)",
        "%2: float32[3, 2] = multiply %1 2",
        "%3: float32[3, 2] = transpose %0 (1, 0)",
        "%4: float32[3, 2] = add %2 %3",
        "%5: float32[2, 2] = slice %4 (1, 0) | 1",
    ]
