"""Comparison of predictions before and after calibration: the change of every metric, and whether it exceeds noise.

The tests are those of `surefoot.metrics.paired`. Scores that are means get Student's paired t. Errors whose bias
depends on how coarse the confidences are (ECE, adaptive ECE, KCE) get two tests, and are only called better if both
reject. The other metrics get a paired bootstrap, which does not know the bias.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2_contingency

from surefoot.errors import BadInput
from surefoot.metrics.bin_noise import cells_of, check_clusters, kernel_cells_of, residuals_of, unit_weights
from surefoot.metrics.ece import adaptive_ece, ece
from surefoot.metrics.gap import event_ece
from surefoot.metrics.interval import Interval, intervals
from surefoot.metrics.kce import kce
from surefoot.metrics.paired import Paired, mean_difference, sums_difference
from surefoot.metrics.registry import Metric, applicable, higher_is_better, metrics_table, tracked_metrics
from surefoot.metrics.scores import accuracy, brier, mean_confidence, nll
from surefoot.posthoc.rows import class_counts, row_count, row_weights
from surefoot.predictions import Predictions, check_predictions
from surefoot.threads import one_thread
from surefoot.validation import check_fraction, check_int

__all__ = ["Change", "Comparison", "check_splits", "compare"]

FEWEST = 20  # a verdict needs this many rows; the bootstrap of fewer rows does not show their noise
FEWEST_CLUSTERS = 10  # and this many clusters, for the same reason


@dataclass(frozen=True)
class Change:
    """One metric before and after, on the same rows.

    If the metric is infinite before and after, ``change``, ``low`` and ``high`` are NaN.

    Attributes:
        metric: name of the metric.
        before: value before.
        after: value after.
        before_interval: interval of the value before.
        after_interval: interval of the value after.
        change: ``after`` − ``before``.
        low: lower end of the interval of the change, or of ``debiased``.
        high: upper end of that interval.
        n: number of rows.
        method: ``"t"``, ``"flips and t"`` or ``"bootstrap"``; `compare` describes them.
        debiased: change without the bias of a calibration error; equals ``change`` for other metrics.
        p_flips: p-value of "calibrated before and after"; NaN where this test is not made.
        p_t: p-value of "the same before and after"; NaN where this test is not made.
        clusters: number of clusters of the rows; None if every row is independent.
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
    method: str = "bootstrap"
    debiased: float = np.nan
    p_flips: float = np.nan
    p_t: float = np.nan
    clusters: int | None = None

    @property
    def evidence(self) -> str:
        """Which tests reject "no change", with their p-values; empty for a metric without a test."""
        if np.isnan(self.change) or np.isnan(self.p_t):
            return ""
        rejects = 1 - self.before_interval.level + 1e-12
        if np.isnan(self.p_flips):
            word = "rejects" if self.p_t <= rejects else "does not reject"
            return f"the paired t-test {word} ({_p_value(self.p_t)})"
        flips, t = self.p_flips <= rejects, self.p_t <= rejects
        if flips and t:
            word = "both tests reject" if self.low > 0 or self.high < 0 else "both tests reject, on different sides"
        elif flips or t:
            word = f"only the {'sign-flip' if flips else 't'} test rejects, and both must"
        else:
            word = "neither test rejects"
        return f"{word} (sign flips: {_p_value(self.p_flips)}; t: {_p_value(self.p_t)})"

    @property
    def verdict(self) -> str:
        """``"better"``, ``"worse"``, or ``"noise"`` if the interval of the change contains 0.

        There is no verdict below 20 rows (``"too few rows"``), below 10 clusters (``"too few clusters"``), for a
        difference of infinities (``"undefined"``) and for a metric without a better direction (``"undefined"``).
        """
        higher = higher_is_better(self.metric)
        if np.isnan(self.change) or higher is None:
            return "undefined"
        if self.n < FEWEST:
            return "too few rows"
        if self.clusters is not None and self.clusters < FEWEST_CLUSTERS:
            return "too few clusters"
        if self.low <= 0 <= self.high:
            return "noise"
        return "better" if (self.change < 0) != higher else "worse"


