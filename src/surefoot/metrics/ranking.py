"""Does confidence rank right above wrong? AUROC, AURC, FPR95 (card G).

Rows are ranked by their doubt 1 − c in full precision, so confidences that all round to 1 do not become
ties. True ties count half in AUROC, and by the mean over their orders in AURC. Where there is nothing to rank
(no right or no wrong row) the value is that of chance and its fact ``pairs`` is 0.
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
    """Probability that a right row is more confident than a wrong one; ties count half; chance is ½."""
    return _auroc(*_groups(p))


@takes_predictions
def fpr95(p: Predictions) -> Value:
    """Share of wrong rows accepted at the highest confidence threshold that accepts 95 % of the right ones."""
    return _fpr95(*_groups(p))


@takes_predictions
def aurc(p: Predictions) -> Value:
    """Area under the risk–coverage curve: mean over i = 1..n of the error rate of the i most confident rows."""
    count, hits = _groups(p)
    misses = count - hits
    size = np.repeat(count, count)
    place = np.arange(1, len(p) + 1)
    start = np.repeat(np.cumsum(count) - count, count)
    errors = np.repeat(np.cumsum(misses) - misses, count) + (place - start) * (np.repeat(misses, count) / size)
    return Value(float((errors / place).sum()) / len(p), n=len(p))


@takes_predictions
def e_aurc(p: Predictions) -> Value:
    """Excess AURC: over that of an ideal ranking with the same error rate r, r + (1 − r) ln(1 − r)."""
    from scipy.special import xlogy

    r = 1 - np.count_nonzero(p.correct) / len(p)
    return Value(aurc(p) - (r + float(xlogy(1 - r, 1 - r))), n=len(p))


@takes_predictions
def auroc_ovr(p: Predictions) -> Value:
    """Mean over classes of the AUROC of p_k for "is class k", one versus rest; O(n k log n).

    Classes that have no row, or every row, cannot be ranked and are left out; the fact ``classes`` says how
    many remain. Scores are log-probabilities, which do not saturate where logits were given.
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
        # ranks/2 counts rows below plus half of the ties, among them the rows of the class itself.
        wins = int(ranks.sum()) / 2 - positives**2 / 2
        areas.append(wins / (positives * (n - positives)))
    return Value(math.fsum(areas) / len(areas), n=n, classes=len(areas))


def auroc_of(doubt: Floats, hit: NDArray[np.bool_]) -> Value:
    """AUROC of any doubt (n,): probability that a hit has less of it than a miss; ties count half."""
    return _auroc(*_grouped_by(doubt, hit))


def fpr95_of(doubt: Floats, hit: NDArray[np.bool_]) -> Value:
    """Share of misses accepted at the lowest threshold on any doubt (n,) that accepts 95 % of the hits."""
    return _fpr95(*_grouped_by(doubt, hit))


def _auroc(count: Ints, hits: Ints) -> Value:
    misses = count - hits
    pairs = int(hits.sum()) * int(misses.sum())
    if pairs == 0:
        return Value(0.5, n=int(count.sum()), pairs=0)
    # Groups come with the most confident first: a hit beats the misses of later groups.
    later = misses.sum() - np.cumsum(misses)
    wins = int((hits * later).sum()) + int((hits * misses).sum()) / 2
    return Value(wins / pairs, n=int(count.sum()), pairs=pairs)


def _fpr95(count: Ints, hits: Ints) -> Value:
    accepted, passed = np.cumsum(hits), np.cumsum(count - hits)
    if accepted[-1] == 0 or passed[-1] == 0:
        return Value(0.95, n=int(count.sum()), pairs=0)
    # 20·accepted ≥ 19·all: in whole numbers, since 0.95 is none in binary.
    first = int(np.argmax(20 * accepted >= 19 * accepted[-1]))
    return Value(int(passed[first]) / int(passed[-1]), n=int(count.sum()), pairs=int(accepted[-1]) * int(passed[-1]))


def _groups(p: Predictions) -> tuple[Ints, Ints]:
    """Rows and hits of each group of equal doubt, the most confident group first."""
    return p.memo("groups of equal doubt", lambda: _make_groups(p))


def _make_groups(p: Predictions) -> tuple[Ints, Ints]:
    doubt, hit = ordered(p.error_probability, p.correct)
    starts = np.concatenate([[0], np.flatnonzero(doubt[1:] != doubt[:-1]) + 1])
    ends = np.append(starts[1:], len(doubt))
    return ends - starts, np.add.reduceat(hit.astype(np.int64), starts)


def _grouped_by(doubt: Floats, hit: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """The same for doubts of any range, infinities among them, and any hits."""
    place = np.unique(doubt, return_inverse=True)[1]
    return np.bincount(place), np.bincount(place[hit], minlength=int(place.max()) + 1)
