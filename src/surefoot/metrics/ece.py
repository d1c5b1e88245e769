"""Binned calibration errors: expected, adaptive, classwise, maximum, root mean square (cards A1 and G).

In all of them Z_i = 1{ŷ_i = y_i} − c_i, and a bin's gap is |Σ_{i in bin} Z_i| / n_bin.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.metrics.bins import BinTable, bin_of, check_bins, mass_table, tally_width, width_table
from surefoot.metrics.value import Value
from surefoot.predictions import Predictions, takes_predictions

__all__ = ["adaptive_ece", "classwise_ece", "ece", "mce", "rmsce"]

Floats = NDArray[np.float64]
Entries = tuple[NDArray[np.int64], NDArray[np.int64], Floats]


@takes_predictions
def ece(p: Predictions, bins: int = 15) -> Value:
    """Expected calibration error with bins of equal width (paper A, Appendix B.1; Guo et al. 2017).

    ECE = (1/n) Σ_b |Σ_{i in b} Z_i|, bins (a, b], 0 in the first.

    Args:
        p: the predictions.
        bins: number of bins M, at least 1.

    >>> p = Predictions.from_probs([[0.9, 0.1]] * 10, [0] * 6 + [1] * 4)
    >>> round(ece(p), 12)
    0.3
    """
    return Value(_width(p, bins).error(1), n=len(p), bins=int(bins), norm=1, binning="equal width", bias="upward")


@takes_predictions
def mce(p: Predictions, bins: int = 15) -> Value:
    """Maximum calibration error: the largest gap of any bin of equal width that is not empty."""
    return Value(
        float(_width(p, bins).gap.max()), n=len(p), bins=int(bins), norm="max", binning="equal width", bias="upward"
    )


@takes_predictions
def rmsce(p: Predictions, bins: int = 15) -> Value:
    """Root mean square calibration error, √Σ_b (n_b/n) gap_b², with bins of equal width."""
    return Value(_width(p, bins).error(2), n=len(p), bins=int(bins), norm=2, binning="equal width", bias="upward")


@takes_predictions
def adaptive_ece(p: Predictions, bins: int = 15) -> Value:
    """Expected calibration error with bins of equal mass (AdaECE): (1/n) Σ_b |Σ_{i in b} Z_i|.

    With fewer rows than bins, one bin per row. Rows of equal confidence share their mean correctness.
    """
    table = mass_table(p.confidence, p.correct, check_bins(bins))
    return Value(table.error(1), n=len(p), bins=len(table.count), norm=1, binning="equal mass", bias="upward")


@takes_predictions
def classwise_ece(p: Predictions, bins: int = 15) -> Value:
    """Mean over the k classes of the binned |mean p_k − frequency of k|, equal width (Kull et al. 2019).

    Each class is a binary problem over all n rows: Σ_b |Σ_{i in b} (1{y_i = k} − p_ik)| / n.
    """
    value = float(classwise_resampled(p, None, bins)[0])
    facts = {"norm": 1, "binning": "equal width", "bias": "upward", "classes": p.classes}
    return Value(value, n=len(p), bins=int(bins), **facts)


def classwise_resampled(p: Predictions, times: NDArray[Any] | None, bins: int = 15) -> Floats:
    """(b,) `classwise_ece` when row i counts ``times[j, i]`` times, for each of the b lines of ``times`` (b, n).

    Without ``times``, a single line in which every row counts once.

    A row of probabilities has fewer than ``bins`` entries above 1/bins; all others are in the first bin, so one
    matrix product per block sums them for every line at once, and the few are gathered and summed at the end.
    """
    bins = check_bins(bins)
    k, lines = p.classes, 1 if times is None else len(times)
    first_edge = 1.0 / bins if bins > 1 else np.inf  # a single bin holds 1 itself

    def start() -> tuple[Floats, list[Entries]]:
        return np.zeros((lines, k)), []

    def visit(sums: tuple[Floats, list[Entries]], rows: slice, probs: Floats) -> None:
        labels, here = p.labels[rows], np.arange(len(probs))
        row, column = np.divmod(np.flatnonzero(probs > first_edge), k)
        high = probs[row, column]
        sums[1].append((row + rows.start, column * bins + bin_of(high, bins), (labels[row] == column) - high))
        # What is left, as p_k − 1{y = k}, belongs to the first bin.
        low_true = probs[here, labels] <= first_edge
        probs[row, column] = 0.0
        probs[here[low_true], labels[low_true]] -= 1.0
        np.subtract(sums[0], probs.sum(axis=0) if times is None else times[:, rows] @ probs, out=sums[0])

    parts = p.sweep(start, visit)
    low = np.sum([sums for sums, _ in parts], axis=0)
    entries = [entry for _, found in parts for entry in found]
    row, cell, value = (np.concatenate(column) for column in zip(*entries, strict=True))
    errors = np.empty(lines)
    for line in range(lines):
        # As float64 also where no entry is high: without entries bincount counts in whole numbers.
        residual = np.bincount(cell, value if times is None else value * times[line, row], k * bins).astype(np.float64)
        residual[::bins] += low[line]
        errors[line] = np.abs(residual).sum()
    total = len(p) if times is None else times.sum(axis=1, dtype=np.float64)
    values: Floats = errors / (total * k)
    return values


def _width(p: Predictions, bins: int) -> BinTable:
    return width_table(tally_width(p.confidence, p.correct, check_bins(bins)))
