"""einsum against NumPy, its laws, and what bad subscripts get."""

from __future__ import annotations

import numpy as np
import pytest
from laws import check_laws

import isthmus.core as mx

RNG = np.random.default_rng(0)
CASES = [
    ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)), ("ba", (2, 3)), ("ii->i", (3, 3)), ("ii", (3, 3)), ("ij->", (2, 3)),
    ("ij,ij->ij", (2, 3), (2, 3)), ("ij,ij->", (2, 3), (2, 3)), ("i,j->ij", (2,), (3,)), ("i,j->ji", (2,), (3,)),
    ("ij,jk,kl->il", (2, 3), (3, 2), (2, 5)), ("ij,jk,kl,lm->mi", (2, 3), (3, 2), (2, 5), (5, 2)),
    ("...ij,jk->...ik", (7, 2, 3), (3, 2)), ("...ij,jk", (7, 2, 3), (3, 2)), ("...ij,...jk->...ik", (7, 1, 2, 3), (4, 3, 2)),
    ("bij,bjk->bik", (1, 2, 3), (4, 3, 5)), ("bhld,bhmd->bhlm", (2, 3, 4, 5), (2, 3, 6, 5)), ("bhlm,bhmd->blhd", (2, 3, 4, 6), (2, 3, 6, 5)),
    ("ij,kj->ik", (2, 3), (4, 3)), ("ji,jk->ik", (3, 2), (3, 4)), ("aB->Ba", (2, 3)), ("i j , j k -> i k", (2, 3), (3, 4)), ("iij->j", (3, 3, 2)),
    ("iji->ij", (3, 2, 3)), ("ij,k->i", (2, 3), (4,)), (",ij->ji", (), (2, 3)), ("...->...", (2, 3)), ("abc,cd->abd", (2, 3, 4), (4, 5)), ("ijk,ilk->jl", (2, 3, 4), (2, 5, 4)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_laws(case):
    subscripts, *shapes = case
    xs = [RNG.standard_normal(s) for s in shapes]
    got = mx.einsum(subscripts, *(mx.array(x, dtype=mx.float64) for x in xs))
    want = np.einsum(subscripts.replace(" ", ""), *xs)
    assert got.shape == want.shape
    np.testing.assert_allclose(np.array(got), want, rtol=1e-12, atol=1e-12)
    if len(xs) < 3:
        check_laws(lambda *a: mx.einsum(subscripts, *a), *xs)


def test_sizes_of_one_broadcast():
    assert mx.einsum("ij,jk->ik", mx.ones((2, 1)), mx.ones((3, 5))).tolist() == [[3.0] * 5] * 2
    assert mx.einsum("ij,ij->j", mx.ones((2, 1)), mx.ones((2, 5))).tolist() == [2.0] * 5


def test_integers_multiply_but_not_as_matrices():
    ones = mx.ones((2, 3), mx.int32)
    assert mx.einsum("ij,ij->ij", ones, ones).dtype is mx.int32
    assert mx.einsum("ij->i", ones).tolist() == [3, 3]
    with pytest.raises(ValueError, match="inexact"):
        mx.einsum("ij,jk->ik", ones, ones.T)


def test_a_path():
    path, text = mx.einsum_path("ij,jk,kl->il", mx.ones((2, 3)), mx.ones((3, 2)), mx.ones((2, 5)))
    assert path == [(0, 1), (0, 1)] and "FLOP" in text


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (2, 2)]),
        ("ij,jk->ik", [(2, 3)]),
        ("ij->i", [(2, 3), (2, 3)]),
        ("ij,jk->iz", [(2, 3), (3, 2)]),
        ("ijk->i", [(2, 3)]),
        ("i1->i", [(2, 3)]),
        ("ij->ij", []),
        ("ij->ii", [(2, 3)]),
        ("...i,ij->...j", [(), (6, 10)]),
    ],
)
def test_bad_subscripts_raise(subscripts, shapes):
    with pytest.raises(ValueError, match="einsum"):
        mx.einsum(subscripts, *(mx.ones(s) for s in shapes))
