"""Robust margins estimated from above by projected gradient descent on the margin (Madry et al. 2018)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from surefoot.curvature.chunks import frozen
from surefoot.errors import BadInput
from surefoot.margins.ball import Ball
from surefoot.margins.examples import check_labels, examples, true_margins
from surefoot.validation import check_int, check_positive

__all__ = ["pgd"]


def pgd(
    model: nn.Module,
    inputs: Any,
    labels: Any,
    eps: Any,
    norm: Any = "inf",
    steps: int = 10,
    step: float | None = None,
    random: bool = False,
    seed: int = 0,
    box: tuple[Any, Any] | None = None,
    batch_size: int = 1024,
) -> Tensor:
    """(n,) float64 estimates from above of m_ε = inf over the ball of z_y − max_{j≠y} z_j: the least margin met.

    The true infimum may be lower, so that nothing is proved by a large value. Each step descends on the margin itself,
    whose gradient does not vanish where the model is sure. Every iterate counts and so does the clean input: no value
    is above the clean margin.

    Args:
        model: any module from inputs to logits (n, k); used in eval mode and left as it is.
        inputs: (n, *shape).
        labels: (n,).
        eps: the radius in the units of ``inputs``, at least 0: one number, one per channel, or one per coordinate;
            with several numbers the 2-norm's ball is the ellipsoid ‖δ/ε‖₂ ≤ 1.
        norm: ``"inf"`` or 2.
        steps: at least 0.
        step: the length of a step as a share of ``eps`` (steps of 2/255 in a ball of 8/255: 0.25); 2.5 / steps if None.
        random: start at a random point of the ball in place of the clean input.
        seed: of the random start; a row's start does not depend on the other rows.
        box: (low, high) that inputs must stay within, in their units, such as (0, 1) for images.
        batch_size: rows at a time.

    >>> model = nn.Linear(2, 2).requires_grad_(False)
    >>> model.weight[:], model.bias[:] = torch.eye(2), 0.0
    >>> round(float(pgd(model, torch.tensor([[2.0, 0.5]]), [0], 0.5)), 6)
    0.5
    """
    x, y = examples(model, inputs, labels)
    check_int("steps", steps, 1)
    check_int("seed", seed, 0, (1 << 31) - 1)
    check_int("batch_size", batch_size, 1)
    length = 2.5 / steps if step is None else check_positive("step", step)
    ball = Ball.of(eps, norm, tuple(x.shape[1:]), x.device)
    first = next(model.parameters(), x)
    found = []
    with frozen(model, "eval"):
        x = x.to(first.dtype, copy=x.is_inference())  # autograd cannot save an inference tensor
        limits = None if box is None else _limits(box, x)
        for at in range(0, len(x), batch_size):
            part = slice(at, at + batch_size)
            start = ball.sample(len(x[part]), at, seed).to(x.dtype) if random else None
            found.append(_least(model, x[part], y[part], ball, start, steps, length, limits))
    return torch.cat(found)


def _limits(box: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """The box as two tensors that fit one input; the inputs must lie in it."""
    try:
        low, high = (torch.as_tensor(end, dtype=x.dtype, device=x.device) for end in box)
        outside = ((x < low) | (x > high)).flatten(1).any(dim=1)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"box must be two numbers (low, high), or two arrays that fit one input; got {box!r}") from error
    if bool(outside.any()):
        row = int(outside.nonzero()[0])
        raise BadInput(f"box must hold the inputs; row {row} lies outside: give it in the units of the inputs")
    return low, high


def _least(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    ball: Ball,
    start: Tensor | None,
    steps: int,
    length: float,
    limits: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """The least margin of the clean inputs and of all iterates; u is the way from x, measured in radii."""
    radius = ball.radius.to(x.dtype)
    u = torch.zeros_like(x) if start is None else start
    best = torch.full((len(x),), torch.inf, dtype=torch.float64, device=x.device)
    if start is not None:
        best, _ = _margins(model, x, y, wants_gradient=False)
    for turn in range(steps + 1):
        # In the box the inputs themselves lie, so that clamping shortens δ: the ball is not left.
        point = x + radius * u
        point = point if limits is None else point.clamp(*limits)
        margins, gradient = _margins(model, point, y, wants_gradient=turn < steps)
        best = torch.fmin(best, margins)
        if gradient is None:
            break
        u = torch.where(radius > 0, (point - x) / radius, 0.0)
        u = ball.project(u - length * ball.steepest(radius * gradient))
    # fmin passes over iterates that overflowed; where the clean input did too, nothing was met.
    return torch.where(best == torch.inf, torch.nan, best)


def _margins(model: nn.Module, x: Tensor, y: Tensor, wants_gradient: bool) -> tuple[Tensor, Tensor | None]:
    """True margins (b,) of points, and their gradients by the points (None if unwanted, or if there are none)."""
    with torch.set_grad_enabled(wants_gradient):
        point = x.detach().requires_grad_(wants_gradient)
        logits = model(point)
        check_labels(y, logits, len(x))
        margins = true_margins(logits, y)
        gradient = None
        if margins.requires_grad:
            (gradient,) = torch.autograd.grad(margins.sum(), point, allow_unused=True)
    return margins.detach(), gradient
