"""A run as its files tell, for pages and figures: what it is, how it ended, its columns; no torch, nothing trusted.

A file that is harmed costs what it held, and is named in the run's ``note``; the other runs are not touched by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surefoot.errors import BadInput
from surefoot.reports.columns import Columns, read_columns, whole_lines
from surefoot.reports.frames import sound_frame
from surefoot.reports.places import Place
from surefoot.spellings import current_keys
from surefoot.training.journal import ARRAYS, JOURNAL, TIMINGS
from surefoot.training.records import decode, read_json

__all__ = ["Frames", "RunFacts", "number", "read_frames", "read_run"]

_LARGEST = 1 << 20  # bytes of a small file; a larger one is no spec and no result
_NAME, _WORD = 300, 40  # letters of a method and of an outcome; what is longer is none
_DEEPEST = 32  # tables in tables; ours have three


@dataclass(frozen=True)
class RunFacts:
    """A run.

    ``outcome`` is finished, diverged, failed, unfinished, damaged, tracked (a `Tracker`'s folder: it has no end) or
    waiting (planned, not begun). ``rate`` is the learning rate, NaN if it is not known; ``pace`` seconds a step over
    the last readings, NaN before there are two.
    """

    place: Place
    outcome: str
    method: str
    label: str
    rate: float
    seed: int | None
    step: int
    steps: int | None
    note: str
    spec: dict[str, Any]
    facts: dict[str, Any]
    final: dict[str, Any]
    correlations: dict[str, Any]
    columns: Columns
    seconds: float = math.nan
    pace: float = math.nan

    @property
    def id(self) -> str:
        """The name of its folder."""
        return self.place.folder.name


@dataclass(frozen=True)
class Frames:
    """Some of a run's histograms and tails, by step, and the pictures of the examples in them."""

    frames: list[dict[str, Any]] = field(default_factory=list)
    examples: dict[str, Any] = field(default_factory=dict)


def read_run(place: Place, wanted: Callable[[str], bool] = lambda name: True) -> RunFacts:
    """All that a run's files tell but histograms; never an error."""
    notes: list[str] = []
    spec, facts, result = (_small(place.folder / f"{name}.json", notes) for name in ("spec", "facts", "result"))
    try:
        columns = read_columns(place.folder / JOURNAL, wanted)
    except BadInput as error:
        columns = read_columns(place.folder / "none")
        notes.append(str(error))
    spec = current_keys(spec)
    ended = isinstance(result.get("outcome"), str)
    tracked = not (place.folder / "spec.json").exists() and len(columns) > 0
    if columns.harmed is not None and (ended or _goes_on(place.folder / JOURNAL, columns.harmed)):
        notes.append(f"journal.jsonl is harmed at line {columns.harmed}; {len(columns):,} readings before it are shown")
    outcome = _outcome(place, result, tracked, "diverged" in columns.numbers)
    if place.failure:
        notes = [(place.failure.strip().splitlines() or [""])[-1][:300]]
    elif notes:
        outcome = "damaged"
    final = _table(result.get("final")) or _last(place.folder / JOURNAL, len(columns))
    seconds, pace = _clock(place.folder / TIMINGS)
    optimizer, seed = _table(spec.get("optimizer")), spec.get("seed")
    name = place.folder.name if place.study is not None else place.label or place.folder.name
    method = place.method or str(optimizer.get("name") or name)[:_NAME]
    step = result.get("step") if isinstance(result.get("step"), int) else final.get("step")
    steps = _table(spec.get("stop")).get("steps")
    return RunFacts(
        place=place,
        outcome=outcome,
        method=method,
        label=_label(place, method, tracked),
        rate=_rate(optimizer, final),
        seed=seed if isinstance(seed, int) else place.seed,
        step=int(number(step)) if math.isfinite(number(step)) else 0,
        steps=place.steps or (steps if isinstance(steps, int) else None),
        note="; ".join(notes),
        spec=spec,
        facts=facts,
        final=final,
        correlations=_table(result.get("correlations")),
        columns=columns,
        seconds=seconds,
        pace=pace,
    )


def _outcome(place: Place, result: dict[str, Any], tracked: bool, diverged: bool) -> str:
    if place.failure:
        return "failed"
    if isinstance(result.get("outcome"), str):
        return str(result["outcome"])[:_WORD]
    if not place.folder.is_dir():
        return "waiting"
    return "diverged" if diverged else "tracked" if tracked else "unfinished"


def _label(place: Place, method: str, tracked: bool) -> str:
    if place.study is not None and place.label:
        return place.label
    name = place.label or place.folder.name
    if tracked:
        return name
    return f"{method} {place.label or name[:6]}"


def read_frames(folder: Path, pick: Callable[[int], list[int]]) -> Frames:
    """The frames at the places ``pick(total)`` among those with histograms, or with tails where there are none.

    Only the chosen lines are decoded: a long run's file is large, and a page shows few of its frames.
    """
    try:
        lines, _ = whole_lines(folder / ARRAYS)
    except BadInput:
        lines = []
    full = [line for line in lines if b'.reliability":' in line] or lines
    decoded = [decode(full[place] + b"\n") for place in pick(len(full))]
    frames = [sound_frame(frame) for frame in decoded if frame is not None and isinstance(frame.get("step"), int)]
    return Frames([frame for frame in frames if len(frame) > 1], _small(folder / "examples.json", [], 64 * _LARGEST))


def number(value: Any) -> float:
    """``value`` as a float; NaN if it is none."""
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.nan


def _small(path: Path, notes: list[str], most: int = _LARGEST) -> dict[str, Any]:
    """A file that holds one table; empty if there is none, and a note if it is something else."""
    try:
        found = read_json(path, most)
    except FileNotFoundError:
        return {}
    except BadInput as error:
        notes.append(str(error).replace(str(path), path.name))
        return {}
    except (OSError, ValueError):
        notes.append(f"{path.name} cannot be read")
        return {}
    if not isinstance(found, dict) or _is_deep(found, _DEEPEST):
        notes.append(f"{path.name} holds no table of ours")
        return {}
    return found


def _is_deep(value: Any, levels: int) -> bool:
    """Whether more tables and lists stand in one another: whoever walks through them later would run out of stack."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(_is_deep(each, levels - 1) for each in inner)


def _goes_on(path: Path, harmed: int) -> bool:
    """Whether lines follow the harmed one: a torn last line is only a run that was stopped while it wrote."""
    lines, torn = whole_lines(path)
    return len(lines) + torn > harmed


def _last(path: Path, count: int) -> dict[str, Any]:
    """The last of ``count`` readings of a network whose logits were finite."""
    lines, _ = whole_lines(path) if count else ([], False)
    found = (decode(line + b"\n") for line in reversed(lines[:count]))
    return next((each for each in found if each is not None and "diverged" not in each), {})


def _rate(optimizer: dict[str, Any], final: dict[str, Any]) -> float:
    """The learning rate as the spec has it; a schedule changes what the last reading says."""
    for table in (optimizer, _table(optimizer.get("base"))):
        if math.isfinite(number(table.get("lr"))):
            return number(table["lr"])
    return number(final.get("lr"))


def _clock(path: Path) -> tuple[float, float]:
    """Seconds between the first and the last reading, and seconds a step over the last few."""
    try:
        lines, _ = whole_lines(path)
    except BadInput:
        lines = []
    found = [decode(line + b"\n") for line in (lines[:1] + lines[-5:] if len(lines) > 1 else [])]
    points = [(number(each.get("step")), number(each.get("time"))) for each in found if each is not None]
    points = [point for point in points if all(math.isfinite(value) for value in point)]
    if len(points) < 2:
        return math.nan, math.nan
    (first, begun), (last, now) = points[1], points[-1]
    pace = (now - begun) / (last - first) if last > first and now >= begun else math.nan
    return max(0.0, now - points[0][1]), pace


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
