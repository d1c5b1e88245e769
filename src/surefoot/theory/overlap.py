"""Theorem 4.1 of Morosini et al. (2026), overlap regime: a margin moment bounds calibration error and sharpness."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from surefoot.margins.moments import log_moment
from surefoot.theory.certificate import Certificate, Hypothesis, inequality
from surefoot.theory.sample import Sample
from surefoot.theory.softmax import logit_curvature_bound, tail_upper

__all__ = ["overlap"]


def overlap(sample: Sample) -> list[Certificate]:
    """Check Theorem 4.1.

    (i) bounds the ECE, (ii) bounds sharpness, (iii) states when (i) certifies nothing, (iv) clamps the ECE at 1.

    Args:
        sample: the sample; (ii) needs its curvature. Robust margins, if the sample has them, add robust forms of (i)
            and (ii).

    Returns:
        The certificates.
    """
    return [*_calibration(sample), *_curvature(sample), _silence(sample)]


def _calibration(sample: Sample) -> list[Certificate]:
    """(i): bounds of the ECE."""
    name, k, error = "Theorem 4.1 (i)", sample.classes, sample.ece
    certificates = [_clamped(inequality(name, "ECE ≤ (K−1) mean e^{−m}", error, (k - 1) * sample.moment))]
    for text, moment, estimated in _robust_moments(sample):
        right = (k - 1) * moment
        certificates.append(_clamped(inequality(name, f"ECE ≤ (K−1) {text}", error, right, estimated=estimated)))
    tail = tail_upper(sample.margins, k)
    return [
        *certificates,
        inequality(name, "ECE ≤ mean (1 − p_y)", error, sample.one_minus_p_true.mean(), form="tighter"),
        inequality(name, "ECE ≤ mean (K−1)e^{−m}/(1+(K−1)e^{−m})", error, tail.mean(), form="tighter"),
    ]


def _curvature(sample: Sample) -> list[Certificate]:
    """(ii): bounds of sharpness."""
    name, k, curvature = "Theorem 4.1 (ii)", sample.classes, sample.curvature
    if curvature is None:
        return []
    left, error, square = curvature.largest, curvature.error, curvature.c_j**2
    bounded = Hypothesis(f"‖J(x_i)‖ ≤ C_J = {curvature.c_j:.4g}, exact for each example", True)
    factor = 2 * square * (k - 1)
    text = "λ_max ≤ 2C_J²(K−1) "
    certificates = [inequality(name, text + "mean e^{−m}", left, factor * sample.moment, bounded, error=error)]
    for moment_text, moment, estimated in _robust_moments(sample):
        certificates.append(
            inequality(name, text + moment_text, left, factor * moment, bounded, error=error, estimated=estimated)
        )
    p = sample.predictions
    own = float(np.mean(curvature.jacobian_norms**2 * logit_curvature_bound(p.probs)))
    return [
        *certificates,
        inequality(name, "λ_max ≤ 2C_J² mean (1 − c)", left, 2 * square * p.error_probability.mean(), bounded,
                   form="tighter", error=error),
        inequality(name, "λ_max ≤ mean ‖J_i‖² max_k 2p_k(1 − p_k)", left, own, bounded, form="tighter", error=error),
    ]  # fmt: skip


def _robust_moments(sample: Sample) -> list[tuple[str, float, bool]]:
    """Q over the ball, and Q⁺ where a Lipschitz constant is known; neither is below the clean moment."""
    robust = sample.robust
    if robust is None:
        return []
    with np.errstate(over="ignore"):
        moments = [(f"Q_ε, {robust.ball}", float(np.exp(log_moment(robust.margins))), robust.estimated)]
        if robust.lipschitz is not None:
            wider = float(np.exp(log_moment(robust.margins - robust.lipschitz)))
            moments.append((f"Q⁺_ε, {robust.ball}", wider, robust.estimated))
    return moments


def _silence(sample: Sample) -> Certificate:
    """(iii): a bound that is not below 1 certifies nothing."""
    bound = (sample.classes - 1) * sample.moment
    note = "says nothing: the bound is not below 1" if bound >= 1 else "says something: the bound is below 1"
    return inequality(
        "Theorem 4.1 (iii)", "(K−1) mean e^{−m} < 1, or (i) certifies nothing", bound, 1.0,
        Hypothesis("the moment is small enough to speak", bound < 1), note=note,
    )  # fmt: skip


def _clamped(bound: Certificate) -> Certificate:
    """(iv): the ECE is never above 1."""
    return replace(bound, note="above 1, so min{1, ·} = 1 says nothing") if bound.right >= 1 else bound
