"""Initializers: each function here makes one, which fills an array of the shape of the array it is given."""

import math
from collections.abc import Callable
from typing import Literal

import isthmus.core as mx

__all__ = [
    "constant",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "identity",
    "normal",
    "orthogonal",
    "sparse",
    "uniform",
]

Initializer = Callable[[mx.array], mx.array]
Mode = Literal["fan_in", "fan_out"]


def constant(value: float, dtype: mx.Dtype = mx.float32) -> Initializer:
    """Every element is ``value``.

    Example:
        >>> nn.init.constant(0.5)(mx.zeros((2, 2)))
        array([[0.5, 0.5],
               [0.5, 0.5]], dtype=float32)
    """

    def initializer(a: mx.array) -> mx.array:
        return mx.full(a.shape, value, dtype=dtype)

    return initializer


def normal(mean: float = 0.0, std: float = 1.0, dtype: mx.Dtype = mx.float32) -> Initializer:
    """Samples of the normal distribution."""

    def initializer(a: mx.array) -> mx.array:
        return mx.random.normal(shape=a.shape, scale=std, loc=mean, dtype=dtype)

    return initializer


def uniform(low: float = 0.0, high: float = 1.0, dtype: mx.Dtype = mx.float32) -> Initializer:
    """Samples of the uniform distribution on [low, high)."""

    def initializer(a: mx.array) -> mx.array:
        return mx.random.uniform(low, high, a.shape, dtype=dtype)

    return initializer


def identity(dtype: mx.Dtype = mx.float32) -> Initializer:
    """The identity matrix.

    Raises:
        ValueError: When called: the array is not a square matrix.
    """

    def initializer(arr: mx.array) -> mx.array:
        if arr.ndim != 2 or arr.shape[0] != arr.shape[1]:
            raise ValueError(f"[identity] The input array must be a square matrix but got shape {arr.shape}.")
        return mx.eye(arr.shape[0], dtype=dtype)

    return initializer


def glorot_normal(dtype: mx.Dtype = mx.float32) -> Callable[..., mx.array]:
    """Samples of a normal distribution with standard deviation ``gain * sqrt(2 / (fan_in + fan_out))``.

    The initializer takes the array and ``gain``, 1 by default.

    Raises:
        ValueError: When called: the array has fewer than two axes.

    Source: Glorot and Bengio (2010), PMLR 9.
    """

    def initializer(a: mx.array, gain: float = 1.0) -> mx.array:
        fan_in, fan_out = _fans(a)
        std = gain * math.sqrt(2.0 / (fan_in + fan_out))
        return mx.random.normal(shape=a.shape, scale=std, dtype=dtype)

    return initializer


def glorot_uniform(dtype: mx.Dtype = mx.float32) -> Callable[..., mx.array]:
    """Samples of the uniform distribution on [-k, k) with ``k = gain * sqrt(6 / (fan_in + fan_out))``.

    The initializer takes the array and ``gain``, 1 by default.

    Raises:
        ValueError: When called: the array has fewer than two axes.

    Source: Glorot and Bengio (2010), PMLR 9.
    """

    def initializer(a: mx.array, gain: float = 1.0) -> mx.array:
        fan_in, fan_out = _fans(a)
        k = gain * math.sqrt(6.0 / (fan_in + fan_out))
        return mx.random.uniform(-k, k, a.shape, dtype=dtype)

    return initializer


def he_normal(dtype: mx.Dtype = mx.float32) -> Callable[..., mx.array]:
    """Samples of a normal distribution with standard deviation ``gain / sqrt(fan)``.

    The initializer takes the array, ``mode`` ("fan_in" by default, or "fan_out") and ``gain``, 1 by default.

    Raises:
        ValueError: When called: the array has fewer than two axes, or ``mode`` is something else.

    Source: He, Zhang, Ren and Sun (2015), arXiv:1502.01852.
    """

    def initializer(a: mx.array, mode: Mode = "fan_in", gain: float = 1.0) -> mx.array:
        std = gain / math.sqrt(_fan(a, mode))
        return mx.random.normal(shape=a.shape, scale=std, dtype=dtype)

    return initializer


def he_uniform(dtype: mx.Dtype = mx.float32) -> Callable[..., mx.array]:
    """Samples of the uniform distribution on [-k, k) with ``k = gain * sqrt(3 / fan)``.

    The initializer takes the array, ``mode`` ("fan_in" by default, or "fan_out") and ``gain``, 1 by default.

    Raises:
        ValueError: When called: the array has fewer than two axes, or ``mode`` is something else.

    Source: He, Zhang, Ren and Sun (2015), arXiv:1502.01852.
    """

    def initializer(a: mx.array, mode: Mode = "fan_in", gain: float = 1.0) -> mx.array:
        k = gain * math.sqrt(3.0 / _fan(a, mode))
        return mx.random.uniform(-k, k, a.shape, dtype=dtype)

    return initializer


def sparse(sparsity: float, mean: float = 0.0, std: float = 1.0, dtype: mx.Dtype = mx.float32) -> Initializer:
    """Samples of the normal distribution, of which a random ``sparsity`` of each row is set to zero.

    Raises:
        ValueError: When called: the array is no matrix.

    Source: Martens (2010), ICML.
    """

    def initializer(a: mx.array) -> mx.array:
        if a.ndim != 2:
            raise ValueError(f"[sparse] Only tensors with 2 dimensions are supported, but got shape {a.shape}.")
        zeros = math.ceil(sparsity * a.shape[1])
        # The first places of a random order are zeroed; the inverse of the order says which place a column has.
        order = mx.argsort(mx.random.uniform(shape=a.shape), axis=1)
        place = mx.argsort(order, axis=1)
        samples = mx.random.normal(shape=a.shape, scale=std, loc=mean, dtype=dtype)
        return mx.where(place < zeros, mx.zeros((), dtype), samples)

    return initializer


def orthogonal(gain: float = 1.0, dtype: mx.Dtype = mx.float32) -> Initializer:
    """A matrix with orthonormal rows or columns, whichever are fewer, times ``gain``.

    Raises:
        ValueError: When called: the array is no matrix.

    Source: Saxe, McClelland and Ganguli (2014), arXiv:1312.6120.
    """

    def initializer(a: mx.array) -> mx.array:
        if a.ndim != 2:
            raise ValueError(
                f"[orthogonal] Orthogonal initialization requires a 2D array but got a {a.ndim}D array."
            )
        rows, cols = a.shape
        n = max(rows, cols)
        q, r = mx.linalg.qr(mx.random.normal(shape=(n, n)), stream=mx.cpu)
        # The signs that make R's diagonal positive make Q uniform: Mezzadri (2007), arXiv:math-ph/0609050.
        q = q * mx.sign(mx.diag(r))
        return (gain * q[:rows, :cols]).astype(dtype)

    return initializer


def _fans(a: mx.array) -> tuple[int, int]:
    """Units that a unit of the output reads, and that a unit of the input feeds: weights are (O, ..., I)."""
    if a.ndim < 2:
        raise ValueError(
            f"[init] Glorot / He initialization requires at least 2 dimensional input but input with {a.ndim} dimensions."
        )
    places = math.prod(a.shape[1:-1])  # of a convolution's window
    return a.shape[-1] * places, a.shape[0] * places


def _fan(a: mx.array, mode: Mode) -> int:
    fan_in, fan_out = _fans(a)
    if mode == "fan_in":
        return fan_in
    if mode == "fan_out":
        return fan_out
    raise ValueError(f"[init] Invalid mode: {mode}. Valid modes are: fan_in, fan_out.")
