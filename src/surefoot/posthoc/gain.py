"""`recalibration_gain`: what recalibration would gain in a proper score, estimated on rows that it was not fitted on.

The gain is the part of the score that miscalibration costs. Tables of bins or isotonic steps estimate this part with a
bias, because they learn more numbers than a few thousand rows determine: fitted and judged on the same rows they find a
gain in calibrated predictions, and cross-fitted they find a loss. One or two parameters avoid both.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from surefoot.errors import BadInput
from surefoot.metrics.value import Value
from surefoot.posthoc.calibrator import Calibrator
from surefoot.posthoc.ovr import Platt
from surefoot.posthoc.temperature import Temperature
from surefoot.predictions import Predictions, check_predictions
from surefoot.validation import check_fraction, check_int

__all__ = ["recalibration_gain"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def recalibration_gain(
    p: Predictions,
    score: Literal["nll", "brier"] = "nll",
    folds: int = 5,
    seed: int = 0,
    *,
    calibrator: Calibrator | None = None,
    level: float = 0.95,
) -> Value:
    """Estimate what recalibration would gain in a proper score, by cross-fitting: mean of ℓ(p) − ℓ(g₋fold(p)).

    g₋fold is the calibrator fitted on all folds but the row's own. By default it is Platt scaling for two classes, for
    one score a row and for a confidence alone, and temperature scaling for more classes. In the population the gain is
    never negative; in a sample it can be, because d parameters fitted to n rows cost about d/(2n) nats a row.

    Rows of one cluster are in one fold, and the interval is Student's t over clusters, or over rows without clusters.
    Weights count in the mean and in its variance, where a row of weight w is one cluster of its own; they count in the
    fits as far as the calibrator reads weights.

    Args:
        p: the predictions, with one label a row.
        score: ``"nll"`` in nats, or ``"brier"`` as `surefoot.metrics.brier` computes it.
        folds: number of folds, at least 2; at most half the rows, and at most the clusters.
        seed: seed of the folds, an integer of at least 0.
        calibrator: what is fitted instead, a copy of it for each fold.
        level: coverage of the interval, between 0 and 1.

    Returns:
        The gain; above 0 where recalibration helps. Facts: ``standard_error``, ``low`` and ``high`` of the interval,
        ``p_value`` of no gain or loss, ``before`` and ``after``, the mean scores, ``method``, ``folds``, ``score``,
        ``unit`` for the NLL, and ``impossible``, the number of rows whose label has probability 0. Such a row has an
        infinite gain if the calibrator gives the label a probability, and no gain otherwise.

    Raises:
        BadInput: when an argument is not as described, labels are soft, or the calibrator cannot learn from a fold.

    Example:
        >>> p = Predictions([[4.0, 0.0]] * 100 + [[0.0, 4.0]] * 100, [0] * 80 + [1] * 100 + [0] * 20)
        >>> gain = recalibration_gain(p)
        >>> round(gain, 3), gain.method, gain.low > 0
        (0.314, 'platt', True)

    References:
        Bröcker (2009), "Reliability, sufficiency, and the decomposition of proper scores".
        Berta et al. (2025), "Rethinking Early Stopping: Refine, Then Calibrate".
    """
    check_predictions("p", p)
    count = check_int("folds", folds, 2)
    random = np.random.default_rng(check_int("seed", seed, 0))
    if score not in ("nll", "brier"):
        raise BadInput(f"score must be 'nll' or 'brier'; got {score!r}")
    if calibrator is not None and not isinstance(calibrator, Calibrator):
        raise BadInput(f"calibrator must be a calibrator of surefoot.posthoc; got {type(calibrator).__name__}")
    if p.soft_labels is not None:
        raise BadInput("recalibration_gain needs one label a row; these labels are soft")
    if len(p) < 2 * count:
        raise BadInput(f"p must have at least {2 * count} rows for {count} folds; got {len(p)}")
    fold = _folds(p, count, random)
    chosen = _usual(p, fold) if calibrator is None else calibrator
    before, after = _losses(p, score), np.empty(len(p))
    for index in range(count):
        test = np.flatnonzero(fold == index)
        fitted = clone(chosen).fit(p.take(np.flatnonzero(fold != index)))
        after[test] = _losses(fitted.apply(p.take(test)), score)
    if p.form != "classes" and score == "brier":  # one score a row: the binary convention of the metric
        before, after = before / 2, after / 2
    with np.errstate(invalid="ignore"):
        gains = np.where(before == after, 0.0, before - after)  # infinite before and after: no gain
    mean = _mean(gains, p.weights)
    return Value(
        mean,
        **_spread(gains, mean, p, check_fraction("level", level)),
        score=score,
        **({"unit": "nats"} if score == "nll" else {}),
        before=_mean(before, p.weights),
        after=_mean(after, p.weights),
        impossible=int(np.isneginf(p.log_true).sum()),
        method=chosen.method,
        folds=count,
        n=len(p),
    )


def _folds(p: Predictions, count: int, random: np.random.Generator) -> Ints:
    """(n,) fold of each row: whole clusters, or else rows with the labels spread evenly over the folds."""
    if p.clusters is not None:
        codes = np.unique(p.clusters, return_inverse=True)[1]
        groups = int(codes.max()) + 1
        if groups < count:
            raise BadInput(f"folds must be at most the number of clusters, {groups}; got {count}")
        of_group = np.empty(groups, np.int64)
        of_group[random.permutation(groups)] = np.arange(groups) % count
        return of_group[codes]
    shuffled = random.permutation(len(p))
    fold = np.empty(len(p), np.int64)
    fold[shuffled[np.argsort(p.labels[shuffled], kind="stable")]] = np.arange(len(p)) % count
    return fold


def _usual(p: Predictions, fold: Ints) -> Calibrator:
    """Platt scaling where there are two classes and every fit sees both; temperature scaling otherwise."""
    if p.classes != 2:
        return Temperature()
    both = all(0 < int(p.labels[fold != index].sum()) < int((fold != index).sum()) for index in range(fold.max() + 1))
    return Platt() if both else Temperature()


def _losses(p: Predictions, score: str) -> Floats:
    """(n,) score of each row; the Brier score of both classes, as for predictions of classes."""
    return -p.log_true if score == "nll" else p.squared_error


def _mean(values: Floats, weights: Floats | None) -> float:
    return float(values.mean() if weights is None else (weights * values).sum() / weights.sum())


def _spread(gains: Floats, mean: float, p: Predictions, level: float) -> dict[str, Any]:
    """Standard error √(G/(G − 1) Σ u_g²)/Σ w of the mean, with u_g = Σ w (gain − mean); interval and p-value."""
    from scipy.special import stdtr, stdtrit

    if not math.isfinite(mean):
        return {"standard_error": math.inf, "low": -math.inf, "high": math.inf, "p_value": math.nan}
    weights = np.ones(len(gains)) if p.weights is None else p.weights
    sums = weights * (gains - mean)
    if p.clusters is not None:
        sums = np.bincount(np.unique(p.clusters, return_inverse=True)[1], sums).astype(np.float64)
    groups = len(sums)
    error = math.sqrt(groups / (groups - 1) * float((sums**2).sum())) / float(weights.sum())
    reach = float(stdtrit(groups - 1, (1 + level) / 2)) * error
    p_value = float(2 * stdtr(groups - 1, -abs(mean) / error)) if error > 0 else 1.0 if mean == 0 else 0.0
    return {"standard_error": error, "low": mean - reach, "high": mean + reach, "p_value": p_value}
