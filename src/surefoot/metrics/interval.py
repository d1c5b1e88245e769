"""Intervals for any metric, corrected for the bias of plug-in estimates.

A binned or kernel error is biased upwards: noise in a bin never cancels, noise adds. A resample is even noisier, so the
usual percentile interval is too high, often entirely above the truth. On 100 data sets of 300 calibrated rows, the
percentile interval never covered the true ECE of 0.

Here the resampled values are centred on the estimate θ̂ minus its bias. The correction uses the scale of squares, where
noise adds exactly for quadratic errors and nearly for the other errors:

    [low², high²] = θ̂² − v + (quantiles of θ*² − mean of θ*²), at least 0,   with the bias v = mean of θ*² − T².

T is the plug-in estimate of the data, which is the truth for the resamples. T is θ̂ itself, or, for an estimator that
removes its bias, the error without that removal.

`Interval.method` names the method used:

- ECE, event ECE of two classes, adaptive ECE, MCE, RMSCE, the debiased ℓ2 error and KCE are functions of sums in bins.
  Their resamples are normal bin sums with the covariance of the Poisson bootstrap (`surefoot.metrics.bin_noise`). The
  cost of a resample does not depend on the number of rows.
- Means (NLL, Brier score, mean confidence) get Student's t interval.
- Accuracy gets Wilson's interval; with clusters, weights or soft labels, Student's t interval.
- The AUROC of misclassification gets DeLong's interval on the logit scale, if there are ten rows of either kind and no
  weights.
- The other metrics are computed on resamples of the rows. Rankings are unbiased or nearly so and get the percentile
  interval. A user's metric that returns a plain float is corrected on its own scale.

A row of weight w is one observation, also where an integer w says that the row was seen w times: intervals never treat
repetitions as independent. The clusters of the predictions are resampled as a whole.

Statistics that are already squares (`skce`, ``kce(squared=True)``) stay on their scale and keep their sign.

References:
    Efron & Tibshirani (1993), "An Introduction to the Bootstrap".
    DeLong, DeLong & Clarke-Pearson (1988), "Comparing the Areas under Two or More Correlated Receiver Operating
    Characteristic Curves: A Nonparametric Approach"; Obuchowski (1997), "Nonparametric Analysis of Clustered ROC Curve
    Data".
    Liang & Zeger (1986), "Longitudinal Data Analysis Using Generalized Linear Models", for means of clusters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.metrics.bin_noise import (
    Cells,
    cells_of,
    check_clusters,
    covariance,
    exact,
    kernel_cells_of,
    residuals_of,
    square_root,
    unit_weights,
)
from surefoot.metrics.debiased import debiased_ece
from surefoot.metrics.ece import adaptive_ece, classwise_ece, classwise_resampled, ece, mce, rmsce
from surefoot.metrics.gap import event_ece
from surefoot.metrics.kce import kce
from surefoot.metrics.paired import standard_error
from surefoot.metrics.ranking import auroc_misclassification
from surefoot.metrics.reliability import wilson
from surefoot.metrics.scores import accuracy, brier, mean_confidence, nll
from surefoot.metrics.value import Value
from surefoot.predictions import Predictions, check_predictions
from surefoot.validation import check_fraction, check_int

__all__ = ["Interval", "interval", "intervals"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
AnyMetric = Callable[[Predictions], float]

_SUM_DRAWS = 1000  # draws of bin sums are cheap: more of them than resamples of rows
_MOST_BINS = 500  # the matrices of more bins would cost more than resamples of rows


class Interval(tuple[float, float]):
    """An interval: a pair (low, high) that also carries its method.

    Args:
        low: lower end.
        high: upper end.
        method: how the interval was computed, such as ``"Wilson"``.
        level: coverage, between 0 and 1.
        resamples: number of bootstrap resamples; 0 for a closed form.

    Attributes:
        method: as the argument.
        level: as the argument.
        resamples: as the argument.

    Example:
        >>> i = Interval(0.1, 0.3, "Wilson", 0.95, 0)
        >>> low, high = i
        >>> low, i.high, i.method
        (0.1, 0.3, 'Wilson')
    """

    method: str
    level: float
    resamples: int

    def __new__(cls, low: float, high: float, method: str, level: float, resamples: int) -> Interval:
        """Make the pair and attach the method, level and number of resamples."""
        self = super().__new__(cls, (low, high))
        self.method, self.level, self.resamples = method, level, resamples
        return self

    def __repr__(self) -> str:
        return f"Interval({self.low!r}, {self.high!r}, method={self.method!r}, level={self.level!r})"

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (*self, self.method, self.level, self.resamples)

    @property
    def low(self) -> float:
        """Lower end."""
        return self[0]

    @property
    def high(self) -> float:
        """Upper end."""
        return self[1]


def interval(
    metric: AnyMetric,
    p: Predictions,
    level: float = 0.95,
    seed: int = 0,
    resamples: int | None = None,
    *,
    clusters: Any = None,
) -> Interval:
    """Compute an interval for a metric of the population that the rows were drawn from.

    The docstring of the module gives the formula.

    Args:
        metric: any function from `Predictions` to a float: a metric of surefoot, with options set by
            ``functools.partial``, or the user's own function.
        p: the predictions.
        level: coverage, between 0 and 1.
        seed: seed of the resampling, an integer of at least 0; equal seeds give equal intervals.
        resamples: number of resamples, at least 10; None takes 1,000 for functions of sums in bins. For other metrics
            it takes 500, falling to 100 between 20,000 and 100,000 rows.
        clusters: (n,) integers, equal for rows that are not independent, such as the positions of one sequence; whole
            clusters are resampled. None takes the clusters of ``p``; without those every row is its own cluster.

    Returns:
        The interval, with its ``method``, ``level`` and number of ``resamples``.

    Raises:
        BadInput: when an argument is not as described, or the metric gives NaN or no number.

    Example:
        >>> p = Predictions([[2.0, 0.0], [0.0, 1.0]] * 50, [0, 0] * 50)
        >>> low, high = interval(accuracy, p)
        >>> round(low, 3), round(high, 3)
        (0.404, 0.596)
    """
    return intervals({"metric": metric}, p, level, seed, resamples, clusters=clusters)["metric"]


def intervals(
    metrics: Mapping[str, AnyMetric],
    p: Predictions,
    level: float = 0.95,
    seed: int = 0,
    resamples: int | None = None,
    known: Mapping[str, float] | None = None,
    progress: Callable[[int, int], None] | None = None,
    *,
    clusters: Any = None,
) -> dict[str, Interval]:
    """Compute intervals for several metrics on the same resamples, as `interval` for one metric.

    Args:
        metrics: functions from `Predictions` to a float, by name.
        p: the predictions.
        level: coverage, between 0 and 1.
        seed: seed of the resampling, an integer of at least 0.
        resamples: number of resamples, at least 10; None chooses as in `interval`.
        known: values of some of the metrics for ``p``, by name; these metrics are not computed again for ``p``.
        progress: called as ``progress(done, total)`` after each resample of the rows.
        clusters: (n,) integers, equal for rows that are not independent; None takes the clusters of ``p``, if any.

    Returns:
        The intervals by name.

    Raises:
        BadInput: when an argument is not as described, or a metric gives NaN or no number.

    Example:
        >>> p = Predictions([[2.0, 0.0], [0.0, 1.0]] * 50, [0, 0] * 50)
        >>> intervals({"accuracy": accuracy}, p)["accuracy"].method
        'Wilson'
    """
    level = check_fraction("level", level)
    n = len(check_predictions("p", p))
    count = max(100, min(500, 10_000_000 // n)) if resamples is None else check_int("resamples", resamples, 10)
    drawn = _SUM_DRAWS if resamples is None else count
    check_int("seed", seed, 0)
    groups = check_clusters(p.clusters if clusters is None else clusters, n)
    wrong = [name for name, metric in metrics.items() if not callable(metric)]
    if wrong:
        raise BadInput(f"metric must be a function of Predictions; got {metrics[wrong[0]]!r}")
    given = known or {}
    values = {name: given[name] if name in given else metric(p) for name, metric in metrics.items()}
    for name, value in values.items():
        if isinstance(value, str) or np.isnan(value):
            raise BadInput(f"metric must give a number for these predictions; {name} gave {value!r}")
    found: dict[str, Interval] = {}
    for name, metric in metrics.items():
        quick = _closed(metric, values[name], p, groups, level)
        if quick is None and (draws := _from_sums(metric, p, groups, drawn, seed)) is not None:
            quick = _interval_of(values[name], draws, level, drawn, ", from bin sums")
        if quick is not None:
            found[name] = quick
    rest = {name: metric for name, metric in metrics.items() if name not in found}
    by_rows = _resample(rest, p, groups, count, seed, progress)
    found |= {name: _interval_of(values[name], draws, level, count) for name, draws in by_rows.items()}
    return {name: found[name] for name in metrics}


# --- closed forms -----------------------------------------------------------------------------------


def _closed(metric: AnyMetric, value: float, p: Predictions, groups: Ints | None, level: float) -> Interval | None:
    """The interval in closed form; None for a metric without one, or too few rows for one."""
    base = _base(metric)
    if metric is not base and (metric.args or metric.keywords):  # type: ignore[attr-defined]
        return None  # a setting that is not known here
    if base is accuracy and groups is None and p.weights is None and p.soft_labels is None:
        low, high = wilson(np.float64(value), np.float64(len(p)), level)  # type: ignore[arg-type]
        return Interval(float(low), float(high), "Wilson", level, 0)
    if base is auroc_misclassification:
        return _delong(p, groups, level) if p.weights is None else None
    if base in (accuracy, mean_confidence):
        scores = p.correct.astype(np.float64) if base is accuracy else p.confidence
        return _student(scores, p.weights, groups, level, 1.0)
    if base is brier:
        largest = 2.0 if p.form == "classes" else 1.0  # one score a row: the binary convention, as in `brier`
        return _student(p.squared_error * (largest / 2), p.weights, groups, level, largest)
    return _student(0.0 - p.log_true, p.weights, groups, level, math.inf) if base is nll else None


def _student(
    scores: Floats, weights: Floats | None, groups: Ints | None, level: float, largest: float
) -> Interval | None:
    """Student's interval for a weighted mean of scores from 0 to ``largest``."""
    from scipy.special import stdtrit

    n = len(scores)
    kept = np.isfinite(scores)
    infinite = n - int(kept.sum())
    if infinite:
        scores, groups = scores[kept], None if groups is None else check_clusters(groups[kept], n - infinite)
        weights = None if weights is None else weights[kept]
    units = len(scores) if groups is None else int(groups.max(initial=-1)) + 1
    if units < 2:
        return None
    weighted = scores if weights is None else scores * weights
    error, units = standard_error(weighted, weights, groups)
    mean = float(weighted.sum()) / (len(scores) if weights is None else float(weights.sum()))
    reach = float(stdtrit(units - 1, (1 + level) / 2)) * error
    low, high = max(0.0, mean - reach), min(largest, mean + reach)
    if infinite:
        # The lower end is finite only if a resample may well miss every infinite score.
        high = math.inf
        low = low if (1 - infinite / n) ** n > (1 - level) / 2 else math.inf
    return Interval(low, high, "Student's t" if groups is None else "Student's t of clusters", level, 0)


