"""A study read from its folder: results first, journals only if a table needs them. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.errors import BadInput
from surefoot.studies.folder import StudyFolder
from surefoot.studies.measures import measure

__all__ = ["GatheredRun", "GatheredStudy", "counted", "gather"]


@dataclass(frozen=True)
class GatheredRun:
    """A run as its files describe it.

    Attributes:
        label: label of the run.
        place: value of every axis as text, including the seed.
        id: id of the run; None for a run that is not decided yet or whose data is missing.
        outcome: ``"finished"``, ``"diverged"``, ``"failed"`` or ``"unfinished"``.
        result: contents of ``result.json``; empty if the run has not ended.
        folder: folder of the run.
        counted: False for a candidate that was not chosen. No table shows such a run.
    """

    label: str
    place: dict[str, str]
    id: str | None
    outcome: str
    result: dict[str, Any]
    folder: Path
    counted: bool = True

    def measure(self, names: Sequence[str]) -> dict[str, float] | None:
        """Read measures of the run; see `surefoot.studies.measures`.

        Args:
            names: names of the measures.

        Returns:
            Value of every measure; None if the journal is corrupted.
        """
        return measure(self.result, self.folder, names)

    def quantities(self) -> Iterable[str]:
        """List the quantities of the final reading.

        Returns:
            The names; empty for a run that has not finished.
        """
        final = self.result.get("final")
        return final if isinstance(final, dict) else ()


@dataclass(frozen=True)
class GatheredStudy:
    """A study and its runs, read from the study's folder.

    Attributes:
        name: name of the study.
        scale: name of the scale, or None.
        axes: names of the axes.
        entry_axes: the axes that consist of entries.
        tables: tables of the study, as plain mappings.
        chosen: choices of ``select``, as plain mappings; empty before the choice.
        runs: the runs, in the order of the study.
    """

    name: str
    scale: str | None
    axes: list[str]
    entry_axes: list[str]
    tables: list[dict[str, Any]]
    chosen: list[dict[str, Any]]
    runs: list[GatheredRun]


def gather(path: Path) -> GatheredStudy:
    """Read the study in a folder.

    Args:
        path: folder of the study.

    Returns:
        The study and its runs.

    Raises:
        BadInput: if there is no study in the folder, or ``study.json`` is corrupted.
    """
    folder = StudyFolder(path)
    contents = folder.read()
    try:
        chosen = contents.get("chosen") or []
        select, method_axis = contents.get("select"), contents.get("method_axis")
        runs = [_one(folder, run, select, method_axis, chosen) for run in contents["runs"]]
        return GatheredStudy(
            str(contents["name"]),
            contents["scale"],
            [str(axis) for axis in contents["axes"]],
            [str(axis) for axis in contents["entry_axes"]],
            list(contents["tables"]),
            list(chosen),
            runs,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{str(path / 'study.json')!r} is corrupted ({error!r}); run the study again") from error


def _one(folder: StudyFolder, run: dict[str, Any], select: Any, method_axis: Any, chosen: Any) -> GatheredRun:
    name = run["id"]
    place = {str(axis): str(run["shown"][axis]) for axis in run["order"]} | {"seed": str(run["seed"])}
    result = None if name is None else folder.result(name)
    failed = name is not None and result is None and folder.failure(name) is not None
    outcome = str(result["outcome"]) if result else "failed" if failed else "unfinished"
    counts = counted(place, select, method_axis, chosen)
    where = folder.path if name is None else folder.run(name)
    return GatheredRun(str(run["label"]), place, name, outcome, result or {}, where, counts)


def counted(place: dict[str, str], select: Any, method_axis: Any, chosen: Any) -> bool:
    """Check whether a run counts: a candidate of ``select`` counts only if the candidate was chosen.

    Args:
        place: value of every axis of the run, as text.
        select: the section ``select`` of the study, or None.
        method_axis: the axis that has the selecting method as an entry.
        chosen: the choices.

    Returns:
        True if tables show the run.
    """
    if select is None or place.get(method_axis) != select["method"]:
        return True
    for choice in chosen:
        if all(place.get(axis) == text for axis, text in choice["group"].items()):
            return all(place.get(axis) == text for axis, text in choice["values"].items())
    return False
