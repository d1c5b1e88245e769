"""Calibration errors of a smooth curve: the integrated calibration index (ICI), E50 and E90.

The curve g is the lowess smoother of Cleveland (1979) of the outcomes on the stated probabilities c: at each c, a line
fitted by weighted least squares to the nearest two thirds of the events, without robustness iterations. R's
``lowess(c, y, iter = 0)`` is the same smoother. Robustness iterations are for measurements with outliers; for rare
events they call every positive outcome an outlier and return 0 everywhere.

Events of equal probability are one point with their total weight, so that integer weights equal repeated rows. Where
one probability holds two thirds of the events, the curve there is their mean outcome.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.metrics.positive import positive_events
from surefoot.metrics.value import Value
from surefoot.predictions import Events, Predictions, takes_predictions

__all__ = ["e50", "e90", "ici", "lowess"]

Floats = NDArray[np.float64]

_SHARE = 2 / 3
# More distinct probabilities than this are put in as many groups of nearly equal weight first. A group holds a share
# of 1/2048 of the events where a window holds 2/3, and the fits take 2048² operations at any n.
_POINTS = 2048
_BLOCK = 256  # points at a time, whose windows fit into memory
# R's lowess fits a constant instead of a line if the points in a window spread less than this share of the range.
_FLAT = 1e-3
# Sums of weights that are equal up to rounding count as equal.
_ROUNDING = 1e-9


@takes_predictions
def ici(p: Predictions | Events, event: str | int | None = None) -> Value:
    """Integrated calibration index (ICI): the mean of |g(c) − c| for the lowess curve g of the outcomes.

    g is a local linear fit to the nearest two thirds of the events with tricube weights and without robustness
    iterations. With more than 2,048 distinct probabilities, these are first averaged in 2,048 groups of equal weight,
    and g is linear between the groups. Other smoothers, such as loess of degree 2 or splines,
    give other values; compare indices of one smoother only.

    Args:
        p: the predictions.
        event: which events, as for `Predictions.events`; None takes the positive event of two classes, and otherwise
            the usual events.

    Returns:
        The index, at least 0. It is biased upwards, as ECE is. Facts: ``e50`` and ``e90``, the median and the 90th
        percentile of |g(c) − c|; ``smoother``; ``points``, the number of points that the curve was fitted to.

    Raises:
        BadInput: when ``p`` is no `Predictions`, or has no such events.

    Example:
        >>> index = ici(Events([0.2] * 90 + [0.8] * 10, [1] * 18 + [0] * 72 + [1] * 7 + [0] * 3))
        >>> round(index, 12), round(index.e50, 12), round(index.e90, 12)
        (0.01, 0.0, 0.0)

    References:
        Austin & Steyerberg (2019), "The Integrated Calibration Index (ICI) and related metrics for quantifying the
        calibration of logistic regression models".
        Cleveland (1979), "Robust Locally Weighted Regression and Smoothing Scatterplots".
    """
    e = positive_events(p, event)
    found = _measured(e)
    return Value(found["ici"], e50=found["e50"], e90=found["e90"], **_facts(e, found))


@takes_predictions
def e50(p: Predictions | Events, event: str | int | None = None) -> Value:
    """Median of |g(c) − c| for the lowess curve g of `ici`.

    Args:
        p: the predictions.
        event: as for `ici`.

    Returns:
        The median, at least 0: the smallest value that is not exceeded by half of the weight.

    Raises:
        BadInput: when ``p`` is no `Predictions`, or has no such events.

    Example:
        >>> round(e50(Events([0.9] * 10, [1] * 6 + [0] * 4)), 12)
        0.3

    References:
        Austin & Steyerberg (2019), "The Integrated Calibration Index (ICI) and related metrics for quantifying the
        calibration of logistic regression models".
    """
    e = positive_events(p, event)
    found = _measured(e)
    return Value(found["e50"], **_facts(e, found))


@takes_predictions
def e90(p: Predictions | Events, event: str | int | None = None) -> Value:
    """The 90th percentile of |g(c) − c| for the lowess curve g of `ici`.

    Args:
        p: the predictions.
        event: as for `ici`.

    Returns:
        The percentile, at least 0: the smallest value that is not exceeded by 90 % of the weight.

    Raises:
        BadInput: when ``p`` is no `Predictions`, or has no such events.

    Example:
        >>> round(e90(Events([0.9] * 10, [1] * 6 + [0] * 4)), 12)
        0.3

    References:
        Austin & Steyerberg (2019), "The Integrated Calibration Index (ICI) and related metrics for quantifying the
        calibration of logistic regression models".
    """
    e = positive_events(p, event)
    found = _measured(e)
    return Value(found["e90"], **_facts(e, found))


def _facts(e: Events, found: dict[str, Any]) -> dict[str, Any]:
    return {"smoother": "lowess, 2/3 of the weight", "points": found["points"], "bias": "upward", **e.facts()}


def _measured(e: Events) -> dict[str, Any]:
    return e.memo("ici", lambda: _measure(e))


def _measure(e: Events) -> dict[str, Any]:
    c, group = np.unique(e.prob, return_inverse=True)
    weight = np.bincount(group, e.weights, len(c)).astype(np.float64)
    mean = np.bincount(group, e.weights * e.happened, len(c)) / weight
    total = float(weight.sum())
    # R takes the integer part of 2n/3 events. Weights that are no integers have no such part.
    window = max(float(np.floor(_SHARE * total * (1 + _ROUNDING))), 2.0) if e.repetitions else _SHARE * total
    x, y, w = c, mean, weight
    if len(c) > _POINTS:
        # A distinct probability belongs to the group in which the middle of its weight lies.
        owner = ((np.cumsum(weight) - weight / 2) / total * _POINTS).astype(np.int64)
        owner = np.unique(owner, return_inverse=True)[1]
        w = np.bincount(owner, weight).astype(np.float64)
        x, y = np.bincount(owner, weight * c) / w, np.bincount(owner, weight * mean) / w
    error = np.abs(np.interp(c, x, lowess(x, y, w, window)) - c)
    order = np.argsort(error)
    reached = np.cumsum(weight[order])
    quantiles = {
        name: float(error[order[min(int(np.searchsorted(reached, share * total * (1 - _ROUNDING))), len(c) - 1)]])
        for name, share in (("e50", 0.5), ("e90", 0.9))
    }
    return {"ici": float(weight @ error) / total, **quantiles, "points": len(x)}


def lowess(x: Floats, y: Floats, weight: Floats, window: float) -> Floats:
    """Smooth by local lines with tricube weights, at every point.

    The half-width h of the window at a point is the smallest distance within which the points have the weight
    ``window``. A point at distance d counts (1 − (d/h)³)³ times its weight. If h is 0, the curve is the point itself.

    Args:
        x: (m,) distinct numbers in ascending order.
        y: (m,) values.
        weight: (m,) positive weights.
        window: weight of the points in a window.

    Returns:
        (m,) the smooth curve at ``x``.

    Example:
        >>> line = np.arange(5.0)
        >>> lowess(line, 2 * line + 1, np.ones(5), 3.0).round(12).tolist()
        [1.0, 3.0, 5.0, 7.0, 9.0]
    """
    m = len(x)
    smooth = np.empty(m)
    wanted = min(window, float(weight.sum())) * (1 - _ROUNDING)
    flat = _FLAT * float(x[-1] - x[0])
    for begin in range(0, m, _BLOCK):
        here = slice(begin, min(begin + _BLOCK, m))
        at = x[here]
        # A row of distances falls and then rises, and a stable sort merges two such runs in linear time.
        distance = np.abs(x - at[:, None])
        order = np.argsort(distance, axis=1, kind="stable")
        below = np.count_nonzero(np.cumsum(weight[order], axis=1) < wanted, axis=1)
        last = order[np.arange(len(at)), np.minimum(below, m - 1)]
        h = distance[np.arange(len(at)), last]
        low, high = int(np.searchsorted(x, (at - h).min())), int(np.searchsorted(x, (at + h).max(), "right"))
        near, values, distance = x[low:high], y[low:high], distance[:, low:high]
        # Where h is 0, every other point is outside.
        ratio = np.minimum(distance / np.where(h > 0, h, np.finfo(float).tiny)[:, None], 1.0)
        share = (1.0 - ratio**3) ** 3 * weight[low:high]
        share /= share.sum(axis=1, keepdims=True)
        centre = share @ near
        offset = near - centre[:, None]
        spread = np.vecdot(share, offset**2)
        level = share @ values
        steep = np.sqrt(spread) > flat
        slope = np.vecdot(share * offset, np.broadcast_to(values, offset.shape)) / np.where(steep, spread, 1.0)
        smooth[here] = level + np.where(steep, slope * (at - centre), 0.0)
    return smooth
