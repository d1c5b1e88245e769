"""`sf.study`: a study from Python."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.data.sets import data_folder
from surefoot.errors import BadInput
from surefoot.plugins import with_plugins
from surefoot.studies.folder import StudyFolder, gather
from surefoot.studies.plan import DatasetIndex, make_plan
from surefoot.studies.runner import Runner, Show, Task
from surefoot.studies.spec import StudySpec, read_study, study_of
from surefoot.studies.tables import Table, tables_of
from surefoot.validation import check_int

__all__ = ["StudyResult", "study"]


@dataclass(frozen=True)
class StudyResult:
    """The folder of a study, the outcome of the study, and its runs.

    Attributes:
        folder: folder of the study.
        outcome: ``"finished"`` (every run has ended, with or without success), ``"interrupted"``, or ``"incomplete"``
            (the second stage of a selection could not start).
        tasks: one `Task` per run.
        reason: why the study is incomplete; empty otherwise.
    """

    folder: Path
    outcome: str
    tasks: list[Task]
    reason: str = ""

    def count(self, state: str) -> int:
        """Count the runs in a state.

        Args:
            state: ``"finished"``, ``"diverged"``, ``"failed"`` or another state of a `Task`.

        Returns:
            The number of runs in that state.
        """
        return sum(task.state == state for task in self.tasks)

    def tables(self, which: str | None = None) -> list[Table]:
        """Make the tables of the study from its files.

        Args:
            which: name of one table; None makes all tables.

        Returns:
            The tables, in the order of the study.

        Raises:
            BadInput: if the study has no tables, or no table has the name.
        """
        return tables_of(gather(self.folder), which)


def check_studies(folders: Sequence[Path]) -> None:
    """Raise BadInput for a folder without a study, before anything starts."""
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
    plugins: Sequence[str] = (),
    show: Show | None = None,
) -> StudyResult:
    """Run a study in a folder, or resume the study in that folder.

    Args:
        spec: path of a study's TOML file, the same tables as a mapping, or a `StudySpec`.
        out: folder of the study.
        workers: number of worker processes, from 1 to 1024. Each process uses the number of threads in the run's spec.
        data: folder of the data sets; None takes the folder in the environment variable ``SUREFOOT_DATA``.
        scale: name of a scale of the study; None takes the scale that the study names.
        only: text; the call runs only runs whose label contains the text, in upper or lower case.
        retry_failed: whether runs that failed before are tried again.
        ray: address of the Ray cluster for the workers; ``"local"`` starts a cluster for this study; None uses
            processes.
        others: folders of other studies. A run that has finished in one of these studies is copied, not run again.
        plugins: names of modules, or paths of ``.py`` files, that add methods to the registries. This process and every
            worker import them. The environment variable ``SUREFOOT_PLUGINS`` may list further ones.
        show: object that receives the progress; None reports nothing.

    Returns:
        The folder, the outcome and the runs.

    Raises:
        BadInput: if the spec, the folder or an option is invalid.
        WorkerFault: if workers cannot be started or kept alive.
        StorageFault: if files cannot be written.
    """
    workers = check_int("workers", workers, 1, 1024)
    elsewhere = [Path(other) for other in others]
    check_studies(elsewhere)
    with with_plugins(plugins):
        return _study(spec, Path(out), workers, data, scale, only, retry_failed, ray, elsewhere, show)


def _study(
    spec: StudySpec | Mapping[str, Any] | str | Path,
    out: Path,
    workers: int,
    data: str | Path | None,
    scale: str | None,
    only: str | None,
    retry_failed: bool,
    ray: str | None,
    elsewhere: list[Path],
    show: Show | None,
) -> StudyResult:
    source = None
    if isinstance(spec, str | Path):
        study_spec = read_study(Path(spec))
        source = Path(spec).read_bytes()
    elif isinstance(spec, StudySpec | Mapping):
        study_spec = spec if isinstance(spec, StudySpec) else study_of(spec)
    else:
        raise BadInput(f"spec must be the path of a .toml file, its tables as a mapping, or a StudySpec; got {spec!r}")
    library = DatasetIndex(data_folder(data))
    folder = StudyFolder(out)
    plan = make_plan(study_spec, scale, library)
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
