"""Random programs: the same seed makes the same graph, whatever is held or evaluated on the way.

`program(seed, evaluate, keep)` makes arrays with a random mix of ops; `evaluate(x)` is called on each as it is made, and
`keep` says which handles stay alive. The law: the values of the outputs do not depend on either.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

import isthmus.core as mx

DTYPES = (mx.float32, mx.float32, mx.float32, mx.bfloat16, mx.float16, mx.int32)
UNARY = (mx.exp, mx.sin, mx.tanh, mx.negative, mx.square, mx.abs, lambda a: a * 0.5, lambda a: 1 - a)
BINARY = (mx.add, mx.multiply, mx.subtract, mx.maximum, mx.less)


def program(seed: int, evaluate: Callable[[mx.array], None], keep: Callable[[], bool]) -> tuple[list[mx.array], list[mx.array]]:
    """The chosen outputs, and the other arrays that were kept."""
    r = random.Random(seed)
    rng = np.random.default_rng(seed)
    sizes = [r.choice([1, 2, 3, 5, 17, 40, 70]) for _ in range(3)]
    dtype = r.choice(DTYPES)
    pool = []
    for _ in range(3):
        shape = [sizes[k] for k in r.sample(range(3), r.choice([1, 2, 2, 3]))]
        pool.append(mx.array(rng.uniform(-2, 2, shape).astype(np.float32)).astype(dtype if r.random() < 0.8 else mx.float32))
    mx.eval(pool)
    made: list[mx.array] = []
    for _ in range(r.randint(4, 22)):
        y = _step(r, pool)
        if y is None or y.size > 200_000 or y.size == 0:
            continue
        evaluate(y)
        pool.append(y)
        made.append(y)
    outputs = [x for x in made if r.random() < 0.3] or made[-1:]
    kept = [x for x in made if keep()]
    return outputs, kept


def _step(r: random.Random, pool: list[mx.array]) -> mx.array | None:
    x = r.choice(pool[-6:])
    other = r.choice(pool)
    kind = r.choice(KINDS)
    axis = r.randrange(x.ndim) if x.ndim else None
    at = r.random()
    try:
        return kind(r, x, other, axis, at)
    except ValueError:
        return None  # shapes or dtypes that do not go together: the draw stays in step all the same


def _unary(r, x, other, axis, at):
    return r.choice(UNARY)(mx.sin(x))


def _binary(r, x, other, axis, at):
    return r.choice(BINARY)(x, other)


def _sum(r, x, other, axis, at):
    axes = sorted(r.sample(range(x.ndim), r.randint(1, x.ndim))) if x.ndim else None
    return r.choice((mx.sum, mx.sum, mx.max, mx.mean, mx.prod))(mx.sin(x), axis=axes, keepdims=at < 0.5)


def _norm(r, x, other, axis, at):
    if axis is None:
        return None
    if at < 0.4:
        return mx.softmax(x, axis=axis)
    m = mx.mean(x, axis=axis, keepdims=True)
    return (x - m) * mx.rsqrt(mx.var(x, axis=axis, keepdims=True) + 1.0)


def _transpose(r, x, other, axis, at):
    perm = list(range(x.ndim))
    r.shuffle(perm)
    return x.transpose(*perm) if perm else None


def _reshape(r, x, other, axis, at):
    if axis is None:
        return None
    return x.reshape(r.choice(((-1,), (x.shape[0], -1), (-1, x.shape[-1]))))


def _slice(r, x, other, axis, at):
    if axis is None:
        return None
    n = x.shape[axis]
    low = r.randrange(n)
    high = r.randint(low + 1, n)
    key = [slice(None)] * x.ndim
    key[axis] = slice(low, high, r.choice((1, 1, 2))) if at < 0.7 else slice(None, None, -1)
    return x[tuple(key)]


def _update(r, x, other, axis, at):
    if axis is None:
        return None
    y = x + 0
    low = r.randrange(x.shape[axis])
    key = [slice(None)] * x.ndim
    key[axis] = slice(low, None)
    y[tuple(key)] = y[tuple(key)] * 2 if at < 0.5 else 1
    return y


def _take(r, x, other, axis, at):
    if axis is None:
        return None
    index = mx.array([r.randrange(x.shape[axis]) for _ in range(r.randint(1, 6))])
    return mx.take(x, index, axis=axis)


def _concatenate(r, x, other, axis, at):
    return None if axis is None else mx.concatenate([x, mx.sin(x)] if at < 0.5 else [x, other, x], axis=axis)


def _matmul(r, x, other, axis, at):
    if x.ndim < 2 or not mx.issubdtype(x.dtype, mx.floating):
        return None
    return mx.sin(x) @ mx.swapaxes(x, -1, -2) if at < 0.5 else mx.swapaxes(x, -1, -2) @ x


def _arg(r, x, other, axis, at):
    return None if axis is None else mx.argmax(x, axis=axis)


KINDS = (
    _unary, _binary, _binary, _binary, _sum, _sum, _norm, _norm, _transpose, _reshape, _slice, _update, _take, _concatenate,
    _matmul, _arg,
)  # fmt: skip
