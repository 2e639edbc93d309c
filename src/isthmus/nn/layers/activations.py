"""Activation functions, each as a function and as a layer.

The functions are formulas over arrays and hold nothing; a layer holds the numbers that its function takes besides
``x``. The two branches of a ``where`` are both computed, also in the gradient, so a branch that can overflow is given
a harmless argument where it is not taken.
"""

import math
from collections.abc import Callable
from typing import Any

import isthmus.core as mx
from isthmus.nn.layers.base import Module
from isthmus.nn.precision import computed_in_float32

# Functions


def sigmoid(x: mx.array) -> mx.array:
    """Logistic sigmoid, ``1 / (1 + exp(-x))``."""
    return mx.sigmoid(x)


def tanh(x: mx.array) -> mx.array:
    """Hyperbolic tangent."""
    return mx.tanh(x)


def relu(x: mx.array) -> mx.array:
    """Rectified linear unit, ``max(x, 0)``."""
    return mx.maximum(x, 0)


def relu2(x: mx.array) -> mx.array:
    """Squared rectified linear unit, ``max(x, 0)**2``."""
    return mx.square(mx.maximum(x, 0))


def relu6(x: mx.array) -> mx.array:
    """Rectified linear unit capped at 6, ``min(max(x, 0), 6)``."""
    return mx.minimum(mx.maximum(x, 0), 6.0)


def leaky_relu(x: mx.array, negative_slope: float = 0.01) -> mx.array:
    """Leaky rectified linear unit, ``max(negative_slope * x, x)``."""
    return mx.maximum(negative_slope * x, x)


def prelu(x: mx.array, alpha: mx.array) -> mx.array:
    """Rectified linear unit with a learned slope, ``max(x, 0) + alpha * min(x, 0)``."""
    return mx.maximum(x, 0) + alpha * mx.minimum(x, 0)


def elu(x: mx.array, alpha: float = 1.0) -> mx.array:
    """Exponential linear unit: ``x`` above 0, ``alpha * (exp(x) - 1)`` below.

    Source: Clevert, Unterthiner and Hochreiter (2016), arXiv:1511.07289.
    """
    above = x > 0
    return mx.where(above, x, alpha * mx.expm1(mx.where(above, 0, x)))


def celu(x: mx.array, alpha: float = 1.0) -> mx.array:
    """Exponential linear unit with slope 1 at 0: ``x`` above 0, ``alpha * (exp(x / alpha) - 1)`` below.

    Source: Barron (2017), arXiv:1704.07483.
    """
    above = x > 0
    return mx.where(above, x, alpha * mx.expm1(mx.where(above, 0, x) / alpha))


def selu(x: mx.array) -> mx.array:
    """Self-normalizing exponential linear unit, ``1.0507 * elu(x, 1.67326)``: MLX's digits, not the paper's 16.

    Source: Klambauer, Unterthiner, Mayr and Hochreiter (2017), arXiv:1706.02515.
    """
    return elu(x, 1.67326) * 1.0507


def gelu(x: mx.array) -> mx.array:
    """Gaussian error linear unit, ``x * Phi(x)`` with the cumulative distribution of the normal distribution.

    Source: Hendrycks and Gimpel (2016), arXiv:1606.08415.
    """
    return x * (1 + mx.erf(x / math.sqrt(2))) / 2


def gelu_approx(x: mx.array) -> mx.array:
    """:func:`gelu` through a hyperbolic tangent; off by less than 0.0005 in [-6, 6]."""
    return 0.5 * x * (1 + mx.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))


def gelu_fast_approx(x: mx.array) -> mx.array:
    """:func:`gelu` through a sigmoid, ``x * sigmoid(1.702 * x)``; off by less than 0.021 everywhere."""
    return x * mx.sigmoid(1.702 * x)


def silu(x: mx.array) -> mx.array:
    """Sigmoid linear unit, also called swish, ``x * sigmoid(x)``."""
    return x * mx.sigmoid(x)


def mish(x: mx.array) -> mx.array:
    """``x * tanh(softplus(x))``. Source: Misra (2019), arXiv:1908.08681."""
    return x * mx.tanh(softplus(x))


def glu(x: mx.array, axis: int = -1) -> mx.array:
    """Gated linear unit: the first half of ``x`` along ``axis``, times the sigmoid of the second half.

    Raises:
        ValueError: The size of ``axis`` is odd.
    """
    a, b = mx.split(x, 2, axis=axis)
    return a * mx.sigmoid(b)


def softplus(x: mx.array) -> mx.array:
    """``log(1 + exp(x))``, without overflow."""
    return mx.logaddexp(x, 0)


def log_sigmoid(x: mx.array) -> mx.array:
    """Logarithm of :func:`sigmoid`, without underflow."""
    return -softplus(-x)


def softmax(x: mx.array, axis: int = -1) -> mx.array:
    """``exp(x) / sum(exp(x))`` along ``axis``, without overflow."""
    return mx.softmax(x, axis=axis)


def softmin(x: mx.array, axis: int = -1) -> mx.array:
    """:func:`softmax` of ``-x``."""
    return mx.softmax(-x, axis=axis)


@computed_in_float32
def log_softmax(x: mx.array, axis: int = -1) -> mx.array:
    """Logarithm of :func:`softmax` along ``axis``, without underflow."""
    return x - mx.logsumexp(x, axis=axis, keepdims=True)


