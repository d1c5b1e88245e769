"""A study's folder: ``study.toml``, ``study.json`` (the runs), ``runs/<id>/``, ``failed/<id>.txt``. No torch.

What it holds may come from a stranger: it is read as data, and ids that are no names of runs are refused.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from surefoot.errors import BadInput, StorageFault
from surefoot.files import replace_file
from surefoot.studies.plan import Plan
from surefoot.training.records import canonical, restored

__all__ = ["StudyFolder"]

SCHEMA = 1
_ID = re.compile(r"[0-9a-f]{16}")


class StudyFolder:
    """Where a study and its runs are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs = path / "runs"
        self._failed = path / "failed"

    def begin(self, plan: Plan, source: bytes | None, chosen: list[dict[str, Any]] | None = None) -> None:
        """Write down what the study is; a folder of another study, or another scale, is refused."""
        before = self.read() if (self.path / "study.json").exists() else {}
        for key, now in (("name", plan.study.name), ("scale", plan.scale)):
            if before and before.get(key) != now:
                raise BadInput(
                    f"{str(self.path)!r} holds a study with {key} {before.get(key)!r}, not {now!r}; choose "
                    "another --out"
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
            found = restored(json.loads(path.read_text()))
        except FileNotFoundError as error:
            raise BadInput(
                f"there is no study in {str(self.path)!r}; make one with: surefoot study STUDY.toml --out DIR"
            ) from error
        except (OSError, ValueError) as error:
            raise BadInput(f"{str(path)!r} cannot be read: {error}") from error
        if not isinstance(found, dict) or found.get("schema") != SCHEMA or not isinstance(found.get("runs"), list):
            raise BadInput(f"{str(path)!r} is no study of this version; run surefoot study again, which writes it anew")
        return found

    def run(self, name: str) -> Path:
        """The folder of a run."""
        if not _ID.fullmatch(name):
            raise BadInput(f"{name!r} is no run's id")
        return self.runs / name

    def result(self, name: str) -> dict[str, Any] | None:
        """A run's ``result.json``, if it has ended."""
        try:
            found = restored(json.loads((self.run(name) / "result.json").read_text()))
        except (OSError, ValueError):
            return None
        kinds = {"outcome": str, "step": int, "final": dict}
        whole = isinstance(found, dict) and all(isinstance(found.get(key), kind) for key, kind in kinds.items())
        return found if whole else None

    def failure(self, name: str) -> str | None:
        """Why a run failed, if it did and was not finished afterwards."""
        try:
            return (self._failed / f"{self.run(name).name}.txt").read_text(errors="replace")
        except OSError:
            return None

    def note_failure(self, name: str, text: str) -> None:
        """Keep why a run failed."""
        self._write(f"failed/{self.run(name).name}.txt", text.encode(errors="replace"))

    def forget_failure(self, name: str) -> None:
        """The run may be tried again, or has ended well since."""
        (self._failed / f"{self.run(name).name}.txt").unlink(missing_ok=True)

    def taken(self, name: str) -> bool:
        """Whether another process is running it now: the kernel's lock tells, and is let go of at once."""
        try:
            handle = os.open(self.run(name) / "lock", os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(handle)
        return False

    def _write(self, name: str, raw: bytes) -> None:
        path = self.path / name
        if not path.exists() or path.read_bytes() != raw:
            with replace_file(path) as stream:
                stream.write(raw)


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
        "tables": [table.model_dump(mode="json") for table in study.tables],
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
