"""Reliability diagram as data: the same bin table that the numbers come from, with what noise would do to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.metrics.bins import BinTable, check_bins, mass_table, tally_width, width_table
from surefoot.predictions import Predictions, takes_predictions
from surefoot.validation import check_fraction

__all__ = ["Reliability", "reliability", "wilson"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Reliability:
    """Per bin (m,): the table, an interval for its accuracy, and the band a calibrated model would stay in.

    ``interval`` (2, m) is Wilson's score interval. ``band`` (2, m) holds the quantiles of the bin's accuracy if
    every stated confidence were true (Bröcker & Smith 2007): drawing confidences from the bin with
    replacement and labels from them makes the hits Binomial(n_b, mean confidence). Empty bins are NaN.
    """

    table: BinTable
    interval: Floats
    band: Floats
    binning: str
    level: float

    @property
    def ece(self) -> float:
        """Calibration error of this very table: `ece` or `adaptive_ece`, by the binning."""
        return self.table.error(1)

    @property
    def mean_confidence(self) -> float:
        """Mean confidence of all rows."""
        return self.accuracy - float(self.table.residual.sum()) / self.table.n

    @property
    def accuracy(self) -> float:
        """Share of all rows that are right."""
        some = self.table.count > 0
        return float((self.table.accuracy * self.table.count)[some].sum() / self.table.n)


@takes_predictions
def reliability(
    p: Predictions, bins: int = 15, binning: Literal["width", "mass"] = "width", level: float = 0.95
) -> Reliability:
    """The data of a reliability diagram.

    Args:
        p: the predictions.
        bins: number of bins.
        binning: ``"width"`` (as `ece`) or ``"mass"`` (as `adaptive_ece`).
        level: of the intervals and of the band, between 0 and 1.
    """
    level = check_fraction("level", level)
    if binning == "width":
        table = width_table(tally_width(p.confidence, p.correct, check_bins(bins)))
    elif binning == "mass":
        table = mass_table(p.confidence, p.correct, check_bins(bins))
    else:
        raise BadInput(f"binning must be 'width' or 'mass'; got {binning!r}")
    some = table.count > 0
    count = np.where(some, table.count, np.nan)
    # An empty bin's stand-ins, one row of confidence ½, vanish in the division by its count.
    rows, mean = np.maximum(table.count, 1), np.where(some, np.clip(table.confidence, 0, 1), 0.5)
    band = np.stack([binomial_quantile(q, rows, mean) for q in ((1 - level) / 2, (1 + level) / 2)]) / count
    return Reliability(table, np.stack(wilson(table.accuracy, count, level)), band, binning, level)


def wilson(share: Floats, count: Floats, level: float) -> tuple[Floats, Floats]:
    """Wilson's score interval of a share observed in ``count`` rows."""
    from scipy.special import ndtri

    z = float(ndtri((1 + level) / 2))
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    # At the ends the interval reaches 0 and 1 exactly; rounding must not pull it away.
    low = np.where(share <= 0, 0.0, np.clip(middle - half, 0, 1))
    high = np.where(share >= 1, 1.0, np.clip(middle + half, 0, 1))
    return low, high


def binomial_quantile(q: float, count: NDArray[np.int64], mean: Floats) -> Floats:
    """Smallest h with P(Binomial(count, mean) ≤ h) ≥ q."""
    from scipy.special import bdtr, bdtrik

    certain = (mean <= 0) | (mean >= 1)
    inner = np.where(certain, 0.5, mean)
    guess = np.clip(np.ceil(bdtrik(q, count, inner)), 0, count)
    # The inverse is approximate: step down where one less already suffices.
    lower = np.maximum(guess - 1, 0)
    guess = np.where(bdtr(lower, count, inner) >= q, lower, guess)
    quantile: Floats = np.where(certain, mean * count, guess)
    return quantile
