"""Squared error of the logits against one-hot labels; the conventions are those of `surefoot.curvature`."""

from __future__ import annotations

from torch import Tensor

from surefoot.curvature.losses import SquaredError as _SquaredError
from surefoot.losses.base import Loss

__all__ = ["SquaredError"]

_NAMES = {"mean": "mse", "half": "mse-half", "sum": "mse-sum"}


class SquaredError(Loss):
    """‖z − e_y‖² divided by K (``"mean"``), halved (``"half"``), or as it is (``"sum"``).

    Appendix D of Morosini et al. (2026) has the mean.

    The optimum has logits e_y, whose softmax is sure of nothing: e/(e + K − 1).

    >>> import torch
    >>> SquaredError("half")(torch.zeros(2, 5), torch.tensor([0, 1]))
    tensor(0.5000)
    """

    masks = False

    def __init__(self, convention: str = "mean", reduction: str = "mean") -> None:
        super().__init__(reduction)
        self._error = _SquaredError(convention)
        self.curvature = _NAMES[convention]

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(n,) the squared distance, scaled."""
        return self._error.values(logits, labels)
