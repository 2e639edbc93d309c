"""Optimizers: how parameters follow from gradients.

An optimizer says two things for a single array, ``init_single`` and ``apply_single``; the base walks the trees. Its
state is one dict: ``"step"``, what may be on a schedule (``"learning_rate"``), and beside them a tree like that of the
parameters with a dict for each array. Updates are plain array code in the dtype of the gradient, in MLX's order of
operations, so that the results are MLX's to the last bit.
"""

from collections.abc import Callable, Iterable
from typing import Any

import isthmus.core as mx
from isthmus.nn import Module
from isthmus.utils import tree_flatten, tree_map, tree_merge, tree_unflatten

__all__ = [
    "SGD",
    "AdaDelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "MultiOptimizer",
    "Muon",
    "Optimizer",
    "RMSprop",
    "clip_grad_norm",
]

Tree = Any
State = dict[str, Any]
Rate = float | mx.array | Callable[[mx.array], mx.array]  # a number, or a schedule


class Optimizer:
    """The base of all optimizers.

    Args:
        schedulers: Names of values in the state, and the schedule of each.
    """

    def __init__(self, schedulers: dict[str, Callable[[mx.array], mx.array]] | None = None) -> None:
        self._initialized = False
        self._state: State = {"step": mx.array(0, mx.uint64)}
        self._schedulers = dict(schedulers or {})

    def update(self, model: Module, gradients: Tree) -> None:
        """Replace the parameters of ``model`` by updated ones.

        Args:
            model: The module to update.
            gradients: A tree like that of its trainable parameters, as ``nn.value_and_grad`` returns.
        """
        model.update(self.apply_gradients(gradients, model))

    def init(self, parameters: Tree) -> None:
        """Make the state for ``parameters``; what is there already is kept.

        The first update does it by itself. Do it earlier to have the whole state before, for instance to compile the
        training step.

        Example:
            >>> optimizer = optim.SGD(learning_rate=0.1, momentum=0.9)
            >>> optimizer.init(nn.Linear(2, 2).trainable_parameters())
            >>> optimizer.state.keys()
            dict_keys(['step', 'learning_rate', 'weight', 'bias'])
        """
        self._init_tree(parameters, self._state)
        self._initialized = True

    def apply_gradients(self, gradients: Tree, parameters: Tree) -> Tree:
        """Compute the updated parameters and advance the state by a step.

        Args:
            gradients: A tree of arrays.
            parameters: A tree, or a module, that has at least the branches of ``gradients``.

        Returns:
            The updated parameters, as a tree like ``gradients``.

        Raises:
            KeyError: The parameters or the state lack a place that the gradients have.
        """
        if not self._initialized:
            self.init(gradients)
        state = self._state
        step = state["step"]
        for name, schedule in self._schedulers.items():
            state[name] = _as_array(schedule(step))
        state["step"] = step + 1
        return self._apply_tree(gradients, parameters, state)

    def init_single(self, parameter: mx.array, state: State) -> None:
        """Put what the optimizer keeps for ``parameter`` into ``state``; for subclasses."""
        raise NotImplementedError(f"{type(self).__name__} must define init_single(parameter, state).")

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: State) -> mx.array:
        """Return the updated ``parameter``, and update its ``state``; for subclasses."""
        raise NotImplementedError(f"{type(self).__name__} must define apply_single(gradient, parameter, state).")

    @property
    def state(self) -> State:
        """All that changes from step to step; assign an earlier one to go on from there."""
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._initialized = False
        self._state = state

    @property
    def step(self) -> mx.array:
        """How many updates were made; within an update, the number of this one, from 1."""
        return self.state["step"]

    @property
    def learning_rate(self) -> mx.array:
        """The learning rate; a schedule overwrites what is assigned at the next update."""
        return self.state["learning_rate"]

    @learning_rate.setter
    def learning_rate(self, learning_rate: float | mx.array) -> None:
        self.state["learning_rate"] = mx.array(learning_rate)

    def _maybe_schedule(self, name: str, param: Rate) -> None:
        """Put a value, or the first value of a schedule, into the state; for subclasses."""
        if callable(param):
            self._schedulers[name] = param
            param = param(self.step)
        self.state[name] = mx.array(param)

    def _rate(self, dtype: mx.Dtype) -> mx.array:
        rate = self._state["learning_rate"]
        return rate if rate.dtype == dtype else rate.astype(dtype)

    def _init_tree(self, parameters: Tree, state: Any) -> None:
        """Fill ``state``, a dict or list, for the branch ``parameters``."""
        if isinstance(parameters, dict):
            places: Any = parameters.items()
        else:
            places = enumerate(parameters)
            state.extend({} for _ in range(len(parameters) - len(state)))
        for key, parameter in places:
            branch = isinstance(parameter, (dict, list, tuple))
            own = state[key] if isinstance(state, list) else state.get(key)
            if own is None or isinstance(own, tuple) or (not own and isinstance(parameter, (list, tuple))):
                own = state[key] = [*(own or ())] if isinstance(parameter, (list, tuple)) else {}
            if branch:
                self._init_tree(parameter, own)
            elif not own:
                self.init_single(parameter, own)

    def _apply_tree(self, gradients: Tree, parameters: Tree, state: Any) -> Tree:
        apply = self.apply_single
        out: list[Any] = []
        for key, gradient in gradients.items() if isinstance(gradients, dict) else enumerate(gradients):
            try:
                parameter = parameters[key]
                own = state[key]
            except (KeyError, IndexError):
                raise KeyError(
                    f"[apply_gradients] there is a gradient at {key!r}, but no parameter or no state: the first update, "
                    "or init, must see all parameters that later get a gradient."
                ) from None
            branch = isinstance(gradient, (dict, list, tuple))
            out.append(self._apply_tree(gradient, parameter, own) if branch else apply(gradient, parameter, own))
        if isinstance(gradients, dict):
            return dict(zip(gradients, out, strict=True))
        return out if isinstance(gradients, list) else tuple(out)


