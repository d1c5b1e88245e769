"""`CalibrationState`: the binned metrics of a stream, in memory that does not grow."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.metrics.bins import BinTable, check_bins, tally_width, width_table
from surefoot.metrics.exact import carry
from surefoot.metrics.value import Value
from surefoot.predictions import Predictions, check_predictions

__all__ = ["CalibrationState"]


class CalibrationState:
    """Sums per bin of equal width that add up exactly, over batches, streams and ranks.

    ``sums`` (4, bins) of int64 is the whole state: adding the arrays of two ranks (an all-reduce) is merging
    them, and any split of the rows gives the same bits as all rows at once.

    >>> a = CalibrationState().update(Predictions([[2.0, 0.0]], [0]))
    >>> b = CalibrationState().update(Predictions([[0.0, 1.0]], [0]))
    >>> a.merge(b).compute()["accuracy"]
    Value(0.5, n=2)
    """

    def __init__(self, bins: int = 15, sums: Any = None) -> None:
        self.bins = check_bins(bins)
        self.sums = np.zeros((4, self.bins), np.int64)
        if sums is not None:
            try:
                given = np.asarray(sums)
            except ValueError as error:
                raise BadInput(f"sums must be whole numbers of shape (4, {self.bins}); {error}") from error
            if given.shape != self.sums.shape or given.dtype.kind not in "iu":
                raise BadInput(f"sums must be whole numbers of shape (4, {self.bins}); got {given.dtype} {given.shape}")
            self.sums += given.astype(np.int64)
            if (self.sums[0] < 0).any() or (self.sums[1] < 0).any() or (self.sums[1] > self.sums[0]).any():
                raise BadInput("sums must hold counts of rows and, at most as many, hits; these are not of a state")
            carry(*self.sums[2:])

    def update(self, p: Predictions) -> CalibrationState:
        """Add the rows of ``p``; returns self."""
        self.sums += tally_width(check_predictions("p", p).confidence, p.correct, self.bins)
        carry(*self.sums[2:])
        return self

    def merge(self, other: CalibrationState) -> CalibrationState:
        """A new state of the rows of both."""
        if not isinstance(other, CalibrationState):
            raise BadInput(f"a state can be merged with a CalibrationState only; got {type(other).__name__}")
        if other.bins != self.bins:
            raise BadInput(f"states can be merged only with the same bins; got {self.bins} and {other.bins}")
        return CalibrationState(self.bins, self.sums + other.sums)

    @property
    def n(self) -> int:
        """Number of rows seen."""
        return int(self.sums[0].sum())

    @property
    def table(self) -> BinTable:
        """The bin table, as `surefoot.metrics.reliability` and the binned metrics see it."""
        return width_table(self.sums)

    def compute(self) -> dict[str, Value]:
        """ECE, MCE, RMSCE, accuracy and mean confidence of everything seen."""
        if self.n == 0:
            raise BadInput("no rows were seen yet; call update with predictions first")
        table, n = self.table, self.n
        facts = {"n": n, "bins": self.bins, "bias": "upward"}
        hits: NDArray[np.int64] = self.sums[1]
        share = int(hits.sum()) / n
        return {
            "ece": Value(table.error(1), norm=1, binning="equal width", **facts),
            "mce": Value(float(table.gap.max()), norm="max", binning="equal width", **facts),
            "rmsce": Value(table.error(2), norm=2, binning="equal width", **facts),
            "accuracy": Value(share, n=n),
            "confidence": Value(share - float(table.residual.sum()) / n, n=n),
        }
