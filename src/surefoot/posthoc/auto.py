"""The choice among calibrators by cross-validation; no calibration at all is one of the candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from surefoot.errors import BadInput
from surefoot.metrics.paired import standard_error
from surefoot.metrics.registry import METRICS, higher_is_better, metrics_table
from surefoot.posthoc.calibrator import Calibrator, Floats
from surefoot.posthoc.identity import Identity
from surefoot.posthoc.linear import SMALL, renumbered
from surefoot.posthoc.registry import CALIBRATORS, build_calibrator
from surefoot.posthoc.rows import class_counts, row_count
from surefoot.predictions import Predictions
from surefoot.threads import one_thread
from surefoot.validation import check_int

__all__ = ["Auto", "Candidate", "check_metric", "default_candidates"]


# The share of its standard error by which the first candidate must gain over no calibration, and every other over what
# stands: chosen on simulated problems, and then frozen (`benchmarks/auto_small.py`).
_FIRST, _LATER = 0.5, 1.64
_FEWEST = 2  # rows of every class that candidates after the first need

# The loss of single rows, for metrics that are means over rows; other metrics are compared over folds.
_ROW_LOSSES: dict[str, Callable[[Predictions], Floats]] = {
    "nll": lambda p: -p.log_true,
    "brier": lambda p: p.squared_error if p.form == "classes" else p.squared_error / 2,
    "accuracy": lambda p: 1.0 - p.correct.astype(np.float64),
}


@dataclass(frozen=True)
class Candidate:
    """A candidate of `Auto` and its results over the folds.

    Attributes:
        name: name of the candidate.
        score: the metric out of fold; NaN if the candidate was left out.
        gain: mean improvement over no calibration, above 0 if better; NaN if the candidate was left out.
        gain_error: standard error of ``gain``; NaN if the candidate was left out.
        left_out: why the candidate was left out; None if it was not.
    """

    name: str
    score: float
    gain: float
    gain_error: float
    left_out: str | None = None


def default_candidates() -> dict[str, Calibrator]:
    """Return a new calibrator of every kind.

    Returns:
        Calibrators by name, simplest first; ``"isotonic-pooled"`` is the last.

    Example:
        >>> list(default_candidates())[:3]
        ['none', 'temperature', 'ets']
    """
    return {name: build_calibrator(name) for name in CALIBRATORS}


class Auto(Calibrator):
    """The calibrator for given predictions, chosen by cross-validation and then fitted on all rows.

    The choice is made to be safe on few rows. By default it starts from a temperature with a prior, log T ~ N(0, 0.5²),
    whose result is mixed with the uniform distribution with the share 1/(n + 1). This temperature replaces no
    calibration if its mean gain on rows out of fold exceeds half of a standard error. Ensemble temperature scaling and
    structured vector and matrix scaling (mixed in the same way), and Dirichlet calibration and matrix scaling from 250
    rows on, replace what then stands only if their paired gain over it exceeds 1.64 standard errors. Among these the
    lowest score wins. They also need two rows of every class. Tables are never chosen, because they overfit.

    Standard errors are over rows for ``"nll"``, ``"brier"`` and ``"accuracy"``, and over folds for any other metric. A
    candidate that learns more numbers than there are rows is left out. Clusters of rows are never split by a fold, and
    standard errors are then over clusters. A row of weight w is one row of the folds.

    Args:
        metric: name of the metric to improve, which needs a better direction; a proper score such as ``"nll"`` or
            ``"brier"`` is advised.
        folds: number of folds of the cross-validation, at least 2; needs twice as many rows, or clusters.
        nested: also cross-validate the choice itself, at three times the work for five folds; this gives ``estimate_``.
        seed: seed of the folds, an integer of at least 0.
        candidates: calibrators by name; the first takes the place of the temperature in the rule above. None takes the
            candidates above. ``"none"``, no calibration, is always a candidate.
        scores: what arrays hold, ``"logits"`` or ``"probs"``; without effect on `Predictions`.

    Attributes:
        best_: the chosen calibrator, fitted on all rows.
        name_: name of the chosen candidate.
        scores_: a `Candidate` for every candidate, best first.
        estimate_: with ``nested``, the metric of the full procedure, including the choice, on unseen rows; else None.
        before_: the metric of the predictions before calibration.

    Example:
        >>> p = Predictions([[4.0, 0.0]] * 50 + [[0.0, 4.0]] * 50, ([0] * 8 + [1] * 2) * 5 + ([1] * 8 + [0] * 2) * 5)
        >>> auto = Auto(nested=False, candidates={"temperature": build_calibrator("temperature")}).fit(p)
        >>> auto.name_, [candidate.name for candidate in auto.scores_]
        ('temperature', ['temperature', 'none'])
    """

    method = "auto"
    learned = ("best_",)

    def __init__(
        self,
        metric: str = "nll",
        folds: int = 5,
        nested: bool = True,
        seed: int = 0,
        candidates: Mapping[str, Calibrator] | None = None,
        scores: str = "logits",
    ) -> None:
        super().__init__(scores)
        self.metric, self.folds, self.nested, self.seed, self.candidates = metric, folds, nested, seed, candidates

    def check_settings(self) -> None:
        """Check that the metric exists, ``folds`` and ``seed`` are integers, and the candidates are calibrators."""
        super().check_settings()
        check_metric(self.metric)
        check_int("folds", self.folds, 2)
        check_int("seed", self.seed, 0)
        for candidate in _checked(self.candidates).values():
            candidate.check_settings()

    def _fit(self, p: Predictions) -> None:
        folds = int(self.folds)
        with one_thread(len(p) * p.classes <= SMALL):
            self._fit_folds(p, folds)

    def _fit_folds(self, p: Predictions, folds: int) -> None:
        units, unit = (len(p), "rows") if p.clusters is None else (len(np.unique(p.clusters)), "clusters")
        if units < 2 * folds:
            raise BadInput(f"p must have at least {2 * folds} {unit} for {folds} folds; got {units}")
        fold = _folds(p.labels, folds, int(self.seed), p.clusters)
        candidates, skipped = self._considered(len(p))
        mapped = _Mapped(p, candidates, fold)
        self.name_, ranked = _choose(mapped, range(folds), self.metric)
        left_out = [Candidate(name, np.nan, np.nan, np.nan, why) for name, why in skipped.items()]
        self.scores_ = ranked + left_out
        self.best_: Calibrator = clone(candidates[self.name_]).fit(p)
        self.best_.form_ = self.form_
        self.before_ = float(metrics_table()[self.metric](p))
        self.estimate_ = _nested(mapped, folds, self.metric) if self.nested else None

    def _considered(self, rows: int) -> tuple[dict[str, Calibrator], dict[str, str]]:
        """The candidates for so many rows, and why the other calibrators are none."""
        if self.candidates is not None:
            return {"none": Identity(), **_checked(self.candidates)}, {}
        considered: dict[str, Calibrator] = {}
        skipped = {}
        for name, entry in CALIBRATORS.items():
            if entry.auto is None:
                skipped[name] = "only fitted if asked for by name, because the candidates do better on few rows"
            else:
                considered[name] = entry.build(**entry.auto)
        return considered, skipped

    def _map(self, p: Predictions) -> tuple[Floats, str]:
        self.best_.check_kind(p)
        return self.best_._mapped(p)

    def save(self, path: object) -> None:
        """Write the chosen calibrator as JSON."""
        self.check_fitted()
        self.best_.save(path)  # type: ignore[arg-type]

    def to_module(self) -> object:
        """Convert the chosen calibrator to a torch module."""
        self.check_fitted()
        return self.best_.to_module()


def check_metric(metric: Any) -> None:
    """Check that a metric exists and has a better direction.

    Args:
        metric: name of the metric.

    Raises:
        BadInput: when there is no such metric; the error lists the names.
    """
    known = [name for name, entry in METRICS.items() if entry.better is not None]
    if metric not in known:
        raise BadInput(f"metric must be one of {', '.join(known)}; got {metric!r}")


def _checked(candidates: Any) -> dict[str, Calibrator]:
    """The candidates by name, checked; all candidates for None."""
    if candidates is None:
        return default_candidates()
    if not isinstance(candidates, Mapping):
        raise BadInput(
            f"candidates must be a dict of calibrators by name, such as {{'mine': Temperature()}}; "
            f"got {type(candidates).__name__}"
        )
    for name, candidate in candidates.items():
        if not isinstance(name, str) or not isinstance(candidate, Calibrator):
            raise BadInput(
                f"candidates must be calibrators by name, such as {{'mine': Temperature()}}; got {name!r}: "
                f"{candidate!r}"
            )
        if name == "none" and not isinstance(candidate, Identity):
            raise BadInput(
                "candidates must not name one 'none', which stands for leaving things alone; give it another name"
            )
    return dict(candidates)


def _folds(
    labels: NDArray[np.int64], folds: int, seed: int, clusters: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """(n,) fold of each row; classes are spread evenly over the folds, so that rare classes are in most folds.

    Clusters are dealt to the folds as a whole: by their most frequent class, and the largest clusters first.
    """
    random = np.random.default_rng(seed)
    if clusters is not None:
        owner, number = renumbered(clusters)
        by_class, first, count = np.unique(
            owner * (int(labels.max()) + 1) + labels, return_index=True, return_counts=True
        )
        # The last entry of each cluster in this order is its most frequent class.
        order = np.lexsort((by_class, count, owner[first]))
        last = np.append(np.flatnonzero(np.diff(owner[first][order])), len(order) - 1)
        frequent = labels[first][order][last]
        dealt = np.lexsort((random.permutation(number), -np.bincount(owner), frequent))
        turn = np.arange(number) % (2 * folds)
        fold = np.empty(number, np.int64)
        fold[dealt] = np.where(turn < folds, turn, 2 * folds - 1 - turn)  # to and fro, for folds of equal size
        return fold[owner]
    shuffled = random.permutation(len(labels))
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    fold = np.empty(len(labels), np.int64)
    fold[order] = np.arange(len(labels)) % folds
    return fold


class _Mapped:
    """Rows out of fold, mapped by every candidate; a fit on the rows outside of some folds is made once."""

    def __init__(self, p: Predictions, candidates: dict[str, Calibrator], fold: NDArray[np.int64]) -> None:
        self.p, self.candidates, self.fold = p, candidates, fold
        self._fits: dict[tuple[str, tuple[int, ...]], Calibrator | str] = {}

    def rows(self, folds: Iterable[int]) -> Predictions:
        """The rows of these folds."""
        return self.p.take(np.flatnonzero(np.isin(self.fold, list(folds))))

    def fitted(self, name: str, folds: Iterable[int]) -> Calibrator | str:
        """The candidate fitted on the rows of these folds, or why it cannot be fitted."""
        key = name, tuple(sorted(folds))
        if key not in self._fits:
            try:
                self._fits[key] = clone(self.candidates[name]).fit(self.rows(key[1]))
            except BadInput as error:
                self._fits[key] = str(error)
        return self._fits[key]

    def out_of_fold(self, name: str, folds: Sequence[int]) -> list[Predictions] | str:
        """The rows of each fold, mapped by the fit on the other folds among ``folds``; or why there is none."""
        mapped = []
        for test in folds:
            fitted = self.fitted(name, [other for other in folds if other != test])
            if isinstance(fitted, str):
                return fitted
            mapped.append(fitted.apply(self.rows([test])))
        return mapped


def _reason(candidate: Calibrator, name: str, first: bool, p: Predictions) -> str | None:
    """Why the candidate is left out of a choice on these rows."""
    learns = candidate.number_of_parameters(p.classes)
    if learns > len(p):
        return f"learns {learns:,} numbers from {len(p):,} rows"
    if first:
        return None
    entry = CALIBRATORS.get(name)
    if entry is not None and len(p) < entry.auto_rows:
        return f"needs {entry.auto_rows} rows to be safe; got {len(p):,}"
    count = np.bincount(p.labels, minlength=p.classes) if p.soft_labels is None else class_counts(p)
    if count.min() < _FEWEST:
        return f"needs {_FEWEST} rows of every class to be safe; class {int(count.argmin())} has {int(count.min())}"
    return None


def _choose(mapped: _Mapped, folds: Sequence[int], metric: str) -> tuple[str, list[Candidate]]:
    """The name of the chosen candidate on the rows of these folds, and all candidates, best first."""
    sign = -1.0 if higher_is_better(metric) else 1.0
    rows = mapped.rows(folds)
    # The order of the rows out of fold: fold by fold.
    joined = mapped.p.take(np.concatenate([np.flatnonzero(mapped.fold == test) for test in folds]))
    units = _Units(joined) if metric in _ROW_LOSSES else None
    losses: dict[str, Floats] = {}
    scores: dict[str, float] = {}
    left_out: dict[str, str] = {}
    order = list(mapped.candidates)
    first = next((name for name in order if name != "none"), None)
    for name in order:
        why = None
        if name != "none":
            why = _reason(mapped.candidates[name], name, name == first, rows)
        parts = why or mapped.out_of_fold(name, folds)
        if isinstance(parts, str):
            left_out[name] = parts
            continue
        losses[name], scores[name] = _losses(parts, metric, sign, units)
    gains = {name: _gain(losses["none"], each, units) for name, each in losses.items()}
    standing = "none"
    if first in losses and np.isfinite(scores[first]) and gains[first][0] > _FIRST * gains[first][1]:
        standing = first
    better = []
    for name in losses:
        gain, error = _gain(losses[standing], losses[name], units)
        if name not in ("none", first) and np.isfinite(scores[name]) and gain > _LATER * error:
            better.append(name)
    name = min([standing, *better], key=lambda each: scores[each])
    measured = sorted(scores, key=lambda each: scores[each])
    ranked = [Candidate(each, sign * scores[each], *gains[each]) for each in measured]
    return name, ranked + [Candidate(each, np.nan, np.nan, np.nan, why) for each, why in left_out.items()]


class _Units:
    """Weights and clusters of rows, for means and standard errors of their losses."""

    def __init__(self, p: Predictions) -> None:
        self.weights, self.plain = p.weights, p.weights is None and p.clusters is None
        self.owner = None if p.clusters is None else renumbered(p.clusters)[0]

    def mean(self, values: Floats) -> float:
        return float(values.mean() if self.weights is None else np.average(values, weights=self.weights))

    def error(self, values: Floats) -> float:
        if self.plain:
            return float(values.std(ddof=1) / len(values) ** 0.5)
        weighted = values if self.weights is None else values * self.weights
        return standard_error(weighted, self.weights, self.owner)[0]


def _losses(parts: list[Predictions], metric: str, sign: float, units: _Units | None) -> tuple[Floats, float]:
    """The loss of every row out of fold, or of every fold, and their mean over rows; lower is better."""
    if units is not None:
        losses = np.concatenate([_ROW_LOSSES[metric](part) for part in parts])
        return losses, units.mean(losses) if sign > 0 else units.mean(losses) - 1.0
    losses = np.array([sign * float(metrics_table()[metric](part)) for part in parts])
    return losses, float(np.average(losses, weights=[row_count(part) for part in parts]))


def _gain(before: Floats, after: Floats, units: _Units | None) -> tuple[float, float]:
    """The mean of ``before`` − ``after``, and its standard error; 0 where it is infinite."""
    with np.errstate(invalid="ignore"):
        gains = np.where(after == before, 0.0, before - after)  # infinite before and after: no gain
    if units is None:
        error = float(gains.std(ddof=1) / len(gains) ** 0.5) if np.isfinite(gains).all() else 0.0
        return float(gains.mean()), error
    return units.mean(gains), units.error(gains) if np.isfinite(gains).all() else 0.0


def _nested(mapped: _Mapped, folds: int, metric: str) -> float:
    """The metric of the procedure on held-out folds: every fold repeats the choice on the other folds.

    The choice without fold i takes the other folds as its own. Its fits without the folds i and j serve fold j too.
    """
    values, sizes, measure = [], [], metrics_table()[metric]
    for test in range(folds):
        others = [fold for fold in range(folds) if fold != test]
        if folds > 2:
            name = _choose(mapped, others, metric)[0]
        else:  # one other fold, which is halved
            half = mapped.rows(others)
            each = np.arange(len(half)) if half.clusters is None else renumbered(half.clusters)[0]
            name = _choose(_Mapped(half, mapped.candidates, each % 2), range(2), metric)[0]
        fitted = mapped.fitted(name, others)
        rows = mapped.rows([test])
        values.append(float(measure(rows if isinstance(fitted, str) else fitted.apply(rows))))
        sizes.append(row_count(rows))
    return float(np.average(values, weights=sizes))