class MultiOptimizer(Optimizer):
    """Several optimizers, each for some of the parameters.

    Args:
        optimizers: The optimizers; the last gets what no filter chooses.
        filters: One for each optimizer but the last, called with the path and the gradient of a parameter; the first
            that returns true decides.

    Raises:
        ValueError: There is not one filter fewer than optimizers.

    Example:
        >>> optimizer = optim.MultiOptimizer(
        ...     [optim.Muon(0.02), optim.AdamW(1e-3)], [lambda path, gradient: gradient.ndim == 2]
        ... )
    """

    def __init__(self, optimizers: list[Optimizer], filters: list[Callable[[str, mx.array], bool]] = []) -> None:
        super().__init__()
        self._state = {}
        if len(filters) != len(optimizers) - 1:
            raise ValueError(
                f"[MultiOptimizer] Given {len(filters)} filters but {len(optimizers) - 1} needed: "
                "one for each optimizer but the last."
            )
        self.optimizers = optimizers
        self.filters = [*filters, lambda path, gradient: True]

    def _split(self, gradients: Tree) -> list[Tree]:
        """A tree for each optimizer."""
        if len(self.optimizers) == 1:
            return [gradients]  # with its tuples and empty branches
        parts: list[list[tuple[str, mx.array]]] = [[] for _ in self.optimizers]
        for path, gradient in tree_flatten(gradients):
            chosen = next(i for i, wanted in enumerate(self.filters) if wanted(path, gradient))
            parts[chosen].append((path, gradient))
        return [tree_unflatten(part) if part else {} for part in parts]

    def init(self, parameters: Tree) -> None:
        for optimizer, part in zip(self.optimizers, self._split(parameters), strict=True):
            optimizer.init(part)
        self._initialized = True

    def apply_gradients(self, gradients: Tree, parameters: Tree) -> Tree:
        updated: Tree = {}
        for optimizer, part in zip(self.optimizers, self._split(gradients), strict=True):
            updated = tree_merge(updated, optimizer.apply_gradients(part, parameters))
        return updated

    @property
    def state(self) -> State:
        """The states of the optimizers, as ``{"states": [...]}``."""
        return {"states": [optimizer.state for optimizer in self.optimizers]}

    @state.setter
    def state(self, state: State) -> None:
        if "states" not in state or len(state["states"]) != len(self.optimizers):
            raise ValueError(
                f"[MultiOptimizer] Invalid state provided: it must be a dict whose 'states' lists the states of the "
                f"{len(self.optimizers)} optimizers."
            )
        for optimizer, own in zip(self.optimizers, state["states"], strict=True):
            optimizer.state = own

    @property
    def learning_rate(self) -> mx.array:
        """The learning rate of the first optimizer; assigning sets that of all."""
        return self.optimizers[0].learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: float | mx.array) -> None:
        for optimizer in self.optimizers:
            optimizer.learning_rate = learning_rate


