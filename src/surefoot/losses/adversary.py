"""Adversarial inputs: projected gradient ascent on the cross-entropy (Madry et al. 2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from surefoot.loss import wide
from surefoot.margins.ball import Ball

__all__ = ["adversary", "uphill"]


def adversary(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    ball: Ball,
    steps: int,
    step_size: float,
    first: Tensor | None = None,
) -> Tensor:
    """Inputs within the ball around the clean inputs, after ``steps`` steps of projected gradient ascent.

    The model is used as it is. Freeze the model first (see `frozen_network`), so that examples do not mix.

    Args:
        model: maps inputs to logits.
        inputs: (b, ...) clean inputs, where the ascent starts.
        labels: (b,) integers.
        ball: the set of allowed moves.
        steps: number of steps.
        step_size: length of a step in radii of the ball.
        first: (b, ...) the gradient at the clean inputs, if the caller has computed this gradient already.

    Returns:
        (b, ...) the moved inputs.

    References:
        Madry et al. (2018), "Towards Deep Learning Models Resistant to Adversarial Attacks".
    """
    radius = ball.radius.to(inputs)
    clean = inputs.detach()
    u = torch.zeros_like(clean)
    for index in range(steps):
        gradient = first if first is not None and not index else _uphill(model, clean + radius * u, labels)
        u = ball.project(u + step_size * ball.steepest(radius * gradient))
    return clean + radius * u


def _uphill(model: nn.Module, point: Tensor, labels: Tensor) -> Tensor:
    point.requires_grad_()
    return uphill(wide(model(point)), labels, point)


def uphill(logits: Tensor, labels: Tensor, inputs: Tensor) -> Tensor:
    """The gradient of each example's cross-entropy by its inputs; the graph of the logits is kept.

    Args:
        logits: (b, k), computed from ``inputs``.
        labels: (b,) integers.
        inputs: (b, ...).

    Returns:
        (b, ...) the gradient; 0 where the logits do not depend on the inputs.

    Example:
        >>> inputs = torch.zeros(1, 2, requires_grad=True)
        >>> uphill(2 * inputs, torch.tensor([0]), inputs)
        tensor([[-1.,  1.]])
    """
    loss = cross_entropy(logits, labels, reduction="sum")
    gradient = None
    if loss.requires_grad:
        (gradient,) = torch.autograd.grad(loss, inputs, allow_unused=True, retain_graph=True)
    return torch.zeros_like(inputs) if gradient is None else gradient  # nothing depends on the inputs
