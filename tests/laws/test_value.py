"""An op's value is NumPy's, in units of the last place: over shapes, dtypes, layouts, and at the extremes of each dtype."""

from __future__ import annotations

import numpy as np
import pytest

import isthmus.core as mx
from tests.laws.cases import CASES, Case
from tests.laws.drawn import array, arrays, call, check, draw, expected, extremes, numbers, same_bits, size_of_terms, tolerance

EXTREME = [c for c in CASES if c.extremes]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_value_is_numpys(case: Case):
    for dtype in case.dtypes:
        for shapes in case.shapes:
            values = draw(case, shapes, dtype)
            got = call(case, arrays(values))
            check(got, expected(case, values, got.dtype), tolerance(case, got.dtype), size_of_terms(case, values, got.dtype), f"{dtype} {shapes}")


@pytest.mark.parametrize("case", EXTREME, ids=str)
def test_value_at_the_extremes(case: Case):
    for dtype in case.dtypes:
        values = extremes(case, len(case.shapes[0]), dtype)
        got = call(case, arrays(values))
        check(got, expected(case, values, got.dtype), tolerance(case, got.dtype), size_of_terms(case, values, got.dtype), dtype)


def layouts(values: list[np.ndarray]) -> list[tuple[str, list[mx.array], list[mx.array]]]:
    """The same values as other views: (name, views, what they are views of)."""
    out = []
    for name in ("transposed", "every second", "flipped", "from the middle", "reshaped", "sliced and transposed"):
        bases, views = [], []
        for v in values:
            if name == "transposed":
                base = np.ascontiguousarray(v.T)
                view = lambda b: b.T
            elif name == "every second":
                base = np.ones([2 * n + 1 for n in v.shape], v.dtype)
                base[tuple(slice(0, 2 * n, 2) for n in v.shape)] = v
                view = lambda b, v=v: b[tuple(slice(0, 2 * n, 2) for n in v.shape)] if v.ndim else b
            elif name == "flipped":
                base = np.ascontiguousarray(v[(slice(None, None, -1),) * v.ndim])
                view = lambda b: b[(slice(None, None, -1),) * b.ndim] if b.ndim else b
            elif name == "from the middle":
                base = np.ones([n + 3 for n in v.shape], v.dtype)
                base[tuple(slice(1, n + 1) for n in v.shape)] = v
                view = lambda b, v=v: b[tuple(slice(1, n + 1) for n in v.shape)] if v.ndim else b
            elif name == "reshaped":
                base = v.reshape(-1).copy()
                view = lambda b, v=v: b.reshape(v.shape)
            else:
                base = np.ones((3, *[n + 1 for n in v.T.shape]), v.dtype)
                base[(1, *[slice(1, None)] * v.ndim)] = v.T
                view = lambda b, v=v: b[(1, *[slice(1, None)] * v.ndim)].T
            made = array(base)
            bases.append(made)
            views.append(view(made))
        out.append((name, views, bases))
    return out


@pytest.mark.parametrize("case", CASES, ids=str)
def test_layouts_change_nothing(case: Case):
    """Transposed, strided, flipped, offset and reshaped inputs, lazy or in memory, give the values of contiguous ones."""
    dtype = case.dtypes[0]
    shapes = max(case.shapes, key=lambda s: (min((len(x) for x in s), default=0), sum(np.prod(x) < 400 for x in s)))
    values = draw(case, shapes, dtype)
    plain = call(case, arrays(values))
    want = numbers(plain)
    size = size_of_terms(case, values, plain.dtype)
    for name, views, _ in layouts(values):
        for held in (False, True):
            if held:
                mx.eval(views)
            got = call(case, views)
            if case.terms is None and case.exact:
                assert same_bits(got, plain), name
            else:
                check(got, want, 2 * max(1, tolerance(case, got.dtype)), size, name)


def test_every_public_op_has_a_row():
    made = {n: f for n in dir(mx) if callable(f := getattr(mx, n)) and getattr(f, "__module__", "").startswith("isthmus.ops.")}
    rows = {getattr(mx, c.name.split()[0]) for c in CASES}
    elsewhere = {"ArrayAt", "asarray", "from_dlpack", "broadcast_shapes", "einsum_path"}  # no arrays in, or none out
    assert sorted(n for n, f in made.items() if f not in rows and n not in elsewhere) == []
