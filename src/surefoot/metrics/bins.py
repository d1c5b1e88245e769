"""The convention for bins, and the table of sums behind both numbers and plots.

Equal width: bin j of M is (j/M, (j+1)/M], with 0 in the first bin; an edge *is* the float64 quotient j/M.
Equal mass: ranks 0..n−1 of the sorted confidences are cut at ⌊j·n/M⌋. Rows of equal confidence share the mean
correctness of their group. A cut through a group therefore does not depend on the order of the rows.

Sums are exact (`surefoot.metrics.exact`): bit-identical for any order of the rows, any split into batches and any
number of ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.metrics.exact import UNIT, Cells, cell_sums, int_sums, parts_as_ints, split_into_parts
from surefoot.metrics.weighted import CellSums, WeightedRows, weighted_sums
from surefoot.predictions import Events
from surefoot.validation import check_int

__all__ = [
    "BinTable",
    "SortedRows",
    "bin_edges",
    "bin_of",
    "check_bins",
    "equal_mass",
    "equal_width",
    "mass_table",
    "ordered",
    "tally_width",
    "weighted_table",
    "width_table",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def check_bins(bins: Any) -> int:
    """Check a number of bins.

    Args:
        bins: an integer from 1 to 10,000; more bins cost time and carry no information.

    Returns:
        ``bins`` as a Python int.

    Raises:
        BadInput: when ``bins`` is not such an integer.
    """
    return check_int("bins", bins, 1, 10_000)


def bin_edges(bins: int) -> Floats:
    """Return the edges of bins of equal width: the float64 quotients j/M.

    Args:
        bins: number of bins M, at least 1.

    Returns:
        (M + 1,) edges from 0 to 1.

    Example:
        >>> bin_edges(4).tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    edges: Floats = np.arange(bins + 1) / bins
    return edges


def bin_of(confidence: Floats, bins: int) -> Ints:
    """Assign confidences to bins of equal width, as ``searchsorted`` (left) on the edges, but ten times faster.

    Args:
        confidence: (n,) numbers in [0, 1].
        bins: number of bins M, at least 1.

    Returns:
        (n,) bin of each confidence, in 0..M−1.

    Example:
        >>> bin_of(np.array([0.0, 0.25, 0.3, 1.0]), 4).tolist()
        [0, 0, 1, 3]
    """
    index = np.empty(len(confidence), np.int32)
    if len(confidence):
        _bin_into(confidence, bins, index, np.empty(len(confidence)), np.empty(len(confidence)))
    return index.astype(np.int64)


def _bin_into(c: Floats, bins: int, index: Cells, scaled: Floats, down: Floats) -> None:
    # The factor is below M by more than the rounding of the product, so no confidence is put above its bin. A
    # confidence just above an edge may be put one bin too low: its fraction shows it, and the exact edges decide.
    np.multiply(c, bins * (1 - 2.0**-50), out=scaled)
    np.floor(scaled, out=down)
    np.copyto(index, down, casting="unsafe")
    scaled -= down
    edge = 1 - bins * 2.0**-48
    if scaled.max() >= edge:
        near = np.flatnonzero(scaled >= edge)
        index[near] += c[near] > bin_edges(bins)[index[near] + 1]


