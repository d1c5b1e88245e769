"""The one convention for bins, and the table of sums that numbers and plots both come from.

Equal width: bin j of M is (j/M, (j+1)/M], with 0 in the first bin; an edge *is* the float64 quotient j/M.
Equal mass: ranks 0..n−1 of the sorted confidences are cut at ⌊j·n/M⌋; rows of equal confidence share their
group's mean correctness, so a cut through a group does not depend on the order of the rows.

Sums are exact (`surefoot.metrics.exact`): they do not depend on the order of the rows, the split into batches or
the number of ranks, to the last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.metrics.exact import UNIT, Cells, cell_sums, parts_as_ints, split_into_parts, whole_sums
from surefoot.validation import check_int

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


def check_bins(bins: Any) -> int:
    """``bins`` as an int from 1 to 10,000 (more say nothing, and cost), or a clear error."""
    return check_int("bins", bins, 1, 10_000)


def bin_edges(bins: int) -> Floats:
    """(M + 1,) edges of M bins of equal width: the float64 quotients j/M."""
    edges: Floats = np.arange(bins + 1) / bins
    return edges


def bin_of(confidence: Floats, bins: int) -> Ints:
    """(n,) bin of equal width of each confidence: ``searchsorted`` (left) on the edges, ten times faster."""
    index = np.empty(len(confidence), np.int32)
    if len(confidence):
        _bin_into(confidence, bins, index, np.empty(len(confidence)), np.empty(len(confidence)))
    return index.astype(np.int64)


def _bin_into(c: Floats, bins: int, index: Cells, scaled: Floats, down: Floats) -> None:
    # The factor is a little below M, by more than the product rounds: no confidence is put above its bin, and one
    # just beyond an edge, put below, is found by its fraction; there the edges themselves decide.
    np.multiply(c, bins * (1 - 2.0**-50), out=scaled)
    np.floor(scaled, out=down)
    np.copyto(index, down, casting="unsafe")
    scaled -= down
    beside = 1 - bins * 2.0**-48
    if scaled.max() >= beside:
        near = np.flatnonzero(scaled >= beside)
        index[near] += c[near] > bin_edges(bins)[index[near] + 1]


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


# --- equal width ------------------------------------------------------------------------------------


def tally_width(confidence: Floats, correct: Bools, bins: int) -> Ints:
    """(4, M) exact sums per bin of equal width; sums of such arrays (carried) are the sums of all rows."""
    return cell_sums(confidence, correct, lambda _, c, cell, a, b: _bin_into(c, bins, cell, a, b), bins)


def width_table(sums: Ints) -> BinTable:
    """The table of the exact sums (4, M) from `tally_width`, each entry correctly rounded."""
    bins = sums.shape[1]
    edges = bin_edges(bins)
    count, hits = sums[0], sums[1]
    totals = whole_sums(sums[2], sums[3])
    residual = np.array([(int(hit) * UNIT - total) / UNIT for hit, total in zip(hits, totals, strict=True)])
    mean = np.array([total / (int(c) * UNIT) if c else math.nan for total, c in zip(totals, count, strict=True)])
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
        split_into_parts(c, high, low)
        sums = np.zeros((3, len(c) + 1), np.int64)
        for line, part in zip(sums, (hit, *parts_as_ints(high, low)), strict=True):
            np.cumsum(part, out=line[1:])
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
    totals = np.array([total / UNIT for total in whole_sums(*np.diff(parts))])
    return BinTable(lower, upper, count, totals / count, hit / count, hit - totals)


# Buckets for finding ranks without a full sort: by exponent and first seven bits of 1 − c, so that confidences
# crowded at 1 still spread out. 2^-53 is the smallest 1 − c above 0.
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
    """The table of ``bins`` bins of equal mass; with fewer rows than bins, of one bin per row.

    Only the buckets beside a cut are sorted; the rows between them are only summed.
    """
    n = len(confidence)
    cuts = np.unique(np.arange(bins + 1) * n // bins)
    bucket = _buckets(confidence)
    counts = np.bincount(bucket, minlength=_BUCKETS)
    # Beside each cut: the bucket of the row before it, and of the row after it.
    ends = np.cumsum(counts)
    before = np.searchsorted(ends, np.maximum(cuts - 1, 0), "right")
    after = np.searchsorted(ends, np.minimum(cuts, n - 1), "right")
    chosen = np.zeros(_BUCKETS, np.bool_)
    chosen[before] = chosen[after] = True
    # The rows of chosen buckets are stretch 0; the others fall into stretches, stretch i after i − 1 chosen buckets.
    place = np.cumsum(chosen)
    stretch = np.where(chosen, 0, place + 1).astype(np.int32)
    beside: list[Ints] = []

    def stretch_into(at: int, c: Floats, cell: Cells, *_: Floats) -> None:
        np.take(stretch, bucket[at : at + len(c)], out=cell, mode="clip")  # "raise" would take a buffer
        beside.append(np.flatnonzero(cell == 0) + at)

    sums = cell_sums(confidence, correct, stretch_into, int(place[-1]) + 2)
    rows = np.concatenate(beside)
    members = SortedRows.of(confidence[rows], correct[rows])
    # A rank among the members is the rank less the rows of the stretches below it.
    sums[:, 0] = 0
    passed = np.cumsum(sums, axis=1)[:, place]
    ranks = cuts - passed[0, after]
    hits, parts = members.below(ranks)
    lower, upper = members.confidence[ranks[:-1]], members.confidence[(cuts - 1 - passed[0, before])[1:]]
    return _cut_table(lower, upper, cuts, hits + passed[1, after], parts + passed[2:, after])
