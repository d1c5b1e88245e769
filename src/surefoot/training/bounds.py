"""The theorems of Morosini et al. (2026) at a reading: bounds, slacks, and whether all theorems hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.errors import BadInput
from surefoot.margins.moments import log_moment
from surefoot.margins.robust import robust
from surefoot.predictions import Predictions
from surefoot.theory.certificate import Certificate
from surefoot.theory.certify import robust_of
from surefoot.theory.interpolating import interpolating
from surefoot.theory.lemmas import lemmas
from surefoot.theory.overlap import overlap
from surefoot.theory.sample import Curvature, Robust, Sample

__all__ = ["bounds_of", "over_ball"]

# The recorded statements: (name in the record, theorem, beginning of the statement, form).
_KEPT = (
    ("ece.printed", "Theorem 4.1 (i)", "ECE ≤ (K−1) mean", "published"),
    ("ece.tight", "Theorem 4.1 (i)", "ECE ≤ mean (1 − p_y)", "tighter"),
    ("sharpness.printed", "Theorem 4.1 (ii)", "λ_max ≤ 2C_J²(K−1) mean", "published"),
    ("sharpness.tight", "Theorem 4.1 (ii)", "λ_max ≤ mean ‖J_i‖²", "tighter"),
    ("coupling.printed", "Theorem 4.2 (ii)", "λ_max ≤ 2C_J²K(K−1) ECE", "published"),
    ("coupling.tight", "Theorem 4.2 (ii)", "λ_max ≤ 2C_J² ECE", "tighter"),
    ("robust.ece", "Theorem 4.1 (i)", "ECE ≤ (K−1) Q_ε", "published"),
    ("robust.sharpness", "Theorem 4.1 (ii)", "λ_max ≤ 2C_J²(K−1) Q_ε", "published"),
)


def bounds_of(part: str, p: Predictions, curvature: Curvature | None, ball: Robust | None = None) -> dict[str, Any]:
    """Evaluate the theorems on the predictions of a part.

    Statements about robust margins (Theorem 4.1 with Q_ε, 4.2 (iv), Lemma B.5) need the ``ball``.

    Args:
        part: Name of the part, ``"train"`` or ``"test"``, with which the names of the numbers begin.
        p: Predictions on the part.
        curvature: Sharpness and Jacobian norms on the part; None omits the statements about sharpness.
        ball: Certified margins over the ball; None omits the statements about robust margins.

    Returns:
        Right sides and slacks of the recorded statements, the regime, C_J, and the numbers of statements that hold and
        that are violated.

    References:
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Section 4.
    """
    sample = Sample(p, curvature, ball)
    certificates = [*lemmas(sample), *overlap(sample), *interpolating(sample)]
    record: dict[str, Any] = {f"{part}.regime": sample.regime}
    if curvature is not None:
        record[f"{part}.c_j"] = curvature.c_j
        record[f"{part}.c_j_mean"] = float(curvature.jacobian_norms.mean())
    for name, theorem, beginning, form in _KEPT:
        certificate = _named(certificates, theorem, beginning, form)
        if certificate is not None and certificate.applies:
            record[f"{part}.bound.{name}"] = certificate.right
            record[f"{part}.slack.{name}"] = certificate.slack
    for verdict in ("holds", "violated"):
        record[f"{part}.theorems.{verdict}"] = sum(c.verdict == verdict for c in certificates)
    return record


def over_ball(
    part: str,
    model: nn.Module,
    x: Any,
    y: Any,
    eps: Any,
    norm: str,
    clean: Predictions,
    all_rows: Callable[[Tensor], Tensor],
) -> tuple[dict[str, float], Robust | None]:
    """Estimate log Q over the ball from below by an attack, and bound it from above where the layers allow a proof.

    Args:
        part: Name of the part, with which the names of the numbers begin.
        model: The network, from inputs to logits.
        x: This rank's inputs (m, ...).
        y: This rank's labels (m,).
        eps: Radius of the ball in units of the inputs, a number or an array of the shape of an input.
        norm: Norm of the ball, ``"inf"`` or ``"2"``.
        clean: Predictions on the examples of all ranks.
        all_rows: Function that joins this rank's rows with those of the other ranks.

    Returns:
        The numbers by name, and the certified margins for the theorems about the ball. The second is None if a layer
        has no bounds.
    """
    numbers = {f"{part}.log_q_attack": log_moment(all_rows(robust(model, x, y, eps, norm, "pgd")))}
    try:
        own = robust_of(model, x, y, eps, norm)
    except BadInput:
        return numbers, None  # a layer without bounds: only the number of the attack is known

    def joined(rows: Any) -> Any:
        return all_rows(torch.as_tensor(rows)).numpy()

    ball = replace(own, margins=joined(own.margins), lipschitz=joined(own.lipschitz), error=joined([own.error]).max())
    numbers[f"{part}.log_q_certified"] = log_moment(np.minimum(ball.margins, clean.true_margin))
    return numbers, ball


def _named(certificates: list[Certificate], theorem: str, beginning: str, form: str) -> Certificate | None:
    matches = (c for c in certificates if c.name == theorem and c.form == form and c.statement.startswith(beginning))
    return next(matches, None)
