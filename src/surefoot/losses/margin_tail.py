"""Margin-tail objective (ours): the bound of Morosini et al. (2026), Theorem 4.1, at first-order robust margins."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from surefoot.errors import BadInput
from surefoot.loss import wide
from surefoot.losses.frozen_network import frozen_network, recorded_statistics
from surefoot.losses.objective import Batch, Objective
from surefoot.losses.ranks import gathered
from surefoot.losses.slopes import runner_up_gaps, slope_of
from surefoot.margins.ball import Ball, as_norm
from surefoot.validation import check_int, check_non_negative, check_positive

__all__ = ["MarginTail", "first_order_margins"]


def first_order_margins(
    model: nn.Module, inputs: Tensor, labels: Tensor, ball: Ball, rivals: int = 2
) -> tuple[Tensor, Tensor]:
    """(b,) m̃ = min over the nearest rivals j of z_y − z_j − ‖r ∇ₓ(z_y − z_j)‖_*, and (b,) the nearest one's norm.

    r is the ball's radius and ‖·‖_* the dual of its norm, so that m̃ is the robust margin of a linear network; for
    others it is an estimate and bounds nothing. Both are differentiable by the weights.
    """
    x = inputs.detach().requires_grad_()
    logits = wide(model(x))
    gaps = runner_up_gaps(logits, labels, min(rivals, logits.shape[1] - 1))
    near = Ball(ball.radius.to(gaps.dtype), ball.norm)
    falls = torch.cat([near.reach(slope_of(gap, x)[:, None]) for gap in gaps.unbind(dim=1)], dim=1)
    return (gaps - falls).amin(dim=1), falls[:, 0]


class MarginTail(Objective):
    """CE + α · tail + β · mean (ε‖∇ₓ m‖_*)² (ours).

    The tail is the mean of T(m̃) = (K−1)e^{−m̃} / (1 + (K−1)e^{−m̃}), which lies in [0, 1), so that mislabelled examples
    cannot take over; at ε = 0 it is above the calibration error itself. ``form="log"`` takes τ log mean e^{−m̃/τ} over
    the batch instead, which for τ = 1 is log Q. m̃ and slope are of the network held still, as `CalMO`'s.

    Args:
        eps: radius in the units of the inputs, one number or one for each channel or coordinate.
        norm: of the ball, ``"inf"`` or 2.
        alpha, beta: weights of tail and slope; the slope is measured in the ball's radii, so β has no unit.
        rivals: how many classes next to the label are looked at; each costs a backward pass.
        form: ``"bounded"`` or ``"log"``.
        tau: τ of ``"log"``.
        warm_up: steps over which α and β rise from 0.
    """

    def __init__(
        self,
        eps: Any = 4 / 255,
        norm: Any = "inf",
        alpha: float = 0.5,
        beta: float = 0.01,
        rivals: int = 2,
        form: str = "bounded",
        tau: float = 1.0,
        warm_up: int = 0,
    ) -> None:
        super().__init__()
        if form not in ("bounded", "log"):
            raise BadInput(f"form must be 'bounded' or 'log'; got {form!r}")
        self.eps, self.norm, self.form = eps, as_norm(norm), form
        self.alpha, self.beta = check_non_negative("alpha", alpha), check_non_negative("beta", beta)
        self.rivals, self.warm_up = check_int("rivals", rivals, 1), check_int("warm_up", warm_up, 0)
        self.tau = check_positive("tau", tau)
        self.gradients = 2 + 2 * self.rivals if self.alpha or self.beta else 1

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        """Scalar."""
        with recorded_statistics(model) as statistics:
            logits = wide(model(batch.inputs))
        values = cross_entropy(logits, batch.labels, reduction="none")
        share = min(1.0, (batch.step + 1) / self.warm_up) if self.warm_up else 1.0
        if not (self.alpha or self.beta):
            return self.mean(logits, batch.labels, values)
        ball = Ball.of(self.eps, self.norm, tuple(batch.inputs.shape[1:]), batch.inputs.device)
        with frozen_network(model, statistics) as still:
            margins, falls = first_order_margins(still, batch.inputs, batch.labels, ball, self.rivals)
        values = values + share * self.beta * falls.square()
        if self.form == "log":
            every = gathered(margins)
            log_q = torch.logsumexp(-every / self.tau, dim=0) - math.log(len(every))
            return self.mean(logits, batch.labels, values) + share * self.alpha * self.tau * log_q
        tail = torch.sigmoid(math.log(logits.shape[1] - 1) - margins)
        return self.mean(logits, batch.labels, values + share * self.alpha * tail)
