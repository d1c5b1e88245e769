"""Bounds of a softmax by its margin: Lemmas B.2–B.4 of Morosini et al. (2026), as published and tighter."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.theory.certificate import published_form

__all__ = ["logit_curvature", "logit_curvature_bound", "tail_lower", "tail_upper"]

Floats = NDArray[np.float64]


def tail_upper(margins: ArrayLike, classes: int, form: str = "tighter") -> Floats:
    """Bound 1 − p_y from above by the true margin m.

    The published bound is S = (K−1)e^{−m}. The tighter bound is S/(1+S), which is below 1.

    Args:
        margins: (n,) true margins m.
        classes: number of classes K, at least 2.
        form: ``"published"`` for the published bound, ``"tighter"`` for the other.

    Returns:
        (n,) upper bounds.

    Example:
        >>> tail_upper([0.0], 3, "published").tolist(), tail_upper([0.0], 3).round(6).tolist()
        ([2.0], [0.666667])

    References:
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Lemma B.3, Appendix B,
        Eq. 1.
    """
    m = np.asarray(margins, np.float64)
    with np.errstate(over="ignore"):
        if published_form(form) == "published":
            return (classes - 1) * np.exp(-m)
        return (classes - 1) / (np.exp(m) + (classes - 1))


def tail_lower(margins: ArrayLike, classes: int, form: str = "tighter") -> Floats:
    """Bound 1 − p_y from below by the true margin m.

    The published bound is e^{−m}/(1+(K−1)e^{−m}). The tighter bound is σ(−m).

    Args:
        margins: (n,) true margins m.
        classes: number of classes K, at least 2.
        form: ``"published"`` for the published bound, ``"tighter"`` for the other.

    Returns:
        (n,) lower bounds.

    Example:
        >>> tail_lower([0.0], 3, "published").round(6).tolist(), tail_lower([0.0], 3).tolist()
        ([0.333333], [0.5])

    References:
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Lemma B.3, Appendix B,
        Eq. 2.
    """
    others = classes - 1 if published_form(form) == "published" else 1
    with np.errstate(over="ignore"):
        return 1.0 / (np.exp(np.asarray(margins, np.float64)) + others)


def logit_curvature(probs: ArrayLike, rounds: int = 100) -> Floats:
    """Compute λ_max(diag(p) − p pᵀ), the largest eigenvalue of the Hessian of cross-entropy in the logits.

    The eigenvalue is the largest root of 1 = Σ p_k²/(p_k − λ), which is between the two largest probabilities
    (interlacing). The root is found by bisection.

    Args:
        probs: (n, k) probabilities p, k at least 2.
        rounds: largest number of bisections.

    Returns:
        (n,) eigenvalues, in [0, ½].

    Example:
        >>> logit_curvature([[0.5, 0.5], [1.0, 0.0]]).tolist()
        [0.5, 0.0]
    """
    p = np.sort(np.asarray(probs, np.float64), axis=1)[:, ::-1]
    top, rest = p[:, 0], p[:, 1:]
    others = rest.sum(axis=1)  # 1 − p_max without cancellation
    low, high = rest[:, 0].copy(), np.minimum(top, 2 * others)
    for _ in range(rounds):
        middle = 0.5 * (low + high)
        with np.errstate(divide="ignore", invalid="ignore"):
            # For the top class, 1 − p²/(p − λ) = (p(1 − p) − λ)/(p − λ) keeps its digits where p rounds to 1.
            value = (top * others - middle) / (top - middle) - (rest**2 / (rest - middle[:, None])).sum(axis=1)
        above = value > 0  # the root is above the middle
        low, high = np.where(above, middle, low), np.where(above, high, middle)
        if np.all(high - low <= 4e-16 * high):
            break
    root: Any = np.where(top == rest[:, 0], top, high)
    return np.where(others == 0, 0.0, root)


def logit_curvature_bound(probs: ArrayLike, form: str = "tighter") -> Floats:
    """Bound λ_max(diag(p) − p pᵀ) from above.

    The published bound is 2(1 − p_max). The tighter bound is max_k 2p_k(1 − p_k), which is at most ½.

    Args:
        probs: (n, k) probabilities p, k at least 2.
        form: ``"published"`` for the published bound, ``"tighter"`` for the other.

    Returns:
        (n,) upper bounds of `logit_curvature`.

    Example:
        >>> logit_curvature_bound([[0.5, 0.5]], "published").tolist(), logit_curvature_bound([[0.5, 0.5]]).tolist()
        ([1.0], [0.5])

    References:
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Lemma B.4.
    """
    p = np.asarray(probs, np.float64)
    order = np.sort(p, axis=1)
    others = order[:, :-1].sum(axis=1)  # 1 − p_max without cancellation
    if published_form(form) == "published":
        return np.asarray(2 * others)
    products = 2 * order * (1 - order)
    products[:, -1] = 2 * order[:, -1] * others
    largest: Floats = products.max(axis=1)
    return largest
