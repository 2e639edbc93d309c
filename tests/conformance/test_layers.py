"""Linear and normalizing layers, Dropout and containers with each of their arguments, and their gradients, beside the wheel."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.beside import assert_as_wheel

RNG = np.random.default_rng(0)
MATRIX, CUBE, ROW = (RNG.standard_normal(shape).astype(np.float32) for shape in ((5, 6), (2, 3, 6), (6,)))

LAYERS = {
    "Linear": lambda n: n.Linear(6, 3),
    "Linear, one": lambda n: n.Linear(6, 1, bias=True),
    "Linear, no bias": lambda n: n.Linear(6, 3, bias=False),
    "LayerNorm": lambda n: n.LayerNorm(6),
    "LayerNorm, eps": lambda n: n.LayerNorm(6, eps=0.5),
    "LayerNorm, no bias": lambda n: n.LayerNorm(6, bias=False),
    "LayerNorm, not affine": lambda n: n.LayerNorm(6, 1e-3, affine=False),
    "RMSNorm": lambda n: n.RMSNorm(6),
    "RMSNorm, eps": lambda n: n.RMSNorm(6, eps=0.5),
    "Identity": lambda n: n.Identity(),
    "Identity, arguments": lambda n: n.Identity(3, [4], other=5),
    "Sequential, none": lambda n: n.Sequential(),
    "Sequential": lambda n: n.Sequential(n.Linear(6, 4), n.relu, n.RMSNorm(4), n.Sequential(n.Tanh(), n.PReLU()), n.Linear(4, 2, False)),
    "Dropout, none": lambda n: n.Dropout(0.0),
    "Dropout, off": lambda n: n.Dropout(0.9).eval(),
}


def filled(m, layer):
    rng = np.random.default_rng(1)
    draw = lambda v: m.mx.array(rng.standard_normal(v.shape).astype(np.float32))
    return layer.load_weights([(k, draw(v)) for k, v in sorted(m.utils.tree_flatten(layer.parameters()), key=lambda kv: kv[0])])


@pytest.mark.parametrize("x", [MATRIX, CUBE, ROW], ids=["matrix", "cube", "row"])
@pytest.mark.parametrize("name", LAYERS)
def test_layer_and_gradients(name, x):
    def program(m):
        layer = filled(m, LAYERS[name](m.nn))
        y = layer(m.mx.array(x))
        loss = lambda p, x: layer.update(p)(x).square().mean()
        return repr(layer), y, m.mx.grad(loss, argnums=(0, 1))(layer.parameters(), m.mx.array(x)) if layer.parameters() else None

    assert_as_wheel(program, ulp=24)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", LAYERS)
def test_layer_of_16_bits(name, dtype):
    def program(m):
        layer = filled(m, LAYERS[name](m.nn))
        layer.set_dtype(getattr(m.mx, dtype))
        return layer(m.mx.array(MATRIX).astype(getattr(m.mx, dtype))), layer(m.mx.array(MATRIX)).dtype

    assert_as_wheel(program, ulp=4)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("a", "b"), [((5, 3), (5, 4)), ((2, 5, 3), (2, 5, 4)), ((3,), (4,))], ids=str)
def test_bilinear(a, b, bias):
    def program(m):
        layer = filled(m, m.nn.Bilinear(3, 4, 2, bias=bias))
        x, y = (m.mx.array(np.random.default_rng(2).standard_normal(s).astype(np.float32)) for s in (a, b))
        loss = lambda p, x, y: layer.update(p)(x, y).square().sum()
        return layer(x, y), m.mx.grad(loss, argnums=(0, 1, 2))(layer.parameters(), x, y)

    assert_as_wheel(program, ulp=24)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("name", "shape"),
    [("Dropout", (40, 50)), ("Dropout", ()), ("Dropout2d", (3, 4, 5, 6)), ("Dropout2d", (4, 5, 6)), ("Dropout3d", (2, 3, 4, 5, 6)), ("Dropout3d", (3, 4, 5, 6))],
    ids=str,
)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.75])
def test_dropout_draws_the_wheels_mask(name, shape, p, dtype):
    def program(m):
        m.mx.random.seed(5)
        layer, x = getattr(m.nn, name)(p), m.mx.array(np.full(shape, 1.7, np.float32)).astype(getattr(m.mx, dtype))
        return layer(x), layer.eval()(x), layer.train()(x)

    assert_as_wheel(program, ulp=1)


@pytest.mark.parametrize(
    "program",
    [
        *[lambda m, n=n, p=p: getattr(m.nn, n)(p) for n in ("Dropout", "Dropout2d", "Dropout3d") for p in (-0.1, 1.0, 1.5)],
        *[lambda m, n=n: getattr(m.nn, n)()(m.mx.ones((2, 2))) for n in ("Dropout2d", "Dropout3d")],
        *[lambda m, n=n, eps=eps: getattr(m.nn, n)(4, eps=eps) for n in ("LayerNorm", "RMSNorm") for eps in (0.0, -1e-5)],
        lambda m: m.nn.Linear(3, 2)(m.mx.ones((2, 4))),
        lambda m: m.nn.LayerNorm(3)(m.mx.ones((2, 4))),
        lambda m: m.nn.RMSNorm(3)(m.mx.ones((2, 4))),
    ],
)
def test_error_has_the_wheels_type(program):
    assert_as_wheel(program, raises=True)
