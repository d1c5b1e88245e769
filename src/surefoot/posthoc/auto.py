"""Choosing among calibrators by cross-validation, with leaving things alone as a candidate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from surefoot.checks import whole
from surefoot.errors import BadInput
from surefoot.metrics.summary import HIGHER_IS_BETTER, metrics_table
from surefoot.posthoc.calibrator import Calibrator, Floats
from surefoot.posthoc.identity import Identity
from surefoot.posthoc.methods import METHODS, calibrator_named
from surefoot.predictions import Predictions

__all__ = ["Auto", "Candidate", "default_candidates"]


@dataclass(frozen=True)
class Candidate:
    """One candidate's score over the folds, lower is better; ``gain`` is over leaving things alone, with its error."""

    name: str
    score: float
    gain: float
    gain_error: float
    left_out: str | None = None


def default_candidates() -> dict[str, Calibrator]:
    """Every calibrator by name, simplest first."""
    named = {name: calibrator_named(name) for name in METHODS}
    return {**named, "isotonic-pooled": calibrator_named("isotonic-pooled")}


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
        candidates: calibrators by name; all by default.

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

    def _fit(self, p: Predictions) -> None:
        measure = _measure(self.metric)
        folds = whole("folds", self.folds, 2)
        if len(p) < 2 * folds:
            raise BadInput(f"p must have at least {2 * folds} rows for {folds} folds; got {len(p)}")
        fold = _folds(p.labels, folds, whole("seed", self.seed, 0))
        candidates = dict(self.candidates) if self.candidates is not None else default_candidates()
        candidates = {"none": Identity(), **candidates}
        self.name_, self.scores_ = _choose(p, candidates, fold, folds, measure)
        self.best_: Calibrator = clone(candidates[self.name_]).fit(p)
        self.before_ = measure(p)
        self.estimate_ = self._nested(p, candidates, fold, folds, measure) if self.nested else None

    def _nested(
        self,
        p: Predictions,
        candidates: dict[str, Calibrator],
        fold: NDArray[np.int64],
        folds: int,
        measure: Callable[[Predictions], float],
    ) -> float:
        """The metric of the procedure on held-out folds, the choice made anew without each of them."""
        values, sizes = [], []
        for held in range(folds):
            rest, there = p.take(np.flatnonzero(fold != held)), p.take(np.flatnonzero(fold == held))
            inner = _folds(rest.labels, folds, int(self.seed) + 1 + held)
            name, _ = _choose(rest, candidates, inner, folds, measure)
            values.append(measure(clone(candidates[name]).fit(rest).apply(there)))
            sizes.append(len(there))
        return float(np.average(values, weights=sizes))

    def _map(self, p: Predictions) -> tuple[Floats, str]:
        return self.best_._map(p)

    def save(self, path: object) -> None:
        """Write the calibrator that was chosen."""
        self.check_fitted()
        self.best_.save(path)  # type: ignore[arg-type]

    def to_module(self) -> object:
        """The chosen calibrator as a module."""
        self.check_fitted()
        return self.best_.to_module()


def _measure(metric: str) -> Callable[[Predictions], float]:
    """The metric as a function to be made small."""
    table = metrics_table()
    if metric not in table:
        raise BadInput(f"metric must be one of {', '.join(table)}; got {metric!r}")
    sign = -1.0 if metric in HIGHER_IS_BETTER else 1.0
    return lambda p: sign * float(table[metric](p))


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
    measure: Callable[[Predictions], float],
) -> tuple[str, list[Candidate]]:
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
    ranked = sorted(found, key=lambda c: c.score)
    return name, ranked + [Candidate(n, np.nan, np.nan, np.nan, why) for n, why in left_out.items()]
