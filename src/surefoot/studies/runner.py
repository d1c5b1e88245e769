"""The runner: gives a study's runs to workers, and replaces workers that die.

The files hold the whole state. A run with a result is done. A run whose folder is locked belongs to another process,
and the runner checks the run again later. If a worker dies, its run restarts from the checkpoint.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from surefoot.errors import BadInput, StorageFault, SurefootError
from surefoot.runs.records import canonical
from surefoot.studies.folder import StudyFolder
from surefoot.studies.plan import DatasetIndex, Plan, Planned, make_plan
from surefoot.studies.select import choose, described
from surefoot.studies.workers import Worker, Workers
from surefoot.training.spec import members_of

if TYPE_CHECKING:
    from surefoot.studies.cluster import RayWorker, RayWorkers

    AnyWorker = Worker | RayWorker

__all__ = ["Runner", "Show", "Silent", "Task", "WorkerFault"]

_DEATHS = 3  # workers that die in a row over one run without progress
_PAUSES = (0.5, 5.0)  # first and longest pause in seconds before another process' run is checked again
_TICK = 0.25


@dataclass
class Task:
    """A run and its state.

    Attributes:
        run: the planned run.
        state: ``"waiting"``, ``"running"``, ``"elsewhere"``, ``"finished"``, ``"diverged"``, ``"failed"`` or
            ``"interrupted"``.
        step: the last step that was reported.
        loss: loss at that step.
        ece: the last ECE on the test data.
        error: why the run failed.
        fresh: whether the run ended in this call, not before.
        began: time of the first reported step, in seconds of the monotonic clock.
        start: step from which the worker started; −1 before the first report.
        reached: the furthest such step of earlier workers.
        deaths: number of workers that died in a row without progress of the run.
        pid: process id of the worker.
        due: time at which a run of another process is checked again.
        pause: seconds between such checks.
    """

    run: Planned
    state: str = "waiting"
    step: int = 0
    loss: float | None = None
    ece: float | None = None
    error: str = ""
    fresh: bool = False
    began: float = 0.0
    start: int = -1
    reached: int = -1
    deaths: int = 0
    pid: int | None = None
    due: float = 0.0
    pause: float = _PAUSES[0]

    @property
    def ended(self) -> bool:
        """Whether this call does nothing more about the run."""
        return self.state in ("finished", "diverged", "failed")

    @property
    def id(self) -> str:
        """Id of the run."""
        assert self.run.id is not None
        return self.run.id


class Show(Protocol):
    """A receiver of a study's progress."""

    def __enter__(self) -> Show: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def ended(self, task: Task) -> None:
        """Receive a run that has finished, diverged or failed, just now or before.

        Args:
            task: the run.
        """

    def tick(self, tasks: Sequence[Task], waiting: int) -> None:
        """Receive the state of all runs, a few times a second.

        Args:
            tasks: the runs.
            waiting: number of runs that are not decided yet.
        """


