"""Fewer readings that still show the same curves: the ends, every extreme, and what would be missed most."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

__all__ = ["downsample", "evenly"]

Floats = NDArray[np.float64]


def downsample(columns: Mapping[str, Floats], count: int) -> NDArray[np.int64]:
    """Rows (at most about ``count``) of ``columns``, (n,) each, that show all of them.

    First and last row stay, and the least and greatest value of every column, so that no peak is lost. The rest are
    taken greedily, as Douglas and Peucker (1973) do for one line: always the row that lies farthest from the chord
    between its kept neighbours, in the column where that is worst, as a share of the column's range. All columns keep
    the same rows, so that two of them can be drawn against each other.

    >>> downsample({"step": np.arange(9.0), "ece": np.array([0, 0, 0, 5.0, 0, 0, 0, 0, 0])}, 4).tolist()
    [0, 3, 4, 8]
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
    kept = {0, n - 1}
    kept.update(np.where(finite, values, np.inf).argmin(axis=0).tolist())
    kept.update(np.where(finite, values, -np.inf).argmax(axis=0).tolist())
    shape = np.where(finite, (values - low) / (high - low), np.nan)
    steps = np.asarray(columns["step"], dtype=np.float64)
    heap: list[tuple[float, int, int, int]] = []

    def look(first: int, last: int) -> None:
        if last - first < 2:
            return
        share = (steps[first + 1 : last] - steps[first]) / max(steps[last] - steps[first], 1e-300)
        chord = shape[first] + share[:, None] * (shape[last] - shape[first])
        # A gap has no distance from the chord, and a chord from a gap has none from anything.
        distance = np.nan_to_num(np.abs(shape[first + 1 : last] - chord), nan=0.0).max(axis=1, initial=0.0)
        worst = int(distance.argmax())
        heapq.heappush(heap, (-float(distance[worst]), first, first + 1 + worst, last))

    ends = sorted(kept)
    for first, last in itertools.pairwise(ends):
        look(first, last)
    while heap and len(kept) < count:
        _, first, middle, last = heapq.heappop(heap)
        kept.add(middle)
        look(first, middle)
        look(middle, last)
    return np.array(sorted(kept))


def evenly(total: int, count: int) -> list[int]:
    """At most ``count`` places among ``total``, evenly spaced, the last one always, the first if there is room.

    >>> evenly(10, 4), evenly(3, 9), evenly(5, 1)
    ([0, 3, 6, 9], [0, 1, 2], [4])
    """
    if count <= 1:
        return [total - 1] if total and count else []
    return sorted({round(place * (total - 1) / (min(count, total) - 1 or 1)) for place in range(min(count, total))})
