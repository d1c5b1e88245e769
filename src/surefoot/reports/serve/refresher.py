"""Keeps what browsers are told up to date: one thread that looks, reads what changed, and rings.

Requests never cause work beyond "somebody is looking": they are given what was made last. Looking and making each take
a bounded share of one core, however many runs there are: the next turn waits as long as the last one was dear.
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
# Nobody has asked for this many seconds: nothing is made until somebody does.
_INTEREST = 40.0
# At most so many runs under way are listed one by one.
_LISTED = 50


@dataclass(frozen=True)
class State:
    """What a browser may be told: the data as gzip with their tag, and the progress as JSON."""

    data: bytes
    tag: str
    progress: str


class Refresher:
    """Watches ``folder``; ``make(stamps)`` gives the page's data, a JSON object, as these folders hold them.

    ``note`` is told, once each, what went wrong while reading; the last good data stay.
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
        """Begin; ``ring`` is called, from the refresher's thread, whenever ``state`` is a new one."""
        self._ring = ring
        self.ask()  # whoever starts a server looks at it soon
        # A daemon: Ctrl-C must not wait until a thousand journals are read.
        threading.Thread(target=self._keep, name="refresher", daemon=True).start()

    def stop(self) -> None:
        """End soon, and wake those who listen, so that they notice."""
        self._stopped.set()
        self._wake.set()
        self._ring()

    @property
    def stopped(self) -> bool:
        """Whether it was told to end."""
        return self._stopped.is_set()

    def ask(self) -> bool:
        """Somebody is looking. True if newer data than ``state`` are about to come, and worth waiting for."""
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
        """Look, read what changed if somebody wants it, ring; the seconds until the next turn is due."""
        first, start = self._runs is None, time.thread_time()
        try:
            changed = self._look()
        except Exception as error:  # whatever a folder may hold: the others go on being shown
            self._complain("cannot look at the runs", error)
            changed = False
        cost = time.thread_time() - start
        if changed and self.state is not None:
            self.state = State(self.state.data, self.state.tag, canonical(self._told()))
        due = self._due()
        if due:
            self._make_data()
        if due or changed:  # also if nothing could be made: somebody may be waiting to be told
            self._ring()
        # The first look, at everything, says nothing about the next.
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
            # The data carry their tag, by which a page knows that it has them. Level 1: on loopback time matters most.
            data = gzip.compress(b'{"tag":"%b",%b' % (tag.encode(), raw[1:]), 1, mtime=0)
        except Exception as error:  # whatever a file may hold: the last good data stay
            self._complain("cannot read the runs", error)
        else:
            self.state, self._stale = State(data, tag, canonical(self._told())), False
        finally:
            # The first time everything is read; the next time only what has changed.
            cost = 0.0 if first else time.thread_time() - start
            self._next = time.monotonic() + max(_LOOKS * self._period, cost / _MAKE_SHARE)

    def _told(self) -> dict[str, Any]:
        going = {name: each for name, each in self._progress.items() if each["outcome"] == "unfinished"}
        latest = sorted(going, key=lambda name: going[name]["seen"] or 0.0, reverse=True)[:_LISTED]
        return {
            "ended": sum(each["outcome"] not in ("unfinished", "tracked") for each in self._progress.values()),
            "unfinished": len(going),
            "runs": [{"run": name, **going[name]} for name in sorted(latest)],
        }

    def _complain(self, what: str, error: Exception) -> None:
        text = f"{what}: {type(error).__name__}: {error}"
        if text not in self._noted and len(self._noted) < 100:
            self._noted.add(text)
            self._note(text)
