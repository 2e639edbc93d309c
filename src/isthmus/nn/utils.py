"""Derivatives with respect to the parameters of a model."""

import functools
from collections.abc import Callable
from typing import Any

import isthmus.core as mx
from isthmus.nn.layers.base import Module

# A parameter's place: the module, dict or list that holds it, its key there, and its branch of the tree of parameters.
Place = tuple[Any, Any, Any]


def value_and_grad(model: Module, fn: Callable[..., Any]) -> Callable[..., tuple[Any, dict[str, Any]]]:
    """Make the function that returns the value of ``fn`` and its gradient with respect to the model's parameters.

    Args:
        model: Its trainable parameters are what is differentiated by.
        fn: Uses ``model`` and returns a scalar array, or a tuple that begins with one.

    Returns:
        A function of the arguments of ``fn``. It returns what ``fn`` returns, and the gradients as a tree like
        ``model.trainable_parameters()``.

    Raises:
        ValueError: When called: the model has no trainable parameters, or ``fn`` does not return a scalar.

    Example:
        >>> model = nn.Linear(2, 1, bias=False)
        >>> value, grads = nn.value_and_grad(model, lambda x: model(x).sum())(mx.array([[1.0, 2.0]]))
        >>> grads
        {'weight': array([[1, 2]], dtype=float32)}
    """

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        tree = model.trainable_parameters()
        places: list[Place] = []
        _collect(model, tree, places)
        if not places:
            raise ValueError(
                f"[grad] Must specify at least one argument: {type(model).__name__} has no trainable parameters; "
                "unfreeze some, or set arrays as its attributes."
            )
        before = [holder[key] for holder, key, _ in places]
        traced = before

        def of_parameters(parameters: list[mx.array]) -> Any:
            nonlocal traced
            traced = parameters
            for (holder, key, _), x in zip(places, parameters, strict=True):
                holder[key] = x
            return fn(*args, **kwargs)

        try:
            value, grads = mx.value_and_grad(of_parameters)([branch[key] for _, key, branch in places])
        finally:
            # The model gets its own arrays back, except where fn has put another in the place of the traced one.
            for (holder, key, _), x, own in zip(places, traced, before, strict=True):
                if holder[key] is x:
                    holder[key] = own
        for (_, key, branch), grad in zip(places, grads, strict=True):
            branch[key] = grad
        return value, tree

    return wrapped


def _collect(holder: Any, branch: Any, places: list[Place]) -> None:
    """Append the places of all arrays of the tree ``branch`` of parameters that ``holder`` holds."""
    for key, value in branch.items() if isinstance(branch, dict) else enumerate(branch):
        if isinstance(value, mx.array):
            places.append((holder, key, branch))
        elif value:
            _collect(holder[key], value, places)
