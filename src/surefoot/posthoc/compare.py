"""Before and after: what a repair did, and whether it is more than noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2_contingency

from surefoot.errors import BadInput
from surefoot.metrics.interval import Interval, intervals
from surefoot.metrics.registry import METRICS, higher_is_better, tracked_metrics
from surefoot.metrics.summary import metrics_table
from surefoot.predictions import Predictions, check_predictions
from surefoot.validation import check_fraction, check_int

__all__ = ["Change", "Comparison", "check_splits", "compare"]

FEWEST = 20  # rows on which a change is judged; the bootstrap of fewer is no guide to their noise


@dataclass(frozen=True)
class Change:
    """One metric before and after on the same n rows; ``change`` = after − before, with a paired bootstrap interval.

    Where the metric is infinite before and after, change and interval are NaN.
    """

    metric: str
    before: float
    after: float
    before_interval: Interval
    after_interval: Interval
    change: float
    low: float
    high: float
    n: int

    @property
    def verdict(self) -> str:
        """``"better"``, ``"worse"`` or ``"noise"`` (the interval of the change holds 0).

        Or no verdict: ``"undefined"`` for a difference of infinities and for a metric without a better direction,
        ``"too few rows"`` below 20.
        """
        if np.isnan(self.change) or METRICS[self.metric].better is None:
            return "undefined"
        if self.n < FEWEST:
            return "too few rows"
        if self.low <= 0 <= self.high:
            return "noise"
        return "better" if (self.change < 0) != higher_is_better(self.metric) else "worse"


@dataclass(frozen=True)
class Comparison:
    """Every metric's `Change`, how many answers changed, and how many rows give their label probability 0."""

    changes: tuple[Change, ...]
    answers_changed: int
    impossible_before: int
    impossible_after: int
    n: int
    level: float
    resamples: int

    def __getitem__(self, metric: str) -> Change:
        for change in self.changes:
            if change.metric == metric:
                return change
        raise BadInput(f"metric must be one of {', '.join(c.metric for c in self.changes)}; got {metric!r}")


def compare(
    before: Predictions,
    after: Predictions,
    metrics: Sequence[str] | None = None,
    level: float = 0.95,
    resamples: int = 300,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Compare two predictions of the same rows: both are resampled together, so that what they share cancels.

    The interval of a change is the bootstrap's, turned around its estimate (the basic bootstrap): a binned error is too
    high on either side, and on resamples once more; so that bias does not enter twice. ``metrics`` are by default those
    that readings along training hold of every part.
    """
    check_predictions("before", before)
    check_predictions("after", after)
    if len(before) != len(after) or (before.labels != after.labels).any():
        raise BadInput("before and after must be of the same rows with the same labels")
    check_fraction("level", level)
    count = check_int("resamples", resamples, 10)
    table = metrics_table()
    metrics = tracked_metrics("val") if metrics is None else metrics
    unknown = [name for name in metrics if name not in table]
    if unknown:
        raise BadInput(f"metrics must be among {', '.join(table)}; got {unknown[0]!r}")
    chosen = {name: table[name] for name in metrics}
    first, second = {n: m(before) for n, m in chosen.items()}, {n: m(after) for n, m in chosen.items()}
    random = np.random.default_rng(check_int("seed", seed, 0))
    draws = {name: np.empty(count) for name in chosen}
    for index in range(count):
        rows = random.integers(0, len(before), len(before))
        a, b = before.take(rows), after.take(rows)
        for name, metric in chosen.items():
            draws[name][index] = _difference(metric(b), metric(a))
        if progress is not None:
            progress(index + 1, count)
    around = intervals(chosen, before, level, seed, resamples, first)
    around_after = intervals(chosen, after, level, seed, resamples, second)
    tails = [(1 - level) / 2, (1 + level) / 2]
    changes = []
    for name in chosen:
        change = _difference(second[name], first[name])
        low, high = np.quantile(draws[name], tails, method="nearest")
        low, high = (2 * change - high, 2 * change - low) if np.isfinite(change) else (change, change)
        spans = (around[name], around_after[name])
        changes.append(Change(name, first[name], second[name], *spans, change, float(low), float(high), len(before)))
    moved = int((before.predicted != after.predicted).sum())
    return Comparison(tuple(changes), moved, _impossible(before), _impossible(after), len(before), level, count)


def _difference(after: float, before: float) -> float:
    with np.errstate(invalid="ignore"):
        return float(np.subtract(after, before))  # NaN for two infinities


def _impossible(p: Predictions) -> int:
    return int(np.isneginf(p.log_true).sum())


def check_splits(val: Predictions, test: Predictions, used_before: bool = False) -> list[str]:
    """What may be wrong with fitting on ``val`` and judging on ``test``, in sentences; empty if nothing is seen."""
    check_predictions("val", val)
    check_predictions("test", test)
    if val.classes != test.classes:
        raise BadInput(f"val and test must be of one model; got {val.classes} and {test.classes} classes")
    found = []
    if used_before:
        found.append(
            "The validation set also chose the stopping point or settings of the model, so what is fitted on it is "
            "too hopeful; fit on a third set if you can."
        )
    count = np.bincount(val.labels, minlength=val.classes)
    if len(val) < 500 or count.min() < 10:
        found.append(
            f"The validation set is small ({len(val):,} rows, {int(count.min())} of the rarest class): prefer a "
            "temperature, whose one number needs little."
        )
    both = np.stack([count, np.bincount(test.labels, minlength=test.classes)])
    both = both[:, both.sum(axis=0) > 0]
    if both.shape[1] > 1:
        p_value = float(chi2_contingency(both).pvalue)
        if p_value < 1e-3:
            found.append(
                f"The labels of the two sets are distributed differently (chi-squared test, p = {p_value:.1e}): a "
                "calibrator learned on one need not hold on the other."
            )
    right = np.array([[int(p.correct.sum()), int((~p.correct).sum())] for p in (val, test)])
    shares = right[:, 0] / right.sum(axis=1)
    if shares[0] > shares[1]:
        p_value = float(chi2_contingency(right).pvalue)
        if p_value < 1e-3:
            found.append(
                f"The validation set is answered right more often than the test set (accuracy {shares[0]:.4f} against "
                f"{shares[1]:.4f}, p = {p_value:.1e}): is it the training set? Rows that the model was trained on make "
                "what is fitted on them too sure; give rows it has not seen."
            )
    if _impossible(val):
        found.append(
            f"{_impossible(val):,} of the {len(val):,} validation rows give their label probability 0; nothing that "
            "keeps zeros can be right about them, and a temperature leaves them out."
        )
    if len(val) == len(test) and (val.labels == test.labels).all() and (val.confidence == test.confidence).all():
        found.append("The two sets are the same rows: after fitting on them they prove nothing.")
    return found
