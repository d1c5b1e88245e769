"""The exponential margin moment Q = mean exp(−m) (Morosini et al. 2026, Section 4), in log space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.validation import check_int

__all__ = ["Tail", "log_moment", "tail", "tail_shares"]


def log_moment(margins: Any) -> float:
    """log Q = log mean exp(−m_i) of margins (n,); finite where Q itself overflows or vanishes.

    >>> round(log_moment([0.0, 1000.0]), 6) == round(-float(np.log(2)), 6)
    True
    """
    m = _checked(margins)
    lowest = m.min()
    if np.isinf(lowest):
        return float(-lowest)
    return float(-lowest + np.log(np.mean(np.exp(lowest - m))))


def tail_shares(margins: Any) -> NDArray[np.float64]:
    """(n,) the share of Q that each example carries: e^{−m_i} / Σ e^{−m_j}.

    >>> tail_shares([0.0, 0.0, 800.0]).tolist()
    [0.5, 0.5, 0.0]
    """
    m = _checked(margins)
    lowest = m.min()
    e = (m == lowest).astype(np.float64) if np.isinf(lowest) else np.exp(lowest - m)
    shares: NDArray[np.float64] = e / e.sum()
    return shares


@dataclass(frozen=True)
class Tail:
    """The examples that carry most of Q: row numbers, margins and shares, heaviest first.

    ``half`` is how many examples, heaviest first, carry half of Q; ``wrong`` how many have m < 0.
    """

    rows: NDArray[np.int64]
    margins: NDArray[np.float64]
    shares: NDArray[np.float64]
    half: int
    wrong: int


def tail(margins: Any, count: int = 10) -> Tail:
    """Which examples carry the tail."""
    check_int("count", count, 1)
    m = _checked(margins)
    shares = tail_shares(m)
    order = np.lexsort((np.arange(len(m)), m))  # ties by row
    half = int(np.searchsorted(np.cumsum(shares[order]), 0.5 * (1 - 1e-12))) + 1
    first = order[:count]
    return Tail(first, m[first], shares[first], half, int((m < 0).sum()))


def _checked(margins: Any) -> NDArray[np.float64]:
    m = np.asarray(margins, dtype=np.float64)
    if m.ndim != 1 or len(m) == 0:
        raise BadInput(f"margins must have shape (n,) with n at least 1; got {m.shape}")
    if np.isnan(m).any():
        raise BadInput(f"margins must not be NaN; row {int(np.flatnonzero(np.isnan(m))[0])} is")
    return m
