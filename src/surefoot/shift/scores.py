"""Is this input like those it was trained on? Scores from predictions, and how well they tell foreign rows.

Every score is higher for rows that look familiar. Those that come from probabilities are kept as logarithms of what
is left over (1 − c, entropy), so confidences that all round to 1 do not become ties.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from surefoot.errors import BadInput
from surefoot.metrics.ranking import auroc_of, fpr95_of
from surefoot.metrics.value import Value
from surefoot.predictions import Predictions, check_predictions
from surefoot.validation import suggest

__all__ = ["SCORES", "auroc_ood", "fpr95_ood", "ood_scores"]

Floats = NDArray[np.float64]


def _log_doubt(log_probs: Floats, top: NDArray[np.int64]) -> Floats:
    """(n,) log(1 − c) as the logarithm of the sum of all other probabilities; −inf where they are all 0."""
    others = log_probs.copy()
    others[np.arange(len(top)), top] = -np.inf
    with np.errstate(divide="ignore"):
        found: Floats = logsumexp(others, axis=1)
    return found


def _max_probability(p: Predictions) -> Floats:
    return -_log_doubt(p.log_probs, p.predicted)


def _entropy(p: Predictions) -> Floats:
    log_probs = p.log_probs
    rows = np.arange(len(p))
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = log_probs + np.log(-log_probs)
    terms[np.isneginf(log_probs)] = -np.inf  # p log p is 0 at 0
    # −log c is 1 − c where that is tiny, and log c may have rounded to 0.
    doubt = _log_doubt(log_probs, p.predicted)
    terms[rows, p.predicted] = np.where(doubt < -30, doubt, terms[rows, p.predicted])
    with np.errstate(divide="ignore"):
        found: Floats = -logsumexp(terms, axis=1)
    return found


def _energy(p: Predictions) -> Floats:
    found: Floats = logsumexp(np.asarray(p.logits, np.float64), axis=1)
    if np.abs(found).max() < 1e-5:  # up to the rounding of float32
        raise BadInput(
            "energy needs logits; these rows are log-probabilities (an ensemble's mean, or from_probs), whose energy "
            "is 0 for every row; take max_probability or entropy"
        )
    return found


def _max_logit(p: Predictions) -> Floats:
    found: Floats = np.asarray(p.logits, np.float64).max(axis=1)
    return found


def _margin(p: Predictions) -> Floats:
    return p.predicted_margin


SCORES: dict[str, Callable[[Predictions], Floats]] = {
    "max_probability": _max_probability,
    "entropy": _entropy,
    "energy": _energy,
    "max_logit": _max_logit,
    "margin": _margin,
}


def ood_scores(p: Predictions, score: str = "max_probability") -> Floats:
    """(n,) how familiar each row looks; labels are not read.

    ``max_probability``: −log(1 − c), c the confidence · ``entropy``: −log H(p) · ``energy``: log Σ exp(logit) (Liu et
    al. 2020, with T = 1) · ``max_logit`` (Hendrycks et al. 2022) · ``margin``: largest logit less the second.

    >>> ood_scores(Predictions([[60.0, 0.0], [90.0, 0.0]], [0, 0])).round(3).tolist()
    [60.0, 90.0]
    """
    check_predictions("p", p)
    if not isinstance(score, str) or score not in SCORES:
        raise BadInput(f"score must be one of {', '.join(SCORES)}; got {score!r}{suggest(str(score), SCORES)}")
    return SCORES[score](p)


def auroc_ood(inside: Predictions, outside: Predictions, score: str = "max_probability") -> Value:
    """Probability that a row of ``inside`` scores higher than one of ``outside``; ties count half; chance is ½.

    >>> near, far = Predictions([[3.0, 0.0], [2.0, 0.0]], [0, 0]), Predictions([[1.0, 0.0], [2.5, 0.0]], [0, 0])
    >>> auroc_ood(near, far)
    Value(0.75, n=4, pairs=4, score='max_probability')
    """
    return _ranked(auroc_of, inside, outside, score)


def fpr95_ood(inside: Predictions, outside: Predictions, score: str = "max_probability") -> Value:
    """Share of rows of ``outside`` accepted at the highest threshold that accepts 95 % of ``inside``."""
    return _ranked(fpr95_of, inside, outside, score)


def _ranked(statistic: Callable[..., Value], inside: Predictions, outside: Predictions, score: str) -> Value:
    check_predictions("inside", inside)
    check_predictions("outside", outside)
    if inside.classes != outside.classes:
        raise BadInput(
            f"inside and outside must come from one model; they have {inside.classes} and {outside.classes} classes"
        )
    scores = np.concatenate([ood_scores(inside, score), ood_scores(outside, score)])
    found = statistic(-scores, np.arange(len(scores)) < len(inside))
    return Value(found, **found.facts, score=score)
