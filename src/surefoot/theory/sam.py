"""Lemmas 1–2 and Theorems 1–3 of Tan et al. (2026) along one SAM perturbation θ → θ̃ = θ + ρ g/‖g‖."""

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
from surefoot.curvature.problem import select, split
from surefoot.deprecated import renamed_arguments
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
    """One SAM perturbation θ → θ̃ = θ + ρ g/‖g‖ on a batch Ω of n examples, with the gradient g of the mean loss.

    Attributes:
        rho: radius ρ of the perturbation, above 0.
        gradient_norm: length ‖g‖ of the gradient.
        log_p: (n,) log p_y at θ.
        log_p_tilde: (n,) log p̃_y at θ̃.
        path: κ_min and κ_max at places from θ to θ̃; empty if not measured.

    Example:
        >>> step = SamStep(0.1, 2.0, np.log([0.5]), np.log([0.25]))
        >>> round(step.loss, 6), round(step.perturbed_loss, 6), step.allowed
        (0.693147, 1.386294, -20.0)

    References:
        Tan et al. (2026), "Towards Understanding the Calibration Benefits of Sharpness-Aware Minimization",
        Lemmas 1 and 2, Remark 1.
    """

    rho: float
    gradient_norm: float
    log_p: Floats
    log_p_tilde: Floats
    path: tuple[PathPoint, ...] = ()

    @property
    def loss(self) -> float:
        """L_Ω(θ) = −log p, with the geometric mean p over the batch."""
        return float(-self.log_p.mean())

    @property
    def perturbed_loss(self) -> float:
        """L_Ω(θ̃)."""
        return float(-self.log_p_tilde.mean())

    @property
    def coefficients(self) -> dict[str, float]:
        """λ and λ₀ of the batch (Tan et al. (2026), Theorem 1 and Eq. 2)."""
        return entropy_coefficients(self.loss, self.perturbed_loss, self.rho * self.gradient_norm)

    @property
    def rising(self) -> float:
        """Share of examples with p̃ > p, to which Theorem 1 does not apply."""
        return float((self.log_p_tilde > self.log_p).mean())

    @property
    def allowed(self) -> float:
        """−‖g‖/ρ, the lower limit of κ_min in the condition of Lemmas 1 and 2."""
        return -self.gradient_norm / self.rho

    @property
    def bounded(self) -> bool:
        """Whether κ_min ≥ `allowed` at every measured place of the path; False without places."""
        return bool(self.path) and all(point.smallest >= self.allowed for point in self.path)

    @property
    def end_decides(self) -> bool:
        """Whether the condition at θ̃ alone gives the same verdict as all places of the path (Remark 1)."""
        return bool(self.path) and (self.path[-1].smallest >= self.allowed) == self.bounded

    @property
    def linearity(self) -> float:
        """R² of a straight line fitted to κ_min along the path (Remark 1).

        NaN with fewer than three places, and NaN if κ_min is constant.
        """
        if len(self.path) < 3:
            return math.nan
        t, kappa = np.array([(point.t, point.smallest) for point in self.path]).T
        spread = float(((kappa - kappa.mean()) ** 2).sum())
        if spread == 0:
            return math.nan
        left = kappa - np.polyval(np.polyfit(t, kappa, 1), t)
        return 1.0 - float((left**2).sum()) / spread


