"""Loss functions.

Each computes a loss per element or per row and then reduces it: ``reduction`` is ``"none"``, ``"mean"`` or ``"sum"``.
16-bit inputs are widened to float32 and the result, reduction included, is rounded once.
"""

import math
from typing import Literal, get_args

import isthmus.core as mx
from isthmus.nn.precision import computed_in_float32

__all__ = [
    "binary_cross_entropy",
    "cosine_similarity_loss",
    "cross_entropy",
    "gaussian_nll_loss",
    "hinge_loss",
    "huber_loss",
    "kl_div_loss",
    "l1_loss",
    "log_cosh_loss",
    "margin_ranking_loss",
    "mse_loss",
    "nll_loss",
    "smooth_l1_loss",
    "triplet_loss",
]

Reduction = Literal["none", "mean", "sum"]


@computed_in_float32
def cross_entropy(
    logits: mx.array,
    targets: mx.array,
    weights: mx.array | None = None,
    axis: int = -1,
    label_smoothing: float = 0.0,
    reduction: Reduction = "none",
) -> mx.array:
    """Cross entropy between targets and the softmax of ``logits``.

    Args:
        logits: Unnormalized logarithms of probabilities, ``(..., C)`` for ``axis=-1``.
        targets: Indices of classes, ``(...)``, or probabilities, ``(..., C)``.
        weights: A weight for each loss, ``(...)``; ``"mean"`` divides by the number of losses, not by their sum.
        axis: Where the classes lie.
        label_smoothing: How much of each target is spread evenly over all classes, in [0, 1).
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.

    Returns:
        ``(...)``, or a scalar.

    Raises:
        ValueError: Shapes do not match, or ``label_smoothing`` or ``reduction`` is out of range.

    Example:
        >>> logits = mx.array([[2.0, -1.0], [-1.0, 2.0]])
        >>> nn.losses.cross_entropy(logits, mx.array([0, 1]))
        array([0.0485873, 0.0485873], dtype=float32)
    """
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"[cross_entropy] Label smoothing must be in [0, 1), got {label_smoothing}.")
    as_probabilities = targets.ndim == logits.ndim
    expected = list(logits.shape)
    if not as_probabilities:
        del expected[axis]
    if targets.shape != tuple(expected):
        raise ValueError(
            f"[cross_entropy] Targets shape {targets.shape} does not match logits shape {logits.shape}: it must be "
            f"that shape, or for indices of classes that shape without axis {axis}."
        )
    if as_probabilities:
        # From the largest logit on, as MLX's: it shows where targets do not sum to 1, and in the gradient by targets.
        logits = logits - mx.stop_gradient(mx.max(logits, axis=axis, keepdims=True))
        # A class of probability 0 adds nothing, also where its logit is -inf.
        score = mx.sum(mx.where(targets == 0, 0, logits * targets), axis=axis)
    else:
        score = _picked(logits, targets, axis)
    loss = mx.logsumexp(logits, axis=axis)
    if label_smoothing > 0:
        loss = loss - (1 - label_smoothing) * score - label_smoothing * mx.mean(logits, axis=axis)
    else:
        loss = loss - score
    return _reduce(_weighted(loss, weights, "cross_entropy"), reduction)


@computed_in_float32
def binary_cross_entropy(
    inputs: mx.array,
    targets: mx.array,
    weights: mx.array | None = None,
    with_logits: bool = True,
    reduction: Reduction = "mean",
) -> mx.array:
    """Cross entropy between targets in [0, 1] and predicted probabilities of 1.

    Args:
        inputs: Logits; with ``with_logits=False`` probabilities, whose logarithms are held at or above -100.
        targets: The shape of ``inputs``.
        weights: A weight for each loss, the shape of ``inputs``.
        with_logits: Whether ``inputs`` are logits.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.

    Raises:
        ValueError: Shapes do not match, or ``reduction`` is something else.

    Example:
        >>> nn.losses.binary_cross_entropy(mx.array([0.1, 0.4]), mx.array([0, 1]), with_logits=False)
        array(0.510826, dtype=float32)
    """
    _same_shape("binary_cross_entropy", inputs=inputs, targets=targets)
    if with_logits:
        loss = mx.logaddexp(0.0, inputs) - inputs * targets
    else:
        loss = -(targets * _bounded_log(inputs) + (1 - targets) * _bounded_log(1 - inputs))
    return _reduce(_weighted(loss, weights, "binary_cross_entropy"), reduction)