class SGD(Optimizer):
    """Stochastic gradient descent: ``v = momentum * v + (1 - dampening) * g``, ``w = w - learning_rate * v``.

    Args:
        learning_rate: A number or a schedule.
        momentum: How much of the last update is kept.
        weight_decay: How much of the parameter is added to the gradient.
        dampening: How much of the gradient is left out of the momentum.
        nesterov: Look ahead by one more momentum.

    Raises:
        ValueError: ``nesterov`` without momentum, or with dampening.
    """

    def __init__(
        self,
        learning_rate: Rate,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        dampening: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("[SGD] Nesterov momentum requires a momentum and zero dampening.")
        super().__init__()
        self._maybe_schedule("learning_rate", learning_rate)
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.dampening = dampening
        self.nesterov = nesterov

    def init_single(self, parameter: mx.array, state: State) -> None:
        state["v"] = mx.zeros_like(parameter)

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: State) -> mx.array:
        rate = self._rate(gradient.dtype)
        if self.weight_decay != 0:
            gradient = gradient + self.weight_decay * parameter
        if self.momentum <= 0:
            return parameter - rate * gradient
        v = self.momentum * state["v"]
        v = v + (1 - self.dampening) * gradient if self.dampening > 0 else v + gradient
        state["v"] = v
        update = gradient + self.momentum * v if self.nesterov else v
        return parameter - rate * update


class RMSprop(Optimizer):
    """Divides by a running root mean square: ``v = alpha * v + (1 - alpha) * g**2``.

    Args:
        learning_rate: A number or a schedule.
        alpha: How much of the mean square is kept.
        eps: Added to the root.

    Raises:
        ValueError: ``alpha`` is negative, or ``eps`` is not positive.

    Source: Tieleman and Hinton (2012), COURSERA lecture 6.5.
    """

    def __init__(self, learning_rate: Rate, alpha: float = 0.99, eps: float = 1e-8) -> None:
        super().__init__()
        _at_least_zero("RMSprop", alpha=alpha)
        _above_zero("RMSprop", eps=eps)
        self._maybe_schedule("learning_rate", learning_rate)
        self.alpha = alpha
        self.eps = eps

    def init_single(self, parameter: mx.array, state: State) -> None:
        state["v"] = mx.zeros_like(parameter)

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: State) -> mx.array:
        rate = self._rate(gradient.dtype)
        v = self.alpha * state["v"] + (1 - self.alpha) * mx.square(gradient)
        state["v"] = v
        return parameter - rate * gradient / (mx.sqrt(v) + self.eps)


