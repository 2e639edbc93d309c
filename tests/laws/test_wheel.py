"""What MLX's wheel says: the dtype and shape of every row's result in every dtype, and random bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import isthmus.core as mx
from tests.laws.cases import ANY, CASES, Case
from tests.laws.drawn import draw

mlx = pytest.importorskip("mlx.core")

# Where we differ, and why: row -> dtypes.
INTEGERS = {d for d in ANY if "int" in d or d == "bool_"}
OTHERWISE = {
    "softmax": INTEGERS,  # the wheel rounds to integers, that is to 0
    "nan_to_num": {"float64", "complex64"},  # the wheel refuses them
    "sum of no axis": {"int8", "int16", "uint8", "uint16", "bool_"},  # the accumulator's dtype, as for any other axes
    "full": {"bool_"},  # the wheel's full of an integer ignores dtype=bool
    "vecdot": set(ANY),  # the wheel refuses to broadcast
    "clip": {"uint64"},  # the wheel wraps a bound below 0
}


def dtype_name(x: Any) -> str:
    return str(x.dtype).split(".")[-1]


def outcome(m: Any, case: Case, values: list[np.ndarray], dtype: str) -> Any:
    """(dtype, shape), nothing evaluated; or the error's class."""
    kind = getattr(m, dtype)
    xs = [m.array(v.astype(np.float32)).astype(kind) if dtype == "bfloat16" else m.array(v, dtype=kind) for v in values]
    try:
        with m.stream(m.cpu):
            y = case.function(m, *xs)
    except (ValueError, TypeError, IndexError, RuntimeError) as error:
        return [k for k in (ValueError, TypeError, IndexError, RuntimeError) if isinstance(error, k)]
    return dtype_name(y), tuple(y.shape)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_dtypes_and_shapes_are_the_wheels(case: Case):
    for dtype in ANY:
        if dtype in OTHERWISE.get(case.name, OTHERWISE["softmax"] if case.name.startswith("softmax") else ()):
            continue
        for shapes in case.shapes:
            values = draw(case, shapes, dtype)
            mine, theirs = outcome(mx, case, values, dtype), outcome(mlx, case, values, dtype)
            if isinstance(theirs, list) and isinstance(mine, list):
                assert set(mine) & set(theirs), f"{dtype}: {mine}, not {theirs}"
            else:
                assert mine == theirs, f"{dtype} {shapes}"


@settings(max_examples=80, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**64 - 1), st.lists(st.integers(0, 9), max_size=3), st.integers(1, 5))
def test_random_bits_are_the_wheels(seed, shape, num):
    found = []
    for m in (mx, mlx):
        key = m.random.key(seed)
        keys = m.random.split(key, num)
        with m.stream(m.cpu):
            uniform = m.random.uniform(-1.0, 2.0, shape, key=keys[0])
            many = m.vmap(lambda k: m.random.uniform(shape=(3,), key=k))(keys)
            found.append([np.array(a) for a in (key, keys, uniform, many, m.random.randint(-5, 1000, shape, key=keys[num - 1]), m.random.bernoulli(0.4, shape, key=key))])
    for a, b in zip(*found, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
