"""Reading and writing at indices: values against NumPy, laws, and what bad keys get."""

from __future__ import annotations

import numpy as np
import pytest
from laws import check_derivatives, check_laws

import isthmus.core as mx

N = np.arange(24).reshape(2, 3, 4)
I = np.array([0, 1, 1, 0, 1])
M = N % 3 == 0
ALL = slice(None)

KEYS = [
    0, -1, (1, 2), (ALL, 1), (..., 2), slice(None, None, -1), (slice(1, None), slice(None, None, 2), slice(3, None, -2)),
    None, (None, ALL, None), (), ..., (slice(0, 0),), (slice(-9, 2), slice(1, 99)), (slice(None, None, 5),),
    (0, ALL, "i"), ("i", ALL, 0), ("i", ALL, "i"), (ALL, "i", 0), (ALL, 0, "i"), ("i", None, 0), (0, None, "i"),
    ("i", None, "i"), (None, 0, ALL, "i"), (ALL, None, "i"), ("i", ..., 0), (0, ..., "i"), (slice(0, 1), "i"), "i",
    (0, [[0, 1], [1, 2]]), (1, [0, 2], [1, 3]), "m", (ALL, [True, False, True]), [1, -2], (np.int64(1), np.array([0, 2])),
]  # fmt: skip


def keys_of(key, index, mask):
    def one(k):
        return index if isinstance(k, str) and k == "i" else mask if isinstance(k, str) and k == "m" else k

    return tuple(one(k) for k in key) if isinstance(key, tuple) else one(key)


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_keys_read_as_numpy_reads(key):
    want = N[keys_of(key, I, M)]
    got = np.array(mx.array(N)[keys_of(key, mx.array(I), mx.array(M))])
    assert got.shape == want.shape
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("whole", [False, True])
def test_keys_write_as_numpy_writes(key, whole):
    a, b = N.copy(), mx.array(N)
    value = 7
    if whole and "i" not in str(key):  # equal indices: which wins is not said
        value = np.arange(N[keys_of(key, I, M)].size).reshape(N[keys_of(key, I, M)].shape) + 100
    a[keys_of(key, I, M)] = value
    b[keys_of(key, mx.array(I), mx.array(M))] = mx.array(value) if whole else value
    np.testing.assert_array_equal(np.array(b), a)


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize(
    ("name", "ufunc"), [("add", np.add), ("subtract", np.subtract), ("multiply", np.multiply), ("maximum", np.maximum), ("minimum", np.minimum)]
)
def test_at_counts_every_index(key, name, ufunc):
    a = N.copy()
    shape = N[keys_of(key, I, M)].shape
    value = np.arange(int(np.prod(shape))).reshape(shape) % 5 + 1
    ufunc.at(a, keys_of(key, I, M), value)
    got = getattr(mx.array(N).at[keys_of(key, mx.array(I), mx.array(M))], name)(mx.array(value))
    np.testing.assert_array_equal(np.array(got), a)


def test_at_divides_once_an_index():
    x = mx.array([8.0, 12.0, 5.0])
    assert x.at[mx.array([0, 0, 1])].divide(mx.array([2.0, 2.0, 3.0])).tolist() == [2, 4, 5]
    assert mx.array([8, 9]).at[0:1].divide(2).tolist() == [4, 9]


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_16_bit_scatter_add_rounds_once(dtype):
    ones = mx.zeros((1,), dtype=dtype).at[mx.zeros((5000,), mx.int32)].add(1)
    assert ones.astype(mx.float32).item() == mx.array(5000.0).astype(dtype).astype(mx.float32).item()


def test_names_share_and_slices_copy():
    a = mx.array([1, 2, 3])
    b, c = a, a[1:]
    a[0] = 9
    c[0] = 5
    assert b.tolist() == [9, 2, 3] and c.tolist() == [5, 3] and a.tolist() == [9, 2, 3]


def test_mask_with_values_uses_them_in_order():
    x = mx.arange(4)
    x[mx.array([True, False, True, False])] = mx.array([7, 8])
    assert x.tolist() == [7, 1, 8, 3]
    x[x > 6] = 0
    assert x.tolist() == [0, 1, 0, 3]