_FEWEST_RANKED = 10  # the normal approximation needs this many right rows, and as many wrong ones


def _delong(p: Predictions, groups: Ints | None, level: float) -> Interval | None:
    """DeLong's interval of the AUROC on the logit scale; None for few right or wrong rows, or an AUROC of 0 or 1."""
    from scipy.special import expit, logit, ndtri

    order = np.argsort(p.error_probability, kind="stable")
    error, hit = p.error_probability[order], p.correct[order]
    hits = int(hit.sum())
    misses = len(hit) - hits
    if min(hits, misses) < _FEWEST_RANKED:
        return None
    # For a hit, the share of misses with a larger error probability; for a miss, the share of hits with a smaller one.
    start = np.flatnonzero(np.diff(error, prepend=-1.0) != 0)
    tied = np.diff(np.append(start, len(hit)))
    group_hits = np.add.reduceat(hit.astype(np.int64), start)
    group_misses = tied - group_hits
    later = misses - np.cumsum(group_misses) + group_misses / 2
    earlier = np.cumsum(group_hits) - group_hits / 2
    place = np.where(hit, np.repeat(later / misses, tied), np.repeat(earlier / hits, tied))
    area = float(place[hit].mean())
    if not 0 < area < 1:
        return None
    parts = (place - area) / np.where(hit, hits, misses)
    if groups is not None:
        parts = np.bincount(groups[order], parts).astype(np.float64)
    units = len(parts)
    if units < 2:
        return None
    deviation = math.sqrt(units / (units - 1) * float(parts @ parts)) / (area * (1 - area))
    reach = float(ndtri((1 + level) / 2)) * deviation
    low, high = expit(logit(area) - reach), expit(logit(area) + reach)
    return Interval(float(low), float(high), "DeLong" if groups is None else "DeLong of clusters", level, 0)


