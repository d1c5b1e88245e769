"""What a reading tells of the way that SAM climbs, θ → θ̃ = θ + ρ g/‖g‖ (Tan et al. 2026, Figure 2)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.optim import Optimizer

from surefoot.errors import BadInput
from surefoot.optim.sam import SAM, VASSO
from surefoot.theory.sam import sam_step

__all__ = ["PLACES", "ascent_of", "radius_of"]

PLACES = 5  # on the way: 0, 1/4, …, 1


def radius_of(optimizer: Optimizer | None) -> float:
    """ρ of an optimizer whose ascent has that length; 0 if it has none, or several."""
    if not isinstance(optimizer, SAM | VASSO):
        return 0.0
    found = {float(group["rho"]) for group in optimizer.param_groups}
    return found.pop() if len(found) == 1 else 0.0


def ascent_of(model: nn.Module, x: Tensor, y: Tensor, rho: float) -> dict[str, float]:
    """κ_min along the way, what it may not fall below, λ and λ₀; nothing where there is no way to climb.

    That is so for a radius that a schedule made 0, a gradient of zero, and a model that diverged.
    """
    try:
        found = sam_step(model, x, y, rho, PLACES, tol=5e-2)
    except BadInput:
        return {}
    record = {f"ascent.kappa_{place}": point.smallest for place, point in enumerate(found.path)}
    record |= {f"ascent.{name}": value for name, value in found.coefficients.items()}
    return record | {"ascent.allowed": found.allowed, "ascent.rising": found.rising}
