"""Accuracy and calibration of sets: the k most probable classes, with their total probability."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from surefoot.metrics.ece import ece
from surefoot.metrics.value import Value
from surefoot.predictions import Events, Predictions, takes_predictions
from surefoot.validation import check_int

__all__ = ["top_k_accuracy", "top_k_ece", "top_k_events"]

Floats = NDArray[np.float64]


@takes_predictions
def top_k_accuracy(p: Predictions, k: int = 2) -> Value:
    """Share of rows whose label is among the k classes with the largest logits; of equal logits, the lower index wins.

    Args:
        p: the predictions.
        k: size of the set, at least 1; with all classes or more, every row is right.

    Returns:
        The accuracy, in [0, 1]; for k = 1, `accuracy`.

    Raises:
        BadInput: when ``k`` is out of range, or ``p`` is no `Predictions` of classes.

    Example:
        >>> p = Predictions([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]], [1, 0])
        >>> top_k_accuracy(p)
        Value(0.5, k=2, n=2, event='top 2')
    """
    e = top_k_events(p, k)
    return Value(float(e.weights @ e.happened) / e.total, k=k, **e.facts())


@takes_predictions
def top_k_ece(p: Predictions, k: int = 2, bins: int = 15, binning: Literal["width", "mass"] = "width") -> Value:
    """Expected calibration error of the event "the label is among the k most probable classes".

    The stated probability of the event is the sum of the k largest probabilities. For k = 1 the error is `ece`.

    Args:
        p: the predictions.
        k: size of the set, at least 1; with all classes or more, the event is certain.
        bins: number of bins M, from 1 to 10,000.
        binning: ``"width"``, or ``"mass"`` for bins of equal mass.

    Returns:
        The error, in [0, 1].

    Raises:
        BadInput: when an argument is out of range, or ``p`` is no `Predictions` of classes.

    Example:
        >>> p = Predictions.from_probs([[0.5, 0.3, 0.2]] * 10, [0] * 3 + [1] * 3 + [2] * 4)
        >>> round(top_k_ece(p), 12)
        0.2

    References:
        Gupta et al. (2021), "Calibration of Neural Networks using Splines", which calls these predictions
        "within-top-r".
    """
    value = ece(top_k_events(p, k), bins, binning=binning)
    return Value(float(value), k=k, **value.facts)


def top_k_events(p: Predictions, k: int) -> Events:
    """The events "the label is among the k most probable classes".

    Args:
        p: the predictions.
        k: size of the set, at least 1.

    Returns:
        One event for each row; with soft labels, what happened is the label's share of the set.

    Raises:
        BadInput: when ``k`` is out of range, or only a confidence is known.

    Example:
        >>> e = top_k_events(Predictions.from_probs([[0.5, 0.25, 0.25]], [2]), 2)
        >>> e.prob.tolist(), e.happened.tolist()
        ([0.75], [False])
    """
    size = check_int("k", k, 1)
    p.require_classes("top_k")
    return p.memo(f"top {size} events", lambda: _make(p, size))


def _make(p: Predictions, size: int) -> Events:
    n, classes = len(p), p.classes
    prob, complement = np.empty(n), np.empty(n)
    happened: NDArray[Any] = np.empty(n, np.bool_ if p.soft_labels is None else np.float64)
    if size >= classes:
        return Events.trusted(
            np.ones(n), np.ones(n, np.bool_), p.weights, p.clusters, np.zeros(n), f"top {size}"
        )  # fmt: skip
    index = np.arange(classes)

    def visit(_: None, rows: slice, probs: Floats) -> None:
        # Logits rank classes whose probabilities underflow.
        z = p.logit_block(rows, np.empty(probs.shape))
        here = np.arange(len(z))
        if p.soft_labels is None:
            label = p.labels[rows]
            own = z[here, label][:, None]
            before = (z > own) | (z == own) & (index < label[:, None])
            happened[rows] = before.sum(axis=1) < size
        else:
            best = np.argsort(-z, axis=1, kind="stable")[:, :size]
            happened[rows] = np.minimum(np.take_along_axis(p.soft_labels[rows], best, axis=1).sum(axis=1), 1.0)
        probs.partition(classes - size, axis=1)
        rest, top = probs[:, : classes - size].sum(axis=1), probs[:, classes - size :].sum(axis=1)
        # The smaller part is the precise one.
        complement[rows] = np.where(rest < top, rest, np.maximum(1 - top, 0.0))
        prob[rows] = np.where(rest < top, 1 - rest, np.minimum(top, 1.0))

    p.sweep(lambda: None, visit)
    return Events.trusted(prob, happened, p.weights, p.clusters, complement, f"top {size}")
