"""`sf.study`: a study from Python."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.data.sets import data_folder
from surefoot.studies.facts import DatasetIndex
from surefoot.studies.folder import StudyFolder
from surefoot.studies.gather import gather
from surefoot.studies.plan import make_plan
from surefoot.studies.runner import Runner, Show, Task
from surefoot.studies.spec import StudySpec, read_study, study_of
from surefoot.studies.tables import Table, tables_of
from surefoot.validation import check_int

__all__ = ["StudyResult", "study"]


@dataclass(frozen=True)
class StudyResult:
    """A study's folder, how it went, and its runs.

    ``outcome`` is ``"finished"`` (every run has ended, well or not), ``"interrupted"``, or ``"incomplete"`` where the
    second stage of a choice could not begin, for the ``reason`` given.
    """

    folder: Path
    outcome: str
    tasks: list[Task]
    reason: str = ""

    def count(self, state: str) -> int:
        """How many runs are finished, diverged, failed, …"""
        return sum(task.state == state for task in self.tasks)

    def tables(self, which: str | None = None) -> list[Table]:
        """The study's tables."""
        return tables_of(gather(self.folder), which)


def check_studies(folders: Sequence[Path]) -> None:
    """A folder without a study is a slip, said before anything starts."""
    for folder in folders:
        StudyFolder(folder).read()


def study(
    spec: StudySpec | Mapping[str, Any] | str | Path,
    out: str | Path = "study",
    workers: int = 1,
    data: str | Path | None = None,
    *,
    scale: str | None = None,
    only: str | None = None,
    retry_failed: bool = False,
    ray: str | None = None,
    others: Sequence[str | Path] = (),
    show: Show | None = None,
) -> StudyResult:
    """Run a study (a file, tables as in one, or a `StudySpec`) in the folder ``out``, or go on with it.

    Args:
        workers: processes, each with the threads that a run's spec says.
        data: folder of data sets; by default the one that the environment variable ``SUREFOOT_DATA`` names.
        scale: which of the study's scales; the file's own choice by default.
        only: run those whose label contains this text, in any case.
        retry_failed: also those that failed before.
        ray: address of a Ray cluster on which the workers live, or ``"local"`` for one of this study's own.
        others: folders of other studies; a run that is finished there is copied, not run again.
        show: is told how it goes; nobody by default.
    """
    workers = check_int("workers", workers, 1, 1024)
    elsewhere = [Path(other) for other in others]
    check_studies(elsewhere)
    source = None
    if isinstance(spec, str | Path):
        found = read_study(Path(spec))
        source = Path(spec).read_bytes()
    else:
        found = spec if isinstance(spec, StudySpec) else study_of(spec)
    library = DatasetIndex(data_folder(data))
    folder = StudyFolder(Path(out))
    plan = make_plan(found, scale, library)
    with contextlib.ExitStack() as stack:
        pool = None
        if ray is not None:
            from surefoot.studies.cluster import ray_workers

            threads = max(run.spec.threads for run in plan.runs)
            pool = stack.enter_context(ray_workers(ray, folder.path, workers, threads))
        runner = Runner(plan, folder, library, workers, only, retry_failed, source, show, pool, elsewhere)
        complete = runner.run()
    outcome = "interrupted" if not complete else "incomplete" if runner.reason else "finished"
    return StudyResult(folder.path, outcome, runner.tasks, runner.reason)