class Adagrad(Optimizer):
    """Divides by the root of the sum of all squares so far: ``v = v + g**2``.

    Args:
        learning_rate: A number or a schedule.
        eps: Added to the root.

    Raises:
        ValueError: ``eps`` is not positive.

    Source: Duchi, Hazan and Singer (2011), JMLR 12.
    """

    def __init__(self, learning_rate: Rate, eps: float = 1e-8) -> None:
        super().__init__()
        _above_zero("Adagrad", eps=eps)
        self._maybe_schedule("learning_rate", learning_rate)
        self.eps = eps

    def init_single(self, parameter: mx.array, state: State) -> None:
        state["v"] = mx.zeros_like(parameter)

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: State) -> mx.array:
        rate = self._rate(gradient.dtype)
        v = state["v"] + mx.square(gradient)
        state["v"] = v
        return parameter - rate * gradient / (mx.sqrt(v) + self.eps)


class AdaDelta(Optimizer):
    """Scales the gradient by the ratio of two running root mean squares: that of the updates and its own.

    Args:
        learning_rate: A number or a schedule.
        rho: How much of the mean squares is kept.
        eps: Added under the roots.

    Raises:
        ValueError: ``rho`` is negative, or ``eps`` is not positive.

    Source: Zeiler (2012), arXiv:1212.5701.
    """

    def __init__(self, learning_rate: Rate, rho: float = 0.9, eps: float = 1e-6) -> None:
        super().__init__()
        _at_least_zero("AdaDelta", rho=rho)
        _above_zero("AdaDelta", eps=eps)
        self._maybe_schedule("learning_rate", learning_rate)
        self.rho = rho
        self.eps = eps

    def init_single(self, parameter: mx.array, state: State) -> None:
        state["v"] = mx.zeros_like(parameter)
        state["u"] = mx.zeros_like(parameter)

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: State) -> mx.array:
        rate = self._rate(gradient.dtype)
        u = state["u"]
        v = self.rho * state["v"] + (1 - self.rho) * mx.square(gradient)
        update = mx.sqrt(u + self.eps) / mx.sqrt(v + self.eps) * gradient
        state["v"] = v
        state["u"] = self.rho * u + (1 - self.rho) * mx.square(update)
        return parameter - rate * update


class Adam(Optimizer):
    """Running means of the gradient and of its square: ``w = w - learning_rate * m / (sqrt(v) + eps)``.

    Args:
        learning_rate: A number or a schedule.
        betas: How much is kept of each mean.
        eps: Added to the root.
        bias_correction: Divide each mean by its sum of weights, as the paper does; MLX by default does not.

    Raises:
        ValueError: A beta is not in [0, 1), or ``eps`` is negative.

    Source: Kingma and Ba (2015), arXiv:1412.6980.
    """

    def __init__(
        self,
        learning_rate: Rate,
        betas: list[float] | tuple[float, float] = [0.9, 0.999],
        eps: float = 1e-8,
        bias_correction: bool = False,
    ) -> None:
        super().__init__()
        _below_one(type(self).__name__, betas)
        _at_least_zero(type(self).__name__, eps=eps)
        self._maybe_schedule("learning_rate", learning_rate)
        self.betas = betas
        self.eps = eps
        self.bias_correction = bias_correction

    def init_single(self, parameter: mx.array, state: State) -> None:
        state["m"] = mx.zeros_like(parameter)
        state["v"] = mx.zeros_like(parameter)

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: State) -> mx.array:
        rate = self._rate(gradient.dtype)
        b1, b2 = self.betas
        m = b1 * state["m"] + (1 - b1) * gradient
        v = b2 * state["v"] + (1 - b2) * mx.square(gradient)
        state["m"] = m
        state["v"] = v
        if not self.bias_correction:
            return parameter - rate * m / (mx.sqrt(v) + self.eps)
        step = self.step
        numerator = (rate / (1 - b1**step)).astype(gradient.dtype) * m
        denominator = mx.sqrt(v) * mx.rsqrt(1 - b2**step).astype(gradient.dtype) + self.eps
        return parameter - numerator / denominator


