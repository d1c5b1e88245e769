"""Ranking metrics, which measure whether correct rows have more confidence than wrong rows: AUROC, AURC, FPR95.

Rows are ranked by their error probability 1 − c in full precision, so confidences that all round to 1 do not become
ties. True ties count half in AUROC; in AURC they count by the mean over their orders. Without a correct row, or without
a wrong row, AUROC and FPR95 have the value of chance, and their fact ``pairs`` is 0.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from surefoot.metrics.bins import ordered
from surefoot.metrics.value import Value
from surefoot.predictions import Predictions, takes_predictions

__all__ = ["aurc", "auroc_misclassification", "auroc_of", "auroc_ovr", "e_aurc", "fpr95", "fpr95_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@takes_predictions
def auroc_misclassification(p: Predictions) -> Value:
    """AUROC of misclassification: the probability that a correct row is more confident than a wrong row.

    Ties count half; a random ranking has ½.

    Args:
        p: the predictions.

    Returns:
        The AUROC, in [0, 1]; its fact ``pairs`` is the number of pairs of a correct and a wrong row.

    Raises:
        BadInput: when ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]], [0, 1, 0])
        >>> auroc_misclassification(p)
        Value(0.5, n=3, pairs=2)

    References:
        Hendrycks & Gimpel (2017), "A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural
        Networks".
        Tan et al. (2026), "Towards Understanding the Calibration Benefits of Sharpness-Aware Minimization",
        Tables 3 and S10, which name an AUROC without a definition; `auroc_ovr` is the other reading.
    """
    return _auroc(*_groups(p))


@takes_predictions
def fpr95(p: Predictions) -> Value:
    """Share of wrong rows accepted at the highest confidence threshold that accepts 95 % of the correct rows.

    Args:
        p: the predictions.

    Returns:
        The false-positive rate, in [0, 1]; a random ranking has 0.95.

    Raises:
        BadInput: when ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]], [0, 1, 0])
        >>> fpr95(p)
        Value(1.0, n=3, pairs=2)

    References:
        Hendrycks & Gimpel (2017), "A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural
        Networks".
    """
    return _fpr95(*_groups(p))


@takes_predictions
def aurc(p: Predictions) -> Value:
    """Area under the risk–coverage curve (AURC): mean over i = 1..n of the error rate of the i most confident rows.

    Args:
        p: the predictions.

    Returns:
        The area, in [0, 1].

    Raises:
        BadInput: when ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.9, 0.1], [0.8, 0.2]], [0, 1])
        >>> aurc(p)
        Value(0.25, n=2)

    References:
        Geifman, Uziel & El-Yaniv (2019), "Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers".
    """
    count, hits = _groups(p)
    misses = count - hits
    size = np.repeat(count, count)
    place = np.arange(1, len(p) + 1)
    start = np.repeat(np.cumsum(count) - count, count)
    errors = np.repeat(np.cumsum(misses) - misses, count) + (place - start) * (np.repeat(misses, count) / size)
    return Value(float((errors / place).sum()) / len(p), n=len(p))


@takes_predictions
def e_aurc(p: Predictions) -> Value:
    """Excess AURC: AURC minus the AURC of an ideal ranking with the same error rate r, r + (1 − r) ln(1 − r).

    Args:
        p: the predictions.

    Returns:
        The difference, at least 0 up to rounding. The ideal AURC is the limit for many rows: with few rows an ideal
        ranking has a difference above 0.

    Raises:
        BadInput: when ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.9, 0.1], [0.8, 0.2]], [0, 1])
        >>> round(e_aurc(p), 6)
        0.096574

    References:
        Geifman, Uziel & El-Yaniv (2019), "Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers".
    """
    from scipy.special import xlogy

    r = 1 - np.count_nonzero(p.correct) / len(p)
    return Value(aurc(p) - (r + float(xlogy(1 - r, 1 - r))), n=len(p))


@takes_predictions
def auroc_ovr(p: Predictions) -> Value:
    """One-versus-rest AUROC: mean over classes of the AUROC of p_k for "is class k", in O(n k log n).

    Classes without rows, or with all rows, cannot be ranked and are left out. Rows are ranked by log-probabilities,
    which do not saturate where logits were given.

    Args:
        p: the predictions.

    Returns:
        The mean, in [0, 1], with the number of ranked classes as the fact ``classes``; ½ if no class can be ranked.

    Raises:
        BadInput: when ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]], [0, 1, 0])
        >>> auroc_ovr(p)
        Value(0.5, n=3, classes=2)

    References:
        Tan et al. (2026), "Towards Understanding the Calibration Benefits of Sharpness-Aware Minimization",
        Tables 3 and S10, which name an AUROC without a definition; `auroc_misclassification` is the other reading.
    """
    n = len(p)
    totals = np.bincount(p.labels, minlength=p.classes)
    present = np.flatnonzero((totals > 0) & (totals < n))
    if len(present) == 0:
        return Value(0.5, n=n, classes=0, pairs=0)
    log_probs = p.log_probs
    areas = []
    for k in present:
        column = np.sort(log_probs[:, k])
        own = log_probs[p.labels == k, k]
        ranks = np.searchsorted(column, own, "left") + np.searchsorted(column, own, "right")
        positives = len(own)
        # ranks/2 counts the rows below plus half of the ties; both include rows of the class itself.
        wins = int(ranks.sum()) / 2 - positives**2 / 2
        areas.append(wins / (positives * (n - positives)))
    return Value(math.fsum(areas) / len(areas), n=n, classes=len(areas))


def auroc_of(uncertainty: Floats, hit: NDArray[np.bool_]) -> Value:
    """AUROC of any uncertainty score: the probability that a hit has a lower score than a miss; ties count half.

    Args:
        uncertainty: (n,) scores; infinities are allowed.
        hit: (n,) which rows are hits.

    Returns:
        The AUROC, in [0, 1]; ½ without hits or without misses.

    Example:
        >>> auroc_of(np.array([0.1, 0.2, 0.3]), np.array([True, True, False]))
        Value(1.0, n=3, pairs=2)
    """
    return _auroc(*_grouped_by(uncertainty, hit))


def fpr95_of(uncertainty: Floats, hit: NDArray[np.bool_]) -> Value:
    """Share of misses accepted at the lowest threshold on an uncertainty score that accepts 95 % of the hits.

    Args:
        uncertainty: (n,) scores; infinities are allowed.
        hit: (n,) which rows are hits.

    Returns:
        The false-positive rate, in [0, 1]; 0.95 without hits or without misses.

    Example:
        >>> fpr95_of(np.array([0.1, 0.2, 0.3]), np.array([True, True, False]))
        Value(0.0, n=3, pairs=2)
    """
    return _fpr95(*_grouped_by(uncertainty, hit))


def _auroc(count: Ints, hits: Ints) -> Value:
    misses = count - hits
    pairs = int(hits.sum()) * int(misses.sum())
    if pairs == 0:
        return Value(0.5, n=int(count.sum()), pairs=0)
    # The most confident group comes first: a hit wins against the misses of later groups.
    later = misses.sum() - np.cumsum(misses)
    wins = int((hits * later).sum()) + int((hits * misses).sum()) / 2
    return Value(wins / pairs, n=int(count.sum()), pairs=pairs)


def _fpr95(count: Ints, hits: Ints) -> Value:
    accepted, passed = np.cumsum(hits), np.cumsum(count - hits)
    if accepted[-1] == 0 or passed[-1] == 0:
        return Value(0.95, n=int(count.sum()), pairs=0)
    # 20·accepted ≥ 19·all, in integers: 0.95 has no exact binary form.
    first = int(np.argmax(20 * accepted >= 19 * accepted[-1]))
    return Value(int(passed[first]) / int(passed[-1]), n=int(count.sum()), pairs=int(accepted[-1]) * int(passed[-1]))


def _groups(p: Predictions) -> tuple[Ints, Ints]:
    """Rows and hits of each group of equal error probability, the most confident group first."""
    return p.memo("groups of equal error probability", lambda: _make_groups(p))


def _make_groups(p: Predictions) -> tuple[Ints, Ints]:
    error, hit = ordered(p.error_probability, p.correct)
    starts = np.concatenate([[0], np.flatnonzero(error[1:] != error[:-1]) + 1])
    ends = np.append(starts[1:], len(error))
    return ends - starts, np.add.reduceat(hit.astype(np.int64), starts)


def _grouped_by(uncertainty: Floats, hit: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Rows and hits of each group of equal uncertainty, for scores of any range, also infinite ones."""
    place = np.unique(uncertainty, return_inverse=True)[1]
    return np.bincount(place), np.bincount(place[hit], minlength=int(place.max()) + 1)
