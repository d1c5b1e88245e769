"""Runs as pages and figures show them: the contents that `RunReader` reads, with the study's names; no torch.

The contents of a corrupted file are missing, and the run's ``note`` names the file. Other runs are not affected.
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

_MAX_NAME = 300  # characters of a method's name; longer names are cut


@dataclass(frozen=True)
class RunFacts:
    """A run as pages and figures show it.

    Attributes:
        place: folder of the run, and what the study says about the run.
        outcome: ``"finished"``, ``"diverged"``, ``"failed"``, ``"unfinished"``, ``"damaged"``, ``"tracked"`` (the
            folder of a `Tracker`, which has no end) or ``"waiting"`` (planned, not started).
        method: name of the method.
        label: label of the run.
        rate: learning rate; NaN if unknown.
        seed: seed, or None.
        step: the last step.
        steps: planned number of steps, or None.
        note: why the run failed, or which files are corrupted.
        spec: spec of the run.
        facts: metadata of the run: versions, machine and data.
        final: the last reading.
        correlations: correlations in ``result.json``.
        columns: readings as columns.
        seconds: seconds of training; NaN if unknown.
        pace: seconds per step over the last readings; NaN before two readings.
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
        """Name of the run's folder."""
        return self.place.folder.name


@dataclass(frozen=True)
class Frames:
    """Some of a run's histograms and tails.

    Attributes:
        frames: the frames, by step.
        examples: pictures of the examples in tails.
    """

    frames: list[dict[str, Any]] = field(default_factory=list)
    examples: dict[str, Any] = field(default_factory=dict)


def read_run(place: Place, wanted: Callable[[str], bool] = lambda name: True) -> RunFacts:
    """Read all contents of a run's files except histograms; never raises.

    Args:
        place: the run.
        wanted: function that says which columns are read.

    Returns:
        The run.
    """
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
    """Read some frames of a run.

    Args:
        folder: folder of the run.
        pick: function from the number of frames to the indices that are read. The frames are those with histograms, or
            those with tails if no frame has histograms.

    Returns:
        The frames in valid form.
    """
    reader = RunReader(folder)
    frames = [sound_frame(frame) for frame in reader.frames(pick)]
    return Frames([frame for frame in frames if len(frame) > 1], reader.examples)


def _rate(optimizer: dict[str, Any], final: dict[str, Any]) -> float:
    """The learning rate in the spec; with a schedule, the last reading has another rate."""
    for options in (optimizer, table(optimizer.get("base"))):
        if math.isfinite(number(options.get("lr"))):
            return number(options["lr"])
    return number(final.get("lr"))