class AdamW(Adam):
    """:class:`Adam` that shrinks the parameters by ``learning_rate * weight_decay`` besides.

    Args:
        learning_rate: A number or a schedule.
        betas: How much is kept of each mean.
        eps: Added to the root.
        weight_decay: By how much to shrink.
        bias_correction: Divide each mean by its sum of weights, as the paper does; MLX by default does not.

    Raises:
        ValueError: A beta is not in [0, 1), or ``eps`` is negative.

    Source: Loshchilov and Hutter (2019), arXiv:1711.05101.
    """

    def __init__(
        self,
        learning_rate: Rate,
        betas: list[float] | tuple[float, float] = [0.9, 0.999],
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        bias_correction: bool = False,
    ) -> None:
        super().__init__(learning_rate=learning_rate, betas=betas, eps=eps, bias_correction=bias_correction)
        self.weight_decay = weight_decay

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: State) -> mx.array:
        shrunk = parameter * (1 - self._rate(gradient.dtype) * self.weight_decay)
        return super().apply_single(gradient, shrunk, state)


class Adamax(Adam):
    """:class:`Adam` with a running maximum in place of the mean square: ``v = max(b2 * v, abs(g))``.

    Args:
        learning_rate: A number or a schedule.
        betas: How much is kept of the mean and of the maximum.
        eps: Added to the maximum.

    Raises:
        ValueError: A beta is not in [0, 1), or ``eps`` is negative.

    Source: Kingma and Ba (2015), arXiv:1412.6980.
    """

    def __init__(
        self,
        learning_rate: Rate,
        betas: list[float] | tuple[float, float] = [0.9, 0.999],
        eps: float = 1e-8,
    ) -> None:
        super().__init__(learning_rate, betas, eps)

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: State) -> mx.array:
        rate = self._rate(gradient.dtype)
        b1, b2 = self.betas
        m = b1 * state["m"] + (1 - b1) * gradient
        v = mx.maximum(b2 * state["v"], mx.abs(gradient))
        state["m"] = m
        state["v"] = v
        return parameter - rate * m / (v + self.eps)


class Lion(Optimizer):
    """Steps by the sign of a mean of gradients: ``w = w - learning_rate * sign(b1 * m + (1 - b1) * g)``.

    Its steps are larger than Adam's: take a learning rate 3 to 10 times smaller and a weight decay as much larger.

    Args:
        learning_rate: A number or a schedule.
        betas: How much of the mean goes into the step, and how much of it is kept.
        weight_decay: By how much, times the learning rate, to shrink the parameters.

    Raises:
        ValueError: A beta is not in [0, 1).

    Source: Chen and others (2023), arXiv:2302.06675.
    """

    def __init__(
        self,
        learning_rate: Rate,
        betas: list[float] | tuple[float, float] = [0.9, 0.99],
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__()
        _below_one("Lion", betas)
        self._maybe_schedule("learning_rate", learning_rate)
        self.betas = betas
        self.weight_decay = weight_decay

    def init_single(self, parameter: mx.array, state: State) -> None:
        state["m"] = mx.zeros_like(parameter)

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: State) -> mx.array:
        rate = self._rate(gradient.dtype)
        b1, b2 = self.betas
        m = state["m"]
        direction = b1 * m + (1 - b1) * gradient
        state["m"] = b2 * m + (1 - b2) * gradient
        if self.weight_decay > 0:
            parameter = (1 - rate * self.weight_decay) * parameter
        return parameter - rate * mx.sign(direction)


