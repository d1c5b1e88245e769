"""CalMO: predictions stable nearby, margins that do not fall steeply (Morosini et al. 2026, first version)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from surefoot.deprecated import renamed_arguments, renamed_property
from surefoot.loss import wide
from surefoot.losses.adversary import adversary, uphill
from surefoot.losses.frozen_network import Statistics, detached_statistics, frozen_network, recorded_statistics
from surefoot.losses.objective import Batch, Objective
from surefoot.losses.slopes import runner_up_gaps, slope_of
from surefoot.margins.ball import Ball
from surefoot.validation import check_bool, check_int, check_non_negative, check_positive

__all__ = ["CalMO"]


class CalMO(Objective):
    """CE(x, y) + λ_r KL(p(x) ‖ p(x_adv)) + λ_s ‖∇ₓ m(x, y)‖₂², the mean over the batch.

    x_adv comes from ``steps`` steps of gradient ascent on the cross-entropy, started at x. The authors' three steps of
    2/255 never leave the ball of 8/255, since they reach 6/255. The slope is the slope at x alone, in the 2-norm, and
    bounds nothing over the ball.

    Adversaries, divergence and slope use the frozen network: dropout off, batch norm by the statistics of the clean
    batch for any input. Moving one example therefore moves no other example's terms, and the terms are 0 for eps = 0 or
    a constant network. The weights' gradient goes through those statistics. Running statistics advance once a step, by
    the clean batch.

    Args:
        eps: radius in the units of the inputs, one number or one for each channel or coordinate (∞-norm).
        robust: λ_r ≥ 0; 0 is the ablation "Flat.".
        smooth: λ_s ≥ 0; 0 is the ablation "Rob.".
        steps: number of ascent steps, at least 1.
        step_size: length of an ascent step as a share of ``eps``, above 0.
        reuse: reuse the adversaries of an optimizer's first pass in its second pass. The batch's identity decides.

    Attributes:
        gradients: expected cost of a call in gradients of the cross-entropy, rounded to an integer.

    Raises:
        BadInput: if an argument is out of its range.

    Example:
        >>> import torch
        >>> model = nn.Linear(2, 2)
        >>> batch = Batch(torch.ones(4, 2), torch.tensor([0, 1, 0, 1]), torch.arange(4), 0)
        >>> value = CalMO(smooth=0.0, eps=0.0)(model, batch)
        >>> bool(torch.isclose(value, cross_entropy(model(batch.inputs), batch.labels)))
        True

    References:
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", first version.
    """

    step = renamed_property("step", "step_size")

    @renamed_arguments(step="step_size")
    def __init__(
        self,
        eps: Any = 8 / 255,
        robust: float = 0.5,
        smooth: float = 0.01,
        steps: int = 3,
        step_size: float = 0.25,
        reuse: bool = True,
    ) -> None:
        super().__init__()
        self.eps, self.reuse = eps, check_bool("reuse", reuse)
        self.robust, self.smooth = check_non_negative("robust", robust), check_non_negative("smooth", smooth)
        self.steps, self.step_size = check_int("steps", steps, 1), check_positive("step_size", step_size)
        self._kept: tuple[Batch, Tensor] | None = None
        # The clean and the moved frozen pass cost one gradient each. An ascent step costs two thirds (the first shares
        # the clean pass), and the gradient of the slope about two: 7 in all. benchmarks/losses.py measures 7.5.
        attack = 1 + (2 * self.steps - 1) / 3 if self.robust else 0.0
        extra = 1 + attack + (2 if self.smooth else 0) if self.robust or self.smooth else 0.0
        self.gradients = round(1 + extra)

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of a batch, a scalar."""
        with recorded_statistics(model) as statistics:
            logits = wide(model(batch.inputs))
        values = cross_entropy(logits, batch.labels, reduction="none")
        if self.robust or self.smooth:
            values = values + self._regularisers(model, statistics, batch)
        return self.mean(logits, batch.labels, values)

    def _regularisers(self, model: nn.Module, statistics: Statistics, batch: Batch) -> Tensor:
        """(b,) λ_r KL + λ_s ‖∇ₓ m‖²."""
        clean = batch.inputs.detach().requires_grad_()
        with frozen_network(model, statistics) as network:
            logits = wide(network(clean))
        moved = self._moved(model, statistics, batch, clean, logits) if self.robust else None
        penalty = logits.new_zeros(len(logits))
        with frozen_network(model, statistics) as network:
            if moved is not None:
                log_p, log_q = logits.log_softmax(dim=1), wide(network(moved)).log_softmax(dim=1)
                penalty = penalty + self.robust * (log_p.exp() * (log_p - log_q)).sum(dim=1)
            if self.smooth:
                slope = slope_of(runner_up_gaps(logits, batch.labels, 1).squeeze(1), clean)
                penalty = penalty + self.smooth * slope.flatten(1).square().sum(dim=1)
        return penalty

    def _moved(self, model: nn.Module, statistics: Statistics, batch: Batch, clean: Tensor, logits: Tensor) -> Tensor:
        if self.reuse and self._kept is not None and self._kept[0] is batch:
            return self._kept[1]
        ball = Ball.of(self.eps, "inf", tuple(batch.inputs.shape[1:]), batch.inputs.device)
        with frozen_network(model, detached_statistics(statistics)) as network:
            first = uphill(logits, batch.labels, clean)
            moved = adversary(network, batch.inputs, batch.labels, ball, self.steps, self.step_size, first)
        self._kept = (batch, moved)
        return moved