@pytest.mark.parametrize(
    ("error", "act"),
    [
        (IndexError, lambda x: x[2]),
        (IndexError, lambda x: x[-3]),
        (IndexError, lambda x: x[0, 3]),
        (IndexError, lambda x: x[[0, 2]]),
        (IndexError, lambda x: x[mx.array([0, -3])]),
        (IndexError, lambda x: mx.take(x, 4, axis=2)),
        (IndexError, lambda x: mx.take(x, mx.array([4]), axis=2)),
        (IndexError, lambda x: mx.take(x, mx.array([0]), axis=3)),
        (IndexError, lambda x: mx.take_along_axis(x, mx.zeros((2, 3, 1), mx.int32), axis=3)),
        (ValueError, lambda x: x[0, 0, 0, 0]),
        (ValueError, lambda x: x[..., ...]),
        (ValueError, lambda x: x[::0]),
        (ValueError, lambda x: x[1.5]),
        (ValueError, lambda x: x["a"]),
        (ValueError, lambda x: x[True]),
        (ValueError, lambda x: x[mx.array([0.5])]),
        (ValueError, lambda x: x[mx.array(0) :]),
        (ValueError, lambda x: x[1.0:]),
        (ValueError, lambda x: x[mx.array([True])]),
        (ValueError, lambda x: x.at.add(1)),
        (ValueError, lambda x: x.at[0].add(mx.ones((5,)))),
        (ValueError, lambda x: x.__setitem__(0, mx.ones((5,)))),
        (ValueError, lambda x: x.__setitem__(0, "a")),
        (TypeError, lambda x: x.__setitem__(0, None)),
        (ValueError, lambda x: mx.take(x, mx.array([0.5]), axis=0)),
        (ValueError, lambda x: mx.take(x, mx.array([True]), axis=0)),
        (ValueError, lambda x: mx.take(mx.zeros((0, 3)), mx.array([0]), axis=0)),
        (ValueError, lambda x: mx.take_along_axis(x, mx.zeros((2,), mx.int32))),
        (ValueError, lambda x: mx.take_along_axis(x, mx.zeros((5, 3, 1), mx.int32))),
        (ValueError, lambda x: mx.put_along_axis(x, mx.zeros((1,), mx.int32), mx.array(9), -1)),
        (ValueError, lambda x: mx.slice(x, mx.array([1.5]), (0,), (1, 3, 4))),
        (ValueError, lambda x: mx.slice(x, mx.array([1]), (0, 1), (1, 3, 4))),
        (ValueError, lambda x: mx.slice(x, mx.array([1]), (0,), (5, 3, 4))),
        (ValueError, lambda x: mx.slice_update(x, mx.ones((5, 3, 4)), mx.array([1]), (0,))),
    ],
)
def test_bad_indices_raise_where_they_are_made(error, act):
    with pytest.raises(error):
        act(mx.array(N))


def test_indices_out_of_range_read_inside_the_array():
    index = mx.array(np.full(100, 99))  # too many to be looked at when the op is made
    assert mx.arange(3)[index].tolist() == [2] * 100


def test_take_and_along_axis():
    x, j = mx.array(N), np.array([[0, 1], [2, -1]])
    np.testing.assert_array_equal(np.array(mx.take(x, mx.array(j), axis=1)), np.take(N, j, axis=1))
    np.testing.assert_array_equal(np.array(mx.take(x, mx.array([5, 23]))), N.ravel()[[5, 23]])
    np.testing.assert_array_equal(np.array(mx.take(x, -1, axis=2)), N[:, :, -1])
    k = np.random.default_rng(0).integers(-4, 4, (2, 3, 6))
    np.testing.assert_array_equal(np.array(mx.take_along_axis(x, mx.array(k), axis=2)), np.take_along_axis(N, k, 2))
    np.testing.assert_array_equal(np.array(mx.take_along_axis(x, mx.array([3, 1]), axis=None)), [3, 1])
    assert mx.take_along_axis(mx.ones((1, 3)), mx.zeros((5, 2), mx.int32)).shape == (5, 2)
    want = N.copy()
    np.put_along_axis(want, np.array([[[1], [2], [0]]]), 9, 2)
    np.testing.assert_array_equal(np.array(mx.put_along_axis(x, mx.array([[[1], [2], [0]]]), mx.array(9), axis=2)), want)


def test_slices_that_begin_where_an_array_says():
    x = mx.array(N)
    np.testing.assert_array_equal(np.array(mx.slice(x, mx.array([1, 2]), (0, 2), (1, 3, 2))), N[1:2, :, 2:4])
    want = N.copy()
    want[:, 1:3, :2] = 0
    np.testing.assert_array_equal(np.array(mx.slice_update(x, mx.zeros((2, 2, 2)), mx.array(1), (1,))), want)
    assert mx.slice(mx.arange(5), mx.array(9), (0,), (2,)).tolist() == [3, 4]


RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4))
J = np.array([[0, 1], [2, -1]])
ALONG = RNG.integers(0, 4, (2, 3, 6))


def write(key, mode=None):
    def f(x, u):
        y = x[...]
        if mode is not None:
            return getattr(y.at[key()], mode)(u)
        y[key()] = u
        return y

    return f


