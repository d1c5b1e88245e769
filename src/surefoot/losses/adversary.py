"""The inputs nearby that the model gets most wrong: projected gradient ascent on the cross-entropy (Madry 2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from surefoot.losses.base import wide
from surefoot.margins.ball import Ball

__all__ = ["adversary"]


def adversary(model: nn.Module, inputs: Tensor, labels: Tensor, ball: Ball, steps: int, step: float) -> Tensor:
    """Inputs (b, ...) moved within the ball, from the clean ones, by ``steps`` steps of ``step`` radii each.

    The model is used as it is: hold it still first, so that examples do not mix.
    """
    radius = ball.radius.to(inputs)
    clean = inputs.detach()
    u = torch.zeros_like(clean)
    for _ in range(steps):
        point = (clean + radius * u).requires_grad_()
        loss = cross_entropy(wide(model(point)), labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, point, allow_unused=True)
        if gradient is None:  # nothing depends on the inputs
            break
        u = ball.project(u + step * ball.steepest(radius * gradient))
    return clean + radius * u
