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
    """Compute log Q = log mean exp(−m_i); the logarithm is finite where Q overflows or vanishes.

    Args:
        margins: (n,) margins m, n at least 1; infinite margins are allowed.

    Returns:
        log Q.

    Raises:
        BadInput: when ``margins`` has another shape or has NaN.

    Example:
        >>> round(log_moment([0.0, 1000.0]), 6) == round(-float(np.log(2)), 6)
        True

    References:
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Section 4.
    """
    m = _checked(margins)
    lowest = m.min()
    if np.isinf(lowest):
        return float(-lowest)
    return float(-lowest + np.log(np.mean(np.exp(lowest - m))))


def tail_shares(margins: Any) -> NDArray[np.float64]:
    """Compute the share of every example in Q, e^{−m_i} / Σ_j e^{−m_j}.

    Args:
        margins: (n,) margins m, n at least 1.

    Returns:
        (n,) shares in [0, 1] that sum to 1.

    Raises:
        BadInput: when ``margins`` has another shape or has NaN.

    Example:
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
    """The examples with the largest shares of Q, in descending order of their shares.

    Attributes:
        rows: (count,) row numbers.
        margins: (count,) margins.
        shares: (count,) shares of Q.
        half: smallest number of examples, in this order, that carry half of Q.
        wrong: number of examples with m < 0.
    """

    rows: NDArray[np.int64]
    margins: NDArray[np.float64]
    shares: NDArray[np.float64]
    half: int
    wrong: int


def tail(margins: Any, count: int = 10) -> Tail:
    """Find the examples with the largest shares of the margin moment Q.

    Args:
        margins: (n,) margins m, n at least 1.
        count: number of examples, at least 1; at most n examples are returned.

    Returns:
        The examples, with rows of equal margin in the order of the rows.

    Raises:
        BadInput: when ``margins`` has another shape or has NaN, or ``count`` is no integer of at least 1.

    Example:
        >>> heaviest = tail([3.0, -1.0, 0.0], count=2)
        >>> heaviest.rows.tolist(), heaviest.half, heaviest.wrong
        ([1, 2], 1, 1)
    """
    check_int("count", count, 1)
    m = _checked(margins)
    shares = tail_shares(m)
    order = np.lexsort((np.arange(len(m)), m))  # ties by row
    half = int(np.searchsorted(np.cumsum(shares[order]), 0.5 * (1 - 1e-12))) + 1
    first = order[:count]
    return Tail(first, m[first], shares[first], half, int((m < 0).sum()))


def _checked(margins: Any) -> NDArray[np.float64]:
    """Margins as a float64 vector, or a clear error."""
    m = np.asarray(margins, dtype=np.float64)
    if m.ndim != 1 or len(m) == 0:
        raise BadInput(f"margins must have shape (n,) with n at least 1; got {m.shape}")
    if np.isnan(m).any():
        raise BadInput(f"margins must not be NaN; row {int(np.flatnonzero(np.isnan(m))[0])} is")
    return m
