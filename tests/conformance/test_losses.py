"""Every loss with all its arguments and reductions, and its gradient, beside the wheel."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.conformance.beside import OURS, assert_as_wheel

RNG = np.random.default_rng(0)
A, B, C = (RNG.standard_normal((4, 5, 6)).astype(np.float32) for _ in range(3))
P, Q = (RNG.uniform(0.05, 0.95, (4, 5, 6)).astype(np.float32) for _ in range(2))  # probabilities of single events
SIGNS = np.sign(C)
LABELS = {axis: RNG.integers(0, A.shape[axis], np.delete(A.shape, axis)).astype(np.int32) for axis in (0, 1, -1)}
W = {axis: RNG.random(np.delete(A.shape, axis)).astype(np.float32) for axis in (0, 1, -1)}
SHARES = {axis: P / P.sum(axis, keepdims=True) for axis in (0, 1, -1)}  # probabilities of classes
ONE_HOT = np.eye(6, dtype=np.float32)[LABELS[-1]]


def grid(**choices):
    """All choices of arguments: grid(a=[1, 2], b=[3]) is [{a: 1, b: 3}, {a: 2, b: 3}]."""
    return [dict(zip(choices, values)) for values in itertools.product(*choices.values())]


# name, arrays, arguments, how many of the arrays a gradient is taken by
ROWS = [
    *[("cross_entropy", [A, LABELS[ax]], {"axis": ax, **kw}, 1) for ax in (0, 1, -1) for kw in grid(label_smoothing=[0.0, 0.1])],
    *[("cross_entropy", [A, SHARES[ax]], {"axis": ax, **kw}, 2) for ax in (0, 1, -1) for kw in grid(label_smoothing=[0.0, 0.3])],
    *[("cross_entropy", [A, LABELS[ax], W[ax]], {"axis": ax, "label_smoothing": 0.2}, 1) for ax in (0, -1)],
    ("cross_entropy", [A, ONE_HOT, W[-1]], {}, 1),
    ("cross_entropy", [A[0, 0], np.int32(3)], {}, 1),
    ("cross_entropy", [A * 300, LABELS[-1]], {}, 1),
    *[("binary_cross_entropy", arrays, {}, 2) for arrays in ([A, P], [A * 80, (P > 0.5).astype(np.float32)], [A, P, Q])],
    *[("binary_cross_entropy", arrays, {"with_logits": False}, 2) for arrays in ([P, Q], [P, Q, P])],
    *[(name, [A, B], {}, 2) for name in ("l1_loss", "mse_loss", "smooth_l1_loss", "huber_loss", "log_cosh_loss", "cosine_similarity_loss")],
    *[("smooth_l1_loss", [A, B], {"beta": beta}, 2) for beta in (0.3, 2.0)],
    *[("huber_loss", [A, B], {"delta": delta}, 2) for delta in (0.3, 2.0)],
    ("log_cosh_loss", [A * 100, B], {}, 2),
    *[("nll_loss", [np.log(P), LABELS[ax]], {"axis": ax}, 1) for ax in (0, 1, -1)],
    *[("gaussian_nll_loss", [A, B, P], kw, 3) for kw in grid(full=[False, True], eps=[1e-6, 0.5])],
    *[("kl_div_loss", [np.log(SHARES[ax]), np.log(Q)], {"axis": ax}, 2) for ax in (0, 1, -1)],
    *[("hinge_loss", [A, SIGNS], {}, 1)],
    *[("margin_ranking_loss", [A, B, SIGNS], {"margin": margin}, 2) for margin in (0.0, 0.4)],
    *[("cosine_similarity_loss", [A, B], {"axis": axis, "eps": eps}, 2) for axis in (0, -1) for eps in (1e-8, 4.0)],
    *[("triplet_loss", [A, B, C], kw, 3) for kw in grid(axis=[-1, 0], p=[1, 2, 3])],
    *[("triplet_loss", [A, B, C], {"margin": 3.5, "eps": 0.1, "p": p}, 3) for p in (2, 2.5)],
]
ids = [f"{name}-{len(arrays)}-{','.join(f'{k}={v}' for k, v in kw.items())}-{i}" for i, (name, arrays, kw, _) in enumerate(ROWS)]
REDUCTIONS = [{}, {"reduction": "none"}, {"reduction": "mean"}, {"reduction": "sum"}]


@pytest.mark.parametrize(("name", "arrays", "kw", "by"), ROWS, ids=ids)
def test_loss_and_gradient(name, arrays, kw, by):
    def program(m):
        loss = getattr(m.nn.losses, name)
        xs = [m.mx.array(x) for x in arrays]
        grads = m.mx.grad(lambda *xs: loss(*xs, **kw, reduction="sum"), argnums=list(range(by)))(*xs)
        return [loss(*xs, **kw, **reduction) for reduction in REDUCTIONS], list(grads)

    assert_as_wheel(program, ulp=12)


def test_every_loss_has_a_row():
    assert {row[0] for row in ROWS} == set(OURS.nn.losses.__all__)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", sorted({row[0] for row in ROWS}))
def test_loss_of_16_bits_is_rounded_once(name, dtype):
    """The wheel rounds after every op; here the result is that of float32, rounded."""
    arrays, kw = next((a, k) for n, a, k, _ in ROWS if n == name)
    m = OURS
    narrow = [m.mx.array(x) for x in arrays]
    narrow = [x.astype(getattr(m.mx, dtype)) if m.mx.issubdtype(x.dtype, m.mx.floating) else x for x in narrow]
    wide = [x.astype(m.mx.float32) if m.mx.issubdtype(x.dtype, m.mx.floating) else x for x in narrow]
    loss = getattr(m.nn.losses, name)
    for reduction in REDUCTIONS:
        got = loss(*narrow, **kw, **reduction)
        assert got.dtype == getattr(m.mx, dtype)
        np.testing.assert_array_equal(got.tolist(), loss(*wide, **kw, **reduction).astype(got.dtype).tolist())
        reduced = {"reduction": "none", **reduction}
        assert loss(*narrow, **kw, **reduced).shape == loss(*wide, **kw, **reduced).shape


MATRIX, ROW = np.ones((2, 3), np.float32), np.ones(3, np.float32)


@pytest.mark.parametrize(
    ("name", "arrays", "kw"),
    [
        *[("cross_entropy", [MATRIX, np.zeros(2, np.int32)], {"label_smoothing": s}) for s in (-0.1, 1.0)],
        *[("cross_entropy", [MATRIX, t], {}) for t in (np.zeros(3, np.int32), MATRIX.T, np.zeros((), np.int32))],
        ("cross_entropy", [MATRIX, np.zeros(2, np.int32), ROW], {}),
        ("binary_cross_entropy", [MATRIX, MATRIX, ROW], {}),
        *[(name, [MATRIX, ROW], {}) for name in ("binary_cross_entropy", "l1_loss", "mse_loss", "smooth_l1_loss")],
        *[("gaussian_nll_loss", arrays, {}) for arrays in ([MATRIX, ROW, MATRIX], [MATRIX, MATRIX, ROW])],
        *[("margin_ranking_loss", arrays, {}) for arrays in ([MATRIX, ROW, MATRIX], [MATRIX, MATRIX, ROW])],
        *[(name, [MATRIX, MATRIX], {"reduction": r}) for name in ("hinge_loss", "mse_loss", "kl_div_loss") for r in ("max", None)],
    ],
)
def test_errors_have_the_wheels_type(name, arrays, kw):
    assert_as_wheel(lambda m: getattr(m.nn.losses, name)(*map(m.mx.array, arrays), **kw), raises=True)


def test_edges_where_the_wheel_has_nan():
    m, inf = OURS, float("inf")
    logits, shares = m.mx.array([[0.0, -inf]]), m.mx.array([[1.0, 0.0]])
    assert m.nn.losses.cross_entropy(logits, shares).tolist() == [0.0]
    grad = m.mx.grad(lambda x: m.nn.losses.binary_cross_entropy(x, m.mx.array([0.0, 1.0]), with_logits=False))
    assert np.isfinite(grad(m.mx.array([0.0, 1.0])).tolist()).all()
    assert m.nn.losses.binary_cross_entropy(m.mx.array([0.0]), m.mx.array([1.0]), with_logits=False).item() == 100.0
