"""Proper scores and accuracy: how right it is (card G)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surefoot.metrics.bins import bin_of, check_bins
from surefoot.metrics.value import Value
from surefoot.predictions import Predictions, takes_predictions

__all__ = ["BrierDecomposition", "accuracy", "brier", "brier_decomposition", "mean_confidence", "nll"]

Floats = NDArray[np.float64]


@takes_predictions
def accuracy(p: Predictions) -> Value:
    """Share of rows whose largest logit (lowest index among equals) is the label's."""
    return Value(np.count_nonzero(p.correct) / len(p), n=len(p))


@takes_predictions
def mean_confidence(p: Predictions) -> Value:
    """Mean probability of the predicted class; above the accuracy, the model is over-confident."""
    return Value(float(p.confidence.sum()) / len(p), n=len(p))


@takes_predictions
def nll(p: Predictions) -> Value:
    """Mean negative log-likelihood −(1/n) Σ log p_y, in nats; infinite if a label has probability 0."""
    return Value(
        0.0 - float(p.log_true.sum()) / len(p), n=len(p), unit="nats", impossible=int(np.isneginf(p.log_true).sum())
    )


@takes_predictions
def brier(p: Predictions) -> Value:
    """Mean of Σ_k (p_k − 1{k = y})², in [0, 2]; twice the binary convention for two classes."""
    return Value(float(p.squared_error.sum()) / len(p), n=len(p), range=(0, 2))


@dataclass(frozen=True)
class BrierDecomposition:
    """brier = reliability − resolution + uncertainty + within_variance − within_covariance, exactly.

    The first three are Murphy's (1973); the two within-bin terms (Stephenson et al. 2008) are what forecasts
    that differ inside a bin add, and vanish for forecasts that do not.
    """

    reliability: float
    resolution: float
    uncertainty: float
    within_variance: float
    within_covariance: float
    bins: int
    n: int

    @property
    def brier(self) -> float:
        """The sum of the parts."""
        murphy = self.reliability - self.resolution + self.uncertainty
        return murphy + self.within_variance - self.within_covariance


@takes_predictions
def brier_decomposition(p: Predictions, bins: int = 15) -> BrierDecomposition:
    """Split the Brier score into parts, each class a binary forecast binned by equal width, summed over classes.

    With o = 1{y = k}, means over a bin p̄, ō and over all rows ō_k:
    reliability Σ (n_b/n)(p̄ − ō)², resolution Σ (n_b/n)(ō − ō_k)², uncertainty Σ_k ō_k(1 − ō_k),
    within-variance mean (p − p̄)², within-covariance 2·mean (p − p̄)(o − ō).
    """
    bins = check_bins(bins)
    n, k = len(p), p.classes
    cells = np.arange(k) * bins

    def visit(sums: Floats, rows: slice, probs: Floats) -> None:
        labels = p.labels[rows]
        flat = probs.ravel()
        cell = (bin_of(flat, bins).reshape(probs.shape) + cells).ravel()
        true_cell = cell.reshape(probs.shape)[np.arange(len(labels)), labels]
        true = probs[np.arange(len(labels)), labels]
        sums += [
            np.bincount(cell, minlength=k * bins),
            np.bincount(cell, flat, k * bins),
            np.bincount(cell, flat**2, k * bins),
            np.bincount(true_cell, minlength=k * bins),
            np.bincount(true_cell, true, k * bins),
        ]

    parts = p.sweep(lambda: np.zeros((5, k * bins)), visit)
    count, s_p, s_pp, s_o, s_op = np.sum(parts, axis=0)
    some = np.maximum(count, 1)
    mean_p, mean_o = s_p / some, s_o / some
    base = (s_o.reshape(k, bins).sum(axis=1) / n).repeat(bins)
    return BrierDecomposition(
        reliability=math.fsum(count * (mean_p - mean_o) ** 2) / n,
        resolution=math.fsum(count * (mean_o - base) ** 2) / n,
        uncertainty=math.fsum(base[::bins] * (1 - base[::bins])),
        within_variance=math.fsum(s_pp - count * mean_p**2) / n,
        within_covariance=2 * math.fsum(s_op - count * mean_p * mean_o) / n,
        bins=bins,
        n=n,
    )
