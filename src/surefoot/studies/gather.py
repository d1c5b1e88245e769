"""A study read back from its folder: results first, journals only where a table asks for them. No torch."""

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
    """A run as its files tell: ``outcome`` is finished, diverged, failed or unfinished.

    ``place`` is what each axis is, as text, the seed among them; ``counted`` is False for a candidate that was not
    chosen, which no table shows.
    """

    label: str
    place: dict[str, str]
    id: str | None
    outcome: str
    result: dict[str, Any]
    folder: Path
    counted: bool = True

    def measure(self, names: Sequence[str]) -> dict[str, float] | None:
        """Quantities by name, None if its journal is harmed; see `surefoot.studies.measures`."""
        return measure(self.result, self.folder, names)

    def quantities(self) -> Iterable[str]:
        """What its final reading holds; nothing of a run that is not finished."""
        final = self.result.get("final")
        return final if isinstance(final, dict) else ()


@dataclass(frozen=True)
class GatheredStudy:
    """A study's name, axes, tables and runs."""

    name: str
    scale: str | None
    axes: list[str]
    entry_axes: list[str]
    tables: list[dict[str, Any]]
    chosen: list[dict[str, Any]]
    runs: list[GatheredRun]


def gather(path: Path) -> GatheredStudy:
    """The study in a folder."""
    folder = StudyFolder(path)
    found = folder.read()
    try:
        chosen = found.get("chosen") or []
        select, method_axis = found.get("select"), found.get("method_axis")
        runs = [_one(folder, each, select, method_axis, chosen) for each in found["runs"]]
        return GatheredStudy(
            str(found["name"]),
            found["scale"],
            [str(axis) for axis in found["axes"]],
            [str(axis) for axis in found["entry_axes"]],
            list(found["tables"]),
            list(chosen),
            runs,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{str(path / 'study.json')!r} is harmed ({error!r}); run the study again") from error


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
    """Of a choosing method only the chosen candidate stands beside the others."""
    if select is None or place.get(method_axis) != select["method"]:
        return True
    for choice in chosen:
        if all(place.get(axis) == text for axis, text in choice["group"].items()):
            return all(place.get(axis) == text for axis, text in choice["values"].items())
    return False
