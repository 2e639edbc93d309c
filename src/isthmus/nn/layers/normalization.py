"""Normalization over the last axis."""

import isthmus.core as mx
from isthmus.nn.layers.base import Module
from isthmus.nn.precision import computed_in_float32


class LayerNorm(Module):
    """Shifts and scales each row to mean 0 and variance 1, then by a learned weight and bias.

    ``x`` is ``(..., D)``, as is the output; weight and bias are ``(D,)``.

    Args:
        dims: D.
        eps: Added to the variance.
        affine: Whether there is a weight.
        bias: Whether there is also a bias.

    Raises:
        ValueError: ``eps`` is not positive.

    Source: Ba, Kiros and Hinton (2016), arXiv:1607.06450.
    """

    def __init__(self, dims: int, eps: float = 1e-5, affine: bool = True, bias: bool = True) -> None:
        super().__init__()
        _check_eps("LayerNorm", eps)
        if affine:
            self.weight = mx.ones((dims,))
            if bias:
                self.bias = mx.zeros((dims,))
        self.eps = eps
        self.dims = dims

    def __call__(self, x: mx.array) -> mx.array:
        return _layer_norm(x, self.get("weight"), self.get("bias"), self.eps)

    def _extra_repr(self) -> str:
        return f"{self.dims}, eps={self.eps}, affine={'weight' in self}"


class RMSNorm(Module):
    """Divides each row by its root mean square, then scales by a learned weight.

    ``x`` is ``(..., D)``, as is the output; the weight is ``(D,)``.

    Args:
        dims: D.
        eps: Added to the mean square.

    Raises:
        ValueError: ``eps`` is not positive.

    Source: Zhang and Sennrich (2019), arXiv:1910.07467.
    """

    def __init__(self, dims: int, eps: float = 1e-5) -> None:
        super().__init__()
        _check_eps("RMSNorm", eps)
        self.weight = mx.ones((dims,))
        self.eps = eps

    def __call__(self, x: mx.array) -> mx.array:
        return _rms_norm(x, self["weight"], self.eps)

    def _extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps}"


def _check_eps(caller: str, eps: float) -> None:
    if eps <= 0.0:
        raise ValueError(f"[{caller}] 'eps' must be positive but got {eps}.")


@computed_in_float32
def _layer_norm(x: mx.array, weight: mx.array | None, bias: mx.array | None, eps: float) -> mx.array:
    # The mean is taken off before squaring: E[x^2] - E[x]^2 loses all digits far from zero.
    centred = x - mx.mean(x, axis=-1, keepdims=True)
    y = centred * mx.rsqrt(mx.mean(mx.square(centred), axis=-1, keepdims=True) + eps)
    if weight is not None:
        y = y * weight
    return y if bias is None else y + bias


@computed_in_float32
def _rms_norm(x: mx.array, weight: mx.array, eps: float) -> mx.array:
    return x * mx.rsqrt(mx.mean(mx.square(x), axis=-1, keepdims=True) + eps) * weight
