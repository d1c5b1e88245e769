"""The one convention for bins, and the table of sums that numbers and plots both come from.

Equal width: bin j of M is (j/M, (j+1)/M], with 0 in the first bin; an edge *is* the float64 quotient j/M.
Equal mass: ranks 0..n−1 of the sorted confidences are cut at ⌊j·n/M⌋; rows of equal confidence share their
group's mean correctness, so a cut through a group does not depend on the order of the rows.

Sums of confidences are exact: each is kept as whole multiples of 2⁻²⁸ and of 2⁻⁵⁸ in two 64-bit integers
(good for 2³⁴ rows). Only a confidence below 1/32 has bits beyond that grid; it is moved by at most 2⁻⁵⁹. So a
sum does not depend on the order of the rows, the split into batches or the number of ranks, to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.checks import whole

__all__ = [
    "BinTable",
    "SortedRows",
    "bin_edges",
    "bin_of",
    "check_bins",
    "mass_table",
    "ordered",
    "tally_width",
    "width_table",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_HIGH, _LOW = 2.0**28, 2.0**58
_SCALE = 1 << 30  # multiples of 2^-58 in one of 2^-28
_UNIT = 1 << 58
# Adding and subtracting 1.5·2^(52−b) rounds a double below 1 to a multiple of 2^-b.
_ROUND_HIGH, _ROUND_LOW = 1.5 * 2.0**24, 1.5 * 2.0**-6
# Rows in a block: its buffers stay in a core's cache, and its float64 sums of the parts are exact
# (28 + 16 and 30 + 16 bits).
_BLOCK = 1 << 16


def check_bins(bins: Any) -> int:
    """``bins`` as an int from 1 to 10,000 (more say nothing, and cost), or a clear error."""
    return whole("bins", bins, 1, 10_000)


def bin_edges(bins: int) -> Floats:
    """(M + 1,) edges of M bins of equal width: the float64 quotients j/M."""
    edges: Floats = np.arange(bins + 1) / bins
    return edges


def bin_of(confidence: Floats, bins: int) -> Ints:
    """(n,) bin of equal width of each confidence: ``searchsorted`` (left) on the edges, ten times faster."""
    index = np.empty(len(confidence), np.int64)
    _bin_into(confidence, bins, index, np.empty(len(confidence)), np.empty(len(confidence)))
    return index


def _bin_into(c: Floats, bins: int, index: Ints, scaled: Floats, up: Floats) -> None:
    np.multiply(c, bins, out=scaled)
    np.ceil(scaled, out=up)
    np.subtract(up, 1.0, out=index, casting="unsafe")
    # c·M carries one rounding, so only next to a whole number can it be on the wrong side of an edge; there
    # the edges themselves decide.
    slack = 1e-15 * bins
    up -= scaled
    beside = up >= 1.0 - slack
    beside |= up <= slack
    if beside.any():
        near = np.flatnonzero(beside)
        index[near] = np.searchsorted(bin_edges(bins)[1:-1], c[near], "left")


@dataclass(frozen=True)
class BinTable:
    """What is known of each bin; every binned number and every reliability plot comes from one of these.

    Shapes (m,): ``lower`` and ``upper`` bound of the confidences, ``count`` of rows, ``confidence`` (mean),
    ``accuracy`` (mean), ``residual`` = Σ (correct − confidence). Means of empty bins are NaN.
    """

    lower: Floats
    upper: Floats
    count: Ints
    confidence: Floats
    accuracy: Floats
    residual: Floats

    @property
    def n(self) -> int:
        """Number of rows in all bins."""
        return int(self.count.sum())

    @property
    def gap(self) -> Floats:
        """(m,) |accuracy − confidence| of each bin; 0 where it is empty."""
        return np.abs(self.residual) / np.maximum(self.count, 1)

    def error(self, norm: int) -> float:
        """(Σ_b (n_b/n) gap_b^norm)^(1/norm): the calibration error of the table, for norm 1 or 2."""
        if norm == 1:
            return math.fsum(np.abs(self.residual)) / self.n
        return math.sqrt(math.fsum(self.residual**2 / np.maximum(self.count, 1)) / self.n)


# --- exact sums -------------------------------------------------------------------------------------


def _split_into(c: Floats, high: Floats, low: Floats) -> None:
    """Multiples of 2⁻²⁸ and of 2⁻⁵⁸ that sum to ``c``."""
    np.add(c, _ROUND_HIGH, out=high)
    high -= _ROUND_HIGH
    np.subtract(c, high, out=low)
    low += _ROUND_LOW
    low -= _ROUND_LOW


def _tally(
    confidence: Floats, correct: Bools, cell_into: Callable[[Floats, Ints, Floats, Floats], None], cells: int
) -> Ints:
    """(4, cells) exact sums over the rows of each cell: rows, hits, high and low parts of the confidences.

    ``cell_into(c, cell, spare, spare)`` writes the cells of a block of rows. The work goes through the same few
    buffers block after block, since fresh memory costs more than the arithmetic. One thread:
    ``bincount`` does not let go of the interpreter's lock.
    """
    sums = np.zeros((4, cells), np.int64)
    size = min(_BLOCK, len(confidence))
    high_buffer, low_buffer = np.empty(size), np.empty(size)
    cell_buffer, hit_buffer = np.empty(size, np.int64), np.empty(size, np.int64)
    # Confidences crowd in one cell, and each addition to it waits for the one before; four copies of a small
    # table, used in turn, do not wait.
    lanes = 4 if cells <= 64 else 1
    lane = cells * (np.arange(size) % lanes)
    for at in range(0, len(confidence), _BLOCK):
        c = confidence[at : at + _BLOCK]
        high, low = high_buffer[: len(c)], low_buffer[: len(c)]
        cell, hit = cell_buffer[: len(c)], hit_buffer[: len(c)]
        cell_into(c, cell, low, high)
        if lanes > 1:
            cell += lane[: len(c)]
        _split_into(c, high, low)
        sums[2] += _fold(np.bincount(cell, high, lanes * cells) * _HIGH, lanes)
        sums[3] += _fold(np.bincount(cell, low, lanes * cells) * _LOW, lanes)
        # Rows that were right are tallied apart.
        cell += np.multiply(correct[at : at + _BLOCK], lanes * cells, out=hit)
        counts = np.bincount(cell, minlength=2 * lanes * cells)
        right = _fold(counts[lanes * cells :], lanes)
        sums[0] += _fold(counts[: lanes * cells], lanes) + right
        sums[1] += right
    return sums


def _fold(sums: NDArray[Any], lanes: int) -> Ints:
    folded: Ints = sums.astype(np.int64).reshape(lanes, -1).sum(axis=0)
    return folded


def _whole(high: Ints, low: Ints) -> list[int]:
    """Sums of confidences in units of 2⁻⁵⁸; Python's integers, since they do not fit in 64 bits."""
    return [int(h) * _SCALE + int(w) for h, w in zip(high, low, strict=True)]


