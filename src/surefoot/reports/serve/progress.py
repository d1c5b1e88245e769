"""How far a run has come and when it will end, from the ends of its files; nothing in them is trusted."""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics
from pathlib import Path
from typing import Any, TypeGuard

from surefoot.errors import BadInput
from surefoot.files import open_file
from surefoot.training.journal import JOURNAL, TIMINGS
from surefoot.training.records import Record, decode, decode_nonfinite

__all__ = ["progress"]

# A line is one or two kilobytes; this many bytes hold the last dozens.
_TAIL = 1 << 16
# A spec, its facts or a result of more than this is none of ours.
_LARGEST = 1 << 20
# How many of the last readings tell the pace.
_RECENT = 20


def progress(place: Path) -> dict[str, Any]:
    """Outcome, step, steps (None if unknown), seconds since 1970 of the last reading and of the end (None if unknown).

    Without a result the outcome is ``"unfinished"``, or ``"tracked"`` where there is no spec to tell the end. The pace
    is the median over the gaps between readings, so that a night between two sessions does not count.
    """
    spec, result = _table(place / "spec.json"), _table(place / "result.json")
    records = _tail(place / JOURNAL, 2)  # the last line may be torn
    step = result.get("step", records[-1].get("step") if records else 0)
    found: dict[str, Any] = {
        "outcome": str(result.get("outcome", "unfinished" if spec else "tracked"))[:40],
        "step": step if _whole(step) else 0,
        "steps": _steps(place, spec),
        "seen": None,
        "ends": None,
    }
    if not result:
        clock = [(each["step"], each["time"]) for each in _tail(place / TIMINGS, _RECENT) if _timed(each)]
        found |= _forecast(clock, found["step"], found["steps"])
    return found


def _forecast(clock: list[tuple[int, float]], step: int, steps: int | None) -> dict[str, float]:
    """When the last reading was taken and when the run will end; ``clock`` holds (step, time) pairs."""
    if not clock:
        return {}
    seen = {"seen": clock[-1][1]}
    # A resumed run repeats steps: only where both went forwards was there training.
    pace = [
        (time - before) / (at - last)
        for (last, before), (at, time) in itertools.pairwise(clock)
        if at > last and time > before
    ]
    if not pace or steps is None or step > steps:
        return seen
    ends = clock[-1][1] + statistics.median(pace) * (steps - step)
    return seen | ({"ends": ends} if math.isfinite(ends) else {})


def _steps(place: Path, spec: dict[str, Any]) -> int | None:
    """How many steps the spec asks for; epochs are counted by the number of training examples in the facts."""
    stop = _inner(spec, "stop")
    steps, epochs, batch = stop.get("steps"), stop.get("epochs"), stop.get("batch")
    if _whole(steps):
        return steps
    rows = _inner(_table(place / "facts.json"), "data").get("train")
    if not _whole(epochs) or not _whole(rows):
        return None
    # As surefoot.training.loop.Batches counts: a last batch that would be smaller is left out.
    return epochs * (max(1, rows // batch) if _whole(batch) and batch else 1)


def _whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _timed(record: Record) -> bool:
    time = record.get("time")
    return _whole(record.get("step")) and isinstance(time, float) and 0 <= time < 1e11


def _inner(table: dict[str, Any], key: str) -> dict[str, Any]:
    found = table.get(key)
    return found if isinstance(found, dict) else {}


def _table(path: Path) -> dict[str, Any]:
    raw, whole = _end(path, _LARGEST)
    try:
        found = decode_nonfinite(json.loads(raw)) if whole else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _tail(path: Path, count: int) -> list[Record]:
    """The unharmed records among the last ``count`` lines of a file; a line cut off by where we began is none."""
    found = (decode(line) for line in _end(path, _TAIL)[0].splitlines(keepends=True)[-count:])
    return [record for record in found if record is not None]


def _end(path: Path, most: int) -> tuple[bytes, bool]:
    """The last ``most`` bytes of a file, and whether they are all; nothing where it cannot be read."""
    try:
        with open_file(path) as stream:
            start = max(0, stream.seek(0, os.SEEK_END) - most)
            stream.seek(start)
            return stream.read(most), start == 0
    except (OSError, BadInput):
        return b"", True
