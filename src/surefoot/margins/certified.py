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
# Relative safety for rounding: far above the error of float64 in a network's sums, far below the digits that are read.
_ROUNDING = 1e-9
# Numbers in the coefficients of a batch: few enough for the cache, many enough for fast products.
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
    """Compute lower bounds of the robust margins m_ε = inf over the ball of z_y − max_{j≠y} z_j.

    No point of the ball has a smaller margin than the bound. The bounds are computed in float64 for a model of any
    dtype. The bounds are then lowered by 1e-9 of the size of the logits and of their distance from the clean margin.
    The lowered bounds hold for the network in exact arithmetic.

    The values of ``bound`` are:

    - ``"interval"``: interval bound propagation.
    - ``"lipschitz"``: Lipschitz constants of the differences of logits, from `lipschitz`.
    - ``"cheap"``: one linear pass back to the input, after CROWN-IBP (Zhang et al., 2020), with lines from intervals
      cut by Lipschitz bounds. Every competing class gets the best of this pass, the intervals and the Lipschitz bound.
    - ``"crown"``: as ``"cheap"``, with lines that also come from linear passes; never worse than ``"cheap"``. Every
      unit before an activation needs a pass, so ``"crown"`` suits small networks.

    Args:
        model: a module made of Linear, Conv2d, ReLU, Tanh, GELU, AvgPool2d, AdaptiveAvgPool2d, MaxPool2d, batch norm
            with running statistics, Dropout, Flatten, their functional forms, sums, slices, means over axes, reshapes
            and arithmetic with constants. The model is used in eval mode and is not modified.
        inputs: (n, *shape) finite floating-point numbers.
        labels: (n,) integers in 0..k−1.
        eps: the radius in the units of ``inputs``, at least 0: one number, one per channel, or one per coordinate;
            with several numbers the ball of the 2-norm is the ellipsoid ‖δ/ε‖₂ ≤ 1.
        norm: ``"inf"`` or 2.
        bound: ``"interval"``, ``"lipschitz"``, ``"cheap"`` or ``"crown"``.
        batch_size: number of rows at a time, at least 1; None takes as many as keep the work in fast memory.

    Returns:
        (n,) float64 lower bounds; NaN for rows whose logits are not finite.

    Raises:
        BadInput: when an argument is not as described, or no bound is known for a layer, which the error names.

    Example:
        >>> model = nn.Linear(2, 2).requires_grad_(False)
        >>> model.weight[:], model.bias[:] = torch.eye(2), 0.0
        >>> round(float(certified(model, torch.tensor([[2.0, 0.5]]), [0], 0.5)), 6)
        0.5

    References:
        Gowal et al. (2018), "On the Effectiveness of Interval Bound Propagation for Training Verifiably Robust
        Models".
        Zhang et al. (2018), "Efficient Neural Network Robustness Certification with General Activation Functions"
        (CROWN).
        Zhang et al. (2020), "Towards Stable and Efficient Training of Verifiably Robust Neural Networks" (CROWN-IBP).
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Section 4, which defines
        robust margins.
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
        margins = []
        for at in range(0, len(x), rows):
            part = slice(at, at + rows)
            margins.append(_margins(network, ball, reach, caps, x[part].double(), y[part], bound))
        return torch.cat(margins)


def _rows(network: Network) -> int:
    """Number of examples whose coefficients have about `_NUMBERS` entries."""
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
    """(b,) lower bounds of the robust margins of a batch."""
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
        moves = _better(moves, boxes.minimum(difference, network.last, to_input=False))
        if caps is not None:
            moves = _better(moves, boxes.minimum(difference, network.last))
        if caps is not None and bound == "crown":
            moves = _better(moves, tightened(network, ball, values, caps).minimum(difference, network.last))
    margin, lowest = clean.amin(dim=1), (clean + moves).amin(dim=1)
    lowest = lowest - _ROUNDING * (logits.abs().amax(dim=1) + (margin - lowest))
    return torch.where(logits.isfinite().all(dim=1), lowest, torch.nan)


def _better(a: Tensor, b: Tensor) -> Tensor:
    """The larger of two lower bounds; a bound that overflowed to NaN or ∞ is ignored."""
    return torch.fmax(a, b.nan_to_num(nan=-torch.inf, posinf=-torch.inf, neginf=-torch.inf))
