"""The data of a reliability diagram: the bin table behind the numbers, intervals, and a calibrated model's band."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.metrics.bins import BinTable, check_bins, equal_mass, equal_width
from surefoot.predictions import Events, Predictions, events_of, takes_predictions
from surefoot.validation import check_fraction

__all__ = ["Reliability", "reliability", "reliability_of_table", "wilson"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Reliability:
    """The data of a reliability diagram with m bins.

    The band is the consistency band of Bröcker & Smith (2007), which assumes that every stated confidence is true. If
    confidences are drawn from a bin with replacement, and labels from the confidences, the hits are
    Binomial(n_b, mean confidence).

    Attributes:
        table: the bin table.
        interval: (2, m) lower and upper ends of Wilson's score interval for the accuracy; NaN for an empty bin.
        band: (2, m) quantiles of the accuracy of a calibrated model; NaN for an empty bin.
        binning: ``"width"`` or ``"mass"``.
        level: coverage of the intervals and of the band.

    References:
        Bröcker & Smith (2007), "Increasing the Reliability of Reliability Diagrams".
    """

    table: BinTable
    interval: Floats
    band: Floats
    binning: str
    level: float

    def __repr__(self) -> str:
        measured = f"ece={self.ece:.4f}, accuracy={self.accuracy:.4f}, mean_confidence={self.mean_confidence:.4f}"
        return f"Reliability(bins={len(self.table.count)}, binning={self.binning!r}, n={self.table.n}, {measured})"

    @property
    def ece(self) -> float:
        """Calibration error of the table: `ece` for equal width, `adaptive_ece` for equal mass."""
        return self.table.error(1)

    @property
    def mean_confidence(self) -> float:
        """Mean confidence of all rows."""
        return self.accuracy - float(self.table.residual.sum()) / self.table.total

    @property
    def accuracy(self) -> float:
        """Share of correct rows."""
        filled = self.table.count > 0
        return float((self.table.accuracy * self.table.mass)[filled].sum() / self.table.total)


@takes_predictions
def reliability(
    p: Predictions | Events,
    bins: int = 15,
    binning: Literal["width", "mass"] = "width",
    level: float = 0.95,
    event: str | int | None = None,
) -> Reliability:
    """Compute the data of a reliability diagram.

    Args:
        p: the predictions.
        bins: number of bins M, from 1 to 10,000.
        binning: ``"width"`` for the bins of `ece`, ``"mass"`` for the bins of `adaptive_ece`.
        level: coverage of the intervals and of the band, between 0 and 1.
        event: which events, as for `Predictions.events`; None takes the usual ones.

    Returns:
        The bin table, with an interval for the accuracy of every bin and the band of a calibrated model.

    Raises:
        BadInput: when an argument is not as described, or ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.9, 0.1]] * 10, [0] * 6 + [1] * 4)
        >>> diagram = reliability(p, bins=1)
        >>> diagram.accuracy, diagram.interval.round(3).tolist(), diagram.band.round(3).tolist()
        (0.6, [[0.313], [0.832]], [[0.7], [1.0]])
    """
    level = check_fraction("level", level)
    if binning == "width":
        table = equal_width(events_of(p, event), check_bins(bins))
    elif binning == "mass":
        table = equal_mass(events_of(p, event), check_bins(bins))
    else:
        raise BadInput(f"binning must be 'width' or 'mass'; got {binning!r}")
    return reliability_of_table(table, binning, level)


def reliability_of_table(table: BinTable, binning: str = "width", level: float = 0.95) -> Reliability:
    """Compute the data of a reliability diagram from its bins.

    Args:
        table: the bins.
        binning: ``"width"`` or ``"mass"``.
        level: coverage of the intervals and of the band.

    Returns:
        What `reliability` returns for the rows in the bins.
    """
    filled = table.count > 0
    # Repeated and weighted rows are not independent: they count as the effective number of rows.
    count = np.where(filled, table.effective, np.nan)
    # An empty bin is computed as one row of confidence ½; the division by its NaN count makes the result NaN.
    rows, mean = (
        np.maximum(np.rint(np.where(filled, count, 1)), 1).astype(np.int64),
        np.where(filled, np.clip(table.confidence, 0, 1), 0.5),
    )
    band = np.stack([binomial_quantile(q, rows, mean) for q in ((1 - level) / 2, (1 + level) / 2)]) / np.where(
        filled, rows, np.nan
    )
    return Reliability(table, np.stack(wilson(table.accuracy, count, level)), band, binning, level)


def wilson(share: Floats, count: Floats, level: float) -> tuple[Floats, Floats]:
    """Compute Wilson's score interval of a share.

    Args:
        share: (m,) observed shares, in [0, 1].
        count: (m,) numbers of rows behind the shares.
        level: coverage, between 0 and 1.

    Returns:
        (m,) lower ends and (m,) upper ends.

    Example:
        >>> low, high = wilson(np.array([0.6]), np.array([10.0]), 0.95)
        >>> low.round(3).tolist(), high.round(3).tolist()
        ([0.313], [0.832])

    References:
        Wilson (1927), "Probable Inference, the Law of Succession, and Statistical Inference".
    """
    from scipy.special import ndtri

    z = float(ndtri((1 + level) / 2))
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    # For shares 0 and 1 the interval reaches 0 and 1 exactly; rounding must not move these ends.
    low = np.where(share <= 0, 0.0, np.clip(middle - half, 0, 1))
    high = np.where(share >= 1, 1.0, np.clip(middle + half, 0, 1))
    return low, high


def binomial_quantile(q: float, count: NDArray[np.int64], mean: Floats) -> Floats:
    """Smallest h with P(Binomial(count, mean) ≤ h) ≥ q."""
    from scipy.special import bdtr, bdtrik

    certain = (mean <= 0) | (mean >= 1)
    inner = np.where(certain, 0.5, mean)
    guess = np.clip(np.ceil(bdtrik(q, count, inner)), 0, count)
    # The inverse is approximate: step down by one where the smaller number already suffices.
    lower = np.maximum(guess - 1, 0)
    guess = np.where(bdtr(lower, count, inner) >= q, lower, guess)
    quantile: Floats = np.where(certain, mean * count, guess)
    return quantile
