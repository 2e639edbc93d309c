"""Reductions: empty, infinite and NaN input, ties, dtypes, axes."""

import math

import numpy as np
import pytest

import isthmus.core as mx

INF, NAN = math.inf, math.nan
A = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
AXES = [None, 0, 1, -1, (0, 2), (1, 2), (), (2, 0, 1)]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "var", "std", "all", "any"])
def test_values_are_numpys(name, axis, keepdims):
    want = getattr(np, name)(A.astype(np.float64), axis=axis, keepdims=keepdims)
    for x in (mx.array(A), mx.array(np.ascontiguousarray(A.T)).T):
        got = getattr(mx, name)(x, axis=axis, keepdims=keepdims)
        assert got.shape == want.shape
        np.testing.assert_allclose(np.array(got), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places_are_numpys(name, axis):
    for x, a in ((mx.array(A), A), (mx.array(A).T, A.T), (mx.array(A)[:, :1], A[:, :1])):
        got = getattr(mx, name)(x, axis=axis)
        assert got.dtype == mx.uint32
        np.testing.assert_array_equal(np.array(got), getattr(np, name)(a, axis=axis))
    assert getattr(mx, name)(mx.array([True, True])).item() == 0


@pytest.mark.parametrize("name", ["sum", "prod"])
@pytest.mark.parametrize(
    ("d", "want"),
    [("bool_", "int32"), ("uint8", "uint32"), ("int8", "int32"), ("int16", "int32"), ("uint16", "uint32"), ("int64", "int64"), ("float16", "float16")],
)
def test_small_integers_are_widened(name, d, want):
    assert getattr(mx, name)(mx.ones((3,), dtype=getattr(mx, d))).dtype == getattr(mx, want)


@pytest.mark.parametrize("f", [mx.sum, mx.mean, mx.var, mx.softmax, mx.logsumexp, mx.max])
def test_16_bit_floats_are_rounded_once(f):
    x = (np.arange(1, 4097) / 4096).astype(np.float16)
    wide = np.array(f(mx.array(x.astype(np.float32))))
    for kind in (mx.float16, mx.bfloat16):
        half = mx.array(x).astype(kind)
        wide = f(half.astype(mx.float32)).astype(kind)
        assert f(half).dtype == kind
        np.testing.assert_array_equal(np.array(f(half)), np.array(wide))


def test_nothing_has_a_sum_but_no_maximum():
    nothing = mx.zeros((0, 3))
    assert mx.sum(nothing).item() == 0
    assert mx.prod(nothing, axis=0).tolist() == [1, 1, 1]
    assert mx.all(nothing).item() is True
    assert mx.any(nothing).item() is False
    assert mx.max(nothing, axis=1).shape == (0,)
    assert math.isnan(mx.mean(nothing).item())
    assert mx.softmax(nothing, axis=0).shape == (0, 3)
    for f in (mx.max, mx.min, mx.argmax, mx.logsumexp):
        with pytest.raises(ValueError):
            f(nothing)
    with pytest.raises(ValueError):
        mx.max(nothing, axis=0)


def test_nan_wins():
    x = mx.array([[1.0, NAN, 3.0], [4.0, 5.0, 6.0]])
    np.testing.assert_array_equal(np.array(mx.max(x, axis=1)), [NAN, 6])
    np.testing.assert_array_equal(np.array(mx.min(x, axis=0)), [1, NAN, 3])
    assert mx.argmax(x, axis=1).tolist() == [1, 2]
    assert mx.argmin(x).item() == 1


def test_logsumexp_of_infinities():
    x = mx.array([[-INF, -INF], [-INF, 1.0], [INF, 2.0], [INF, -INF], [1000.0, 1000.0]])
    np.testing.assert_allclose(np.array(mx.logsumexp(x, axis=1)), [-INF, 1, INF, INF, 1000 + math.log(2)], rtol=1e-6)
    assert math.isnan(mx.logsumexp(mx.array([NAN, 1.0])).item())


def test_softmax_of_large_logits_is_finite():
    assert mx.softmax(mx.array([1e4, 0.0])).tolist() == [1.0, 0.0]
    assert mx.softmax(mx.array([-INF, 0.0])).tolist() == [0.0, 1.0]
    assert mx.softmax(mx.array([1, 2])).dtype == mx.float32


def test_variance_far_from_zero():
    x = (1e6 + np.random.default_rng(1).normal(size=10_000).astype(np.float32)).astype(np.float32)
    assert mx.var(mx.array(x)).item() == pytest.approx(np.var(x.astype(np.float64)), rel=1e-3)
    assert mx.var(mx.array([1.0, 2.0]), ddof=2).item() == INF
    assert mx.array([1.0, 3.0]).var(correction=1).item() == 2


def test_variance_of_complex_numbers_is_real():
    z = np.array([1 + 1j, 2, 3 - 2j], np.complex64)
    assert mx.var(mx.array(z)).dtype == mx.float32
    assert mx.var(mx.array(z)).item() == pytest.approx(np.var(z), rel=1e-6)


def test_complex_reductions():
    z = np.random.default_rng(2).normal(size=(5, 7, 2)).astype(np.float32).view(np.complex64)[..., 0]
    for name in ("sum", "mean", "prod", "max", "min"):
        for axis in (None, 0, 1):
            np.testing.assert_allclose(np.array(getattr(mx, name)(mx.array(z), axis=axis)), getattr(np, name)(z, axis=axis), rtol=2e-5)
    for name in ("argmax", "argmin"):
        assert getattr(mx, name)(mx.array(z)).item() == getattr(np, name)(z)


@pytest.mark.parametrize("f", [mx.max, mx.min])
def test_equal_ones_share_the_gradient(f):
    assert mx.grad(lambda x: f(x))(mx.array([1.0, 1.0, 1.0, 1.0])).tolist() == [0.25] * 4
    assert mx.grad(lambda x: mx.max(x))(mx.array([0.0, 3.0, 3.0])).tolist() == [0, 0.5, 0.5]


@pytest.mark.parametrize(("x", "want"), [([0, 2, 3], [6, 0, 0]), ([0, 0, 3], [0, 0, 0]), ([2, 3, 4], [12, 8, 6]), ([5], [1]), ([0], [1])])
def test_gradient_of_a_product_with_zeros(x, want):
    x = mx.array(x, dtype=mx.float32)
    assert mx.grad(lambda x: mx.prod(x))(x).tolist() == want
    (_,), (t,) = mx.jvp(lambda x: mx.prod(x), [x], [mx.ones_like(x)])
    assert t.item() == sum(want)


def test_second_gradient_of_a_product_with_zeros():
    hessian_row = mx.grad(lambda x: mx.grad(lambda x: mx.prod(x))(x)[0])(mx.array([0.0, 0.0, 3.0]))
    assert hessian_row.tolist() == [0, 3, 0]


def test_gradients_of_compositions():
    x = mx.array(A[0])
    w = mx.array(A[1])
    for f, jacobian in (
        (lambda x: mx.softmax(x, axis=1), None),
        (lambda x: mx.logsumexp(x, axis=1, keepdims=True), mx.softmax(x, axis=1)),
        (lambda x: mx.var(x, axis=0, keepdims=True), None),
        (lambda x: mx.mean(x, axis=(0, 1), keepdims=True), None),
    ):
        g = np.array(mx.grad(lambda x, f=f: (f(x) * w).sum())(x), np.float64)
        (_,), (t,) = mx.jvp(lambda x, f=f: (f(x) * w).sum(), [x], [w])
        assert (g * np.array(w)).sum() == pytest.approx(t.item(), rel=1e-4, abs=1e-5)
        if jacobian is not None:
            np.testing.assert_allclose(g, np.array(jacobian * w.sum(axis=1, keepdims=True)), rtol=1e-4, atol=1e-6)


def test_argmax_has_no_gradient():
    assert mx.grad(lambda x: x.sum() + mx.argmax(x))(mx.array([1.0, 2.0])).tolist() == [1, 1]


def test_axes_of_size_one():
    x = mx.array(np.arange(6, dtype=np.float32).reshape(1, 6, 1))
    for axis in (0, 2, (0, 2), (0, 1, 2), (1, 2)):
        np.testing.assert_array_equal(np.array(mx.sum(x, axis=axis)), np.array(x).sum(axis=axis))
    assert mx.argmax(x, axis=0).tolist() == [[0]] * 6


@pytest.mark.parametrize(
    ("f", "error"),
    [
        (lambda x: mx.sum(x, axis=(0, 0)), ValueError),
        (lambda x: mx.sum(x, axis=3), IndexError),
        (lambda x: mx.sum(x, axis=(0, -4)), IndexError),
        (lambda x: mx.sum(mx.array(1.0), axis=0), IndexError),
        (lambda x: mx.sum(x, axis=1.5), TypeError),
        (lambda x: mx.argmax(x, axis=4), IndexError),
        (lambda x: mx.softmax(x, axis=3), IndexError),
    ],
)
def test_what_bad_input_gets(f, error):
    with pytest.raises(error):
        f(mx.array(A))
