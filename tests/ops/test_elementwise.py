"""Element-wise ops: values at awkward places, dtypes, errors. The laws run over every op in tests/laws/cases.py."""

import math

import numpy as np
import pytest

import isthmus.core as mx

INF, NAN = math.inf, math.nan


def values(a):
    return np.array(a)


# (name, sample of complex arguments)
COMPLEX = "exp log log2 log10 log1p sqrt square sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh arccosh arctanh abs".split()
POINTS = np.array([complex(x, y) for x in (-3e4, -2.5, -1.0, -1e-5, 0.3, 1.0, 1.0000001, 7.0) for y in (-80.0, -1.5, -1e-6, 1e-7, 0.5, 3.0)], np.complex64)


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_functions_are_numpys_in_double_precision(name):
    z = POINTS[abs(POINTS.real) < 80] if name in ("exp", "sinh", "cosh", "sin", "cos") else POINTS
    with np.errstate(all="ignore"):
        want = np.asarray(getattr(np, name)(z.astype(np.complex128)))
    got = values(getattr(mx, name)(mx.array(z)))
    with np.errstate(all="ignore"):
        small = np.abs(want.real) < 3e38 if name != "abs" else np.ones(want.shape, bool)
    np.testing.assert_allclose(got[small].real, want[small].real, rtol=3e-7, atol=1e-37)
    if name != "abs":
        np.testing.assert_allclose(got[small].imag, want[small].imag, rtol=3e-7, atol=1e-37)


def test_complex_power_of_zero():
    z = mx.array([0j, 0j, 2j])
    assert (z ** mx.array([0j, 2 + 1j, 0j])).tolist() == [1, 0, 1]


@pytest.mark.parametrize("d", ["int8", "int32", "int64", "uint8", "uint64"])
def test_integers_over_zero_are_zero_and_modulo_zero_themselves(d):
    a = mx.array([5, 3, 0] * 7, dtype=getattr(mx, d))
    zero = mx.zeros_like(a)
    assert (a // zero).tolist() == [0] * 21
    assert (a % zero).tolist() == a.tolist()


def test_floor_division_and_remainder_follow_the_divisors_sign():
    a, b = np.array([-7, 7, -7, 7]), np.array([2, 2, -2, -2])
    for kind in (np.int32, np.float32):
        x, y = mx.array(a.astype(kind)), mx.array(b.astype(kind))
        assert (x // y).tolist() == (a // b).tolist()
        assert (x % y).tolist() == (a % b).tolist()


def test_shifts_beyond_the_width_leave_nothing_but_the_sign():
    assert mx.left_shift(mx.array([1, 3]), 40).tolist() == [0, 0]
    assert mx.right_shift(mx.array([-8, 8]), 40).tolist() == [-1, 0]
    assert mx.left_shift(mx.array(True), mx.array(True)).dtype == mx.uint8


@pytest.mark.parametrize(("b", "want"), [(2, [4, 9]), (3, [-8, 27]), (1, [-2, 3]), (0, [1, 1]), (-1, [-0.5, 1 / 3])])
def test_whole_powers_are_products(b, want):
    x = mx.array([-2.0, 3.0])
    np.testing.assert_array_equal(values(x**b), np.array(want, np.float32))
    assert (x**b).dtype == mx.float32


def test_powers_keep_weak_dtypes():
    assert (mx.array([2], dtype=mx.int8) ** 2).dtype == mx.int8
    assert (mx.array([2], dtype=mx.int8) ** 2.0).dtype == mx.float32
    assert (mx.array([True]) ** 2).dtype == mx.int32
    assert (mx.array([2], dtype=mx.int32) ** -1).tolist() == [0]
    assert (2 ** mx.array([3], dtype=mx.float16)).dtype == mx.float16


def test_nan_is_never_lost():
    a = mx.array([NAN, 1.0, NAN])
    b = mx.array([1.0, NAN, 0.0])
    for out in (mx.maximum(a, b), mx.minimum(a, b), mx.clip(mx.array([NAN]), 0, 1), mx.sign(mx.array([NAN])), mx.minimum(a, 2) * mx.maximum(b, 2)):
        assert np.isnan(values(out)).all()


def test_classes_of_numbers_look_at_both_parts():
    z = mx.array([complex(0, INF), complex(NAN, 0), 1 + 1j])
    assert mx.isinf(z).tolist() == [True, False, False]
    assert mx.isnan(z).tolist() == [False, True, False]
    assert mx.isfinite(z).tolist() == [False, False, True]
    assert mx.isfinite(mx.array([1, 2])).tolist() == [True, True]


def test_close_means_close():
    a = mx.array([1.0, INF, -INF, NAN, 1e9])
    b = mx.array([1.000001, INF, INF, NAN, 1e9 + 2e4])
    assert mx.isclose(a, b).tolist() == [True, True, False, False, False]
    assert mx.isclose(a, b, equal_nan=True).tolist() == [True, True, False, True, False]
    assert not mx.isclose(mx.array([1], dtype=mx.uint8), mx.array([2], dtype=mx.uint8)).item()
    assert not mx.array_equal(mx.zeros((2,)), mx.zeros((3,))).item()
    assert mx.array_equal(mx.array([NAN]), mx.array([NAN]), equal_nan=True).item()


def test_where_is_weak_and_takes_any_condition():
    assert mx.where(True, 1, 2.0).dtype == mx.float32
    assert mx.where(mx.array([1, 0]), mx.array([1, 2], dtype=mx.int8), 5).tolist() == [1, 5]
    assert mx.where(mx.array([[True], [False]]), mx.array([1.0, 2.0]), 0).tolist() == [[1, 2], [0, 0]]


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (lambda x: mx.where(x > 0, mx.sqrt(mx.where(x > 0, x, 1)), 0), 0.0),
        (lambda x: mx.maximum(mx.sqrt(x), 1e-10), 0.0),
        (lambda x: mx.sqrt(x * x) * 0, 0.0),
        (lambda x: mx.logaddexp(x, mx.array(-INF)) * 0, -INF),
    ],
)
def test_gradients_of_what_was_not_taken_are_zero(f, x):
    assert mx.grad(f)(mx.array(x)).item() == 0


