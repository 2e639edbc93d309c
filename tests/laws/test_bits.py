"""The bits law: fused or not, held or not, evaluated on the way or not, a result has the same bits.

A row's op stands between a cheap map of each input and maps and a reduction of its result, so that whatever the fuser
does with it happens here.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence

import pytest

import isthmus.core as mx
from isthmus.backends.cuda.find import is_simulated
from tests.laws.cases import CASES, Case
from tests.laws.drawn import arrays, bits, call, draw


def graph(case: Case, inputs: list[mx.array], see: Callable[[mx.array], mx.array]) -> list[mx.array]:
    """Every node is passed to `see`; the last three are: the op's result, a map of it, and a reduction of that."""

    def cheap(x: mx.array) -> mx.array:
        return see(mx.logical_not(x)) if x.dtype == mx.bool_ else see(mx.positive(x) * see(mx.ones_like(x)))

    before = [cheap(x) for x in inputs]
    y = see(call(case, before))
    if y.dtype == mx.bool_:
        after = see(mx.logical_not(y))
        end = see(after.any(axis=-1) if y.ndim else after)
    else:
        after = see(y + see(y * y))
        end = see(after.sum(axis=-1) if y.ndim else after)
    return [y, after, end]


def largest(case: Case) -> tuple[tuple[int, ...], ...]:
    return max(case.shapes, key=lambda s: sum(len(x) * 10 + sum(x) for x in s if sum(x) < 5000))


def tried(case: Case) -> Sequence[str]:
    """All of a row's dtypes; on a simulated GPU, which takes its time, the first and one more, another one from row to row."""
    if not is_simulated():
        return case.dtypes
    return list(dict.fromkeys((case.dtypes[0], case.dtypes[zlib.crc32(str(case).encode()) % len(case.dtypes)])))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_held_changes_no_bit(case: Case):
    draws = random.Random(zlib.crc32(str(case).encode()))
    for dtype in tried(case):
        inputs = arrays(draw(case, largest(case), dtype))

        def now(x: mx.array) -> mx.array:
            mx.eval(x)
            return x

        want = [bits(x) for x in graph(case, inputs, now)]
        everything: list[mx.array] = []
        found = graph(case, inputs, lambda x: everything.append(x) or x)
        mx.eval(everything[::-1])
        assert [bits(x) for x in found] == want, f"{dtype}: everything held"
        found = graph(case, inputs, lambda x: x)
        mx.eval(found)
        assert [bits(x) for x in found] == want, f"{dtype}: the results held"
        for k in range(3):
            alone = graph(case, inputs, lambda x: x)[k]
            assert bits(alone) == want[k], f"{dtype}: result {k} alone"
        for _ in range(2):
            some: list[mx.array] = []
            found = graph(case, inputs, lambda x: some.append(x) or x if draws.random() < 0.4 else x)
            mx.eval(found[2])
            assert [bits(x) for x in found] == want, f"{dtype}: some held"
