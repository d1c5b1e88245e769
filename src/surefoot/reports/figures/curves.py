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
    """Read a quantity over the steps.

    Args:
        run: the run.
        name: name of the quantity.

    Returns:
        Steps (n,) and values (n,) of the readings with a finite value; two empty arrays if there are none.
    """
    columns = run.columns.numbers
    values = columns.get(name)
    if values is None:
        return np.empty(0), np.empty(0)
    some = np.isfinite(values)
    return columns["step"][some], values[some]


def mean_curve(runs: Sequence[RunFacts], name: str) -> tuple[Floats, Floats]:
    """Average a quantity over runs.

    Args:
        runs: the runs. Runs that never read the quantity are left out.
        name: name of the quantity.

    Returns:
        The steps (n,) at which all these runs read the quantity; mean, minimum and maximum over the runs there, (3, n).
    """
    by_step = [dict(zip(*(column.tolist() for column in curve(run, name)), strict=True)) for run in runs]
    by_step = [values_at for values_at in by_step if values_at]
    if not by_step:
        return np.empty(0), np.empty((3, 0))
    steps = sorted(set.intersection(*map(set, by_step)))
    values = np.array([[values_at[step] for step in steps] for values_at in by_step])
    return np.array(steps), np.stack([values.mean(axis=0), values.min(axis=0), values.max(axis=0)])


@dataclass(frozen=True)
class ConfidenceCurve:
    """Shares of examples by confidence, and accuracy by bin (Tan et al. 2026, Figure 1). An empty bin has NaN.

    Attributes:
        step: step of the reading.
        shares: share of the examples in every bin of the confidence histogram; the sum is 1.
        accuracy: accuracy in every bin of the reliability diagram.
        confidence: mean confidence in every bin.
        count: number of examples in every bin.
    """

    step: int
    shares: Floats
    accuracy: Floats
    confidence: Floats
    count: Floats

    @property
    def mean_confidence(self) -> float:
        """Mean confidence of all examples; NaN without examples."""
        return self._mean(self.confidence)

    @property
    def mean_accuracy(self) -> float:
        """Accuracy over all examples; NaN without examples."""
        return self._mean(self.accuracy)

    @property
    def ece(self) -> float:
        """ECE of the same bins; NaN without examples."""
        return self._mean(np.abs(self.confidence - self.accuracy))

    def _mean(self, values: Floats) -> float:
        some = self.count > 0
        total = float(self.count.sum())
        return float(values[some] @ self.count[some]) / total if total else math.nan


def confidence_curve(frames: Sequence[Mapping[str, Any]], part: str = "test") -> ConfidenceCurve | None:
    """Take the histograms of the last frame that holds valid histograms.

    Args:
        frames: frames of a run, by step.
        part: ``"train"`` or ``"test"``.

    Returns:
        The histograms; None if no frame holds valid histograms.
    """
    for frame in reversed(frames):
        table, counts = frame.get(f"{part}.reliability"), frame.get(f"{part}.confidence_histogram")
        try:
            shares = np.array(counts, dtype=np.float64)
            columns = [np.array(table[name], dtype=np.float64) for name in ("accuracy", "confidence", "count")]
        except (TypeError, KeyError, ValueError, OverflowError):
            continue
        if shares.ndim == 1 and shares.sum() > 0 and len({column.shape for column in columns}) == 1:
            return ConfidenceCurve(int(frame["step"]), shares / shares.sum(), *columns)
    return None