@dataclass(frozen=True)
class BinTable:
    """Statistics of every bin; all binned numbers and reliability plots are computed from such a table.

    Attributes:
        lower: (m,) lower bound of the confidences in the bin.
        upper: (m,) upper bound of the confidences in the bin.
        count: (m,) number of rows.
        confidence: (m,) mean confidence; NaN for an empty bin.
        accuracy: (m,) mean correctness; NaN for an empty bin.
        residual: (m,) Σ w (correct − confidence) over the rows of the bin.
        weight: (m,) Σ w of weighted rows; None without weights.
        squares: (m,) Σ w² of weighted rows; None without weights.
    """

    lower: Floats
    upper: Floats
    count: Ints
    confidence: Floats
    accuracy: Floats
    residual: Floats
    weight: Floats | None = None
    squares: Floats | None = None

    @property
    def n(self) -> int:
        """Number of rows in all bins."""
        return int(self.count.sum())

    @property
    def mass(self) -> Floats | Ints:
        """(m,) sum of the weights in every bin; the number of rows without weights."""
        return self.count if self.weight is None else self.weight

    @property
    def total(self) -> float:
        """Sum of all weights; the number of rows without weights."""
        return self.n if self.weight is None else math.fsum(self.weight)

    @property
    def effective(self) -> Floats | Ints:
        """(m,) effective number of rows (Σw)²/Σw² of every bin, which is the number of rows without weights."""
        if self.weight is None or self.squares is None:
            return self.count
        rows: Floats = np.divide(self.weight**2, self.squares, out=np.zeros_like(self.weight), where=self.squares > 0)
        return rows

    @property
    def gap(self) -> Floats:
        """(m,) |accuracy − confidence| of every bin; 0 for an empty bin."""
        return np.abs(self.residual) / np.where(self.mass > 0, self.mass, 1)

    @property
    def over(self) -> float:
        """Part of the error from bins whose confidence is above their accuracy, Σ_b max(0, −residual_b) / Σw."""
        return math.fsum(np.maximum(-self.residual, 0.0)) / self.total

    @property
    def under(self) -> float:
        """Part of the error from bins whose confidence is below their accuracy, Σ_b max(0, residual_b) / Σw."""
        return math.fsum(np.maximum(self.residual, 0.0)) / self.total

    def error(self, norm: int) -> float:
        """Compute the calibration error of the table, (Σ_b (n_b/n) gap_b^norm)^(1/norm).

        Args:
            norm: 1 or 2.

        Returns:
            The error, in [0, 1].
        """
        if norm == 1:
            return math.fsum(np.abs(self.residual)) / self.total
        return math.sqrt(math.fsum(self.residual**2 / np.where(self.mass > 0, self.mass, 1)) / self.total)


def equal_width(e: Events, bins: int) -> BinTable:
    """Compute the table of bins of equal width of events.

    Args:
        e: the events.
        bins: number of bins M, at least 1.

    Returns:
        The table of M bins. Sums are exact: integer weights give what repeated rows give, bit by bit.

    Example:
        >>> equal_width(Events([0.25, 0.75], [1, 1], weight=[2, 1]), 2).residual.tolist()
        [1.5, 0.25]
    """
    if e.plain:
        return width_table(tally_width(e.prob, e.happened, bins))
    return weighted_table(weighted_sums(e, bin_of(e.prob, bins), bins))


def weighted_table(sums: CellSums) -> BinTable:
    """Convert exact sums of weighted events in bins of equal width to a table.

    Args:
        sums: sums in M bins.

    Returns:
        The table of M bins; all means and residuals are correctly rounded.

    Example:
        >>> sums = weighted_sums(Events([0.25, 0.75], [1, 1], weight=[2, 1]), np.array([0, 1]), 2)
        >>> weighted_table(sums).residual.tolist()
        [1.5, 0.25]
    """
    edges = bin_edges(len(sums.rows))
    total = zip(sums.happened, sums.prob, strict=True)
    residual = np.array([(happened - prob) / UNIT for happened, prob in total]) * sums.unit
    weight = np.array(sums.weight, np.float64) * sums.unit
    mean = np.array([_share(prob, w) for prob, w in zip(sums.prob, sums.weight, strict=True)])
    accuracy = np.array([_share(happened, w) for happened, w in zip(sums.happened, sums.weight, strict=True)])
    return BinTable(edges[:-1], edges[1:], sums.rows, mean, accuracy, residual, weight, sums.squares)


def _share(total: int, weight: int) -> float:
    return total / (weight * UNIT) if weight else math.nan


def equal_mass(e: Events, bins: int) -> BinTable:
    """Compute the table of bins of equal mass of events.

    A row of weight w is a group of w tied rows, which bins may share.

    Args:
        e: the events.
        bins: number of bins M, at least 1.

    Returns:
        The table of M bins, or of fewer bins if there are fewer rows.

    Example:
        >>> equal_mass(Events([0.2, 0.4, 0.6], [1, 1, 1], weight=[1, 1, 2]), 2).residual.round(12).tolist()
        [1.4, 0.8]
    """
    repeated = e.repeated()
    if repeated is not None and repeated.plain:
        return _with_squares(mass_table(repeated.prob, repeated.happened, bins), e)
    columns = (np.array(column) for column in zip(*WeightedRows(e).table_sums(bins), strict=True))
    return BinTable(*columns)


def _with_squares(table: BinTable, e: Events) -> BinTable:
    """A table of repeated rows as one of weighted rows: bins share Σw² in proportion to their weight."""
    if e.weight is None:
        return table
    squares = table.count.astype(np.float64) * (float(e.weight @ e.weight) / e.total)
    return replace(table, weight=table.count.astype(np.float64), squares=squares)


# --- equal width ------------------------------------------------------------------------------------


