"""CPC: pairs put the label above competing classes, and competing classes level (Cheng & Vasconcelos 2022)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy, softplus

from surefoot.loss import Loss
from surefoot.margins.examples import runner_ups
from surefoot.validation import check_non_negative

__all__ = ["CPC"]

_PAIRS = 1 << 17  # differences in memory at a time, so that they stay in the cache


class CPC(Loss):
    """ℓ + λ₁ mean_{j≠y} −log σ(z_y − z_j) + ½ λ₂ mean_{j≠k, both ≠y} −log σ(z_j − z_k).

    A widely used implementation also sums the pairs j = k, a constant; `CPC` leaves these pairs out. With two classes
    there are no pairs of competing classes.

    Args:
        discrimination: λ₁ ≥ 0.
        exclusion: λ₂ ≥ 0.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        BadInput: if an argument is out of its range.

    Example:
        >>> CPC(discrimination=1.0)(torch.zeros(1, 2), torch.tensor([0]))
        tensor(1.3863)

    References:
        Cheng and Vasconcelos (2022), "Calibrating Deep Neural Networks by Pairwise Constraints".
    """

    masks = False

    def __init__(self, discrimination: float = 0.1, exclusion: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.discrimination = check_non_negative("discrimination", discrimination)
        self.exclusion = check_non_negative("exclusion", exclusion)

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(n,) ℓ plus the two means."""
        others = logits.gather(1, runner_ups(labels, logits.shape[1]))
        gaps = logits.gather(1, labels[:, None]) - others
        loss = cross_entropy(logits, labels, reduction="none") + self.discrimination * softplus(-gaps).mean(dim=1)
        m = others.shape[1]
        if m < 2 or not self.exclusion:
            return loss
        pairs: Tensor = _Pairs.apply(others)  # type: ignore[no-untyped-call]
        return loss + 0.5 * self.exclusion / (m * (m - 1)) * pairs


class _Pairs(torch.autograd.Function):
    """(n,) Σ_{j≠k} log(1 + e^{z_j − z_k}) of rows z (n, m), some classes at a time: all n·m² differences may not fit.

    The gradient by z_j is Σ_k tanh((z_j − z_k)/2).
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        n, m = z.shape
        classes = z.T.contiguous()  # the examples of a class are contiguous
        value, slope = z.new_zeros(n), torch.zeros_like(classes)
        at = 0
        while at < m:
            own = min(m - at, max(1, _PAIRS // (n * (m - at))))
            # Some classes with one another, and with all later classes: the latter pairs stand for their reverse too.
            difference = classes[at : at + own, None] - classes[None, at:]
            half = difference.mul(0.5).tanh_()
            slope[at : at + own] += half.sum(dim=1)
            slope[at + own :] -= half[:, own:].sum(dim=0)
            # A pair and its reverse give |d| − 2 log σ(|d|), and σ(|d|) = (1 + |tanh(d/2)|)/2 does not cancel.
            part = difference.abs_().mul_(0.5).sub_(half.abs_().log1p_())
            value += part[:, :own].sum(dim=(0, 1)) + 2 * part[:, own:].sum(dim=(0, 1))
            at += own
        # The sum so far lacks log 2 for every pair, and has no part of the diagonal.
        value += m * (m - 1) * math.log(2)
        slope = slope.T
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (slope,) = ctx.saved_tensors
        product: Tensor = gradient[:, None] * slope
        return product