# --- functions of bin sums --------------------------------------------------------------------------


def _from_sums(metric: AnyMetric, p: Predictions, groups: Ints | None, count: int, seed: int) -> Floats | None:
    """(count,) values of a metric for drawn bin sums; None for a metric that is no function of bin sums."""
    base, settings = _base(metric), _settings(metric)
    if getattr(metric, "args", ()):
        return None
    bins = settings.pop("bins", 15)
    if base is kce:
        return _kce_draws(p, groups, count, seed, **settings) if bins == 15 else None
    norm = settings.pop("norm", 2)
    if settings or bins > _MOST_BINS or base not in _ERRORS or norm != 2:
        return None
    event = None
    if base is event_ece and p.form == "classes":
        if p.positive is None:
            return None  # pooled events: several for each row
        event = "positive"
    cells = cells_of(p, "mass" if base in (adaptive_ece, debiased_ece) else "width", bins, event)
    return _ERRORS[base](_drawn_sums(p, cells, groups, count, seed, event), cells, p)


def _drawn_sums(
    p: Predictions, cells: Cells, groups: Ints | None, count: int, seed: int, event: str | None = None
) -> Floats:
    """(count, m) bin sums around the sums of the data."""
    noise, residuals = np.random.default_rng(seed), residuals_of(p, event)
    if cells.mix is None and groups is None:
        squares = cells.sums(exact(residuals * residuals))
        draws = noise.standard_normal((count, len(squares))) * np.sqrt(squares)
    else:
        factor = square_root(covariance([cells], [residuals], groups))
        draws = noise.standard_normal((count, len(factor))) @ factor.T
    drawn: Floats = draws + cells.sums(residuals)
    return drawn


