"""One row an op: what it is in NumPy's float64, where it is tried, and how far it may be off. test_laws.py runs the laws over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special

import isthmus.core as mx

SHAPES = ((), (0, 3), (2, 1, 4), (5, 7), (3, 33))
FLOATS = ("float32", "float16", "bfloat16", "float64")
INTS = ("int8", "uint8", "int16", "int32", "uint32", "int64")


@dataclass(frozen=True)
class Case:
    """A row.

    Attributes:
        name: For the test's id.
        f: The op, of arrays.
        reference: The same of float64 (or exact integer) NumPy arrays.
        arity: How many arrays it takes, all of one shape unless `shapes` says otherwise.
        shapes: What is tried: a shape, or a tuple of shapes where the arguments differ.
        domain: Values are drawn between these.
        dtypes: In which it is tried.
        ulp: Allowed error in units of the last place of the result dtype (for reductions: of the largest term).
        smooth: Whether derivatives are compared.
        batch: Whether `vmap` over a leading axis is compared with a loop.
    """

    name: str
    f: Callable[..., Any]
    reference: Callable[..., Any]
    arity: int = 1
    shapes: Sequence[Any] = SHAPES
    domain: tuple[float, float] = (-3.0, 3.0)
    dtypes: Sequence[str] = FLOATS
    ulp: float = 2.0
    smooth: bool = True
    batch: bool = True

    def __str__(self) -> str:
        return self.name


def unary(name: str, reference: Any = None, **how: Any) -> Case:
    return Case(name, getattr(mx, name), reference or getattr(np, name), **how)


def binary(name: str, reference: Any = None, **how: Any) -> Case:
    return Case(name, getattr(mx, name), reference or getattr(np, name), arity=2, **how)


def of(f: Callable[..., Any], name: str, reference: Callable[..., Any], **how: Any) -> Case:
    return Case(name, f, reference, **how)


def softmax(x: Any, axis: Any) -> Any:
    return scipy.special.softmax(x, axis=axis)


MATRICES = ((5, 7), (1, 1), (3, 33), (2, 3, 4))
VECTORS = ((1,), (4,), (5, 7), (2, 3, 4))

ELEMENTWISE = [
    *(unary(n) for n in ("exp", "expm1", "sin", "cos", "tanh", "sinh", "cosh", "arctan", "arcsinh", "square", "negative")),
    unary("tan", domain=(-1.4, 1.4)),
    unary("arcsin", domain=(-0.95, 0.95)),
    unary("arccos", domain=(-0.95, 0.95)),
    unary("arctanh", domain=(-0.95, 0.95)),
    unary("arccosh", domain=(1.1, 9.0)),
    *(unary(n, domain=(0.1, 9.0)) for n in ("log", "log2", "log10", "sqrt")),
    unary("log1p", domain=(-0.9, 9.0)),
    unary("rsqrt", lambda x: 1 / np.sqrt(x), domain=(0.1, 9.0)),
    unary("reciprocal", domain=(0.5, 4.0)),
    unary("sigmoid", scipy.special.expit),
    unary("erf", scipy.special.erf),
    unary("erfinv", scipy.special.erfinv, domain=(-0.99, 0.99), ulp=4),
    unary("abs", dtypes=(*FLOATS, "int8", "int32", "int64")),
    unary("degrees"),
    unary("radians"),
    *(unary(n, smooth=False) for n in ("floor", "ceil", "sign", "round", "trunc")),
    *(unary(n, smooth=False) for n in ("isnan", "isinf", "isfinite", "logical_not")),
    *(binary(n, dtypes=(*FLOATS, *INTS)) for n in ("add", "subtract", "multiply", "maximum", "minimum")),
    binary("divide", domain=(0.5, 4.0)),
    binary("power", domain=(0.5, 3.0)),
    binary("arctan2", domain=(0.5, 3.0)),
    binary("logaddexp"),
    binary("floor_divide", smooth=False, domain=(1, 100), dtypes=("float32", "float64", *INTS)),
    binary("remainder", smooth=False, domain=(1, 100), dtypes=("float32", "float64", *INTS)),
    *(
        binary(n, smooth=False, dtypes=(*FLOATS, *INTS))
        for n in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or")
    ),
    *(binary(n, smooth=False, dtypes=INTS, domain=(0, 100)) for n in ("bitwise_and", "bitwise_or", "bitwise_xor")),
    binary("left_shift", smooth=False, dtypes=("int32", "int64", "uint32"), domain=(0, 6)),
    binary("right_shift", smooth=False, dtypes=("int32", "int64", "uint32"), domain=(0, 6)),
    of(lambda a, b, c: mx.where(a > 0, b, c), "where", lambda a, b, c: np.where(a > 0, b, c), arity=3),
    of(lambda x: mx.clip(x, -1.0, 2.0), "clip", lambda x: np.clip(x, -1.0, 2.0)),
    of(lambda x: x**3, "cube", lambda x: x**3, ulp=3),
    of(lambda x: x.astype(mx.int32), "astype int", lambda x: np.trunc(x), smooth=False),
    of(lambda x, y: x + y, "broadcast add", np.add, arity=2, shapes=(((2, 1, 4), (3, 1)), ((5,), (4, 1)), ((), (3, 2)))),
]

REDUCTIONS = [
    *(
        of(lambda x, g=g, axis=axis: getattr(mx, g)(x, axis=axis), f"{g} {axis}", lambda x, g=g, axis=axis: getattr(np, g)(x, axis=axis),
           shapes=((5, 7), (3, 33), (2, 130)), ulp=8)
        for g in ("sum", "mean", "max", "min", "var")
        for axis in (0, -1, None)
    ),
    of(lambda x: mx.prod(x, axis=-1), "prod", lambda x: np.prod(x, axis=-1), shapes=((5, 7),), domain=(0.5, 1.5), ulp=16),
    of(lambda x: mx.sum(x, axis=(0, 2), keepdims=True), "sum of two axes", lambda x: np.sum(x, (0, 2), keepdims=True), shapes=((2, 3, 35),), ulp=8),
    of(lambda x: mx.std(x, axis=0), "std", lambda x: np.std(x, axis=0), shapes=((5, 7),), ulp=8),
    of(lambda x: mx.softmax(x, axis=-1), "softmax", lambda x: softmax(x, -1), shapes=VECTORS, ulp=6),
    of(lambda x: mx.softmax(x, axis=0), "softmax 0", lambda x: softmax(x, 0), shapes=((5, 7), (2, 3, 4)), ulp=6),
    of(lambda x: mx.logsumexp(x, axis=-1), "logsumexp", lambda x: scipy.special.logsumexp(x, axis=-1), shapes=VECTORS, ulp=6),
    *(
        of(lambda x, g=g: getattr(mx, g)(x, axis=-1), g, lambda x, g=g: getattr(np, g)(x, axis=-1), shapes=VECTORS, smooth=False)
        for g in ("argmax", "argmin", "all", "any")
    ),
]  # fmt: skip

INDEX = [2, 0, 2, 1]

MOVES = [
    of(lambda x: x.reshape(-1), "reshape", lambda x: x.reshape(-1), shapes=((5, 7), (2, 3, 4))),
    of(lambda x: x.transpose(2, 0, 1), "transpose", lambda x: x.transpose(2, 0, 1), shapes=((2, 3, 4),)),
    of(lambda x: mx.swapaxes(x, 0, 1), "swapaxes", lambda x: x.swapaxes(0, 1), shapes=MATRICES),
    of(lambda x: mx.moveaxis(x, 0, -1), "moveaxis", lambda x: np.moveaxis(x, 0, -1), shapes=MATRICES),
    of(lambda x: mx.broadcast_to(x, (3, *x.shape)), "broadcast_to", lambda x: np.broadcast_to(x, (3, *x.shape)), shapes=VECTORS, batch=False),
    of(lambda x: mx.expand_dims(x, 1), "expand_dims", lambda x: np.expand_dims(x, 1), shapes=VECTORS),
    of(lambda x: mx.flip(x, axis=0), "flip", lambda x: np.flip(x, 0), shapes=VECTORS),
    of(lambda x: mx.pad(x, ((1, 2), (0, 3))), "pad", lambda x: np.pad(x, ((1, 2), (0, 3))), shapes=((5, 7), (1, 1))),
    of(lambda x: mx.roll(x, 2, 0), "roll", lambda x: np.roll(x, 2, 0), shapes=VECTORS),
    of(lambda x: mx.tile(x, (2, 1)), "tile", lambda x: np.tile(x, (2, 1)), shapes=((5, 7),)),
    of(lambda x: mx.repeat(x, 3, axis=0), "repeat", lambda x: np.repeat(x, 3, axis=0), shapes=((5, 7),)),
    of(lambda x, y: mx.concatenate([x, y, x], axis=0), "concatenate", lambda x, y: np.concatenate([x, y, x], 0), arity=2, shapes=VECTORS),
    of(lambda x, y: mx.stack([x, y], axis=1), "stack", lambda x, y: np.stack([x, y], 1), arity=2, shapes=VECTORS),
    of(lambda x: mx.split(x, 2, axis=0)[1], "split", lambda x: np.split(x, 2, 0)[1], shapes=((4,), (6, 5))),
    of(lambda x: x[1:4:2], "slice", lambda x: x[1:4:2], shapes=((5, 7), (6,))),
    of(lambda x: x[::-2, None, 1], "slice back", lambda x: x[::-2, None, 1], shapes=((5, 7),)),
    of(lambda x: mx.tril(x), "tril", np.tril, shapes=((5, 7), (4, 4))),
    of(lambda x: mx.take(x, mx.array(INDEX), axis=0), "take", lambda x: np.take(x, INDEX, 0), shapes=((5, 7), (3,))),
    of(
        lambda x: mx.take_along_axis(x, mx.array([[1], [0], [2]]), axis=-1), "take_along_axis",
        lambda x: np.take_along_axis(x, np.array([[1], [0], [2]]), -1), shapes=((3, 4),),
    ),
    of(lambda x, y: x.at[mx.array(INDEX)].add(y), "scatter add", lambda x, y: _scatter(x, y), arity=2, shapes=(((5, 3), (4, 3)),), ulp=4),
    of(lambda x, y: _updated(x, y), "slice update", lambda x, y: np.concatenate([x[:1], y, x[3:]]), arity=2, shapes=(((5, 3), (2, 3)),)),
]  # fmt: skip


def _scatter(x: Any, y: Any) -> Any:
    out = np.array(x)
    np.add.at(out, INDEX, y)
    return out


def _updated(x: Any, y: Any) -> Any:
    out = x + 0
    out[1:3] = y
    return out


PRODUCTS = [
    of(mx.matmul, "matmul", np.matmul, arity=2, shapes=(((5, 7), (7, 3)), ((2, 4, 5), (5, 6)), ((2, 1, 3, 4), (3, 4, 2)), ((4,), (4, 3)), ((33, 65), (65, 17))), ulp=24),
    of(lambda a, b: a @ b.T, "matmul T", lambda a, b: a @ b.T, arity=2, shapes=(((5, 7), (3, 7)), ((1, 9), (4, 9))), ulp=24),
    of(lambda c, a, b: mx.addmm(c, a, b, alpha=0.5, beta=2.0), "addmm", lambda c, a, b: 0.5 * (a @ b) + 2 * c, arity=3,
       shapes=(((3,), (5, 7), (7, 3)), ((5, 3), (5, 7), (7, 3))), ulp=24),
    of(lambda a, b: mx.einsum("ij,kj->ik", a, b), "einsum", lambda a, b: np.einsum("ij,kj->ik", a, b), arity=2, shapes=(((5, 7), (3, 7)),), ulp=24),
    of(mx.outer, "outer", np.outer, arity=2, shapes=(((5,), (3,)),)),
    of(mx.inner, "inner", np.inner, arity=2, shapes=(((5, 7), (3, 7)),), ulp=24),
]  # fmt: skip

CASES = [*ELEMENTWISE, *REDUCTIONS, *MOVES, *PRODUCTS]
