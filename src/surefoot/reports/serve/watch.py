"""The runs in a folder and their changes, by a few system calls per run; no file is opened.

The time of a folder changes when a file in the folder appears, disappears or is replaced. A run that has ended
therefore costs one call; an unfinished run costs one more call for each growing file. Links are never followed: every
shown run is inside the given folder.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from surefoot.runs.records import ARRAYS, JOURNAL, TIMINGS

__all__ = ["Stamp", "Watch", "is_run"]

# Name, size and time of every file of a folder.
Stamp = tuple[tuple[str, int, int], ...]

_GROWING = (JOURNAL, ARRAYS)
# Weights and timings change without new data for the page.
_DATA, _NO_DATA = (".json", ".jsonl", ".toml", ".txt"), (TIMINGS,)
# Folder / study / runs / run, and some more.
_DEEPEST = 5
# Nanoseconds. Clocks of file systems are coarse: a folder that changed just before its listing is listed again.
_COARSE = 2_000_000_000


@dataclass(frozen=True)
class _Listing:
    """A folder as listed: its folders and its files of data."""

    mark: tuple[int, int]
    settled: bool
    inner: tuple[str, ...]
    files: tuple[str, ...]


class Watch:
    """Watches a run, a study, or any tree of both.

    Args:
        root: the folder.
        clock: clock in nanoseconds, which tests replace.
    """

    def __init__(self, root: Path, clock: Callable[[], int] = time.time_ns) -> None:
        self._root, self._clock = str(root.resolve()), clock
        self._known: dict[str, tuple[_Listing, Stamp]] = {}

    def look(self) -> dict[str, Stamp]:
        """Read the stamp of every folder with data.

        Returns:
            The stamps by path inside the root; ``"."`` is the root itself.
        """
        before, self._known = self._known, {}
        stamps: dict[str, Stamp] = {}
        self._visit(self._root, ".", 0, before, stamps)
        return stamps

    def _visit(
        self, path: str, name: str, depth: int, before: dict[str, tuple[_Listing, Stamp]], stamps: dict[str, Stamp]
    ) -> None:
        try:
            now = os.stat(path, follow_symlinks=False)
            if not stat.S_ISDIR(now.st_mode):
                return
            listing, stamp = before.get(name, (None, ()))
            if listing is None or not listing.settled or listing.mark != (now.st_mtime_ns, now.st_ino):
                listing = _listed(path, now, self._clock())
                stamp = _stamped(path, listing.files, ())
            elif JOURNAL in listing.files and "result.json" not in listing.files:
                stamp = _stamped(path, _GROWING, stamp)
        except OSError:  # deleted since its name was read, or not readable
            return
        self._known[name] = listing, stamp
        if stamp:
            stamps[name] = stamp
        if not is_run(stamp) and depth < _DEEPEST:
            for inner in listing.inner:
                self._visit(f"{path}/{inner}", inner if name == "." else f"{name}/{inner}", depth + 1, before, stamps)


def is_run(stamp: Stamp) -> bool:
    """Check whether a folder is the folder of a run or of a tracker.

    Args:
        stamp: stamp of the folder.

    Returns:
        True if the stamp has a spec or a journal.
    """
    return any(name in ("spec.json", JOURNAL) for name, _, _ in stamp)


def _listed(path: str, now: os.stat_result, clock: int) -> _Listing:
    inner, files = [], []
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                inner.append(entry.name)
            elif entry.is_file(follow_symlinks=False) and entry.name not in _NO_DATA and entry.name.endswith(_DATA):
                files.append(entry.name)
    settled = abs(clock - now.st_mtime_ns) > _COARSE
    return _Listing((now.st_mtime_ns, now.st_ino), settled, tuple(sorted(inner)), tuple(sorted(files)))


def _stamped(path: str, names: tuple[str, ...], before: Stamp) -> Stamp:
    """``before`` with the current sizes and times of these files; deleted files are left out."""
    stamp = {entry[0]: entry for entry in before}
    for name in names:
        try:
            now = os.stat(f"{path}/{name}", follow_symlinks=False)
        except OSError:
            stamp.pop(name, None)
        else:
            stamp[name] = (name, now.st_size, now.st_mtime_ns)
    return tuple(sorted(stamp.values()))
