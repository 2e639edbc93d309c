"""Losses and activations where formulas break: infinities, far tails, 16-bit sums, the edges of a branch."""

from __future__ import annotations

import numpy as np
import pytest

import isthmus.core as mx
from isthmus import nn

losses = nn.losses


def test_cross_entropy_of_large_logits():
    logits = mx.array([[1e4, 0.0], [-1e30, 1e30]])
    assert losses.cross_entropy(logits, mx.array([0, 1])).tolist() == [0, 0]
    assert losses.cross_entropy(logits, mx.array([1, 1])).tolist() == [1e4, 0]


def test_cross_entropy_of_a_class_that_is_ruled_out():
    logits = mx.array([[-np.inf, 1.0, 2.0]])
    targets = mx.array([[0.0, 0.5, 0.5]])
    value, grad = mx.value_and_grad(lambda x: losses.cross_entropy(x, targets, reduction="mean"))(logits)
    p = np.exp([1.0, 2.0]) / np.exp([1.0, 2.0]).sum()
    assert value.item() == pytest.approx(-0.5 * np.log(p).sum(), rel=1e-6)
    np.testing.assert_allclose(np.array(grad)[0], [0, *(p - 0.5)], rtol=1e-5, atol=1e-7)


def test_the_gradient_of_cross_entropy_is_the_softmax_less_the_target():
    logits = mx.random.normal((5, 7), key=mx.random.key(0))
    targets = mx.array([0, 6, 3, 3, 1])
    grad = mx.grad(lambda x: losses.cross_entropy(x, targets, reduction="sum"))(logits)
    want = np.array(mx.softmax(logits, axis=-1)) - np.eye(7)[np.array(targets)]
    np.testing.assert_allclose(np.array(grad), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cross_entropy_along_an_axis(axis):
    x = np.random.default_rng(0).standard_normal((3, 3, 4)).astype(np.float32)
    n = x.shape[axis]
    index = np.random.default_rng(1).integers(0, n, [s for i, s in enumerate(x.shape) if i != axis % 3])
    got = losses.cross_entropy(mx.array(x), mx.array(index), axis=axis)
    want = np.log(np.exp(x).sum(axis)) - np.take_along_axis(x, np.expand_dims(index, axis), axis).squeeze(axis)
    np.testing.assert_allclose(np.array(got), want, rtol=1e-5, atol=1e-6)


def test_16_bit_losses_are_summed_in_float32_and_rounded_once():
    x = np.random.default_rng(0).standard_normal((4096,)).astype(np.float32)
    for dtype in (mx.float16, mx.bfloat16):
        narrow = mx.array(x, dtype)
        got = losses.mse_loss(narrow, mx.zeros_like(narrow), reduction="mean")
        exact = np.mean(np.square(np.array(narrow.astype(mx.float32)).astype(np.float64)))
        assert got.dtype == dtype
        assert got.item() == mx.array(exact, dtype).item()
        assert losses.mse_loss(narrow, mx.zeros((4096,))).dtype == mx.float32
    assert losses.l1_loss(mx.ones(3, mx.float16), mx.ones(3, mx.bfloat16)).dtype == mx.float32


def test_layer_norm_far_from_zero():
    x = np.random.default_rng(0).standard_normal((4, 256)).astype(np.float32) + 1e4
    exact = x.astype(np.float64)
    exact = (exact - exact.mean(-1, keepdims=True)) / np.sqrt(exact.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(np.array(nn.LayerNorm(256)(mx.array(x))), exact, atol=2e-3)


def test_norms_of_16_bit_rows_are_computed_in_float32():
    x = mx.full((2, 4096), 100.0, mx.float16)  # the sum of squares is beyond float16
    layer = nn.RMSNorm(4096)
    layer.set_dtype(mx.float16)
    y = layer(x)
    assert y.dtype == mx.float16 and y[0, 0].item() == 1


def test_binary_cross_entropy_of_certain_probabilities():
    p, t = mx.array([0.0, 1.0, 0.0, 1.0]), mx.array([0.0, 1.0, 1.0, 0.0])
    loss, grad = mx.value_and_grad(lambda p: losses.binary_cross_entropy(p, t, with_logits=False, reduction="sum"))(p)
    assert loss.item() == 200
    assert np.all(np.isfinite(np.array(grad)))


@pytest.mark.parametrize("name", ["elu", "celu", "selu"])
def test_the_gradient_far_right_is_finite(name):
    grad = mx.grad(lambda x: getattr(nn, name)(x).sum())(mx.array([200.0, -200.0]))
    assert np.all(np.isfinite(np.array(grad))) and grad[1].item() == 0


@pytest.mark.parametrize("name", ["elu", "celu"])
def test_the_slope_at_zero_is_one(name):
    assert mx.grad(getattr(nn, name))(mx.array(0.0)).item() == 1


@pytest.mark.parametrize("name", ["softplus", "log_sigmoid", "mish", "silu", "sigmoid", "tanh", "gelu", "log_softmax", "softmax"])
def test_tails_are_finite_and_so_are_their_gradients(name):
    fn = getattr(nn, name)
    x = mx.array([-1e4, -100.0, 0.0, 100.0, 1e4])
    value, grad = mx.value_and_grad(lambda x: fn(x)[1:4].sum())(x)
    assert np.isfinite(value.item())
    assert np.all(np.isfinite(np.array(grad)))


@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "elu", "leaky_relu", "hard_tanh", "hardswish", "softplus", "relu6"])
def test_nan_is_not_lost(name):
    assert np.isnan(getattr(nn, name)(mx.array(np.nan)).item())