@computed_in_float32
def l1_loss(predictions: mx.array, targets: mx.array, reduction: Reduction = "mean") -> mx.array:
    """Absolute difference.

    Raises:
        ValueError: Shapes do not match, or ``reduction`` is something else.
    """
    _same_shape("l1_loss", predictions=predictions, targets=targets)
    return _reduce(mx.abs(predictions - targets), reduction)


@computed_in_float32
def mse_loss(predictions: mx.array, targets: mx.array, reduction: Reduction = "mean") -> mx.array:
    """Squared difference.

    Raises:
        ValueError: Shapes do not match, or ``reduction`` is something else.
    """
    _same_shape("mse_loss", predictions=predictions, targets=targets)
    return _reduce(mx.square(predictions - targets), reduction)


@computed_in_float32
def smooth_l1_loss(
    predictions: mx.array, targets: mx.array, beta: float = 1.0, reduction: Reduction = "mean"
) -> mx.array:
    """``d**2 / (2 * beta)`` for an absolute difference ``d`` below ``beta``, else ``d - beta / 2``.

    Raises:
        ValueError: Shapes do not match, or ``reduction`` is something else.

    Source: Girshick (2015), arXiv:1504.08083.
    """
    _same_shape("smooth_l1_loss", predictions=predictions, targets=targets)
    d = mx.abs(predictions - targets)
    return _reduce(mx.where(d < beta, 0.5 * mx.square(d) / beta, d - 0.5 * beta), reduction)


@computed_in_float32
def huber_loss(
    inputs: mx.array, targets: mx.array, delta: float = 1.0, reduction: Reduction = "none"
) -> mx.array:
    """``d**2 / 2`` for an absolute difference ``d`` up to ``delta``, else ``delta * (d - delta / 2)``.

    Source: Huber (1964), doi:10.1214/aoms/1177703732.
    """
    error = inputs - targets
    d = mx.abs(error)
    return _reduce(mx.where(d <= delta, 0.5 * mx.square(error), delta * (d - 0.5 * delta)), reduction)


@computed_in_float32
def log_cosh_loss(inputs: mx.array, targets: mx.array, reduction: Reduction = "none") -> mx.array:
    """``log(cosh(d))`` of the difference ``d``, without overflow."""
    d = inputs - targets
    return _reduce(mx.logaddexp(d, -d) - math.log(2), reduction)


@computed_in_float32
def nll_loss(inputs: mx.array, targets: mx.array, axis: int = -1, reduction: Reduction = "none") -> mx.array:
    """The negative of the logarithm of a probability that the target picks along ``axis``.

    Args:
        inputs: Logarithms of probabilities, ``(..., C)`` for ``axis=-1``.
        targets: Indices of classes, ``(...)``.
        axis: Where the classes lie.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.
    """
    return _reduce(-_picked(inputs, targets, axis), reduction)


@computed_in_float32
def gaussian_nll_loss(
    inputs: mx.array,
    targets: mx.array,
    vars: mx.array,
    full: bool = False,
    eps: float = 1e-6,
    reduction: Reduction = "mean",
) -> mx.array:
    """Negative log likelihood of targets that are normally distributed.

    Args:
        inputs: Predicted means.
        targets: Samples, the shape of ``inputs``.
        vars: Predicted variances, the shape of ``inputs``; held at or above ``eps``.
        full: Whether to add the constant ``log(2 * pi) / 2``.
        eps: The smallest variance.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.

    Raises:
        ValueError: Shapes do not match, or ``reduction`` is something else.
    """
    _same_shape("gaussian_nll_loss", inputs=inputs, targets=targets)
    _same_shape("gaussian_nll_loss", inputs=inputs, vars=vars)
    variance = mx.maximum(vars, eps)
    loss = 0.5 * (mx.log(variance) + mx.square(targets - inputs) / variance)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduce(loss, reduction)