def tally_width(confidence: Floats, correct: Bools, bins: int) -> Ints:
    """Sum rows in bins of equal width, exactly.

    Sums of two such arrays, after `surefoot.metrics.exact.carry`, are the sums of all rows together.

    Args:
        confidence: (n,) numbers in [0, 1].
        correct: (n,) whether the predicted class is the label.
        bins: number of bins M, at least 1.

    Returns:
        (4, M) integers as from `surefoot.metrics.exact.cell_sums`: rows, hits, high and low parts of the confidences.
    """
    return cell_sums(confidence, correct, lambda _, c, cell, a, b: _bin_into(c, bins, cell, a, b), bins)


def width_table(sums: Ints) -> BinTable:
    """Convert exact sums in bins of equal width to a table.

    Args:
        sums: (4, M) integers from `tally_width`.

    Returns:
        The table of M bins; all means and residuals are correctly rounded.

    Example:
        >>> table = width_table(tally_width(np.array([0.25, 0.75]), np.array([True, True]), 2))
        >>> table.residual.tolist()
        [0.75, 0.25]
    """
    bins = sums.shape[1]
    edges = bin_edges(bins)
    count, hits = sums[0], sums[1]
    totals = int_sums(sums[2], sums[3])
    residual = np.array([(int(hit) * UNIT - total) / UNIT for hit, total in zip(hits, totals, strict=True)])
    mean = np.array([total / (int(c) * UNIT) if c else math.nan for total, c in zip(totals, count, strict=True)])
    accuracy = np.divide(hits, count, out=np.full(bins, math.nan), where=count > 0)
    return BinTable(edges[:-1], edges[1:], count.copy(), mean, accuracy, residual)


# --- equal mass -------------------------------------------------------------------------------------


def ordered(scores: Floats, correct: Bools) -> tuple[Floats, Bools]:
    """Sort rows by score; among equal scores, wrong rows come first.

    The result depends only on the *set* of rows. Non-negative doubles are ordered as their bits, and below 2 the top
    bits are free. With the correctness as the lowest bit, one sort replaces an argsort and two gathers.

    Args:
        scores: (n,) numbers in [0, 1].
        correct: (n,) whether the predicted class is the label.

    Returns:
        (n,) scores in ascending order, and (n,) their correctness.

    Example:
        >>> scores, hit = ordered(np.array([0.5, 0.25, 0.5]), np.array([True, True, False]))
        >>> scores.tolist(), hit.tolist()
        ([0.25, 0.5, 0.5], [True, False, True])
    """
    keys = np.ascontiguousarray(scores).view(np.int64) << 1
    keys |= correct
    if not (keys[1:] >= keys[:-1]).all():
        keys.sort()
    hit = (keys & 1).astype(np.bool_)
    keys >>= 1
    return keys.view(np.float64), hit


@dataclass(frozen=True)
class SortedRows:
    """Rows sorted by confidence, with exact cumulative sums.

    Attributes:
        confidence: (n,) confidences in ascending order.
        sums: (3, n + 1) sums over the first i rows, i = 0..n: hits, high and low parts of the confidences.
    """

    confidence: Floats
    sums: Ints

    @classmethod
    def of(cls, confidence: Floats, correct: Bools) -> SortedRows:
        """Sort the rows and compute their cumulative sums.

        Args:
            confidence: (n,) numbers in [0, 1], n >= 1.
            correct: (n,) whether the predicted class is the label.

        Returns:
            The sorted rows.
        """
        c, hit = ordered(confidence, correct)
        high, low = np.empty_like(c), np.empty_like(c)
        split_into_parts(c, high, low)
        sums = np.zeros((3, len(c) + 1), np.int64)
        for line, part in zip(sums, (hit, *parts_as_ints(high, low)), strict=True):
            np.cumsum(part, out=line[1:])
        return cls(c, sums)

    def below(self, ranks: Ints) -> tuple[Floats, Ints]:
        """Sum the rows below given ranks.

        Inside a group of equal confidences the hits grow linearly with the rank, because every row counts as the mean
        of its group.

        Args:
            ranks: (m,) integers in 0..n.

        Returns:
            (m,) hits, and (2, m) high and low parts of the confidences, over the rows of rank below each entry.
        """
        at = np.minimum(ranks, len(self.confidence) - 1)
        value = self.confidence[at]
        start = np.searchsorted(self.confidence, value, "left")
        end = np.searchsorted(self.confidence, value, "right")
        hits = self.sums[0]
        return hits[start] + (ranks - start) * ((hits[end] - hits[start]) / (end - start)), self.sums[1:, ranks]

    def table(self, cuts: Ints) -> BinTable:
        """Compute the table of bins between given ranks.

        Args:
            cuts: (m + 1,) increasing ranks, first 0 and last n.

        Returns:
            The table of m bins; a bin holds the ranks from one cut up to the next, which is exclusive.
        """
        c = self.confidence
        hits, parts = self.below(cuts)
        return _cut_table(c[cuts[:-1]], c[cuts[1:] - 1], cuts, hits, parts)


