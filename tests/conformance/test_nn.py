"""Beside the MLX wheel: the bits of initial weights, dtypes, gradients of activations, and 16-bit optimizer steps."""

from __future__ import annotations

import numpy as np
import pytest

import isthmus.core as mx
from isthmus import nn
from isthmus import optimizers as optim
from isthmus.utils import tree_flatten, tree_map

peer = pytest.importorskip("mlx.core", reason="the MLX wheel exists for x86-64 alone")
import mlx.nn as peer_nn  # noqa: E402
import mlx.optimizers as peer_optim  # noqa: E402

BOTH = ((mx, nn, optim), (peer, peer_nn, peer_optim))


def wide(x) -> np.ndarray:
    """The values of an array of either library, in float32."""
    library = mx if isinstance(x, mx.array) else peer
    return np.array(x.astype(library.float32))


MODELS = {
    "Linear": lambda nn: nn.Linear(5, 3),
    "Bilinear": lambda nn: nn.Bilinear(3, 4, 5),
    "Sequential": lambda nn: nn.Sequential(nn.Linear(4, 8), nn.PReLU(), nn.Linear(8, 2, bias=False)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_seed_gives_the_wheels_weights(name):
    found = []
    for library, layers, _ in BOTH:
        library.random.seed(3)
        found.append([(path, wide(x)) for path, x in tree_flatten(MODELS[name](layers).parameters())])
    for (path, ours), (same, theirs) in zip(*found, strict=True):
        assert path == same
        np.testing.assert_array_equal(ours, theirs)


INITIALIZERS = {
    "constant": lambda i, a: i.constant(0.5)(a),
    "uniform": lambda i, a: i.uniform(-1, 2)(a),
    "normal": lambda i, a: i.normal(1.0, 0.5)(a),
    "glorot_uniform": lambda i, a: i.glorot_uniform()(a, gain=2.0),
    "glorot_normal": lambda i, a: i.glorot_normal()(a),
    "he_uniform": lambda i, a: i.he_uniform()(a, mode="fan_out"),
    "he_normal": lambda i, a: i.he_normal()(a, gain=3.0),
    "identity": lambda i, a: i.identity()(a[:4, :4]),
}


@pytest.mark.parametrize("name", INITIALIZERS)
def test_initializers_are_the_wheels(name):
    found = []
    for library, layers, _ in BOTH:
        library.random.seed(5)
        found.append(wide(INITIALIZERS[name](layers.init, library.zeros((4, 7)))))
    np.testing.assert_allclose(*found, rtol=2e-6, atol=1e-7)


def test_fans_of_a_convolution():
    found = []
    for library, layers, _ in BOTH:
        library.random.seed(5)
        found.append(wide(layers.init.he_uniform()(library.zeros((4, 3, 3, 2)))))
    np.testing.assert_array_equal(*found)


ACTIVATIONS = [
    "celu", "elu", "gelu", "gelu_approx", "gelu_fast_approx", "hard_shrink", "hard_tanh", "hardswish", "leaky_relu", "log_sigmoid",
    "mish", "relu", "relu2", "relu6", "selu", "sigmoid", "silu", "softplus", "softshrink", "softsign", "tanh",
]  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients_of_activations_are_the_wheels(name):
    x = np.linspace(-4.1, 4.2, 57, dtype=np.float32)  # not where two branches meet
    found = [wide(m.grad(lambda x, n=n: getattr(n, name)(x).sum())(m.array(x))) for m, n, _ in BOTH]
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [*ACTIVATIONS, "log_softmax", "softmax", "softmin", "step"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32"])
def test_dtypes_of_activations_are_the_wheels(name, dtype):
    ours, theirs = (getattr(n, name)(m.array([-1, 2], getattr(m, dtype))) for m, n, _ in BOTH)
    assert str(ours.dtype) == str(theirs.dtype)
    np.testing.assert_allclose(wide(ours), wide(theirs), rtol=2e-2)


def test_bilinear_is_the_wheels():
    found = []
    for m, n, _ in BOTH:
        m.random.seed(0)
        layer = n.Bilinear(3, 4, 5)
        found.append(wide(layer(m.random.normal((2, 6, 3)), m.random.normal((2, 6, 4)))))
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


EXACT = {
    "SGD": lambda o: o.SGD(0.1, 0.9, 0.01, 0.1),
    "RMSprop": lambda o: o.RMSprop(0.1),
    "Adagrad": lambda o: o.Adagrad(0.1),
    "AdaDelta": lambda o: o.AdaDelta(0.1),
    "Adam": lambda o: o.Adam(0.01),
    "AdamW corrected": lambda o: o.AdamW(0.01, [0.9, 0.99], 1e-8, 0.1, True),
    "Adamax": lambda o: o.Adamax(0.01),
    "Lion": lambda o: o.Lion(0.01, [0.9, 0.99], 0.1),
    "Adam on a schedule": lambda o: o.Adam(o.join_schedules([o.linear_schedule(0.0, 0.1, 3), o.step_decay(0.1, 0.5, 2)], [3])),
}
CLOSE = {
    "Adafactor": lambda o: o.Adafactor(),
    "Adafactor with a mean": lambda o: o.Adafactor(0.1, beta_1=0.9, weight_decay=0.1, relative_step=False),
    "Adafactor warming up": lambda o: o.Adafactor(warmup_init=True),
    "Muon": lambda o: o.Muon(0.02),
    "Muon without Nesterov": lambda o: o.Muon(0.02, 0.9, 0.0, False, 3),
    "Several": lambda o: o.MultiOptimizer([o.Muon(0.02), o.Adam(0.01)], [lambda path, g: g.ndim >= 2]),
}


def six_steps(m, optimizer, dtype):
    """Parameters and state after six steps with the same gradients."""
    rng = np.random.default_rng(0)
    kind = getattr(m, dtype)

    def draw(*shape):
        return m.array(rng.standard_normal(shape).astype(np.float32), kind)

    parameters = {"w": draw(5, 7), "l": [draw(9), {"c": draw(6, 2, 2)}]}
    for _ in range(6):
        gradients = {"w": draw(5, 7), "l": [draw(9), {"c": draw(6, 2, 2)}]}
        parameters = optimizer.apply_gradients(gradients, parameters)
        m.eval(parameters, optimizer.state)
    return tree_flatten([parameters, optimizer.state])


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_steps_have_the_wheels_bits(name, dtype):
    found = [six_steps(m, EXACT[name](o), dtype) for m, _, o in BOTH]
    for (path, ours), (same, theirs) in zip(*found, strict=True):
        assert path == same and str(ours.dtype) == str(theirs.dtype)
        np.testing.assert_array_equal(wide(ours), wide(theirs), err_msg=path)


@pytest.mark.parametrize("name", CLOSE)
def test_steps_with_sums_in_them_are_close_to_the_wheels(name):
    found = [dict(six_steps(m, CLOSE[name](o), "float32")) for m, _, o in BOTH]
    assert found[0].keys() == found[1].keys()
    for path, ours in found[0].items():
        np.testing.assert_allclose(wide(ours), wide(found[1][path]), rtol=1e-5, atol=1e-6, err_msg=path)


def test_the_state_is_the_wheels():
    def described(tree, leaf):
        return tree_map(lambda x: (x.shape, str(x.dtype)) if isinstance(x, leaf) else x, tree)

    for make in (*EXACT.values(), *CLOSE.values()):
        ours, theirs = make(optim), make(peer_optim)
        ours.init({"w": mx.ones((2, 3)), "l": [{"b": mx.ones(3)}, {}]})
        theirs.init({"w": peer.ones((2, 3)), "l": [{"b": peer.ones(3)}, {}]})
        assert described(ours.state, mx.array) == described(theirs.state, peer.array)