@computed_in_float32
def kl_div_loss(inputs: mx.array, targets: mx.array, axis: int = -1, reduction: Reduction = "none") -> mx.array:
    """Kullback-Leibler divergence along ``axis``, both distributions given by logarithms of probabilities."""
    return _reduce(mx.sum(mx.exp(targets) * (targets - inputs), axis=axis), reduction)


@computed_in_float32
def hinge_loss(inputs: mx.array, targets: mx.array, reduction: Reduction = "none") -> mx.array:
    """``max(0, 1 - inputs * targets)`` for targets of -1 or 1."""
    return _reduce(mx.maximum(1 - inputs * targets, 0), reduction)


@computed_in_float32
def margin_ranking_loss(
    inputs1: mx.array, inputs2: mx.array, targets: mx.array, margin: float = 0.0, reduction: Reduction = "none"
) -> mx.array:
    """``max(0, -targets * (inputs1 - inputs2) + margin)``: targets of 1 want the first larger, of -1 the second.

    Raises:
        ValueError: Shapes do not match, or ``reduction`` is something else.
    """
    _same_shape("margin_ranking_loss", inputs1=inputs1, inputs2=inputs2)
    _same_shape("margin_ranking_loss", inputs1=inputs1, targets=targets)
    return _reduce(mx.maximum(0, -targets * (inputs1 - inputs2) + margin), reduction)


@computed_in_float32
def cosine_similarity_loss(
    x1: mx.array, x2: mx.array, axis: int = 1, eps: float = 1e-8, reduction: Reduction = "none"
) -> mx.array:
    """Cosine of the angle between vectors along ``axis``; the product of their norms is held at or above ``eps``."""
    norms = mx.sqrt(mx.sum(mx.square(x1), axis=axis)) * mx.sqrt(mx.sum(mx.square(x2), axis=axis))
    return _reduce(mx.sum(x1 * x2, axis=axis) / mx.maximum(norms, eps), reduction)


@computed_in_float32
def triplet_loss(
    anchors: mx.array,
    positives: mx.array,
    negatives: mx.array,
    axis: int = -1,
    p: int = 2,
    margin: float = 1.0,
    eps: float = 1e-6,
    reduction: Reduction = "none",
) -> mx.array:
    """``max(|a - p| - |a - n| + margin, 0)`` with ``p``-norms along ``axis``; ``eps`` is added under the root.

    Source: Schroff, Kalenichenko and Philbin (2015), arXiv:1503.03832.
    """

    def distance(x: mx.array, y: mx.array) -> mx.array:
        if p == 2:
            return mx.sqrt(mx.sum(mx.square(x - y), axis=axis) + eps)
        return mx.power(mx.sum(mx.power(mx.abs(x - y), p), axis=axis) + eps, 1 / p)

    return _reduce(mx.maximum(distance(anchors, positives) - distance(anchors, negatives) + margin, 0), reduction)


def _reduce(loss: mx.array, reduction: Reduction) -> mx.array:
    if reduction == "mean":
        return mx.mean(loss)
    if reduction == "sum":
        return mx.sum(loss)
    if reduction == "none":
        return loss
    raise ValueError(f"[losses] Invalid reduction {reduction!r}. Must be one of {get_args(Reduction)}.")


def _weighted(loss: mx.array, weights: mx.array | None, caller: str) -> mx.array:
    if weights is None:
        return loss
    if weights.shape != loss.shape:
        raise ValueError(
            f"[{caller}] Weights with shape {weights.shape} is not the same as output loss with shape {loss.shape}."
        )
    return loss * weights


def _picked(x: mx.array, index: mx.array, axis: int) -> mx.array:
    """The element of each row of ``x`` along ``axis`` that ``index`` names; the shape of ``index``."""
    return mx.squeeze(mx.take_along_axis(x, mx.expand_dims(index, axis), axis=axis), axis)


def _bounded_log(x: mx.array) -> mx.array:
    """``max(log(x), -100)``, with gradient 0 at 0 in place of NaN."""
    zero = x == 0
    return mx.where(zero, -100.0, mx.maximum(mx.log(mx.where(zero, 1, x)), -100.0))


def _same_shape(caller: str, **two: mx.array) -> None:
    (a, x), (b, y) = two.items()
    if x.shape != y.shape:
        raise ValueError(f"[{caller}] {a.capitalize()} shape {x.shape} does not match {b} shape {y.shape}.")
