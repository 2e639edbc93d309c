"""Layers that are affine in their input. Weights are stored output first: ``(output_dims, input_dims)``."""

import math
from typing import Any

import isthmus.core as mx
from isthmus.nn.layers.base import Module


class Identity(Module):
    """Returns its input; arguments to the constructor are ignored."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def __call__(self, x: mx.array) -> mx.array:
        return x


class Linear(Module):
    """``x @ weight.T + bias``.

    ``x`` is ``(..., I)``, the weight ``(O, I)``, the bias ``(O,)``, the output ``(..., O)``. Both are drawn uniformly
    from ``[-k, k]`` with ``k = 1 / sqrt(I)``.

    Args:
        input_dims: I.
        output_dims: O.
        bias: Whether there is a bias.
    """

    def __init__(self, input_dims: int, output_dims: int, bias: bool = True) -> None:
        super().__init__()
        k = math.sqrt(1.0 / input_dims)
        self.weight = mx.random.uniform(low=-k, high=k, shape=(output_dims, input_dims))
        if bias:
            self.bias = mx.random.uniform(low=-k, high=k, shape=(output_dims,))

    def __call__(self, x: mx.array) -> mx.array:
        if "bias" in self:
            return mx.addmm(self["bias"], x, self["weight"].T)
        return x @ self["weight"].T

    def _extra_repr(self) -> str:
        output_dims, input_dims = self.weight.shape
        return f"input_dims={input_dims}, output_dims={output_dims}, bias={'bias' in self}"


class Bilinear(Module):
    """``y[o] = x1 @ weight[o].T @ x2 + bias[o]``.

    ``x1`` is ``(..., I1)``, ``x2`` is ``(..., I2)``, the weight ``(O, I2, I1)``, the output ``(..., O)``. Weight and
    bias are drawn uniformly from ``[-k, k]`` with ``k = 1 / sqrt(I1)``.

    Args:
        input1_dims: I1.
        input2_dims: I2.
        output_dims: O.
        bias: Whether there is a bias.
    """

    def __init__(self, input1_dims: int, input2_dims: int, output_dims: int, bias: bool = True) -> None:
        super().__init__()
        k = math.sqrt(1.0 / input1_dims)
        self.weight = mx.random.uniform(low=-k, high=k, shape=(output_dims, input2_dims, input1_dims))
        if bias:
            self.bias = mx.random.uniform(low=-k, high=k, shape=(output_dims,))

    def __call__(self, x1: mx.array, x2: mx.array) -> mx.array:
        output_dims, input2_dims, input1_dims = self.weight.shape
        batch = x1.shape[:-1]
        x1 = x1.reshape(-1, input1_dims)  # (B, I1)
        x2 = x2.reshape(-1, 1, input2_dims)  # (B, 1, I2)
        half = x1 @ self.weight.reshape(-1, input1_dims).T  # (B, O * I2)
        y = x2 @ half.reshape(-1, output_dims, input2_dims).swapaxes(-1, -2)  # (B, 1, O)
        y = y.reshape(*batch, output_dims)
        return y + self.bias if "bias" in self else y

    def _extra_repr(self) -> str:
        output_dims, input2_dims, input1_dims = self.weight.shape
        return (
            f"input1_dims={input1_dims}, input2_dims={input2_dims}, output_dims={output_dims}, bias={'bias' in self}"
        )
