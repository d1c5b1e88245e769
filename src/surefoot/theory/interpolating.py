"""Theorem 4.2 of Morosini et al. (2026), interpolating regime: ECE and margin moment bound each other and sharpness."""

from __future__ import annotations

import numpy as np

from surefoot.margins.moments import log_moment
from surefoot.theory.certificate import Certificate, Hypothesis, inequality
from surefoot.theory.sample import Curvature, Robust, Sample, precise_ece

__all__ = ["interpolating"]


def interpolating(sample: Sample) -> list[Certificate]:
    """Check Theorem 4.2 (i)–(v), which is not applicable unless every margin is positive.

    Args:
        sample: the sample; (ii) and (iii) need its curvature, (iv) its robust margins.

    Returns:
        The certificates.
    """
    gamma = float(sample.margins.min())
    separable = Hypothesis(f"γ = min m = {gamma:.4g} > 0", gamma > 0)
    certificates = _two_sided(sample, gamma)
    if sample.curvature is not None:
        certificates += _coupling(sample, sample.curvature)
    if sample.robust is not None:
        certificates += _robust(sample, sample.robust)
    certificates.append(_any_bins(sample))
    return [certificate.under(separable) for certificate in certificates]


def _two_sided(sample: Sample, gamma: float) -> list[Certificate]:
    """(i): bounds of the ECE by the margin moment from both sides."""
    name, k, q, error = "Theorem 4.2 (i)", sample.classes, sample.moment, sample.ece
    with np.errstate(over="ignore"):
        floor = float(np.exp(-gamma))
    return [
        inequality(name, "Q_D/K ≤ ECE", q / k, error),
        inequality(name, "ECE ≤ (K−1) Q_D", error, (k - 1) * q),
        inequality(name, "(K−1) Q_D ≤ (K−1) e^{−γ}", (k - 1) * q, (k - 1) * floor),
        inequality(name, "Q_D/2 ≤ ECE", q / 2, error, form="tighter"),
        inequality(name, "ECE ≤ mean (1 − p_y), an equality", error, sample.one_minus_p_true.mean(), form="tighter"),
    ]


def _coupling(sample: Sample, curvature: Curvature) -> list[Certificate]:
    """(ii) and (iii): bounds of sharpness by the margin moment and by the ECE."""
    k, square = sample.classes, curvature.c_j**2
    left, wrong, error = curvature.largest, curvature.error, sample.ece
    bounded = Hypothesis(f"‖J(x_i)‖ ≤ C_J = {curvature.c_j:.4g}, exact for each example", True)
    second, third = "Theorem 4.2 (ii)", "Theorem 4.2 (iii)"
    wide = 2 * square * k * (k - 1)
    return [
        inequality(second, "λ_max ≤ 2C_J²(K−1) Q_D", left, 2 * square * (k - 1) * sample.moment, bounded, error=wrong),
        inequality(second, "λ_max ≤ 2C_J²K(K−1) ECE", left, wide * error, bounded, error=wrong),
        inequality(second, "λ_max ≤ 2C_J² ECE", left, 2 * square * error, bounded, form="tighter", error=wrong),
        inequality(third, "λ_max/(2C_J²K(K−1)) ≤ ECE", left / wide if wide else 0.0, error, bounded,
                   error=wrong / wide if wide else 0.0),
        inequality(third, "λ_max/(2C_J²) ≤ ECE", left / (2 * square) if square else 0.0, error, bounded,
                   form="tighter", error=wrong / (2 * square) if square else 0.0),
    ]  # fmt: skip


def _robust(sample: Sample, robust: Robust) -> list[Certificate]:
    """(iv): Q⁻/K ≤ ECE ≤ (K−1)Q⁰, and the bound of sharpness by Q⁰."""
    name, k, estimated = "Theorem 4.2 (iv)", sample.classes, robust.estimated
    with np.errstate(over="ignore"):
        upper = (k - 1) * float(np.exp(log_moment(robust.margins)))
    certificates = [inequality(name, f"ECE ≤ (K−1) Q⁰_ε, {robust.ball}", sample.ece, upper, estimated=estimated)]
    if robust.lipschitz is not None:
        with np.errstate(over="ignore"):
            lower = float(np.exp(log_moment(robust.margins + robust.lipschitz))) / k
        certificates.append(
            inequality(
                name,
                f"Q⁻_ε/K ≤ ECE, {robust.ball}",
                lower,
                sample.ece,
                error=2 * robust.error * lower,
                estimated=estimated,
            )
        )
    if sample.curvature is not None:
        right = 2 * sample.curvature.c_j**2 * upper
        certificates.append(
            inequality(name, f"λ_max ≤ 2C_J²(K−1) Q⁰_ε, {robust.ball}", sample.curvature.largest, right,
                       error=sample.curvature.error, estimated=estimated)
        )  # fmt: skip
    return certificates


def _any_bins(sample: Sample) -> Certificate:
    """(v): if every example is classified correctly, the ECE is the mean of 1 − confidence for any bins."""
    values = [precise_ece(sample.predictions, bins) for bins in (1, sample.bins, 100)]
    return inequality(
        "Theorem 4.2 (v)", "ECE with 1, M and 100 bins differ by nothing", max(values) - min(values), 0.0,
        error=1e-12 * max(values),
    )  # fmt: skip
