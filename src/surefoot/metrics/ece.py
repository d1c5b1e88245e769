"""Binned calibration errors: expected, adaptive, classwise, maximum, root mean square (cards A1 and G).

In all of them Z_i = 1{ŷ_i = y_i} − c_i, and a bin's gap is |Σ_{i in bin} Z_i| / n_bin.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surefoot.metrics.bins import BinTable, bin_of, check_bins, mass_table, tally_width, width_table
from surefoot.metrics.value import Value
from surefoot.predictions import Predictions

__all__ = ["adaptive_ece", "classwise_ece", "ece", "mce", "rmsce"]

Floats = NDArray[np.float64]


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
    return Value(_width(p, bins).error(1), n=len(p), bins=int(bins), norm=1, binning="equal width")


def mce(p: Predictions, bins: int = 15) -> Value:
    """Maximum calibration error: the largest gap of any bin of equal width that is not empty."""
    return Value(float(_width(p, bins).gap.max()), n=len(p), bins=int(bins), norm="max", binning="equal width")


def rmsce(p: Predictions, bins: int = 15) -> Value:
    """Root mean square calibration error, √Σ_b (n_b/n) gap_b², with bins of equal width."""
    return Value(_width(p, bins).error(2), n=len(p), bins=int(bins), norm=2, binning="equal width")


def adaptive_ece(p: Predictions, bins: int = 15) -> Value:
    """Expected calibration error with bins of equal mass (AdaECE): (1/n) Σ_b |Σ_{i in b} Z_i|.

    With fewer rows than bins, one bin per row. Rows of equal confidence share their mean correctness.
    """
    table = mass_table(p.confidence, p.correct, check_bins(bins))
    return Value(table.error(1), n=len(p), bins=len(table.count), norm=1, binning="equal mass")


def classwise_ece(p: Predictions, bins: int = 15) -> Value:
    """Mean over the k classes of the binned |mean p_k − frequency of k|, equal width (Kull et al. 2019).

    Each class is a binary problem over all n rows: Σ_b |Σ_{i in b} (1{y_i = k} − p_ik)| / n.
    """
    residual = class_sums(p, check_bins(bins))[1]
    return Value(float(np.abs(residual).sum() / (len(p) * p.classes)), n=len(p), bins=int(bins), norm=1, classes=p.classes)


def class_sums(p: Predictions, bins: int) -> tuple[Floats, Floats]:
    """Count and Σ (1{y = k} − p_k) of each class and bin of equal width, both (k, bins).

    A row of probabilities has fewer than ``bins`` entries above 1/bins, so all but those few are in the first
    bin, and its sums are column sums with those entries left out.
    """
    k = p.classes
    first_edge = 1.0 / bins

    def visit(sums: Floats, probs: Floats, labels: NDArray[np.int64]) -> None:
        count, residual = sums.reshape(2, k, bins)
        rows, columns = np.nonzero(probs > first_edge)
        values = probs[rows, columns]
        cell = columns * bins + bin_of(values, bins)
        hit = labels[rows] == columns
        probs[rows, columns] = 0.0
        residual[:, 0] -= probs.sum(axis=0)
        low_true = np.ones(len(labels), np.bool_)
        low_true[rows[hit]] = False
        residual[:, 0] += np.bincount(labels[low_true], minlength=k)
        residual += np.bincount(cell, hit - values, k * bins).reshape(k, bins)
        high = np.bincount(cell, minlength=k * bins).reshape(k, bins)
        count += high
        count[:, 0] += len(labels) - high.sum(axis=1)

    if bins == 1:
        first_edge = np.inf  # the single bin holds 1 itself
    total = np.sum(p.sweep(lambda: np.zeros(2 * k * bins), visit), axis=0).reshape(2, k, bins)
    return total[0], total[1]


def _width(p: Predictions, bins: int) -> BinTable:
    return width_table(tally_width(p.confidence, p.correct, check_bins(bins)))
