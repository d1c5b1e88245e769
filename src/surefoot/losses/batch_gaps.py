"""Cross-entropy and a calibration error of the batch: MMCE (kernel), MDCA (by class), soft-binned ECE.

All of them are of the global batch, over every rank.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from surefoot.loss import Loss
from surefoot.losses.ranks import gathered
from surefoot.validation import check_bool, check_int, check_non_negative, check_positive

__all__ = ["MDCA", "MMCE", "SoftECE", "soft_ece", "weighted_mmce"]

# Below this the root of an error is not followed: its slope would be made of rounding.
_FLOOR = 1e-12


def _confidence(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """(n,) confidence and correctness of the global batch."""
    confidence, predicted = logits.softmax(dim=1).max(dim=1)
    return gathered(confidence), gathered((predicted == labels).to(confidence.dtype))


def weighted_mmce(confidence: Tensor, correct: Tensor, bandwidth: float = 0.4, legacy: bool = False) -> Tensor:
    """√(wᵀ K w): w_i is (1 − c_i)/n₁ for the n₁ right examples, −c_i/n₀ for the n₀ wrong ones, K the Laplacian kernel.

    If all are right, or all wrong, the other group has no part (Kumar et al. 2018, Section 3.3). ``legacy`` is the
    reference code: its groups' means are divided by the square of the group's size once more, 10⁻⁵ and 10⁻¹⁰ keep
    divisions and root away from 0, and a batch without right or without wrong examples gives 0.

    Args:
        confidence, correct: (n,), correct as 0 or 1.
        bandwidth: of K_ij = exp(−|c_i − c_j| / bandwidth).
    """
    kernel = (-(confidence[:, None] - confidence[None]).abs() / bandwidth).exp()
    right, wrong = correct * (1 - confidence), (1 - correct) * confidence
    n1, n0 = correct.sum(), (1 - correct).sum()
    if legacy:
        ends = ((right, right, n1 * n1, 1.0), (wrong, wrong, n0 * n0, 1.0), (right, wrong, n1 * n0, -2.0))
        parts = [s * (a @ kernel @ b) / n.clamp_min(1) / (n + 1e-5) for a, b, n, s in ends]
        found = torch.stack(parts).sum() + 1e-10
        return torch.where((n1 > 0) & (n0 > 0), found.clamp_min(1e-10).sqrt(), 0.0)
    w = right / n1.clamp_min(1) - wrong / n0.clamp_min(1)
    return (w @ kernel @ w).clamp_min(_FLOOR).sqrt()


def soft_ece(confidence: Tensor, correct: Tensor, bins: int = 15, temperature: float = 0.01, norm: int = 2) -> Tensor:
    """(Σ_b (S_b/n) |gap_b|^norm)^{1/norm} over bins that share every example out (Karandikar et al. 2021).

    An example's shares are the softmax of −(c − ξ_b)²/T over the midpoints ξ_b; S_b is their sum in a bin. For T → 0
    they are those of bins of equal width.
    """
    middles = (torch.arange(bins, dtype=confidence.dtype, device=confidence.device) + 0.5) / bins
    shares = (-((confidence[:, None] - middles) ** 2) / temperature).softmax(dim=1)
    residuals = shares.T @ (correct - confidence)
    if norm == 1:
        return residuals.abs().sum() / len(confidence)
    # An empty bin has a residual of 0, too; the floor only keeps 0/0 away.
    sizes = shares.sum(dim=0).clamp_min(_FLOOR)
    return ((residuals.square() / sizes).sum() / len(confidence)).clamp_min(_FLOOR).sqrt()


class MMCE(Loss):
    """ℓ + λ · `weighted_mmce` of the batch (Kumar et al. 2018).

    Args:
        weight: λ; the authors take 4, the focal-calibration paper 2.
        bandwidth: of the kernel.
        legacy: normalised as the authors' code does it, which makes the term smaller by about the batch's size.
    """

    def __init__(
        self, weight: float = 2.0, bandwidth: float = 0.4, legacy: bool = False, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction)
        self.weight, self.bandwidth, self.legacy = (
            check_non_negative("weight", weight),
            check_positive("bandwidth", bandwidth),
            check_bool("legacy", legacy),
        )

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(n,) ℓ."""
        return cross_entropy(logits, labels, reduction="none")

    def term(self, logits: Tensor, labels: Tensor) -> Tensor:
        """λ MMCE_w."""
        return self.weight * weighted_mmce(*_confidence(logits, labels), self.bandwidth, self.legacy)


class MDCA(Loss):
    """ℓ + β · (1/K) Σ_k |mean p_k − share of label k| over the batch (Hebbalaguppe et al. 2022).

    Args:
        beta: β; 1 in the paper, 10 as the default of its code.
    """

    def __init__(self, beta: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.beta = check_non_negative("beta", beta)

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(n,) ℓ."""
        return cross_entropy(logits, labels, reduction="none")

    def term(self, logits: Tensor, labels: Tensor) -> Tensor:
        """β times the mean gap of the classes."""
        counts = torch.bincount(labels, minlength=logits.shape[1]).to(logits.dtype)
        gaps = gathered((logits.softmax(dim=1).sum(dim=0) - counts)[None]).sum(dim=0)
        rows = gathered(counts.sum()[None]).sum()
        return self.beta * (gaps / rows).abs().mean()


class SoftECE(Loss):
    """ℓ + λ · `soft_ece` of the batch.

    Args:
        weight: λ.
        bins, temperature, norm: of `soft_ece`; norm 1 or 2.
    """

    def __init__(
        self,
        weight: float = 1.0,
        bins: int = 15,
        temperature: float = 0.01,
        norm: int = 2,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        self.weight, self.temperature = check_non_negative("weight", weight), check_positive("temperature", temperature)
        self.bins, self.norm = check_int("bins", bins, 1), check_int("norm", norm, 1, 2)

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(n,) ℓ."""
        return cross_entropy(logits, labels, reduction="none")

    def term(self, logits: Tensor, labels: Tensor) -> Tensor:
        """λ times the soft-binned error."""
        return self.weight * soft_ece(*_confidence(logits, labels), self.bins, self.temperature, self.norm)
