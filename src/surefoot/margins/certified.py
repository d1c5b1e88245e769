"""Lower bounds of robust margins: no point of the ball has a smaller margin."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from surefoot.curvature.chunks import plain_mode
from surefoot.errors import BadInput
from surefoot.margins.ball import Ball
from surefoot.margins.examples import check_labels, examples, runner_ups
from surefoot.margins.interval import deviations
from surefoot.margins.linear_bounds import Bounds, tightened
from surefoot.margins.lipschitz import coordinate_reaches, reach_of_differences
from surefoot.margins.network import Network
from surefoot.margins.tracing import network_of
from surefoot.validation import check_int, suggest

__all__ = ["BOUNDS", "certified"]

BOUNDS = ("interval", "cheap", "crown", "lipschitz")
# Far above what float64 loses in a network's sums and far below what anyone reads.
_ROUNDING = 1e-9
# Numbers in the coefficients of a batch: few enough to stay near the core, many enough for fast products.
_NUMBERS = 1 << 21


def certified(
    model: nn.Module,
    inputs: Any,
    labels: Any,
    eps: Any,
    norm: Any = "inf",
    bound: str = "cheap",
    batch_size: int | None = None,
) -> Tensor:
    """(n,) float64 lower bounds of m_ε = inf over the ball of z_y − max_{j≠y} z_j.

    Computed in float64 whatever the model's dtype, and lowered by 1e-9 of the size of the logits and of the bound's
    own distance from the clean margin, so that they hold for the network in exact arithmetic. Rows whose logits are
    not finite get NaN.

    Args:
        model: of Linear, Conv2d, ReLU, Tanh, GELU, AvgPool2d, AdaptiveAvgPool2d, MaxPool2d, batch norm with running
            statistics, Dropout, Flatten, their functional forms, sums, slices, means over axes, reshapes and
            arithmetic with constants; used in eval mode and left as it is.
        inputs: (n, *shape).
        labels: (n,).
        eps: the radius in the units of ``inputs``, at least 0: one number, one per channel, or one per coordinate;
            with several numbers the 2-norm's ball is the ellipsoid ‖δ/ε‖₂ ≤ 1.
        norm: ``"inf"`` or 2.
        bound: ``"interval"`` (interval bound propagation), ``"lipschitz"``, ``"cheap"`` (one linear pass back to the
            input with lines from intervals cut by Lipschitz bounds, after CROWN-IBP of Zhang et al. 2020; for every
            rival the best of it, of the intervals and of the Lipschitz bound) or ``"crown"`` (the lines from linear
            passes too, and no worse than ``"cheap"``; a pass for every unit before an activation: small networks).
        batch_size: rows at a time; by default as many as keep the work in fast memory.

    Raises:
        BadInput: naming the layer, if no bound is known for it.

    >>> model = nn.Linear(2, 2).requires_grad_(False)
    >>> model.weight[:], model.bias[:] = torch.eye(2), 0.0
    >>> round(float(certified(model, torch.tensor([[2.0, 0.5]]), [0], 0.5)), 6)
    0.5
    """
    if bound not in BOUNDS:
        raise BadInput(f"bound must be one of {', '.join(BOUNDS)}; got {bound!r}{suggest(str(bound), BOUNDS)}")
    x, y = examples(model, inputs, labels)
    ball = Ball.of(eps, norm, tuple(x.shape[1:]), x.device)
    if batch_size is not None:
        check_int("batch_size", batch_size, 1)
    with plain_mode(), torch.no_grad():
        x = x.clone() if x.is_inference() else x
        network = network_of(model, x[:1])
        rows = batch_size or _rows(network)
        reach = None if bound == "interval" else reach_of_differences(network, ball)
        caps = coordinate_reaches(network, ball) if bound in ("cheap", "crown") else None
        found = []
        for at in range(0, len(x), rows):
            part = slice(at, at + rows)
            found.append(_margins(network, ball, reach, caps, x[part].double(), y[part], bound))
        return torch.cat(found)


def _rows(network: Network) -> int:
    """How many examples make coefficients of the wanted size."""
    largest = max(torch.Size(node.shape).numel() for node in network.nodes)
    return max(1, _NUMBERS // (largest * (network.classes - 1)))


def _margins(
    network: Network,
    ball: Ball,
    reach: Tensor | None,
    caps: list[Tensor] | None,
    x: Tensor,
    y: Tensor,
    bound: str,
) -> Tensor:
    values = network.values(x)
    logits = values[-1]
    check_labels(y, logits, len(x))
    others = runner_ups(y, network.classes)
    clean = logits.gather(1, y[:, None]) - logits.gather(1, others)
    moves = torch.full_like(clean, -torch.inf)
    if reach is not None:
        moves = _better(moves, -reach[y[:, None], others])
    if bound != "lipschitz":
        identity = torch.eye(network.classes, dtype=torch.float64, device=x.device)
        difference = identity[y][:, None] - identity[others]  # (b, k − 1, k)
        boxes = Bounds(network, ball, values, deviations(network, values, ball, caps))
        moves = _better(moves, boxes.least(difference, network.last, to_input=False))
        if caps is not None:
            moves = _better(moves, boxes.least(difference, network.last))
        if caps is not None and bound == "crown":
            moves = _better(moves, tightened(network, ball, values, caps).least(difference, network.last))
    margin, lowest = clean.amin(dim=1), (clean + moves).amin(dim=1)
    lowest = lowest - _ROUNDING * (logits.abs().amax(dim=1) + (margin - lowest))
    return torch.where(logits.isfinite().all(dim=1), lowest, torch.nan)


def _better(a: Tensor, b: Tensor) -> Tensor:
    """The larger; a bound that overflowed to NaN says nothing."""
    return torch.fmax(a, b.nan_to_num(nan=-torch.inf, posinf=-torch.inf, neginf=-torch.inf))
