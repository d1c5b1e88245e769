"""The quantities that the statements of Morosini et al. (2026) relate, for n examples under one model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.margins.moments import log_moment
from surefoot.metrics.bins import bin_of, check_bins
from surefoot.predictions import Predictions

__all__ = ["Curvature", "Robust", "Sample", "precise_ece"]

Floats = NDArray[np.float64]


def precise_ece(p: Predictions, bins: int) -> float:
    """`surefoot.metrics.ece` with Z of right answers as 1 − P̂ to full precision: 1e-30 is not 0 to an inequality."""
    z = np.where(p.correct, p.error_probability, -p.confidence)
    return float(np.abs(np.bincount(bin_of(p.confidence, check_bins(bins)), z)).sum() / len(p))


@dataclass(frozen=True)
class Curvature:
    """λ_max of the Gauss–Newton matrix, the residual of its eigenpair, and each example's ‖J_θ(x_i)‖ (n,)."""

    largest: float
    error: float
    jacobian_norms: Floats

    @property
    def c_j(self) -> float:
        """C_J, the largest of the norms."""
        return float(self.jacobian_norms.max())


@dataclass(frozen=True)
class Robust:
    """Margins (n,) over a ball: a lower bound of the infimum (``"certified"``) or an attack's value (``"pgd"``).

    ``lipschitz`` (n,) bounds |m(x+δ) − m(x)|/‖δ‖ with the ball scaled to radius 1, so that ε L is this number.
    """

    margins: Floats
    lipschitz: Floats | None
    method: str
    ball: str
    error: float = 0.0  # by which margins and constants were moved to the safe side, or rounded

    @property
    def estimated(self) -> bool:
        """Whether the margins come from an attack: nothing follows from them."""
        return self.method != "certified"


@dataclass(frozen=True)
class Sample:
    """Predictions and what was measured beside them; ``bins`` of the ECE."""

    predictions: Predictions
    curvature: Curvature | None = None
    robust: Robust | None = None
    bins: int = 15

    def __post_init__(self) -> None:
        for name, part in (("curvature", self.curvature), ("robust", self.robust)):
            rows = None if part is None else getattr(part, "jacobian_norms" if name == "curvature" else "margins")
            if rows is not None and rows.shape != (len(self.predictions),):
                raise BadInput(f"{name} must have one number a row, ({len(self.predictions)},); got {rows.shape}")

    @property
    def classes(self) -> int:
        """K."""
        return self.predictions.classes

    @property
    def ece(self) -> float:
        """ECE_M of the sample (Appendix B.1)."""
        return precise_ece(self.predictions, self.bins)

    @property
    def margins(self) -> Floats:
        """(n,) true margins m."""
        return self.predictions.true_margin

    @property
    def mistrust(self) -> Floats:
        """(n,) 1 − p_y, to full precision where p_y rounds to 1."""
        return np.asarray(-np.expm1(self.predictions.log_true))

    @property
    def gap(self) -> Floats:
        """(n,) |Z| = |1{ŷ = y} − P̂|."""
        p = self.predictions
        return np.where(p.correct, p.error_probability, p.confidence)

    @property
    def moment(self) -> float:
        """Q_D = mean e^{−m}; infinite where it overflows."""
        with np.errstate(over="ignore"):
            return float(np.exp(log_moment(self.margins)))

    @property
    def interpolates(self) -> bool:
        """γ > 0: every example is right, with a positive margin (the interpolating regime of Section 4.2)."""
        return bool(self.margins.min() > 0)

    @property
    def regime(self) -> str:
        """``"interpolating"`` or ``"overlap"``."""
        return "interpolating" if self.interpolates else "overlap"
