"""AdaFocal: a focal γ for each confidence bin, updated after an epoch by the bin's gap (Ghosh et al. 2022)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from surefoot.deprecated import renamed_arguments, renamed_property
from surefoot.errors import BadInput
from surefoot.loss import Loss
from surefoot.losses.objective import Validation
from surefoot.metrics.bins import mass_table
from surefoot.validation import check_int, check_non_negative, check_positive, check_within

__all__ = ["AdaFocal"]


class AdaFocal(Loss):
    """(1 − p_y)^γ ℓ where the bin's γ is above 0, (1 + p_y)^{|γ|} ℓ where γ is below 0.

    The bins have equal mass over the validation confidences. The p_y of a training example decides its bin. After an
    epoch γ ← γ exp(±λ (confidence − accuracy)) in each bin, with the sign of γ: where the network is overconfident, γ
    rises. A γ whose magnitude falls below ``switch`` changes sign.

    Args:
        rate: λ ≥ 0.
        start: γ before the end of the first epoch, above 0.
        min_gamma: lower bound of γ, below 0.
        max_gamma: upper bound of γ, above 0.
        switch: the smallest |γ|, above 0.
        bins: number of bins, at least 1; at most as many bins as validation examples are used.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        BadInput: if an argument is out of its range.

    Example:
        >>> AdaFocal(bins=3).gammas
        tensor([1., 1., 1.], dtype=torch.float64)

    References:
        Ghosh, Schaaf and Gormley (2022), "AdaFocal: Calibration-Aware Adaptive Focal Loss".
    """

    gammas: Tensor
    edges: Tensor

    least = renamed_property("least", "min_gamma")
    most = renamed_property("most", "max_gamma")

    @renamed_arguments(least="min_gamma", most="max_gamma")
    def __init__(
        self,
        rate: float = 1.0,
        start: float = 1.0,
        min_gamma: float = -2.0,
        max_gamma: float = 20.0,
        switch: float = 0.2,
        bins: int = 15,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        self.rate, self.switch = check_non_negative("rate", rate), check_positive("switch", switch)
        self.min_gamma = check_within("min_gamma", min_gamma, -1e6, 1e6)
        self.max_gamma = check_positive("max_gamma", max_gamma)
        if self.min_gamma >= 0:
            raise BadInput(f"min_gamma must be below 0; got {min_gamma!r}")
        bins = check_int("bins", bins, 1)
        self.register_buffer("gammas", torch.full((bins,), check_positive("start", start), dtype=torch.float64))
        self.register_buffer("edges", torch.arange(1, bins, dtype=torch.float64) / bins)  # between the bins

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(n,) the focal or inverse focal loss of each example, with the γ of its bin."""
        loss = cross_entropy(logits, labels, reduction="none")
        bins = torch.bucketize((-loss.detach().double()).exp(), self.edges, right=True)
        gamma = self.gammas[bins].to(loss.dtype)
        rest = (-torch.expm1(-loss)).clamp_min(torch.finfo(loss.dtype).tiny)  # as in `focused`
        return torch.where(gamma > 0, rest, 1 + (-loss).exp()) ** gamma.abs() * loss

    @torch.no_grad()
    def epoch(self, validation: Validation) -> None:
        """Update every bin's γ by its gap on the validation examples, and move the bins to the present confidences.

        Args:
            validation: the model and its data after the epoch.
        """
        p = validation()
        if p is None:
            return
        table = mass_table(p.confidence, p.correct, len(self.gammas))
        used = len(table.count)
        gap = torch.from_numpy(table.confidence - table.accuracy).to(self.gammas)
        gamma = self.gammas[:used]
        moved = gamma * (self.rate * gamma.sign() * gap).exp()
        moved = torch.where(moved.abs() < self.switch, -gamma.sign() * self.switch, moved)
        self.gammas[:used] = moved.clamp(self.min_gamma, self.max_gamma)
        # Bins without examples lie beyond 1.
        self.edges.fill_(torch.inf)
        self.edges[: used - 1] = torch.from_numpy(table.upper[:-1].copy()).to(self.edges)
