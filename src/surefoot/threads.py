"""Work on ranges of rows in threads: numpy releases the interpreter's lock inside its loops."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

__all__ = ["cores", "one_thread", "run_ranges", "split_range"]

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


_LOCK = threading.Lock()
_limited = 0  # how many blocks of `one_thread` are open, in all threads
_restore = ExitStack()
_pools: Any = None


@contextmanager
def one_thread(worthwhile: bool = True) -> Iterator[None]:
    """Limit linear algebra and torch to one thread inside of a block.

    Threads that wait for one another between thousands of small operations cost up to fifteen times the work itself.

    Args:
        worthwhile: whether to limit the threads; otherwise the block does nothing.

    Yields:
        None.

    Example:
        >>> with one_thread():
        ...     total = sum(range(3))
    """
    if not worthwhile:
        yield
        return
    global _limited
    with _LOCK:
        _limited += 1
        if _limited == 1:
            _limit()
    try:
        yield
    finally:
        with _LOCK:
            _limited -= 1
            if _limited == 0:
                _restore.close()


def _limit() -> None:
    """Set all limits; `_restore` resets them."""
    global _pools
    if _pools is None:
        from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

        _pools = ThreadpoolController()
    torch = sys.modules.get("torch")
    if torch is not None:
        _restore.callback(torch.set_num_threads, torch.get_num_threads())
    _restore.enter_context(_pools.limit(limits=1))
    if torch is not None:
        torch.set_num_threads(1)
