"""Scores that tell in-distribution from out-of-distribution (OOD) rows, and the quality of these scores.

Every score is higher for rows that look in-distribution. Scores of probabilities are logarithms of 1 − c or of the
entropy, so confidences c that round to 1 do not become ties.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from surefoot.deprecated import renamed_arguments
from surefoot.errors import BadInput
from surefoot.metrics.ranking import auroc_of, fpr95_of
from surefoot.metrics.value import Value
from surefoot.predictions import Predictions, check_predictions
from surefoot.validation import suggest

__all__ = ["SCORES", "auroc_ood", "fpr95_ood", "ood_scores"]

Floats = NDArray[np.float64]


def _log_error_probability(log_probs: Floats, top: NDArray[np.int64]) -> Floats:
    """(n,) log(1 − c) as the logarithm of the sum of all other probabilities; −inf where the others are all 0."""
    others = log_probs.copy()
    others[np.arange(len(top)), top] = -np.inf
    with np.errstate(divide="ignore"):
        logs: Floats = logsumexp(others, axis=1)
    return logs


def _max_probability(p: Predictions) -> Floats:
    """−log(1 − c)."""
    return -_log_error_probability(p.log_probs, p.predicted)


def _entropy(p: Predictions) -> Floats:
    """−log H(p)."""
    log_probs = p.log_probs
    rows = np.arange(len(p))
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = log_probs + np.log(-log_probs)
    terms[np.isneginf(log_probs)] = -np.inf  # p log p is 0 at 0
    # −log c equals 1 − c up to rounding where 1 − c is tiny, and log c may have rounded to 0.
    log_error = _log_error_probability(log_probs, p.predicted)
    terms[rows, p.predicted] = np.where(log_error < -30, log_error, terms[rows, p.predicted])
    with np.errstate(divide="ignore"):
        scores: Floats = -logsumexp(terms, axis=1)
    return scores


def _energy(p: Predictions) -> Floats:
    """The logarithm of Σ exp(logit)."""
    energies: Floats = logsumexp(np.asarray(p.logits, np.float64), axis=1)
    if np.abs(energies).max() < 1e-5:  # up to the rounding of float32
        raise BadInput(
            "energy needs logits; these rows are log-probabilities (an ensemble's mean, or from_probs), whose energy "
            "is 0 for every row; take max_probability or entropy"
        )
    return energies


def _max_logit(p: Predictions) -> Floats:
    """The largest logit."""
    largest: Floats = np.asarray(p.logits, np.float64).max(axis=1)
    return largest


def _margin(p: Predictions) -> Floats:
    """The largest logit minus the second largest."""
    return p.predicted_margin


SCORES: dict[str, Callable[[Predictions], Floats]] = {
    "max_probability": _max_probability,
    "entropy": _entropy,
    "energy": _energy,
    "max_logit": _max_logit,
    "margin": _margin,
}


def ood_scores(p: Predictions, score: str = "max_probability") -> Floats:
    """Score how much every row looks in-distribution; the labels are not used.

    The scores are:

    - ``"max_probability"``: −log(1 − c), with the confidence c.
    - ``"entropy"``: −log H(p).
    - ``"energy"``: log Σ exp(logit), the negative energy of Liu et al. (2020) with T = 1.
    - ``"max_logit"``: the largest logit (Hendrycks et al., 2022).
    - ``"margin"``: the largest logit minus the second largest.

    Args:
        p: the predictions, n rows.
        score: name of the score.

    Returns:
        (n,) scores, higher for rows that look in-distribution.

    Raises:
        BadInput: when there is no such score, ``p`` is no `Predictions`, or ``"energy"`` meets log-probabilities.

    Example:
        >>> ood_scores(Predictions([[60.0, 0.0], [90.0, 0.0]], [0, 0])).round(3).tolist()
        [60.0, 90.0]

    References:
        Liu, Wang, Owens & Li (2020), "Energy-based Out-of-distribution Detection".
        Hendrycks et al. (2022), "Scaling Out-of-Distribution Detection for Real-World Settings".
    """
    check_predictions("p", p)
    if not isinstance(score, str) or score not in SCORES:
        raise BadInput(f"score must be one of {', '.join(SCORES)}; got {score!r}{suggest(str(score), SCORES)}")
    return SCORES[score](p)


@renamed_arguments(inside="in_distribution", outside="out_of_distribution")
def auroc_ood(in_distribution: Predictions, out_of_distribution: Predictions, score: str = "max_probability") -> Value:
    """Compute the AUROC of telling in-distribution from OOD rows by a score.

    The AUROC is the probability that a row of ``in_distribution`` scores higher than a row of ``out_of_distribution``.
    Ties count half.
    Chance level is ½.

    Args:
        in_distribution: predictions on in-distribution rows.
        out_of_distribution: predictions of the same model on OOD rows.
        score: name of the score; see `ood_scores`.

    Returns:
        The AUROC, in [0, 1].

    Raises:
        BadInput: when an argument is no `Predictions`, the numbers of classes differ, or there is no such score.

    Example:
        >>> near, far = Predictions([[3.0, 0.0], [2.0, 0.0]], [0, 0]), Predictions([[1.0, 0.0], [2.5, 0.0]], [0, 0])
        >>> auroc_ood(near, far)
        Value(0.75, n=4, pairs=4, score='max_probability')
    """
    return _ranked(auroc_of, in_distribution, out_of_distribution, score)


@renamed_arguments(inside="in_distribution", outside="out_of_distribution")
def fpr95_ood(in_distribution: Predictions, out_of_distribution: Predictions, score: str = "max_probability") -> Value:
    """Compute the share of OOD rows accepted at the highest threshold that accepts 95 % of the in-distribution rows.

    Args:
        in_distribution: predictions on in-distribution rows.
        out_of_distribution: predictions of the same model on OOD rows.
        score: name of the score; see `ood_scores`.

    Returns:
        The share, in [0, 1]; lower is better.

    Raises:
        BadInput: when an argument is no `Predictions`, the numbers of classes differ, or there is no such score.

    Example:
        >>> near, far = Predictions([[3.0, 0.0], [2.0, 0.0]], [0, 0]), Predictions([[1.0, 0.0], [2.5, 0.0]], [0, 0])
        >>> float(fpr95_ood(near, far))
        0.5
    """
    return _ranked(fpr95_of, in_distribution, out_of_distribution, score)


def _ranked(
    statistic: Callable[..., Value], in_distribution: Predictions, out_of_distribution: Predictions, score: str
) -> Value:
    """A ranking statistic of the scores of both sets."""
    check_predictions("in_distribution", in_distribution)
    check_predictions("out_of_distribution", out_of_distribution)
    if in_distribution.classes != out_of_distribution.classes:
        raise BadInput(
            "in_distribution and out_of_distribution must come from one model; they have "
            f"{in_distribution.classes} and {out_of_distribution.classes} classes"
        )
    scores = np.concatenate([ood_scores(in_distribution, score), ood_scores(out_of_distribution, score)])
    value = statistic(-scores, np.arange(len(scores)) < len(in_distribution))
    return Value(value, **value.facts, score=score)