def sam_step(model: nn.Module, inputs: Any, labels: Any, rho: float, points: int = 0, *, tol: float = 1e-2) -> SamStep:
    """Measure one SAM perturbation θ → θ̃ = θ + ρ g/‖g‖ on a batch, with cross-entropy in eval mode.

    The parameters are restored bit-exactly.

    Args:
        model: a module from inputs to logits (n, k).
        inputs: (n, *shape) floating-point numbers.
        labels: (n,) integers in 0..k−1.
        rho: radius ρ of the perturbation, above 0.
        points: number of places from θ to θ̃ where κ_min and κ_max are measured; 0 measures none.
        tol: relative tolerance of the eigenvalues κ_min and κ_max.

    Returns:
        The measured perturbation.

    Raises:
        BadInput: when ``rho`` is not above 0, or the gradient is zero or not finite.

    Example:
        >>> model = nn.Linear(1, 2, bias=False)
        >>> _ = nn.init.zeros_(model.weight)
        >>> step = sam_step(model, torch.ones(1, 1), [0], rho=0.1)
        >>> round(step.gradient_norm, 4), step.perturbed_loss > step.loss
        (0.7071, True)

    References:
        Tan et al. (2026), "Towards Understanding the Calibration Benefits of Sharpness-Aware Minimization",
        Lemmas 1 and 2.
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
    """Compute the slack of Theorems 1 and 2 of Tan et al. (2026) without cancellation.

    ℓ(p̃) − [ℓ(p) − λH(p) + H(p̃)] = (1−p̃)(logit p − logit p̃) + (p−p̃)(−ln p)/(1−p).

    The slack is exact. The slack is never negative where p̃ ≤ p, and always negative where p̃ > p.

    Args:
        log_p: (n,) log p at θ, at most 0.
        log_p_tilde: (n,) log p̃ at θ̃, at most 0.

    Returns:
        (n,) slacks.

    Example:
        >>> entropy_slack(np.log([0.5, 0.5, 0.5]), np.log([0.25, 0.5, 0.75])).round(6).tolist()
        [1.170533, 0.0, -0.621227]

    References:
        Tan et al. (2026), "Towards Understanding the Calibration Benefits of Sharpness-Aware Minimization",
        Eqs. 1 and 3, Theorems 1 and 2.
    """
    a, b = np.asarray(log_p, np.float64), np.asarray(log_p_tilde, np.float64)
    rest, rest_tilde = -np.expm1(a), -np.expm1(b)
    with np.errstate(divide="ignore", invalid="ignore"):
        logits = (a - np.log(rest)) - (b - np.log(rest_tilde))
        difference = np.exp(b) * np.expm1(a - b)
        slack = rest_tilde * logits + difference * -a / rest
    return np.where(a == b, 0.0, slack)


@renamed_arguments(most="max_rho")
def largest_rho(model: nn.Module, inputs: Any, labels: Any, max_rho: float = 1.0, points: int = 3) -> float:
    """Find the largest radius ρ, within 1 %, whose path satisfies the condition κ_min ≥ −‖g‖/ρ of Lemmas 1 and 2.

    For small ρ the limit −‖g‖/ρ is unbounded, so the condition holds near 0. The search halves ρ until the condition
    holds, and bisects the last factor of two.

    Args:
        model: a module from inputs to logits (n, k); its parameters are restored.
        inputs: (n, *shape) floating-point numbers.
        labels: (n,) integers in 0..k−1.
        max_rho: largest radius to try, above 0.
        points: number of places of every path where κ_min is measured.

    Returns:
        The radius, at most ``max_rho``; 0 if no radius above 1e-12 · ``max_rho`` satisfies the condition.

    Raises:
        BadInput: when ``max_rho`` is not above 0, or the gradient is zero or not finite.

    Example:
        >>> model = nn.Linear(1, 2, bias=False)
        >>> _ = nn.init.zeros_(model.weight)
        >>> largest_rho(model, torch.ones(1, 1), [0])
        1.0

    References:
        Tan et al. (2026), "Towards Understanding the Calibration Benefits of Sharpness-Aware Minimization", Remark 2.
    """
    check_positive("max_rho", max_rho)

    def bounded(rho: float) -> bool:
        return sam_step(model, inputs, labels, rho, points).bounded

    low, high = max_rho, max_rho
    while not bounded(low):
        low, high = low / 2, low
        if low < 1e-12 * max_rho:
            return 0.0
    while high - low > 0.01 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if bounded(middle) else (low, middle)
    return low


def sam_certificates(step: SamStep, gamma: float = 1.0) -> list[Certificate]:
    """Check Lemmas 1–2 and Theorems 1–3 of Tan et al. (2026) on one SAM perturbation.

    The statements are corrected where the published ones are wrong; docs/EQUATIONS.md lists the corrections.

    Args:
        step: the perturbation; the lemmas apply only if its path was measured.
        gamma: γ of CSAM in Theorem 3, from 0 to 2.

    Returns:
        The certificates; Lemma 1 takes the place of Lemma 2 for a batch of one example.

    Example:
        >>> step = SamStep(0.1, 2.0, np.log([0.75]), np.log([0.625]))
        >>> [(certificate.name, certificate.verdict) for certificate in sam_certificates(step)]
        [('Lemma 1', 'not applicable'), ('Theorem 2', 'holds'), ('Theorem 1', 'holds'), ('Theorem 3', 'holds')]

    References:
        Tan et al. (2026), "Towards Understanding the Calibration Benefits of Sharpness-Aware Minimization",
        Lemmas 1 and 2, Theorems 1–3.
    """
    falls = step.perturbed_loss >= step.loss
    half = step.rho * step.gradient_norm / 2
    places = f"κ_min ≥ −‖g‖/ρ = {step.allowed:.4g} at {len(step.path)} places from θ to θ̃"
    bounded = Hypothesis(places, step.bounded)
    down = Hypothesis("p̃ ≤ p, in the geometric mean over the batch", falls)
    batch = float(entropy_slack(-step.loss, -step.perturbed_loss))
    right = step.perturbed_loss
    certificates = [
        inequality("Lemma 2", "L(θ) + ρ‖g‖/2 ≤ L(θ̃), that is p̃ ≤ e^{−ρ‖g‖/2} p", step.loss + half, right, bounded,
                   error=1e-6 * abs(right)),
        inequality("Theorem 2", "L(θ) − λH(p) + H(p̃) ≤ L(θ̃)", right - batch, right, down),
        _by_example(step),
        _weighted(step, gamma),
    ]  # fmt: skip
    if len(step.log_p) == 1:
        certificates[0] = replace(certificates[0], name="Lemma 1")
    return certificates


def _by_example(step: SamStep) -> Certificate:
    """Theorem 1 on the examples with p̃ ≤ p."""
    rows = np.flatnonzero(step.log_p_tilde <= step.log_p)
    slack = entropy_slack(step.log_p[rows], step.log_p_tilde[rows])
    right = -step.log_p_tilde[rows]
    text = f"ℓ(θ) − λH(p) + H(p̃) ≤ ℓ(θ̃); p̃ ≤ p in {len(rows):,} of {len(step.log_p):,} rows"
    return pointwise("Theorem 1", text, right - slack, right, rows=rows)


def _weighted(step: SamStep, gamma: float) -> Certificate:
    """Theorem 3: with CSAM's weight, H(p̃) has the factor 1 − γ/2, for p̃ > ½."""
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
