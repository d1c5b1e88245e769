"""A study's folder: ``study.toml``, ``study.json`` (the runs), ``runs/<id>/``, ``failed/<id>.txt``. No torch.

What it holds may come from a stranger: it is read as data, and ids that are no names of runs are refused.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from surefoot.errors import BadInput, StorageFault
from surefoot.files import open_plain, replace_file
from surefoot.spellings import current_name, former_name
from surefoot.studies.plan import Plan
from surefoot.training.journal import read_to
from surefoot.training.lock import is_locked
from surefoot.training.records import canonical, decode_nonfinite

__all__ = ["StudyFolder", "default_folder"]

SCHEMA = 1
_ID = re.compile(r"[0-9a-f]{16}")


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

    def begin(self, plan: Plan, source: bytes | None, chosen: list[dict[str, Any]] | None = None) -> None:
        """Write down what the study is; a folder of another study, or another scale, is refused."""
        try:
            before = self.read() if (self.path / "study.json").exists() else {}
        except BadInput:  # harmed, or of another version: all that it says is written anew
            before = {}
        for key, now in (("name", plan.study.name), ("scale", plan.scale)):
            if before and current_name(str(before.get(key))) != current_name(str(now)):
                raise BadInput(
                    f"{str(self.path)!r} holds a study with {key} {before.get(key)!r}, not {now!r}; choose "
                    "another folder by out=..."
                )
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            self._failed.mkdir(exist_ok=True)
        except OSError as error:
            raise StorageFault(f"cannot make the folder {str(self.path)!r}: {error.strerror}") from error
        if source is not None:
            self._write("study.toml", source)
        self._write("study.json", (canonical(_described(plan, chosen)) + "\n").encode())

    def read(self) -> dict[str, Any]:
        """``study.json``."""
        path = self.path / "study.json"
        try:
            found = decode_nonfinite(json.loads(_plain_bytes(path)))
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
        try:
            found = decode_nonfinite(json.loads(_plain_bytes(self.run(name) / "result.json")))
        except (OSError, ValueError):
            return None
        kinds = {"outcome": str, "step": int, "final": dict}
        whole = isinstance(found, dict) and all(isinstance(found.get(key), kind) for key, kind in kinds.items())
        return found if whole else None

    def adopt(self, name: str, others: Sequence[Path]) -> bool:
        """Copy a run that another study has finished; False if none has, or if it was begun here.

        A run is its spec, data and seed, whoever ran it: that is what its id says.
        """
        return any(self._copy(name, StudyFolder(other)) for other in others)

    def _copy(self, name: str, other: StudyFolder) -> bool:
        here, source, result = self.run(name), other.run(name), other.result(name)
        if result is None or here.exists():
            return False
        try:
            with tempfile.TemporaryDirectory(dir=self.runs, prefix=f".{name}.") as temporary:
                copied = Path(temporary) / name
                copied.mkdir()
                for each in source.iterdir():
                    if each.name != "lock":
                        raw = _plain_bytes(each)
                        with replace_file(copied / each.name) as stream:
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
            return _plain_bytes(self._failed / f"{self.run(name).name}.txt").decode(errors="replace")
        except OSError:
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
        path = self.path / name
        if not path.exists() or path.read_bytes() != raw:
            with replace_file(path) as stream:
                stream.write(raw)


def _plain_bytes(path: Path) -> bytes:
    with open_plain(path) as stream:
        return stream.read()


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