def test_log_cosh_does_not_overflow():
    assert losses.log_cosh_loss(mx.array(1e4), mx.array(0.0)).item() == pytest.approx(1e4 - np.log(2))


def test_triplets_by_another_norm():
    a, p, n = (np.random.default_rng(i).standard_normal((3, 5)) for i in range(3))
    got = losses.triplet_loss(*(mx.array(v.astype(np.float32)) for v in (a, p, n)), p=3)
    distance = [np.sum(np.abs(a - v) ** 3, -1) ** (1 / 3) for v in (p, n)]
    np.testing.assert_allclose(np.array(got), np.maximum(distance[0] - distance[1] + 1, 0), rtol=1e-4)


ERRORS = {
    "reduction": lambda: losses.mse_loss(mx.ones(2), mx.ones(2), reduction="all"),
    "label smoothing": lambda: losses.cross_entropy(mx.ones((2, 3)), mx.array([0, 1]), label_smoothing=1.0),
    "targets": lambda: losses.cross_entropy(mx.ones((2, 3)), mx.array([0, 1, 2])),
    "weights": lambda: losses.cross_entropy(mx.ones((2, 3)), mx.array([0, 1]), weights=mx.ones(3)),
    "shapes": lambda: losses.l1_loss(mx.ones((2, 3)), mx.ones(3)),
    "variances": lambda: losses.gaussian_nll_loss(mx.ones(2), mx.ones(2), mx.ones(3)),
    "dropout": lambda: nn.Dropout(1.0),
    "dropout of images": lambda: nn.Dropout2d(0.5)(mx.ones((2, 2))),
    "approximation": lambda: nn.GELU("good"),
    "square": lambda: nn.init.identity()(mx.ones((2, 3))),
    "fans": lambda: nn.init.he_normal()(mx.ones(2)),
    "mode": lambda: nn.init.he_normal()(mx.ones((2, 2)), mode="fan"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_wrong_arguments_are_refused_at_once(name):
    with pytest.raises(ValueError, match=r"^\[\w+\] "):
        ERRORS[name]()


def test_dropout_of_channels_takes_whole_ones():
    x = mx.ones((4, 5, 5, 32))
    y = np.array(nn.Dropout2d(0.5)(x))
    assert np.all(y == y[:, :1, :1, :]) and 0 < np.mean(y[:, 0, 0] == 0) < 1
    z = np.array(nn.Dropout3d(0.25)(mx.ones((3, 4, 4, 4, 16))))
    assert np.all(z == z[:, :1, :1, :1, :])
