"""Matrix products and what is made of them."""

from __future__ import annotations

import numpy as np
import pytest
from laws import check_laws

import isthmus.core as mx

RNG = np.random.default_rng(0)
SHAPES = [
    ((3, 4), (4, 2)), ((2, 3, 4), (4, 2)), ((2, 3, 4), (2, 4, 2)), ((3, 4), (2, 4, 2)), ((5, 1, 3, 4), (2, 4, 2)),
    ((4,), (4,)), ((4,), (4, 2)), ((3, 4), (4,)), ((2, 3, 4), (4,)), ((1, 4), (4, 1)), ((3, 1), (1, 2)), ((1, 1), (1, 1)),
]  # fmt: skip


def normal(shape):
    return RNG.standard_normal(shape)


@pytest.mark.parametrize(("a", "b"), [*SHAPES, ((3, 0), (0, 2)), ((0, 3), (3, 2)), ((2, 0, 4), (4, 3)), ((33, 70), (70, 65))])
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16, mx.float64, mx.complex64], ids=str)
def test_values(a, b, dtype):
    x, y = normal(a), normal(b)
    if dtype is mx.complex64:
        x, y = x + 1j * normal(a), y + 1j * normal(b)
    p, q = (
        mx.array(x.astype(np.complex64 if dtype is mx.complex64 else np.float64), dtype=dtype),
        mx.array(y.astype(np.complex64 if dtype is mx.complex64 else np.float64), dtype=dtype),
    )
    wide = np.complex128 if dtype is mx.complex64 else np.float64
    want = np.matmul(
        np.array(p.astype(dtype if dtype is mx.complex64 else mx.float64)).astype(wide),
        np.array(q.astype(dtype if dtype is mx.complex64 else mx.float64)).astype(wide),
    )
    got = mx.matmul(p, q)
    assert got.dtype is dtype and got.shape == want.shape
    tol = {2: 1e-2, 4: 1e-5, 8: 1e-12 if dtype is mx.float64 else 1e-5}[dtype.size]
    np.testing.assert_allclose(np.array(got.astype(mx.complex64 if dtype is mx.complex64 else mx.float64)), want, rtol=tol, atol=tol * 10)


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_matmul_laws(a, b):
    check_laws(mx.matmul, normal(a), normal(b))


@pytest.mark.parametrize(("a", "b"), SHAPES)
@pytest.mark.parametrize("rank", [0, 1, None])
def test_addmm_laws(a, b, rank):
    out = np.matmul(np.ones(a), np.ones(b)).shape
    c = out if rank is None else out[len(out) - min(rank, len(out)) :]
    check_laws(lambda z, x, y: mx.addmm(z, x, y, 0.7, 1.3), normal(c), normal(a), normal(b))


@pytest.mark.parametrize(
    ("f", "g", "shapes"),
    [
        (lambda a, b: mx.matmul(a, b.T), lambda a, b: a @ b.T, [(2, 3, 4), (2, 4)]),
        (lambda a, b: mx.matmul(a.T, b), lambda a, b: a.T @ b, [(4, 3), (4, 2)]),
        (mx.inner, np.inner, [(2, 4), (3, 4)]),
        (mx.inner, np.inner, [(4,), (3, 4)]),
        (mx.outer, np.outer, [(2, 4), (3, 4)]),
        (mx.kron, np.kron, [(2, 4), (3,)]),
        (mx.kron, np.kron, [(2, 3), (2, 2)]),
        (mx.vecdot, lambda a, b: (a * b).sum(-1), [(2, 4), (2, 4)]),
        (lambda a, b: mx.vecdot(a, b, axis=0), lambda a, b: (a * b).sum(0), [(2, 4), (2, 4)]),
        (mx.tensordot, np.tensordot, [(5, 2, 3), (2, 3, 4)]),
        (lambda a, b: mx.tensordot(a, b, 0), lambda a, b: np.tensordot(a, b, 0), [(2, 3), (4,)]),
        (lambda a, b: mx.tensordot(a, b, ([0, 2], [1, 0])), lambda a, b: np.tensordot(a, b, ([0, 2], [1, 0])), [(2, 3, 4), (4, 2, 5)]),
        (lambda a, b: mx.tensordot(a, b, ([-1], [0])), lambda a, b: np.tensordot(a, b, ([-1], [0])), [(2, 3), (3, 2)]),
    ],
)
def test_compositions(f, g, shapes):
    xs = [normal(s) for s in shapes]
    got = f(*(mx.array(x, dtype=mx.float64) for x in xs))
    np.testing.assert_allclose(np.array(got), g(*xs), rtol=1e-12, atol=1e-12)
    check_laws(f, *xs)


