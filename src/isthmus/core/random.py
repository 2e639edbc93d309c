"""`mx.random`: random numbers (ops/random.py)."""

from isthmus.ops.random import (
    bernoulli,
    bits,
    categorical,
    gumbel,
    key,
    laplace,
    normal,
    randint,
    seed,
    split,
    state,
    truncated_normal,
    uniform,
)

__all__ = ["bernoulli", "bits", "categorical", "gumbel", "key", "laplace", "normal", "randint", "seed", "split", "state", "truncated_normal", "uniform"]
