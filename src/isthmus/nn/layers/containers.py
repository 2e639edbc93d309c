"""Layers made of other layers."""

from collections.abc import Callable

import isthmus.core as mx
from isthmus.nn.layers.base import Module


class Sequential(Module):
    """Calls its layers one after the other, each with the output of the one before.

    Args:
        modules: The layers; functions of one array do as well.

    Example:
        >>> nn.Sequential(nn.Linear(4, 2), nn.relu)(mx.ones((3, 4))).shape
        (3, 2)
    """

    def __init__(self, *modules: Callable[[mx.array], mx.array]) -> None:
        super().__init__()
        self.layers = list(modules)

    def __call__(self, x: mx.array) -> mx.array:
        for layer in self.layers:
            x = layer(x)
        return x
