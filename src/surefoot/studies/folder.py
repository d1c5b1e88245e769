"""A study's folder: ``study.toml``, ``study.json`` (the runs), ``runs/<id>/``, ``failed/<id>.txt``. No torch.

The folder may come from a stranger. Its files are read as data, and an id that is not the name of a run is refused.
`gather` reads results first, and journals only if a table needs them.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.deprecated import current_name, former_name
from surefoot.errors import BadInput, StorageFault
from surefoot.files import make_folder, read_file, replace_file
from surefoot.runs.reader import read_result
from surefoot.runs.records import LOCK, canonical, is_locked, read_json, read_to
from surefoot.studies.measures import measure
from surefoot.studies.plan import Plan

__all__ = ["GatheredRun", "GatheredStudy", "StudyFolder", "counted", "default_folder", "gather"]

SCHEMA = 1
_ID = re.compile(r"[0-9a-f]{16}")
_MAX_STUDY, _MAX_COPIED = 1 << 28, 1 << 40  # bytes of study.json, and of any file of a run that is copied


def default_folder(name: str, scale: str | None) -> Path:
    """Choose the default folder of a study at a scale.

    Args:
        name: name of the study.
        scale: name of the scale, or None.

    Returns:
        ``NAME-SCALE``; the folder with former names if only that folder exists.
    """
    names = (name,) if scale is None else (name, scale)
    current, former = Path("-".join(names)), Path("-".join(map(former_name, names)))
    return former if former.exists() and not current.exists() else current


class StudyFolder:
    """The folder of a study and of its runs.

    Attributes:
        path: the folder.
        runs: folder of the runs.

    Args:
        path: the folder. The folder itself may be a symbolic link; links inside the folder are not followed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs = path / "runs"
        self._failed = path / "failed"
        self._root = path.resolve()  # the study's own folder may be a link; links inside the folder are refused

    def begin(self, plan: Plan, source: bytes | None, chosen: list[dict[str, Any]] | None = None) -> None:
        """Write ``study.json`` and make the folders of the study.

        Args:
            plan: the plan of the study.
            source: contents of the study's TOML file, kept as ``study.toml``; None if there is no file.
            chosen: the choices of ``select``, as plain tables; None before the choice.

        Raises:
            BadInput: if the folder holds another study, or the study at another scale.
        """
        self._check_folders()
        try:
            before = self.read() if os.path.lexists(self.path / "study.json") else {}
        except BadInput:  # corrupted, or of another version: the file is written again
            before = {}
        for key, now in (("name", plan.study.name), ("scale", plan.scale)):
            if before and current_name(str(before.get(key))) != current_name(str(now)):
                raise BadInput(
                    f"{str(self.path)!r} holds a study with {key} {before.get(key)!r}, not {now!r}; choose "
                    "another folder by out=..."
                )
        make_folder(self.runs)
        make_folder(self._failed)
        if source is not None:
            self._write("study.toml", source)
        self._write("study.json", (canonical(_described(plan, chosen)) + "\n").encode())

    def read(self) -> dict[str, Any]:
        """Read ``study.json``.

        Returns:
            The contents.

        Raises:
            BadInput: if there is no study, the file cannot be read, or the file has another version.
        """
        path = self._root / "study.json"
        self._check_folders()
        try:
            contents = read_json(path, _MAX_STUDY)
        except BadInput:
            raise
        except FileNotFoundError as error:
            raise BadInput(
                f"there is no study in {str(self.path)!r}; make one with surefoot.study(spec, out=...)"
            ) from error
        except (OSError, ValueError) as error:
            raise BadInput(f"{str(path)!r} cannot be read: {error}") from error
        if (
            not isinstance(contents, dict)
            or contents.get("schema") != SCHEMA
            or not isinstance(contents.get("runs"), list)
        ):
            raise BadInput(f"{str(path)!r} is no study of this version; run the study again")
        return contents

    def run(self, name: str) -> Path:
        """Locate the folder of a run.

        Args:
            name: id of the run, 16 hexadecimal digits.

        Returns:
            The folder.

        Raises:
            BadInput: if the name is not an id.
        """
        if not _ID.fullmatch(name):
            raise BadInput(f"{name!r} is no run's id")
        return self.runs / name

    def result(self, name: str) -> dict[str, Any] | None:
        """Read the result of a run.

        Args:
            name: id of the run.

        Returns:
            Contents of ``result.json``; None if the run has not ended.
        """
        return read_result(self.run(name))

    def adopt(self, name: str, others: Sequence[Path]) -> bool:
        """Copy a run that has ended in another study.

        The id of a run stands for its spec, data and seed. Any study's run with the id is the same run.

        Args:
            name: id of the run.
            others: folders of other studies.

        Returns:
            True if the run was copied; False if no study has finished the run, or the run was started here.

        Raises:
            StorageFault: if the files cannot be copied.
        """
        return any(self._copy(name, StudyFolder(other)) for other in others)

    def _copy(self, name: str, other: StudyFolder) -> bool:
        here, source, result = self.run(name), other.run(name), other.result(name)
        if result is None or os.path.lexists(here):
            return False
        try:
            with tempfile.TemporaryDirectory(dir=self.runs, prefix=f".{name}.") as temporary:
                copied = Path(temporary) / name
                make_folder(copied)
                for path in source.iterdir():
                    if path.name != LOCK:
                        raw = read_file(path, _MAX_COPIED)
                        with replace_file(copied / path.name, follow_folder=False) as stream:
                            stream.write(raw)
                if result["outcome"] == "finished" and read_to(copied, result["step"]) is None:
                    return False  # a corrupted journal: the run is run again
                copied.rename(here)
        except OSError as error:
            if here.exists():  # someone else was faster
                return self.result(name) is not None
            raise StorageFault(f"cannot copy the run {str(source)!r}: {error.strerror}") from error
        return self.result(name) is not None

    def failure(self, name: str) -> str | None:
        """Read why a run failed.

        Args:
            name: id of the run.

        Returns:
            The message; None if the run did not fail, or has finished since.
        """
        try:
            return read_file(self._failed / f"{self.run(name).name}.txt", _MAX_STUDY).decode(errors="replace")
        except (OSError, BadInput):
            return None

    def note_failure(self, name: str, text: str) -> None:
        """Store why a run failed.

        Args:
            name: id of the run.
            text: the message.
        """
        self._write(f"failed/{self.run(name).name}.txt", text.encode(errors="replace"))

    def forget_failure(self, name: str) -> None:
        """Delete the message of a failed run that is tried again, or has ended well.

        Args:
            name: id of the run.
        """
        path = self._failed / f"{self.run(name).name}.txt"
        if path.exists():  # a study that is over may lie where nothing can be written
            path.unlink(missing_ok=True)

    def is_locked(self, name: str) -> bool:
        """Check whether another process is running a run.

        Args:
            name: id of the run.

        Returns:
            True if the run is locked.
        """
        return is_locked(self.run(name))

    def _write(self, name: str, raw: bytes) -> None:
        path = self._root / name
        try:
            same = read_file(path, _MAX_STUDY) == raw
        except FileNotFoundError:
            same = False
        if not same:
            with replace_file(path, follow_folder=False) as stream:
                stream.write(raw)

    def _check_folders(self) -> None:
        """Refuse links: the runs of a stranger's study must be inside the study's folder."""
        for folder in (self.runs, self._failed):
            if folder.is_symlink():
                raise BadInput(
                    f"{str(folder)!r} is a symbolic link, which is not followed inside a study; make the study's own "
                    "folder the link, or move the files"
                )


def _described(plan: Plan, chosen: list[dict[str, Any]] | None) -> Mapping[str, Any]:
    study = plan.study
    return {
        "schema": SCHEMA,
        "name": study.name,
        "scale": plan.scale,
        "axes": list(study.axes),
        "entry_axes": [axis for axis, axis_spec in study.axes.items() if axis_spec.entries],
        "select": None if study.select is None else study.select.model_dump(mode="json"),
        "method_axis": plan.method_axis,
        "chosen": chosen,
        "tables": [table.model_dump(mode="json") for table in study.tables_at(plan.scale)],
        "runs": [
            {
                "label": run.label,
                "axes": run.values,
                "shown": run.shown,
                "order": list(run.shown),
                "seed": run.seed,
                "stage": run.stage,
                "id": run.id,
                "steps": run.steps,
                "spec": run.spec.resolved(),
            }
            for run in plan.runs
        ],
    }


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
