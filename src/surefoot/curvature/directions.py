"""Curvature along one direction, and along the path that sharpness-aware minimisation takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from surefoot.curvature.chunks import plain_mode
from surefoot.curvature.hessian import Hessian
from surefoot.curvature.operator import Operator
from surefoot.curvature.parameters import select, split
from surefoot.deprecated import renamed_arguments
from surefoot.errors import BadInput
from surefoot.loss import LossLike
from surefoot.validation import check_int, check_positive

__all__ = ["PathPoint", "curvature_along_sam", "rayleigh"]


@plain_mode()
def rayleigh(operator: Operator, v: Tensor) -> float:
    """vᵀAv / ‖v‖²: the curvature along v, such as the gradient or the last update."""
    size = float(v.double() @ v.double())
    if size == 0.0:
        raise BadInput("v must not be zero: no direction, no curvature along it")
    return float(v.double() @ operator.matvec(v).double()) / size


@dataclass(frozen=True)
class PathPoint:
    """At θ + t(θ̃ − θ): the smallest and largest Hessian eigenvalue, κ_min and κ_max, and their residuals."""

    t: float
    smallest: float
    largest: float
    smallest_residual: float
    largest_residual: float


@renamed_arguments(max_matvecs="max_products")
@plain_mode()
def curvature_along_sam(
    model: nn.Module,
    inputs: Any,
    labels: Any,
    rho: float,
    points: int = 5,
    *,
    loss: LossLike = "ce",
    tol: float = 1e-2,
    max_products: int = 100,
) -> list[PathPoint]:
    """κ_min and κ_max at ``points`` places from θ to θ̃ = θ + ρ g/‖g‖ (Tan et al. 2026, Section 4, Figure 2).

    Each place starts from the eigenvectors of the one before. The residual of κ_min is at most ``tol`` times its own
    size, that of κ_max ``tol`` times the larger of both, unless ``max_products`` products did not suffice. The
    parameters are put back to the bit.
    """
    check_positive("rho", rho)
    check_int("points", points, 2)
    parameters = list(select(model).values())
    before = [parameter.detach().clone() for parameter in parameters]
    g = Hessian(model, inputs, labels, loss).gradient()
    size = float(g.norm())
    if not size > 0:
        raise BadInput(f"the gradient must be finite and not zero to have a direction; its length is {size}")
    step = split(rho * g / size, parameters)
    found: list[PathPoint] = []
    below: Tensor | None = None
    above: Tensor | None = None
    try:
        for index in range(points):
            t = index / (points - 1)
            with torch.no_grad():
                for parameter, origin, move in zip(parameters, before, step, strict=True):
                    parameter.copy_(origin + t * move)
            hessian = Hessian(model, inputs, labels, loss)
            low, below = hessian.follow(below, tol, largest=False, max_products=max_products)
            high, above = hessian.follow(above, tol, max_products=max_products)
            ends = (float(low.values[0]), float(high.values[0]), float(low.residuals[0]), float(high.residuals[0]))
            found.append(PathPoint(t, *ends))
            if "non-finite" in (low.outcome, high.outcome):
                break
    finally:
        with torch.no_grad():
            for parameter, origin in zip(parameters, before, strict=True):
                parameter.copy_(origin)
    return found
