"""Accuracy, mean confidence and proper scores: NLL and the Brier score with its decomposition."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.metrics.bins import bin_of, check_bins
from surefoot.metrics.value import Value
from surefoot.predictions import Predictions, takes_predictions

__all__ = ["BrierDecomposition", "accuracy", "brier", "brier_decomposition", "mean_confidence", "nll"]

Floats = NDArray[np.float64]


@takes_predictions
def accuracy(p: Predictions) -> Value:
    """Share of rows whose predicted class is the label; of equal logits, the lowest index is predicted.

    Args:
        p: the predictions.

    Returns:
        The accuracy, in [0, 1].

    Raises:
        BadInput: when ``p`` is no `Predictions`.

    Example:
        >>> accuracy(Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0]))
        Value(0.5, n=2)
    """
    if p.weights is None and p.soft_labels is None:
        return Value(np.count_nonzero(p.correct) / len(p), n=len(p))
    return Value(_mean(p, p.correct), **_facts(p))


@takes_predictions
def mean_confidence(p: Predictions) -> Value:
    """Mean probability of the predicted class; above the accuracy, the model is overconfident.

    Args:
        p: the predictions.

    Returns:
        The mean confidence, in [1/k, 1].

    Raises:
        BadInput: when ``p`` is no `Predictions`.

    Example:
        >>> mean_confidence(Predictions.from_probs([[0.75, 0.25], [0.5, 0.5]], [0, 0]))
        Value(0.625, n=2)
    """
    return Value(_mean(p, p.confidence), **_facts(p))


@takes_predictions
def nll(p: Predictions, unit: Literal["nats", "bits"] = "nats") -> Value:
    """Mean negative log-likelihood (NLL, log-loss), −(1/n) Σ log p_y.

    Args:
        p: the predictions.
        unit: ``"nats"`` for the natural logarithm; ``"bits"`` for the logarithm of base 2.

    Returns:
        The NLL, at least 0; infinite if a label has probability 0. The fact ``impossible`` counts such rows.

    Raises:
        BadInput: when ``unit`` is unknown, or ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.75, 0.25], [0.5, 0.5]], [0, 0])
        >>> round(nll(p), 6), round(nll(p, unit="bits"), 6)
        (0.490415, 0.707519)
    """
    if unit not in ("nats", "bits"):
        raise BadInput(f"unit must be 'nats' or 'bits'; got {unit!r}")
    impossible = int(np.isneginf(p.log_true).sum())
    value = 0.0 - _mean(p, p.log_true)
    return Value(value if unit == "nats" else value / math.log(2), unit=unit, impossible=impossible, **_facts(p))


@takes_predictions
def brier(p: Predictions) -> Value:
    """Brier score: mean of Σ_k (p_k − 1{k = y})² over classes, or of (p − y)² for one score a row.

    For two classes the first is twice the second, which is the convention of scikit-learn for binary labels. The fact
    ``range`` says which one a value is.

    Args:
        p: the predictions.

    Returns:
        The score, in [0, 2] for the probabilities of classes, and in [0, 1] for one score a row.

    Raises:
        BadInput: when ``p`` is no `Predictions`.

    Example:
        >>> brier(Predictions.from_probs([[0.75, 0.25], [0.5, 0.5]], [0, 0]))
        Value(0.3125, n=2, range=(0, 2))

    References:
        Brier (1950), "Verification of Forecasts Expressed in Terms of Probability".
    """
    if p.form != "classes":
        return Value(_mean(p, p.squared_error) / 2, **_facts(p), range=(0, 1))
    return Value(_mean(p, p.squared_error), **_facts(p), range=(0, 2))


def _mean(p: Predictions, column: NDArray[Any]) -> float:
    """Weighted mean of a column."""
    if p.weights is None:
        return float(column.sum()) / len(p)
    return float(p.weights @ column) / float(p.weights.sum())


def _facts(p: Predictions) -> dict[str, Any]:
    return {name: fact for name, fact in p.events().facts().items() if name != "event"}


@dataclass(frozen=True)
class BrierDecomposition:
    """Parts of the Brier score: reliability − resolution + uncertainty + within_variance − within_covariance, exactly.

    The two within-bin terms come from forecasts that differ inside a bin; without such forecasts both terms are 0.

    Attributes:
        reliability: Σ (n_b/n)(p̄ − ō)² over bins and classes; 0 if p̄ = ō in every bin.
        resolution: Σ (n_b/n)(ō − ō_k)² over bins and classes.
        uncertainty: Σ_k ō_k(1 − ō_k), which depends on the labels alone.
        within_variance: variance of the forecasts inside the bins.
        within_covariance: twice the covariance of forecasts and outcomes inside the bins.
        bins: number of bins of each class.
        n: number of rows.

    References:
        Murphy (1973), "A New Vector Partition of the Probability Score", for the first three terms.
        Stephenson, Coelho & Jolliffe (2008), "Two Extra Components in the Brier Score Decomposition".
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
        """The Brier score, from the five parts."""
        murphy = self.reliability - self.resolution + self.uncertainty
        return murphy + self.within_variance - self.within_covariance


