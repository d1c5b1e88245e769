"""Trace and spectral density of an operator from a few products with random vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from surefoot.curvature.chunks import plain_mode
from surefoot.curvature.operator import Operator
from surefoot.errors import BadInput
from surefoot.validation import check_int, check_positive

__all__ = ["Density", "Trace", "spectral_density", "trace"]


@dataclass(frozen=True)
class Trace:
    """An unbiased estimate of the trace.

    Attributes:
        value: the estimate.
        standard_error: standard error of the random part; 0 if the value is exact.
        matvecs: number of products.
    """

    value: float
    standard_error: float
    matvecs: int


@plain_mode()
def trace(operator: Operator, products: int = 30, seed: int = 0) -> Trace:
    """Hutch++ (Meyer et al. 2021): exact on a sketched subspace, random vectors on the rest.

    A third of the products computes the range Q, a third gives tr(QᵀAQ), and a third averages gᵀAg over random signs g
    outside Q.

    Args:
        operator: A.
        products: number of products, at least 6.
        seed: of the random signs.

    Returns:
        The estimate.

    Raises:
        BadInput: if ``products`` is below 6.

    Example:
        >>> from torch import nn
        >>> from surefoot.curvature import GaussNewton
        >>> model = nn.Linear(2, 2, bias=False)
        >>> round(trace(GaussNewton(model, torch.eye(2), loss="mse-sum"), products=12).value, 4)
        4.0

    References:
        Meyer et al. (2021), "Hutch++: Optimal Stochastic Trace Estimation".
    """
    if products < 6:
        raise BadInput(f"products must be at least 6; got {products}")
    third = min(products // 3, operator.dim)
    sketch = operator.matmat(_signs(operator, third, seed))
    q = torch.linalg.qr(sketch.double()).Q
    inside = float((q * operator.matmat(q.to(sketch)).double()).sum())
    if third == operator.dim:  # the sketch spans everything
        return Trace(inside, 0.0, 2 * third)
    rest = products - 2 * third
    g = _signs(operator, rest, seed + 1).double()
    g = g - q @ (q.T @ g)
    values = (g * operator.matmat(g.to(sketch)).double()).sum(dim=0)
    return Trace(inside + float(values.mean()), float(values.std() / math.sqrt(rest)), products)


@dataclass(frozen=True)
class Density:
    """Spectral density on a grid, the mean over probes; the density integrates to 1.

    Attributes:
        grid: (g,) eigenvalues.
        density: (g,).
        standard_error: (g,) standard error of the mean over probes.
        width: standard deviation of the Gaussian around each Ritz value.
        matvecs: number of products.
    """

    grid: Tensor
    density: Tensor
    standard_error: Tensor
    width: float
    matvecs: int


@plain_mode()
def spectral_density(
    operator: Operator, probes: int = 8, steps: int = 32, points: int = 400, width: float | None = None, seed: int = 0
) -> Density:
    """Stochastic Lanczos quadrature: Ritz values of random starts, weighted by their first components squared.

    Args:
        operator: the matrix.
        probes: number of random starts, at least 2.
        steps: Lanczos steps of each start, at least 2.
        points: size of the grid, at least 2.
        width: standard deviation of the Gaussians, above 0; by default a hundredth of the range of the Ritz values.
        seed: of the random starts.

    Returns:
        The density.

    Raises:
        BadInput: if an argument is out of its range.

    Example:
        >>> from torch import nn
        >>> from surefoot.curvature import GaussNewton
        >>> operator = GaussNewton(nn.Linear(2, 2, bias=False), torch.eye(2), loss="mse-sum")
        >>> density = spectral_density(operator, probes=2, steps=2, points=5)
        >>> density.grid.shape, density.matvecs
        (torch.Size([5]), 2)
    """
    if probes < 2 or steps < 2:
        raise BadInput(f"probes and steps must be at least 2; got {probes} and {steps}")
    check_int("points", points, 2)
    if width is not None:
        check_positive("width", width)
    runs = [_quadrature(operator, min(steps, operator.dim), seed + probe) for probe in range(probes)]
    low = min(float(nodes.min()) for nodes, _ in runs)
    high = max(float(nodes.max()) for nodes, _ in runs)
    # A spectrum of one point still needs a positive width.
    sigma = max(0.01 * (high - low), 1e-6 * max(abs(low), abs(high))) or 1e-9 if width is None else width
    grid = torch.linspace(low - 5 * sigma, high + 5 * sigma, points, dtype=torch.float64)
    curves = torch.stack([_smooth(grid, nodes, weights, sigma) for nodes, weights in runs])
    matvecs = sum(len(nodes) for nodes, _ in runs)
    return Density(grid, curves.mean(dim=0), curves.std(dim=0) / math.sqrt(probes), sigma, matvecs)


def _smooth(grid: Tensor, nodes: Tensor, weights: Tensor, sigma: float) -> Tensor:
    bells = torch.exp(-0.5 * ((grid[:, None] - nodes[None]) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))
    return bells @ weights


def _quadrature(operator: Operator, steps: int, seed: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights of one probe: plain Lanczos with full orthogonalisation."""
    vector = _signs(operator, 1, seed)[:, 0] / math.sqrt(operator.dim)
    basis = vector[None]
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    while True:
        image = operator.matvec(basis[-1])
        diagonal.append(float(basis[-1].double() @ image.double()))
        for _ in range(2):
            image = image - (basis @ image) @ basis
        size = float(torch.linalg.vector_norm(image, dtype=torch.float64))
        scale = max(map(abs, diagonal))
        if len(diagonal) == steps or size <= 100 * torch.finfo(operator.dtype).eps * scale:
            break
        off_diagonal.append(size)
        basis = torch.cat([basis, (image / size)[None]])
    small = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    if off_diagonal:
        edge = torch.tensor(off_diagonal, dtype=torch.float64)
        small += torch.diag(edge, 1) + torch.diag(edge, -1)
    nodes, vectors = torch.linalg.eigh(small)
    return nodes, vectors[0].square()


def _signs(operator: Operator, count: int, seed: int) -> Tensor:
    """(d, count) random signs, drawn on the CPU so that devices agree."""
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, (operator.dim, count), generator=generator)
    return (2 * signs - 1).to(operator.device, operator.dtype)
