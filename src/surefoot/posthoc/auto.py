"""Choosing among calibrators by cross-validation, with leaving things alone as a candidate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from surefoot.errors import BadInput
from surefoot.metrics.registry import METRICS, higher_is_better
from surefoot.metrics.summary import metrics_table
from surefoot.posthoc.calibrator import Calibrator, Floats
from surefoot.posthoc.identity import Identity
from surefoot.posthoc.methods import METHODS, build_calibrator
from surefoot.predictions import Predictions
from surefoot.validation import check_int

__all__ = ["Auto", "Candidate", "check_metric", "default_candidates"]


@dataclass(frozen=True)
class Candidate:
    """One candidate's metric over the folds; ``gain`` over leaving things alone, above 0 if better, with its error."""

    name: str
    score: float
    gain: float
    gain_error: float
    left_out: str | None = None


def default_candidates() -> dict[str, Calibrator]:
    """Every calibrator by name, simplest first."""
    named = {name: build_calibrator(name) for name in METHODS}
    return {**named, "isotonic-pooled": build_calibrator("isotonic-pooled")}


class Auto(Calibrator):
    """The best calibrator for the predictions it is fitted on, by cross-validation; then fitted on all of them.

    A candidate is taken only if its gain over leaving things alone is more than its standard error over the folds;
    among those, the simplest whose score is within one standard error of the best. A candidate that learns more
    numbers than there are rows is left out.

    Args:
        metric: name of the metric to improve; a proper score such as ``"nll"`` or ``"brier"`` is advised.
        folds: of the cross-validation.
        nested: also cross-validate the choice itself (``folds`` times the work): ``estimate_`` is then what the
            whole procedure, choice included, reaches on rows it has not seen.
        seed: of the folds.
        candidates: calibrators by name; all by default. ``"none"``, leaving things alone, is always one of them.

    Learned: ``best_`` (the calibrator), ``name_``, ``scores_`` (a `Candidate` each, best first), ``estimate_`` and
    ``before_`` (the metric of the untouched predictions).
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
        """The metric is known, ``folds`` and ``seed`` are whole numbers, and the candidates are calibrators."""
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
        """The metric of the procedure on held-out folds, the choice made anew without each of them."""
        values, sizes, measure = [], [], metrics_table()[self.metric]
        for held in range(folds):
            rest, there = p.take(np.flatnonzero(fold != held)), p.take(np.flatnonzero(fold == held))
            inner = _folds(rest.labels, folds, int(self.seed) + 1 + held)
            name, _ = _choose(rest, candidates, inner, folds, self.metric)
            values.append(float(measure(clone(candidates[name]).fit(rest).apply(there))))
            sizes.append(len(there))
        return float(np.average(values, weights=sizes))

    def _map(self, p: Predictions) -> tuple[Floats, str]:
        self.best_.check_kind(p)
        return self.best_._map(p)

    def save(self, path: object) -> None:
        """Write the calibrator that was chosen."""
        self.check_fitted()
        self.best_.save(path)  # type: ignore[arg-type]

    def to_module(self) -> object:
        """The chosen calibrator as a module."""
        self.check_fitted()
        return self.best_.to_module()


def check_metric(metric: Any) -> None:
    """A clear error if there is no metric of that name that can be better or worse."""
    known = [name for name, entry in METRICS.items() if entry.better is not None]
    if metric not in known:
        raise BadInput(f"metric must be one of {', '.join(known)}; got {metric!r}")


def _checked(candidates: Any) -> dict[str, Calibrator]:
    """The candidates by name, all of them for None."""
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
    """(n,) fold of each row: every class is dealt out evenly, so that rare ones are in most folds."""
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
        """The metric as something to be made small."""
        return sign * float(table[metric](q))

    parts = [(p.take(np.flatnonzero(fold != held)), p.take(np.flatnonzero(fold == held))) for held in range(folds)]
    plain = np.array([measure(there) for _, there in parts])
    values: dict[str, Floats] = {}
    left_out: dict[str, str] = {}
    for name, candidate in candidates.items():
        learns = candidate.number_of_parameters(p.classes)
        if learns > len(p):
            left_out[name] = f"learns {learns:,} numbers from {len(p):,} rows"
            continue
        try:
            values[name] = np.array([measure(clone(candidate).fit(here).apply(there)) for here, there in parts])
        except BadInput as error:
            left_out[name] = str(error)
    found = []
    for name, scores in values.items():
        with np.errstate(invalid="ignore"):
            gains = np.where(scores == plain, 0.0, plain - scores)  # infinite before and after: no gain
        spread = float(gains.std(ddof=1) / folds**0.5) if np.isfinite(gains).all() else 0.0
        found.append(Candidate(name, float(scores.mean()), float(gains.mean()), spread))
    better = [c for c in found if c.gain > c.gain_error and np.isfinite(c.score)]
    name = "none"
    if better:
        best = min(better, key=lambda c: c.score)
        behind = {c.name: values[c.name] - values[best.name] for c in better}
        # In the order of the candidates, simplest first.
        name = next(c.name for c in better if behind[c.name].mean() <= behind[c.name].std(ddof=1) / folds**0.5)
    ranked = [replace(c, score=sign * c.score) for c in sorted(found, key=lambda c: c.score)]
    return name, ranked + [Candidate(n, np.nan, np.nan, np.nan, why) for n, why in left_out.items()]
