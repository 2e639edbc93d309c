"""What goes in and what comes out: numbers, lists, NumPy, buffers, DLPack, pickles."""

import array as pyarray
import copy
import gc
import math
import pickle
import weakref

import ml_dtypes
import numpy as np
import pytest

import isthmus.core as mx

NAN = math.nan
DTYPES = "bool_ uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64".split()


@pytest.mark.parametrize(
    ("val", "dtype", "shape"),
    [
        (True, "bool_", ()),
        (3, "int32", ()),
        (2**31, "int64", ()),
        (1.5, "float32", ()),
        (2j, "complex64", ()),
        ([], "float32", (0,)),
        ([[], []], "float32", (2, 0)),
        ([1, 2**40], "int64", (2,)),
        ([True, 2], "int32", (2,)),
        ([True, False], "bool_", (2,)),
        ([1, 2.5], "float32", (2,)),
        ([1, 2j], "complex64", (2,)),
        (((1, 2), [3, 4]), "int32", (2, 2)),
        (np.float64(1.5), "float32", ()),
        (np.float16(1.5), "float16", ()),
        (np.array([1.0, 2.0]), "float32", (2,)),
        (np.array([1j]), "complex64", (1,)),
        (np.array([1], ">i4"), "int32", (1,)),
        (np.zeros((2, 0), np.int8), "int8", (2, 0)),
        (np.arange(3, dtype=ml_dtypes.bfloat16), "bfloat16", (3,)),
        (b"abc", "uint8", (3,)),
        (pyarray.array("h", [1, 2]), "int16", (2,)),
    ],
)
def test_dtype_and_shape_follow_the_value(val, dtype, shape):
    a = mx.array(val)
    assert a.dtype == getattr(mx, dtype)
    assert a.shape == shape


