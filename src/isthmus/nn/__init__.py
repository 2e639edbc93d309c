"""Layers, losses, initializers, and the gradient of a function of a model."""

from isthmus.nn import init, losses
from isthmus.nn.layers import *
from isthmus.nn.utils import value_and_grad