# --- equal width ------------------------------------------------------------------------------------


def tally_width(confidence: Floats, correct: Bools, bins: int) -> Ints:
    """(4, M) exact sums per bin of equal width; sums of such arrays are the sums of the rows."""
    return _tally(confidence, correct, lambda c, cell, a, b: _bin_into(c, bins, cell, a, b), bins)


def width_table(sums: Ints) -> BinTable:
    """The table of the exact sums (4, M) from `tally_width`, each entry correctly rounded."""
    bins = sums.shape[1]
    edges = bin_edges(bins)
    count, hits = sums[0], sums[1]
    totals = _whole(sums[2], sums[3])
    residual = np.array([(int(hit) * _UNIT - total) / _UNIT for hit, total in zip(hits, totals, strict=True)])
    mean = np.array([total / (int(c) * _UNIT) if c else math.nan for total, c in zip(totals, count, strict=True)])
    accuracy = np.divide(hits, count, out=np.full(bins, math.nan), where=count > 0)
    return BinTable(edges[:-1], edges[1:], count.copy(), mean, accuracy, residual)


# --- equal mass -------------------------------------------------------------------------------------


def ordered(scores: Floats, correct: Bools) -> tuple[Floats, Bools]:
    """Scores in [0, 1] ascending, and their correctness; within equal scores the wrong ones first.

    The result is a function of the *set* of rows alone. A non-negative double orders like its bits, and below
    2 its top bits are free: with the correctness as the lowest bit one plain sort replaces an argsort and
    two gathers.
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
    """Rows sorted by confidence, with exact sums over the first i of them, i = 0..n.

    Shapes: ``confidence (n,)``; ``sums (3, n + 1)``: hits, high and low parts of the confidences.
    """

    confidence: Floats
    sums: Ints

    @classmethod
    def of(cls, confidence: Floats, correct: Bools) -> SortedRows:
        """Sort the rows and add them up."""
        c, hit = ordered(confidence, correct)
        high, low = np.empty_like(c), np.empty_like(c)
        _split_into(c, high, low)
        sums = np.zeros((3, len(c) + 1), np.int64)
        for line, part in zip(sums, (hit, high * _HIGH, low * _LOW), strict=True):
            np.cumsum(part.astype(np.int64), out=line[1:])
        return cls(c, sums)

    def below(self, ranks: Ints) -> tuple[Floats, Ints]:
        """Hits (m,) and parts of the confidences (2, m) summed over the rows of rank below each of ``ranks``.

        Inside a group of equal confidences the hits grow linearly with the rank: that is what giving each
        row the mean of its group comes to.
        """
        at = np.minimum(ranks, len(self.confidence) - 1)
        value = self.confidence[at]
        start = np.searchsorted(self.confidence, value, "left")
        end = np.searchsorted(self.confidence, value, "right")
        hits = self.sums[0]
        return hits[start] + (ranks - start) * ((hits[end] - hits[start]) / (end - start)), self.sums[1:, ranks]

    def table(self, cuts: Ints) -> BinTable:
        """The table of the rows cut at the given ranks (m + 1,), first 0 and last n."""
        c = self.confidence
        hits, parts = self.below(cuts)
        return _cut_table(c[cuts[:-1]], c[cuts[1:] - 1], cuts, hits, parts)


def _cut_table(lower: Floats, upper: Floats, cuts: Ints, hits: Floats, parts: Ints) -> BinTable:
    count, hit = np.diff(cuts), np.diff(hits)
    totals = np.array([total / _UNIT for total in _whole(*np.diff(parts))])
    return BinTable(lower, upper, count, totals / count, hit / count, hit - totals)


# Buckets for finding ranks without a full sort: by exponent and first seven bits of 1 − c, so that confidences
# crowded at 1 still spread out. 2^-53 is the smallest 1 − c above 0.
_SHIFT = 45
_TOP_BUCKET = int(np.float64(1.0).view(np.int64) >> _SHIFT)
_BUCKETS = _TOP_BUCKET - int(np.float64(2.0**-53).view(np.int64) >> _SHIFT) + 2


def mass_table(confidence: Floats, correct: Bools, bins: int) -> BinTable:
    """The table of ``bins`` bins of equal mass; with fewer rows than bins, of one bin per row.

    Only the buckets beside a cut are sorted; the others are only summed.
    """
    n = len(confidence)
    bucket = np.empty(n, np.int16)
    filled = 0

    def bucket_into(c: Floats, cell: Ints, spare: Floats, _: Floats) -> None:
        nonlocal filled
        np.right_shift(np.subtract(1.0, c, out=spare).view(np.int64), _SHIFT, out=cell)
        np.subtract(_TOP_BUCKET, cell, out=cell)
        np.minimum(cell, _BUCKETS - 1, out=cell)
        bucket[filled : filled + len(c)] = cell
        filled += len(c)

    cuts = np.unique(np.arange(bins + 1) * n // bins)
    sums = _tally(confidence, correct, bucket_into, _BUCKETS)
    # Beside each cut: the bucket of the row before it, and of the row after it.
    ends = np.cumsum(sums[0])
    before = np.searchsorted(ends, np.maximum(cuts - 1, 0), "right")
    after = np.searchsorted(ends, np.minimum(cuts, n - 1), "right")
    chosen = np.zeros(_BUCKETS, np.bool_)
    chosen[before] = chosen[after] = True
    rows = np.flatnonzero(np.take(chosen, bucket))  # twice as fast as indexing
    members = SortedRows.of(confidence[rows], correct[rows])
    # A rank among the members is the rank less the rows of other buckets below it.
    passed = np.cumsum(np.where(chosen, 0, sums), axis=1)
    ranks = cuts - passed[0, after]
    hits, parts = members.below(ranks)
    lower, upper = members.confidence[ranks[:-1]], members.confidence[(cuts - 1 - passed[0, before])[1:]]
    return _cut_table(lower, upper, cuts, hits + passed[1, after], parts + passed[2:, after])
