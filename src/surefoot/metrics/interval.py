"""Bootstrap intervals for any metric, corrected for the bias of plug-in estimates.

A binned or kernel error is biased upwards: noise in a bin never cancels, noise adds. A resample is even noisier, so the
usual percentile interval is too high, often entirely above the truth. On 100 data sets of 300 calibrated rows, the
percentile interval never covered the true ECE of 0.

Here the resampled values are centred on the estimate θ̂ minus its bias. The correction uses the scale of squares, where
noise adds exactly for quadratic errors and nearly for the other errors:

    [low², high²] = θ̂² − v + (quantiles of θ*² − mean of θ*²), at least 0,   with the bias v = mean of θ*² − T².

T is the plug-in estimate of the data, which is the truth for the resamples. T is θ̂ itself, or, for an estimator that
removes its bias, the error without that removal.

Statistics that are already squares (`skce`, ``kce(squared=True)``) stay on their scale and keep their sign. Scores that
are means or rankings (NLL, Brier, AUROC, ...) are unbiased or nearly so and get the percentile interval. Accuracy gets
Wilson's interval. A user's metric that returns a plain float is corrected on its own scale. `Interval.method` names the
method used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.metrics.ece import classwise_ece, classwise_resampled
from surefoot.metrics.reliability import wilson
from surefoot.metrics.scores import accuracy
from surefoot.metrics.value import Value
from surefoot.predictions import Predictions, check_predictions
from surefoot.validation import check_fraction, check_int

__all__ = ["Interval", "interval", "intervals"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
AnyMetric = Callable[[Predictions], float]


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
    metric: AnyMetric, p: Predictions, level: float = 0.95, seed: int = 0, resamples: int | None = None
) -> Interval:
    """Compute an interval for a metric of the population that the rows were drawn from.

    The docstring of the module gives the formula.

    Args:
        metric: any function from `Predictions` to a float: a metric of surefoot, with options set by
            ``functools.partial``, or the user's own function.
        p: the predictions.
        level: coverage, between 0 and 1.
        seed: seed of the resampling, an integer of at least 0; equal seeds give equal intervals.
        resamples: number of resamples, at least 10; None takes 500, falling to 100 between 20,000 and 100,000 rows.

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
    return intervals({"metric": metric}, p, level, seed, resamples)["metric"]


def intervals(
    metrics: Mapping[str, AnyMetric],
    p: Predictions,
    level: float = 0.95,
    seed: int = 0,
    resamples: int | None = None,
    known: Mapping[str, float] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Interval]:
    """Compute intervals for several metrics on the same resamples, as `interval` for one metric.

    Args:
        metrics: functions from `Predictions` to a float, by name.
        p: the predictions.
        level: coverage, between 0 and 1.
        seed: seed of the resampling, an integer of at least 0.
        resamples: number of resamples, at least 10; None chooses as in `interval`.
        known: values of some of the metrics for ``p``, by name; these metrics are not computed again for ``p``.
        progress: called as ``progress(done, total)`` after each resample.

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
    check_int("seed", seed, 0)
    wrong = [name for name, metric in metrics.items() if not callable(metric)]
    if wrong:
        raise BadInput(f"metric must be a function of Predictions; got {metrics[wrong[0]]!r}")
    given = known or {}
    values = {name: given[name] if name in given else metric(p) for name, metric in metrics.items()}
    for name, value in values.items():
        if isinstance(value, str) or np.isnan(value):
            raise BadInput(f"metric must give a number for these predictions; {name} gave {value!r}")
    draws = _resample({name: m for name, m in metrics.items() if _base(m) is not accuracy}, p, count, seed, progress)
    return {
        name: _interval_of(values[name], draws[name], level, count)
        if name in draws
        else _wilson(values[name], n, level)
        for name in metrics
    }


def _resample(
    metrics: Mapping[str, AnyMetric],
    p: Predictions,
    count: int,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> dict[str, Floats]:
    """(count,) values of each metric on resamples of the rows of ``p`` with replacement."""
    random = np.random.default_rng(seed)
    n = len(p)
    # Rows are put in the order of confidence: a resample drawn as sorted row numbers then needs no further sorting.
    rows = p.take(np.lexsort((p.correct, p.confidence)))
    batched = {name: m for name, m in metrics.items() if _base(m) is classwise_ece}
    draws = {name: np.empty(count) for name in metrics if name not in batched}
    times = np.empty((count if batched else 1, n), np.float32 if batched else np.int64)
    for index in range(count):
        drawn = np.bincount(random.integers(0, n, n), minlength=n)
        if batched:
            times[index] = drawn
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


def _interval_of(value: float, draws: Floats, level: float, count: int) -> Interval:
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
    if power == 1:
        return Interval(low, high, "bias-corrected bootstrap", level, count)
    return Interval(max(0.0, low) ** 0.5, max(0.0, high) ** 0.5, "bias-corrected bootstrap of squares", level, count)


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


def _wilson(value: float, n: int, level: float) -> Interval:
    low, high = wilson(np.float64(value), np.float64(n), level)  # type: ignore[arg-type]
    return Interval(float(low), float(high), "Wilson", level, 0)


def _base(metric: AnyMetric) -> Any:
    """The function behind a ``functools.partial``."""
    return getattr(metric, "func", metric)


def _settings(metric: AnyMetric) -> dict[str, Any]:
    return dict(getattr(metric, "keywords", {}))
