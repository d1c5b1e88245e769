"""Where the runs of a folder are: one run, a study, or any tree of both; links to other folders are not followed."""

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
_LONGEST = 300  # letters of a name; what is longer is no name


@dataclass(frozen=True)
class Place:
    """A run's folder, which may not exist yet, and what its study says of it.

    ``study`` is the study's name, with its folder where another has the same name; ``label`` the study's word for the
    run, or, without a study, what tells its folder from one of the same name elsewhere. ``axes`` is what each axis is,
    as text; ``method`` names those of the axes that are lists of methods; ``counted`` is False for a candidate that was
    not chosen, which no comparison shows.
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
        """Where its study is."""
        return None if self.study is None else self.folder.parent.parent


def places(folder: Path) -> list[Place]:
    """Every run under ``folder``: those of a study in its order, others by name."""
    if not folder.is_dir():
        raise BadInput(f"there is no folder {str(folder)!r}; give that of a run, of a study, or of several")
    found = list(_search(folder, 0))
    if not found:
        raise BadInput(f"there is no run in {str(folder)!r}; runs are made by surefoot.train(spec, out=...)")
    return _told_apart(folder, found)


def _told_apart(root: Path, found: list[Place]) -> list[Place]:
    """The same with their folders named where two studies, or two runs without a study, have the same name."""

    def inside(folder: Path) -> str:
        return folder.relative_to(root).as_posix()

    studies = Counter(name for name, _ in {(each.study, each.study_folder) for each in found})
    runs = Counter(each.folder.name for each in found if each.study is None)

    def told(each: Place) -> Place:
        if each.study_folder is not None and studies[each.study] > 1:
            return replace(each, study=f"{each.study} in {inside(each.study_folder)}")
        if each.study is None and runs[each.folder.name] > 1:
            return replace(each, label=inside(each.folder))
        return each

    return [told(each) for each in found]


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
    except OSError:  # gone since its name was read, or not ours to read
        return
    for name in names:
        if not name.startswith("."):
            yield from _search(folder / name, depth + 1)


def _of_study(path: Path) -> list[Place] | None:
    """The runs that a study plans, each once, where its file can be read; None where it is harmed."""
    folder = StudyFolder(path)
    try:
        found = folder.read()
        planned = [_planned(folder, found, run) for run in found["runs"] if run["id"] is not None]
    except (BadInput, KeyError, TypeError, AttributeError, ValueError, RecursionError):
        return None
    return list({each.folder: each for each in planned}.values())


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
