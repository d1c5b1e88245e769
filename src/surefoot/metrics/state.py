"""`CalibrationState`: binned metrics of a stream, in constant memory."""

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
    """Exact sums in bins of equal width, which can be accumulated over batches, streams and ranks.

    The array ``sums`` is the complete state: adding the arrays of two ranks (an all-reduce) merges their states. Any
    split of the rows gives results that are bit-identical to those of all rows at once.

    Args:
        bins: number of bins M, from 1 to 10,000.
        sums: (4, M) integers of an earlier state, to continue from; None starts without rows.

    Attributes:
        bins: number of bins M.
        sums: (4, M) int64 sums: rows, hits, high and low parts of the confidences.

    Raises:
        BadInput: when ``bins`` is out of range, or ``sums`` are not those of a state.

    Example:
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
                raise BadInput(f"sums must be integers of shape (4, {self.bins}); {error}") from error
            if given.shape != self.sums.shape or given.dtype.kind not in "iu":
                raise BadInput(f"sums must be integers of shape (4, {self.bins}); got {given.dtype} {given.shape}")
            self.sums += given.astype(np.int64)
            if (self.sums[0] < 0).any() or (self.sums[1] < 0).any() or (self.sums[1] > self.sums[0]).any():
                raise BadInput("sums must hold counts of rows and, at most as many, hits; these are not of a state")
            carry(*self.sums[2:])

    def __repr__(self) -> str:
        measured = "".join(f", {name}={value:.4f}" for name, value in self.compute().items()) if self.n else ""
        return f"CalibrationState(bins={self.bins}, n={self.n}{measured})"

    def update(self, p: Predictions) -> CalibrationState:
        """Add rows to the state.

        Args:
            p: the predictions of the new rows.

        Returns:
            The state itself.

        Raises:
            BadInput: when ``p`` is no `Predictions`.
        """
        self.sums += tally_width(check_predictions("p", p).confidence, p.correct, self.bins)
        carry(*self.sums[2:])
        return self

    def merge(self, other: CalibrationState) -> CalibrationState:
        """Merge two states into a new state of the rows of both.

        Args:
            other: a state with the same number of bins.

        Returns:
            The new state; both old states stay as they are.

        Raises:
            BadInput: when ``other`` is no `CalibrationState`, or has another number of bins.
        """
        if not isinstance(other, CalibrationState):
            raise BadInput(f"a state can be merged with a CalibrationState only; got {type(other).__name__}")
        if other.bins != self.bins:
            raise BadInput(f"states can be merged only with the same bins; got {self.bins} and {other.bins}")
        return CalibrationState(self.bins, self.sums + other.sums)

    @property
    def n(self) -> int:
        """Number of rows in the state."""
        return int(self.sums[0].sum())

    @property
    def table(self) -> BinTable:
        """The bin table, equal to the table behind `surefoot.metrics.reliability` and the binned metrics."""
        return width_table(self.sums)

    def compute(self) -> dict[str, Value]:
        """Compute ECE, MCE, RMSCE, accuracy and mean confidence of all rows.

        Returns:
            Values under the keys ``ece``, ``mce``, ``rmsce``, ``accuracy`` and ``confidence``.

        Raises:
            BadInput: when the state has no rows yet.
        """
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
