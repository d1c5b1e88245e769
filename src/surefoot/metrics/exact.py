"""Exact sums of confidences per cell, which neither the order nor the split of the rows can change.

A confidence is split into a multiple of 2⁻²⁰ and a multiple of 2⁻⁵⁷; both are summed in 64-bit integers. Only a
confidence below 1/16 has bits beyond that grid; rounding to the grid moves it by at most 2⁻⁵⁸. `carry` keeps the low
sums small, so that the same rows give the same integers, and 2⁴² rows fit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["UNIT", "CellInto", "Cells", "carry", "cell_sums", "int_sums", "parts_as_ints", "split_into_parts"]

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
# Rows in a block: the buffers of a block stay in a core's cache, and float64 sums over a block are exact. A row's
# weight is its high part plus 2^17. One sum then holds both the count and the high parts (16 + 17 + 20 = 53 bits).
_BLOCK = 1 << 16
_COUNT = 2.0**17


def split_into_parts(c: Floats, high: Floats, low: Floats) -> None:
    """Split confidences into multiples of 2⁻²⁰ and of 2⁻⁵⁷ that sum to the confidences.

    Args:
        c: (n,) numbers in [0, 1], n >= 1.
        high: (n,) receives the multiples of 2⁻²⁰.
        low: (n,) receives the multiples of 2⁻⁵⁷.
    """
    np.add(c, _ROUND_HIGH, out=high)
    high -= _ROUND_HIGH
    np.subtract(c, high, out=low)
    if c.min() < 0.0625:
        low += _ROUND_LOW
        low -= _ROUND_LOW


def parts_as_ints(high: Floats, low: Floats) -> tuple[Ints, Ints]:
    """Convert parts to integers, in units of 2⁻²⁰ and of 2⁻⁵⁷.

    Args:
        high: (n,) multiples of 2⁻²⁰.
        low: (n,) multiples of 2⁻⁵⁷.

    Returns:
        (n,) high parts and (n,) low parts as integers.
    """
    return (high * _HIGH).astype(np.int64), (low * UNIT).astype(np.int64)


def carry(high: Ints, low: Ints) -> None:
    """Carry from the low sums into the high sums, in place: equal sums then have equal parts.

    Args:
        high: (m,) sums in units of 2⁻²⁰; modified.
        low: (m,) sums in units of 2⁻⁵⁷; modified to lie in [0, 2³⁷).
    """
    over = low >> _SCALE_BITS
    high += over
    low -= over << _SCALE_BITS


def int_sums(high: Ints, low: Ints) -> list[int]:
    """Combine high and low sums to sums in units of 2⁻⁵⁷.

    Args:
        high: (m,) sums in units of 2⁻²⁰.
        low: (m,) sums in units of 2⁻⁵⁷.

    Returns:
        m Python integers, which may exceed 64 bits.

    Example:
        >>> high, low = np.empty(1), np.empty(1)
        >>> split_into_parts(np.array([0.1]), high, low)
        >>> int_sums(*parts_as_ints(high, low))[0] / UNIT
        0.1
    """
    return [(int(h) << _SCALE_BITS) + int(w) for h, w in zip(high, low, strict=True)]


def cell_sums(confidence: Floats, correct: Bools, cell_into: CellInto, cells: int) -> Ints:
    """Sum the rows of every cell, exactly.

    All blocks of rows share a few buffers, because fresh memory costs more than the arithmetic. The function uses one
    thread: sums per cell do not release the interpreter's lock.

    Args:
        confidence: (n,) numbers in [0, 1].
        correct: (n,) whether the predicted class is the label.
        cell_into: called as ``cell_into(begin, c, cell, spare, spare)`` for a block of rows from ``begin`` on, with
            their confidences ``c``. It writes the rows' cells to ``cell`` and may use the ``spare`` buffers.
        cells: number of cells.

    Returns:
        (4, cells) integers: rows, hits, high and low parts of the confidences.
    """
    # Confidences crowd in one cell, and every addition to a cell waits for the previous addition. Four copies of a
    # small table, used in turn, avoid the wait. Correct rows have separate copies.
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
    total = np.stack([counts.sum(axis=0), counts[1], highs.sum(axis=0), lows.sum(axis=0)])
    carry(total[2], total[3])
    return total


class _Block:
    """Buffers for a block of rows, and the sums of two buffers per cell.

    A sparse matrix with a buffer as its only column, times [1], gives the sums of the buffer. Unlike ``bincount``, the
    product accepts 32-bit cells, and is faster.
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
        if self.cell.view(np.uint32).max() >= self._cells:  # the product itself does not check
            raise AssertionError(f"a cell is outside 0..{self._cells - 1}; confidences must be in [0, 1]")
        return [column @ self._one for column in self._columns]