@pytest.mark.parametrize(
    ("f", "x", "want"),
    [
        (lambda x: x**2, 0.0, 0.0),
        (lambda x: x ** mx.array(2.0), 0.0, 0.0),
        (lambda x: x ** mx.array(0.0), 0.0, 0.0),
        (lambda x: mx.array(0.0) ** x, 2.0, 0.0),
        (lambda x: mx.tanh(x), 1e4, 0.0),
        (lambda x: mx.abs(x), 0.0, 0.0),
        (lambda x: mx.maximum(x, 0), 0.0, 0.0),
        (lambda x: mx.logaddexp(x, mx.array(-INF)), -INF, 0.5),
        (lambda x: x * mx.stop_gradient(x), 3.0, 3.0),
        (lambda x: mx.floor(x) + mx.round(x), 1.3, 0.0),
        (lambda x: x.astype(mx.float16).astype(mx.float32), 1.5, 1.0),
        (lambda x: mx.sigmoid(x), -200.0, 0.0),
    ],
)
def test_gradients_at_awkward_places(f, x, want):
    assert mx.grad(f)(mx.array(x)).item() == want


def test_numbers_alone_are_taken():
    assert mx.add(1, 2).item() == 3
    assert mx.exp(0).item() == 1.0
    assert mx.logical_and(2.5, True).item() is True


@pytest.mark.parametrize(
    ("f", "error"),
    [
        (lambda: mx.negative(mx.array(True)), ValueError),
        (lambda: mx.floor(mx.array(1j)), ValueError),
        (lambda: mx.erf(mx.array(1j)), ValueError),
        (lambda: mx.bitwise_and(mx.array(1.0), 1), RuntimeError),
        (lambda: mx.array(1.0) & mx.array(1.0), ValueError),
        (lambda: mx.remainder(mx.array(1j), 1), ValueError),
        (lambda: mx.clip(mx.array(1.0), None, None), ValueError),
        (lambda: mx.array([1], dtype=mx.uint8) + 300, ValueError),
        (lambda: mx.zeros((2,)) + mx.zeros((3,)), ValueError),
        (lambda: mx.exp("a"), ValueError),
        (lambda: mx.exp([1.0]), ValueError),
        (lambda: mx.add(mx.array(1.0), None), TypeError),
        (lambda: mx.astype(mx.array(1.0), float), TypeError),
    ],
)
def test_what_bad_input_gets(f, error):
    with pytest.raises(error):
        f()


def test_16_bit_formulas_round_once():
    x = np.linspace(0.01, 8, 999).astype(np.float16)
    for name, f in (("rsqrt", lambda v: 1 / np.sqrt(v)), ("degrees", np.degrees), ("sigmoid", lambda v: 1 / (1 + np.exp(-v)))):
        got, want = values(getattr(mx, name)(mx.array(x))), f(x.astype(np.float64)).astype(np.float16)
        assert (np.abs(got.view(np.int16).astype(int) - want.view(np.int16)) <= 1).all(), name


def test_nan_to_num_takes_every_float():
    for kind in (mx.float16, mx.float32, mx.float64, mx.bfloat16):
        x = mx.array([NAN, INF, -INF, 1.0]).astype(kind)
        limits = mx.finfo(kind)
        assert mx.nan_to_num(x).tolist() == [0.0, limits.max, limits.min, 1.0]
    assert mx.nan_to_num(mx.array(complex(NAN, INF)), posinf=3).item() == 3j
