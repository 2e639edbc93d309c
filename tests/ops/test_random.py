"""Random numbers: the wheel's bits, and within ulps where logarithms and erfinv come in."""

from __future__ import annotations

import numpy as np
import pytest

import isthmus.core as mx

mlx = pytest.importorskip("mlx.core")

SHAPES = [(), (1,), (2,), (5,), (3, 7), (1001,), (0, 3)]
HALVES = ["float32", "float16", "bfloat16"]


def both(draw):
    """What isthmus and the wheel give for key 42, as float64 (or complex) arrays."""
    out = []
    for m in (mx, mlx):
        a = draw(m, m.random.key(42))
        out.append(np.array(a.astype(m.float32) if a.dtype == m.bfloat16 else a))
    assert out[0].dtype == out[1].dtype and out[0].shape == out[1].shape
    return out


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "draw",
    [
        *[lambda m, k, s, d=d: m.random.uniform(shape=s, key=k, dtype=getattr(m, d)) for d in HALVES],
        *[lambda m, k, s, d=d: m.random.uniform(-3, 7.3, shape=s, key=k, dtype=getattr(m, d)) for d in HALVES],
        lambda m, k, s: m.random.uniform(m.array(-1.0), m.array(2.0), s, key=k),
        lambda m, k, s: m.random.bernoulli(0.3, s, key=k),
        lambda m, k, s: m.random.bernoulli(1.0, s, key=k),
        lambda m, k, s: m.random.bernoulli(m.array(0.7), s, key=k),
        *[lambda m, k, s, d=d: m.random.randint(0, 100, s, key=k, dtype=getattr(m, d)) for d in ("int32", "uint8", "int64", "bool_", "uint32")],
        lambda m, k, s: m.random.randint(-50, 1_000_000, s, key=k),
        lambda m, k, s: m.random.randint(10, 2, s, key=k),
        lambda m, k, s: m.random.randint(m.array(0), m.array(20), s, key=k),
        lambda m, k, s: m.random.split(k, 5),
    ],
)
def test_bits_are_the_wheels(draw, shape):
    mine, theirs = both(lambda m, k: draw(m, k, shape))
    np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "draw",
    [
        lambda m, k, s, d: m.random.normal(s, d, key=k),
        lambda m, k, s, d: m.random.normal(s, d, loc=1.3, scale=2.7, key=k),
        lambda m, k, s, d: m.random.truncated_normal(-1.0, 1.5, s, d, key=k),
        lambda m, k, s, d: m.random.gumbel(s, d, key=k),
        lambda m, k, s, d: m.random.laplace(s, d, key=k),
        lambda m, k, s, d: m.random.laplace(s, d, loc=1.5, scale=2.5, key=k),
        lambda m, k, s, d: m.random.normal(s, m.complex64, key=k),
    ],
)
def test_other_draws_are_close_to_the_wheels(draw, dtype, shape):
    mine, theirs = both(lambda m, k: draw(m, k, shape, getattr(m, dtype)))
    tol = 2e-6 if dtype == "float32" or np.iscomplexobj(mine) else 1e-2 if dtype == "bfloat16" else 2e-3
    np.testing.assert_allclose(mine, theirs, rtol=tol, atol=tol)


LOGITS = np.random.default_rng(0).standard_normal((3, 7)).astype(np.float32)


@pytest.mark.parametrize("logits", [LOGITS, LOGITS[0]], ids=["2d", "1d"])
@pytest.mark.parametrize("more", [{}, {"axis": 0}, {"shape": True}, {"num_samples": 50}, {"axis": 0, "num_samples": 4}, {"axis": 0, "shape": True}], ids=str)
def test_categories_are_the_wheels(logits, more):
    if "shape" in more:
        rest = logits.shape[1:] if "axis" in more else logits.shape[:-1]
        more = {**more, "shape": (5, *rest)}
    mine, theirs = both(lambda m, k: m.random.categorical(m.array(logits), key=k, **more))
    np.testing.assert_array_equal(mine, theirs)


