"""Ranking metrics, which measure whether correct rows have more confidence than wrong rows: AUROC, AURC, FPR95.

Rows are ranked by their error probability 1 − c in full precision, so confidences that all round to 1 do not become
ties. True ties count half in AUROC; in AURC they count by the mean over their orders. Without a correct row, or without
a wrong row, AUROC and FPR95 have the value of chance, and their fact ``pairs`` is 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
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
    return _with_facts(_auroc(*_groups(p)), p)


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
    return _with_facts(_fpr95(*_groups(p)), p)


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
    facts = _facts(p)
    if count.dtype.kind == "f":
        return Value(_area(count.astype(np.float64), misses.astype(np.float64)), **facts)
    size = np.repeat(count, count)
    place = np.arange(1, int(count.sum()) + 1)
    start = np.repeat(np.cumsum(count) - count, count)
    errors = np.repeat(np.cumsum(misses) - misses, count) + (place - start) * (np.repeat(misses, count) / size)
    return Value(float((errors / place).sum()) / len(place), **facts)


def _area(count: Floats, misses: Floats) -> float:
    """The area for weights that are no repetitions: the integral over the covered weight, the limit of many rows.

    Inside a group of equal confidence the misses M grow linearly with the weight t, at the rate r of the group, so that
    ∫ M(t)/t dt = (M₀ − r t₀) ln(t₁/t₀) + r (t₁ − t₀).
    """
    end = np.cumsum(count)
    begin, before, rate = end - count, np.cumsum(misses) - misses, misses / count
    grown = np.log(np.divide(end, begin, out=np.ones_like(end), where=begin > 0))
    return float(((before - rate * begin) * grown + rate * count).sum() / end[-1])


def _facts(p: Predictions) -> dict[str, Any]:
    return {name: fact for name, fact in p.events().facts().items() if name != "event"}


def _with_facts(value: Value, p: Predictions) -> Value:
    return Value(value, **{**value.facts, **_facts(p)})


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

    count, hits = _groups(p)
    r = 1 - float(hits.sum() / count.sum())
    return Value(aurc(p) - (r + float(xlogy(1 - r, 1 - r))), **_facts(p))


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
    p.require_classes("auroc_ovr")
    if p.soft_labels is not None:
        raise BadInput("auroc_ovr needs one label a row; these labels are soft")
    if p.weights is not None:
        return _weighted_auroc_ovr(p, p.weights)
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


def _weighted_auroc_ovr(p: Predictions, weights: Floats) -> Value:
    totals = np.bincount(p.labels, weights, p.classes)
    total = float(weights.sum())
    present = np.flatnonzero((totals > 0) & (totals < total))
    if len(present) == 0:
        return Value(0.5, classes=0, pairs=0, **_facts(p))
    log_probs, areas = p.log_probs, []
    for k in present:
        order = np.argsort(log_probs[:, k], kind="stable")
        column, below = log_probs[order, k], np.concatenate([[0.0], np.cumsum(weights[order])])
        own, mine = log_probs[p.labels == k, k], weights[p.labels == k]
        ranks = below[np.searchsorted(column, own, "left")] + below[np.searchsorted(column, own, "right")]
        wins = float(mine @ ranks) / 2 - totals[k] ** 2 / 2
        areas.append(wins / (totals[k] * (total - totals[k])))
    return Value(math.fsum(areas) / len(areas), classes=len(areas), **_facts(p))


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
    pairs = hits.sum().item() * misses.sum().item()
    if pairs == 0:
        return Value(0.5, n=int(count.sum()), pairs=0)
    # The most confident group comes first: a hit wins against the misses of later groups.
    later = misses.sum() - np.cumsum(misses)
    wins = (hits * later).sum().item() + (hits * misses).sum().item() / 2
    return Value(wins / pairs, n=int(count.sum()), pairs=pairs)


def _fpr95(count: Ints, hits: Ints) -> Value:
    accepted, passed = np.cumsum(hits), np.cumsum(count - hits)
    if accepted[-1] == 0 or passed[-1] == 0:
        return Value(0.95, n=int(count.sum()), pairs=0)
    # 20·accepted ≥ 19·all, in integers: 0.95 has no exact binary form.
    first = int(np.argmax(20 * accepted >= 19 * accepted[-1]))
    pairs = accepted[-1].item() * passed[-1].item()
    return Value(passed[first].item() / passed[-1].item(), n=int(count.sum()), pairs=pairs)


def _groups(p: Predictions) -> tuple[Ints, Ints]:
    """Rows and hits of each group of equal error probability, the most confident group first."""
    return p.memo("groups of equal error probability", lambda: _make_groups(p))


def _make_groups(p: Predictions) -> tuple[Any, Any]:
    if p.soft_labels is not None:
        raise BadInput("rankings of right and wrong rows need one label a row; these labels are soft")
    if p.weights is None:
        error, hit = ordered(p.error_probability, p.correct)
        weights: Any = np.ones(len(error), np.int64)
    else:
        order = np.argsort(p.error_probability, kind="stable")
        error, hit = p.error_probability[order], p.correct[order]
        # Integer weights count repetitions, in integers; sums of other weights are floats.
        weights = p.weights[order].astype(np.int64) if p.events().repetitions else p.weights[order]
    starts = np.concatenate([[0], np.flatnonzero(error[1:] != error[:-1]) + 1])
    return np.add.reduceat(weights, starts), np.add.reduceat(np.where(hit, weights, 0), starts)


def _grouped_by(uncertainty: Floats, hit: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Rows and hits of each group of equal uncertainty, for scores of any range, also infinite ones."""
    place = np.unique(uncertainty, return_inverse=True)[1]
    return np.bincount(place), np.bincount(place[hit], minlength=int(place.max()) + 1)
