"""The rows of a fit: how many there are, how much each counts, and what was true in each.

Integer weights count how often a row was seen, so that a fit with them is the fit of repeated rows. Real weights are
scaled to sum to the effective number of rows, (Σw)²/Σw². A fit then does not depend on their scale, and a penalty or a
prior has the strength that so many independent rows leave it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.predictions import Predictions

__all__ = ["class_counts", "row_count", "row_weights", "targets", "true_entries"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def row_count(p: Predictions) -> float:
    """Count the rows of a fit.

    Args:
        p: predictions for the fit.

    Returns:
        The number of rows without weights, the sum of integer weights, or the effective number of rows.

    Example:
        >>> row_count(Predictions([[2.0, 0.0]] * 2, [0, 1], weights=[3, 2]))
        5.0
    """
    if p.weights is None:
        return len(p)
    total = float(p.weights.sum())
    if (p.weights == np.floor(p.weights)).all():
        return total
    share = p.weights / total
    return 1.0 / float(share @ share)


def row_weights(p: Predictions) -> Floats | None:
    """Scale the weights of the rows to sum to `row_count`.

    Args:
        p: predictions for the fit.

    Returns:
        (n,) weights above 0; None if every row counts once.
    """
    if p.weights is None:
        return None
    weights = p.weights

    def make() -> Floats:
        scaled: Floats = weights * (row_count(p) / float(weights.sum()))
        return scaled

    return p.memo("weights of a fit", make)


def targets(p: Predictions) -> NDArray[Any]:
    """Tell which class each row is of.

    Args:
        p: predictions for the fit.

    Returns:
        (n, k) booleans, or the soft labels.
    """
    if p.soft_labels is not None:
        return p.soft_labels
    chosen: NDArray[np.bool_] = p.labels[:, None] == np.arange(p.classes)
    return chosen


def class_counts(p: Predictions) -> Floats:
    """Count the rows of every class.

    Args:
        p: predictions for the fit.

    Returns:
        (k,) sums of `row_weights`; a row with a soft label counts for several classes.
    """
    weights = row_weights(p)
    if p.soft_labels is not None:
        found: Floats = p.soft_labels.sum(axis=0) if weights is None else weights @ p.soft_labels
        return found
    return np.bincount(p.labels, weights, p.classes).astype(np.float64)


def true_entries(p: Predictions) -> tuple[Ints, Ints, Floats | None]:
    """List the entries of the matrix of probabilities whose logarithms make up the NLL.

    Args:
        p: predictions for the fit.

    Returns:
        Row and class of every entry, and the weight of the entry; None if all entries count once. Without soft labels
        there is one entry in each row.
    """
    weights = row_weights(p)
    if p.soft_labels is None:
        return np.arange(len(p)), p.labels, weights
    row, column = np.nonzero(p.soft_labels)
    share: Floats = p.soft_labels[row, column]
    return row, column, share if weights is None else share * weights[row]
