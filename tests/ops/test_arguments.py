"""What is no dtype is refused where it is given; names and numbers that MLX takes are taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import isthmus.core as mx

NO_DTYPES = [float, int, np.float32, "float32", 1]
MAKERS: list[Any] = [
    lambda d: mx.zeros((2,), dtype=d),
    lambda d: mx.ones((2,), d),
    lambda d: mx.full((2,), 1, dtype=d),
    lambda d: mx.full((2,), mx.array(1), dtype=d),
    lambda d: mx.arange(3, dtype=d),
    lambda d: mx.linspace(0, 1, 3, dtype=d),
    lambda d: mx.eye(2, dtype=d),
    lambda d: mx.random.uniform(shape=(2,), dtype=d),
    lambda d: mx.random.normal((2,), dtype=d),
]


@pytest.mark.parametrize("wrong", NO_DTYPES)
@pytest.mark.parametrize("make", MAKERS)
def test_what_is_no_dtype_is_a_type_error(make: Any, wrong: Any) -> None:
    with pytest.raises(TypeError):
        make(wrong)


def test_roll_takes_its_axis_by_name() -> None:
    assert mx.roll(mx.arange(4).reshape(2, 2), 1, axis=1).tolist() == [[1, 0], [3, 2]]
    assert mx.roll(mx.arange(3), shift=1).tolist() == [2, 0, 1]


def test_a_number_is_formatted_as_a_number() -> None:
    assert f"{mx.array(1.5)}" == "1.5"
    assert f"{mx.array(1.5):.3f}" == "1.500"
    assert f"{mx.array([1, 2])}" == "array([1, 2], dtype=int32)"


def test_integers_do_not_hold_quotients_in_place() -> None:
    x = mx.arange(5)
    with pytest.raises(ValueError, match="quotient"):
        x /= 2
    assert x.dtype == mx.int32
    y = mx.arange(3, dtype=mx.float32)
    y /= 2
    assert y.tolist() == [0, 0.5, 1]


def test_linspace_takes_its_dtype_in_fourth_place() -> None:
    assert mx.linspace(0, 8, 5, mx.int32).dtype == mx.int32
    assert mx.linspace(0, 8, 5, mx.int32).tolist() == [0, 2, 4, 6, 8]
