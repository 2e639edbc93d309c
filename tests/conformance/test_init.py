"""Initializers: the wheel's values, which follow from the seed, and their statistics."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.beside import OURS, assert_as_wheel

# Strict, and with the condition: the tests run in earnest as soon as core has the function.
needs = lambda name: pytest.mark.xfail(not hasattr(OURS.mx, name), reason=f"core has no {name} yet", raises=(AttributeError, AssertionError))

SHAPES = [(4, 6), (6, 4), (3, 2, 5), (8, 3, 3, 4)]
FANNED = {
    "glorot_normal": [{}, {"gain": 2.5}],
    "glorot_uniform": [{}, {"gain": 2.5}],
    "he_normal": [{}, {"mode": "fan_out"}, {"mode": "fan_in", "gain": 2.5}],
    "he_uniform": [{}, {"mode": "fan_out"}, {"mode": "fan_in", "gain": 2.5}],
}


def drawn(m, make, shape, **kw):
    m.mx.random.seed(7)
    return make(m.nn.init)(m.mx.zeros(shape), **kw)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("name", "kw"), [(n, kw) for n, kws in FANNED.items() for kw in kws], ids=str)
def test_scaled_by_fans(name, kw, shape):
    assert_as_wheel(lambda m: drawn(m, lambda init: getattr(init, name)(), shape, **kw), ulp=2)


PLAIN = {
    "constant": lambda init: init.constant(0.5),
    "constant of an array": lambda init: init.constant(3),
    "normal": lambda init: init.normal(),
    "normal shifted": lambda init: init.normal(mean=2.0, std=0.1),
    "uniform": lambda init: init.uniform(),
    "uniform scaled": lambda init: init.uniform(low=-3.0, high=5.0),
    "sparse": lambda init: init.sparse(0.3),
    "sparse shifted": lambda init: init.sparse(0.5, mean=1.0, std=0.1),
    "sparse with none": lambda init: init.sparse(0.0),
    "sparse with all": lambda init: init.sparse(1.0),
}


@pytest.mark.parametrize("shape", [(4, 6), (5, 1), (1, 7)], ids=str)
@pytest.mark.parametrize("name", [pytest.param(n, marks=needs("argsort")) if "sparse" in n else n for n in PLAIN])
def test_plain(name, shape):
    assert_as_wheel(lambda m: drawn(m, PLAIN[name], shape), ulp=2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["constant", "normal", "uniform", "identity", pytest.param("sparse", marks=needs("argsort")), *FANNED])
def test_dtype(name, dtype):
    first = {"constant": [0.3], "sparse": [0.5]}.get(name, [])
    assert_as_wheel(lambda m: drawn(m, lambda init: getattr(init, name)(*first, dtype=getattr(m.mx, dtype)), (4, 4)), ulp=2)


@pytest.mark.parametrize(
    ("make", "shape", "mean", "std"),
    [
        (lambda i: i.normal(1.0, 0.5), (200, 300), 1.0, 0.5),
        (lambda i: i.uniform(-1.0, 3.0), (200, 300), 1.0, 4 / 12**0.5),
        (lambda i: i.glorot_normal(), (200, 300), 0.0, (2 / 500) ** 0.5),
        (lambda i: i.glorot_uniform(), (200, 300), 0.0, (2 / 500) ** 0.5),
        (lambda i: i.he_normal(), (200, 300), 0.0, 300**-0.5),
        (lambda i: i.he_uniform(), (100, 3, 3, 80), 0.0, 720**-0.5),
        pytest.param(lambda i: i.sparse(0.25), (200, 300), 0.0, 0.75**0.5, marks=needs("argsort")),
    ],
)
def test_statistics(make, shape, mean, std):
    x = np.array(drawn(OURS, make, shape)).astype(np.float64)
    assert abs(x.mean() - mean) < 5 * std / x.size**0.5
    assert abs(x.std() / std - 1) < 0.02


@needs("argsort")
def test_sparse_zeroes_the_same_number_in_each_row():
    assert ((np.array(drawn(OURS, lambda i: i.sparse(0.3), (50, 11))) == 0).sum(1) == 4).all()


@needs("linalg")
@pytest.mark.parametrize("shape", [(5, 5), (5, 3), (3, 5), (1, 4)], ids=str)
@pytest.mark.parametrize("gain", [1.0, 2.0])
def test_orthogonal(shape, gain):
    x = np.array(drawn(OURS, lambda i: i.orthogonal(gain), shape)).astype(np.float64)
    small = x @ x.T if shape[0] <= shape[1] else x.T @ x
    np.testing.assert_allclose(small, gain**2 * np.eye(min(shape)), atol=1e-5)
    assert_as_wheel(lambda m: drawn(m, lambda i: i.orthogonal(gain, dtype=m.mx.float16), shape).shape)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        *[(lambda i, n=n: getattr(i, n)(), (3,)) for n in FANNED],
        *[(lambda i: i.identity(), shape) for shape in ((2, 3), (4,), (2, 2, 2))],
        *[(lambda i: i.sparse(0.5), shape) for shape in ((4,), (2, 2, 2))],
        *[(lambda i: i.orthogonal(), shape) for shape in ((4,), (2, 2, 2))],
    ],
)
def test_shapes_refused(make, shape):
    assert_as_wheel(lambda m: drawn(m, make, shape), raises=True)


@pytest.mark.parametrize("name", ["he_normal", "he_uniform"])
def test_mode_refused(name):
    assert_as_wheel(lambda m: drawn(m, lambda i: getattr(i, name)(), (2, 2), mode="other"), raises=True)
