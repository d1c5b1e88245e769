"""Gradient descent: SGD by its honest name where the gradient is of the whole training set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.optim import SGD

from surefoot.optim.base import check_groups
from surefoot.validation import check_non_negative

__all__ = ["GD"]


class GD(SGD):
    """θ ← θ − lr · ∇L(θ), the loss being that of all training data: what the edge of stability, λ_max = 2/lr, is about.

    Args:
        params: parameters, named or not, or groups of them.
        lr: step size.
    """

    def __init__(self, params: Iterable[Any], lr: float) -> None:
        super().__init__(params, lr=check_non_negative("lr", lr))
        check_groups(self.param_groups)
