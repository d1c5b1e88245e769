"""The progress of a study: a live table on a terminal, one line per ended run elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from surefoot.studies.runner import Task
from surefoot.text import plain

__all__ = ["Lines", "Live", "sentence"]

_ORDER = ("running", "failed", "diverged", "interrupted", "elsewhere", "waiting", "finished")


def sentence(task: Task) -> str:
    """Say in a line how a run ended.

    Args:
        task: the run.

    Returns:
        The line.
    """
    before = "" if task.fresh else "had "
    ending = {
        "finished": f"{before}finished after {task.step:,} steps",
        "diverged": f"{before}diverged at step {task.step:,}",
        "failed": f"{before}failed: {task.error}" + ("" if task.fresh else " (--retry-failed tries it again)"),
    }.get(task.state, task.state)
    ece = "" if task.ece is None or task.state == "failed" else f", test ECE {task.ece:.4f}"
    return plain(f"{task.run.label}: {ending}{ece}")


class Lines:
    """Writes one line for each run that ends, at once; runs that had finished before are counted in one line.

    Args:
        write: function that writes a line.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._before = 0

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self._say_before()

    def ended(self, task: Task) -> None:
        """Write the line of a run, or count a run that had finished before.

        Args:
            task: the run.
        """
        if task.state == "finished" and not task.fresh:
            self._before += 1
            return
        self._say_before()
        self._write(sentence(task))

    def tick(self, tasks: Sequence[Task], waiting: int) -> None:
        """Write how many runs had finished before.

        Args:
            tasks: the runs.
            waiting: number of undecided runs.
        """
        self._say_before()

    def _say_before(self) -> None:
        if self._before:
            self._write(f"{self._before:,} runs had finished before")
            self._before = 0


class Live:
    """Shows a table of runs on stderr, as high as the terminal: running and failed runs first."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live as Screen

        self._console = Console(stderr=True, highlight=False)
        self._screen = Screen(console=self._console, auto_refresh=False, transient=True)
        self._began = time.monotonic()
        self._next = 0.0

    def __enter__(self) -> Live:
        self._screen.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._screen.stop()

    def ended(self, task: Task) -> None:
        """Print the line of a failed run, which stays on the screen.

        Args:
            task: the run.
        """
        if task.state == "failed":
            self._console.print(sentence(task), markup=False)

    def tick(self, tasks: Sequence[Task], waiting: int) -> None:
        """Draw the table, at most twice a second.

        Args:
            tasks: the runs.
            waiting: number of undecided runs.
        """
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + 0.5
        self._screen.update(self._table(tasks, waiting), refresh=True)

    def _table(self, tasks: Sequence[Task], waiting: int) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False)
        for name in ("run", "state", "step", "", "loss", "test ECE", "left"):
            table.add_column(name, justify="left" if name in ("run", "state", "") else "right", no_wrap=True)
        room = max(3, self._console.height - 4)
        ordered = sorted(tasks, key=lambda task: _ORDER.index(task.state))
        for task in ordered[:room]:
            table.add_row(Text(plain(task.run.label)), task.state, *_progress(task))
        counts = ", ".join(f"{n} {state}" for state in _ORDER if (n := sum(t.state == state for t in tasks)))
        rest = f", {waiting} to be decided" if waiting else ""
        table.caption = f"{counts}{rest}{self._left(tasks)}"
        table.caption_justify = "left"
        return table

    def _left(self, tasks: Sequence[Task]) -> str:
        """The remaining time of all runs, if they run as fast as the steps since the start of the display."""
        done = left = 0.0
        for task in tasks:
            cost, steps = task.run.cost or 0.0, task.run.steps or 1
            first = max(task.start, 0)
            if task.state in ("finished", "diverged") and task.fresh:
                done += cost * (1 - first / steps)
            elif task.state == "running" and task.start >= 0:
                done += cost * (task.step - first) / steps
            if not task.ended:
                left += cost * (1 - task.step / steps)
        elapsed = time.monotonic() - self._began
        return f"; {_clock(left / done * elapsed)} left" if done and left else ""


def _progress(task: Task) -> list[str]:
    steps = task.run.steps
    share = min(1.0, task.step / steps) if steps else 0.0
    full = round(12 * share)
    left = ""
    if task.state == "running" and task.start >= 0 and task.step > task.start and steps:
        left = _clock((steps - task.step) * (time.monotonic() - task.began) / (task.step - task.start))
    return [
        f"{task.step:,}/{steps:,}" if steps else f"{task.step:,}",
        "━" * full + "╌" * (12 - full),
        "" if task.loss is None else f"{task.loss:.4f}",
        "" if task.ece is None else f"{task.ece:.4f}",
        left,
    ]


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(min(seconds, 8.64e7))))
