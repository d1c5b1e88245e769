"""The reader of run folders: what a run is, how far it came, its readings. No torch, and nothing read is trusted."""

from __future__ import annotations

import itertools
import math
import os
import statistics
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

from surefoot.errors import BadInput
from surefoot.files import open_file
from surefoot.runs.columns import Columns, columns_of, complete_lines
from surefoot.runs.records import ARRAYS, JOURNAL, MAX_TABLE, TIMINGS, Record, decode, read_json
from surefoot.spellings import current_keys

__all__ = ["RunReader", "number", "overview", "read_result", "run_folders", "table"]

_MAX_EXAMPLES = 64 << 20  # bytes of examples.json
_MAX_DEPTH = 32  # tables in tables; a run's own have three
_MAX_OUTCOME = 40  # letters
# A line is one or two kilobytes; this many bytes hold the last dozens.
_TAIL = 1 << 16
# How many of the last readings tell the pace.
_RECENT = 20


class RunReader:
    """Reads the folder of a run or of a `surefoot.Tracker`.

    A file is read when something of it is first asked for. A file that is corrupted or missing costs what it held: its
    contents read as empty, and ``notes`` says what is wrong with it.

    Args:
        folder: The run's own folder, which may not exist yet.

    Attributes:
        folder: As given.
        notes: A sentence for each file that could not be read so far.

    Example:
        >>> reader = RunReader(Path("runs/0123456789abcdef"))
        >>> reader.outcome, reader.step, reader.readings
        ('waiting', 0, [])
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes: list[str] = []

    @cached_property
    def spec(self) -> dict[str, Any]:
        """``spec.json`` under the current names of its keys."""
        try:
            return current_keys(self._table("spec.json"))
        except BadInput as error:  # a key in two spellings
            self.notes.append(f"spec.json: {error}")
            return {}

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """``facts.json``: versions, machine and data."""
        return self._table("facts.json")

    @cached_property
    def result(self) -> dict[str, Any]:
        """``result.json``, empty until the run ends."""
        return self._table("result.json")

    @property
    def examples(self) -> dict[str, Any]:
        """``examples.json``: images of the examples in the tails, by row."""
        return self._table("examples.json", _MAX_EXAMPLES)

    @property
    def optimizer(self) -> dict[str, Any]:
        """The spec's table of the optimizer."""
        return table(self.spec.get("optimizer"))

    @property
    def seed(self) -> int | None:
        """The spec's seed."""
        seed = self.spec.get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def outcome(self) -> str:
        """How the run ended: finished, diverged or interrupted.

        Without a result: ``"waiting"`` if there is no folder, ``"tracked"`` if a tracker wrote it, which has no end, or
        ``"unfinished"``.
        """
        outcome = self.result.get("outcome")
        if isinstance(outcome, str):
            return outcome[:_MAX_OUTCOME]
        if not self.folder.is_dir():
            return "waiting"
        has_spec = os.path.lexists(self.folder / "spec.json")
        return "tracked" if not has_spec and self._tail(JOURNAL, 2) else "unfinished"

    @property
    def steps(self) -> int | None:
        """How many steps the spec asks for; epochs are counted by the number of training examples in the metadata."""
        stop = table(self.spec.get("stop"))
        steps, epochs, batch = stop.get("steps"), stop.get("epochs"), stop.get("batch")
        if is_count(steps):
            return steps
        rows = table(self.metadata.get("data")).get("train") if is_count(epochs) else None
        if not is_count(epochs) or not is_count(rows):
            return None
        # As surefoot.training.loop.Batches counts: a last batch that would be smaller is left out.
        return epochs * (max(1, rows // batch) if is_count(batch) and batch else 1)

    @property
    def final(self) -> dict[str, Any]:
        """The numbers of the result, or of the last reading of a network whose logits were finite."""
        return table(self.result.get("final")) or self._last

    @property
    def step(self) -> int:
        """The step at which the run ended, or that of the last reading."""
        step = self.result.get("step")
        step = number(step if isinstance(step, int) else self.final.get("step"))
        return int(step) if math.isfinite(step) else 0

    @property
    def readings(self) -> list[Record]:
        """The complete readings from the front, without histograms and tables."""
        records = itertools.takewhile(lambda record: record is not None, map(_decoded, self._journal[0]))
        return [record for record in records if record is not None]

    def columns(self, wanted: Callable[[str], bool] = lambda name: True) -> Columns:
        """The readings' numbers by name, which is faster than `readings`; where they end early, a note says why.

        Args:
            wanted: Whether a column of this name is kept.

        Returns:
            The columns of all complete readings from the front.
        """
        lines, torn = self._journal
        columns = columns_of(lines, torn, wanted)
        # A torn last line is only a run that was stopped while it wrote.
        goes_on = columns.corrupted is not None and len(lines) + torn > columns.corrupted
        if columns.corrupted is not None and (isinstance(self.result.get("outcome"), str) or goes_on):
            self.notes.append(
                f"{JOURNAL} is corrupted at line {columns.corrupted}; {len(columns):,} readings before it are shown"
            )
        return columns

    def frames(self, pick: Callable[[int], list[int]]) -> list[Record]:
        """Histograms and tails by step.

        Only the chosen lines are decoded: a long run's file is large, and a page shows few of its frames.

        Args:
            pick: Of the number of frames, the places of those that are wanted.

        Returns:
            The chosen frames that have histograms, or tails where no frame has a histogram.
        """
        lines, _ = self._lines(ARRAYS)
        full = [line for line in lines if b'.reliability":' in line] or lines
        frames = [_decoded(full[place]) for place in pick(len(full))]
        return [frame for frame in frames if frame is not None and isinstance(frame.get("step"), int)]

    def clock(self) -> tuple[float, float]:
        """Seconds between the first and the last reading, and seconds a step over the last few; NaN if not known."""
        lines, _ = self._lines(TIMINGS)
        records = map(_decoded, lines[:1] + lines[-5:] if len(lines) > 1 else [])
        points = [(number(record.get("step")), number(record.get("time"))) for record in records if record is not None]
        points = [point for point in points if all(math.isfinite(value) for value in point)]
        if len(points) < 2:
            return math.nan, math.nan
        (first, begun), (last, now) = points[1], points[-1]
        pace = (now - begun) / (last - first) if last > first and now >= begun else math.nan
        return max(0.0, now - points[0][1]), pace

    def progress(self) -> dict[str, Any]:
        """How far the run has come and when it will end, from the ends of its files alone.

        The pace is the median over the gaps between the last readings, so that a night between two sessions does not
        count.

        Returns:
            Outcome, step, steps (None if unknown), and seconds since 1970 of the last reading and of the end
            (None if unknown).
        """
        records = self._tail(JOURNAL, 2)  # the last line may be torn
        step = self.result.get("step", records[-1].get("step") if records else 0)
        progress: dict[str, Any] = {
            "outcome": self.outcome,
            "step": step if is_count(step) else 0,
            "steps": self.steps,
            "seen": None,
            "ends": None,
        }
        if not self.result:
            times = [(record["step"], record["time"]) for record in self._tail(TIMINGS, _RECENT) if _is_timed(record)]
            progress |= _forecast(times, progress["step"], progress["steps"])
        return progress

    @cached_property
    def _journal(self) -> tuple[list[bytes], bool]:
        return self._lines(JOURNAL)

    @cached_property
    def _last(self) -> dict[str, Any]:
        count = len(columns_of(*self._journal, lambda name: False))
        records = map(_decoded, reversed(self._journal[0][:count]))
        return next((record for record in records if record is not None and "diverged" not in record), {})

    def _lines(self, name: str) -> tuple[list[bytes], bool]:
        try:
            return complete_lines(self.folder / name)
        except BadInput as error:
            self._note(name, error)
            return [], False

    def _note(self, name: str, error: BadInput) -> None:
        self.notes.append(str(error).replace(str(self.folder / name), name))

    def _table(self, name: str, max_bytes: int = MAX_TABLE) -> dict[str, Any]:
        """A file that holds one table; empty if there is none, and a note if it is something else."""
        try:
            found = read_json(self.folder / name, max_bytes)
        except FileNotFoundError:
            return {}
        except BadInput as error:
            self._note(name, error)
            return {}
        except (OSError, ValueError):
            self.notes.append(f"{name} cannot be read")
            return {}
        if not isinstance(found, dict) or _is_deep(found, _MAX_DEPTH):
            self.notes.append(f"{name} holds no table of ours")
            return {}
        return found

    def _tail(self, name: str, count: int) -> list[Record]:
        """The complete records among a file's last ``count`` lines; a line cut off by where we began is none."""
        try:
            with open_file(self.folder / name) as stream:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL))
                raw = stream.read(_TAIL)
        except (OSError, BadInput):
            return []
        records = map(decode, raw.splitlines(keepends=True)[-count:])
        return [record for record in records if record is not None]


