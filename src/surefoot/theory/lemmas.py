"""Lemmas B.1–B.5 and Remark B.6 of Morosini et al. (2026) on a sample."""

from __future__ import annotations

import numpy as np

from surefoot.margins.moments import log_moment
from surefoot.theory.certificate import Certificate, Hypothesis, inequality, pointwise
from surefoot.theory.sample import Curvature, Robust, Sample
from surefoot.theory.softmax import logit_curvature, logit_curvature_bound, tail_lower, tail_upper

__all__ = ["label_free", "lemmas"]


def lemmas(sample: Sample) -> list[Certificate]:
    """Check Lemmas B.1–B.5 and Remark B.6.

    Args:
        sample: the sample; Lemma B.5 needs its robust margins, Remark B.6 its curvature.

    Returns:
        The certificates.
    """
    certificates = [*_gap(sample), *_tail(sample), *_logit_hessian(sample)]
    if sample.robust is not None:
        certificates += _robust(sample, sample.robust)
    if sample.curvature is not None:
        certificates += label_free(sample, sample.curvature)
    return certificates


def _gap(sample: Sample) -> list[Certificate]:
    """Lemmas B.1 and B.2."""
    gap = sample.gap
    return [
        inequality("Lemma B.1", "ECE ≤ mean |Z|", sample.ece, gap.mean()),
        pointwise("Lemma B.2", "|Z| ≤ 1 − p_y", gap, sample.one_minus_p_true),
    ]


def _tail(sample: Sample) -> list[Certificate]:
    """The three inequalities of Lemma B.3."""
    m, k, one_minus_p = sample.margins, sample.classes, sample.one_minus_p_true
    rows = np.flatnonzero(m >= 0)
    some = f"m ≥ 0, in {len(rows):,} of {len(m):,} rows"
    with np.errstate(over="ignore"):
        tail = np.exp(-m[rows])
    texts = {
        "published": ("1 − p_y ≤ (K−1)e^{−m}", "e^{−m}/(1+(K−1)e^{−m}) ≤ 1 − p_y", "e^{−m}/K ≤ 1 − p_y"),
        "tighter": ("1 − p_y ≤ (K−1)e^{−m}/(1+(K−1)e^{−m})", "σ(−m) ≤ 1 − p_y", "e^{−m}/2 ≤ 1 − p_y"),
    }
    certificates = []
    for form, (upper, lower, positive) in texts.items():
        share = k if form == "published" else 2
        certificates += [
            pointwise("Lemma B.3 (1)", upper, one_minus_p, tail_upper(m, k, form), form=form),
            pointwise("Lemma B.3 (2)", lower, tail_lower(m, k, form), one_minus_p, form=form),
            pointwise("Lemma B.3 (3)", f"{positive}; {some}", tail / share, one_minus_p[rows], form=form, rows=rows),
        ]
    return certificates


def _logit_hessian(sample: Sample) -> list[Certificate]:
    """Lemma B.4."""
    probs = sample.predictions.probs
    values = logit_curvature(probs)
    texts = {"published": "λ_max(H_z) ≤ 2(1 − p_max)", "tighter": "λ_max(H_z) ≤ max_k 2p_k(1 − p_k)"}
    return [
        pointwise("Lemma B.4", text, values, logit_curvature_bound(probs, form), form=form)
        for form, text in texts.items()
    ]


def _robust(sample: Sample, robust: Robust) -> list[Certificate]:
    """Lemma B.5."""
    m = sample.margins
    order = pointwise(
        "Lemma B.5 (4)", f"m_ε ≤ m, {robust.ball}", robust.margins, m, error=robust.error, estimated=robust.estimated
    )
    if robust.lipschitz is None:
        return [order]
    return [
        order,
        pointwise(
            "Lemma B.5 (5)", "m − ε L ≤ m_ε", m - robust.lipschitz, robust.margins,
            Hypothesis("m is L-Lipschitz over the ball, by layers' norms", True), error=robust.error,
            estimated=robust.estimated,
        ),
    ]  # fmt: skip


def label_free(sample: Sample, curvature: Curvature) -> list[Certificate]:
    """Check Remark B.6, which bounds λ_max without labels; the tighter form uses the Jacobian norm of every example.

    Args:
        sample: the sample.
        curvature: the curvature of the sample.

    Returns:
        The certificates.
    """
    k, square = sample.classes, curvature.c_j**2
    bounded = Hypothesis(f"‖J(x_i)‖ ≤ C_J = {curvature.c_j:.4g}, exact for each example", True)
    with np.errstate(over="ignore"):
        moment = float(np.exp(log_moment(sample.predictions.predicted_margin)))
    own = float(np.mean(curvature.jacobian_norms**2 * logit_curvature_bound(sample.predictions.probs)))
    sides = curvature.largest, curvature.error
    return [
        inequality(
            "Remark B.6", "λ_max ≤ 2C_J²(K−1) mean e^{−m̂}", sides[0], 2 * square * (k - 1) * moment, bounded,
            error=sides[1],
        ),
        inequality(
            "Remark B.6", "λ_max ≤ mean ‖J_i‖² max_k 2p_k(1 − p_k)", sides[0], own, bounded, form="tighter",
            error=sides[1],
        ),
    ]  # fmt: skip
