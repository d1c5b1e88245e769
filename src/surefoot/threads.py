"""Work on ranges of rows in threads: numpy lets go of the interpreter's lock inside its loops."""

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
    """Number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def split_range(n: int, parts: int) -> list[tuple[int, int]]:
    """``parts`` contiguous (begin, end) ranges that cover 0..n, of sizes that differ by one at most."""
    bounds = [n * part // parts for part in range(parts + 1)]
    return list(itertools.pairwise(bounds))


def run_ranges(function: Callable[[Item], Result], items: list[Item], worthwhile: bool) -> list[Result]:
    """``function`` of each item, in order; on all cores if the work is ``worthwhile``."""
    workers = min(cores(), len(items))
    if not worthwhile or workers < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, items))