def _absolute(drawn: Floats, cells: Cells, p: Predictions) -> Floats:
    found: Floats = np.abs(drawn).sum(axis=1) / _total(p)
    return found


def _total(p: Predictions) -> float:
    """The sum of the weights, in the units of the drawn sums."""
    weights = unit_weights(p)
    return float(len(p)) if weights is None else float(weights.sum())


def _mass(cells: Cells, p: Predictions) -> Floats:
    """(m,) weight of each bin, in the units of the drawn sums."""
    return cells.mass if p.weights is None else cells.mass / p.weights.max()


def _not_zero(mass: Floats) -> Floats:
    return np.where(mass > 0, mass, 1.0)


def _largest(drawn: Floats, cells: Cells, p: Predictions) -> Floats:
    found: Floats = (np.abs(drawn) / _not_zero(_mass(cells, p))).max(axis=1)
    return found


def _root_mean_square(drawn: Floats, cells: Cells, p: Predictions) -> Floats:
    found: Floats = np.sqrt((drawn**2 / _not_zero(_mass(cells, p))).sum(axis=1) / _total(p))
    return found


def _debiased(drawn: Floats, cells: Cells, p: Predictions) -> Floats:
    e, mass = p.events(), _not_zero(_mass(cells, p))
    weights = unit_weights(p)
    happened = e.happened.astype(np.float64)
    rate = cells.sums(happened if weights is None else happened * weights) / mass
    # Repetitions count as rows; importance weights have an effective number of rows.
    rows = cells.mass if weights is None or e.repetitions else mass**2 / _not_zero(cells.sums(weights * weights))
    enough = rows > 1
    terms = drawn**2 / mass - mass * rate * (1 - rate) / (np.maximum(rows, 2) - 1)
    found: Floats = np.sqrt(np.maximum(terms[:, enough].sum(axis=1), 0.0) / _total(p))
    return found


_ERRORS: dict[Any, Callable[[Floats, Cells, Predictions], Floats]] = {
    ece: _absolute,
    adaptive_ece: _absolute,
    event_ece: _absolute,
    mce: _largest,
    rmsce: _root_mean_square,
    debiased_ece: _debiased,
}


def _kce_draws(
    p: Predictions,
    groups: Ints | None,
    count: int,
    seed: int,
    bandwidth: float = 0.4,
    unbiased: bool = False,
    squared: bool = False,
    **unknown: Any,
) -> Floats | None:
    cells = None if unknown else kernel_cells_of(p, bandwidth)
    if cells is None or cells.kernel is None:
        return None
    residual, n, weights = residuals_of(p), _total(p), unit_weights(p)
    drawn = _drawn_sums(p, cells, groups, count, seed)
    totals = np.maximum(((drawn @ cells.kernel) * drawn).sum(axis=1), 0.0)
    statistic = totals / n**2
    if unbiased:
        diagonal, pairs = float(exact(residual * residual).sum()), n * (n - 1)
        if weights is not None:
            # A row of the weight w is w rows, of which each is left out, or one row.
            unit = 1 / float(p.weights.max()) if p.events().repetitions else weights  # type: ignore[union-attr]
            diagonal, pairs = float((residual**2 / weights * unit).sum()), n**2 - float((weights * unit).sum())
        statistic = (totals - diagonal) / pairs
    draws: Floats = statistic if squared else np.sqrt(np.maximum(statistic, 0.0))
    return draws