def _cut_table(lower: Floats, upper: Floats, cuts: Ints, hits: Floats, parts: Ints) -> BinTable:
    count, hit = np.diff(cuts), np.diff(hits)
    totals = np.array([total / UNIT for total in int_sums(*np.diff(parts))])
    return BinTable(lower, upper, count, totals / count, hit / count, hit - totals)


# Buckets to locate ranks without a full sort. The exponent and first seven bits of 1 − c choose the bucket, so that
# confidences near 1 spread over many buckets. 2^-53 is the smallest 1 − c above 0.
_SHIFT = 45
_TOP_BUCKET = int(np.float64(1.0).view(np.int64) >> _SHIFT)
_BUCKET_BLOCK = 1 << 15  # rows whose buffers stay in a core's cache
_BUCKETS = _TOP_BUCKET - int(np.float64(2.0**-53).view(np.int64) >> _SHIFT) + 2


def _buckets(confidence: Floats) -> NDArray[np.int16]:
    """(n,) bucket of each confidence, from 0 for confidence 0 to ``_BUCKETS − 1`` for confidence 1."""
    bucket = np.empty(len(confidence), np.int16)
    spare = np.empty(min(len(confidence), _BUCKET_BLOCK))
    for at in range(0, len(confidence), _BUCKET_BLOCK):
        c = confidence[at : at + _BUCKET_BLOCK]
        bits = np.subtract(1.0, c, out=spare[: len(c)]).view(np.int64)
        bits >>= _SHIFT
        np.subtract(_TOP_BUCKET, bits, out=bits)
        np.minimum(bits, _BUCKETS - 1, out=bits)
        bucket[at : at + len(c)] = bits
    return bucket


def mass_table(confidence: Floats, correct: Bools, bins: int) -> BinTable:
    """Compute the table of bins of equal mass.

    Only rows in buckets next to a cut are sorted; the other rows are only summed.

    Args:
        confidence: (n,) numbers in [0, 1], n >= 1.
        correct: (n,) whether the predicted class is the label.
        bins: number of bins M, at least 1; with fewer rows than bins, every row is a bin.

    Returns:
        The table of min(M, n) bins.

    Example:
        >>> mass_table(np.array([0.2, 0.4, 0.6, 0.8]), np.array([True] * 4), 2).upper.tolist()
        [0.4, 0.8]
    """
    n = len(confidence)
    cuts = np.unique(np.arange(bins + 1) * n // bins)
    bucket = _buckets(confidence)
    counts = np.bincount(bucket, minlength=_BUCKETS)
    # For each cut: the bucket of the row before the cut, and of the row after the cut.
    ends = np.cumsum(counts)
    before = np.searchsorted(ends, np.maximum(cuts - 1, 0), "right")
    after = np.searchsorted(ends, np.minimum(cuts, n - 1), "right")
    chosen = np.zeros(_BUCKETS, np.bool_)
    chosen[before] = chosen[after] = True
    # Rows of chosen buckets are stretch 0. The other rows form stretches: stretch i follows i − 1 chosen buckets.
    place = np.cumsum(chosen)
    stretch = np.where(chosen, 0, place + 1).astype(np.int32)
    members: list[Ints] = []

    def stretch_into(at: int, c: Floats, cell: Cells, *_: Floats) -> None:
        np.take(stretch, bucket[at : at + len(c)], out=cell, mode="clip")  # "raise" would allocate a buffer
        members.append(np.flatnonzero(cell == 0) + at)

    sums = cell_sums(confidence, correct, stretch_into, int(place[-1]) + 2)
    rows = np.concatenate(members)
    near = SortedRows.of(confidence[rows], correct[rows])
    # A rank among the sorted rows is the rank among all rows minus the rows of the stretches below it.
    sums[:, 0] = 0
    passed = np.cumsum(sums, axis=1)[:, place]
    ranks = cuts - passed[0, after]
    hits, parts = near.below(ranks)
    lower, upper = near.confidence[ranks[:-1]], near.confidence[(cuts - 1 - passed[0, before])[1:]]
    return _cut_table(lower, upper, cuts, hits + passed[1, after], parts + passed[2:, after])
