"""Layers, activations and losses beside the MLX wheel's, and what a Module promises."""

from __future__ import annotations

import mlx.core as peer
import mlx.nn as peer_nn
import numpy as np
import pytest

import isthmus.core as mx
from isthmus import nn

RNG = np.random.default_rng(0)
X = (RNG.standard_normal((6, 10)) * 3).astype(np.float32)
Y = (RNG.random((6, 10)) + 0.05).astype(np.float32)

ACTIVATIONS = [
    "relu", "relu2", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "gelu_approx", "gelu_fast_approx", "silu", "sigmoid",
    "log_sigmoid", "softplus", "softsign", "mish", "hardswish", "hard_tanh", "hard_shrink", "softshrink", "softmin", "softmax",
    "log_softmax", "tanh", "step", "glu",
]  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_is_the_wheels(name):
    got, want = getattr(nn, name)(mx.array(X)), getattr(peer_nn, name)(peer.array(X))
    np.testing.assert_allclose(np.array(got), np.array(want), rtol=3e-6, atol=3e-6)


CLASSES = ["ReLU", "GELU", "SiLU", "ELU", "LeakyReLU", "Softplus", "Mish", "Hardswish", "Tanh", "Sigmoid", "Softmax", "LogSoftmax", "GLU", "ReLU6", "Softsign"]


@pytest.mark.parametrize("name", CLASSES)
def test_activation_class_is_the_wheels(name):
    got, want = getattr(nn, name)()(mx.array(X)), getattr(peer_nn, name)()(peer.array(X))
    np.testing.assert_allclose(np.array(got), np.array(want), rtol=3e-6, atol=3e-6)


