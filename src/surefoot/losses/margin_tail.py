"""Surefoot's margin-tail objective: the bound of Morosini et al. (2026), Theorem 4.1, at first-order robust margins."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from surefoot.deprecated import renamed_arguments, renamed_property
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
    model: nn.Module, inputs: Tensor, labels: Tensor, ball: Ball, runner_ups: int = 2
) -> tuple[Tensor, Tensor]:
    """m̃ = min over the nearest competing classes j of z_y − z_j − ‖r ∇ₓ(z_y − z_j)‖_*.

    r is the ball's radius and ‖·‖_* the dual of its norm, so that m̃ is the robust margin of a linear network. For
    other networks m̃ is an estimate and bounds nothing. Both results are differentiable by the weights.

    Args:
        model: maps inputs to logits (b, k).
        inputs: (b, ...).
        labels: (b,) integers.
        ball: radius and norm.
        runner_ups: number of competing classes that are considered, at least 1.

    Returns:
        (b,) m̃, and (b,) the norm ‖r ∇ₓ(z_y − z_j)‖_* of the nearest competing class.

    Example:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> model.weight = nn.Parameter(torch.eye(2))
        >>> ball = Ball.of(0.5, "inf", (2,), torch.device("cpu"))
        >>> margins, norms = first_order_margins(model, torch.tensor([[3.0, 0.0]]), torch.tensor([0]), ball)
        >>> margins.tolist(), norms.tolist()
        ([2.0], [1.0])
    """
    x = inputs.detach().requires_grad_()
    logits = wide(model(x))
    gaps = runner_up_gaps(logits, labels, min(runner_ups, logits.shape[1] - 1))
    widened = Ball(ball.radius.to(gaps.dtype), ball.norm)
    falls = torch.cat([widened.reach(slope_of(gap, x)[:, None]) for gap in gaps.unbind(dim=1)], dim=1)
    return (gaps - falls).amin(dim=1), falls[:, 0]


class MarginTail(Objective):
    """CE + α · tail + β · mean (ε‖∇ₓ m‖_*)², an objective of surefoot.

    The tail is the mean of T(m̃) = (K−1)e^{−m̃} / (1 + (K−1)e^{−m̃}). T lies in [0, 1), so that mislabelled examples
    cannot dominate; at ε = 0 the tail is above the calibration error itself. ``form="log"`` takes τ log mean e^{−m̃/τ}
    over the batch instead, which is log Q for τ = 1. m̃ and the slope use the frozen network, as in `CalMO`.

    Args:
        eps: radius in the units of the inputs, one number or one for each channel or coordinate.
        norm: of the ball, ``"inf"`` or 2.
        alpha: α ≥ 0, the weight of the tail.
        beta: β ≥ 0, the weight of the slope. The slope is measured in the ball's radii, so β has no unit.
        runner_ups: number of competing classes that are considered, at least 1; each class costs a backward pass.
        form: ``"bounded"`` or ``"log"``.
        tau: τ > 0 of ``"log"``.
        warm_up: steps over which α and β rise from 0, at least 0.

    Attributes:
        gradients: expected cost of a call in gradients of the cross-entropy, an integer.

    Raises:
        BadInput: if an argument is out of its range.

    Example:
        >>> batch = Batch(torch.zeros(2, 2), torch.tensor([0, 1]), torch.arange(2), 0)
        >>> MarginTail(eps=0.0, alpha=1.0, beta=0.0)(nn.Identity(), batch).detach()
        tensor(1.1931)

    References:
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Theorem 4.1.
    """

    rivals = renamed_property("rivals", "runner_ups")

    @renamed_arguments(rivals="runner_ups")
    def __init__(
        self,
        eps: Any = 4 / 255,
        norm: Any = "inf",
        alpha: float = 0.5,
        beta: float = 0.01,
        runner_ups: int = 2,
        form: str = "bounded",
        tau: float = 1.0,
        warm_up: int = 0,
    ) -> None:
        super().__init__()
        if form not in ("bounded", "log"):
            raise BadInput(f"form must be 'bounded' or 'log'; got {form!r}")
        self.eps, self.norm, self.form = eps, as_norm(norm), form
        self.alpha, self.beta = check_non_negative("alpha", alpha), check_non_negative("beta", beta)
        self.runner_ups, self.warm_up = check_int("runner_ups", runner_ups, 1), check_int("warm_up", warm_up, 0)
        self.tau = check_positive("tau", tau)
        self.gradients = 2 + 2 * self.runner_ups if self.alpha or self.beta else 1

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of a batch, a scalar."""
        with recorded_statistics(model) as statistics:
            logits = wide(model(batch.inputs))
        values = cross_entropy(logits, batch.labels, reduction="none")
        share = min(1.0, (batch.step + 1) / self.warm_up) if self.warm_up else 1.0
        if not (self.alpha or self.beta):
            return self.mean(logits, batch.labels, values)
        ball = Ball.of(self.eps, self.norm, tuple(batch.inputs.shape[1:]), batch.inputs.device)
        with frozen_network(model, statistics) as network:
            margins, falls = first_order_margins(network, batch.inputs, batch.labels, ball, self.runner_ups)
        values = values + share * self.beta * falls.square()
        if self.form == "log":
            all_margins = gathered(margins)
            log_q = torch.logsumexp(-all_margins / self.tau, dim=0) - math.log(len(all_margins))
            return self.mean(logits, batch.labels, values) + share * self.alpha * self.tau * log_q
        tail = torch.sigmoid(math.log(logits.shape[1] - 1) - margins)
        return self.mean(logits, batch.labels, values + share * self.alpha * tail)
