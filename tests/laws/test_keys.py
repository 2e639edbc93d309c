"""Equal keys give equal groups: a structure seen at some sizes runs from its plan at any others, to the bits of its nodes evaluated one by one.

A program is drawn over named axes, so that it has a meaning at every size; sizes that happen to be equal, long rows,
short ones and single elements must not matter (those of size 1 make another plan, with the same results).
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import isthmus
import isthmus.core as mx
from tests.laws.drawn import bits

See = Callable[[mx.array], mx.array]
Named = tuple[mx.array, tuple[str, ...]]  # an array and the names of its axes

UNARY = (mx.exp, mx.sin, mx.negative, mx.square, mx.abs, lambda x: x * 0.5, lambda x: 1 - x, lambda x: mx.where(x > 0, x, 0.1), mx.stop_gradient)
BINARY = (mx.add, mx.multiply, mx.subtract, mx.maximum, mx.logaddexp)
SIZES = ((7, 5, 3), (6, 11, 40), (4, 4, 4), (3, 70, 9), (3, 3, 2600), (130, 3, 4), (1, 6, 5), (5, 1, 1), (2, 2, 300))


def joined(x: Named, y: Named, sizes: dict[str, int]) -> tuple[mx.array, mx.array, tuple[str, ...]]:
    """Both with axes for the names of either."""
    names = (*x[1], *(n for n in y[1] if n not in x[1]))

    def spread(a: Named) -> mx.array:
        order = [n for n in names if n in a[1]]
        out = mx.transpose(a[0], [a[1].index(n) for n in order]) if order else a[0]
        return mx.expand_dims(out, [k for k, n in enumerate(names) if n not in a[1]])

    return spread(x), spread(y), names


def program(seed: int, sizes: dict[str, int], see: See) -> list[mx.array]:
    """A random graph over axes i, j and k; `see` is called on each node."""
    r = random.Random(seed)
    rng = np.random.default_rng(seed)
    dtype = r.choice((mx.float32, mx.float32, mx.bfloat16, mx.float16, mx.float64))
    pool: list[Named] = []
    for _ in range(3):
        names = tuple(r.sample("ijk", r.choice((1, 2, 2, 3))))
        values = rng.uniform(-1, 1, [sizes[n] for n in names])
        pool.append((mx.array(values.astype(np.float32)).astype(dtype), names))
    mx.eval([x for x, _ in pool])
    made: list[mx.array] = []
    for _ in range(r.randint(4, 16)):
        x, names = r.choice(pool[-5:])
        other = r.choice(pool)
        kind, at = r.choice(KINDS), r.random()
        axis = r.randrange(len(names)) if names else None
        found = kind(r, (x, names), other, axis, at, sizes)
        if found is None:
            continue
        y = see(found[0])
        pool.append((y, found[1]))
        made.append(y)
    return made


def _unary(r, x, other, axis, at, sizes):
    return r.choice(UNARY)(mx.sin(x[0])), x[1]


def _binary(r, x, other, axis, at, sizes):
    f = r.choice(BINARY)
    if len(set(x[1]) | set(other[1])) > 3:
        return None
    a, b, names = joined(x, other, sizes)
    return f(a, b), names


def _reduce(r, x, other, axis, at, sizes):
    f = r.choice((mx.sum, mx.mean, mx.max, mx.prod, mx.var))
    if axis is None:
        return None
    if at < 0.3:
        return f(mx.sin(x[0])), ()
    return f(mx.sin(x[0]), axis=axis), x[1][:axis] + x[1][axis + 1 :]


def _norm(r, x, other, axis, at, sizes):
    if axis is None:
        return None
    a = x[0]
    if at < 0.5:
        return mx.softmax(a, axis=axis), x[1]
    return a - mx.mean(a, axis=axis, keepdims=True), x[1]


def _transpose(r, x, other, axis, at, sizes):
    perm = list(range(x[0].ndim))
    r.shuffle(perm)
    return mx.transpose(x[0], perm), tuple(x[1][p] for p in perm)


def _merge(r, x, other, axis, at, sizes):
    """Merged, mapped, and split again."""
    if len(x[1]) < 2:
        return None
    shape = x[0].shape
    flat = mx.reshape(x[0], (shape[0] * shape[1], *shape[2:]))
    flat = flat * 1.5 if at < 0.5 else mx.sum(flat * mx.cos(flat), axis=0, keepdims=True) + flat
    return mx.reshape(flat, shape), x[1]


def _flip(r, x, other, axis, at, sizes):
    return None if axis is None else (mx.flip(x[0], axis), x[1])


def _shift(r, x, other, axis, at, sizes):
    """All but the first, and something in front: sizes stay."""
    if axis is None or x[0].shape[axis] < 2:
        return None
    key = [slice(None)] * x[0].ndim
    key[axis] = slice(1, None)
    rest = x[0][tuple(key)]
    if at < 0.4:
        widths = [(0, 0)] * x[0].ndim
        widths[axis] = (1, 0)
        return mx.pad(rest, widths), x[1]
    if at < 0.7:
        key[axis] = slice(0, 1)
        return mx.concatenate([rest, mx.sin(x[0][tuple(key)])], axis=axis), x[1]
    y = x[0] * 1
    y[tuple(key)] = rest * 2
    return y, x[1]


def _take(r, x, other, axis, at, sizes):
    if axis is None:
        return None
    n = x[0].shape[axis]
    index = mx.arange(n) if at < 0.5 else mx.argmax(mx.sin(mx.broadcast_to(mx.arange(n).astype(mx.float32), (n, n)) * mx.arange(n)[:, None]), axis=0)
    return mx.take(x[0], index, axis=axis), x[1]


def _matmul(r, x, other, axis, at, sizes):
    if len(x[1]) != 2:
        return None
    a = mx.sin(x[0])
    return (a @ mx.swapaxes(x[0], 0, 1)) @ a, x[1]


def _positions(r, x, other, axis, at, sizes):
    if axis is None:
        return None
    count = mx.arange(x[0].shape[axis]).astype(x[0].dtype)
    shape = [1] * x[0].ndim
    shape[axis] = -1
    return mx.where(x[0] > 0, mx.reshape(count, shape), x[0]), x[1]


KINDS = (_unary, _binary, _binary, _binary, _reduce, _reduce, _norm, _norm, _transpose, _merge, _flip, _shift, _shift, _take, _matmul, _positions)


def outputs(seed: int, made: list[mx.array]) -> list[mx.array]:
    r = random.Random(-seed)
    return [x for x in made if r.random() < 0.3] or made[-1:]


@pytest.mark.parametrize("block", range(10))
def test_a_plan_serves_all_sizes(block: int):
    for seed in range(block * 8, block * 8 + 8):
        for number, some in enumerate(SIZES):
            sizes = dict(zip("ijk", some, strict=True))
            if np.prod(some) > 30_000:
                continue
            before = isthmus.stats()["plans"]
            made = program(seed, sizes, lambda x: x)
            chosen = outputs(seed, made)
            if not chosen:
                break
            del made
            mx.eval(chosen)
            if number and min(some) > 2:  # what is sliced off leaves more than one
                assert isthmus.stats()["plans"] == before, f"seed {seed}: another plan for sizes {some}"

            def now(x: mx.array) -> mx.array:
                mx.eval(x)
                return x

            each = outputs(seed, program(seed, sizes, now))
            assert [bits(x) for x in chosen] == [bits(x) for x in each], f"seed {seed}: fused differs from one by one at sizes {some}"
