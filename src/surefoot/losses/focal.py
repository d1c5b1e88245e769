"""Focal losses: less weight on examples with confident labels (Lin et al. 2017 and later authors)."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from surefoot.loss import Loss
from surefoot.validation import check_fraction, check_non_negative

__all__ = ["FLSD53", "DualFocal", "Focal", "focal_gamma", "focused"]


def focused(loss: Tensor, gamma: float | Tensor) -> Tensor:
    """(1 − p)^γ ℓ of ℓ = −log p.

    1 − p is −expm1(−ℓ), which does not cancel. 1 − p is kept above 0. There the power with γ < 1 has an infinite slope,
    which the factor ℓ = 0 removes.

    Args:
        loss: (n,) ℓ ≥ 0.
        gamma: γ ≥ 0, one number or (n,).

    Returns:
        (n,) the weighted losses.

    Example:
        >>> focused(torch.tensor([0.6931]), 1.0)
        tensor([0.3465])
    """
    rest = (-torch.expm1(-loss)).clamp_min(torch.finfo(loss.dtype).tiny)
    return torch.pow(rest, gamma) * loss


def focal_gamma(p: float) -> float:
    """The smallest γ for which every example with p_y ≥ p gets a smaller gradient than cross-entropy gives.

    γ solves (1 − p)^γ − γ p (1 − p)^{γ−1} log p = 1: with a = 1 − p and b = p log p,
    γ = a/b + W₋₁(−a^{1−a/b} log(a) / b) / log a (Mukhoti et al. 2020, Proposition 1 and its appendix).

    Args:
        p: probability of the label, between 0 and 1.

    Returns:
        γ ≥ 0.

    Raises:
        BadInput: if ``p`` is out of its range.

    Example:
        >>> round(focal_gamma(0.2), 3), round(focal_gamma(0.25), 3)
        (4.851, 3.07)

    References:
        Mukhoti et al. (2020), "Calibrating Deep Neural Networks Using Focal Loss", Proposition 1.
    """
    from scipy.special import lambertw

    p = check_fraction("p", p)
    a, b = 1 - p, p * math.log(p)
    branch = complex(lambertw(-(a ** (1 - a / b)) * math.log(a) / b, k=-1)).real
    return max(0.0, a / b + branch / math.log(a))


class Focal(Loss):
    """(1 − p_y)^γ ℓ.

    Args:
        gamma: γ ≥ 0; 0 is cross-entropy. The authors who use the focal loss for calibration take 3.
        p0: take γ = `focal_gamma` (p0) instead of ``gamma``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        BadInput: if an argument is out of its range.

    Example:
        >>> Focal(gamma=1.0)(torch.zeros(1, 2), torch.tensor([0]))
        tensor(0.3466)

    References:
        Lin et al. (2017), "Focal Loss for Dense Object Detection".
        Mukhoti et al. (2020), "Calibrating Deep Neural Networks Using Focal Loss".
    """

    def __init__(self, gamma: float = 3.0, p0: float | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.gamma = check_non_negative("gamma", gamma) if p0 is None else focal_gamma(p0)

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(n,) (1 − p_y)^γ ℓ."""
        return focused(cross_entropy(logits, labels, reduction="none"), self.gamma)


class FLSD53(Loss):
    """Focal loss with γ = 5 where p_y < 0.2 and γ = 3 elsewhere; the gradient ignores the choice of γ.

    Args:
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        BadInput: if ``reduction`` is another word.

    Example:
        >>> FLSD53()(torch.zeros(1, 2), torch.tensor([0]))
        tensor(0.0866)

    References:
        Mukhoti et al. (2020), "Calibrating Deep Neural Networks Using Focal Loss".
    """

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(n,) (1 − p_y)^γ ℓ, with γ of each example."""
        loss = cross_entropy(logits, labels, reduction="none")
        return focused(loss, torch.where(loss.detach() > -math.log(0.2), 5.0, 3.0).to(loss.dtype))


class DualFocal(Loss):
    """(1 − p_y + p_j)^γ ℓ, p_j the largest probability below p_y, or 0 if there is none (Tao et al. 2023).

    Classes that tie with the label do not count as below the label. The gradient goes through p_j as well.

    Args:
        gamma: γ ≥ 0; 5 in the paper (the reference code's default of 0 is cross-entropy).
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        BadInput: if an argument is out of its range.

    Example:
        >>> DualFocal(gamma=0.0)(torch.zeros(1, 2), torch.tensor([0]))
        tensor(0.6931)

    References:
        Tao, Dong and Xu (2023), "Dual Focal Loss for Calibration".
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
