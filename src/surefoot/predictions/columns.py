"""The columns of predictions: (n,) float64 numbers derived from a block of logits or probabilities in log space.

Shapes: a block has b rows and k classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["columns_from_logits", "columns_from_probs", "empty_columns", "single_column", "soften"]

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


# Columns of rows with one score, each by itself: a table of ten million rows need not hold nine columns of them.
# ``own`` and ``other`` are the scores (probabilities, or logits) of the predicted and of the other class.


def single_column(
    name: str, scores: NDArray[Any], labels: NDArray[np.int64], kind: str, predicts_positive: bool = False
) -> NDArray[Any]:
    """Derive one column of rows that have one score of the positive class.

    Args:
        name: name of the column.
        scores: (b,) probabilities or logits of the positive class.
        labels: (b,) 0 or 1.
        kind: ``"probs"`` or ``"logits"``.
        predicts_positive: whether every row predicts the positive class, as a confidence in a prediction does;
            otherwise a row predicts the more probable class.

    Returns:
        (b,) the column: that of the same scores in two columns, up to rounding.

    Example:
        >>> single_column("log_true", np.array([0.25]), np.array([1]), "probs").round(4).tolist()
        [-1.3863]
    """
    score = np.asarray(scores, np.float64)
    positive = np.ones(len(score), np.bool_) if predicts_positive else score > (0.5 if kind == "probs" else 0.0)
    if name == "predicted":
        return positive.astype(np.int64)
    correct: NDArray[Any] = positive == (labels == 1)
    if name == "correct":
        return correct
    with np.errstate(over="ignore", divide="ignore", under="ignore", invalid="ignore"):
        if kind == "probs":
            return _from_probability(name, score, positive, correct, predicts_positive)
        return _from_logit(name, np.where(positive, score, -score), correct)


def _from_probability(
    name: str, p: Floats, positive: NDArray[np.bool_], correct: NDArray[np.bool_], given: bool
) -> NDArray[Any]:
    own = np.where(positive, p, 1.0 - p)
    if name == "confidence":
        return own
    # Where the other class is the positive one, 1 − (1 − p) is not p: equal confidences have equal error probabilities.
    error = 1.0 - own if given else np.where(own < 1.0, 1.0 - own, np.where(positive, 1.0 - p, p))
    if name == "error_probability":
        return error
    other = np.where(positive, 1.0 - p, p)
    if name == "squared_error":
        wrong: Floats = np.where(correct, other, own)
        return 2.0 * wrong**2
    if name == "log_confidence":
        return np.log(own)
    log_true: Floats = np.log(np.where(correct, own, other))
    if name == "log_true":
        return log_true
    margin = np.log(own) - np.log(other)
    return margin if name == "predicted_margin" else np.where(correct, margin, log_true - np.log(own))


def _from_logit(name: str, own: Floats, correct: NDArray[np.bool_]) -> NDArray[Any]:
    """Columns from the log-odds of the predicted class."""
    if name == "predicted_margin":
        return own
    if name == "true_margin":
        return np.where(correct, own, -own)
    if name == "log_confidence":
        return -np.logaddexp(0.0, -own)
    if name == "log_true":
        return -np.logaddexp(0.0, np.where(correct, -own, own))
    if name == "confidence":
        return 1.0 / (1.0 + np.exp(-own))
    if name == "error_probability":
        return 1.0 / (1.0 + np.exp(own))
    wrong = 1.0 / (1.0 + np.exp(np.where(correct, own, -own)))
    return 2.0 * wrong**2


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