def read_result(folder: Path) -> dict[str, Any] | None:
    """A run's result; None while it has none.

    Args:
        folder: The run's folder.

    Returns:
        ``result.json`` with at least an outcome, a step and the final numbers. A result that lacks one of these was
        corrupted, and is as none: the run is ended again from its checkpoint.

    Raises:
        BadInput: If the folder or the file is a link, or the file is not regular: such a run is not begun again.
    """
    try:
        result = read_json(folder / "result.json")
    except BadInput:
        raise
    except (OSError, ValueError):
        return None
    kinds = {"outcome": str, "step": int, "final": dict}
    whole = isinstance(result, dict) and all(isinstance(result.get(key), kind) for key, kind in kinds.items())
    return result if whole else None


def run_folders(folder: Path) -> list[Path]:
    """The run itself, the runs in a folder of runs, or those of a study.

    Args:
        folder: May be a symbolic link; links inside of it are not followed.

    Returns:
        The folders by name.
    """
    folder = folder.resolve()
    if os.path.lexists(folder / "spec.json"):
        return [folder]
    if os.path.lexists(folder / "study.json"):
        folder = folder / "runs"
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
    return [folder / name for name in names if os.path.lexists(folder / name / "spec.json")]


def overview(folder: Path) -> list[dict[str, Any]]:
    """Where the runs of a folder stand.

    Args:
        folder: As of `run_folders`.

    Returns:
        A dictionary for each run: id, optimizer, seed, outcome, step, steps and the last reading.
    """
    return [_described(RunReader(path)) for path in run_folders(folder)]


