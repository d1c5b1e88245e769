"""Runs as pages and figures show them: the contents that `RunReader` reads, with the study's names; no torch.

The contents of a corrupted file are missing, and the run's ``note`` names the file. Other runs are not affected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from surefoot.reports.places import Place
from surefoot.runs.columns import Columns
from surefoot.runs.reader import RunReader, number, table

__all__ = ["Frames", "RunFacts", "number", "read_frames", "read_run", "sound_frame"]

_PARTS = ("train", "test")
_HISTOGRAMS = ("margin_histogram", "confidence_histogram", "reliability")
_LIMIT = 200  # bins, or examples of a tail
_MAX_INTEGER = 1 << 53


def sound_frame(frame: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the parts of a frame that have the right form.

    Args:
        frame: a frame as a run's file has it, which may come from a stranger.

    Returns:
        The step and, for each of training and test data, the three histograms (all or none) and the tail.
    """
    sound: dict[str, Any] = {"step": frame["step"]}
    for part in _PARTS:
        margin, confidence, reliability = (frame.get(f"{part}.{name}") for name in _HISTOGRAMS)
        if _is_spread(margin) and _are_counts(confidence) and _is_reliability(reliability):
            sound |= {f"{part}.{name}": frame[f"{part}.{name}"] for name in _HISTOGRAMS}
        tail = frame.get(f"{part}.tail")
        if _is_tail(tail):
            sound[f"{part}.tail"] = {name: tail[name] for name in (*_TAIL, *_PREDICTED) if name in tail}
    return sound


def _is_spread(table: Any) -> bool:
    if not isinstance(table, dict) or not _are_counts(table.get("counts")):
        return False
    low, high = table.get("low"), table.get("high")
    return _is_number(low) and _is_number(high) and low < high


def _is_reliability(table: Any) -> bool:
    if not isinstance(table, dict) or not _are_counts(table.get("count")):
        return False
    count = table["count"]
    columns = [table.get(name) for name in ("confidence", "accuracy")]
    # An empty bin has no mean.
    return all(
        isinstance(column, list)
        and len(column) == len(count)
        and all(not n or (_is_number(value) and 0 <= value <= 1) for n, value in zip(count, column, strict=True))
        for column in columns
    )


# For each example: its weight, and its label and prediction, which older runs do not have.
_TAIL, _PREDICTED = ("rows", "margins", "shares"), ("labels", "predicted", "confidence")


def _is_tail(table: Any) -> TypeGuard[dict[str, Any]]:
    if not isinstance(table, dict):
        return False
    columns: list[Any] = [table.get(name) for name in (*_TAIL, *_PREDICTED) if name in _TAIL or name in table]
    if not all(isinstance(column, list) and 0 < len(column) <= _LIMIT for column in columns):
        return False
    return len({len(column) for column in columns}) == 1 and all(_is_number(v) for column in columns for v in column)


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and 0 < len(values) <= _LIMIT and all(_is_number(v) and v >= 0 for v in values)


def _is_number(value: Any) -> TypeGuard[float]:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < _MAX_INTEGER
    return isinstance(value, float) and math.isfinite(value)


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
