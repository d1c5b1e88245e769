"""Signed miscalibration: the gap, its over- and under-confident parts, and the error of the positive event.

Here Z_i = happened_i − prob_i for the events of the predictions, with weights w_i, and R_b = Σ_{i in b} w_i Z_i over a
bin. ECE hides the sign of R_b, and the sign is what a user acts on.
"""

from __future__ import annotations

import math

import numpy as np

from surefoot.metrics.bins import check_bins, equal_width
from surefoot.metrics.ece import ece
from surefoot.metrics.reliability import wilson
from surefoot.metrics.value import Value
from surefoot.predictions import Events, Predictions, events_of, takes_predictions

__all__ = ["event_ece", "gap", "gap_interval", "over_confidence", "under_confidence"]


@takes_predictions
def gap(p: Predictions | Events, event: str | int | None = None) -> Value:
    """Mean confidence minus accuracy, −Σ w_i Z_i / Σ w_i: positive for overconfident, negative for underconfident.

    Args:
        p: the predictions.
        event: which events, as for `Predictions.events`; None takes the usual ones. For "pooled" classes the gap is 0,
            because probabilities and labels both sum to 1.

    Returns:
        The gap, in [−1, 1]. It equals `over_confidence` − `under_confidence` for any number of bins.

    Raises:
        BadInput: when ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.9, 0.1]] * 10, [0] * 6 + [1] * 4)
        >>> round(gap(p), 12)
        0.3
    """
    e = events_of(p, event)
    table = equal_width(e, 1)
    return Value(-float(table.residual[0]) / table.total, **e.facts())


def gap_interval(e: Events, level: float = 0.95) -> tuple[float, float]:
    """An interval of the gap of the population that the events were drawn from.

    Without weights and clusters, and with outcomes that are yes or no, it is Wilson's interval of the share of events
    that happened, which has a width even where all happened. Otherwise it is a t interval from the sums u_g of
    w (Z − Z̄) over the clusters, with se² = G/(G − 1) Σ u_g² / (Σw)² and G − 1 degrees of freedom; a row without a
    cluster is a cluster.

    Args:
        e: the events.
        level: coverage, between 0 and 1.

    Returns:
        Lower and upper end; (−1, 1) for a single cluster.

    Example:
        >>> e = Events([0.9, 0.9, 0.6, 0.8], [1, 0, 1, 1], cluster=[0, 0, 1, 1])
        >>> low, high = gap_interval(e)
        >>> round(low, 3), round(high, 3)
        (-4.397, 4.497)

    References:
        Wilson (1927), "Probable Inference, the Law of Succession, and Statistical Inference".
        Liang & Zeger (1986), "Longitudinal Data Analysis Using Generalized Linear Models".
    """
    if e.plain and e.cluster is None:
        said, share = float(e.prob.sum()) / len(e), np.count_nonzero(e.happened) / len(e)
        low, high = wilson(np.array([share]), np.array([float(len(e))]), level)
        return said - float(high[0]), said - float(low[0])
    from scipy.special import stdtrit

    weights, residual = e.weights, e.residual
    total = float(weights.sum())
    mean = float(weights @ residual) / total
    owner = np.arange(len(e)) if e.cluster is None else np.unique(e.cluster, return_inverse=True)[1]
    sums = np.bincount(owner, weights * (residual - mean))
    count = len(sums)
    if count < 2:
        return -1.0, 1.0
    error = math.sqrt(count / (count - 1) * float(sums @ sums)) / total
    half = float(stdtrit(count - 1, (1 + level) / 2)) * error
    return -mean - half, -mean + half


@takes_predictions
def over_confidence(p: Predictions | Events, bins: int = 15, event: str | int | None = None) -> Value:
    """The part of ECE from overconfident bins, Σ_b max(0, −R_b) / Σ w_i.

    Args:
        p: the predictions.
        bins: number of bins M of equal width, from 1 to 10,000.
        event: which events, as for `Predictions.events`; None takes the usual ones.

    Returns:
        The part, in [0, 1]; `over_confidence` + `under_confidence` is `ece`.

    Raises:
        BadInput: when ``bins`` is out of range, or ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.9, 0.1]] * 10, [0] * 6 + [1] * 4)
        >>> round(over_confidence(p), 12), under_confidence(p).real
        (0.3, 0.0)
    """
    e = events_of(p, event)
    table = equal_width(e, check_bins(bins))
    return Value(table.over, bins=int(bins), binning="equal width", bias="upward", **e.facts())


@takes_predictions
def under_confidence(p: Predictions | Events, bins: int = 15, event: str | int | None = None) -> Value:
    """The part of ECE from underconfident bins, Σ_b max(0, R_b) / Σ w_i.

    Args:
        p: the predictions.
        bins: number of bins M of equal width, from 1 to 10,000.
        event: which events, as for `Predictions.events`; None takes the usual ones.

    Returns:
        The part, in [0, 1]; `over_confidence` + `under_confidence` is `ece`.

    Raises:
        BadInput: when ``bins`` is out of range, or ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.7, 0.3]] * 10, [0] * 9 + [1])
        >>> round(under_confidence(p), 12), over_confidence(p).real
        (0.2, 0.0)
    """
    e = events_of(p, event)
    table = equal_width(e, check_bins(bins))
    return Value(table.under, bins=int(bins), binning="equal width", bias="upward", **e.facts())


@takes_predictions
def event_ece(p: Predictions | Events, bins: int = 15, event: str | int | None = None) -> Value:
    """Expected calibration error of P(positive), or of another event, with bins of equal width.

    The top-label `ece` of two classes folds both classes onto the winner, so that errors of opposite sign cancel: a
    model that says .3 and .7 where the event happens .4 and .8 of the time has an event ECE of .1 and an ECE near 0.

    Args:
        p: the predictions.
        bins: number of bins M, from 1 to 10,000.
        event: which events, as for `Predictions.events`; None takes the positive event of two classes, and otherwise
            all classes or labels, pooled.

    Returns:
        The error, in [0, 1].

    Raises:
        BadInput: when ``bins`` is out of range, or ``p`` is no `Predictions`.

    Example:
        >>> said = [[0.7, 0.3]] * 10 + [[0.3, 0.7]] * 10
        >>> p = Predictions.from_probs(said, [1] * 4 + [0] * 6 + [1] * 8 + [0] * 2)
        >>> round(event_ece(p), 12), round(ece(p), 12)
        (0.1, 0.0)
    """
    if isinstance(p, Predictions) and event is None and p.form == "classes":
        event = "positive" if p.positive is not None else "pooled"
    value: Value = ece(p, bins, event)
    return value
