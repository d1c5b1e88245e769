"""Gradient descent: SGD under its proper name for gradients of the whole training set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.optim import SGD

from surefoot.optim.base import check_groups
from surefoot.validation import check_non_negative

__all__ = ["GD"]


class GD(SGD):
    """Gradient descent: θ ← θ − lr · ∇L(θ), with L the loss of all training data.

    The edge of stability, λ_max = 2/lr, is a property of this optimizer.

    Args:
        params: parameters, named or not, or groups of them.
        lr: step size, at least 0.

    Raises:
        BadInput: if ``lr`` is out of its range, or a parameter group is empty.

    Example:
        >>> import torch
        >>> GD([torch.zeros(1, requires_grad=True)], lr=0.5).defaults["lr"]
        0.5
    """

    def __init__(self, params: Iterable[Any], lr: float) -> None:
        super().__init__(params, lr=check_non_negative("lr", lr))
        check_groups(self.param_groups)
