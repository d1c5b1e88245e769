"""The columns of predictions: (n,) float64 numbers derived from a block of logits or probabilities in log space.

Shapes: a block has b rows and k classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["columns_from_confidence", "columns_from_logits", "columns_from_probs", "empty_columns", "soften"]

Floats = NDArray[np.float64]


def empty_columns(n: int, soft: bool = False) -> dict[str, NDArray[Any]]:
    """Allocate every column of n rows.

    Args:
        n: number of rows.
        soft: whether the labels are soft, so that a row may be partly correct.

    Returns:
        (n,) uninitialised arrays by the name of the column.
    """
    floats = [
        "confidence",
        "log_confidence",
        "error_probability",
        "log_true",
        "true_margin",
        "predicted_margin",
        "squared_error",
    ]
    columns: dict[str, NDArray[Any]] = {name: np.empty(n) for name in floats}
    columns["predicted"], columns["correct"] = np.empty(n, np.int64), np.empty(n, np.float64 if soft else np.bool_)
    return columns


def columns_from_logits(
    z: Floats, labels: NDArray[np.int64], wanted: str | None
) -> tuple[dict[str, NDArray[Any]], Floats]:
    """Derive the columns of a block of logits.

    Args:
        z: (b, k) logits in float64; the function overwrites them.
        labels: (b,) classes in 0..k−1.
        wanted: ``"probs"`` or ``"log_probs"`` to also derive that matrix; None for the columns alone.

    Returns:
        The (b,) columns by name, and the memory of ``z`` with the wanted (b, k) matrix (without meaning for None).

    Example:
        >>> columns, probs = columns_from_logits(np.array([[0.0, 0.0]]), np.array([1]), "probs")
        >>> columns["correct"].tolist(), probs.tolist()
        ([False], [[0.5, 0.5]])
    """
    rows = np.arange(len(z))
    predicted = z.argmax(axis=1)
    top, true = z[rows, predicted], z[rows, labels]
    correct = predicted == labels
    z -= top[:, None]
    below = true - top  # the label's logit minus the largest logit: 0 if the label is predicted
    shifted = z.copy() if wanted == "log_probs" else z
    shifted[rows, predicted] = -np.inf
    runner_up = shifted.max(axis=1)
    e = np.exp(shifted, out=shifted)
    # A sum without the largest logit stays accurate where the confidence rounds to 1.
    rest = e.sum(axis=1)
    squares = np.vecdot(e, e)
    total = 1.0 + rest
    log_total = np.log1p(rest)
    columns = {
        "predicted": predicted,
        "correct": correct,
        "confidence": 1.0 / total,
        "log_confidence": -log_total,
        "error_probability": rest / total,
        "log_true": below - log_total,
        "true_margin": np.where(correct, -runner_up, below),
        "predicted_margin": -runner_up,
    }
    columns["squared_error"] = _squared_error(columns, squares / total**2)
    if wanted == "log_probs":
        z -= log_total[:, None]
    if wanted == "probs":
        e *= columns["confidence"][:, None]
        e[rows, predicted] = columns["confidence"]
    return columns, z


def columns_from_probs(
    p: Floats, labels: NDArray[np.int64], wanted: str | None
) -> tuple[dict[str, NDArray[Any]], Floats]:
    """Derive the columns of a block of probabilities.

    Rows whose sum differs from 1 by more than the rounding of float64 are divided by their sum.

    Args:
        p: (b, k) probabilities in float64; the function overwrites them.
        labels: (b,) classes in 0..k−1.
        wanted: ``"log_probs"`` to derive the logarithms too; otherwise the probabilities are returned.

    Returns:
        The (b,) columns by name, and the memory of ``p`` with the (b, k) probabilities or their logarithms.

    Example:
        >>> columns, probs = columns_from_probs(np.array([[0.25, 0.75]]), np.array([1]), None)
        >>> columns["confidence"].tolist(), probs.tolist()
        ([0.75], [[0.25, 0.75]])
    """
    rows = np.arange(len(p))
    sums = p.sum(axis=1)
    # Sums that are off by the rounding of float64 alone are kept: a confidence given as 0.2 stays on its bin's edge.
    inexact = np.abs(sums - 1.0) > p.shape[1] * np.finfo(np.float64).eps
    p[inexact] /= sums[inexact, None]
    np.minimum(p, 1.0, out=p)  # a sum may exceed 1 by rounding, a probability may not
    predicted = p.argmax(axis=1)
    confidence, log_true = p[rows, predicted], np.log(p[rows, labels])
    correct = predicted == labels
    p[rows, predicted] = 0.0
    rest, second = p.sum(axis=1), p.max(axis=1)
    squares = np.vecdot(p, p)
    p[rows, predicted] = confidence
    log_confidence = np.log(confidence)
    margin = log_confidence - np.log(second)
    columns = {
        "predicted": predicted,
        "correct": correct,
        "confidence": confidence,
        "log_confidence": log_confidence,
        # Equal confidences have equal error probabilities; only where confidences saturate do the other entries decide.
        "error_probability": np.where(confidence < 1.0, 1.0 - confidence, rest),
        "log_true": log_true,
        "true_margin": np.where(correct, margin, log_true - log_confidence),
        "predicted_margin": margin,
    }
    columns["squared_error"] = _squared_error(columns, squares)
    return columns, np.log(p, out=p) if wanted == "log_probs" else p


def columns_from_confidence(
    block: Floats, labels: NDArray[np.int64], wanted: str | None, kind: str
) -> tuple[dict[str, NDArray[Any]], Floats]:
    """Derive the columns where only a confidence is known: the prediction is right, with that probability, or wrong.

    Args:
        block: (b, 2) probabilities of wrong and right, or logits of both, in float64; the function overwrites them.
        labels: (b,) 1 where the prediction was right, 0 where it was wrong.
        wanted: ``"probs"`` or ``"log_probs"`` to also derive that matrix.
        kind: ``"probs"`` or ``"logits"``.

    Returns:
        The (b,) columns by name, and the wanted (b, 2) matrix.

    Example:
        >>> columns, _ = columns_from_confidence(np.array([[0.75, 0.25]]), np.array([0]), None, "probs")
        >>> columns["confidence"].tolist(), columns["correct"].tolist(), columns["squared_error"].tolist()
        ([0.25], [False], [0.125])
    """
    if kind == "logits":
        odds = block[:, 1] - block[:, 0]
        log_wrong, log_right = -np.logaddexp(0, odds), -np.logaddexp(0, -odds)
        wrong, right = np.exp(log_wrong), np.exp(log_right)
    else:
        wrong, right = block[:, 0].copy(), block[:, 1].copy()
        log_wrong, log_right = np.log1p(-right), np.log(right)
        odds = log_right - log_wrong
    correct = labels == 1
    columns = {
        "predicted": np.ones(len(block), np.int64),
        "correct": correct,
        "confidence": right,
        "log_confidence": log_right,
        "error_probability": wrong,
        "log_true": np.where(correct, log_right, log_wrong),
        "true_margin": np.where(correct, odds, -odds),
        "predicted_margin": odds,
        "squared_error": 2.0 * np.where(correct, wrong, right) ** 2,
    }
    pair = (log_wrong, log_right) if wanted == "log_probs" else (wrong, right)
    return columns, np.stack(pair, axis=1)


def soften(
    columns: dict[str, NDArray[Any]], log_probs: Floats, soft: Floats, wanted: str | None
) -> tuple[dict[str, NDArray[Any]], Floats]:
    """Replace the columns that compare with a label by their means over a soft label.

    Args:
        columns: (b,) columns that were derived with the most probable class as label.
        log_probs: (b, k) log-probabilities; the function may overwrite them.
        soft: (b, k) soft labels.
        wanted: ``"probs"`` for the probabilities; otherwise the logarithms are returned.

    Returns:
        The columns, and the wanted (b, k) matrix.

    Example:
        >>> columns, _ = soften({"predicted": np.array([0])}, np.log([[0.75, 0.25]]), np.array([[0.5, 0.5]]), None)
        >>> columns["correct"].tolist(), columns["squared_error"].tolist()
        ([0.5], [0.125])
    """
    rows = np.arange(len(soft))
    columns["correct"] = soft[rows, columns["predicted"]]
    columns["log_true"] = np.where(soft > 0, soft * np.where(soft > 0, log_probs, 0.0), 0.0).sum(axis=1)
    probs = np.exp(log_probs)
    columns["squared_error"] = ((probs - soft) ** 2).sum(axis=1)
    return columns, probs if wanted == "probs" else log_probs


def _squared_error(columns: dict[str, NDArray[Any]], others: Floats) -> Floats:
    """Σ_k (p_k − 1{k = label})² from ``others`` = Σ p_k² over the classes that were not predicted."""
    true = np.exp(columns["log_true"])
    right = others + columns["error_probability"] ** 2
    wrong = np.maximum(others - true**2, 0.0) + columns["confidence"] ** 2 + (1.0 - true) ** 2
    error: Floats = np.where(columns["correct"], right, wrong)
    return error
