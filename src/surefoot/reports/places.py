"""The runs in a folder: one run, a study, or any tree of both. Links to other folders are not followed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from surefoot.errors import BadInput
from surefoot.runs.records import JOURNAL
from surefoot.studies.folder import StudyFolder
from surefoot.studies.gather import counted

__all__ = ["Place", "places"]

_DEPTH = 4  # folder / study / runs / run, and one more
_LONGEST = 300  # characters of a name; longer names are cut


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
