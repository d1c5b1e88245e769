"""Curvature along one direction, and along the path of sharpness-aware minimisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from surefoot.curvature.chunks import plain_mode
from surefoot.curvature.hessian import Hessian
from surefoot.curvature.operator import Operator
from surefoot.curvature.problem import select, split
from surefoot.deprecated import renamed_arguments
from surefoot.errors import BadInput
from surefoot.loss import LossLike
from surefoot.validation import check_int, check_positive

__all__ = ["PathPoint", "curvature_along_sam", "rayleigh"]


@plain_mode()
def rayleigh(operator: Operator, v: Tensor) -> float:
    """vᵀAv / ‖v‖²: the curvature along v, such as the gradient or the last update.

    Args:
        operator: A, for instance a `Hessian` or a `GaussNewton`.
        v: (d,) a nonzero direction.

    Returns:
        The curvature along v.

    Raises:
        BadInput: if ``v`` is zero or has another shape.

    Example:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> hessian = Hessian(model, torch.eye(2), torch.tensor([0, 1]), loss="mse-sum")
        >>> rayleigh(hessian, torch.ones(4))
        1.0
    """
    size = float(v.double() @ v.double())
    if size == 0.0:
        raise BadInput("v must not be zero: no direction, no curvature along it")
    return float(v.double() @ operator.matvec(v).double()) / size


@dataclass(frozen=True)
class PathPoint:
    """The extreme Hessian eigenvalues κ_min and κ_max at θ + t(θ̃ − θ).

    Attributes:
        t: position on the path, from 0 to 1.
        smallest: κ_min.
        largest: κ_max.
        smallest_residual: residual of κ_min.
        largest_residual: residual of κ_max.
    """

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
    """κ_min and κ_max at ``points`` places from θ to θ̃ = θ + ρ g/‖g‖.

    The search at each place starts from the eigenvectors of the previous place. The residual of κ_min is at most
    ``tol`` times |κ_min|. The residual of κ_max is at most ``tol`` times the larger magnitude of the two. Both bounds
    may fail when ``max_products`` products do not suffice. The parameters are restored bit-exactly.

    Args:
        model: any module from inputs to logits (n, k).
        inputs: (n, ...) tensor or array.
        labels: (n,) integers.
        rho: ρ > 0.
        points: number of places, at least 2.
        loss: as of `GaussNewton`; it need not be convex.
        tol: relative tolerance of the residuals.
        max_products: maximum of products for each eigenvalue.

    Returns:
        One point for each place; fewer if a product is not finite.

    Raises:
        BadInput: if an argument is out of its range, or the gradient is zero or not finite.

    Example:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> path = curvature_along_sam(model, torch.eye(2), torch.tensor([0, 1]), rho=0.1, points=2, loss="mse-sum")
        >>> [(point.t, round(point.largest, 4)) for point in path]
        [(0.0, 1.0), (1.0, 1.0)]

    References:
        Tan et al. (2026), "Towards Understanding the Calibration Benefits of Sharpness-Aware Minimization", Section 4,
        Figure 2.
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
    path: list[PathPoint] = []
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
            path.append(PathPoint(t, *ends))
            if "non-finite" in (low.outcome, high.outcome):
                break
    finally:
        with torch.no_grad():
            for parameter, origin in zip(parameters, before, strict=True):
                parameter.copy_(origin)
    return path
