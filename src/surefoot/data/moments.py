"""Mean and standard deviation of stored examples, computed one block of rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["mean_and_std"]

_BLOCK = 1 << 20  # numbers that are float64 at a time; numpy does not split sums of fewer than 128 numbers

Floats = NDArray[np.float64]


def mean_and_std(examples: NDArray[Any], rows: NDArray[np.int64], per_channel: bool = False) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each feature, or of each channel (the last axis), over the chosen rows.

    The results are bit-exact those of ``x.mean`` and ``x.std`` of a float64 copy ``x``, for every block size. To that
    end numbers are added in numpy's order: one after another for several sums, pairwise for a single sum.

    Args:
        examples: Stored examples (m, ...), in C order.
        rows: Indices (n,) of the chosen examples.
        per_channel: Whether there is one mean per index of the last axis, instead of one per number of an example.

    Returns:
        Means and standard deviations, each float64 of the shape of an example or of its last axis.

    Example:
        >>> mean_and_std(np.array([[1, 4], [3, 4], [9, 9]]), np.array([0, 1]))
        (array([2., 4.]), array([1., 0.]))
    """
    shape = examples.shape[-1:] if per_channel else examples.shape[1:]
    kept = int(np.prod(shape))
    per_example = int(np.prod(examples.shape[1:])) // kept  # lines of ``kept`` numbers
    count = len(rows) * per_example

    def lines(start: int, stop: int) -> Floats:
        first = start // per_example
        block = examples[rows[first : -(-stop // per_example)]].reshape(-1, kept)
        return block[start - first * per_example : stop - first * per_example].astype(np.float64)

    def mean(of: Callable[[Floats], Floats]) -> Floats:
        total = _in_pairs(lines, of, 0, count) if kept == 1 else _in_order(lines, of, count, kept)
        return total / count

    centre = mean(lambda x: x)
    return centre.reshape(shape), np.sqrt(mean(lambda x: (x - centre) ** 2)).reshape(shape)


def _in_order(lines: Callable[[int, int], Floats], of: Callable[[Floats], Floats], count: int, kept: int) -> Floats:
    total = np.zeros(kept)
    size = max(1, _BLOCK // kept)
    for start in range(0, count, size):
        total = np.add.reduce(np.vstack([total, of(lines(start, min(count, start + size)))]), axis=0)
    return total


def _in_pairs(lines: Callable[[int, int], Floats], of: Callable[[Floats], Floats], start: int, stop: int) -> Floats:
    """Sum pairwise as numpy does, which splits a long sum in halves at a multiple of 8."""
    if stop - start <= _BLOCK:
        return np.asarray(np.add.reduce(of(lines(start, stop)), axis=0))
    half = (stop - start) // 2
    middle = start + half - half % 8
    return _in_pairs(lines, of, start, middle) + _in_pairs(lines, of, middle, stop)
