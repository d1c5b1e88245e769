"""Lemmas 1–2 and Theorems 1–3 of Tan et al. (2026) along one ascent θ → θ̃ = θ + ρ g/‖g‖."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from surefoot.curvature.directions import PathPoint, curvature_along_sam
from surefoot.curvature.hessian import Hessian
from surefoot.curvature.parameters import select, split
from surefoot.errors import BadInput
from surefoot.forward import logits_of
from surefoot.optim.two_pass import entropy_coefficients
from surefoot.predictions import Predictions
from surefoot.theory.certificate import Certificate, Hypothesis, inequality, pointwise
from surefoot.validation import check_positive

__all__ = ["SamStep", "entropy_slack", "largest_rho", "sam_certificates", "sam_step"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SamStep:
    """One ascent on a batch: log p_y and log p̃_y of each example (n,), and the gradient's length.

    ``path`` holds κ_min and κ_max from θ to θ̃, if asked for.
    """

    rho: float
    gradient_norm: float
    log_p: Floats
    log_p_tilde: Floats
    path: tuple[PathPoint, ...] = ()

    @property
    def loss(self) -> float:
        """L_Ω(θ) = −log p of the geometric mean p."""
        return float(-self.log_p.mean())

    @property
    def perturbed_loss(self) -> float:
        """L_Ω(θ̃)."""
        return float(-self.log_p_tilde.mean())

    @property
    def coefficients(self) -> dict[str, float]:
        """λ and λ₀ of the batch (Theorem 1, Eq. 2)."""
        return entropy_coefficients(self.loss, self.perturbed_loss, self.rho * self.gradient_norm)

    @property
    def rising(self) -> float:
        """Share of examples with p̃ > p: where the per-example theorem does not speak."""
        return float((self.log_p_tilde > self.log_p).mean())

    @property
    def allowed(self) -> float:
        """−‖g‖/ρ: what κ_min may not fall below."""
        return -self.gradient_norm / self.rho

    @property
    def bounded(self) -> bool:
        """Whether κ_min stays above it at every place looked at on the path."""
        return bool(self.path) and all(point.smallest >= self.allowed for point in self.path)

    @property
    def end_decides(self) -> bool:
        """Remark 1: whether the condition at θ̃ alone gives the verdict of the whole path."""
        return bool(self.path) and (self.path[-1].smallest >= self.allowed) == self.bounded

    @property
    def linearity(self) -> float:
        """Remark 1: R² of a straight line through κ_min along the path; NaN without three places or any change."""
        if len(self.path) < 3:
            return math.nan
        t, kappa = np.array([(point.t, point.smallest) for point in self.path]).T
        spread = float(((kappa - kappa.mean()) ** 2).sum())
        if spread == 0:
            return math.nan
        left = kappa - np.polyval(np.polyfit(t, kappa, 1), t)
        return 1.0 - float((left**2).sum()) / spread


def sam_step(model: nn.Module, inputs: Any, labels: Any, rho: float, points: int = 0, *, tol: float = 1e-2) -> SamStep:
    """Climb from θ to θ̃ on a batch and read both ends; ``points`` places of κ_min and κ_max along the way.

    Cross-entropy, eval mode. The parameters are put back to the bit.
    """
    check_positive("rho", rho)
    parameters = list(select(model).values())
    g = Hessian(model, inputs, labels).gradient()
    size = float(g.double().norm())
    if not (math.isfinite(size) and size > 0):
        raise BadInput(f"the gradient must be finite and not zero to have a direction; its length is {size}")
    path = tuple(curvature_along_sam(model, inputs, labels, rho, points, tol=tol)) if points else ()
    here = Predictions(logits_of(model, inputs), labels).log_true
    before = [parameter.detach().clone() for parameter in parameters]
    try:
        with torch.no_grad():
            for parameter, move in zip(parameters, split(rho * g / size, parameters), strict=True):
                parameter.add_(move)
        there = Predictions(logits_of(model, inputs), labels).log_true
    finally:
        with torch.no_grad():
            for parameter, origin in zip(parameters, before, strict=True):
                parameter.copy_(origin)
    return SamStep(rho, size, here, there, path)


def entropy_slack(log_p: Any, log_p_tilde: Any) -> Floats:
    """(n,) ℓ(p̃) − [ℓ(p) − λH(p) + H(p̃)] = (1−p̃)(logit p − logit p̃) + (p−p̃)(−ln p)/(1−p) (Theorems 1 and 2).

    Exactly the slack of the theorem, without cancellation; never negative where p̃ ≤ p, always where p̃ > p.
    """
    a, b = np.asarray(log_p, np.float64), np.asarray(log_p_tilde, np.float64)
    doubt, doubt_tilde = -np.expm1(a), -np.expm1(b)
    with np.errstate(divide="ignore", invalid="ignore"):
        logits = (a - np.log(doubt)) - (b - np.log(doubt_tilde))
        difference = np.exp(b) * np.expm1(a - b)
        found = doubt_tilde * logits + difference * -a / doubt
    return np.where(a == b, 0.0, found)


def largest_rho(model: nn.Module, inputs: Any, labels: Any, most: float = 1.0, points: int = 3) -> float:
    """The largest ρ up to ``most``, within 1 %, whose path satisfies the lemmas' condition.

    For small ρ the allowance −‖g‖/ρ is unbounded, so the condition holds near 0: ρ is halved until it does, and the
    last factor of two is searched by bisection.
    """
    check_positive("most", most)

    def bounded(rho: float) -> bool:
        return sam_step(model, inputs, labels, rho, points).bounded

    low, high = most, most
    while not bounded(low):
        low, high = low / 2, low
        if low < 1e-12 * most:
            return 0.0
    while high - low > 0.01 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if bounded(middle) else (low, middle)
    return low


def sam_certificates(step: SamStep, gamma: float = 1.0) -> list[Certificate]:
    """Lemmas 1–2 and Theorems 1–3 on one ascent; corrected where the paper's print is wrong (docs/EQUATIONS.md)."""
    falls = step.perturbed_loss >= step.loss
    half = step.rho * step.gradient_norm / 2
    places = f"κ_min ≥ −‖g‖/ρ = {step.allowed:.4g} at {len(step.path)} places from θ to θ̃"
    bounded = Hypothesis(places, step.bounded)
    down = Hypothesis("p̃ ≤ p, in the geometric mean over the batch", falls)
    batch = float(entropy_slack(-step.loss, -step.perturbed_loss))
    right = step.perturbed_loss
    found = [
        inequality("Lemma 2", "L(θ) + ρ‖g‖/2 ≤ L(θ̃), that is p̃ ≤ e^{−ρ‖g‖/2} p", step.loss + half, right, bounded,
                   error=1e-6 * abs(right)),
        inequality("Theorem 2", "L(θ) − λH(p) + H(p̃) ≤ L(θ̃)", right - batch, right, down),
        _each(step),
        _weighted(step, gamma),
    ]  # fmt: skip
    if len(step.log_p) == 1:
        found[0] = replace(found[0], name="Lemma 1")
    return found


