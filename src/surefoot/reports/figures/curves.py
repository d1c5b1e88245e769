"""Curves over the steps, and the histograms of a reading, as plain numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.reports.runs import RunFacts

__all__ = ["ConfidenceCurve", "Floats", "confidence_curve", "curve", "mean_curve"]

Floats = NDArray[np.float64]


def curve(run: RunFacts, name: str) -> tuple[Floats, Floats]:
    """Steps and values of a quantity where it was read and is finite; two empty arrays if it never was."""
    columns = run.columns.numbers
    values = columns.get(name)
    if values is None:
        return np.empty(0), np.empty(0)
    some = np.isfinite(values)
    return columns["step"][some], values[some]


def mean_curve(runs: Sequence[RunFacts], name: str) -> tuple[Floats, Floats]:
    """Steps (n,) at which all runs were read that have the quantity; mean, least and greatest of them there, (3, n)."""
    found = [dict(zip(*(each.tolist() for each in curve(run, name)), strict=True)) for run in runs]
    found = [each for each in found if each]
    if not found:
        return np.empty(0), np.empty((3, 0))
    steps = sorted(set.intersection(*map(set, found)))
    values = np.array([[each[step] for step in steps] for each in found])
    return np.array(steps), np.stack([values.mean(axis=0), values.min(axis=0), values.max(axis=0)])


@dataclass(frozen=True)
class ConfidenceCurve:
    """Shares of examples by confidence, and accuracy by bin; NaN if it is empty (Tan et al. 2026, Figure 1)."""

    step: int
    shares: Floats
    accuracy: Floats
    confidence: Floats
    count: Floats

    @property
    def mean_confidence(self) -> float:
        """Over all examples."""
        return self._mean(self.confidence)

    @property
    def mean_accuracy(self) -> float:
        """Over all examples."""
        return self._mean(self.accuracy)

    @property
    def ece(self) -> float:
        """Of the same bins."""
        return self._mean(np.abs(self.confidence - self.accuracy))

    def _mean(self, values: Floats) -> float:
        some = self.count > 0
        total = float(self.count.sum())
        return float(values[some] @ self.count[some]) / total if total else math.nan


def confidence_curve(frames: Sequence[Mapping[str, Any]], part: str = "test") -> ConfidenceCurve | None:
    """Of the last frame that holds histograms; None if there is none, or if they are harmed."""
    for frame in reversed(frames):
        table, counts = frame.get(f"{part}.reliability"), frame.get(f"{part}.confidence_histogram")
        try:
            shares = np.array(counts, dtype=np.float64)
            columns = [np.array(table[name], dtype=np.float64) for name in ("accuracy", "confidence", "count")]
        except (TypeError, KeyError, ValueError, OverflowError):
            continue
        if shares.ndim == 1 and shares.sum() > 0 and len({each.shape for each in columns}) == 1:
            return ConfidenceCurve(int(frame["step"]), shares / shares.sum(), *columns)
    return None
