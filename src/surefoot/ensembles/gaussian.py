"""Independent Gaussian weights: mean, standard deviation by softplus, samples, and KL from a Gaussian prior."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

__all__ = ["Gaussian", "kl_gaussian"]


def kl_gaussian(mean: Tensor, std: Tensor, prior_mean: Tensor | float, prior_std: float) -> Tensor:
    """Compute Σ KL(N(μ, σ²) ‖ N(μ_p, σ_p²)) = Σ ln(σ_p/σ) + (σ² + (μ − μ_p)²)/(2σ_p²) − ½, in nats.

    Args:
        mean: means μ, of any shape.
        std: standard deviations σ above 0, of the same shape.
        prior_mean: means μ_p of the prior, of the same shape or one number.
        prior_std: standard deviation σ_p of the prior, above 0.

    Returns:
        The sum over all entries.

    Example:
        >>> round(float(kl_gaussian(torch.tensor([1.0]), torch.tensor([0.1]), 1.0, 0.1)), 6)
        0.0
    """
    spread = (std**2 + (mean - prior_mean) ** 2) / (2 * prior_std**2)
    return (math.log(prior_std) - torch.log(std) + spread - 0.5).sum()


class Gaussian(nn.Module):
    """A tensor of independent Gaussians N(mean, std²).

    Args:
        mean: initial means, of any shape; a parameter is used itself.
        std: initial standard deviation of all entries, above 0.
    """

    def __init__(self, mean: Tensor, std: float) -> None:
        super().__init__()
        self.mean = mean if isinstance(mean, nn.Parameter) else nn.Parameter(mean)
        # softplus⁻¹(σ) = log(e^σ − 1), in a form that does not overflow for large σ.
        self.rho = nn.Parameter(torch.full_like(self.mean, std + math.log(-math.expm1(-std))))

    @property
    def std(self) -> Tensor:
        """Standard deviations softplus(ρ), above 0."""
        return softplus(self.rho)

    def noise(self) -> Tensor:
        """Draw a sample minus the mean.

        Returns:
            The noise, of the shape of the mean.
        """
        return self.std * torch.randn_like(self.mean)
