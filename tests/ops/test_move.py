"""Views and moves: each against NumPy, composed views, derivatives, errors."""

import numpy as np
import pytest

import isthmus.core as mx
from isthmus.graph.node import Node

A = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
B = np.arange(6, dtype=np.int32).reshape(2, 3)

# (name, the same expression of mx and np: m is the module, a and b arrays)
ROWS = {
    "reshape": lambda m, a, b: m.reshape(a, (4, 6)),
    "reshape to more axes": lambda m, a, b: m.reshape(a, (2, 1, 3, 2, 2)),
    "reshape inferred": lambda m, a, b: m.reshape(a, (-1, 8)),
    "reshape of a transpose": lambda m, a, b: m.reshape(m.transpose(a, (2, 0, 1)), (8, 3)),
    "transpose of a reshape": lambda m, a, b: m.transpose(m.reshape(a, (6, 4))),
    "transpose": lambda m, a, b: m.transpose(a, (1, 2, 0)),
    "transpose twice": lambda m, a, b: m.transpose(m.transpose(a, (1, 2, 0)), (1, 2, 0)),
    "swapaxes": lambda m, a, b: m.swapaxes(a, 0, -1),
    "moveaxis": lambda m, a, b: m.moveaxis(a, 0, 2),
    "moveaxis of several": lambda m, a, b: m.moveaxis(a, (0, 2), (1, 0)),
    "expand": lambda m, a, b: m.expand_dims(a, (0, -1)),
    "squeeze": lambda m, a, b: m.squeeze(m.expand_dims(b, 1)),
    "broadcast": lambda m, a, b: m.broadcast_to(b, (2, 2, 3)),
    "broadcast of a broadcast": lambda m, a, b: m.broadcast_to(m.broadcast_to(m.reshape(b, (2, 1, 3)), (2, 2, 3)), (3, 2, 2, 3)),
    "flip all": lambda m, a, b: m.flip(a),
    "flip one": lambda m, a, b: m.flip(a, 1),
    "flip of a flip": lambda m, a, b: m.flip(m.flip(a, (0, 1)), (1, 2)),
    "flip of a slice": lambda m, a, b: m.flip(a[:, 1:], 1),
    "slice of a slice": lambda m, a, b: a[:, ::-1][:, 1:, ::2][:, ::-1, ::-1],
    "pad": lambda m, a, b: m.pad(b, ((1, 0), (2, 3))),
    "pad with a number": lambda m, a, b: m.pad(b, 1, constant_values=7),
    "pad with edges": lambda m, a, b: m.pad(a, ((1, 2), (0, 0), (3, 1)), mode="edge"),
    "pad by reflection": lambda m, a, b: m.pad(a, ((1, 0), (2, 2), (0, 3)), mode="reflect"),
    "concatenate": lambda m, a, b: m.concatenate([a, a[:, :1]], axis=1),
    "concatenate many": lambda m, a, b: m.concatenate([b + k for k in range(21)], axis=1),
    "concatenate empty parts": lambda m, a, b: m.concatenate([b[:0], b, b[:0]]),
    "concatenate flat": lambda m, a, b: m.concatenate([a, b], axis=None),
    "stack": lambda m, a, b: m.stack([b, b + 1], axis=-1),
    "split": lambda m, a, b: m.split(a, 3, axis=1)[2],
    "split at indices": lambda m, a, b: m.split(a, [1, 3], axis=2)[1],
    "repeat": lambda m, a, b: m.repeat(b, 3, axis=0),
    "repeat flat": lambda m, a, b: m.repeat(b, 2),
    "tile": lambda m, a, b: m.tile(b, (2, 1, 2)),
    "roll": lambda m, a, b: m.roll(b, 4),
    "roll one axis": lambda m, a, b: m.roll(a, -5, 2),
    "roll several": lambda m, a, b: m.roll(a, (1, 2), (0, 1)),
    "diagonal": lambda m, a, b: m.diagonal(b),
    "diagonal above": lambda m, a, b: m.diagonal(a, 1, 1, 2),
    "diagonal below": lambda m, a, b: m.diagonal(a, -1, 2, 0),
    "diagonal beyond": lambda m, a, b: m.diagonal(b, 9),
    "diag": lambda m, a, b: m.diag(b[0]),
    "diag above": lambda m, a, b: m.diag(b[0], 2),
    "diag below": lambda m, a, b: m.diag(b[0], -1),
    "trace": lambda m, a, b: m.trace(a, 0, 1, 2),
    "diff": lambda m, a, b: m.diff(a, 2),
    "diff of too few": lambda m, a, b: m.diff(b, 3),
    "meshgrid": lambda m, a, b: m.stack(m.meshgrid(b[0], b[:, 0])),
    "tril": lambda m, a, b: m.tril(a, -1),
    "triu": lambda m, a, b: m.triu(a, 1),
    "atleast_3d": lambda m, a, b: m.atleast_3d(b),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_values_are_numpys(row):
    got, want = row(mx, mx.array(A), mx.array(B)), row(np, A, B)
    np.testing.assert_array_equal(np.array(got), want)
    assert got.shape == want.shape


LINEAR = {k: v for k, v in ROWS.items() if k not in ("concatenate flat", "pad with a number")}


@pytest.mark.parametrize("row", LINEAR.values(), ids=LINEAR)
def test_vjp_is_the_transpose(row):
    a, b = mx.array(A), mx.array(B.astype(np.float32))
    f = lambda a, b: row(mx, a, b)
    y = f(a, b)
    if y.size == 0:
        return
    ct = mx.cos(mx.arange(y.size, dtype=mx.float32)).reshape(y.shape)
    if row is ROWS["concatenate many"]:  # b + k: affine, so without the constant
        f = lambda a, b: row(mx, a, b) - row(mx, a, b * 0)
    if row is ROWS["stack"]:
        f = lambda a, b: mx.stack([b, b], axis=-1)
    (value,), (da, db) = mx.vjp(f, [a, b], [ct])
    left = (value * ct).sum().item()
    right = ((da * a).sum() + (db * b).sum()).item()
    assert left == pytest.approx(right, rel=1e-4, abs=1e-3)
    (_,), (t,) = mx.jvp(f, [a, b], [a, b])
    np.testing.assert_allclose(np.array(t), np.array(value), rtol=1e-6)


def chain(x):
    node: Node = x._node
    names = []
    while node.buffer is None:
        names.append(node.op.name)
        node = node.inputs[0]
    return names


def test_views_of_views_are_one():
    a = mx.array(A)
    assert chain(a[1:][:, 1:][..., ::2]) == ["slice"]
    assert chain(mx.flip(mx.flip(a))) == ["slice"]
    assert chain(mx.transpose(mx.transpose(a, (1, 2, 0)), (2, 0, 1))) == []
    assert chain(mx.reshape(mx.reshape(a, (6, 4)), (2, 3, 4))) == []
    assert chain(mx.broadcast_to(mx.broadcast_to(a, (1, 2, 3, 4)), (5, 2, 3, 4))) == ["broadcast"]
    assert chain(mx.broadcast_to(a, A.shape)) == []


def test_as_strided_reads_and_adds_back_what_overlaps():
    x = mx.arange(5, dtype=mx.float32)
    assert mx.as_strided(x, (3, 3), (1, 1)).tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert mx.as_strided(x, (2, 2), (-2, 1), 3).tolist() == [[3, 4], [1, 2]]
    assert mx.grad(lambda x: mx.as_strided(x, (3, 3), (1, 1)).sum())(x).tolist() == [1, 2, 3, 2, 1]
    with pytest.raises(ValueError, match="elements 0 to 9"):
        mx.as_strided(x, (10,), (1,))


WIDTHS = ["bool_", "uint8", "int16", "float16", "bfloat16", "int32", "float32", "uint64", "int64", "float64", "complex64"]


@pytest.mark.parametrize("new", WIDTHS)
@pytest.mark.parametrize("old", WIDTHS)
def test_view_keeps_the_bytes(old, new):
    a, b = getattr(mx, old), getattr(mx, new)
    raw = np.random.default_rng(0).integers(0, 2 if "bool_" in (old, new) else 256, (3, 16), dtype=np.uint8)
    x = mx.array(np.ascontiguousarray(raw).view(a.numpy)) if old != "float64" else mx.array(raw.view(np.float64), dtype=mx.float64)
    if old == "bool_" or new != "bool_":
        assert np.array(mx.view(x, b)).tobytes() == raw.tobytes()


def test_view_needs_whole_elements():
    with pytest.raises(ValueError, match="no multiple"):
        mx.view(mx.array([1, 2, 3], dtype=mx.uint8), mx.float32)
    with pytest.raises(ValueError, match="without axes"):
        mx.view(mx.array(1.0), mx.uint8)


@pytest.mark.parametrize(
    ("f", "error"),
    [
        (lambda a: mx.reshape(a, (5,)), ValueError),
        (lambda a: mx.reshape(a, (-1, -1)), ValueError),
        (lambda a: mx.reshape(a, (-2, 3)), ValueError),
        (lambda a: mx.reshape(mx.zeros((0, 3)), (0, -1)), ValueError),
        (lambda a: mx.transpose(a, (0, 0, 1)), ValueError),
        (lambda a: mx.transpose(a, (0, 1)), ValueError),
        (lambda a: mx.transpose(a, (0, 1, 3)), IndexError),
        (lambda a: mx.squeeze(a, 0), ValueError),
        (lambda a: mx.squeeze(a, 7), IndexError),
        (lambda a: mx.swapaxes(a, 0, 7), IndexError),
        (lambda a: mx.flip(a, 3), IndexError),
        (lambda a: mx.broadcast_to(a, (3, 3, 4)), ValueError),
        (lambda a: mx.broadcast_to(a, (4,)), ValueError),
        (lambda a: mx.concatenate([]), ValueError),
        (lambda a: mx.concatenate([a, a[0]]), ValueError),
        (lambda a: mx.concatenate([a, a[:, :, 1:]]), ValueError),
        (lambda a: mx.stack([a, a[0]]), ValueError),
        (lambda a: mx.split(a, 5), ValueError),
        (lambda a: mx.repeat(a, -1), ValueError),
        (lambda a: mx.pad(a, -1), ValueError),
        (lambda a: mx.pad(a, 1, mode="wrap"), ValueError),
        (lambda a: mx.pad(a, 9, mode="reflect"), ValueError),
        (lambda a: mx.diagonal(a, 0, 1, 1), ValueError),
        (lambda a: mx.unflatten(a, 1, (2, 2)), ValueError),
        (lambda a: mx.flatten(a, 2, 1), ValueError),
        (lambda a: mx.meshgrid(a, indexing="no"), ValueError),
        (lambda a: mx.broadcast_shapes((2,), (3,)), ValueError),
    ],
)
def test_what_bad_input_gets(f, error):
    with pytest.raises(error):
        f(mx.array(A))


def test_an_axis_out_of_range_is_both_errors():
    for error in (IndexError, ValueError):
        with pytest.raises(error, match="axis 5"):
            mx.sum(mx.array(A), axis=5)
