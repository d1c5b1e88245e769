"""Cross-entropy with a calibration error of the batch: MMCE (kernel), MDCA (by class), soft-binned ECE.

Every term is a term of the global batch, over all ranks.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from surefoot.loss import Loss
from surefoot.losses.ranks import gathered
from surefoot.validation import check_bool, check_int, check_non_negative, check_positive

__all__ = ["MDCA", "MMCE", "SoftECE", "soft_ece", "weighted_mmce"]

# Below this bound the gradient of an error's root is 0: its slope would consist of rounding.
_FLOOR = 1e-12


def _confidence(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """(n,) confidence and correctness of the global batch."""
    confidence, predicted = logits.softmax(dim=1).max(dim=1)
    return gathered(confidence), gathered((predicted == labels).to(confidence.dtype))


def weighted_mmce(confidence: Tensor, correct: Tensor, bandwidth: float = 0.4, legacy: bool = False) -> Tensor:
    """√(wᵀ K w): w_i is (1 − c_i)/n₁ for n₁ correct examples, −c_i/n₀ for n₀ wrong ones, K the Laplacian kernel.

    If all examples are correct, or all are wrong, the other group contributes nothing (Kumar et al. 2018, Section 3.3).
    ``legacy`` follows the reference code. This code divides each group mean by the square of the group's size once
    more. It adds 10⁻⁵ and 10⁻¹⁰ to keep divisions and the root away from 0. A batch without correct or without wrong
    examples then gives 0.

    Args:
        confidence: (n,) in [0, 1].
        correct: (n,) 0 or 1.
        bandwidth: of K_ij = exp(−|c_i − c_j| / bandwidth), above 0.
        legacy: follow the reference code instead of the paper.

    Returns:
        Scalar.

    Example:
        >>> weighted_mmce(torch.tensor([0.9]), torch.tensor([0.0]))
        tensor(0.9000)

    References:
        Kumar, Sarawagi and Jain (2018), "Trainable Calibration Measures for Neural Networks from Kernel Mean
        Embeddings", Section 3.3.
    """
    kernel = (-(confidence[:, None] - confidence[None]).abs() / bandwidth).exp()
    right, wrong = correct * (1 - confidence), (1 - correct) * confidence
    n1, n0 = correct.sum(), (1 - correct).sum()
    if legacy:
        ends = ((right, right, n1 * n1, 1.0), (wrong, wrong, n0 * n0, 1.0), (right, wrong, n1 * n0, -2.0))
        parts = [s * (a @ kernel @ b) / n.clamp_min(1) / (n + 1e-5) for a, b, n, s in ends]
        squared = torch.stack(parts).sum() + 1e-10
        return torch.where((n1 > 0) & (n0 > 0), squared.clamp_min(1e-10).sqrt(), 0.0)
    w = right / n1.clamp_min(1) - wrong / n0.clamp_min(1)
    return (w @ kernel @ w).clamp_min(_FLOOR).sqrt()


def soft_ece(confidence: Tensor, correct: Tensor, bins: int = 15, temperature: float = 0.01, norm: int = 2) -> Tensor:
    """(Σ_b (S_b/n) |gap_b|^norm)^{1/norm} over bins that share every example (Karandikar et al. 2021).

    An example's shares are the softmax of −(c − ξ_b)²/T over the midpoints ξ_b; S_b is the sum of the shares in a bin.
    For T → 0 the shares are those of bins of equal width.

    Args:
        confidence: (n,) in [0, 1].
        correct: (n,) 0 or 1.
        bins: number of bins, at least 1.
        temperature: T > 0.
        norm: 1 or 2.

    Returns:
        Scalar.

    Example:
        >>> soft_ece(torch.tensor([0.9]), torch.tensor([0.0]), norm=1)
        tensor(0.9000)

    References:
        Karandikar et al. (2021), "Soft Calibration Objectives for Neural Networks".
    """
    midpoints = (torch.arange(bins, dtype=confidence.dtype, device=confidence.device) + 0.5) / bins
    shares = (-((confidence[:, None] - midpoints) ** 2) / temperature).softmax(dim=1)
    residuals = shares.T @ (correct - confidence)
    if norm == 1:
        return residuals.abs().sum() / len(confidence)
    # An empty bin has a residual of 0 as well; the floor only prevents 0/0.
    sizes = shares.sum(dim=0).clamp_min(_FLOOR)
    return ((residuals.square() / sizes).sum() / len(confidence)).clamp_min(_FLOOR).sqrt()


class MMCE(Loss):
    """ℓ + λ · `weighted_mmce` of the batch (Kumar et al. 2018).

    Args:
        weight: λ ≥ 0; the authors take 4, the focal-calibration paper 2.
        bandwidth: of the kernel, above 0.
        legacy: normalise as the authors' code does, which makes the term smaller by about the batch size.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        BadInput: if an argument is out of its range.

    Example:
        >>> MMCE()(torch.zeros(1, 2), torch.tensor([0]))
        tensor(1.6931)

    References:
        Kumar, Sarawagi and Jain (2018), "Trainable Calibration Measures for Neural Networks from Kernel Mean
        Embeddings".
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
        beta: β ≥ 0; 1 in the paper, 10 as the default of its code.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        BadInput: if an argument is out of its range.

    Example:
        >>> MDCA()(torch.zeros(1, 2), torch.tensor([0]))
        tensor(1.1931)

    References:
        Hebbalaguppe et al. (2022), "A Stitch in Time Saves Nine: A Train-Time Regularizing Loss for Improved Neural
        Network Calibration".
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
        weight: λ ≥ 0.
        bins: number of bins, at least 1.
        temperature: T > 0 of the shares.
        norm: 1 or 2.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        BadInput: if an argument is out of its range.

    Example:
        >>> SoftECE(norm=1)(torch.zeros(1, 2), torch.tensor([0]))
        tensor(1.1931)

    References:
        Karandikar et al. (2021), "Soft Calibration Objectives for Neural Networks".
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
