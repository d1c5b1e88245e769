"""Bounds on the spread of logits: MbLS (Liu et al. 2022) and ACLS (Park et al. 2023)."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import cross_entropy, relu

from surefoot.loss import Loss
from surefoot.validation import check_non_negative

__all__ = ["ACLS", "MbLS"]


class MbLS(Loss):
    """ℓ + α · mean_k relu(max z − z_k − M): a logit may lie at most M below the largest logit without a penalty.

    Args:
        margin: M ≥ 0; the authors take 10, others 6.
        alpha: α ≥ 0.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        BadInput: if an argument is out of its range.

    Example:
        >>> from torch import tensor
        >>> MbLS(margin=1.0, alpha=1.0)(tensor([[3.0, 0.0]]), tensor([0]))
        tensor(1.0486)

    References:
        Liu et al. (2022), "The Devil is in the Margin: Margin-Based Label Smoothing for Network Calibration".
    """

    masks = False

    def __init__(self, margin: float = 10.0, alpha: float = 0.1, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin, self.alpha = check_non_negative("margin", margin), check_non_negative("alpha", alpha)

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(n,) ℓ plus the mean excess of the example's logits."""
        excess = relu(logits.amax(dim=1, keepdim=True) - logits - self.margin)
        return cross_entropy(logits, labels, reduction="none") + self.alpha * excess.mean(dim=1)


class ACLS(Loss):
    """ℓ + α [λ₁ relu(z_max − M)² + λ₂ mean_{k≠max} relu(z_max − z_k − M)²], z_max a constant in the second term.

    The first term penalises the value of the largest logit, not a distance. Where several logits are the largest, one
    of them counts.

    Args:
        alpha: α ≥ 0.
        top: λ₁ ≥ 0.
        others: λ₂ ≥ 0.
        margin: M ≥ 0.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        BadInput: if an argument is out of its range.

    Example:
        >>> from torch import tensor
        >>> ACLS(alpha=1.0, margin=1.0)(tensor([[3.0, 0.0]]), tensor([0]))
        tensor(4.4486)

    References:
        Park et al. (2023), "ACLS: Adaptive and Conditional Label Smoothing for Network Calibration".
    """

    masks = False

    def __init__(
        self,
        alpha: float = 0.1,
        top: float = 1.0,
        others: float = 0.1,
        margin: float = 10.0,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        self.alpha, self.margin = check_non_negative("alpha", alpha), check_non_negative("margin", margin)
        self.top, self.others = check_non_negative("top", top), check_non_negative("others", others)

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(n,) ℓ plus the two penalties."""
        largest = logits.gather(1, logits.detach().argmax(dim=1, keepdim=True))
        first = relu(largest.squeeze(1) - self.margin).square()
        # The largest logit's own distance is 0, below the margin: no mask is needed.
        rest = relu(largest.detach() - logits - self.margin).square().sum(dim=1) / (logits.shape[1] - 1)
        penalty = self.top * first + self.others * rest
        return cross_entropy(logits, labels, reduction="none") + self.alpha * penalty
