"""Theorem 4.2 of Morosini et al. (2026), interpolating regime: ECE and margin moment bound each other and sharpness."""

from __future__ import annotations

import numpy as np

from surefoot.margins.moments import log_moment
from surefoot.theory.certificate import Certificate, Hypothesis, inequality
from surefoot.theory.sample import Curvature, Robust, Sample, precise_ece

__all__ = ["interpolating"]


def interpolating(sample: Sample) -> list[Certificate]:
    """(i)–(v); not applicable unless every margin is positive."""
    gamma = float(sample.margins.min())
    separable = Hypothesis(f"γ = min m = {gamma:.4g} > 0", gamma > 0)
    found = _two_sided(sample, gamma)
    if sample.curvature is not None:
        found += _coupling(sample, sample.curvature)
    if sample.robust is not None:
        found += _robust(sample, sample.robust)
    found.append(_any_bins(sample))
    return [each.under(separable) for each in found]


def _two_sided(sample: Sample, gamma: float) -> list[Certificate]:
    name, k, q, error = "Theorem 4.2 (i)", sample.classes, sample.moment, sample.ece
    with np.errstate(over="ignore"):
        floor = float(np.exp(-gamma))
    return [
        inequality(name, "Q_D/K ≤ ECE", q / k, error),
        inequality(name, "ECE ≤ (K−1) Q_D", error, (k - 1) * q),
        inequality(name, "(K−1) Q_D ≤ (K−1) e^{−γ}", (k - 1) * q, (k - 1) * floor),
        inequality(name, "Q_D/2 ≤ ECE", q / 2, error, form="tighter"),
        inequality(name, "ECE ≤ mean (1 − p_y), an equality", error, sample.mistrust.mean(), form="tighter"),
    ]


def _coupling(sample: Sample, curvature: Curvature) -> list[Certificate]:
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
    """(iv): Q⁻/K ≤ ECE ≤ (K−1)Q⁰, and the same moment over sharpness."""
    name, k, estimated = "Theorem 4.2 (iv)", sample.classes, robust.estimated
    with np.errstate(over="ignore"):
        upper = (k - 1) * float(np.exp(log_moment(robust.margins)))
    found = [inequality(name, f"ECE ≤ (K−1) Q⁰_ε, {robust.ball}", sample.ece, upper, estimated=estimated)]
    if robust.lipschitz is not None:
        with np.errstate(over="ignore"):
            lower = float(np.exp(log_moment(robust.margins + robust.lipschitz))) / k
        found.append(
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
        found.append(
            inequality(name, f"λ_max ≤ 2C_J²(K−1) Q⁰_ε, {robust.ball}", sample.curvature.largest, right,
                       error=sample.curvature.error, estimated=estimated)
        )  # fmt: skip
    return found


def _any_bins(sample: Sample) -> Certificate:
    """(v): with every example right, the ECE is the mean doubt whatever the bins."""
    values = [precise_ece(sample.predictions, bins) for bins in (1, sample.bins, 100)]
    return inequality(
        "Theorem 4.2 (v)", "ECE with 1, M and 100 bins differ by nothing", max(values) - min(values), 0.0,
        error=1e-12 * max(values),
    )  # fmt: skip
