"""A study's folder: ``study.toml``, ``study.json`` (the runs), ``runs/<id>/``, ``failed/<id>.txt``. No torch.

What it holds may come from a stranger: it is read as data, and ids that are no names of runs are refused.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from surefoot.errors import BadInput, StorageFault
from surefoot.files import make_folder, read_file, replace_file
from surefoot.runs.journal import read_to
from surefoot.runs.lock import LOCK, is_locked
from surefoot.runs.reader import read_result
from surefoot.runs.records import canonical, read_json
from surefoot.spellings import current_name, former_name
from surefoot.studies.plan import Plan

__all__ = ["StudyFolder", "default_folder"]

SCHEMA = 1
_ID = re.compile(r"[0-9a-f]{16}")
_MAX_STUDY, _MAX_COPIED = 1 << 28, 1 << 40  # bytes of study.json, and of any file of a run that is copied


def default_folder(name: str, scale: str | None) -> Path:
    """Where a study at a scale is by default: ``NAME-SCALE``, or the folder of former names if only that one exists."""
    names = (name,) if scale is None else (name, scale)
    current, former = Path("-".join(names)), Path("-".join(map(former_name, names)))
    return former if former.exists() and not current.exists() else current


class StudyFolder:
    """Where a study and its runs are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs = path / "runs"
        self._failed = path / "failed"
        self._root = path.resolve()  # the study's own folder may be reached through a link, what is in it may not

    def begin(self, plan: Plan, source: bytes | None, chosen: list[dict[str, Any]] | None = None) -> None:
        """Write down what the study is; a folder of another study, or another scale, is refused."""
        self._check_folders()
        try:
            before = self.read() if os.path.lexists(self.path / "study.json") else {}
        except BadInput:  # corrupted, or of another version: all that it says is written again
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
        """``study.json``."""
        path = self._root / "study.json"
        self._check_folders()
        try:
            found = read_json(path, _MAX_STUDY)
        except BadInput:
            raise
        except FileNotFoundError as error:
            raise BadInput(
                f"there is no study in {str(self.path)!r}; make one with surefoot.study(spec, out=...)"
            ) from error
        except (OSError, ValueError) as error:
            raise BadInput(f"{str(path)!r} cannot be read: {error}") from error
        if not isinstance(found, dict) or found.get("schema") != SCHEMA or not isinstance(found.get("runs"), list):
            raise BadInput(f"{str(path)!r} is no study of this version; run the study again")
        return found

    def run(self, name: str) -> Path:
        """The folder of a run."""
        if not _ID.fullmatch(name):
            raise BadInput(f"{name!r} is no run's id")
        return self.runs / name

    def result(self, name: str) -> dict[str, Any] | None:
        """A run's ``result.json``, if it has ended."""
        return read_result(self.run(name))

    def adopt(self, name: str, others: Sequence[Path]) -> bool:
        """Copy a run that another study has finished; False if none has, or if it was begun here.

        A run is its spec, data and seed, whoever ran it: that is what its id says.
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
                for each in source.iterdir():
                    if each.name != LOCK:
                        raw = read_file(each, _MAX_COPIED)
                        with replace_file(copied / each.name, follow_folder=False) as stream:
                            stream.write(raw)
                if result["outcome"] == "finished" and read_to(copied, result["step"]) is None:
                    return False  # its journal was harmed: it is run again
                copied.rename(here)
        except OSError as error:
            if here.exists():  # someone else was faster
                return self.result(name) is not None
            raise StorageFault(f"cannot copy the run {str(source)!r}: {error.strerror}") from error
        return self.result(name) is not None

    def failure(self, name: str) -> str | None:
        """Why a run failed, if it did and was not finished afterwards."""
        try:
            return read_file(self._failed / f"{self.run(name).name}.txt", _MAX_STUDY).decode(errors="replace")
        except (OSError, BadInput):
            return None

    def note_failure(self, name: str, text: str) -> None:
        """Keep why a run failed."""
        self._write(f"failed/{self.run(name).name}.txt", text.encode(errors="replace"))

    def forget_failure(self, name: str) -> None:
        """The run may be tried again, or has ended well since."""
        path = self._failed / f"{self.run(name).name}.txt"
        if path.exists():  # a study that is over may lie where nothing can be written
            path.unlink(missing_ok=True)

    def is_locked(self, name: str) -> bool:
        """Whether another process is running it now."""
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
        """What a stranger's study calls its runs must lie in its own folder."""
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
        "entry_axes": [axis for axis, each in study.axes.items() if each.entries],
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
