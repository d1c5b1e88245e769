"""Two changes of the cross-entropy against overconfidence: smoothed labels and a confidence penalty."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from surefoot.errors import BadInput
from surefoot.loss import Loss, softmax_hessian_product
from surefoot.validation import check_non_negative

__all__ = ["ConfidencePenalty", "LabelSmoothing"]


class LabelSmoothing(Loss):
    """(1 − α) ℓ + α · mean_k(−log p_k): α/K on every class, the label's included, as in torch (Szegedy et al. 2016).

    Others put α/(K − 1) on the wrong classes alone: their α is this α times (K − 1)/K. The optimum has
    p_y = 1 − α + α/K, and therefore a finite margin.

    Args:
        alpha: α in [0, 1); the papers take 0.05 or 0.1.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        BadInput: if an argument is out of its range.

    Example:
        >>> LabelSmoothing(0.1)(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
        tensor(0.2269)

    References:
        Szegedy et al. (2016), "Rethinking the Inception Architecture for Computer Vision".
    """

    masks = False
    convex = True
    needs_labels = False

    def __init__(self, alpha: float = 0.1, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.alpha = check_non_negative("alpha", alpha)
        if self.alpha >= 1:
            raise BadInput(f"alpha must lie in [0, 1), or the label has no weight left; got {alpha!r}")

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(n,) the cross-entropy with smoothed labels."""
        return cross_entropy(logits, labels, reduction="none", label_smoothing=self.alpha)

    def hessian_product(self, logits: Tensor, labels: Tensor | None, u: Tensor) -> Tensor:
        """(n, k) the product of the cross-entropy: smoothing adds a linear function of the logits."""
        return softmax_hessian_product(logits, u)


class ConfidencePenalty(Loss):
    """ℓ − β H(p), H the entropy in nats (Pereyra et al. 2017).

    Where a reference averages H over the classes as well, its β is this β times K.

    Args:
        beta: β ≥ 0.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        BadInput: if an argument is out of its range.

    Example:
        >>> ConfidencePenalty(1.0)(torch.zeros(1, 2), torch.tensor([0]))
        tensor(0.)

    References:
        Pereyra et al. (2017), "Regularizing Neural Networks by Penalizing Confident Output Distributions".
    """

    def __init__(self, beta: float = 0.1, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.beta = check_non_negative("beta", beta)

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(n,) ℓ + β Σ_k p_k log p_k."""
        log_p = logits.log_softmax(dim=1)
        # Where p is 0 the product is its limit, 0; this includes a class that a logit of −∞ rules out.
        negative_entropy = (log_p.exp() * log_p.clamp(min=torch.finfo(log_p.dtype).min)).sum(dim=1)
        return self.beta * negative_entropy - log_p.gather(1, labels[:, None]).squeeze(1)