@takes_predictions
def brier_decomposition(p: Predictions, bins: int = 15) -> BrierDecomposition:
    """Decompose the Brier score; every class is a binary forecast in bins of equal width, and classes are summed.

    With o = 1{y = k}, means p̄, ō over a bin and means ō_k over all rows:
    reliability Σ (n_b/n)(p̄ − ō)², resolution Σ (n_b/n)(ō − ō_k)², uncertainty Σ_k ō_k(1 − ō_k),
    within-variance mean (p − p̄)², within-covariance 2·mean (p − p̄)(o − ō).

    Args:
        p: the predictions.
        bins: number of bins M of each class, from 1 to 10,000.

    Returns:
        The five parts.

    Raises:
        BadInput: when ``bins`` is out of range, or ``p`` is no `Predictions`.

    Example:
        >>> parts = brier_decomposition(Predictions.from_probs([[0.75, 0.25]] * 4, [0, 0, 1, 1]))
        >>> parts.reliability, parts.resolution, parts.uncertainty, parts.brier
        (0.125, 0.0, 0.5, 0.625)
    """
    bins = check_bins(bins)
    p.require_classes("brier_decomposition")
    if p.soft_labels is not None:
        raise BadInput("brier_decomposition needs one label a row; these labels are soft. Use brier and ece")
    n, k = len(p) if p.weights is None else float(p.weights.sum()), p.classes
    cells = np.arange(k) * bins

    def visit(sums: Floats, rows: slice, probs: Floats) -> None:
        labels = p.labels[rows]
        flat = probs.ravel()
        cell = (bin_of(flat, bins).reshape(probs.shape) + cells).ravel()
        true_cell = cell.reshape(probs.shape)[np.arange(len(labels)), labels]
        true = probs[np.arange(len(labels)), labels]
        own = np.ones(len(labels)) if p.weights is None else p.weights[rows]
        each_class = None if p.weights is None else np.repeat(own, k)
        weighted = flat if each_class is None else each_class * flat
        sums += [
            np.bincount(cell, each_class, k * bins),
            np.bincount(cell, weighted, k * bins),
            np.bincount(cell, weighted * flat, k * bins),
            np.bincount(true_cell, own, k * bins),
            np.bincount(true_cell, own * true, k * bins),
        ]

    parts = p.sweep(lambda: np.zeros((5, k * bins)), visit)
    count, s_p, s_pp, s_o, s_op = np.sum(parts, axis=0)
    size = np.where(count > 0, count, 1)
    mean_p, mean_o = s_p / size, s_o / size
    base = (s_o.reshape(k, bins).sum(axis=1) / n).repeat(bins)
    scale = n if p.form == "classes" else 2 * n  # one score a row: the binary convention, as in `brier`
    return BrierDecomposition(
        reliability=math.fsum(count * (mean_p - mean_o) ** 2) / scale,
        resolution=math.fsum(count * (mean_o - base) ** 2) / scale,
        uncertainty=math.fsum(base[::bins] * (1 - base[::bins])) * (n / scale),
        within_variance=math.fsum(s_pp - count * mean_p**2) / scale,
        within_covariance=2 * math.fsum(s_op - count * mean_p * mean_o) / scale,
        bins=bins,
        n=len(p),
    )
