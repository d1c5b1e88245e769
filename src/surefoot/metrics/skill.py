"""Scores of binary forecasts against a reference: the Brier skill score, and Spiegelhalter's test of calibration."""

from __future__ import annotations

import math

import numpy as np

from surefoot.errors import BadInput
from surefoot.metrics.cox import two_sided, weighted_sum
from surefoot.metrics.positive import positive_events
from surefoot.metrics.value import Value
from surefoot.predictions import Events, Predictions, takes_predictions

__all__ = ["brier_skill", "spiegelhalter_z"]


@takes_predictions
def brier_skill(p: Predictions | Events, event: str | int | None = None) -> Value:
    """Brier skill score, 1 − Σ w (c − y)² / Σ w (ȳ − y)²: the gain over always stating the mean outcome ȳ.

    The mean outcome is that of the same events, so that the reference knows the base rate of the test data.

    Args:
        p: the predictions.
        event: which events, as for `Predictions.events`; None takes the positive event of two classes, and otherwise
            the usual events.

    Returns:
        The skill, at most 1; 0 for the base rate, negative for less than that. Facts: ``brier``, the mean of (c − y)²,
        and ``reference``, that of the base rate. If all outcomes are the same, the skill is 1 for perfect predictions
        and −inf for all others.

    Raises:
        BadInput: when ``p`` is no `Predictions`, or has no such events.

    Example:
        >>> s = brier_skill(Events([0.9, 0.8, 0.3, 0.2], [1, 1, 0, 0]))
        >>> round(s, 4), round(s.brier, 4), s.reference
        (0.82, 0.045, 0.25)

    References:
        Murphy (1973), "Hedging and Skill Scores for Probability Forecasts".
    """
    e = positive_events(p, event)
    outcome = e.happened.astype(np.float64)
    base = weighted_sum(outcome, e.weight) / e.total
    brier = weighted_sum(e.residual**2, e.weight) / e.total
    reference = weighted_sum((outcome - base) ** 2, e.weight) / e.total
    if (outcome == outcome[0]).all():
        # The mean may differ from the outcomes by rounding.
        reference, skill = 0.0, 1.0 if brier == 0 else -math.inf
    else:
        skill = 1 - brier / reference
    return Value(skill, brier=brier, reference=reference, **e.facts())


@takes_predictions
def spiegelhalter_z(p: Predictions | Events, event: str | int | None = None) -> Value:
    """Spiegelhalter's z, a test of calibration by the Brier score: Σ Z(1 − 2c) / √Σ (1 − 2c)² c(1 − c), Z = y − c.

    z is standard normal if every stated probability is true. It is positive where the Brier score is larger than the
    probabilities promise, as for overconfident predictions. It does not see errors at c = ½, nor errors whose effects
    on the Brier score cancel.

    Integer weights count independent events. Other weights w enter the variance as w². With clusters, the variance is
    Σ u², where u is the sum of Z(1 − 2c) over a cluster.

    Args:
        p: the predictions.
        event: which events, as for `Predictions.events`; None takes the positive event of two classes, and otherwise
            the usual events.

    Returns:
        z, with the two-sided ``p_value``, by Student's t with G − 1 degrees of freedom for G clusters. z is infinite if
        the variance is 0 and the Brier score is not as promised.

    Raises:
        BadInput: when ``p`` is no `Predictions`, has no such events, or the outcomes are soft.

    Example:
        >>> z = spiegelhalter_z(Events([0.9] * 10, [1] * 6 + [0] * 4))
        >>> round(z, 4), round(z.p_value, 4)  # 3 too few, of a standard deviation of √0.9
        (3.1623, 0.0016)

    References:
        Spiegelhalter (1986), "Probabilistic Prediction in Patient Management and Clinical Trials".
    """
    e = positive_events(p, event)
    if e.happened.dtype != np.bool_:
        raise BadInput("spiegelhalter_z needs events that happened or did not; these outcomes are soft. Use gap")
    lean = e.complement - e.prob
    # y − c, without the rounding of a probability near 1.
    terms = np.where(e.happened, e.complement, -e.prob) * lean
    spread = lean**2 * e.prob * e.complement
    groups = None
    if e.cluster is not None:
        codes = np.unique(e.cluster, return_inverse=True)[1]
        sums = np.bincount(codes, e.weights * terms)
        groups, variance = len(sums), float(sums @ sums)
    elif e.repetitions:
        variance = weighted_sum(spread, e.weight)
    else:
        variance = weighted_sum(e.weights * spread, e.weight)
    total = weighted_sum(terms, e.weight)
    z = total / math.sqrt(variance) if variance > 0 else 0.0 if total == 0 else math.copysign(math.inf, total)
    facts = {} if groups is None else {"clusters": groups}
    return Value(z, p_value=two_sided(z, groups), **e.facts(), **facts)
