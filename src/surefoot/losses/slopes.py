"""How steeply logits fall towards their rivals, by the inputs; differentiable once more by the weights."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["runner_up_gaps", "slope_of"]


def runner_up_gaps(logits: Tensor, labels: Tensor, count: int) -> Tensor:
    """(b, count) z_y − z_j for the ``count`` largest rivals j ≠ y, the nearest first.

    Which classes they are is taken as a constant: the gradient is that of the classes chosen.
    """
    others = logits.detach().scatter(1, labels[:, None], -torch.inf)
    chosen = others.topk(count, dim=1).indices
    return logits.gather(1, labels[:, None]) - logits.gather(1, chosen)


def slope_of(gaps: Tensor, inputs: Tensor) -> Tensor:
    """(b, *shape) the gradient of gaps (b,) by the inputs (b, *shape), of which example i's gap must be a function."""
    if not gaps.requires_grad:
        return torch.zeros_like(inputs)
    (found,) = torch.autograd.grad(gaps.sum(), inputs, create_graph=True, allow_unused=True)
    return torch.zeros_like(inputs) if found is None else found
