"""Squared kernel calibration error of all classes at once."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.metrics.value import Value
from surefoot.predictions import Predictions, takes_predictions
from surefoot.validation import check_int, check_positive

__all__ = ["median_distance", "skce"]

Floats = NDArray[np.float64]

_TILE = 1024
_MEDIAN_ROWS = 1000


@takes_predictions
def skce(
    p: Predictions,
    estimator: Literal["unbiased", "biased", "block"] = "unbiased",
    bandwidth: float | None = None,
    block_size: int | None = None,
) -> Value:
    """Squared kernel calibration error (SKCE) with k(p, p') = exp(−‖p − p'‖₂/bandwidth) on the full simplex.

    h_ij = k(p_i, p_j) ⟨e_{y_i} − p_i, e_{y_j} − p_j⟩. The *biased* estimator averages all (i, j) and is never negative.
    The *unbiased* estimator averages i < j in O(n²). The *block* estimator averages unbiased estimates over random
    blocks of rows in O(n·block); equal sets of rows have equal blocks, and an incomplete last block is left out.

    Args:
        p: the predictions; at least two rows unless biased.
        estimator: ``"unbiased"``, ``"biased"`` or ``"block"``.
        bandwidth: width of the kernel, at least 1e-12; None takes the median distance (`median_distance`).
        block_size: rows per block for ``"block"``, from 2 to n; None takes ⌊√n⌋, at least 2.

    Returns:
        The squared error; the unbiased one carries the biased one as the fact ``plugin``.

    Raises:
        BadInput: when an argument is not as described, or ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.75, 0.25]] * 4, [0, 0, 1, 1])
        >>> skce(p, "biased", bandwidth=1.0).real, round(skce(p, bandwidth=1.0), 6)
        (0.125, -0.041667)

    References:
        Widmann, Lindsten & Zachariah (2019), "Calibration tests in multi-class classification: A unifying framework".
    """
    n = len(p)
    if estimator not in ("unbiased", "biased", "block"):
        raise BadInput(f"estimator must be 'unbiased', 'biased' or 'block'; got {estimator!r}")
    if estimator != "biased" and n < 2:
        raise BadInput(f"estimator={estimator!r} needs at least 2 predictions; got {n}; use 'biased'")
    if bandwidth is not None:
        bandwidth = check_positive("bandwidth", bandwidth, 1e-12)
    if block_size is not None:
        if estimator != "block":
            raise BadInput(f"block_size goes with estimator='block'; got {block_size!r} with {estimator!r}")
        block_size = check_int("block_size", block_size, 2, n)
    p.require_classes("skce")
    probs = p.probs
    residual = -probs
    if p.soft_labels is None:
        residual[np.arange(n), p.labels] += 1.0
    else:
        residual += p.soft_labels
    weights = np.ones(n) if p.weights is None else p.weights
    residual *= weights[:, None]
    width = median_distance(probs) if bandwidth is None else bandwidth
    e = p.events("top")
    facts = {**e.facts(), "estimator": estimator, "kernel": "laplacian", "bandwidth": width, "classes": p.classes}
    facts |= {"squared": True, "bias": "upward" if estimator == "biased" else "removed"}
    if estimator == "block":
        size = block_size or max(2, math.isqrt(n))
        # Rows are put in a canonical order, then shuffled with a fixed seed: the value depends on the set of rows only.
        order = np.lexsort((p.labels, *probs.T))[np.random.default_rng(0).permutation(n)]
        blocks = [order[at : at + size] for at in range(0, n - size + 1, size)]
        sums = math.fsum(_pair_sum(probs[rows], residual[rows], width) for rows in blocks)
        mass = math.fsum(_pair_mass(weights[rows]) for rows in blocks)
        return Value(sums / mass, block_size=size, blocks=len(blocks), **facts)
    pairs, diagonal = _pair_sum(probs, residual, width), float((residual**2).sum())
    plugin = max(0.0, 2.0 * pairs + diagonal) / e.total**2
    if estimator == "biased":
        return Value(plugin, **facts)
    if p.weights is not None and e.repetitions:  # pairs of a row with its own repetitions belong to the statistic
        repeats = float((((weights - 1) / weights)[:, None] * residual**2).sum())
        return Value((pairs + repeats / 2) / (e.total * (e.total - 1) / 2), plugin=plugin, **facts)
    return Value(pairs / _pair_mass(weights), plugin=plugin, **facts)


def median_distance(probs: Floats) -> float:
    """Median of the distances ‖p − p'‖₂ above 0 between 1,000 rows spread evenly over the sorted rows.

    Sorting makes the median independent of the order of the rows.

    Args:
        probs: (n, k) probabilities.

    Returns:
        The median distance; 1 if all rows are equal.

    Example:
        >>> median_distance(np.array([[1.0, 0.0], [1.0, 0.0]]))
        1.0
    """
    from scipy.spatial.distance import pdist

    ranked = probs[np.lexsort(probs.T[::-1])]
    rows = ranked[np.unique(np.linspace(0, len(ranked) - 1, _MEDIAN_ROWS).astype(np.int64))]
    distances = pdist(rows)  # computed from differences: equal rows have the distance 0 exactly
    apart = distances[distances > 0]
    return float(np.median(apart)) if len(apart) else 1.0


def _pair_mass(weights: Floats) -> float:
    """Σ_{i<j} w_i w_j, the number of pairs without weights."""
    return (float(weights.sum()) ** 2 - float(weights @ weights)) / 2


def _pair_sum(probs: Floats, residual: Floats, width: float) -> float:
    """Σ_{i<j} h_ij, computed one tile of the n × n matrix at a time."""
    sums = []
    for i in range(0, len(probs), _TILE):
        for j in range(i, len(probs), _TILE):
            a, b = slice(i, i + _TILE), slice(j, j + _TILE)
            h = np.exp(_distances(probs[a], probs[b]) / -width) * (residual[a] @ residual[b].T)
            sums.append(float(np.triu(h, 1).sum() if i == j else h.sum()))
    return math.fsum(sums)


def _distances(a: Floats, b: Floats) -> Floats:
    """(len(a), len(b)) Euclidean distances from differences of squares, clipped where rounding goes below 0."""
    squares = np.einsum("ij,ij->i", a, a)[:, None] + np.einsum("ij,ij->i", b, b)[None, :] - 2.0 * (a @ b.T)
    distances: Floats = np.sqrt(np.maximum(squares, 0.0))
    return distances
