"""Binned errors freed of the bias that few rows per bin bring (card A5)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from surefoot.errors import BadInput
from surefoot.metrics.bins import BinTable, SortedRows, check_bins, mass_table
from surefoot.metrics.value import Value
from surefoot.predictions import Predictions

__all__ = ["debiased_ece", "sweep_ece"]


def debiased_ece(p: Predictions, bins: int = 15, norm: int = 2) -> Value:
    """Calibration error of bins of equal mass, less its bias (Kumar, Liang & Ma 2019).

    ℓ2: √max(0, Σ_b (n_b/n) [gap_b² − ȳ_b(1 − ȳ_b)/(n_b − 1)]).
    ℓ1: 2·plug-in − its expectation when each bin's accuracy is redrawn from N(ȳ_b, ȳ_b(1 − ȳ_b)/n_b). The
    authors draw 1,000 samples; the mean of |N(μ, s²)| has a closed form, used here. Never below 0.

    Bins of one row say nothing of their own noise and contribute 0.
    """
    if norm not in (1, 2):
        raise BadInput(f"norm must be 1 or 2; got {norm!r}")
    table = mass_table(p.confidence, p.correct, check_bins(bins))
    value = _debiased_square(table) if norm == 2 else _debiased_absolute(table)
    return Value(
        value,
        n=len(p),
        bins=len(table.count),
        norm=norm,
        binning="equal mass",
        bias="removed",
        plugin=table.error(norm),
    )


def _debiased_square(table: BinTable) -> float:
    enough = table.count > 1
    noise = table.accuracy * (1 - table.accuracy) / np.maximum(table.count - 1, 1)
    terms = table.count * (table.gap**2 - noise)
    return math.sqrt(max(0.0, math.fsum(terms[enough]) / table.n))


def _debiased_absolute(table: BinTable) -> float:
    enough = table.count > 1
    gap = table.gap
    deviation = np.sqrt(table.accuracy * (1 - table.accuracy) / table.count)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(deviation > 0, gap / deviation, np.inf)
        # Mean of |N(gap, deviation²)|: the folded normal.
        folded = deviation * math.sqrt(2 / math.pi) * np.exp(-0.5 * ratio**2) + gap * (1 - 2 * ndtr(-ratio))
    terms = table.count * (2 * gap - folded)
    return max(0.0, math.fsum(terms[enough]) / table.n)


def sweep_ece(p: Predictions, norm: int = 2) -> Value:
    """ECE with the largest number of equal-mass bins whose accuracies still rise (Roelofs et al. 2022).

    The number of bins grows from 1 until some bin is less accurate than the one below it; the last number
    before that is used. The authors' norm is 2.
    """
    if norm not in (1, 2):
        raise BadInput(f"norm must be 1 or 2; got {norm!r}")
    rows = SortedRows.of(p.confidence, p.correct)
    n = len(p)
    bins = n if _always_rises(rows) else 1
    while bins < n and _rises(rows, _cuts(n, bins + 1)):
        bins += 1
    return Value(rows.table(_cuts(n, bins)).error(norm), n=n, bins=bins, norm=norm, binning="swept", bias="upward")


def _cuts(n: int, bins: int) -> NDArray[np.int64]:
    return np.arange(bins + 1) * n // bins


def _rises(rows: SortedRows, cuts: NDArray[np.int64]) -> bool:
    accuracy = np.diff(rows.below(cuts)[0]) / np.diff(cuts)
    # Sums inside a group of equal confidences are interpolated: their rounding is not a fall.
    return bool((np.diff(accuracy) >= -1e-12).all())


def _always_rises(rows: SortedRows) -> bool:
    """True if the sorted correctness never falls; then it rises for every number of bins, up to one per row."""
    return _rises(rows, np.arange(len(rows.confidence) + 1))
