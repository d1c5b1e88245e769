"""The exponential margin moment Q = mean exp(−m) of paper A (Section 4), in log space."""

from __future__ import annotations

from typing import Any

import numpy as np

from surefoot.errors import BadInput

__all__ = ["log_moment"]


def log_moment(margins: Any) -> float:
    """log Q = log mean exp(−m_i) of margins (n,); finite where Q itself overflows or vanishes.

    >>> round(log_moment([0.0, 1000.0]), 6) == round(-float(np.log(2)), 6)
    True
    """
    m = np.asarray(margins, dtype=np.float64)
    if m.ndim != 1 or len(m) == 0:
        raise BadInput(f"margins must have shape (n,) with n at least 1; got {m.shape}")
    if np.isnan(m).any():
        raise BadInput(f"margins must not be NaN; row {int(np.flatnonzero(np.isnan(m))[0])} is")
    lowest = m.min()
    if np.isinf(lowest):
        return float(-lowest)
    return float(-lowest + np.log(np.mean(np.exp(lowest - m))))