@dataclass(frozen=True, repr=False)
class Comparison:
    """Comparison of two predictions of the same rows; ``comparison["nll"]`` is the `Change` of one metric.

    Attributes:
        changes: a `Change` for every metric.
        answers_changed: number of rows whose predicted class changed.
        impossible_before: number of rows whose label has probability 0 before.
        impossible_after: number of rows whose label has probability 0 after.
        n: number of rows.
        level: coverage of the intervals.
        resamples: number of bootstrap resamples.
    """

    changes: tuple[Change, ...]
    answers_changed: int
    impossible_before: int
    impossible_after: int
    n: int
    level: float
    resamples: int

    def __repr__(self) -> str:
        lines = [f"{'metric':<13}{'before':>9}{'after':>9}{'change':>9}  {f'{self.level:.0%} interval':<20}verdict"]
        for each in self.changes:
            span = f"{each.low:+.4f} to {each.high:+.4f}"
            numbers = f"{each.before:>9.4f}{each.after:>9.4f}{each.change:>+9.4f}"
            lines.append(f"{each.metric:<13}{numbers}  {span:<20}{each.verdict}")
        return "\n".join([*lines, f"{self.answers_changed:,} of {self.n:,} predicted classes change"])

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
    """Compare two predictions of the same rows, so that shared noise cancels.

    The metrics read the usual events: the top label, or the event of predictions with one score a row. Weights and
    clusters of the rows are respected: tests flip, sum and resample whole clusters.

    The `Change.method` of a metric is one of:

    - ``"t"``: Student's paired t, for means (accuracy, mean confidence, NLL, Brier score).
    - ``"flips and t"``: for ECE, adaptive ECE and KCE. The change is debiased first, because a model whose confidences
      are coarser has a smaller bias. The verdict is ``"better"`` or ``"worse"`` only if two tests reject on the same
      side: random signs of the residuals ("calibrated before and after"), and t ("equally wrong before and after").
      The interval is the hull of both tests' intervals, and is an interval of `Change.debiased`.
    - ``"bootstrap"``: for any other metric, the basic bootstrap interval of resampled rows: the percentile interval,
      reflected at the estimate. A biased metric, such as `mce`, can look better if confidences only become coarser.

    Args:
        before: predictions before, such as uncalibrated ones.
        after: predictions after, of the same rows with the same labels.
        metrics: names of the metrics, from `surefoot.metrics.metrics_table`; None takes the metrics that readings along
            training hold of every part, and for two classes the ECE of P(positive).
        level: coverage of the intervals, between 0 and 1; a test rejects at 1 − ``level``.
        resamples: number of bootstrap resamples, at least 10, for the metrics that need them.
        seed: seed of the resampling and of the signs, an integer of at least 0.
        progress: called as ``progress(done, total)`` after each resample, and at the end.

    Returns:
        The change of every metric, with intervals.

    Raises:
        BadInput: when an argument is not as described, or the rows differ: their labels, form, weights or clusters.

    Example:
        >>> p = Predictions([[4.0, 0.0]] * 100, [0] * 80 + [1] * 20)
        >>> cooler = Predictions([[1.386, 0.0]] * 100, p.labels)
        >>> comparison = compare(p, cooler, metrics=["nll"])
        >>> comparison["nll"].verdict, comparison.answers_changed
        ('better', 0)
        >>> comparison["nll"].evidence
        'the paired t-test rejects (p = 0.0032)'

    References:
        Student (1908), "The Probable Error of a Mean".
        Kumar, Liang & Ma (2019), "Verified Uncertainty Calibration", for the debiasing.
        Davison & Hinkley (1997), "Bootstrap Methods and their Application", Section 5.2, for the basic interval.
    """
    check_predictions("before", before)
    check_predictions("after", after)
    _check_same_rows(before, after)
    check_fraction("level", level)
    count = check_int("resamples", resamples, 10)
    table = metrics_table()
    tracked = {*tracked_metrics("val"), "event_ece"}
    better = [name for name in applicable(before) if name in tracked and higher_is_better(name) is not None]
    metrics = better if metrics is None else metrics
    unknown = [name for name in metrics if name not in table]
    if unknown:
        raise BadInput(f"metrics must be among {', '.join(table)}; got {unknown[0]!r}")
    chosen = {name: table[name] for name in metrics}
    with one_thread(len(before) >= _MANY):
        first, second = {n: m(before) for n, m in chosen.items()}, {n: m(after) for n, m in chosen.items()}
    check_int("seed", seed, 0)
    with one_thread(len(before) >= _MANY):
        tests = {name: _test(metric, before, after, level, seed) for name, metric in chosen.items()}
    differences = {name: _difference(second[name], first[name]) for name in chosen}
    # Nothing is known of an infinite change, so nothing is drawn for it.
    rest = {n: m for n, m in chosen.items() if tests[n] is None and np.isfinite(differences[n])}
    draws = _bootstrap(rest, before, after, count, seed, progress)
    with one_thread(len(before) >= _MANY):
        intervals_before = intervals(chosen, before, level, seed, resamples, first)
        intervals_after = intervals(chosen, after, level, seed, resamples, second)
    if progress is not None:
        progress(count, count)
    tails = [(1 - level) / 2, (1 + level) / 2]
    clusters = None if before.clusters is None else len(np.unique(before.clusters))
    changes = []
    for name in chosen:
        change, test = differences[name], tests[name]
        row = (name, first[name], second[name], intervals_before[name], intervals_after[name], change)
        if test is not None:
            method = "t" if np.isnan(test.p_flips) else "flips and t"
            debiased = change if method == "t" else test.difference
            known = (len(before), method, debiased, test.p_flips, test.p_t, clusters)
            changes.append(Change(*row, test.low, test.high, *known))
            continue
        low, high = change, change
        if name in draws:
            low, high = (float(2 * change - end) for end in np.quantile(draws[name], tails[::-1], method="nearest"))
        changes.append(Change(*row, low, high, len(before), debiased=change, clusters=clusters))
    changed = int((before.predicted != after.predicted).sum())
    return Comparison(tuple(changes), changed, _impossible(before), _impossible(after), len(before), level, count)


