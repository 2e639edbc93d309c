"""Every activation, as a function and as a layer, with its gradient, beside the wheel."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.beside import OURS, assert_as_wheel, plain

# Away from the corners at 0, ±0.5, 1, ±3 and 6, where a last bit decides; those stand in CORNERS.
X = np.concatenate([np.linspace(-7.03, 7.04, 61), [-30.0, -0.001, 0.001, 30.0]]).astype(np.float32)
CORNERS = np.array([-3.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0, 6.0], np.float32)
ROWS = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32) * 3

FUNCTIONS = [
    *["relu", "relu2", "relu6", "leaky_relu", "elu", "celu", "selu", "gelu", "gelu_approx", "gelu_fast_approx", "silu", "sigmoid"],
    *["log_sigmoid", "softplus", "softsign", "softshrink", "hard_shrink", "hard_tanh", "hardswish", "mish", "tanh", "step"],
    *["softmax", "softmin", "log_softmax", "glu"],
]
ARGUMENTS = {
    "leaky_relu": [{"negative_slope": 0.2}, {"negative_slope": 1.5}],
    "elu": [{"alpha": 0.3}],
    "celu": [{"alpha": 0.3}, {"alpha": 2.0}],
    "softshrink": [{"lambd": 1.25}],
    "hard_shrink": [{"lambd": 1.25}],
    "hard_tanh": [{"min_val": -2.0, "max_val": 0.25}],
    "step": [{"threshold": 1.25}],
    "softmax": [{"axis": 0}],
    "softmin": [{"axis": 0}],
    "log_softmax": [{"axis": 0}],
    "glu": [{"axis": 0}, {"axis": -2}],
}
CALLS = [(name, kw) for name in FUNCTIONS for kw in [{}, *ARGUMENTS.get(name, [])]]
ids = lambda v: v if isinstance(v, str) else ",".join(f"{k}={x}" for k, x in v.items()) if isinstance(v, dict) else None


def values_of(name):
    return ROWS if name in ("softmax", "softmin", "log_softmax", "glu") else X


@pytest.mark.parametrize(("name", "kw"), CALLS, ids=ids)
def test_function_and_gradient(name, kw):
    def program(m):
        fn = lambda v: getattr(m.nn, name)(v, **kw)
        y = fn(m.mx.array(values_of(name)))
        cotangent = np.cos(np.arange(y.size, dtype=np.float32)).reshape(y.shape)
        return y if name == "step" else m.mx.vjp(fn, [m.mx.array(values_of(name))], [m.mx.array(cotangent)])

    assert_as_wheel(program, ulp=6)


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if values_of(n) is X])
def test_function_at_corners(name):
    assert_as_wheel(lambda m: getattr(m.nn, name)(m.mx.array(CORNERS)), ulp=4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_of_16_bits(name, dtype):
    x = np.clip(values_of(name), -7, 7)
    assert_as_wheel(lambda m: getattr(m.nn, name)(m.mx.array(x).astype(getattr(m.mx, dtype))), ulp=2)


@pytest.mark.parametrize("name", ["relu", "relu6", "leaky_relu", "step", "sigmoid", "elu", "softsign", "hard_tanh", "softplus", "tanh"])
def test_function_of_integers_has_the_wheels_dtype(name):
    assert_as_wheel(lambda m: getattr(m.nn, name)(m.mx.array([-7, -1, 0, 2, 8])), ulp=8)


LAYERS = [
    *["Hardswish", "HardTanh", "LogSigmoid", "LogSoftmax", "Mish", "ReLU", "ReLU2", "ReLU6", "SELU", "Sigmoid", "SiLU", "Softmax"],
    *["Softmin", "Softplus", "Softsign", "Tanh", "CELU", "ELU", "GELU", "GLU", "HardShrink", "LeakyReLU", "PReLU", "Softshrink", "Step"],
]
LAYER_ARGUMENTS = {
    "CELU": [(0.3,)],
    "ELU": [(0.3,)],
    "GELU": [("none",), ("precise",), ("tanh",), ("fast",)],
    "GLU": [(0,)],
    "HardShrink": [(1.25,)],
    "LeakyReLU": [(0.2,)],
    "PReLU": [(6,), (1, 0.75)],
    "Softshrink": [(1.25,)],
    "Step": [(1.25,)],
}


@pytest.mark.parametrize(("name", "args"), [(n, a) for n in LAYERS for a in [(), *LAYER_ARGUMENTS.get(n, [])]], ids=str)
def test_layer(name, args):
    def program(m):
        layer = getattr(m.nn, name)(*args)
        return layer(m.mx.array(ROWS)), layer.parameters(), layer.trainable_parameters(), repr(layer), layer.children()

    assert_as_wheel(program, ulp=4)


PRELU = np.linspace(-0.5, 2, 6).astype(np.float32)


@pytest.mark.parametrize("alpha", [PRELU, PRELU[1:2], PRELU[4]], ids=["each", "one", "scalar"])
def test_prelu_and_the_gradient_of_its_slopes(alpha):
    program = lambda m: m.mx.value_and_grad(lambda a, x: m.nn.prelu(x, a).square().sum(), argnums=(0, 1))(m.mx.array(alpha), m.mx.array(ROWS))
    assert_as_wheel(program, ulp=8)


@pytest.mark.parametrize(
    "program",
    [
        lambda m: m.nn.GELU("other"),
        lambda m: m.nn.glu(m.mx.ones((2, 3))),
        lambda m: m.nn.softmax(m.mx.ones((2, 3)), axis=2),
        lambda m: m.nn.relu(),
    ],
)
def test_errors_have_the_wheels_type(program):
    assert_as_wheel(program, raises=True)


@pytest.mark.parametrize(
    "name", ["elu", "celu", "selu", "softplus", "log_sigmoid", "mish", "gelu", "gelu_approx", "silu", "softsign", "sigmoid", "tanh", "hardswish"]
)
def test_gradient_far_from_zero_is_finite(name):
    x = OURS.mx.array([-1e4, -100.0, 100.0, 1e4])
    _, grad = plain(OURS.mx.grad(lambda v: getattr(OURS.nn, name)(v).sum())(x), OURS)
    assert np.isfinite(grad).all()
