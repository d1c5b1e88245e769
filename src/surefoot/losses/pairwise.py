"""CPC: the label above each rival, and rivals level with one another, by pairs (Cheng & Vasconcelos 2022)."""

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

_PAIRS = 1 << 17  # differences held at a time, so that they stay in the cache


class CPC(Loss):
    """ℓ + λ₁ mean_{j≠y} −log σ(z_y − z_j) + ½ λ₂ mean_{j≠k, both ≠y} −log σ(z_j − z_k).

    The code that others know it by also sums the pairs j = k, a constant; they are left out here. With two classes
    there are no pairs of rivals.

    Args:
        discrimination, exclusion: λ₁ and λ₂.
    """

    masks = False

    def __init__(self, discrimination: float = 0.1, exclusion: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.discrimination = check_non_negative("discrimination", discrimination)
        self.exclusion = check_non_negative("exclusion", exclusion)

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(n,) ℓ and the two means."""
        others = logits.gather(1, runner_ups(labels, logits.shape[1]))
        gaps = logits.gather(1, labels[:, None]) - others
        found = cross_entropy(logits, labels, reduction="none") + self.discrimination * softplus(-gaps).mean(dim=1)
        m = others.shape[1]
        if m < 2 or not self.exclusion:
            return found
        pairs: Tensor = _Pairs.apply(others)  # type: ignore[no-untyped-call]
        return found + 0.5 * self.exclusion / (m * (m - 1)) * pairs


class _Pairs(torch.autograd.Function):
    """(n,) Σ_{j≠k} log(1 + e^{z_j − z_k}) of rows z (n, m), some classes at a time: all n·m² differences may not fit.

    The gradient by z_j is Σ_k tanh((z_j − z_k)/2).
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        n, m = z.shape
        classes = z.T.contiguous()  # every example of a class beside each other
        value, slope = z.new_zeros(n), torch.zeros_like(classes)
        at = 0
        while at < m:
            own = min(m - at, max(1, _PAIRS // (n * (m - at))))
            # Some classes with one another, and with all later ones: those pairs stand for their reverse, too.
            difference = classes[at : at + own, None] - classes[None, at:]
            half = difference.mul(0.5).tanh_()
            slope[at : at + own] += half.sum(dim=1)
            slope[at + own :] -= half[:, own:].sum(dim=0)
            # Of a pair and its reverse: |d| − 2 log σ(|d|), and σ(|d|) = (1 + |tanh(d/2)|)/2, which does not cancel.
            part = difference.abs_().mul_(0.5).sub_(half.abs_().log1p_())
            value += part[:, :own].sum(dim=(0, 1)) + 2 * part[:, own:].sum(dim=(0, 1))
            at += own
        # The sum so far lacks log 2 of every pair, and has none of the diagonal's.
        value += m * (m - 1) * math.log(2)
        slope = slope.T
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (slope,) = ctx.saved_tensors
        found: Tensor = gradient[:, None] * slope
        return found