# The scores of the rows, of which the metric is the mean.
_SCORES: dict[Any, Callable[[Predictions], Any]] = {
    accuracy: lambda p: p.correct,
    mean_confidence: lambda p: p.confidence,
    nll: lambda p: -p.log_true,
    brier: lambda p: p.squared_error if p.form == "classes" else p.squared_error / 2,
}
_FEWEST_TESTED = 2  # a test needs two rows
# From so many rows on, all linear algebra is of small matrices: threads would only wait for one another.
_MANY = 1 << 13
_MOST_BINS = 500  # of a test


def _test(metric: Metric, before: Predictions, after: Predictions, level: float, seed: int) -> Paired | None:
    """The test of a metric; None if it has none, or has a setting that the test does not know."""
    base, settings = getattr(metric, "func", metric), dict(getattr(metric, "keywords", {}))
    if len(before) < _FEWEST_TESTED:
        return None
    if base in _SCORES and not settings:
        scores = [_SCORES[base](p) for p in (after, before)]
        if not all(np.isfinite(s).all() for s in scores):
            return None
        return mean_difference(*scores, weights=before.weights, clusters=before.clusters, level=level)
    weights, groups = unit_weights(before), check_clusters(before.clusters, len(before))
    bins = settings.get("bins", 15)
    event = "positive" if base is event_ece and before.form == "classes" else None
    binned = base in (ece, adaptive_ece) or (base is event_ece and before.positive is not None)
    if binned and not settings.keys() - {"bins"} and bins <= _MOST_BINS:
        binning = "mass" if base is adaptive_ece else "width"
        models = [(cells_of(p, binning, bins, event), residuals_of(p, event)) for p in (after, before)]
        return sums_difference(*models, weights=weights, groups=groups, level=level, seed=seed)
    if base is kce and not settings:
        kernels = [kernel_cells_of(p) for p in (after, before)]
        pair = [(cells, residuals_of(p)) for cells, p in zip(kernels, (after, before), strict=True) if cells]
        return sums_difference(*pair, weights=weights, groups=groups, level=level, seed=seed)
    return None


def _check_same_rows(before: Predictions, after: Predictions) -> None:
    if len(before) != len(after) or (before.labels != after.labels).any():
        raise BadInput("before and after must be of the same rows with the same labels")
    if before.form != after.form:
        raise BadInput(f"before and after must have the same form; got {before.form!r} and {after.form!r}")
    for name in ("soft_labels", "weights", "clusters"):
        one, other = getattr(before, name), getattr(after, name)
        if (one is None) != (other is None) or (one is not None and not np.array_equal(one, other)):
            raise BadInput(f"before and after must be of the same rows with the same {name.replace('_', ' ')}")


