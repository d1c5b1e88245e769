"""Mixed inputs: mixup (Zhang et al. 2018), and MIT-L, which recovers the parts of mixtures (Wang et al. 2023)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from surefoot.errors import BadInput
from surefoot.loss import wide
from surefoot.losses.objective import Batch, Objective
from surefoot.validation import check_non_negative

__all__ = ["MITL", "Mixup", "taken_apart"]

_MIN_DISTANCE = 0.05  # of the shares of two mixtures, by which `taken_apart` divides


def _share(alpha: float) -> float:
    """A draw from Beta(α, α) by torch's generator, which the loop seeds by the step; 1 for α = 0."""
    if alpha == 0:
        return 1.0
    size = torch.tensor(alpha, dtype=torch.float64)
    return float(torch.distributions.Beta(size, size, validate_args=False).sample())


class Mixup(Objective):
    """λ CE(z, y) + (1 − λ) CE(z, y′) of logits z at λx + (1 − λ)x′; λ ~ Beta(α, α), (x′, y′) the batch shuffled.

    An optimizer that weights examples by their label's probability, such as CSAM, uses the label of the larger share.

    Args:
        alpha: α ≥ 0; 0 mixes nothing.

    Raises:
        BadInput: if ``alpha`` is out of its range.

    Example:
        >>> batch = Batch(torch.zeros(2, 2), torch.tensor([0, 1]), torch.arange(2), 0)
        >>> Mixup()(nn.Identity(), batch)
        tensor(0.6931)

    References:
        Zhang et al. (2018), "mixup: Beyond Empirical Risk Minimization".
    """

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = check_non_negative("alpha", alpha)

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of a batch, a scalar."""
        x, y = batch.inputs, batch.labels
        share, order = _share(self.alpha), torch.randperm(len(x)).to(x.device)
        logits = wide(model(share * x + (1 - share) * x[order]))
        own, other = (cross_entropy(logits, labels, reduction="none") for labels in (y, y[order]))
        return self.mean(logits, y if share >= 0.5 else y[order], share * own + (1 - share) * other)


def taken_apart(first: Tensor, second: Tensor, larger: float, smaller: float) -> tuple[Tensor, Tensor]:
    """Logits of x and x′ from those of the mixtures λ₁x + (1 − λ₁)x′ and λ₂x + (1 − λ₂)x′, as if logits were linear.

    o = ((1 − λ₂) o₁ − (1 − λ₁) o₂) / (λ₁ − λ₂), o′ = (λ₁ o₂ − λ₂ o₁) / (λ₁ − λ₂).

    Args:
        first: o₁ (n, k), the logits of the first mixture.
        second: o₂ (n, k), the logits of the second mixture.
        larger: λ₁.
        smaller: λ₂ < λ₁.

    Returns:
        o and o′, both (n, k).

    Example:
        >>> taken_apart(torch.tensor([[3.0]]), torch.tensor([[1.0]]), larger=1.0, smaller=0.0)
        (tensor([[3.]]), tensor([[1.]]))

    References:
        Wang et al. (2023), "On the Pitfall of Mixup for Uncertainty Calibration".
    """
    distance = larger - smaller
    own = ((1 - smaller) * first - (1 - larger) * second) / distance
    other = (larger * second - smaller * first) / distance
    return own, other


class MITL(Objective):
    """The mean of CE at the logits of x and at those of x′, both recovered from two mixtures, λ₁ ≥ ½ ≥ λ₂.

    The objective runs two forward passes, so batch norm sees both mixtures.

    Args:
        alpha: of Beta(α, α), above 0 and at most 1,000.
        margin: draw again until λ₁ − λ₂ is at least ``margin``, from 0 to 0.9. The difference is never below 0.05,
            since the formula divides by it.

    Raises:
        BadInput: if an argument is out of its range; when called, if 1,000 draws do not reach ``margin``.

    Example:
        >>> MITL().gradients
        2

    References:
        Wang et al. (2023), "On the Pitfall of Mixup for Uncertainty Calibration".
    """

    gradients = 2

    def __init__(self, alpha: float = 1.0, margin: float = 0.0) -> None:
        super().__init__()
        self.alpha, self.margin = check_non_negative("alpha", alpha), check_non_negative("margin", margin)
        if not 0 < self.alpha <= 1e3:
            raise BadInput(f"alpha must lie above 0 and at most at 1,000, or all mixtures are alike; got {alpha!r}")
        if self.margin > 0.9:
            raise BadInput(f"margin must be at most 0.9, or hardly a draw satisfies it; got {margin!r}")

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of a batch, a scalar."""
        x, y = batch.inputs, batch.labels
        larger, smaller = self._shares()
        order = torch.randperm(len(x)).to(x.device)
        first, second = (wide(model(share * x + (1 - share) * x[order])) for share in (larger, smaller))
        logits = torch.cat(taken_apart(first, second, larger, smaller))
        labels = torch.cat([y, y[order]])
        return self.mean(logits, labels, cross_entropy(logits, labels, reduction="none"))

    def _shares(self) -> tuple[float, float]:
        for _ in range(1000):
            larger, smaller = (max(s, 1 - s) for s in (_share(self.alpha), _share(self.alpha)))
            smaller = 1 - smaller
            if larger - smaller >= max(self.margin, _MIN_DISTANCE):
                return larger, smaller
        raise BadInput(
            f"margin {self.margin:g} is out of reach of Beta({self.alpha:g}, {self.alpha:g}); make it smaller"
        )
