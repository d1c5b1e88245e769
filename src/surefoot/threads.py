"""Work on ranges of rows in threads: numpy releases the interpreter's lock inside its loops."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["cores", "run_ranges", "split_range"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """Return the number of cores that this process may use.

    Returns:
        The size of the process's CPU affinity set, or the number of cores where the system has no such set.
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def split_range(n: int, parts: int) -> list[tuple[int, int]]:
    """Split 0..n into contiguous ranges whose sizes differ by at most one.

    Args:
        n: number of rows.
        parts: number of ranges, at least 1.

    Returns:
        ``parts`` pairs (begin, end), in order; the end is exclusive.

    Example:
        >>> split_range(7, 3)
        [(0, 2), (2, 4), (4, 7)]
    """
    bounds = [n * part // parts for part in range(parts + 1)]
    return list(itertools.pairwise(bounds))


def run_ranges(function: Callable[[Item], Result], items: list[Item], worthwhile: bool) -> list[Result]:
    """Call a function on every item, in threads if that pays.

    Args:
        function: called with one item at a time; must be safe to call from several threads.
        items: the items.
        worthwhile: whether the work is large enough for threads; then all cores are used.

    Returns:
        The results, in the order of the items.

    Example:
        >>> run_ranges(abs, [-1, 2, -3], worthwhile=False)
        [1, 2, 3]
    """
    workers = min(cores(), len(items))
    if not worthwhile or workers < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, items))