# --- resamples of the rows --------------------------------------------------------------------------


def _resample(
    metrics: Mapping[str, AnyMetric],
    p: Predictions,
    groups: Ints | None,
    count: int,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> dict[str, Floats]:
    """(count,) values of each metric on resamples of the rows of ``p``, or of their clusters, with replacement."""
    if not metrics:
        if progress is not None:
            progress(count, count)
        return {}
    random = np.random.default_rng(seed)
    n = len(p)
    # Rows are put in the order of confidence: a resample drawn as sorted row numbers then needs no further sorting.
    order = np.lexsort((p.correct, p.confidence))
    rows = p.take(order)
    units = n if groups is None else int(groups.max()) + 1
    batched = {name: m for name, m in metrics.items() if _base(m) is classwise_ece}
    draws = {name: np.empty(count) for name in metrics if name not in batched}
    times = np.empty((count if batched else 1, n), np.float32)
    for index in range(count):
        drawn = np.bincount(random.integers(0, units, units), minlength=units)
        drawn = drawn if groups is None else drawn[groups[order]]
        if batched:
            times[index] = drawn if rows.weights is None else drawn * rows.weights
        if draws:
            resample = rows.take(np.repeat(np.arange(n), drawn))
            for name, values in draws.items():
                drawn_value = metrics[name](resample)
                # A resample without a right row, or without a wrong row, carries no information on the ranking.
                nothing = isinstance(drawn_value, Value) and drawn_value.facts.get("pairs") == 0
                values[index] = np.nan if nothing else drawn_value
        if progress is not None:
            progress(index + 1, count)
    for name, metric in batched.items():
        draws[name] = classwise_resampled(rows, times, **_settings(metric))
    return draws


def _interval_of(value: float, draws: Floats, level: float, count: int, source: str = "") -> Interval:
    facts: dict[str, Any] = value.facts if isinstance(value, Value) else {"bias": "unknown", "squared": True}
    estimate, tails = float(value), [(1 - level) / 2, (1 + level) / 2]
    draws = draws[~np.isnan(draws)]
    if len(draws) == 0:
        return Interval(estimate, estimate, "none: nothing to resample", level, count)
    if "bias" not in facts:
        low, high = _quantiles(draws, tails)
        return Interval(low, high, "percentile bootstrap", level, count)
    power = 1 if facts.get("squared") else 2
    truth = _plugin(estimate, facts)
    truth = truth if truth is None else truth**power
    low, high = _centred(estimate**power, truth, draws**power, tails)
    method = "bias-corrected bootstrap"
    if power == 1:
        return Interval(low, high, method + source, level, count)
    low, high = max(0.0, low) ** 0.5, max(0.0, high) ** 0.5
    return Interval(low, high, f"{method} of squares{source}", level, count)


def _plugin(estimate: float, facts: dict[str, Any]) -> float | None:
    """The plug-in estimate of the data, which is the truth for the resamples; None where it is unknown."""
    if "plugin" in facts:
        return float(facts["plugin"])
    return None if facts["bias"] == "removed" else estimate


def _centred(estimate: float, truth: float | None, draws: Floats, tails: list[float]) -> tuple[float, float]:
    """Quantiles of the draws, shifted so that the mean of the draws equals the estimate minus its bias."""
    mean = float(draws.mean())
    bias = 0.0 if truth is None else mean - truth
    low, high = _quantiles(draws, tails)
    return low + estimate - bias - mean, high + estimate - bias - mean


def _quantiles(draws: Floats, tails: list[float]) -> tuple[float, float]:
    # "nearest" returns a drawn value: interpolation between two infinities would give NaN.
    low, high = np.quantile(draws, tails, method="nearest")
    return float(low), float(high)


def _base(metric: AnyMetric) -> Any:
    """The function behind a ``functools.partial``."""
    return getattr(metric, "func", metric)


def _settings(metric: AnyMetric) -> dict[str, Any]:
    return dict(getattr(metric, "keywords", {}))
