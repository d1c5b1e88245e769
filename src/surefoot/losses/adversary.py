"""The inputs nearby that the model gets most wrong: projected gradient ascent on the cross-entropy (Madry 2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from surefoot.loss import wide
from surefoot.margins.ball import Ball

__all__ = ["adversary", "uphill"]


def adversary(
    model: nn.Module, inputs: Tensor, labels: Tensor, ball: Ball, steps: int, step: float, first: Tensor | None = None
) -> Tensor:
    """Inputs (b, ...) moved within the ball, from the clean ones, by ``steps`` steps of ``step`` radii each.

    The model is used as it is: hold it still first, so that examples do not mix. ``first`` is the gradient at the clean
    inputs, where the caller has it already.
    """
    radius = ball.radius.to(inputs)
    clean = inputs.detach()
    u = torch.zeros_like(clean)
    for place in range(steps):
        gradient = first if first is not None and not place else _uphill(model, clean + radius * u, labels)
        u = ball.project(u + step * ball.steepest(radius * gradient))
    return clean + radius * u


def _uphill(model: nn.Module, point: Tensor, labels: Tensor) -> Tensor:
    point.requires_grad_()
    return uphill(wide(model(point)), labels, point)


def uphill(logits: Tensor, labels: Tensor, inputs: Tensor) -> Tensor:
    """(b, ...) the gradient of each example's cross-entropy by its inputs; the logits' graph is kept."""
    loss = cross_entropy(logits, labels, reduction="sum")
    found = None
    if loss.requires_grad:
        (found,) = torch.autograd.grad(loss, inputs, allow_unused=True, retain_graph=True)
    return torch.zeros_like(inputs) if found is None else found  # nothing depends on the inputs
