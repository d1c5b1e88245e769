"""Fewer readings that show the same curves: the ends, every extreme, and the readings farthest from the chords."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

__all__ = ["downsample", "evenly"]

Floats = NDArray[np.float64]


def downsample(columns: Mapping[str, Floats], count: int) -> NDArray[np.int64]:
    """Choose rows of columns that show all curves.

    The first and last row stay, and the minimum and maximum of every column, so that no peak is lost. The other rows
    are chosen greedily, as Douglas and Peucker (1973) do for one line. The next row is the row farthest from the chord
    between its chosen neighbours, in the worst column, as a share of the column's range. All columns keep the same
    rows, so that two columns can be drawn against each other.

    Args:
        columns: arrays (n,) by name, with the key ``"step"``.
        count: number of rows to keep, roughly: the ends and extremes stay even if there are more.

    Returns:
        Indices of the rows, in increasing order.

    Example:
        >>> downsample({"step": np.arange(9.0), "ece": np.array([0, 0, 0, 5.0, 0, 0, 0, 0, 0])}, 4).tolist()
        [0, 3, 4, 8]

    References:
        Douglas & Peucker (1973), "Algorithms for the reduction of the number of points required to represent a
        digitized line or its caricature".
    """
    n = len(columns["step"])
    if n <= count:
        return np.arange(n)
    values = np.stack([column for name, column in columns.items() if name != "step"], axis=1)
    finite = np.isfinite(values)
    low = np.where(finite, values, np.inf).min(axis=0)
    high = np.where(finite, values, -np.inf).max(axis=0)
    moving = high > low  # false also for a column that is empty
    values, finite, low, high = values[:, moving], finite[:, moving], low[moving], high[moving]
    chosen = {0, n - 1}
    chosen.update(np.where(finite, values, np.inf).argmin(axis=0).tolist())
    chosen.update(np.where(finite, values, -np.inf).argmax(axis=0).tolist())
    shape = np.where(finite, (values - low) / (high - low), np.nan)
    steps = np.asarray(columns["step"], dtype=np.float64)
    heap: list[tuple[float, int, int, int]] = []

    def look(first: int, last: int) -> None:
        if last - first < 2:
            return
        share = (steps[first + 1 : last] - steps[first]) / max(steps[last] - steps[first], 1e-300)
        chord = shape[first] + share[:, None] * (shape[last] - shape[first])
        # A missing value has no distance from a chord, and a chord with a missing end has no distance from any value.
        distance = np.nan_to_num(np.abs(shape[first + 1 : last] - chord), nan=0.0).max(axis=1, initial=0.0)
        worst = int(distance.argmax())
        heapq.heappush(heap, (-float(distance[worst]), first, first + 1 + worst, last))

    ends = sorted(chosen)
    for first, last in itertools.pairwise(ends):
        look(first, last)
    while heap and len(chosen) < count:
        _, first, middle, last = heapq.heappop(heap)
        chosen.add(middle)
        look(first, middle)
        look(middle, last)
    return np.array(sorted(chosen))


def evenly(total: int, count: int) -> list[int]:
    """Choose evenly spaced places: the last place always, and the first place if ``count`` is at least 2.

    Args:
        total: number of places.
        count: maximum number of chosen places.

    Returns:
        The chosen places, in increasing order.

    Example:
        >>> evenly(10, 4), evenly(3, 9), evenly(5, 1)
        ([0, 3, 6, 9], [0, 1, 2], [4])
    """
    if count <= 1:
        return [total - 1] if total and count else []
    return sorted({round(place * (total - 1) / (min(count, total) - 1 or 1)) for place in range(min(count, total))})
