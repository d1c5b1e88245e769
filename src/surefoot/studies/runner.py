"""The runner: gives a study's runs to workers, and outlives them.

State is in the files alone. A run that has a result is done; one whose folder is locked is being run by someone else
and is looked at again later; one that a worker died over is begun again from its checkpoint.
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
from surefoot.studies.facts import DatasetIndex
from surefoot.studies.folder import StudyFolder
from surefoot.studies.plan import Plan, Planned, make_plan
from surefoot.studies.select import choose, described
from surefoot.studies.workers import Worker, Workers
from surefoot.training.spec import members_of

if TYPE_CHECKING:
    from surefoot.studies.cluster import RayWorker, RayWorkers

    AnyWorker = Worker | RayWorker

__all__ = ["Runner", "Show", "Silent", "Task", "WorkerFault"]

_DEATHS = 3  # of workers over one run that gets no further
_PAUSES = (0.5, 5.0)  # seconds until a run of someone else is looked at again, first and at most
_TICK = 0.25


@dataclass
class Task:
    """A run and how it stands: waiting, running, elsewhere, finished, diverged, failed or interrupted."""

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
        """Nothing more is done about it in this call."""
        return self.state in ("finished", "diverged", "failed")

    @property
    def id(self) -> str:
        """Of its folder."""
        assert self.run.id is not None
        return self.run.id


class Show(Protocol):
    """What is told while a study runs."""

    def __enter__(self) -> Show: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def ended(self, task: Task) -> None:
        """A run has finished, diverged or failed, just now or before."""

    def tick(self, tasks: Sequence[Task], waiting: int) -> None:
        """Called a few times a second; ``waiting`` runs are not yet decided."""


class Silent:
    """Tells nothing."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ended(self, task: Task) -> None:
        """Nothing."""

    def tick(self, tasks: Sequence[Task], waiting: int) -> None:
        """Nothing."""


class WorkerFault(SurefootError):
    """Workers cannot be started or kept alive."""


class Runner:
    """Runs a plan in a folder with workers; ``run`` returns True if it came to its end, False if it was stopped."""

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
        self._checker: AnyWorker | None = None  # no run starts while it is at work
        self._asked = False
        self._idle_deaths = 0  # since a run was last heard of
        self._pool = Workers() if pool is None else pool
        self._chosen: list[dict[str, Any]] | None = None
        self.tasks: list[Task] = []
        self.reason = ""

    @property
    def waiting(self) -> int:
        """Runs whose values are not chosen yet."""
        return sum(not run.decided for run in self._wanted(self.plan.runs))

    def run(self) -> bool:
        """Until every run has ended, or someone asks to stop."""
        if self.plan.study.select is not None:
            self._choose()  # what was chosen before stands, whichever runs this call is about
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
                for worker, said in self._pool.listen(_TICK):
                    self._hear(worker, said)
                self._show.tick(self.tasks, self.waiting)
        return True

    # What there is to do.

    def _wanted(self, runs: Sequence[Planned]) -> list[Planned]:
        text = (self._only or "").lower()
        return [run for run in runs if text in run.label.lower()]

    def _admit(self) -> None:
        """Make tasks of all decided runs that have none yet, and see which of them have ended before."""
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
        """Copied from another study; a deep ensemble after its members, without which it could not be opened."""
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
        """Whether nothing is left; the second stage of a study with a choice is begun when the first has ended."""
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
        """Decide the second stage by the first; False while a run of that has no result."""
        choices = choose(self.plan, self._folder)
        if choices is None:
            return False
        chosen = {group: choice.values for group, choice in choices.items()}
        self.plan = make_plan(self.plan.study, self.plan.scale, self._library, chosen)
        self._chosen = described(choices)
        return True

    # Workers.

    def _assign(self) -> None:
        """Give every worker that has nothing to do the next run; hire as many as there is work for."""
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
                "out": str(self._folder.runs.resolve()),  # a worker may stand elsewhere
                "data": None if root is None else str(root.resolve()),
            }
        )

    def _unchecked(self) -> dict[str, dict[str, Any]]:
        """One run for each set of parts that nobody has tried to build yet."""
        found: dict[str, dict[str, Any]] = {}
        for run in self._wanted(self.plan.runs):
            spec, facts = run.spec.resolved(), self._library.of(run.spec.data.name)
            assert facts is not None
            parts = [spec["model"], spec["loss"], spec["optimizer"], spec.get("ensemble")]
            key = canonical([*parts, facts.shape, facts.classes])
            if key not in self._checked and key not in found:
                found[key] = {"label": run.label, "spec": spec, "shape": facts.shape, "classes": facts.classes}
        return found

    def _order_check(self, worker: AnyWorker, parts: dict[str, dict[str, Any]]) -> None:
        self._checked |= set(parts)
        self._checker = worker
        worker.order({"do": "check", "runs": list(parts.values())})

    # What workers say.

    def _hear(self, worker: AnyWorker, said: list[dict[str, Any]] | None) -> None:
        if said is None:
            self._lost(worker)
            return
        for message in said:
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
        """A worker has gone: its run is begun again from its checkpoint, a few times if it gets no further."""
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
                last = (left.strip().splitlines() or ["it said nothing"])[-1]
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
        """SIGINT and SIGTERM ask the workers to commit and leave; a second SIGINT does not wait for them."""

        def ask(number: int, frame: FrameType | None) -> None:
            if self._asked and number == signal.SIGINT:
                raise KeyboardInterrupt
            self._asked = True

        try:
            before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not the main thread: nobody sends signals here
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
