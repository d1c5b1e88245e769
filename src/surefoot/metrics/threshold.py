"""Calibration error of the probabilities above a threshold."""

from __future__ import annotations

import math
from typing import Literal

from surefoot.metrics.bins import check_bins
from surefoot.metrics.ece import ece
from surefoot.metrics.value import Value
from surefoot.predictions import Events, Predictions, events_of, takes_predictions
from surefoot.validation import check_fraction

__all__ = ["threshold_ece"]


@takes_predictions
def threshold_ece(
    p: Predictions | Events,
    threshold: float = 0.01,
    bins: int = 15,
    event: str | int | None = None,
    binning: Literal["width", "mass"] = "mass",
) -> Value:
    """Expected calibration error of the events whose probability is above a threshold.

    With many classes nearly all probabilities are near 0, and such events wash out the error of the others. By default
    the events are all classes of all rows, in bins of equal mass. ``event="top"`` asks instead whether the predictions
    that a confidence threshold accepts are calibrated.

    Nixon et al. average the bins of each class by themselves; here the classes share the bins, as for ``"pooled"``.

    Args:
        p: the predictions.
        threshold: events with a probability of at most this number are left out; between 0 and 1.
        bins: number of bins M, from 1 to 10,000.
        event: which events, as for `Predictions.events`; None takes all classes, pooled, and the usual events of
            predictions that are not of classes.
        binning: ``"width"`` or ``"mass"``.

    Returns:
        The error, in [0, 1], with the number of events above the threshold as ``n`` and their share of the weight as
        ``share``; NaN if there are none.

    Raises:
        BadInput: when an argument is out of range, or ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.7, 0.3]] * 10, [0] * 5 + [1] * 5)
        >>> error = threshold_ece(p, 0.5)
        >>> round(error, 12), error.n, error.share
        (0.2, 10, 0.5)

    References:
        Nixon et al. (2019), "Measuring Calibration in Deep Learning", the thresholded adaptive calibration error.
    """
    limit = check_fraction("threshold", threshold)
    if isinstance(p, Predictions) and event is None and p.form == "classes":
        event = "pooled"
    e = events_of(p, event)
    kept = e.take(e.prob > limit)
    share = kept.total / e.total if len(kept) else 0.0
    if len(kept) == 0:
        check_bins(bins)
        return Value(math.nan, threshold=limit, share=share, bins=int(bins), **kept.facts())
    value = ece(kept, bins, binning=binning)
    return Value(float(value), threshold=limit, share=share, **value.facts)