def _described(reader: RunReader) -> dict[str, Any]:
    return {
        "id": reader.folder.name,
        "optimizer": str(reader.optimizer.get("name", "?")),
        "seed": "?" if reader.seed is None else reader.seed,
        "outcome": reader.outcome,
        "step": reader.step,
        "steps": reader.steps,
        "last": reader.final,
    }


def number(value: Any) -> float:
    """``value`` as a float; NaN if it is none."""
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.nan


def table(value: Any) -> dict[str, Any]:
    """``value`` if it is a table; an empty one otherwise."""
    return value if isinstance(value, dict) else {}


def is_count(value: Any) -> TypeGuard[int]:
    """Whether ``value`` can be a number of steps or rows."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _decoded(line: bytes) -> Record | None:
    return decode(line + b"\n")


def _is_timed(record: Record) -> bool:
    time = record.get("time")
    return is_count(record.get("step")) and isinstance(time, float) and 0 <= time < 1e11


def _is_deep(value: Any, levels: int) -> bool:
    """Whether more tables and lists stand in one another: whoever walks through them later would run out of stack."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(_is_deep(item, levels - 1) for item in inner)


def _forecast(times: Sequence[tuple[int, float]], step: int, steps: int | None) -> dict[str, float]:
    """When the last reading was taken and when the run will end; ``times`` holds (step, time) pairs."""
    if not times:
        return {}
    seen = {"seen": times[-1][1]}
    # A resumed run repeats steps: only where both went forwards was there training.
    pace = [
        (time - before) / (at - last)
        for (last, before), (at, time) in itertools.pairwise(times)
        if at > last and time > before
    ]
    if not pace or steps is None or step > steps:
        return seen
    ends = times[-1][1] + statistics.median(pace) * (steps - step)
    return seen | ({"ends": ends} if math.isfinite(ends) else {})
