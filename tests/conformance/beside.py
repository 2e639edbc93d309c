"""The same program run with isthmus and with the MLX wheel, in one process, and their outcomes compared.

A program is a function of a Side; its outcome is a tree of arrays and plain values, or the type of what it raised.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import isthmus.core
import isthmus.nn
import isthmus.optimizers
import isthmus.utils

core, nn, optimizers, utils = (
    pytest.importorskip(f"mlx.{name}", reason="the MLX wheel exists for x86-64 alone") for name in ("core", "nn", "optimizers", "utils")
)
OURS = SimpleNamespace(mx=isthmus.core, nn=isthmus.nn, optim=isthmus.optimizers, utils=isthmus.utils)
WHEEL = SimpleNamespace(mx=core, nn=nn, optim=optimizers, utils=utils)
EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "complex64": 2.0**-23}


def plain(tree: Any, side: SimpleNamespace) -> Any:
    """`tree` with arrays as (dtype's name, NumPy array), and all else as it is; a Module by its repr."""
    if isinstance(tree, side.mx.array):
        wide = tree.astype(side.mx.float32) if tree.dtype == side.mx.bfloat16 else tree
        return str(tree.dtype).split(".")[-1], np.array(wide)
    if isinstance(tree, side.nn.Module):
        return repr(tree)
    if isinstance(tree, dict):
        return {k: plain(v, side) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        items = [plain(v, side) for v in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    return str(tree).split(".")[-1] if isinstance(tree, side.mx.Dtype) else tree


def outcome(program: Callable[[Any], Any], side: SimpleNamespace) -> Any:
    try:
        return plain(program(side), side)
    except Exception as e:  # what it raises is compared, too
        return type(e)


def assert_as_wheel(program: Callable[[Any], Any], ulp: float = 0, raises: bool = False) -> None:
    """Both give the same: types and dtypes, and values within `ulp` of the result's dtype at the largest magnitude."""
    ours, wheel = outcome(program, OURS), outcome(program, WHEEL)
    assert isinstance(wheel, type) == raises, f"the wheel gives {wheel}"
    if raises:  # programs catch what the wheel raises
        assert isinstance(ours, type) and issubclass(ours, wheel), f"{ours}, the wheel raises {wheel}"
        return
    _compare(ours, wheel, ulp, "")


def _compare(a: Any, b: Any, ulp: float, place: str) -> None:
    assert type(a) is type(b), f"{place}: {a} is not of the type of the wheel's {b}"
    if isinstance(a, dict):
        assert a.keys() == b.keys(), place
        for k in a:
            _compare(a[k], b[k], ulp, f"{place}.{k}")
    elif isinstance(a, tuple) and len(a) == 2 and isinstance(a[1], np.ndarray):
        assert a[0] == b[0], f"{place}: dtype {a[0]}, the wheel's {b[0]}"
        assert a[1].shape == b[1].shape, f"{place}: shape {a[1].shape}, the wheel's {b[1].shape}"
        finite = np.abs(b[1][np.isfinite(b[1])])
        largest = float(finite.max()) if finite.size else 0.0
        np.testing.assert_allclose(a[1], b[1], rtol=0, atol=ulp * EPS.get(a[0], 0) * largest, err_msg=place)
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), f"{place}: {a} beside the wheel's {b}"
        for i, (x, y) in enumerate(zip(a, b)):
            _compare(x, y, ulp, f"{place}.{i}")
    else:
        assert a == b, f"{place}: {a!r}, the wheel's {b!r}"