class Adafactor(Optimizer):
    """Adam without a stored mean, and with mean squares of rows and columns only.

    Args:
        learning_rate: A number, a schedule, or ``None`` for a relative step.
        eps: Added to the squared gradient; and the least root mean square taken for a parameter.
        clip_threshold: The largest root mean square of an update before it is scaled by the learning rate.
        decay_rate: The power of the step in ``1 - step**decay_rate``, which is how much of the mean squares is kept.
        beta_1: How much is kept of the mean of updates; ``None`` keeps no mean.
        weight_decay: By how much, times the learning rate, to shrink the parameters.
        scale_parameter: Scale the learning rate by the root mean square of the parameter.
        relative_step: Take ``min(0.01, 1 / sqrt(step))`` for the learning rate.
        warmup_init: Begin a relative step at ``1e-6 * step``.

    Source: Shazeer and Stern (2018), arXiv:1804.04235.
    """

    def __init__(
        self,
        learning_rate: Rate | None = None,
        eps: tuple[float, float] = (1e-30, 1e-3),
        clip_threshold: float = 1.0,
        decay_rate: float = -0.8,
        beta_1: float | None = None,
        weight_decay: float = 0.0,
        scale_parameter: bool = True,
        relative_step: bool = True,
        warmup_init: bool = False,
    ) -> None:
        super().__init__()
        if learning_rate is not None:
            self._maybe_schedule("learning_rate", learning_rate)
        self.eps = eps
        self.clip_threshold = clip_threshold
        self.decay_rate = decay_rate
        self.beta_1 = beta_1
        self.weight_decay = weight_decay
        self.scale_parameter = scale_parameter
        self.relative_step = relative_step
        self.warmup_init = warmup_init

    def init_single(self, parameter: mx.array, state: State) -> None:
        shape, dtype = parameter.shape, parameter.dtype
        if parameter.ndim >= 2:
            state["exp_avg_sq_row"] = mx.zeros(shape[:-1], dtype=dtype)
            state["exp_avg_sq_col"] = mx.zeros((*shape[:-2], shape[-1]), dtype=dtype)
        else:
            state["exp_avg_sq"] = mx.zeros_like(parameter)
        if self.beta_1 is not None:
            state["exp_avg"] = mx.zeros_like(parameter)

    def _relative_rate(self, step: mx.array, parameter: mx.array) -> mx.array:
        if self.relative_step:
            rate = mx.minimum(1e-6 * step if self.warmup_init else 1e-2, mx.rsqrt(step))
        else:
            rate = self.learning_rate
        rate = rate.astype(parameter.dtype)
        return mx.maximum(self.eps[1], _rms(parameter)) * rate if self.scale_parameter else rate

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: State) -> mx.array:
        step = self.step
        rate = self._relative_rate(step, parameter)
        beta_2 = 1.0 - (step**self.decay_rate).astype(parameter.dtype)
        square = mx.square(gradient) + self.eps[0]
        if gradient.ndim >= 2:
            row = beta_2 * state["exp_avg_sq_row"] + (1 - beta_2) * mx.mean(square, axis=-1)
            col = beta_2 * state["exp_avg_sq_col"] + (1 - beta_2) * mx.mean(square, axis=-2)
            state["exp_avg_sq_row"] = row
            state["exp_avg_sq_col"] = col
            by_row = mx.rsqrt(row / mx.mean(row, axis=-1, keepdims=True))  # (..., R)
            update = by_row[..., None] * mx.rsqrt(col)[..., None, :] * gradient
        else:
            square = beta_2 * state["exp_avg_sq"] + (1 - beta_2) * square
            state["exp_avg_sq"] = square
            update = mx.rsqrt(square) * gradient
        update = rate * (update / mx.maximum(1.0, _rms(update) / self.clip_threshold))
        if self.beta_1 is not None:
            update = self.beta_1 * state["exp_avg"] + (1 - self.beta_1) * update
            state["exp_avg"] = update
        if self.weight_decay != 0:
            parameter = parameter + parameter * (-self.weight_decay * rate)
        return parameter - update


