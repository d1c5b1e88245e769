"""Exact sums of weighted events per cell, which neither the order nor the split of the rows can change.

Weights are integers below 2⁴¹ (`Events.counts`), and probabilities and outcomes are multiples of 2⁻⁵⁷ as in
`surefoot.metrics.exact`. Their products have up to 98 bits. Both factors are cut into pieces of at most 21 bits, whose
products are summed exactly in float64 over as many rows as their size allows, and in Python's integers beyond.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surefoot.metrics.exact import UNIT
from surefoot.predictions import Events

__all__ = ["CellSums", "WeightedRows", "int_dot", "to_units", "weighted_sums"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_PIECE = 20  # bits
_MASK = (1 << _PIECE) - 1
_EXACT = 1 << 53  # sums of integers up to this are exact in float64
_ROWS = 1 << 15  # whose pieces stay in a core's cache


@dataclass(frozen=True)
class CellSums:
    """Sums over the events of each cell.

    Attributes:
        rows: (m,) number of events.
        weight: m integers Σ W.
        happened: m integers Σ W·y, in units of 2⁻⁵⁷.
        prob: m integers Σ W·c, in units of 2⁻⁵⁷.
        squares: (m,) Σ w² in float64.
        unit: the weight that a W of 1 stands for.
    """

    rows: Ints
    weight: list[int]
    happened: list[int]
    prob: list[int]
    squares: Floats
    unit: float


def weighted_sums(e: Events, cell: Ints, cells: int) -> CellSums:
    """Sum events per cell, exactly.

    Args:
        e: the events.
        cell: (n,) cell of each event, in 0..cells − 1.
        cells: number of cells m.

    Returns:
        The sums.

    Example:
        >>> e = Events([0.5, 0.25], [1, 0], weight=[3, 2])
        >>> sums = weighted_sums(e, np.array([0, 0]), 1)
        >>> sums.weight, sums.happened[0] / UNIT, sums.prob[0] / UNIT
        ([5], 3.0, 2.0)
    """
    counts, unit = e.counts()
    weights = e.weights
    return CellSums(
        rows=np.bincount(cell, minlength=cells),
        weight=int_dot(cell, cells, counts, np.ones(len(e), np.int64)),
        happened=int_dot(cell, cells, counts, to_units(e.happened)),
        prob=int_dot(cell, cells, counts, to_units(e.prob)),
        squares=np.bincount(cell, weights * weights, cells).astype(np.float64),
        unit=unit,
    )


def to_units(values: NDArray[np.generic]) -> Ints:
    """Numbers as multiples of 2⁻⁵⁷, to which the smallest of them are rounded.

    Args:
        values: (n,) numbers in [0, 1].

    Returns:
        (n,) integers from 0 to 2⁵⁷.
    """
    units: Ints = np.rint(np.asarray(values, np.float64) * float(UNIT)).astype(np.int64)
    return units


def int_dot(cell: Ints, cells: int, left: Ints, right: Ints) -> list[int]:
    """Sum the products of two integers per cell, exactly.

    Args:
        cell: (n,) cell of each row, in 0..cells − 1.
        cells: number of cells.
        left: (n,) integers from 0 to 2⁴⁰.
        right: (n,) integers from 0 to 2⁵⁷.

    Returns:
        One Python integer for each cell.

    Example:
        >>> [total >> 40 for total in int_dot(np.array([0, 1, 0]), 2, np.array([1 << 40] * 3), np.array([1, 3, 4]))]
        [5, 3]
    """
    totals = [0] * cells
    for begin in range(0, len(cell), _ROWS):
        part = slice(begin, begin + _ROWS)
        here = cell[part]
        lefts, rights = _pieces(left[part], 2), _pieces(right[part], 3)
        for (i, a), (j, b) in itertools.product(lefts, rights):
            product = a * b
            largest = int(product.max())
            if largest == 0:
                continue
            step = _EXACT // largest
            for at in range(0, len(product), step):
                sums = np.bincount(here[at : at + step], product[at : at + step], cells)
                for index in np.flatnonzero(sums).tolist():
                    totals[index] += int(sums[index]) << i + j
    return totals


def _pieces(values: Ints, pieces: int) -> list[tuple[int, Floats]]:
    """Pieces of 20 bits, the last with all that remains, each with its place; without pieces that are 0 in all rows."""
    parts = [(_PIECE * index, values >> _PIECE * index) for index in range(pieces)]
    parts[:-1] = [(place, part & _MASK) for place, part in parts[:-1]]
    return [(place, part.astype(np.float64)) for place, part in parts if part.any()]


class WeightedRows:
    """Weighted events sorted by probability, in groups of equal probability, with exact cumulative sums.

    Args:
        e: the events.

    Attributes:
        prob: (g,) probability of each group, in ascending order.
        start: (g + 1,) integer weight of the groups below.
        happened: (g + 1,) integer weight of the outcomes of the groups below.
        unit: the weight that an integer weight of 1 stands for.
    """

    def __init__(self, e: Events) -> None:
        counts, self.unit = e.counts()
        if int(counts.astype(object).sum()) >= 1 << 62:  # coarser steps, for more than 4 million rows of real weights
            counts, self.unit = np.maximum(counts >> 12, 1), self.unit * 4096
        self.prob, group = np.unique(e.prob, return_inverse=True)
        sums = [np.zeros(len(self.prob), np.int64) for _ in range(2)]
        np.add.at(sums[0], group, counts)
        happened = np.zeros(len(self.prob))
        if e.happened.dtype == np.bool_:
            np.add.at(sums[1], group, np.where(e.happened, counts, 0))
            happened = sums[1].astype(np.float64)
        else:
            np.add.at(happened, group, counts * e.happened)
        self.start = np.concatenate([[0], np.cumsum(sums[0])])
        self.happened = np.concatenate([[0.0], np.cumsum(happened)])
        self._units = to_units(self.prob).tolist()
        sizes = np.diff(self.start).tolist()
        products = (size * units for size, units in zip(sizes, self._units, strict=True))
        self._below = list(itertools.accumulate(products, initial=0))
        self._squares = np.bincount(group, e.weights**2)
        self._rows = np.bincount(group)

    def table_sums(self, bins: int) -> list[tuple[float, float, int, float, float, float, float, float]]:
        """Sum the rows of every bin of equal mass.

        Args:
            bins: number of bins M; with fewer units of weight than bins, every unit is a bin.

        Returns:
            For each bin: lowest and highest probability, number of rows, mean probability, mean outcome, Σ w (outcome −
            probability), Σ w and Σ w².
        """
        total = int(self.start[-1])
        cuts = sorted({index * total // bins for index in range(bins + 1)})
        rows = []
        for (a, hits_a, prob_a), (b, hits_b, prob_b) in itertools.pairwise((cut, *self.below(cut)) for cut in cuts):
            first = int(np.searchsorted(self.start, a, "right")) - 1
            last = int(np.searchsorted(self.start, b, "left")) - 1
            inside, hits, size = (prob_b - prob_a) / UNIT, hits_b - hits_a, b - a
            members = slice(first, last + 1)
            rows.append(
                (
                    float(self.prob[first]),
                    float(self.prob[last]),
                    int(self._rows[members].sum()),
                    inside / size,
                    hits / size,
                    (hits - inside) * self.unit,
                    size * self.unit,
                    float(self._squares[members].sum()),
                )
            )
        return rows

    def below(self, rank: int) -> tuple[float, int]:
        """Sum the rows below a rank; a group that the rank cuts counts as the mean of its rows.

        Args:
            rank: integer weight, from 0 to `total`.

        Returns:
            The outcomes, and the probabilities in units of 2⁻⁵⁷, both times the integer weights.
        """
        group = min(int(np.searchsorted(self.start, rank, "right")) - 1, len(self.prob) - 1)
        inside, size = rank - int(self.start[group]), int(self.start[group + 1] - self.start[group])
        hits = self.happened[group] + inside * ((self.happened[group + 1] - self.happened[group]) / size)
        return float(hits), self._below[group] + inside * self._units[group]
