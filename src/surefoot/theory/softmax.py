"""What one margin says of one softmax: Lemmas B.2–B.4 of Morosini et al. (2026), printed and tighter."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["logit_curvature", "logit_curvature_bound", "tail_lower", "tail_upper"]

Floats = NDArray[np.float64]


def tail_upper(margins: ArrayLike, classes: int, form: str = "tighter") -> Floats:
    """(n,) at least 1 − p_y: S = (K−1)e^{−m} as printed (Eq. 1 of Appendix B); S/(1+S), below 1, the tighter one."""
    m = np.asarray(margins, np.float64)
    with np.errstate(over="ignore"):
        return (classes - 1) * np.exp(-m) if form == "printed" else (classes - 1) / (np.exp(m) + (classes - 1))


def tail_lower(margins: ArrayLike, classes: int, form: str = "tighter") -> Floats:
    """(n,) at most 1 − p_y: e^{−m}/(1+(K−1)e^{−m}) as printed (Eq. 2); σ(−m) as the tighter one."""
    others = classes - 1 if form == "printed" else 1
    with np.errstate(over="ignore"):
        return 1.0 / (np.exp(np.asarray(margins, np.float64)) + others)


def logit_curvature(probs: ArrayLike, rounds: int = 100) -> Floats:
    """(n,) λ_max(diag(p) − p pᵀ) of rows p (n, k), by bisection of its secular equation.

    The largest root of 1 = Σ p_k²/(p_k − λ) lies between the two largest probabilities (interlacing).
    """
    p = np.sort(np.asarray(probs, np.float64), axis=1)[:, ::-1]
    top, rest = p[:, 0], p[:, 1:]
    doubt = rest.sum(axis=1)
    low, high = rest[:, 0].copy(), np.minimum(top, 2 * doubt)
    for _ in range(rounds):
        middle = 0.5 * (low + high)
        with np.errstate(divide="ignore", invalid="ignore"):
            # Of the top class, 1 − p²/(p − λ) = (p(1 − p) − λ)/(p − λ) keeps its digits where p rounds to 1.
            value = (top * doubt - middle) / (top - middle) - (rest**2 / (rest - middle[:, None])).sum(axis=1)
        above = value > 0  # the root lies above the middle
        low, high = np.where(above, middle, low), np.where(above, high, middle)
        if np.all(high - low <= 4e-16 * high):
            break
    found: Any = np.where(top == rest[:, 0], top, high)
    return np.where(doubt == 0, 0.0, found)


def logit_curvature_bound(probs: ArrayLike, form: str = "tighter") -> Floats:
    """(n,) at least λ_max(H_z): 2(1 − p_max) as printed (Lemma B.4); max_k 2p_k(1 − p_k), at most ½, the tighter."""
    p = np.asarray(probs, np.float64)
    order = np.sort(p, axis=1)
    doubt = order[:, :-1].sum(axis=1)
    if form == "printed":
        return np.asarray(2 * doubt)
    products = 2 * order * (1 - order)
    products[:, -1] = 2 * order[:, -1] * doubt
    found: Floats = products.max(axis=1)
    return found