def _bootstrap(
    metrics: Mapping[str, Metric],
    before: Predictions,
    after: Predictions,
    count: int,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> dict[str, NDArray[np.float64]]:
    """(count,) differences of each metric on the same resamples of the rows, or clusters, of both predictions."""
    draws = {name: np.empty(count) for name in metrics}
    random = np.random.default_rng(seed)
    groups = check_clusters(before.clusters, len(before))
    units = len(before) if groups is None else int(groups.max()) + 1
    for index in range(count if metrics else 0):
        rows = random.integers(0, units, units)
        if groups is not None:
            rows = np.repeat(np.arange(len(before)), np.bincount(rows, minlength=units)[groups])
        a, b = before.take(rows), after.take(rows)
        for name, metric in metrics.items():
            draws[name][index] = _difference(metric(b), metric(a))
        if progress is not None:
            progress(index + 1, count)
    return draws


def _p_value(p: float) -> str:
    return f"p = {p:.2g}" if p >= 1e-4 else "p < 0.0001"


def _difference(after: float, before: float) -> float:
    with np.errstate(invalid="ignore"):
        return float(np.subtract(after, before))  # NaN for two infinities


def _impossible(p: Predictions) -> int:
    return int(np.isneginf(p.log_true).sum())


def check_splits(val: Predictions, test: Predictions, used_before: bool = False) -> list[str]:
    """Look for reasons not to trust a calibrator that is fitted on ``val`` and evaluated on ``test``.

    Args:
        val: predictions for the fit.
        test: predictions of the same model for the evaluation.
        used_before: whether the validation set also chose the stopping point or settings of the model.

    Returns:
        A sentence for every reason; an empty list if no reason is visible.

    Raises:
        BadInput: when an argument is no `Predictions`, or the numbers of classes differ.

    Example:
        >>> p = Predictions([[4.0, 0.0]] * 500 + [[0.0, 4.0]] * 500, [0] * 450 + [1] * 500 + [0] * 50)
        >>> check_splits(p, p)
        ['The two sets are the same rows: after fitting on them they prove nothing.']
    """
    check_predictions("val", val)
    check_predictions("test", test)
    if val.classes != test.classes:
        raise BadInput(f"val and test must be of one model; got {val.classes} and {test.classes} classes")
    reasons = []
    if used_before:
        reasons.append(
            "The validation set also chose the stopping point or settings of the model, so what is fitted on it is "
            "too optimistic; fit on a third set if you can."
        )
    count = class_counts(val)
    if len(val) < 500 or count.min() < 10:
        reasons.append(
            f"The validation set is small ({len(val):,} rows, {int(count.min())} of the rarest class): prefer a "
            "temperature, whose one number needs little."
        )
    share_val, share_test = _independent(val), _independent(test)
    both = np.stack([count * share_val, class_counts(test) * share_test])
    both = both[:, both.sum(axis=0) > 0]
    if both.shape[1] > 1:
        p_value = float(chi2_contingency(both).pvalue)
        if p_value < 1e-3:
            reasons.append(
                f"The labels of the two sets are distributed differently (chi-squared test, p = {p_value:.1e}): a "
                "calibrator learned on one need not hold on the other."
            )
    right = np.array([_hits(val, _right(val)) * share_val, _hits(test, test.correct) * share_test])
    shares = right[:, 0] / right.sum(axis=1)
    if shares[0] > shares[1] and right.sum(axis=0).all():
        p_value = float(chi2_contingency(right).pvalue)
        if p_value < 1e-3:
            reasons.append(
                f"The validation set is predicted right more often than the test set (accuracy {shares[0]:.4f} against "
                f"{shares[1]:.4f}, p = {p_value:.1e}): is it the training set? Rows that the model was trained on make "
                "what is fitted on them overconfident; give rows it has not seen."
            )
    impossible = int((~val.possible).sum())
    if impossible:
        reasons.append(
            f"{impossible:,} of the {len(val):,} validation rows give their label probability 0; nothing that "
            "keeps zeros can be right about them, and a temperature leaves them out."
        )
    if len(val) == len(test) and (val.labels == test.labels).all() and (val.confidence == test.confidence).all():
        reasons.append("The two sets are the same rows: after fitting on them they prove nothing.")
    return reasons


def _independent(p: Predictions) -> float:
    """The number of independent rows for each row that a fit counts: clusters count once, and so do repetitions."""
    units = len(p) if p.clusters is None else len(np.unique(p.clusters))
    return min(1.0, units / row_count(p))


def _hits(p: Predictions, right: NDArray[Any]) -> NDArray[np.float64]:
    """(2,) weight of the rows that are predicted right, and of the other rows."""
    weights = row_weights(p)
    hits = float(right.sum() if weights is None else weights @ right)
    return np.array([hits, row_count(p) - hits])


def _right(p: Predictions) -> NDArray[Any]:
    """`Predictions.correct` of rows of which nothing else is needed: exponentials would be computed in vain."""
    if p.form != "classes" or p.scores != "logits" or p.soft_labels is not None:
        return p.correct
    blocks = [rows for part in p.parts() for rows in part]
    out = np.empty((max(rows.stop - rows.start for rows in blocks), p.classes))
    return np.concatenate([p.logit_block(rows, out).argmax(axis=1) == p.labels[rows] for rows in blocks])
