"""Do calibration error and sharpness move together over a run? (Morosini et al. 2026, Table 1.) Torch is not needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["Readings", "correlation", "sharpness_correlations"]

Readings = Sequence[Mapping[str, Any]]


def correlation(readings: Readings, one: str, other: str) -> float:
    """Pearson's correlation of two quantities over the readings that hold both; NaN for fewer than three."""
    pairs = [(r[one], r[other]) for r in readings if one in r and other in r]
    values = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    values = values[np.isfinite(values).all(axis=1)]
    if len(values) < 3 or (values.std(axis=0) == 0).any():
        return float("nan")
    one_, other_ = (values - values.mean(axis=0)).T
    return float(one_ @ other_ / np.sqrt((one_ @ one_) * (other_ @ other_)))


def sharpness_correlations(readings: Readings) -> dict[str, float]:
    """The correlation of each calibration error with Gauss–Newton sharpness (Morosini et al. 2026, Table 1)."""
    names = [f"{part}.{metric}" for part in ("train", "test") for metric in ("ece", "kce")]
    return {name: correlation(readings, name, "sharpness") for name in names}
