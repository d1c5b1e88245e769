"""Appendix D of Morosini et al. (2026): what squared error on logits does to confidence and curvature."""

from __future__ import annotations

import math

from surefoot.theory.certificate import Certificate, Hypothesis, inequality
from surefoot.theory.sample import Curvature

__all__ = ["optimal_confidence", "squared_error"]


def optimal_confidence(classes: int) -> float:
    """Compute e/(e + K − 1), the softmax confidence where the squared error of one-hot targets is 0.

    Args:
        classes: number of classes K, at least 2.

    Returns:
        The confidence.

    Example:
        >>> round(optimal_confidence(10), 5)
        0.23197

    References:
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Appendix D.1.
    """
    return math.e / (math.e + classes - 1)


def squared_error(curvature: Curvature, classes: int) -> list[Certificate]:
    """Check the bounds of λ_max = (2/K) λ_max(mean JᵀJ), which has no factor that vanishes as confidence grows.

    Args:
        curvature: the curvature of the loss ``"mse"``, whose Hessian in the logits is (2/K) I.
        classes: number of classes K, at least 2.

    Returns:
        The certificates.

    References:
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Appendix D.2.
    """
    left, error = curvature.largest, curvature.error
    exact = Hypothesis("the loss is the mean over classes of squared errors, with logit Hessian (2/K) I", True)
    mean = float((curvature.jacobian_norms**2).mean())
    return [
        inequality("Appendix D.2", "λ_max ≤ (2/K) C_J²", left, 2 / classes * curvature.c_j**2, exact, error=error),
        inequality("Appendix D.2", "λ_max ≤ (2/K) mean ‖J_i‖²", left, 2 / classes * mean, exact, form="tighter",
                   error=error),
    ]  # fmt: skip
