"""Smooth calibration error: no bins, and a kernel whose width the data choose."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surefoot.metrics.value import Value
from surefoot.predictions import Events, Predictions, events_of, takes_predictions

__all__ = ["smooth_ece"]

Floats = NDArray[np.float64]

# Residuals are put on this many cells; linear interpolation between neighbours leaves an error of order 1/cells².
_CELLS = 1 << 13
_BLOCK = 1 << 16
# Narrowest kernel the grid resolves: four cells.
_NARROWEST = 4.0 / _CELLS


@takes_predictions
def smooth_ece(p: Predictions | Events, event: str | int | None = None) -> Value:
    """Smooth calibration error (smECE): the fixed point σ of σ = ∫₀¹ |(1/n) Σ_i Z_i φ_σ(t − c_i)| dt.

    φ_σ is the Gaussian reflected at 0 and 1, which is diffusion with closed ends: a factor exp(−(π m σ)²/2) on the m-th
    cosine coefficient. The right side falls as σ grows, so the fixed point is unique. For a fixed point below the width
    of four grid cells, the integral at that width is returned.

    Args:
        p: the predictions.
        event: which events, as for `Predictions.events`; None takes the usual ones.

    Returns:
        The error, with the width of the kernel as the fact ``bandwidth``.

    Raises:
        BadInput: when ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.8, 0.2]] * 10, [0] * 5 + [1] * 5)
        >>> round(smooth_ece(p), 6)
        0.3

    References:
        Błasiok & Nakkiran (2023), "Smooth ECE: Principled Reliability Diagrams via Kernel Smoothing".
    """
    from scipy.fft import dct, idct
    from scipy.optimize import brentq

    e = events_of(p, event)
    density = _on_grid(e) / e.total
    coefficients = dct(density, type=2)
    decay = -0.5 * (np.pi * np.arange(_CELLS)) ** 2

    def error(width: float) -> float:
        return float(np.abs(idct(coefficients * np.exp(decay * width**2), type=2)).sum())

    narrow = error(_NARROWEST)
    width = _NARROWEST if narrow <= _NARROWEST else brentq(lambda s: error(s) - s, _NARROWEST, 1.0 + 1e-9, xtol=1e-9)
    value = narrow if width == _NARROWEST else width
    return Value(value, kernel="reflected gaussian", bandwidth=float(width), bias="upward", **e.facts())


def _on_grid(e: Events) -> Floats:
    """(cells,) sums of the weighted residuals wZ; a residual is shared between the two nearest cell centres."""
    grid = np.zeros(_CELLS + 1)
    for at in range(0, len(e), _BLOCK):
        c = e.prob[at : at + _BLOCK]
        z = e.happened[at : at + _BLOCK] - c
        if e.weight is not None:
            z *= e.weight[at : at + _BLOCK]
        # Position among the cell centres (j + ½)/cells; beyond the outer centres, the outer cell takes everything.
        place = np.clip(c * _CELLS - 0.5, 0.0, _CELLS - 1.0)
        cell = place.astype(np.int64)
        upper = z * (place - cell)
        grid += np.bincount(cell, z - upper, _CELLS + 1)
        grid[1:] += np.bincount(cell, upper, _CELLS + 1)[:-1]
    return grid[:_CELLS]