def test_the_global_state_moves_as_the_wheels():
    for m in (mx, mlx):
        m.random.seed(7)
    for _ in range(3):
        np.testing.assert_array_equal(np.array(mx.random.uniform(shape=(3,))), np.array(mlx.random.uniform(shape=(3,))))
        np.testing.assert_array_equal(np.array(mx.random.state[0]), np.array(mlx.random.state[0]))
    assert len(mx.random.state) == 1


@pytest.mark.parametrize(("width", "dtype"), [(1, np.uint8), (2, np.uint16), (4, np.uint32)])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 8])
def test_narrow_bits_are_parts_of_the_words(width, dtype, count):
    words = np.array(mx.random.bits(((count * width + 3) // 4,), key=mx.random.key(1)))
    got = np.array(mx.random.bits((count,), width, key=mx.random.key(1)))
    np.testing.assert_array_equal(got, words.view(dtype)[:count])


def test_wide_integers_are_unbiased():
    a = np.array(mx.random.randint(0, 3 * 2**29, (300_000,), key=mx.random.key(0)))
    assert abs(np.bincount(a // 2**29) / a.size - 1 / 3).max() < 0.01
    b = np.array(mx.random.randint(2**24, 2**24 + 2, (10_000,), key=mx.random.key(0)))
    assert sorted(set(b.tolist())) == [2**24, 2**24 + 1]
    c = np.array(mx.random.randint(-(2**62), 2**62, (1000,), dtype=mx.int64, key=mx.random.key(0)))
    assert c.min() < -(2**60) and c.max() > 2**60 and abs((c > 0).mean() - 0.5) < 0.1


def test_vmap_over_keys_is_a_loop():
    keys = mx.random.split(mx.random.key(3), 4)
    for draw in (lambda k: mx.random.uniform(shape=(2, 3), key=k), lambda k: mx.random.bits((5,), 2, key=k), lambda k: mx.random.split(k, 3)):
        got = np.array(mx.vmap(draw)(keys))
        np.testing.assert_array_equal(got, np.stack([np.array(draw(keys[i])) for i in range(4)]))


@pytest.mark.parametrize(
    "act",
    [
        lambda m: m.random.uniform(shape=(3,), dtype=m.int32),
        lambda m: m.random.uniform(shape=(3,), dtype=m.complex64),
        lambda m: m.random.uniform(shape=(-3,)),
        lambda m: m.random.uniform(shape=3),
        lambda m: m.random.uniform(m.array([0.0, 1.0])),
        lambda m: m.random.uniform(m.array([0.0, 1.0]), shape=(3,)),
        lambda m: m.random.uniform(shape=(3,), key=m.zeros((3,), m.uint32)),
        lambda m: m.random.uniform(shape=(3,), key=m.zeros((2,))),
        lambda m: m.random.uniform(shape=(3,), key=m.zeros((2, 2), m.uint32)),
        lambda m: m.random.bernoulli(1, (3,)),
        lambda m: m.random.bernoulli(m.array([0.1, 0.9]), (3,)),
        lambda m: m.random.randint(0, 10, (3,), dtype=m.float32),
        lambda m: m.random.normal((3,), m.int32),
        lambda m: m.random.categorical(m.zeros((3, 7)), num_samples=4, shape=(3,)),
        lambda m: m.random.categorical(m.zeros((3, 7)), shape=(5, 4)),
        lambda m: m.random.key(-1),
        lambda m: m.random.key(2**64),
        lambda m: m.random.key(1.5),
        lambda m: m.random.seed(-1),
    ],
)
def test_errors_are_the_wheels(act):
    errors = []
    for m in (mx, mlx):
        with pytest.raises(Exception) as found:
            act(m)
        errors.append(found.type)
    assert errors[0] is errors[1]
