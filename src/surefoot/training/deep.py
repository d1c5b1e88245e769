"""A deep ensemble as a run: its members are ordinary runs beside it, and its result is that of their mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from surefoot.errors import RunLocked
from surefoot.forward import CHUNK
from surefoot.metrics import ece
from surefoot.posthoc.temperature import Temperature
from surefoot.predictions import Predictions
from surefoot.training.journal import Notebook
from surefoot.training.members import members_of
from surefoot.training.opened import LoadedRun
from surefoot.training.readings import calibration_of, margins_of
from surefoot.training.records import split_arrays
from surefoot.training.spec import RunSpec

__all__ = ["read_together", "train_members"]


def train_members(spec: RunSpec, one: Callable[[int, RunSpec], Any]) -> Any | None:
    """Run the members by ``one(place, spec)``; the first result that is not "finished", else None.

    Members that another process is running are left to it, and `RunLocked` is raised once all others are done.
    """
    taken: RunLocked | None = None
    for place, member in enumerate(members_of(spec)):
        try:
            result = one(place, member)
        except RunLocked as error:
            taken = error
            continue
        if result.outcome != "finished":
            return result
    if taken is not None:
        raise taken
    return None


def read_together(folder: Path, opened: LoadedRun) -> list[dict[str, Any]]:
    """One reading of the mean of all members, written into the journal of ``folder``."""
    parts = {"train": opened.data.train, "test": opened.data.test, "val": opened.data.val}
    said = {name: Predictions.of(opened.model, *part, CHUNK) for name, part in parts.items() if part is not None}
    reading: dict[str, Any] = {"step": opened.step}
    for name, p in said.items():
        reading |= {**calibration_of(name, p), **margins_of(name, p)}
    if "val" in said:
        fitted = Temperature().fit(said["val"])
        reading |= {"test.tce": float(ece(fitted.apply(said["test"]))), "temperature": float(fitted.temperature_)}
    notebook = Notebook(folder, (0, 0))
    notebook.append(reading)
    notebook.close()
    return [split_arrays(reading)[0]]
