"""Independent Gaussians instead of numbers: mean, deviation by softplus, samples, and KL from a Gaussian prior."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

__all__ = ["Gaussian", "kl_gaussian"]


def kl_gaussian(mean: Tensor, deviation: Tensor, prior_mean: Tensor | float, prior_deviation: float) -> Tensor:
    """Σ KL(N(μ, σ²) ‖ N(μ_p, σ_p²)) = Σ ln(σ_p/σ) + (σ² + (μ − μ_p)²)/(2σ_p²) − ½, in nats.

    >>> round(float(kl_gaussian(torch.tensor([1.0]), torch.tensor([0.1]), 1.0, 0.1)), 6)
    0.0
    """
    spread = (deviation**2 + (mean - prior_mean) ** 2) / (2 * prior_deviation**2)
    return (math.log(prior_deviation) - torch.log(deviation) + spread - 0.5).sum()


class Gaussian(nn.Module):
    """Numbers of any shape, each N(mean, deviation²), all independent."""

    def __init__(self, mean: Tensor, deviation: float) -> None:
        super().__init__()
        self.mean = mean if isinstance(mean, nn.Parameter) else nn.Parameter(mean)
        # softplus⁻¹(σ) = log(e^σ − 1), in a form that a large σ does not overflow.
        self.rho = nn.Parameter(torch.full_like(self.mean, deviation + math.log(-math.expm1(-deviation))))

    @property
    def deviation(self) -> Tensor:
        """softplus(ρ), above 0."""
        return softplus(self.rho)

    def noise(self) -> Tensor:
        """A sample less the mean."""
        return self.deviation * torch.randn_like(self.mean)
