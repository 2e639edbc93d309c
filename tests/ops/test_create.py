"""Arrays made of numbers: sizes, dtypes, accuracy, errors."""

import math

import numpy as np
import pytest

import isthmus.core as mx


@pytest.mark.parametrize("args", [(5,), (2, 8, 3), (5, 0, -2), (0, 1, 0.3), (3.0,), (-3,), (0, 1, -1), (2**40, 2**40 + 3), (1, 1), (0.5, 5)])
def test_arange_is_numpys(args):
    got, want = mx.arange(*args), np.arange(*args)
    np.testing.assert_allclose(np.array(got), want.astype(got.dtype.numpy), rtol=1e-6)
    assert got.shape == want.shape


@pytest.mark.parametrize(
    ("args", "dtype"),
    [((5,), "int32"), ((5.0,), "float32"), ((0, 2**31, 2**30), "int64"), ((0, 2**31 - 1, 2**30), "int32"), ((-(2**31) - 1, -(2**31) + 1), "int64")],
)
def test_arange_picks_its_dtype_as_mlx(args, dtype):
    assert mx.arange(*args).dtype == getattr(mx, dtype)


def test_arange_of_floats_is_rounded_once():
    n = 100_000
    got = np.array(mx.arange(0, n * 0.1, 0.1))[:n]
    assert (np.abs(got - (np.arange(n) * 0.1).astype(np.float32)) == 0).all()


def test_arange_takes_every_numeric_dtype():
    for name in "uint8 int16 uint64 float16 bfloat16 float64 complex64".split():
        got = mx.arange(1, 5, dtype=getattr(mx, name))
        assert got.dtype == getattr(mx, name)
        assert got.tolist() == [1, 2, 3, 4]
    assert mx.arange(0, 5, 0.5, dtype=mx.int32).tolist() == [0] * 10  # the step is cut first, as in NumPy


@pytest.mark.parametrize(
    ("f", "error"),
    [
        (lambda: mx.arange(0, 5, 0), ValueError),
        (lambda: mx.arange(math.nan), ValueError),
        (lambda: mx.arange(0, math.inf), ValueError),
        (lambda: mx.arange(True), ValueError),
        (lambda: mx.arange(3, dtype=mx.bool_), ValueError),
        (lambda: mx.arange("3"), TypeError),
        (lambda: mx.linspace(0, 1, -1), ValueError),
        (lambda: mx.zeros((-1,)), ValueError),
        (lambda: mx.zeros((2.0,)), TypeError),
        (lambda: mx.full((2,), 300, dtype=mx.uint8), ValueError),
        (lambda: mx.full((2,), math.nan, dtype=mx.int32), ValueError),
        (lambda: mx.full((2,), mx.zeros((3,))), ValueError),
        (lambda: mx.eye(-1), ValueError),
        (lambda: mx.tril(mx.zeros((3,))), ValueError),
    ],
)
def test_what_bad_input_gets(f, error):
    with pytest.raises(error):
        f()


@pytest.mark.parametrize("endpoint", [True, False])
@pytest.mark.parametrize("num", [0, 1, 2, 5, 50])
def test_linspace_is_numpys(num, endpoint):
    for start, stop in ((0, 1), (-3.5, 2), (1, 0), (1e8, 0.1)):
        got = np.array(mx.linspace(start, stop, num, endpoint))
        np.testing.assert_allclose(got, np.linspace(start, stop, num, endpoint).astype(np.float32), rtol=1e-6, atol=1e-6)
        if endpoint and num > 1:
            assert got[-1] == np.float32(stop)
    assert mx.linspace(0, 10, 5, dtype=mx.int32).tolist() == [0, 2, 5, 7, 10]


@pytest.mark.parametrize("dtype", "bool_ uint8 int64 uint64 float16 bfloat16 float32 float64 complex64".split())
def test_fills_have_their_value_in_every_dtype(dtype):
    d = getattr(mx, dtype)
    assert mx.ones((2, 3), dtype=d).tolist() == [[1] * 3] * 2
    assert mx.zeros((), dtype=d).item() == 0
    assert mx.full((3,), 1, dtype=d).dtype == d
    assert mx.zeros_like(mx.ones((2,), dtype=d)).dtype == d


def test_full_takes_arrays_and_large_integers():
    assert mx.full((2, 3), mx.array([1, 2, 3])).tolist() == [[1, 2, 3]] * 2
    assert mx.full((2,), 2**40).dtype == mx.int64
    assert mx.full((1,), 2**64 - 1, dtype=mx.uint64).item() == 2**64 - 1
    assert mx.full(3, True).dtype == mx.bool_
    assert mx.full_like(mx.array([1, 2]), 2.7).tolist() == [2, 2]
    assert mx.grad(lambda x: mx.full((2, 2), x).sum())(mx.array(3.0)).item() == 4


@pytest.mark.parametrize("k", [-2, 0, 1, 5])
def test_masks_are_numpys(k):
    np.testing.assert_array_equal(np.array(mx.eye(3, 4, k)), np.eye(3, 4, k))
    np.testing.assert_array_equal(np.array(mx.tri(3, 4, k)), np.tri(3, 4, k))
    a = np.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_array_equal(np.array(mx.tril(mx.array(a), k)), np.tril(a, k))
    np.testing.assert_array_equal(np.array(mx.triu(mx.array(a), k)), np.triu(a, k))
    assert mx.tril(mx.array(a) > 0, k).dtype == mx.triu(mx.array(a) > 0, k).dtype == mx.bool_
    assert mx.identity(0).shape == (0, 0)
