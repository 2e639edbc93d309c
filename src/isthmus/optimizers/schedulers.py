"""Schedules: each function here makes one, a function from the number of the step to a value such as a learning rate.

An optimizer calls a schedule with its step, a uint64 array, before each update; the first step is 0.
"""

import math
from collections.abc import Callable
from typing import Any

import isthmus.core as mx

__all__ = ["cosine_decay", "exponential_decay", "join_schedules", "linear_schedule", "step_decay"]

Schedule = Callable[[Any], mx.array]


def exponential_decay(init: float, decay_rate: float) -> Schedule:
    """``init * decay_rate**step``.

    Example:
        >>> optim.exponential_decay(0.1, 0.9)(mx.array(5))
        array(0.059049, dtype=float32)
    """

    def schedule(step: Any) -> Any:
        return init * decay_rate**step

    return schedule


def step_decay(init: float, decay_rate: float, step_size: int) -> Schedule:
    """``init``, times ``decay_rate`` at every ``step_size``-th step.

    Raises:
        ValueError: ``step_size`` is not positive.

    Example:
        >>> optim.step_decay(0.1, 0.9, 10)(mx.array(21))
        array(0.081, dtype=float32)
    """
    if step_size < 1:
        raise ValueError(f"[step_decay] step_size must be greater than 0, but got {step_size}.")

    def schedule(step: Any) -> Any:
        return init * (decay_rate ** (step // step_size))

    return schedule


def cosine_decay(init: float, decay_steps: int, end: float = 0.0) -> Schedule:
    """Half a cosine wave from ``init`` down to ``end`` over ``decay_steps`` steps, then ``end``.

    Raises:
        ValueError: ``decay_steps`` is not positive.

    Example:
        >>> optim.cosine_decay(0.1, 1000)(mx.array(500))
        array(0.05, dtype=float32)

    Source: Loshchilov and Hutter (2017), arXiv:1608.03983.
    """
    if decay_steps < 1:
        raise ValueError(f"[cosine_decay] decay_steps must be greater than 0, but got {decay_steps}.")

    def schedule(step: Any) -> mx.array:
        reached = mx.minimum(step, decay_steps)
        decay = 0.5 * (1.0 + mx.cos((math.pi / decay_steps) * reached))
        return end + decay * (init - end)

    return schedule


def linear_schedule(init: float, end: float, steps: int) -> Schedule:
    """A straight line from ``init`` to ``end`` over ``steps`` steps, then ``end``.

    Raises:
        ValueError: ``steps`` is not positive.

    Example:
        >>> optim.linear_schedule(0, 0.1, 100)(mx.array(50))
        array(0.05, dtype=float32)
    """
    if steps < 1:
        raise ValueError(f"[linear_schedule] steps must be greater than 0, but got {steps}.")

    def schedule(step: Any) -> mx.array:
        return mx.minimum(step, steps) * ((end - init) / steps) + init

    return schedule


def join_schedules(schedules: list[Schedule], boundaries: list[int]) -> Schedule:
    """One schedule after another.

    Args:
        schedules: Each counts its steps from its own boundary.
        boundaries: The step at which each schedule but the first begins.

    Raises:
        ValueError: There are no schedules, or not one boundary fewer than schedules.

    Example:
        >>> warmup = optim.linear_schedule(0, 0.1, steps=10)
        >>> rate = optim.join_schedules([warmup, optim.cosine_decay(0.1, 200)], [10])
        >>> rate(mx.array(10))
        array(0.1, dtype=float32)
    """
    if not schedules:
        raise ValueError("[join_schedules] Must provide at least 1 schedule to join.")
    if len(boundaries) != len(schedules) - 1:
        raise ValueError(
            f"[join_schedules] Received {len(boundaries)} boundaries but expected {len(schedules) - 1}: "
            "one between each two schedules."
        )

    def schedule(step: Any) -> mx.array:
        value = schedules[0](step)
        for boundary, later in zip(boundaries, schedules[1:], strict=True):
            # Not step - boundary: an unsigned step wraps around below the boundary.
            value = mx.where(step < boundary, value, later(mx.maximum(step, boundary) - boundary))
        return value

    return schedule
