"""What the theorems of Morosini et al. (2026) say at a reading: bounds, slack, and whether all of them hold."""

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

# What is written down of each statement: (name in the record, theorem, statement's beginning, form).
_KEPT = (
    ("ece.printed", "Theorem 4.1 (i)", "ECE ≤ (K−1) mean", "printed"),
    ("ece.tight", "Theorem 4.1 (i)", "ECE ≤ mean (1 − p_y)", "tighter"),
    ("sharpness.printed", "Theorem 4.1 (ii)", "λ_max ≤ 2C_J²(K−1) mean", "printed"),
    ("sharpness.tight", "Theorem 4.1 (ii)", "λ_max ≤ mean ‖J_i‖²", "tighter"),
    ("coupling.printed", "Theorem 4.2 (ii)", "λ_max ≤ 2C_J²K(K−1) ECE", "printed"),
    ("coupling.tight", "Theorem 4.2 (ii)", "λ_max ≤ 2C_J² ECE", "tighter"),
    ("robust.ece", "Theorem 4.1 (i)", "ECE ≤ (K−1) Q_ε", "printed"),
    ("robust.sharpness", "Theorem 4.1 (ii)", "λ_max ≤ 2C_J²(K−1) Q_ε", "printed"),
)


def bounds_of(part: str, p: Predictions, curvature: Curvature | None, ball: Robust | None = None) -> dict[str, Any]:
    """Right sides and slacks, the regime, C_J, and how many statements hold, do not apply, or are violated.

    Statements about robust margins (Theorem 4.1 with Q_ε, 4.2 (iv), Lemma B.5) need the ``ball``.
    """
    sample = Sample(p, curvature, ball)
    found = [*lemmas(sample), *overlap(sample), *interpolating(sample)]
    record: dict[str, Any] = {f"{part}.regime": sample.regime}
    if curvature is not None:
        record[f"{part}.c_j"] = curvature.c_j
        record[f"{part}.c_j_mean"] = float(curvature.jacobian_norms.mean())
    for name, theorem, beginning, form in _KEPT:
        each = _named(found, theorem, beginning, form)
        if each is not None and each.applies:
            record[f"{part}.bound.{name}"] = each.right
            record[f"{part}.slack.{name}"] = each.slack
    for verdict in ("holds", "violated"):
        record[f"{part}.theorems.{verdict}"] = sum(each.verdict == verdict for each in found)
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
    """log Q over the ball: from an attack, an estimate from below; and proved from above, where the layers allow it.

    ``all_rows`` joins this rank's rows with those of the others, whose predictions ``clean`` has. What was proved comes
    back, too: the margins that the theorems about the ball speak of.
    """
    found = {f"{part}.log_q_attack": log_moment(all_rows(robust(model, x, y, eps, norm, "pgd")))}
    try:
        own = robust_of(model, x, y, eps, norm)
    except BadInput:
        return found, None  # a layer without bounds: the attack's figure stands alone

    def joined(rows: Any) -> Any:
        return all_rows(torch.as_tensor(rows)).numpy()

    ball = replace(own, margins=joined(own.margins), lipschitz=joined(own.lipschitz), error=joined([own.error]).max())
    found[f"{part}.log_q_certified"] = log_moment(np.minimum(ball.margins, clean.true_margin))
    return found, ball


def _named(found: list[Certificate], theorem: str, beginning: str, form: str) -> Certificate | None:
    return next((c for c in found if c.name == theorem and c.form == form and c.statement.startswith(beginning)), None)
