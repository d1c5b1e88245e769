"""Runs as pages and figures show them: what `RunReader` reads, with the words of the study around it; no torch.

A file that is corrupted costs what it held, and is named in the run's ``note``; the other runs are not touched by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surefoot.reports.frames import sound_frame
from surefoot.reports.places import Place
from surefoot.runs.columns import Columns
from surefoot.runs.reader import RunReader, number, table

__all__ = ["Frames", "RunFacts", "number", "read_frames", "read_run"]

_MAX_NAME = 300  # letters of a method; what is longer is none


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
    reader = RunReader(place.folder)
    spec, metadata, result = reader.spec, reader.metadata, reader.result
    columns = reader.columns(wanted)
    outcome, final = reader.outcome, reader.final
    if outcome in ("unfinished", "tracked") and "diverged" in columns.numbers:
        outcome = "diverged"
    tracked = reader.outcome == "tracked"
    note = "; ".join(reader.notes)
    if place.failure:
        outcome, note = "failed", (place.failure.strip().splitlines() or [""])[-1][:300]
    elif note:
        outcome = "damaged"
    seconds, pace = reader.clock()
    name = place.folder.name if place.study is not None else place.label or place.folder.name
    method = place.method or str(reader.optimizer.get("name") or name)[:_MAX_NAME]
    return RunFacts(
        place=place,
        outcome=outcome,
        method=method,
        label=_label(place, method, tracked),
        rate=_rate(reader.optimizer, final),
        seed=place.seed if reader.seed is None else reader.seed,
        step=reader.step,
        steps=place.steps or reader.steps,
        note=note,
        spec=spec,
        facts=metadata,
        final=final,
        correlations=table(result.get("correlations")),
        columns=columns,
        seconds=seconds,
        pace=pace,
    )


def _label(place: Place, method: str, tracked: bool) -> str:
    if place.study is not None and place.label:
        return place.label
    name = place.label or place.folder.name
    if tracked:
        return name
    return f"{method} {place.label or name[:6]}"


def read_frames(folder: Path, pick: Callable[[int], list[int]]) -> Frames:
    """The frames at the places ``pick(total)`` among those with histograms, or with tails where there are none."""
    reader = RunReader(folder)
    frames = [sound_frame(frame) for frame in reader.frames(pick)]
    return Frames([frame for frame in frames if len(frame) > 1], reader.examples)


def _rate(optimizer: dict[str, Any], final: dict[str, Any]) -> float:
    """The learning rate as the spec has it; a schedule changes what the last reading says."""
    for options in (optimizer, table(optimizer.get("base"))):
        if math.isfinite(number(options.get("lr"))):
            return number(options["lr"])
    return number(final.get("lr"))
