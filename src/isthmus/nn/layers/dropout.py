"""Dropout: in training, sets random parts of the input to zero and scales the rest so that the mean stays."""

import isthmus.core as mx
from isthmus.nn.layers.base import Module


class Dropout(Module):
    """Sets each element to zero with probability ``p`` and divides the others by ``1 - p``.

    Out of training mode it returns its input.

    Args:
        p: Probability of zero, in [0, 1).

    Raises:
        ValueError: ``p`` is not in [0, 1).

    Source: Srivastava, Hinton, Krizhevsky, Sutskever and Salakhutdinov (2014), JMLR 15.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"[{type(self).__name__}] The dropout probability {p} is not in [0, 1).")
        self._p = p

    def __call__(self, x: mx.array) -> mx.array:
        if self._p == 0 or not self.training:
            return x
        keep = 1 - self._p
        mask = mx.random.bernoulli(keep, self._mask_shape(x))
        return (mask * x) * (1 / keep)

    def _mask_shape(self, x: mx.array) -> tuple[int, ...]:
        return x.shape

    def _extra_repr(self) -> str:
        return f"p={self._p}"


class _ChannelDropout(Dropout):
    """Sets whole channels, the last axis, to zero: one draw for all places of a channel."""

    _ndims: tuple[int, int]

    def _mask_shape(self, x: mx.array) -> tuple[int, ...]:
        unbatched, batched = self._ndims
        if x.ndim not in self._ndims:
            raise ValueError(
                f"[{type(self).__name__}] Received input with {x.ndim} dimensions; expected {unbatched}, "
                f"or {batched} with a batch in front."
            )
        places = unbatched - 1
        return (*x.shape[: x.ndim - unbatched], *[1] * places, x.shape[-1])


class Dropout2d(_ChannelDropout):
    """Sets whole channels to zero with probability ``p``.

    ``x`` is ``(B, H, W, C)`` or ``(H, W, C)``; the draw is ``(B, 1, 1, C)``.

    Source: Tompson, Goroshin, Jain, LeCun and Bregler (2015), arXiv:1411.4280.
    """

    _ndims = (3, 4)


class Dropout3d(_ChannelDropout):
    """Sets whole channels to zero with probability ``p``; ``x`` is ``(B, D, H, W, C)`` or ``(D, H, W, C)``."""

    _ndims = (4, 5)