class Muon(Optimizer):
    """Momentum whose matrix updates are made nearly orthogonal by Newton-Schulz iteration.

    It suits the weight matrices of hidden layers; give embeddings, the last layer, and arrays of fewer than two axes
    to another optimizer (:class:`MultiOptimizer`). Of an array of more axes, all but the first count as one.

    Args:
        learning_rate: A number or a schedule.
        momentum: How much of the mean gradient is kept.
        weight_decay: How much of the parameter is added to the gradient.
        nesterov: Look ahead by one more momentum.
        ns_steps: How many iterations.

    Source: Jordan and others (2024), https://kellerjordan.github.io/posts/muon/.
    """

    def __init__(
        self,
        learning_rate: Rate,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
        nesterov: bool = True,
        ns_steps: int = 5,
    ) -> None:
        super().__init__()
        self._maybe_schedule("learning_rate", learning_rate)
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.nesterov = nesterov
        self.ns_steps = ns_steps

    def init_single(self, parameter: mx.array, state: State) -> None:
        state["v"] = mx.zeros_like(parameter)

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: State) -> mx.array:
        if self.weight_decay != 0:
            gradient = gradient + self.weight_decay * parameter
        v = self.momentum * state["v"] + (1 - self.momentum) * gradient
        state["v"] = v
        update = gradient * (1 - self.momentum) + v * self.momentum if self.nesterov else v
        rate = self._rate(gradient.dtype)
        if update.ndim >= 2:
            shape = update.shape
            update = _orthogonalized(update.reshape(shape[0], -1), self.ns_steps).reshape(shape)
            rate = rate * max(1, shape[-2] / shape[-1]) ** 0.5  # of the last two axes also of a convolution's weight
        return parameter - rate * update


def clip_grad_norm(grads: Tree, max_norm: float) -> tuple[Tree, mx.array]:
    """Scale all gradients down together so that their common norm is at most ``max_norm``.

    Args:
        grads: A tree of arrays.
        max_norm: The largest norm.

    Returns:
        The gradients, and the norm that they had. The norm is summed in float32 also for 16-bit gradients; it is a
        bfloat16 where all gradients are, as MLX's.

    Raises:
        ValueError: ``max_norm`` is negative.

    Example:
        >>> optim.clip_grad_norm({"w": mx.array([3.0, 4.0])}, max_norm=10.0)
        ({'w': array([3, 4], dtype=float32)}, array(5, dtype=float32))
    """
    _at_least_zero("clip_grad_norm", max_norm=max_norm)
    narrow = (mx.float16, mx.bfloat16)
    total = mx.array(0.0)
    dtypes = set()
    for _, g in tree_flatten(grads):
        dtypes.add(g.dtype)
        total = total + mx.sum(mx.square(g.astype(mx.float32) if g.dtype in narrow else g))
    norm = mx.sqrt(total)
    scale = mx.minimum(max_norm / (norm + 1e-6), 1.0)

    def clipped(g: mx.array) -> mx.array:
        return (g * scale).astype(g.dtype) if g.dtype in narrow else g * scale

    if dtypes == {mx.bfloat16}:
        norm = norm.astype(mx.bfloat16)
    return tree_map(clipped, grads), norm


def _rms(x: mx.array) -> mx.array:
    return mx.sqrt(mx.mean(mx.square(x)))


def _orthogonalized(x: mx.array, steps: int) -> mx.array:
    """The matrix with the singular vectors of ``x`` and singular values near 1."""
    a, b, c = 3.4445, -4.7750, 2.0315  # the quintic of Jordan and others: steepest at 0, within 0.7 to 1.2 at 1
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    x = x / (mx.sqrt(mx.sum(mx.square(x))) + 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = mx.addmm(a * x, mx.addmm(b * gram, gram, gram, alpha=c), x)
    return x.T if tall else x


def _as_array(x: Any) -> mx.array:
    return x if isinstance(x, mx.array) else mx.array(x)


def _at_least_zero(caller: str, **values: float) -> None:
    for name, value in values.items():
        if value < 0.0:
            raise ValueError(f"[{caller}] {name} should be >=0, {value} was provided instead.")


def _above_zero(caller: str, **values: float) -> None:
    for name, value in values.items():
        if value <= 0.0:
            raise ValueError(f"[{caller}] {name} should be >0, {value} was provided instead.")


def _below_one(caller: str, betas: Iterable[float]) -> None:
    for i, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"[{caller}] beta{i + 1} should be in [0, 1), {beta} was provided instead.")