def test_conjugates():
    a, b = mx.array([[1 + 2j, 3j]]), mx.array([[2 - 1j], [1 + 1j]])
    assert mx.vecdot(mx.array([1 + 2j]), mx.array([1 + 2j])).item() == 5
    g = mx.grad(lambda x: mx.real(mx.matmul(x, b)).sum())(a)
    np.testing.assert_allclose(np.array(g), np.conj(np.array(b)).T, rtol=1e-6)


def test_addmm_of_nothing_is_beta_c():
    assert mx.addmm(mx.ones((2,)), mx.ones((2, 0)), mx.ones((0, 2)), 2, 3).tolist() == [[3, 3], [3, 3]]


def test_a_gradient_lies_as_its_array():
    w = mx.array(normal((5, 4)).astype(np.float32))
    g = mx.grad(lambda w: mx.matmul(mx.ones((3, 4)), w.T).sum())(w)
    assert g._node.sig.op.name == "matmul"


@pytest.mark.parametrize(
    ("error", "act"),
    [
        (ValueError, lambda: mx.matmul(mx.ones((2, 3)), mx.ones((2, 2)))),
        (ValueError, lambda: mx.matmul(mx.ones((2, 2, 3)), mx.ones((3, 3, 2)))),
        (ValueError, lambda: mx.matmul(mx.array(1.0), mx.ones((2, 2)))),
        (ValueError, lambda: mx.matmul(mx.ones((2, 3), mx.int32), mx.ones((3, 2), mx.int32))),
        (TypeError, lambda: mx.ones((2, 2)) @ 2.0),
        (TypeError, lambda: mx.ones((2, 2)) @ [[1.0, 2.0], [3.0, 4.0]]),
        (ValueError, lambda: mx.addmm(mx.ones((3,)), mx.ones((2, 3)), mx.ones((3, 2)))),
        (ValueError, lambda: mx.addmm(mx.ones((4, 2, 2)), mx.ones((2, 3)), mx.ones((3, 2)))),
        (ValueError, lambda: mx.inner(mx.ones((2, 3)), mx.ones((4, 2)))),
        (ValueError, lambda: mx.tensordot(mx.ones((2, 3)), mx.ones((2, 2)), 1)),
        (ValueError, lambda: mx.tensordot(mx.ones((2, 3)), mx.ones((2, 2)), -1)),
        (ValueError, lambda: mx.tensordot(mx.ones((2, 3)), mx.ones((2, 2)), 3)),
        (ValueError, lambda: mx.tensordot(mx.ones((2, 3)), mx.ones((2, 2)), ([0], [0, 1]))),
        (IndexError, lambda: mx.tensordot(mx.ones((2, 3)), mx.ones((2, 2)), ([5], [0]))),
        (TypeError, lambda: mx.tensordot(mx.ones((2, 3)), mx.ones((3, 2)), (0, 1))),
        (ValueError, lambda: mx.vecdot(mx.array(1.0), mx.ones((2,)))),
        (ValueError, lambda: mx.kron(mx.ones((0, 3)), mx.ones((2,)))),
    ],
)
def test_bad_arguments_raise(error, act):
    with pytest.raises(error):
        act()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "bfloat16"])
def test_products_of_flipped_strided_and_overlapping_views(dtype):
    """BLAS takes no rows that run backwards, and a binding knows no step that a user gave: such operands are stored first."""
    x = (mx.arange(35).reshape(7, 5) % 3).astype(getattr(mx, dtype))
    windows = mx.as_strided(mx.arange(9).astype(getattr(mx, dtype)), (7, 3), (1, 1))
    mx.eval(x, windows)

    def host(a):
        return np.array(a.astype(mx.complex64)).astype(complex)

    v, w = host(x), np.lib.stride_tricks.sliding_window_view(np.arange(9), 3)
    for key in (np.s_[::-1], np.s_[:, ::-1], np.s_[::-2, ::2], np.s_[::3, 1:4]):
        np.testing.assert_array_equal(host(x[key] @ x[key].T), v[key] @ v[key].T)
        np.testing.assert_array_equal(host((x[key] @ x[key].T) @ x[key]), v[key] @ v[key].T @ v[key])
        np.testing.assert_array_equal(host(mx.addmm(x[key], x[key] @ x[key].T, x[key])), v[key] + v[key] @ v[key].T @ v[key])
    batch = mx.stack([x, 2 * x, 3 * x])
    np.testing.assert_array_equal(host(batch[::-2] @ x.T), host(batch)[::-2] @ v.T)
    np.testing.assert_array_equal(host(windows @ windows.T), w @ w.T)
    np.testing.assert_array_equal(host(windows.T @ windows), w.T @ w)
