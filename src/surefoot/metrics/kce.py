"""Kernel calibration error of the top label, computed exactly in O(n log n)."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.metrics.bins import ordered
from surefoot.metrics.value import Value
from surefoot.predictions import Events, Predictions, events_of, takes_predictions
from surefoot.validation import check_positive

__all__ = ["kce", "laplacian_sum"]

Floats = NDArray[np.float64]

# Within a span of this many bandwidths, exp(c/h) and its inverse stay far from overflow.
_SPAN = 64.0
_BLOCK = 1 << 14


@takes_predictions
def kce(
    p: Predictions | Events,
    bandwidth: float = 0.4,
    unbiased: bool = False,
    squared: bool = False,
    event: str | int | None = None,
) -> Value:
    """Kernel calibration error (MMCE) with the Laplacian kernel k(c, c') = exp(−|c − c'|/bandwidth).

    V = n⁻² Σ_ij Z_i Z_j k(c_i, c_j) with Z = correct − confidence. The unbiased statistic U leaves out i = j and
    divides by n(n − 1). With weights, V = Σ_ij w_i w_j Z_i Z_j k / (Σw)². U counts integer weights as repetitions; for
    other weights U leaves out Σ w²Z² and divides by (Σw)² − Σw². Morosini et al. (2026) and Kumar et al. (2018) state
    no kernel; this kernel and its width 0.4 are those of the code of Kumar et al.

    Args:
        p: the predictions; at least two for the unbiased statistic.
        bandwidth: width of the kernel, at least 1e-12.
        unbiased: U-statistic instead of V-statistic; U can be negative.
        squared: return the statistic itself; otherwise √max(0, statistic).
        event: which events, as for `Predictions.events`; None takes the usual ones.

    Returns:
        The error; the unbiased one carries its V-statistic, on the same scale, as the fact ``plugin``.

    Raises:
        BadInput: when ``bandwidth`` is too small, ``unbiased`` meets a single row, or ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.9, 0.1]] * 10, [0] * 6 + [1] * 4)
        >>> round(kce(p, squared=True), 12), round(kce(p, unbiased=True, squared=True), 4)
        (0.09, 0.0633)

    References:
        Kumar, Sarawagi & Jain (2018), "Trainable Calibration Measures for Neural Networks from Kernel Mean
        Embeddings".
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Section 3.
    """
    bandwidth = check_positive("bandwidth", bandwidth, 1e-12)
    e = events_of(p, event)
    if unbiased and (e.total if e.repetitions else len(e)) < 2:
        raise BadInput(f"the unbiased statistic needs at least 2 predictions; got {len(e)}; use unbiased=False")
    c, z, diagonal = e.memo("by confidence", lambda: _sorted_residuals(e))
    total, mass = laplacian_sum(c, z, bandwidth), e.total
    plugin = max(total, 0.0) / mass**2
    pairs = mass * (mass - 1) if e.repetitions else mass**2 - float(e.weights @ e.weights)
    statistic = (total - diagonal) / pairs if unbiased else plugin
    facts: dict[str, Any] = {**e.facts(), "kernel": "laplacian", "bandwidth": bandwidth, "squared": squared}
    facts["bias"] = "removed" if unbiased else "upward"
    if unbiased:
        facts["plugin"] = plugin if squared else math.sqrt(plugin)
    return Value(statistic if squared else math.sqrt(max(0.0, statistic)), **facts)


def _sorted_residuals(e: Events) -> tuple[Floats, Floats, float]:
    """Probabilities in ascending order, their weighted residuals, and the terms i = j of the sum over pairs."""
    if e.plain:
        c, hit = ordered(e.prob, e.happened)
        z = hit - c
        return c, z, float(z @ z)
    order = np.lexsort((e.weights, e.happened, e.prob))
    c, residual, weight = e.prob[order], e.residual[order], e.weights[order]
    factor = weight if e.repetitions else weight**2
    return c, weight * residual, float(factor @ residual**2)


def laplacian_sum(c: Floats, z: Floats, bandwidth: float) -> float:
    """Compute Σ_ij z_i z_j exp(−|c_i − c_j|/h) of sorted confidences in O(n).

    With A_i = Σ_{j<i} z_j exp(−(c_i − c_j)/h) the sum is Σ z_i² + 2 Σ z_i A_i. A is a running sum of z_j exp(c_j/h),
    scaled by exp(−c_i/h). Every weight in A is at most 1, so the scaling loses no digits. The running sum restarts in
    every block, so its rounding does not grow with n.

    Args:
        c: (n,) numbers in ascending order, n >= 1.
        z: (n,) weights.
        bandwidth: width h of the kernel, above 0.

    Returns:
        The sum.

    Example:
        >>> round(laplacian_sum(np.array([0.0, 1.0]), np.array([1.0, 1.0]), 1.0), 6)
        2.735759
    """
    total, carry, last = 0.0, 0.0, float(c[0])
    for start, end in _spans(c, _SPAN * bandwidth):
        growth = np.exp((c[start:end] - c[start]) / bandwidth)
        y = z[start:end]
        inner = np.cumsum(y * growth)
        # `carry` is the sum over all earlier rows, scaled to the first row of this block.
        carry *= math.exp(-(float(c[start]) - last) / bandwidth)
        before = np.empty_like(inner)
        before[0], before[1:] = 0.0, inner[:-1]
        before += carry
        before /= growth
        total += float(y @ y) + 2.0 * float(y @ before)
        carry, last = (carry + float(inner[-1])) / float(growth[-1]), float(c[end - 1])
    return total


def _spans(c: Floats, widest: float) -> list[tuple[int, int]]:
    """Blocks of consecutive rows, none spanning more than ``widest``."""
    bounds = np.arange(0, len(c) + _BLOCK, _BLOCK)
    bounds[-1] = len(c)
    if float(c[-1] - c[0]) > widest:
        cells = np.floor((c - c[0]) / widest)
        # Rounding may put neighbours that are further apart than the span into one cell; these are cut too.
        apart = (np.diff(cells) > 0) | (np.diff(c) > widest)
        bounds = np.concatenate([bounds, np.flatnonzero(apart) + 1])
    bounds = np.unique(bounds)
    return list(itertools.pairwise(bounds.tolist()))