LABELS = RNG.integers(0, 10, 6)
LOSSES = {
    "cross_entropy of classes": lambda nn, mx: nn.losses.cross_entropy(mx.array(X), mx.array(LABELS)),
    "cross_entropy of probabilities": lambda nn, mx: nn.losses.cross_entropy(mx.array(X), mx.array(Y / Y.sum(-1, keepdims=True))),
    "cross_entropy smoothed": lambda nn, mx: nn.losses.cross_entropy(mx.array(X), mx.array(LABELS), label_smoothing=0.1, reduction="mean"),
    "cross_entropy weighted": lambda nn, mx: nn.losses.cross_entropy(mx.array(X), mx.array(LABELS), weights=mx.array(Y[:, 0]), reduction="sum"),
    "binary_cross_entropy": lambda nn, mx: nn.losses.binary_cross_entropy(mx.array(X), mx.array((Y > 0.5).astype(np.float32))),
    "l1_loss": lambda nn, mx: nn.losses.l1_loss(mx.array(X), mx.array(Y)),
    "mse_loss": lambda nn, mx: nn.losses.mse_loss(mx.array(X), mx.array(Y)),
    "nll_loss": lambda nn, mx: nn.losses.nll_loss(mx.array(X), mx.array(LABELS)),
    "kl_div_loss": lambda nn, mx: nn.losses.kl_div_loss(mx.array(X), mx.array(np.log(Y)), axis=-1),
    "smooth_l1_loss": lambda nn, mx: nn.losses.smooth_l1_loss(mx.array(X), mx.array(Y), beta=0.7),
    "huber_loss": lambda nn, mx: nn.losses.huber_loss(mx.array(X), mx.array(Y), delta=0.7),
    "log_cosh_loss": lambda nn, mx: nn.losses.log_cosh_loss(mx.array(X), mx.array(Y)),
    "hinge_loss": lambda nn, mx: nn.losses.hinge_loss(mx.array(X), mx.array(np.sign(Y - 0.5))),
    "cosine_similarity_loss": lambda nn, mx: nn.losses.cosine_similarity_loss(mx.array(X), mx.array(Y)),
    "triplet_loss": lambda nn, mx: nn.losses.triplet_loss(mx.array(X), mx.array(Y), mx.array(X[::-1].copy())),
    "margin_ranking_loss": lambda nn, mx: nn.losses.margin_ranking_loss(mx.array(X), mx.array(Y), mx.array(np.sign(Y - 0.5))),
    "gaussian_nll_loss": lambda nn, mx: nn.losses.gaussian_nll_loss(mx.array(X), mx.array(Y), mx.array(Y)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_loss_is_the_wheels(name):
    got, want = LOSSES[name](nn, mx), LOSSES[name](peer_nn, peer)
    assert got.shape == tuple(want.shape)
    np.testing.assert_allclose(np.array(got), np.array(want), rtol=1e-5, atol=1e-5)


def filled(model, mx):
    """The same numbers in a model of either library."""
    rng = np.random.default_rng(1)

    def fill(tree):
        if isinstance(tree, dict):
            return {k: fill(tree[k]) for k in sorted(tree)}
        if isinstance(tree, list):
            return [fill(v) for v in tree]
        return mx.array(rng.standard_normal(tree.shape).astype(np.float32))

    model.update(fill(model.parameters()))
    return model


LAYERS = {
    "Linear": lambda nn: nn.Linear(10, 4),
    "Linear without bias": lambda nn: nn.Linear(10, 4, bias=False),
    "LayerNorm": lambda nn: nn.LayerNorm(10),
    "RMSNorm": lambda nn: nn.RMSNorm(10),
    "Sequential": lambda nn: nn.Sequential(nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 3)),
    "Identity": lambda nn: nn.Identity(),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer_and_its_gradient_are_the_wheels(name):
    ours, theirs = filled(LAYERS[name](nn), mx), filled(LAYERS[name](peer_nn), peer)
    np.testing.assert_allclose(np.array(ours(mx.array(X))), np.array(theirs(peer.array(X))), rtol=2e-4, atol=2e-5)
    if not ours.trainable_parameters():
        return
    from mlx.utils import tree_flatten as peer_flatten

    from isthmus.utils import tree_flatten

    _, got = nn.value_and_grad(ours, lambda m, x: (m(x) ** 2).mean())(ours, mx.array(X))
    _, want = peer_nn.value_and_grad(theirs, lambda m, x: (m(x) ** 2).mean())(theirs, peer.array(X))
    want = dict(peer_flatten(want))
    got = dict(tree_flatten(got))
    assert set(got) == set(want)
    for key, value in got.items():
        np.testing.assert_allclose(np.array(value), np.array(want[key]), rtol=2e-3, atol=2e-4)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 4), nn.Linear(4, 2)]
        self.scale = mx.ones((2,))
        self._hidden = mx.zeros((3,))

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x * self.scale


def test_parameters_are_a_tree_without_hidden_ones():
    tree = Net().parameters()
    assert set(tree) == {"layers", "scale"}
    assert [set(layer) for layer in tree["layers"]] == [{"weight", "bias"}] * 2


def test_freezing():
    net = Net()
    net.layers[0].freeze()
    assert net.trainable_parameters()["layers"][0] == {}
    net.freeze(keys="bias")
    assert set(net.trainable_parameters()["layers"][1]) == {"weight"}
    net.unfreeze()
    assert set(net.trainable_parameters()["layers"][0]) == {"weight", "bias"}


def test_update_is_strict():
    net = Net()
    net.update({"scale": mx.zeros((2,))})
    assert net.scale.tolist() == [0, 0]
    with pytest.raises(ValueError, match="missing"):
        net.update({"missing": mx.zeros((2,))})


def test_value_and_grad_leaves_the_model_its_arrays():
    net = Net()
    before = net.scale
    value, grads = nn.value_and_grad(net, lambda x: net(x).sum())(mx.ones((3, 4)))
    assert net.scale is before
    assert set(grads) == {"layers", "scale"}
    assert value.shape == ()


def test_dropout_scales_what_it_keeps():
    layer = nn.Dropout(0.5)
    y = layer(mx.ones((1000,)))
    assert set(np.unique(np.array(y))) == {0.0, 2.0}
    layer.eval()
    assert np.array(layer(mx.ones((4,)))).tolist() == [1.0] * 4
