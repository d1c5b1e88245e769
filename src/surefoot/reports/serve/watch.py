"""Which runs a folder holds and what has changed, by a few system calls a run; no file is opened.

A folder's own time changes when a file in it appears, goes or is replaced, so a run that has ended costs one call, and
one that is under way costs one more for each file that grows in place. Links are never followed: what is shown lies
inside the folder that was named.
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

# What the files of a folder were when looked at: name, size and time of each.
Stamp = tuple[tuple[str, int, int], ...]

_GROWING = (JOURNAL, ARRAYS)
# Weights and clocks change without anything new to show.
_DATA, _NO_DATA = (".json", ".jsonl", ".toml", ".txt"), (TIMINGS,)
# Folder / study / runs / run, and some more.
_DEEPEST = 5
# Clocks of file systems are coarse: a folder listed this soon after its last change is listed again.
_COARSE = 2_000_000_000


@dataclass(frozen=True)
class _Listing:
    """A folder as it was listed: the folders and the files of data in it."""

    mark: tuple[int, int]
    settled: bool
    inner: tuple[str, ...]
    files: tuple[str, ...]


class Watch:
    """Looks at ``root``: a run, a study, or any tree of both."""

    def __init__(self, root: Path, clock: Callable[[], int] = time.time_ns) -> None:
        self._root, self._clock = str(root.resolve()), clock
        self._known: dict[str, tuple[_Listing, Stamp]] = {}

    def look(self) -> dict[str, Stamp]:
        """The stamp of every folder with data by its path inside the root (``"."`` is the root itself)."""
        before, self._known = self._known, {}
        found: dict[str, Stamp] = {}
        self._visit(self._root, ".", 0, before, found)
        return found

    def _visit(
        self, path: str, name: str, depth: int, before: dict[str, tuple[_Listing, Stamp]], found: dict[str, Stamp]
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
        except OSError:  # gone since its name was read, or not ours to read
            return
        self._known[name] = listing, stamp
        if stamp:
            found[name] = stamp
        if not is_run(stamp) and depth < _DEEPEST:
            for each in listing.inner:
                self._visit(f"{path}/{each}", each if name == "." else f"{name}/{each}", depth + 1, before, found)


def is_run(stamp: Stamp) -> bool:
    """Whether a folder with these files is a run's, or a tracker's."""
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
    """``before`` with the sizes and times of these files as they are now; a file that has gone is left out."""
    stamp = {each[0]: each for each in before}
    for name in names:
        try:
            now = os.stat(f"{path}/{name}", follow_symlinks=False)
        except OSError:
            stamp.pop(name, None)
        else:
            stamp[name] = (name, now.st_size, now.st_mtime_ns)
    return tuple(sorted(stamp.values()))