LAWS = {
    "gather": (lambda a: a[mx.array(I)], X),
    "gather middle": (lambda a: mx.take(a, mx.array(J), axis=1), X),
    "gather last": (lambda a: mx.take(a, mx.array(J), axis=2), X),
    "gather two apart": (lambda a: a[mx.array(I), :, mx.array(I)], X),
    "gather two": (lambda a: a[:, mx.array(I), mx.array(I)], X),
    "mixed": (lambda a: a[0, None, mx.array(I), ::2], X),
    "slice": (lambda a: a[:, ::-1, 1:3], X),
    "along, one": (lambda a: mx.take_along_axis(a, mx.full((2, 3, 1), 2)), X),
    "along, one from the end": (lambda a: mx.take_along_axis(a, mx.full((2, 1, 4), -1), axis=1), X),
    "along": (lambda a: mx.take_along_axis(a, mx.array(ALONG)), X),
    "write slice": (write(lambda: (ALL, ALL, slice(None, None, 2))), X, RNG.standard_normal((2, 3, 2))),
    "write integer": (write(lambda: (ALL, 1)), X, RNG.standard_normal((2, 4))),
    "write indices": (write(lambda: (ALL, mx.array([2, 0]))), X, RNG.standard_normal((2, 2, 4))),
    "write mixed": (write(lambda: (slice(0, 1), mx.array([2, 0]), 0)), X, RNG.standard_normal((1, 2))),
    "add": (write(lambda: mx.array(I), "add"), X, RNG.standard_normal((5, 3, 4))),
    "add middle": (write(lambda: (ALL, mx.array(J), 1), "add"), X, RNG.standard_normal((2, 2, 2))),
    "subtract": (write(lambda: mx.array(I), "subtract"), X, RNG.standard_normal((5, 1, 4))),
    "multiply": (write(lambda: mx.array(I), "multiply"), X, RNG.standard_normal((5, 3, 4))),
    "divide": (write(lambda: mx.array(I), "divide"), X, RNG.standard_normal((5, 3, 4)) + 4),
    "maximum": (write(lambda: mx.array(I), "maximum"), X, RNG.standard_normal((5, 3, 4))),
    "minimum": (write(lambda: mx.array(I), "minimum"), X, RNG.standard_normal((5, 3, 4))),
    "put": (lambda a, u: mx.put_along_axis(a, mx.array([[[1], [2], [0]]]), u, -1), X, RNG.standard_normal((2, 3, 1))),
    "slice at": (lambda a: mx.slice(a, mx.array([1, 1]), (1, 2), (1, 2, 3)), X),
    "slice update": (lambda a, u: mx.slice_update(a, u, mx.array([1, 1]), (1, 2)), X, RNG.standard_normal((2, 2, 3))),
}


@pytest.mark.parametrize("name", LAWS)
def test_laws(name):
    f, *xs = LAWS[name]
    check_laws(f, *xs)


def test_batched_indices_read_and_write_as_a_loop():
    x, i = RNG.standard_normal((3, 5)), RNG.integers(0, 5, (3, 4))
    for f in (lambda a, k: a[k], lambda a, k: a.at[k].add(1.0), lambda a, k: mx.take_along_axis(a, k, axis=0)):
        want = np.stack([np.array(f(mx.array(x[b]), mx.array(i[b]))) for b in range(3)])
        np.testing.assert_array_equal(np.array(mx.vmap(f)(mx.array(x), mx.array(i))), want)
        want = np.stack([np.array(f(mx.array(x[0]), mx.array(i[b]))) for b in range(3)])
        np.testing.assert_array_equal(np.array(mx.vmap(f, in_axes=(None, 0))(mx.array(x[0]), mx.array(i))), want)


def test_batched_starts_slice_as_a_loop():
    x, k = mx.array(N), mx.array([[0], [1], [2]])
    got = mx.vmap(lambda s: mx.slice(x, s, (2,), (2, 3, 2)))(k)
    np.testing.assert_array_equal(np.array(got), np.stack([N[:, :, s : s + 2] for s in range(3)]))
    got = mx.vmap(lambda s: mx.slice_update(x, mx.zeros((2, 3, 2)), s, (2,)))(k)
    want = np.stack([N] * 3)
    for s in range(3):
        want[s, :, :, s : s + 2] = 0
    np.testing.assert_array_equal(np.array(got), want)


def test_a_zero_factor_has_the_product_of_the_others_as_its_gradient():
    for u in ([0.0, 3.0], [0.0, 0.0], [2.0, 0.0]):
        check_derivatives(lambda a, b: a.at[mx.array([1, 1])].multiply(b), np.array([5.0, 7.0]), np.array(u))


def test_indices_that_depend_on_the_input_carry_no_gradient():
    x = mx.array([3.0, 1.0, 2.0])
    g = mx.grad(lambda a: (a[mx.stop_gradient(a).astype(mx.int32) - 1] * mx.array([1.0, 10.0, 100.0])).sum())(x)
    assert g.tolist() == [10.0, 100.0, 1.0]
