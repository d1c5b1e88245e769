"""Focal losses: less weight on examples that are already sure (Lin 2017, Mukhoti 2020, Tao 2023)."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from surefoot.loss import Loss
from surefoot.validation import check_fraction, check_non_negative

__all__ = ["FLSD53", "DualFocal", "Focal", "focal_gamma", "focused"]


def focused(loss: Tensor, gamma: float | Tensor) -> Tensor:
    """(1 − p)^γ ℓ of ℓ = −log p; γ one number, or one for each example, at least 0.

    1 − p is −expm1(−ℓ), which does not cancel, and kept above 0, where γ < 1 has an infinite slope that ℓ = 0 ends.
    """
    rest = (-torch.expm1(-loss)).clamp_min(torch.finfo(loss.dtype).tiny)
    return torch.pow(rest, gamma) * loss


def focal_gamma(p: float) -> float:
    """The least γ with which every example of p_y ≥ p gets a smaller gradient than cross-entropy gives it.

    It solves (1 − p)^γ − γ p (1 − p)^{γ−1} log p = 1: with a = 1 − p and b = p log p,
    γ = a/b + W₋₁(−a^{1−a/b} log(a) / b) / log a (Mukhoti et al. 2020, Proposition 1 and its appendix).

    >>> round(focal_gamma(0.2), 3), round(focal_gamma(0.25), 3)
    (4.851, 3.07)
    """
    from scipy.special import lambertw

    p = check_fraction("p", p)
    a, b = 1 - p, p * math.log(p)
    branch = complex(lambertw(-(a ** (1 - a / b)) * math.log(a) / b, k=-1)).real
    return max(0.0, a / b + branch / math.log(a))


class Focal(Loss):
    """(1 − p_y)^γ ℓ.

    Args:
        gamma: γ ≥ 0; 0 is cross-entropy. The authors of its use for calibration take 3.
        p0: instead, γ by the rule `focal_gamma` (p0).
    """

    def __init__(self, gamma: float = 3.0, p0: float | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.gamma = check_non_negative("gamma", gamma) if p0 is None else focal_gamma(p0)

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(n,) (1 − p_y)^γ ℓ."""
        return focused(cross_entropy(logits, labels, reduction="none"), self.gamma)


class FLSD53(Loss):
    """Focal with γ = 5 where p_y < 0.2 and 3 elsewhere; the choice of γ is no part of the gradient."""

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(n,) (1 − p_y)^γ ℓ, γ by example."""
        loss = cross_entropy(logits, labels, reduction="none")
        return focused(loss, torch.where(loss.detach() > -math.log(0.2), 5.0, 3.0).to(loss.dtype))


class DualFocal(Loss):
    """(1 − p_y + p_j)^γ ℓ, p_j the largest probability below p_y, or 0 if there is none (Tao et al. 2023).

    Classes that tie with the label do not count as below it. The gradient goes through p_j, too.

    Args:
        gamma: γ ≥ 0; 5 by the paper (the reference code's default of 0 is cross-entropy).
    """

    def __init__(self, gamma: float = 5.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.gamma = check_non_negative("gamma", gamma)

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(n,) (1 − p_y + p_j)^γ ℓ."""
        log_p = logits.log_softmax(dim=1)
        loss = -log_p.gather(1, labels[:, None])
        below = log_p < -loss
        runner_up = torch.where(below, log_p, -torch.inf).amax(dim=1).exp()
        loss = loss.squeeze(1)
        rest = (runner_up - torch.expm1(-loss)).clamp_min(torch.finfo(loss.dtype).tiny)
        return rest**self.gamma * loss