def test_lists_of_arrays_are_stacked_and_differentiable():
    assert mx.array([mx.array(1), mx.array(2.5)]).tolist() == [1, 2.5]
    assert mx.array([mx.array([1, 2]), [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert mx.array([[mx.array(1.0), 2], [3, 4]]).shape == (2, 2)
    assert mx.grad(lambda x: (mx.array([x, 2 * x]) ** 2).sum())(mx.array(1.0)).item() == 10


def test_float64_keeps_its_digits_when_asked():
    v = [27.59613783384, 34.54296496938]
    assert mx.array(v, dtype=mx.float64).tolist() == v
    assert mx.array(np.array(v), dtype=mx.float64).tolist() == v
    assert mx.array(math.pi, dtype=mx.float64).item() == math.pi


@pytest.mark.parametrize(
    ("f", "error", "says"),
    [
        (lambda: mx.array("a"), ValueError, "Invalid type str"),
        (lambda: mx.array(["a"]), ValueError, "Invalid type str"),
        (lambda: mx.array([None]), ValueError, "Invalid type NoneType"),
        (lambda: mx.array({}), ValueError, "Invalid type dict"),
        (lambda: mx.array(range(3)), ValueError, "Invalid type range"),
        (lambda: mx.array(None), TypeError, "None"),
        (lambda: mx.array([[1, 2], [3]]), ValueError, "uniform"),
        (lambda: mx.array([1, [2]]), ValueError, "uniform"),
        (lambda: mx.array([mx.array([1]), mx.array([1, 2])]), ValueError, "uniform"),
        (lambda: mx.array(2**63), ValueError, "uint64"),
        (lambda: mx.array([2**64]), ValueError, "overflow"),
        (lambda: mx.array(300, dtype=mx.uint8), ValueError, "overflow"),
        (lambda: mx.array([-1], dtype=mx.uint16), ValueError, "overflow"),
        (lambda: mx.array(NAN, dtype=mx.int32), ValueError, "nan"),
        (lambda: mx.array([math.inf], dtype=mx.int8), ValueError, "infinity"),
        (lambda: mx.array(np.array([NAN]), dtype=mx.int32), ValueError, "NaN"),
        (lambda: mx.array([1], dtype="float32"), TypeError, "."),
        (lambda: mx.array(np.array(["a"])), ValueError, "Invalid type"),
        (lambda: mx.array([1, 2]).item(), ValueError, "one element"),
        (lambda: float(mx.array([])), ValueError, "one element"),
        (lambda: [1, 2][mx.array(1.0)], TypeError, "integer"),
        (lambda: len(mx.array(1)), TypeError, "0-dimensional"),
        (lambda: format(mx.array([1.0, 2.0]), ".2f"), TypeError, "format"),
    ],
)
def test_what_bad_input_gets(f, error, says):
    with pytest.raises(error, match=says):
        f()


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_goes_round(name):
    d = getattr(mx, name)
    a = mx.array([[1, 0, 1], [0, 1, 1]]).astype(d)
    want = np.array([[1, 0, 1], [0, 1, 1]]).astype(d.numpy)
    for b in (a, a.T, a[:, ::-1], mx.broadcast_to(a, (2, 2, 3)), a[:0]):
        n = np.array(b)
        assert n.dtype == d.numpy
        assert n.tolist() == b.tolist()
        assert bytes(b) == n.tobytes()
        for c in (mx.array(n, dtype=d), copy.copy(b), copy.deepcopy(b), pickle.loads(pickle.dumps(b)), mx.from_dlpack(b)):
            assert c.dtype == d
            assert c.tolist() == b.tolist()
    np.testing.assert_array_equal(np.array(a), want)
    assert type(a[0, 0].item()) is {0: bool, 1: int, 2: float, 3: complex}[d.rank]


def test_numpy_copies_or_shares_as_asked():
    a = mx.array([1.0, 2.0])
    np.array(a)[0] = 5
    assert a.tolist() == [1, 2]
    shared = np.asarray(a)
    shared[0] = 5
    assert a.tolist() == [5, 2]
    assert (a + 0).tolist() == [5, 2]
    memoryview(a)[1] = 7
    assert a.tolist() == [5, 7]
    assert np.array(a, copy=False).base is not None


def test_memory_that_was_given_away_is_not_overwritten():
    x = mx.zeros((1000,)) + 1
    mx.eval(x)
    view = np.asarray(x)
    x = x + 1
    x[3] = 9
    mx.eval(x)
    assert (view == 1).all()
    del view
    gc.collect()
    assert x[3].item() == 9


def test_memoryview_says_what_is_there():
    view = memoryview(mx.array([[1, 2], [3, 4]], dtype=mx.int16))
    assert (view.format, view.shape, view.strides, view.readonly) == ("h", (2, 2), (4, 2), False)
    assert view.tolist() == [[1, 2], [3, 4]]
    assert memoryview(mx.array([[1, 2], [3, 4]]).T).strides == (4, 8)

    class Own(mx.array):
        pass

    assert bytes(memoryview(Own([1, 2], dtype=mx.uint8))) == b"\1\2"


def test_dlpack_shares_and_lets_go():
    a = mx.array([[1.0, 2.0], [3.0, 4.0]])
    buffer = a._node.buffer
    n = np.from_dlpack(a)
    assert n.tolist() == a.tolist()
    assert buffer.exports == 1
    del n
    gc.collect()
    assert buffer.exports == 0
    a.__dlpack__()  # a capsule nobody takes
    gc.collect()
    assert buffer.exports == 0
    assert a.__dlpack_device__() == (1, 0)


def test_dlpack_takes_strided_memory_and_frees_it():
    class Owner(np.ndarray):
        pass

    n = np.arange(12, dtype=np.int16).reshape(3, 4).view(Owner)
    gone = weakref.ref(n)
    assert mx.from_dlpack(n[::-1, ::2]).tolist() == n[::-1, ::2].tolist()
    del n
    gc.collect()
    assert gone() is None


@pytest.mark.long
def test_torch_tensors_come_and_go():
    import torch

    t = torch.arange(6).reshape(2, 3).to(torch.bfloat16)
    assert mx.array(t.T).dtype == mx.bfloat16
    assert mx.array(t.T).tolist() == t.T.tolist()
    assert torch.from_dlpack(mx.array([1.5]).astype(mx.bfloat16)).dtype == torch.bfloat16
    assert mx.array(torch.ones(2, dtype=torch.float64)).dtype == mx.float32


def test_what_offers_array_is_taken():
    class Offers:
        def __array__(self, dtype=None, copy=None):
            return np.array([1, 2], np.int8)

    assert mx.array(Offers()).dtype == mx.int8
    assert (mx.array([1, 1], dtype=mx.int8) + Offers()).tolist() == [2, 3]


def test_asarray_returns_what_is_one_already():
    a = mx.array([1, 2])
    assert mx.asarray(a) is a
    assert mx.asarray(a, copy=True) is not a
    assert mx.asarray(a, mx.float32).dtype == mx.float32
    with pytest.raises(ValueError, match="copy"):
        mx.asarray([1], copy=False)


def test_numbers_of_arrays_without_axes():
    assert int(mx.array(1.7)) == 1
    assert float(mx.array([2])) == 2.0
    assert complex(mx.array(2)) == 2
    assert [10, 20][mx.array(1)] == 20
    assert f"{mx.array(1.5):.2f}" == "1.50"


def test_copies_are_apart():
    a = mx.array([1.0, 2.0])
    for b in (copy.copy(a), copy.deepcopy(a), mx.array(a)):
        b[0] = 9
        assert a.tolist() == [1, 2]


def test_arrays_are_hashed_and_weakly_referred_to_by_identity():
    a = mx.array([1, 2])
    assert {a: 1}[a] == 1
    assert weakref.ref(a)() is a

    class Own(mx.array):
        pass

    own = Own([1, 2])
    own.note = "mine"
    assert type(own + 1) is mx.array