def softsign(x: mx.array) -> mx.array:
    """``x / (1 + abs(x))``."""
    return x / (1 + mx.abs(x))


def softshrink(x: mx.array, lambd: float = 0.5) -> mx.array:
    """``x`` moved towards 0 by ``lambd``, and 0 where it is not farther away than that."""
    return mx.where(mx.abs(x) > lambd, x - mx.sign(x) * lambd, 0)


def hard_shrink(x: mx.array, lambd: float = 0.5) -> mx.array:
    """``x`` where it is farther from 0 than ``lambd``, else 0."""
    return mx.where(mx.abs(x) > lambd, x, 0)


def hard_tanh(x: mx.array, min_val: float = -1.0, max_val: float = 1.0) -> mx.array:
    """``x`` held between ``min_val`` and ``max_val``."""
    return mx.minimum(mx.maximum(x, min_val), max_val)


def hardswish(x: mx.array) -> mx.array:
    """``x * min(max(x + 3, 0), 6) / 6``. Source: Howard and others (2019), arXiv:1905.02244."""
    return x * mx.minimum(mx.maximum(x + 3, 0), 6) / 6


def step(x: mx.array, threshold: float = 0.0) -> mx.array:
    """1 where ``x`` is at or above ``threshold``, else 0, as int32."""
    return mx.where(x >= threshold, 1, 0)


# Layers


def _layer(name: str, fn: Callable[[mx.array], mx.array]) -> type[Module]:
    """A layer that applies ``fn`` and holds nothing."""

    def __call__(self: Module, x: mx.array) -> mx.array:
        return fn(x)

    doc = f"Applies :func:`{fn.__name__}`."
    return type(name, (Module,), {"__call__": __call__, "__doc__": doc, "__module__": __name__})


Hardswish = _layer("Hardswish", hardswish)
HardTanh = _layer("HardTanh", hard_tanh)
LogSigmoid = _layer("LogSigmoid", log_sigmoid)
LogSoftmax = _layer("LogSoftmax", log_softmax)
Mish = _layer("Mish", mish)
ReLU = _layer("ReLU", relu)
ReLU2 = _layer("ReLU2", relu2)
ReLU6 = _layer("ReLU6", relu6)
SELU = _layer("SELU", selu)
Sigmoid = _layer("Sigmoid", sigmoid)
SiLU = _layer("SiLU", silu)
Softmax = _layer("Softmax", softmax)
Softmin = _layer("Softmin", softmin)
Softplus = _layer("Softplus", softplus)
Softsign = _layer("Softsign", softsign)
Tanh = _layer("Tanh", tanh)


class CELU(Module):
    """Applies :func:`celu` with a fixed ``alpha``."""

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self._alpha = alpha

    def __call__(self, x: mx.array) -> mx.array:
        return celu(x, self._alpha)


class ELU(Module):
    """Applies :func:`elu` with a fixed ``alpha``."""

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self._alpha = alpha

    def __call__(self, x: mx.array) -> mx.array:
        return elu(x, self._alpha)


class GELU(Module):
    """Applies :func:`gelu` or one of its approximations.

    Args:
        approx: ``"none"`` for :func:`gelu`, ``"precise"`` or ``"tanh"`` for :func:`gelu_approx`, ``"fast"`` for
            :func:`gelu_fast_approx`.

    Raises:
        ValueError: ``approx`` is something else.
    """

    def __init__(self, approx: str = "none") -> None:
        super().__init__()
        if approx not in _GELUS:
            raise ValueError(f"[GELU] The approximation should be in {list(_GELUS)} but {approx!r} was given.")
        self._approx = approx

    def __call__(self, x: mx.array) -> mx.array:
        return _GELUS[self._approx](x)


_GELUS = {"none": gelu, "precise": gelu_approx, "tanh": gelu_approx, "fast": gelu_fast_approx}


class GLU(Module):
    """Applies :func:`glu` along a fixed ``axis``."""

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def __call__(self, x: mx.array) -> Any:
        return glu(x, axis=self.axis)


class HardShrink(Module):
    """Applies :func:`hard_shrink` with a fixed ``lambd``."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def __call__(self, x: mx.array) -> mx.array:
        return hard_shrink(x, self.lambd)


class LeakyReLU(Module):
    """Applies :func:`leaky_relu` with a fixed ``negative_slope``."""

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self._negative_slope = negative_slope

    def __call__(self, x: mx.array) -> mx.array:
        return leaky_relu(x, self._negative_slope)


class PReLU(Module):
    """Applies :func:`prelu` with learned slopes.

    Args:
        num_parameters: How many slopes: 1, or the size of the last axis of the input.
        init: Their initial value.
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        super().__init__()
        self.weight = mx.full([num_parameters], init)

    def __call__(self, x: mx.array) -> mx.array:
        return prelu(x, self.weight)


class Softshrink(Module):
    """Applies :func:`softshrink` with a fixed ``lambd``."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def __call__(self, x: mx.array) -> mx.array:
        return softshrink(x, self.lambd)


class Step(Module):
    """Applies :func:`step` with a fixed ``threshold``."""

    def __init__(self, threshold: float = 0.0) -> None:
        super().__init__()
        self.threshold = threshold

    def __call__(self, x: mx.array) -> mx.array:
        return step(x, self.threshold)
