"""The runs in a folder (one run, a study, or any tree of both), and each run as pages and figures show it. No torch.

Links to other folders are not followed. A run has the contents that `RunReader` reads and the names that its study
gives. The contents of a corrupted file are missing, and the run's ``note`` names the file; other runs are not affected.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard

from surefoot.errors import BadInput
from surefoot.runs.columns import Columns
from surefoot.runs.reader import RunReader, number, table
from surefoot.runs.records import JOURNAL
from surefoot.studies.folder import StudyFolder, counted

__all__ = ["Frames", "Place", "RunFacts", "number", "places", "read_frames", "read_run", "sound_frame"]

_DEPTH = 4  # folder / study / runs / run, and one more
_LONGEST = 300  # characters of a name of a method, an axis or a study; longer names are cut
_PARTS = ("train", "test")
_HISTOGRAMS = ("margin_histogram", "confidence_histogram", "reliability")
_LIMIT = 200  # bins, or examples of a tail
_MAX_INTEGER = 1 << 53


@dataclass(frozen=True)
class Place:
    """A run's folder, which may not exist yet, and what the run's study says about the run.

    Attributes:
        folder: the folder.
        study: name of the study, with its folder if another study has the same name; None for a run without a study.
        label: the study's label of the run. Without a study, the path of the folder if another folder has the same
            name.
        method: values of the axes that are lists of methods, or None.
        axes: value of every axis, as text.
        seed: seed of the run, or None.
        steps: planned number of steps, or None.
        failure: why the run failed, or None.
        counted: False for a candidate that was not chosen. No comparison shows such a run.
    """

    folder: Path
    study: str | None = None
    label: str | None = None
    method: str | None = None
    axes: dict[str, str] = field(default_factory=dict)
    seed: int | None = None
    steps: int | None = None
    failure: str | None = None
    counted: bool = True

    @property
    def study_folder(self) -> Path | None:
        """The folder of the study; None for a run without a study."""
        return None if self.study is None else self.folder.parent.parent


def places(folder: Path) -> list[Place]:
    """List every run in a folder.

    Args:
        folder: a run, a study, or a folder of runs and studies.

    Returns:
        The runs: those of a study in the study's order, others by name.

    Raises:
        BadInput: if there is no such folder, or no run in the folder.
    """
    if not folder.is_dir():
        raise BadInput(f"there is no folder {str(folder)!r}; give that of a run, of a study, or of several")
    runs = list(_search(folder, 0))
    if not runs:
        raise BadInput(f"there is no run in {str(folder)!r}; runs are made by surefoot.train(spec, out=...)")
    return _with_unique_names(folder, runs)


def _with_unique_names(root: Path, runs: list[Place]) -> list[Place]:
    """Add folders to names where two studies, or two runs without a study, have the same name."""

    def inside(folder: Path) -> str:
        return folder.relative_to(root).as_posix()

    studies = Counter(name for name, _ in {(place.study, place.study_folder) for place in runs})
    names = Counter(place.folder.name for place in runs if place.study is None)

    def renamed(place: Place) -> Place:
        if place.study_folder is not None and studies[place.study] > 1:
            return replace(place, study=f"{place.study} in {inside(place.study_folder)}")
        if place.study is None and names[place.folder.name] > 1:
            return replace(place, label=inside(place.folder))
        return place

    return [renamed(place) for place in runs]


def _search(folder: Path, depth: int) -> Iterator[Place]:
    if os.path.isfile(folder / "spec.json") or os.path.isfile(folder / JOURNAL):
        yield Place(folder)
        return
    if os.path.isfile(folder / "study.json") and (planned := _of_study(folder)) is not None:
        yield from planned
        return
    if depth > _DEPTH:
        return
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:  # deleted since its name was read, or not readable
        return
    for name in names:
        if not name.startswith("."):
            yield from _search(folder / name, depth + 1)


def _of_study(path: Path) -> list[Place] | None:
    """The runs that a study plans, each once; None if the study's file is corrupted."""
    folder = StudyFolder(path)
    try:
        contents = folder.read()
        planned = [_planned(folder, contents, run) for run in contents["runs"] if run["id"] is not None]
    except (BadInput, KeyError, TypeError, AttributeError, ValueError, RecursionError):
        return None
    return list({place.folder: place for place in planned}.values())


def _planned(folder: StudyFolder, study: dict[str, Any], run: dict[str, Any]) -> Place:
    axes = {_name(axis): _name(run["shown"][axis]) for axis in run["order"]}
    methods = [axes[_name(axis)] for axis in study["entry_axes"] if _name(axis) in axes]
    steps, seed = (run[key] if isinstance(run[key], int) else None for key in ("steps", "seed"))
    place = folder.run(str(run["id"]))
    return Place(
        folder=place,
        study=_name(study["name"]),
        label=_name(run["label"]),
        method=" ".join(methods) or None,
        axes=axes,
        seed=seed,
        steps=steps,
        failure=folder.failure(place.name),
        counted=counted(
            axes | {"seed": str(seed)}, study.get("select"), study.get("method_axis"), study.get("chosen") or []
        ),
    )


def _name(value: Any) -> str:
    return str(value)[:_LONGEST]


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
    method = place.method or str(reader.optimizer.get("name") or name)[:_LONGEST]
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
