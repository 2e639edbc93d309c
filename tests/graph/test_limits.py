"""Dtypes: limits, promotion, categories."""

import itertools

import pytest

import isthmus.core as mx

NAMES = "bool_ uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 bfloat16 complex64".split()
CATEGORIES = "generic number integer signedinteger unsignedinteger inexact floating complexfloating".split()
KINDS = ["bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric"]


def test_dtypes_relate_as_in_mlx():
    mlx = pytest.importorskip("mlx.core")
    for a, b in itertools.product(NAMES, NAMES):
        assert repr(mx.result_type(getattr(mx, a), getattr(mx, b))) == repr(mlx.result_type(getattr(mlx, a), getattr(mlx, b)))
        assert mx.can_cast(getattr(mx, a), getattr(mx, b)) == mlx.can_cast(getattr(mlx, a), getattr(mlx, b))
    for a, b in itertools.product(NAMES + CATEGORIES, NAMES + CATEGORIES):
        assert mx.issubdtype(getattr(mx, a), getattr(mx, b)) == mlx.issubdtype(getattr(mlx, a), getattr(mlx, b)), (a, b)
    for a, kind in itertools.product(NAMES, KINDS):
        assert mx.isdtype(getattr(mx, a), kind) == mlx.isdtype(getattr(mlx, a), kind)


def test_limits_are_mlxs():
    mlx = pytest.importorskip("mlx.core")
    for name in NAMES:
        if "float" in name or "complex" in name:
            ours, theirs = mx.finfo(getattr(mx, name)), mlx.finfo(getattr(mlx, name))
            for key in ("min", "max", "eps", "bits", "smallest_normal"):
                assert getattr(ours, key) == getattr(theirs, key), (name, key)
        elif name != "bool_":
            ours, theirs = mx.iinfo(getattr(mx, name)), mlx.iinfo(getattr(mlx, name))
            assert (ours.min, ours.max) == (theirs.min, theirs.max)


@pytest.mark.parametrize(
    "f", [lambda: mx.finfo(mx.int8), lambda: mx.iinfo(mx.bool_), lambda: mx.isdtype(mx.int8, "no"), lambda: mx.result_type(), lambda: mx.result_type(1.5)]
)
def test_what_bad_input_gets(f):
    with pytest.raises(ValueError):
        f()
