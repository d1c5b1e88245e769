"""Keeps the data for browsers up to date: one thread looks at the folder, reads changed runs, and rings a bell.

A request causes no work except a note that a browser is watching; a request receives the last data. Looking and
computing take a bounded share of one core, for any number of runs: the pause grows with the cost of the last turn.
"""

from __future__ import annotations

import gzip
import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.reports.serve.watch import Stamp, Watch, is_run
from surefoot.runs.reader import RunReader
from surefoot.runs.records import canonical

__all__ = ["Refresher", "State"]

# Seconds between two looks, at least; and how many looks between two makings: a page that is drawn anew every second
# is no joy.
_PERIOD, _LOOKS = 1.0, 3
# At most a fiftieth of a core for looking, a tenth for making the data while somebody watches.
_LOOK_SHARE, _MAKE_SHARE = 0.02, 0.1
# After this many seconds without a request, no data are computed until the next request.
_INTEREST = 40.0
# At most this number of unfinished runs is listed one by one.
_LISTED = 50


@dataclass(frozen=True)
class State:
    """The current state for browsers.

    Attributes:
        data: the data as gzip.
        tag: tag of the data.
        progress: the progress as JSON.
    """

    data: bytes
    tag: str
    progress: str


class Refresher:
    """Watches a folder and computes the page's data.

    Attributes:
        state: the current state; None before the first data.

    Args:
        folder: the folder.
        make: function from the stamps of the folders to the page's data, a JSON object.
        note: receives every different error while reading once; the last good data stay.
        period: minimum number of seconds between two looks.
    """

    def __init__(
        self,
        folder: Path,
        make: Callable[[dict[str, Stamp]], bytes],
        note: Callable[[str], None] = lambda text: None,
        period: float = _PERIOD,
    ) -> None:
        self._folder, self._make, self._note, self._period = folder.resolve(), make, note, period
        self._watch = Watch(folder)
        self._runs: dict[str, Stamp] | None = None
        self._progress: dict[str, dict[str, Any]] = {}
        self._stale = False
        self._asked = -_INTEREST
        self._next = 0.0
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._ring: Callable[[], None] = lambda: None
        self._noted: set[str] = set()
        self.state: State | None = None

    def start(self, ring: Callable[[], None]) -> None:
        """Start the thread.

        Args:
            ring: function that the thread calls whenever ``state`` changes.
        """
        self._ring = ring
        self.ask()  # the user of a new server opens the page soon
        # A daemon: Ctrl-C must not wait until a thousand journals are read.
        threading.Thread(target=self._keep, name="refresher", daemon=True).start()

    def stop(self) -> None:
        """Stop the thread soon, and wake listeners so that they notice."""
        self._stopped.set()
        self._wake.set()
        self._ring()

    @property
    def stopped(self) -> bool:
        """Whether the refresher was told to stop."""
        return self._stopped.is_set()

    def ask(self) -> bool:
        """Note that a browser is watching.

        Returns:
            True if newer data than ``state`` will be ready soon, so that waiting is worthwhile.
        """
        now = time.monotonic()
        cold, self._asked = now - self._asked > _INTEREST, now
        if cold:
            self._wake.set()
        return self.state is None or (self._stale and now >= self._next)

    def _keep(self) -> None:
        while not self.stopped:
            pause = self.turn()
            self._wake.wait(pause)
            self._wake.clear()

    def turn(self) -> float:
        """Look at the folder, read changed runs if a browser is watching, and ring the bell.

        Returns:
            Seconds until the next turn.
        """
        first, start = self._runs is None, time.thread_time()
        try:
            changed = self._look()
        except Exception as error:  # any error of one folder: other folders are still shown
            self._complain("cannot look at the runs", error)
            changed = False
        cost = time.thread_time() - start
        if changed and self.state is not None:
            self.state = State(self.state.data, self.state.tag, canonical(self._progress_of_runs()))
        due = self._due()
        if due:
            self._make_data()
        if due or changed:  # also after an error: a browser may be waiting
            self._ring()
        # The first look reads everything, so that its cost does not predict the next cost.
        return self._period if first else max(self._period, cost / _LOOK_SHARE)

    def _look(self) -> bool:
        runs = self._watch.look()
        if runs == self._runs:
            return False
        before, self._runs = self._runs or {}, runs
        self._progress = {
            name: self._progress[name] if before.get(name) == stamp else RunReader(self._folder / name).progress()
            for name, stamp in runs.items()
            if is_run(stamp)
        }
        self._stale = True
        return True

    def _due(self) -> bool:
        now = time.monotonic()
        return self._stale and now >= self._next and now - self._asked <= _INTEREST

    def _make_data(self) -> None:
        first, start = self.state is None, time.thread_time()
        try:
            raw = self._make(dict(self._runs or {}))
            tag = hashlib.sha256(raw).hexdigest()[:32]
            # The data contain their tag, so that a page knows which data it has. Level 1: on loopback, time matters.
            data = gzip.compress(b'{"tag":"%b",%b' % (tag.encode(), raw[1:]), 1, mtime=0)
        except Exception as error:  # any error of a file: the last good data stay
            self._complain("cannot read the runs", error)
        else:
            self.state, self._stale = State(data, tag, canonical(self._progress_of_runs())), False
        finally:
            # The first time all runs are read; later only the changed runs.
            cost = 0.0 if first else time.thread_time() - start
            self._next = time.monotonic() + max(_LOOKS * self._period, cost / _MAKE_SHARE)

    def _progress_of_runs(self) -> dict[str, Any]:
        going = {name: run for name, run in self._progress.items() if run["outcome"] == "unfinished"}
        latest = sorted(going, key=lambda name: going[name]["seen"] or 0.0, reverse=True)[:_LISTED]
        return {
            "ended": sum(run["outcome"] not in ("unfinished", "tracked") for run in self._progress.values()),
            "unfinished": len(going),
            "runs": [{"run": name, **going[name]} for name in sorted(latest)],
        }

    def _complain(self, what: str, error: Exception) -> None:
        text = f"{what}: {type(error).__name__}: {error}"
        if text not in self._noted and len(self._noted) < 100:
            self._noted.add(text)
            self._note(text)
