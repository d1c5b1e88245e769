"""Estimates of robust margins from above by projected gradient descent on the margin (Madry et al., 2018)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from surefoot.curvature.chunks import frozen
from surefoot.deprecated import renamed_arguments
from surefoot.errors import BadInput
from surefoot.margins.ball import Ball
from surefoot.margins.examples import check_labels, examples, true_margins
from surefoot.validation import check_int, check_positive

__all__ = ["pgd"]


@renamed_arguments(step="step_size", random="random_start")
def pgd(
    model: nn.Module,
    inputs: Any,
    labels: Any,
    eps: Any,
    norm: Any = "inf",
    steps: int = 10,
    step_size: float | None = None,
    random_start: bool = False,
    seed: int = 0,
    box: tuple[Any, Any] | None = None,
    batch_size: int = 1024,
) -> Tensor:
    """Estimate the robust margins m_ε = inf over the ball of z_y − max_{j≠y} z_j from above, by an attack.

    The estimate is the smallest margin of the clean input and of all iterates. The true infimum may be lower, so a
    large estimate proves nothing. The attack descends on the margin itself, whose gradient does not vanish where the
    model is confident. No estimate is above the clean margin.

    Args:
        model: any module from inputs to logits (n, k); used in eval mode and not modified.
        inputs: (n, *shape) finite floating-point numbers.
        labels: (n,) integers in 0..k−1.
        eps: the radius in the units of ``inputs``, at least 0: one number, one per channel, or one per coordinate;
            with several numbers the ball of the 2-norm is the ellipsoid ‖δ/ε‖₂ ≤ 1.
        norm: ``"inf"`` or 2.
        steps: number of steps, at least 1.
        step_size: length of a step as a share of ``eps``, above 0; 0.25 stands for steps of 2/255 in a ball of 8/255.
            None takes 2.5 / ``steps``.
        random_start: whether the attack starts at a random point of the ball; otherwise at the clean input.
        seed: seed of the random start, at least 0; the start of a row does not depend on the other rows.
        box: (low, high) that all points must stay within, in the units of ``inputs``, such as (0, 1) for images.
        batch_size: number of rows at a time, at least 1.

    Returns:
        (n,) float64 estimates; NaN for rows whose logits overflow at the clean input and at all iterates.

    Raises:
        BadInput: when an argument is not as described, or inputs are outside of ``box``.

    Example:
        >>> model = nn.Linear(2, 2).requires_grad_(False)
        >>> model.weight[:], model.bias[:] = torch.eye(2), 0.0
        >>> round(float(pgd(model, torch.tensor([[2.0, 0.5]]), [0], 0.5)), 6)
        0.5

    References:
        Madry, Makelov, Schmidt, Tsipras & Vladu (2018), "Towards Deep Learning Models Resistant to Adversarial
        Attacks".
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Section 4, which defines
        robust margins.
    """
    x, y = examples(model, inputs, labels)
    check_int("steps", steps, 1)
    check_int("seed", seed, 0, (1 << 31) - 1)
    check_int("batch_size", batch_size, 1)
    length = 2.5 / steps if step_size is None else check_positive("step_size", step_size)
    ball = Ball.of(eps, norm, tuple(x.shape[1:]), x.device)
    first = next(model.parameters(), x)
    margins = []
    with frozen(model, "eval"):
        x = x.to(first.dtype, copy=x.is_inference())  # autograd cannot save an inference tensor
        limits = None if box is None else _limits(box, x)
        for at in range(0, len(x), batch_size):
            part = slice(at, at + batch_size)
            start = ball.sample(len(x[part]), at, seed).to(x.dtype) if random_start else None
            margins.append(_smallest(model, x[part], y[part], ball, start, steps, length, limits))
    return torch.cat(margins)


def _limits(box: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """The box as two tensors that fit one input; the inputs must be in the box."""
    try:
        low, high = (torch.as_tensor(end, dtype=x.dtype, device=x.device) for end in box)
        outside = ((x < low) | (x > high)).flatten(1).any(dim=1)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"box must be two numbers (low, high), or two arrays that fit one input; got {box!r}") from error
    if bool(outside.any()):
        row = int(outside.nonzero()[0])
        raise BadInput(f"box must hold the inputs; row {row} lies outside: give it in the units of the inputs")
    return low, high


def _smallest(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    ball: Ball,
    start: Tensor | None,
    steps: int,
    length: float,
    limits: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """The smallest margin of the clean inputs and of all iterates x + radius · u."""
    radius = ball.radius.to(x.dtype)
    u = torch.zeros_like(x) if start is None else start
    best = torch.full((len(x),), torch.inf, dtype=torch.float64, device=x.device)
    if start is not None:
        best, _ = _margins(model, x, y, wants_gradient=False)
    for turn in range(steps + 1):
        # The inputs are in the box, so clamping shortens δ and the point stays in the ball.
        point = x + radius * u
        point = point if limits is None else point.clamp(*limits)
        margins, gradient = _margins(model, point, y, wants_gradient=turn < steps)
        best = torch.fmin(best, margins)
        if gradient is None:
            break
        u = torch.where(radius > 0, (point - x) / radius, 0.0)
        u = ball.project(u - length * ball.steepest(radius * gradient))
    # fmin ignores iterates that overflowed; infinity remains where the clean input overflowed as well.
    return torch.where(best == torch.inf, torch.nan, best)


def _margins(model: nn.Module, x: Tensor, y: Tensor, wants_gradient: bool) -> tuple[Tensor, Tensor | None]:
    """True margins (b,) of points, and their gradients with respect to the points (None if not wanted, or if none)."""
    with torch.set_grad_enabled(wants_gradient):
        point = x.detach().requires_grad_(wants_gradient)
        logits = model(point)
        check_labels(y, logits, len(x))
        margins = true_margins(logits, y)
        gradient = None
        if margins.requires_grad:
            (gradient,) = torch.autograd.grad(margins.sum(), point, allow_unused=True)
    return margins.detach(), gradient
