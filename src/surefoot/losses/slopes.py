"""Gaps between the label's logit and competing logits; slopes by the inputs, differentiable by the weights."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["runner_up_gaps", "slope_of"]


def runner_up_gaps(logits: Tensor, labels: Tensor, count: int) -> Tensor:
    """z_y − z_j for the ``count`` largest competing logits j ≠ y, the nearest first.

    The choice of the classes is treated as a constant: the gradient is the gradient of the chosen gaps.

    Args:
        logits: (b, k).
        labels: (b,) integers.
        count: number of gaps, from 1 to k − 1.

    Returns:
        (b, count).

    Example:
        >>> runner_up_gaps(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([0]), 2)
        tensor([[1., 2.]])
    """
    others = logits.detach().scatter(1, labels[:, None], -torch.inf)
    chosen = others.topk(count, dim=1).indices
    return logits.gather(1, labels[:, None]) - logits.gather(1, chosen)


def slope_of(gaps: Tensor, inputs: Tensor) -> Tensor:
    """The gradient of gaps by the inputs, differentiable once more.

    Args:
        gaps: (b,), the i-th gap a function of the i-th input.
        inputs: (b, ...).

    Returns:
        (b, ...); 0 where the gaps do not depend on the inputs.

    Example:
        >>> x = torch.tensor([3.0], requires_grad=True)
        >>> slope_of(x**2, x).tolist()
        [6.0]
    """
    if not gaps.requires_grad:
        return torch.zeros_like(inputs)
    (gradient,) = torch.autograd.grad(gaps.sum(), inputs, create_graph=True, allow_unused=True)
    return torch.zeros_like(inputs) if gradient is None else gradient