class Silent:
    """A receiver that shows nothing."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ended(self, task: Task) -> None:
        """Do nothing.

        Args:
            task: the run.
        """

    def tick(self, tasks: Sequence[Task], waiting: int) -> None:
        """Do nothing.

        Args:
            tasks: the runs.
            waiting: number of undecided runs.
        """


class WorkerFault(SurefootError):
    """Workers cannot be started or kept alive."""


class Runner:
    """Runs the plan of a study in a folder, with workers.

    Attributes:
        plan: the plan, with decided runs once values are chosen.
        tasks: the runs with their states.
        reason: why the second stage could not start; empty otherwise.

    Args:
        plan: the plan.
        folder: the study's folder.
        library: metadata of the data sets.
        workers: number of workers.
        only: text; only runs whose label contains the text are run, in upper or lower case.
        retry_failed: whether runs that failed before are tried again.
        source: contents of the study's TOML file, or None.
        show: receiver of the progress; None shows nothing.
        pool: the workers; None starts processes.
        others: folders of other studies, whose finished runs are copied.
    """

    def __init__(
        self,
        plan: Plan,
        folder: StudyFolder,
        library: DatasetIndex,
        workers: int = 1,
        only: str | None = None,
        retry_failed: bool = False,
        source: bytes | None = None,
        show: Show | None = None,
        pool: Workers | RayWorkers | None = None,
        others: Sequence[Path] = (),
    ) -> None:
        self._others = others
        self.plan, self._folder, self._library = plan, folder, library
        self._size, self._only, self._retry, self._source = workers, only, retry_failed, source
        self._show: Show = Silent() if show is None else show
        self._at: dict[AnyWorker, Task] = {}
        self._checked: set[str] = set()
        self._checker: AnyWorker | None = None  # no run starts during the check
        self._asked = False
        self._idle_deaths = 0  # since the last message about a run
        self._pool = Workers() if pool is None else pool
        self._chosen: list[dict[str, Any]] | None = None
        self.tasks: list[Task] = []
        self.reason = ""

    @property
    def waiting(self) -> int:
        """Number of runs whose values are not chosen yet."""
        return sum(not run.decided for run in self._wanted(self.plan.runs))

    def run(self) -> bool:
        """Run until every run has ended, or a signal asks to stop.

        Returns:
            True if every run has ended; False if a signal stopped the study.

        Raises:
            BadInput: if a spec cannot be built, or ``only`` is in no label.
            StorageFault: if files cannot be written.
            WorkerFault: if workers die before they take a run.
        """
        if self.plan.study.select is not None:
            self._choose()  # an earlier choice stays valid, whichever runs this call selects
        if self._only is not None and not self._wanted(self.plan.runs):
            raise BadInput(f"only={self._only!r} is in no label; there is {self.plan.runs[0].label!r}, for one")
        self._folder.begin(self.plan, self._source, self._chosen)
        with self._show, self._signals(), contextlib.closing(self._pool):
            self._admit()
            while self._asked or not self._over():
                if not self._asked:
                    self._assign()
                elif not self._pool.workers:
                    return False
                else:
                    self._pool.ask_to_leave()
                for worker, messages in self._pool.listen(_TICK):
                    self._hear(worker, messages)
                self._show.tick(self.tasks, self.waiting)
        return True

    # Tasks.

    def _wanted(self, runs: Sequence[Planned]) -> list[Planned]:
        text = (self._only or "").lower()
        return [run for run in runs if text in run.label.lower()]

    def _admit(self) -> None:
        """Make tasks of all decided runs that have none yet, and find the runs that ended before."""
        known = {task.id for task in self.tasks}
        for run in self._wanted(self.plan.runs):
            if not run.decided or run.id is None or run.id in known:
                continue
            task = Task(run)
            self.tasks.append(task)
            if self._ended_before(task):
                continue
            failure = self._folder.failure(task.id)
            if failure is not None and self._retry:
                self._folder.forget_failure(task.id)
            elif failure is not None:
                self._fail(task, failure.splitlines()[0] if failure else "", note=None)

    def _ended_before(self, task: Task) -> bool:
        result = self._folder.result(task.id)
        if result is None and self._adopted(task):
            result = self._folder.result(task.id)
        if result is None:
            return False
        self._end(task, result["outcome"], result["step"], result["final"].get("test.ece"), fresh=False)
        return True

    def _adopted(self, task: Task) -> bool:
        """Copy a run of another study; a deep ensemble needs its members, which are copied first."""
        spec = task.run.spec
        if spec.ensemble is not None and spec.ensemble.name == "deep":
            facts = self._library.of(spec.data.name)
            members = [] if facts is None else [member.run_id(facts.digest) for member in members_of(spec)]
            for member in members:
                self._folder.adopt(member, self._others)
            if any(self._folder.result(member) is None for member in members):
                return False
        return self._folder.adopt(task.id, self._others)

    def _over(self) -> bool:
        """Whether nothing is left to do; starts the second stage of a study when the first stage has ended."""
        if not all(task.ended for task in self.tasks):
            return False
        if not self.waiting:
            return True
        if not self._choose():
            self.reason = "the second stage waits: not all runs of the first have ended well"
            return True
        self._folder.begin(self.plan, self._source, self._chosen)
        self._admit()
        return all(task.ended for task in self.tasks)

    def _choose(self) -> bool:
        """Decide the runs of the second stage; False if a run of the first stage has no result."""
        choices = choose(self.plan, self._folder)
        if choices is None:
            return False
        chosen = {group: choice.values for group, choice in choices.items()}
        self.plan = make_plan(self.plan.study, self.plan.scale, self._library, chosen)
        self._chosen = described(choices)
        return True

    # Workers.

    def _assign(self) -> None:
        """Give the next run to every idle worker; start as many workers as there are runs."""
        todo = [task for task in self.tasks if task.state in ("waiting", "elsewhere")]
        due = [task for task in todo if task.due <= time.monotonic()]
        idle = [worker for worker in self._pool.workers if worker.ready and worker not in self._at]
        if due and idle and self._checker is None and (parts := self._unchecked()):
            self._order_check(idle[0], parts)
        for worker in idle if self._checker is None else []:
            task = self._next(due)
            if task is None:
                break
            self._order_run(worker, task)
        coming = sum(not worker.ready for worker in self._pool.workers)
        while len(self._pool.workers) < self._size and coming < len(due):
            self._pool.spawn()
            coming += 1

    def _next(self, due: list[Task]) -> Task | None:
        while due:
            task = due.pop(0)
            if self._ended_before(task):
                continue
            if not self._folder.is_locked(task.id):
                return task
            self._elsewhere(task)
        return None

    def _elsewhere(self, task: Task) -> None:
        task.state, task.due = "elsewhere", time.monotonic() + task.pause
        task.pause = min(2 * task.pause, _PAUSES[1])

    def _order_run(self, worker: AnyWorker, task: Task) -> None:
        task.state, task.began, task.start, task.pause = "running", time.monotonic(), -1, _PAUSES[0]
        self._at[worker], task.pid = task, worker.pid
        root = self._library.root
        worker.order(
            {
                "do": "run",
                "id": task.id,
                "label": task.run.label,
                "spec": task.run.spec.resolved(),
                "out": str(self._folder.runs.resolve()),  # a worker may have another working directory
                "data": None if root is None else str(root.resolve()),
            }
        )

    def _unchecked(self) -> dict[str, dict[str, Any]]:
        """One run for each set of parts that no worker has tried to build yet."""
        runs: dict[str, dict[str, Any]] = {}
        for run in self._wanted(self.plan.runs):
            spec, facts = run.spec.resolved(), self._library.of(run.spec.data.name)
            assert facts is not None
            parts = [spec["model"], spec["loss"], spec["optimizer"], spec.get("ensemble")]
            key = canonical([*parts, facts.shape, facts.classes])
            if key not in self._checked and key not in runs:
                runs[key] = {"label": run.label, "spec": spec, "shape": facts.shape, "classes": facts.classes}
        return runs

    def _order_check(self, worker: AnyWorker, parts: dict[str, dict[str, Any]]) -> None:
        self._checked |= set(parts)
        self._checker = worker
        worker.order({"do": "check", "runs": list(parts.values())})

    # Messages of workers.

    def _hear(self, worker: AnyWorker, messages: list[dict[str, Any]] | None) -> None:
        if messages is None:
            self._lost(worker)
            return
        for message in messages:
            match message["type"]:
                case "ready":
                    worker.ready = True
                case "checked":
                    if message["error"] is not None:
                        raise BadInput(message["error"])
                    self._checker = None
                case "step":
                    self._progress(self._at[worker], message)
                case "storage":
                    raise StorageFault(message["error"])
                case _:
                    self._done(self._at.pop(worker), message)

    def _progress(self, task: Task, message: dict[str, Any]) -> None:
        self._idle_deaths = 0
        task.step, task.loss, task.ece = message["step"], message["loss"], message["ece"]
        if task.start < 0:
            task.start = task.step - 1
            task.began = time.monotonic()

    def _done(self, task: Task, message: dict[str, Any]) -> None:
        self._idle_deaths = 0
        if message["type"] == "taken":
            self._elsewhere(task)
        elif message["type"] == "failed":
            note = f"{message['error']}\n\n{task.run.label}\n\n{message['trace']}"
            self._fail(task, message["error"], note)
        elif message["id"] != task.id:
            error = f"it was run as {message['id']}, not {task.id}: the data has changed since the study was planned"
            self._fail(task, error, f"{error}\n\n{task.run.label}")
        elif message["outcome"] == "interrupted":
            task.state, task.step = ("waiting" if not self._asked else "interrupted"), message["step"]
        else:
            self._end(task, message["outcome"], message["step"], message["ece"], message["fresh"])

    def _end(self, task: Task, outcome: str, step: int, ece: Any, fresh: bool) -> None:
        task.state, task.step, task.fresh = outcome, step, fresh
        task.ece = ece if isinstance(ece, float) else None
        self._folder.forget_failure(task.id)
        self._show.ended(task)

    def _fail(self, task: Task, error: str, note: str | None) -> None:
        task.state, task.error, task.fresh = "failed", error, note is not None
        if note is not None:
            self._folder.note_failure(task.id, note)
        self._show.ended(task)

    def _lost(self, worker: AnyWorker) -> None:
        """A worker has ended: its run restarts from its checkpoint, a few times if the run makes no progress."""
        code, left = worker.reap()
        task = self._at.pop(worker, None)
        if self._asked:
            if task is not None:
                task.state = "interrupted"
            return
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if worker is self._checker:
            self._checker = None
            self._checked.clear()
        if task is None:
            self._idle_deaths += 1
            if self._idle_deaths >= _DEATHS:
                last = (left.strip().splitlines() or ["no output"])[-1]
                raise WorkerFault(f"workers die before they take a run ({how}): {last}")
            return
        task.deaths = 1 if task.start > task.reached else task.deaths + 1
        task.reached = max(task.start, task.reached)
        if task.deaths < _DEATHS:
            task.state = "waiting"
        else:
            error = f"its worker died {task.deaths} times at the same place ({how})"
            self._fail(task, error, f"{error}\n\n{task.run.label}\n\n{left}")

    # Stopping.

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM ask the workers to commit and exit; a second SIGINT does not wait for them."""

        def ask(number: int, frame: FrameType | None) -> None:
            if self._asked and number == signal.SIGINT:
                raise KeyboardInterrupt
            self._asked = True

        try:
            before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # only the main thread receives signals
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
