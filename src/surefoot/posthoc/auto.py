"""The choice among calibrators by cross-validation; no calibration at all is one of the candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from surefoot.errors import BadInput
from surefoot.metrics.registry import METRICS, higher_is_better, metrics_table
from surefoot.posthoc.calibrator import Calibrator, Floats
from surefoot.posthoc.identity import Identity
from surefoot.posthoc.registry import CALIBRATORS, build_calibrator
from surefoot.predictions import Predictions
from surefoot.validation import check_int

__all__ = ["Auto", "Candidate", "check_metric", "default_candidates"]


@dataclass(frozen=True)
class Candidate:
    """A candidate of `Auto` and its results over the folds.

    Attributes:
        name: name of the candidate.
        score: mean of the metric over the folds; NaN if the candidate was left out.
        gain: mean improvement over no calibration, above 0 if better; NaN if the candidate was left out.
        gain_error: standard error of ``gain`` over the folds; NaN if the candidate was left out.
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
    """The best calibrator for given predictions, chosen by cross-validation and then fitted on all rows.

    A candidate is eligible only if its gain over no calibration exceeds the standard error of the gain over the folds.
    Among the eligible candidates, the simplest whose score is within one standard error of the best is chosen. A
    candidate that learns more numbers than there are rows is left out.

    Args:
        metric: name of the metric to improve, which needs a better direction; a proper score such as ``"nll"`` or
            ``"brier"`` is advised.
        folds: number of folds of the cross-validation, at least 2; needs twice as many rows.
        nested: also cross-validate the choice itself, at ``folds`` times the work; this gives ``estimate_``.
        seed: seed of the folds, an integer of at least 0.
        candidates: calibrators by name, simplest first; None takes `default_candidates`. ``"none"``, no calibration, is
            always a candidate.
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
        if len(p) < 2 * folds:
            raise BadInput(f"p must have at least {2 * folds} rows for {folds} folds; got {len(p)}")
        fold = _folds(p.labels, folds, int(self.seed))
        candidates = {"none": Identity(), **_checked(self.candidates)}
        self.name_, self.scores_ = _choose(p, candidates, fold, folds, self.metric)
        self.best_: Calibrator = clone(candidates[self.name_]).fit(p)
        self.before_ = float(metrics_table()[self.metric](p))
        self.estimate_ = self._nested(p, candidates, fold, folds) if self.nested else None

    def _nested(
        self,
        p: Predictions,
        candidates: dict[str, Calibrator],
        fold: NDArray[np.int64],
        folds: int,
    ) -> float:
        """The metric of the procedure on held-out folds; every fold repeats the choice without its rows."""
        values, sizes, measure = [], [], metrics_table()[self.metric]
        for test_fold in range(folds):
            train, test = p.take(np.flatnonzero(fold != test_fold)), p.take(np.flatnonzero(fold == test_fold))
            inner = _folds(train.labels, folds, int(self.seed) + 1 + test_fold)
            name, _ = _choose(train, candidates, inner, folds, self.metric)
            values.append(float(measure(clone(candidates[name]).fit(train).apply(test))))
            sizes.append(len(test))
        return float(np.average(values, weights=sizes))

    def _map(self, p: Predictions) -> tuple[Floats, str]:
        self.best_.check_kind(p)
        return self.best_._map(p)

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


def _folds(labels: NDArray[np.int64], folds: int, seed: int) -> NDArray[np.int64]:
    """(n,) fold of each row; classes are spread evenly over the folds, so that rare classes are in most folds."""
    random = np.random.default_rng(seed)
    shuffled = random.permutation(len(labels))
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    fold = np.empty(len(labels), np.int64)
    fold[order] = np.arange(len(labels)) % folds
    return fold


def _choose(
    p: Predictions,
    candidates: dict[str, Calibrator],
    fold: NDArray[np.int64],
    folds: int,
    metric: str,
) -> tuple[str, list[Candidate]]:
    """The name of the best candidate, and all of them, best first."""
    table, sign = metrics_table(), -1.0 if higher_is_better(metric) else 1.0

    def measure(q: Predictions) -> float:
        """The metric, with the sign for which lower is better."""
        return sign * float(table[metric](q))

    parts = [(p.take(np.flatnonzero(fold != index)), p.take(np.flatnonzero(fold == index))) for index in range(folds)]
    before = np.array([measure(test) for _, test in parts])
    values: dict[str, Floats] = {}
    left_out: dict[str, str] = {}
    for name, candidate in candidates.items():
        learns = candidate.number_of_parameters(p.classes)
        if learns > len(p):
            left_out[name] = f"learns {learns:,} numbers from {len(p):,} rows"
            continue
        try:
            values[name] = np.array([measure(clone(candidate).fit(train).apply(test)) for train, test in parts])
        except BadInput as error:
            left_out[name] = str(error)
    measured = []
    for name, scores in values.items():
        with np.errstate(invalid="ignore"):
            gains = np.where(scores == before, 0.0, before - scores)  # infinite before and after: no gain
        error_of_gain = float(gains.std(ddof=1) / folds**0.5) if np.isfinite(gains).all() else 0.0
        measured.append(Candidate(name, float(scores.mean()), float(gains.mean()), error_of_gain))
    better = [c for c in measured if c.gain > c.gain_error and np.isfinite(c.score)]
    name = "none"
    if better:
        best = min(better, key=lambda c: c.score)
        behind = {c.name: values[c.name] - values[best.name] for c in better}
        # The candidates are in the order simplest first.
        name = next(c.name for c in better if behind[c.name].mean() <= behind[c.name].std(ddof=1) / folds**0.5)
    ranked = [replace(c, score=sign * c.score) for c in sorted(measured, key=lambda c: c.score)]
    return name, ranked + [Candidate(n, np.nan, np.nan, np.nan, why) for n, why in left_out.items()]
