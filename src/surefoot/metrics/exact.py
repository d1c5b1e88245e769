"""Sums of confidences per cell that are exact, so that neither order nor split of the rows can change them.

A confidence is kept as whole multiples of 2⁻²⁰ and of 2⁻⁵⁷, each summed in a 64-bit integer. Only a confidence
below 1/16 has bits beyond that grid; it is moved by at most 2⁻⁵⁸. `carry` keeps the low sums small, so that the
same rows give the same integers, and 2⁴² rows fit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["UNIT", "CellInto", "Cells", "carry", "cell_sums", "parts_as_ints", "split_into_parts", "whole_sums"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Cells = NDArray[np.int32]
Bools = NDArray[np.bool_]
CellInto = Callable[[int, Floats, Cells, Floats, Floats], None]

UNIT = 1 << 57
_HIGH = 2.0**20
_SCALE_BITS = 37  # 2^37 multiples of 2^-57 in one of 2^-20
# Adding and subtracting 1.5·2^(52−b) rounds a double below 1 to a multiple of 2^-b.
_ROUND_HIGH, _ROUND_LOW = 1.5 * 2.0**32, 1.5 * 2.0**-5
# Rows in a block: its buffers stay in a core's cache, and float64 sums over it are exact: a row's weight is its high
# part plus 2^17, so that one sum holds both the count and the high parts (16 + 17 + 20 = 53 bits).
_BLOCK = 1 << 16
_COUNT = 2.0**17


def split_into_parts(c: Floats, high: Floats, low: Floats) -> None:
    """Write the multiples of 2⁻²⁰ and of 2⁻⁵⁷ that sum to ``c``."""
    np.add(c, _ROUND_HIGH, out=high)
    high -= _ROUND_HIGH
    np.subtract(c, high, out=low)
    if c.min() < 0.0625:
        low += _ROUND_LOW
        low -= _ROUND_LOW


def parts_as_ints(high: Floats, low: Floats) -> tuple[Ints, Ints]:
    """The parts as whole numbers of their units."""
    return (high * _HIGH).astype(np.int64), (low * UNIT).astype(np.int64)


def carry(high: Ints, low: Ints) -> None:
    """Move what is whole in units of the high sums there, in place: equal sums then have equal parts."""
    over = low >> _SCALE_BITS
    high += over
    low -= over << _SCALE_BITS


def whole_sums(high: Ints, low: Ints) -> list[int]:
    """Sums of confidences in units of 2⁻⁵⁷; Python's integers, since they do not fit in 64 bits."""
    return [(int(h) << _SCALE_BITS) + int(w) for h, w in zip(high, low, strict=True)]


def cell_sums(confidence: Floats, correct: Bools, cell_into: CellInto, cells: int) -> Ints:
    """(4, cells) exact sums over the rows of each cell: rows, hits, high and low parts of the confidences.

    ``cell_into(begin, c, cell, spare, spare)`` writes the cells of the rows from ``begin`` on. The work goes
    through the same few buffers block after block, since fresh memory costs more than the arithmetic. One
    thread: sums per cell do not let go of the interpreter's lock.
    """
    # Confidences crowd in one cell, and each addition to it waits for the one before; four copies of a small
    # table, used in turn, do not wait. Rows that were right have copies of their own.
    lanes = 4 if cells <= 64 else 1
    width = lanes * cells
    sums = np.zeros((3, 2, cells), np.int64)
    lane = np.arange(min(_BLOCK, len(confidence)), dtype=np.int32) % lanes * cells
    block = None
    for at in range(0, len(confidence), _BLOCK):
        c = confidence[at : at + _BLOCK]
        if block is None or len(block.cell) != len(c):
            block = _Block(len(c), 2 * width)
        cell_into(at, c, block.cell, block.high, block.low)
        np.copyto(block.hit, correct[at : at + len(c)])
        block.hit *= width
        block.cell += block.hit
        if lanes > 1:
            block.cell += lane[: len(c)]
        split_into_parts(c, block.high, block.low)
        block.high += _COUNT
        packed, low = block.sums()
        count = np.floor(packed / _COUNT)
        parts = np.stack([count, (packed - count * _COUNT) * _HIGH, low * UNIT]).astype(np.int64)
        sums += parts.reshape(3, 2, lanes, cells).sum(axis=2)
        carry(sums[1], sums[2])
    counts, highs, lows = sums
    whole = np.stack([counts.sum(axis=0), counts[1], highs.sum(axis=0), lows.sum(axis=0)])
    carry(whole[2], whole[3])
    return whole


class _Block:
    """Buffers for a block of rows, and the sums of two of them per cell.

    A sparse matrix with the buffer as its only column, times [1], is that sum; unlike ``bincount`` it takes 32-bit
    cells, and is faster.
    """

    def __init__(self, rows: int, cells: int) -> None:
        from scipy.sparse import csc_array

        self.high, self.low = np.empty(rows), np.empty(rows)
        self.cell, self.hit = np.zeros(rows, np.int32), np.empty(rows, np.int32)
        self._cells, self._one = cells, np.ones(1)
        column = np.array([0, rows], np.int32)
        self._columns = [
            csc_array((part, self.cell, column), shape=(cells, 1), copy=False) for part in (self.high, self.low)
        ]

    def sums(self) -> list[Floats]:
        """The sums (cells,) of ``high`` and of ``low``."""
        if self.cell.view(np.uint32).max() >= self._cells:  # the product itself does not look
            raise AssertionError(f"a cell is outside 0..{self._cells - 1}; confidences must be in [0, 1]")
        return [column @ self._one for column in self._columns]
