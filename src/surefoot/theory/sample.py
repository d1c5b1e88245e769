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
    """Compute `surefoot.metrics.ece` with full precision for correct rows, where Z = 1 − P̂ may be as small as 1e-30.

    Args:
        p: the predictions.
        bins: number of bins, from 1 to 10,000.

    Returns:
        The expected calibration error, in [0, 1].

    Raises:
        BadInput: when ``bins`` is out of range.

    Example:
        >>> p = Predictions([[80.0, 0.0]], [0])
        >>> round(precise_ece(p, 15) * 1e35, 6)
        1.804851
    """
    z = np.where(p.correct, p.error_probability, -p.confidence)
    return float(np.abs(np.bincount(bin_of(p.confidence, check_bins(bins)), z)).sum() / len(p))


@dataclass(frozen=True)
class Curvature:
    """The curvature of the loss of n examples.

    Attributes:
        largest: λ_max of the Gauss–Newton matrix.
        error: residual of the eigenpair of λ_max.
        jacobian_norms: (n,) spectral norms ‖J_θ(x_i)‖ of the Jacobians of the logits.
    """

    largest: float
    error: float
    jacobian_norms: Floats

    @property
    def c_j(self) -> float:
        """C_J, the largest Jacobian norm."""
        return float(self.jacobian_norms.max())


@dataclass(frozen=True)
class Robust:
    """Robust margins of n examples.

    Attributes:
        margins: (n,) lower bounds of the infimum over the ball (``"certified"``), or results of an attack (``"pgd"``).
        lipschitz: (n,) bounds of |m(x+δ) − m(x)|/‖δ‖ with the ball scaled to radius 1, that is, ε L; or None.
        method: ``"certified"`` or ``"pgd"``.
        ball: the ball in symbols.
        error: a bound of the safety margin and rounding in ``margins`` and ``lipschitz``.
    """

    margins: Floats
    lipschitz: Floats | None
    method: str
    ball: str
    error: float = 0.0

    @property
    def estimated(self) -> bool:
        """Whether the margins come from an attack, which proves nothing."""
        return self.method != "certified"


@dataclass(frozen=True)
class Sample:
    """The quantities of n examples under one model.

    Attributes:
        predictions: the predictions, n rows.
        curvature: the curvature, or None if not measured.
        robust: the robust margins, or None if not measured.
        bins: number of bins of the ECE.

    Example:
        >>> sample = Sample(Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 1]))
        >>> sample.regime, sample.margins.tolist(), round(sample.moment, 6)
        ('interpolating', [2.0, 1.0], 0.251607)
    """

    predictions: Predictions
    curvature: Curvature | None = None
    robust: Robust | None = None
    bins: int = 15

    def __post_init__(self) -> None:
        """Check that every part has n rows."""
        for name, part in (("curvature", self.curvature), ("robust", self.robust)):
            rows = None if part is None else getattr(part, "jacobian_norms" if name == "curvature" else "margins")
            if rows is not None and rows.shape != (len(self.predictions),):
                raise BadInput(f"{name} must have one number a row, ({len(self.predictions)},); got {rows.shape}")

    @property
    def classes(self) -> int:
        """Number of classes K."""
        return self.predictions.classes

    @property
    def ece(self) -> float:
        """ECE_M of the sample (Morosini et al. (2026), Appendix B.1)."""
        return precise_ece(self.predictions, self.bins)

    @property
    def margins(self) -> Floats:
        """(n,) true margins m."""
        return self.predictions.true_margin

    @property
    def one_minus_p_true(self) -> Floats:
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
        """Whether every example has a positive margin: the interpolating regime of Section 4.2, γ > 0."""
        return bool(self.margins.min() > 0)

    @property
    def regime(self) -> str:
        """``"interpolating"`` or ``"overlap"``."""
        return "interpolating" if self.interpolates else "overlap"
