"""The laws of derivatives and of vmap, for any function of float64 arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

import isthmus.core as mx

STEP = 1e-6


def f64(x: Any) -> mx.array:
    return mx.array(np.asarray(x, np.float64), dtype=mx.float64)


def host(a: mx.array) -> np.ndarray:
    return np.array(a)


def check_derivatives(f: Callable[..., mx.array], *xs: np.ndarray, tol: float = 1e-5) -> None:
    """jvp equals a finite difference, and vjp is its transpose."""
    rng = np.random.default_rng(0)
    ts = [rng.standard_normal(x.shape) for x in xs]
    (y,), (t,) = mx.jvp(f, [f64(x) for x in xs], [f64(t) for t in ts])
    ahead, behind = (host(f(*[f64(x + sign * STEP * t) for x, t in zip(xs, ts, strict=True)])) for sign in (1, -1))
    np.testing.assert_allclose(host(t), (ahead - behind) / (2 * STEP), rtol=tol, atol=tol)
    ct = rng.standard_normal(y.shape)
    _, cts = mx.vjp(f, [f64(x) for x in xs], [f64(ct)])
    given = sum(np.vdot(host(c), t) for c, t in zip(cts, ts, strict=True))
    np.testing.assert_allclose(given, np.vdot(ct, host(t)), rtol=1e-9, atol=1e-9)


def check_vmap(f: Callable[..., mx.array], *xs: np.ndarray) -> None:
    """vmap equals a loop, for each choice of batched arguments and axes; so does vmap of a gradient."""
    rng = np.random.default_rng(1)
    numbers = tuple(range(len(xs)))

    def gradient(*args: mx.array) -> Any:
        return mx.grad(lambda *a: mx.sin(f(*a)).sum(), argnums=numbers)(*args)

    size = 3
    for flags in itertools.product((False, True), repeat=len(xs)):
        if not any(flags):
            continue
        for place in (0, 1):
            batches = [np.stack([x + 0.1 * k * rng.standard_normal(x.shape) for k in range(size)]) if b else x for x, b in zip(xs, flags, strict=True)]
            axes = tuple(min(place, x.ndim) if b else None for x, b in zip(xs, flags, strict=True))
            args = [f64(np.moveaxis(v, 0, a)) if a is not None else f64(v) for v, a in zip(batches, axes, strict=True)]
            each = [[f64(v[k]) if b else f64(v) for v, b in zip(batches, flags, strict=True)] for k in range(size)]
            want = np.stack([host(f(*e)) for e in each])
            np.testing.assert_allclose(host(mx.vmap(f, in_axes=axes)(*args)), want, rtol=1e-9, atol=1e-9)
            found = mx.vmap(gradient, in_axes=axes)(*args)
            loop = [gradient(*e) for e in each]
            if len(xs) == 1:
                found, loop = (found,), [(one,) for one in loop]
            for q in numbers:
                np.testing.assert_allclose(host(found[q]), np.stack([host(one[q]) for one in loop]), rtol=1e-9, atol=1e-9)


def check_laws(f: Callable[..., mx.array], *xs: np.ndarray) -> None:
    check_derivatives(f, *xs)
    check_vmap(f, *xs)