def _each(step: SamStep) -> Certificate:
    """Theorem 1 on the examples that it speaks of."""
    rows = np.flatnonzero(step.log_p_tilde <= step.log_p)
    slack = entropy_slack(step.log_p[rows], step.log_p_tilde[rows])
    right = -step.log_p_tilde[rows]
    text = f"ℓ(θ) − λH(p) + H(p̃) ≤ ℓ(θ̃); p̃ ≤ p in {len(rows):,} of {len(step.log_p):,} rows"
    return pointwise("Theorem 1", text, right - slack, right, rows=rows)


def _weighted(step: SamStep, gamma: float) -> Certificate:
    """Theorem 3: CSAM's weight takes (1 − γ/2) off H(p̃), for p̃ > ½."""
    rows = np.flatnonzero((step.log_p_tilde <= step.log_p) & (step.log_p_tilde > -math.log(2)))
    p, q = step.log_p[rows], step.log_p_tilde[rows]
    weighted = (1 + np.exp(q)) ** -gamma * -q
    left = -q - entropy_slack(p, q) - gamma / 2 * _entropy(q)
    text = f"ℓ(θ) − λH(p) + (1−γ/2)H(p̃) ≤ (1+p̃)^{{−γ}} ℓ(θ̃), γ = {gamma:g}; p̃ > ½ and p̃ ≤ p in {len(rows):,} rows"
    small = Hypothesis(f"0 ≤ γ ≤ 2 (γ = {gamma:g})", 0 <= gamma <= 2)
    return pointwise("Theorem 3", text, left, weighted, small, rows=rows)


def _entropy(log_p: Floats) -> Floats:
    """H(p) = −p log p − (1 − p) log(1 − p)."""
    p, rest = np.exp(log_p), -np.expm1(log_p)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(-p * log_p - np.where(rest > 0, rest * np.log(rest), 0.0))
