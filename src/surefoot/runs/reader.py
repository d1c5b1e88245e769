"""The reader of run folders: spec, progress, readings and result of a run.

The reader needs no torch, and checks every file that it reads.
"""

from __future__ import annotations

import itertools
import math
import os
import statistics
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

from surefoot.deprecated import current_keys
from surefoot.errors import BadInput
from surefoot.files import open_file
from surefoot.runs.columns import Columns, columns_of, complete_lines
from surefoot.runs.records import ARRAYS, JOURNAL, MAX_TABLE, TIMINGS, Record, decode, read_json

__all__ = ["RunReader", "number", "overview", "read_result", "run_folders", "table"]

_MAX_EXAMPLES = 64 << 20  # bytes of examples.json
_MAX_DEPTH = 32  # of nested tables; those of a run have a depth of three
_MAX_OUTCOME = 40  # letters
# A line has one or two kilobytes; this many bytes hold the last dozens of lines.
_TAIL = 1 << 16
# Number of the last readings from which the pace is estimated.
_RECENT = 20


class RunReader:
    """Reads the folder of a run or of a `surefoot.Tracker`.

    A file is read when its content is first asked for. A missing or corrupted file reads as empty; for a corrupted
    file, ``notes`` says what is wrong.

    Args:
        folder: The run's own folder, which may not exist yet.

    Attributes:
        folder: The run's folder.
        notes: One sentence for each corrupted file met so far.

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

        Without a result: ``"waiting"`` if there is no folder, ``"tracked"`` if a tracker wrote the folder (a tracker
        has no end), or ``"unfinished"``.
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
        """Number of steps of the spec; epochs are converted by the number of training examples in the metadata."""
        stop = table(self.spec.get("stop"))
        steps, epochs, batch = stop.get("steps"), stop.get("epochs"), stop.get("batch")
        if is_count(steps):
            return steps
        rows = table(self.metadata.get("data")).get("train") if is_count(epochs) else None
        if not is_count(epochs) or not is_count(rows):
            return None
        # surefoot.training.loop.Batches leaves out a last batch that would be smaller.
        return epochs * (max(1, rows // batch) if is_count(batch) and batch else 1)

    @property
    def final(self) -> dict[str, Any]:
        """The numbers of the result, or those of the last reading with finite logits."""
        return table(self.result.get("final")) or self._last

    @property
    def step(self) -> int:
        """The step at which the run ended, or the step of the last reading."""
        step = self.result.get("step")
        step = number(step if isinstance(step, int) else self.final.get("step"))
        return int(step) if math.isfinite(step) else 0

    @property
    def readings(self) -> list[Record]:
        """The readings up to the first corrupted one, without histograms and tables."""
        records = itertools.takewhile(lambda record: record is not None, map(_decoded, self._journal[0]))
        return [record for record in records if record is not None]

    def columns(self, wanted: Callable[[str], bool] = lambda name: True) -> Columns:
        """Read the readings as columns, which is faster than `readings`; a note reports a corrupted journal.

        Args:
            wanted: Whether a column of this name is kept.

        Returns:
            The columns of all readings up to the first corrupted one.
        """
        lines, torn = self._journal
        columns = columns_of(lines, torn, wanted)
        # An incomplete last line is normal: the run was stopped while it wrote.
        continues = columns.corrupted is not None and len(lines) + torn > columns.corrupted
        if columns.corrupted is not None and (isinstance(self.result.get("outcome"), str) or continues):
            self.notes.append(
                f"{JOURNAL} is corrupted at line {columns.corrupted}; {len(columns):,} readings before it are shown"
            )
        return columns

    def frames(self, pick: Callable[[int], list[int]]) -> list[Record]:
        """Read frames: histograms and tails of one step.

        Only the chosen lines are decoded, since the file of a long run is large and a page shows few frames.

        Args:
            pick: Function from the number of frames to the indices of the wanted ones.

        Returns:
            The chosen ones among the frames with histograms, or among all frames if none has a histogram.
        """
        lines, _ = self._lines(ARRAYS)
        full = [line for line in lines if b'.reliability":' in line] or lines
        frames = [_decoded(full[place]) for place in pick(len(full))]
        return [frame for frame in frames if frame is not None and isinstance(frame.get("step"), int)]

    def clock(self) -> tuple[float, float]:
        """Time that the run took so far, by the times of its readings.

        Returns:
            Seconds between the first and the last reading, and seconds per step over the last few readings. Either is
            NaN if it is not known.
        """
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
        """Progress of the run and its expected end, read from the last lines of its files alone.

        The pace is the median over the gaps between the last readings, so that a pause between two sessions does not
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
        """Read a file that holds one table; a missing file reads as empty, and any other adds a note."""
        try:
            content = read_json(self.folder / name, max_bytes)
        except FileNotFoundError:
            return {}
        except BadInput as error:
            self._note(name, error)
            return {}
        except (OSError, ValueError):
            self.notes.append(f"{name} cannot be read")
            return {}
        if not isinstance(content, dict) or _is_deep(content, _MAX_DEPTH):
            self.notes.append(f"{name} holds no table of surefoot")
            return {}
        return content

    def _tail(self, name: str, count: int) -> list[Record]:
        """The complete records among a file's last ``count`` lines."""
        try:
            with open_file(self.folder / name) as stream:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL))
                raw = stream.read(_TAIL)
        except (OSError, BadInput):
            return []
        records = map(decode, raw.splitlines(keepends=True)[-count:])
        return [record for record in records if record is not None]


def read_result(folder: Path) -> dict[str, Any] | None:
    """Read the result of a run.

    Args:
        folder: The run's folder.

    Returns:
        ``result.json`` with at least an outcome, a step and the final numbers; None if the run has no result. A result
        that lacks one of these is corrupted and counts as none: the run is ended again from its checkpoint.

    Raises:
        BadInput: If the folder or the file is a link, or the file is not regular: such a run is not started again.

    Example:
        >>> read_result(Path("runs/0123456789abcdef")) is None
        True
    """
    try:
        result = read_json(folder / "result.json")
    except BadInput:
        raise
    except (OSError, ValueError):
        return None
    kinds = {"outcome": str, "step": int, "final": dict}
    complete = isinstance(result, dict) and all(isinstance(result.get(key), kind) for key, kind in kinds.items())
    return result if complete else None


def run_folders(folder: Path) -> list[Path]:
    """List the run folders of a run, of a folder of runs, or of a study.

    Args:
        folder: One of the three. It may be a symbolic link; links inside the folder are not followed.

    Returns:
        The run folders, sorted by name; the folder itself if it is a run.

    Example:
        >>> run_folders(Path("no-such-folder"))
        []
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
    """Summarise the state of the runs of a folder.

    Args:
        folder: A run, a folder of runs or a study, as `run_folders` takes it.

    Returns:
        A dictionary for each run: id, optimizer, seed, outcome, step, steps and the last reading.

    Example:
        >>> overview(Path("no-such-folder"))
        []
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
    """Convert an untrusted value to a float.

    Args:
        value: Any value.

    Returns:
        The number; NaN if the value is no number, or too large for a float.

    Example:
        >>> number(3), number("3"), number(True)
        (3.0, nan, nan)
    """
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.nan


def table(value: Any) -> dict[str, Any]:
    """Read an untrusted value as a table.

    Args:
        value: Any value.

    Returns:
        The value if it is a dictionary, else an empty dictionary.

    Example:
        >>> table({"name": "sgd"}), table("sgd")
        ({'name': 'sgd'}, {})
    """
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
    """Whether tables and lists are nested deeper than ``levels``, where a later recursion would exhaust the stack."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(_is_deep(item, levels - 1) for item in inner)


def _forecast(times: Sequence[tuple[int, float]], step: int, steps: int | None) -> dict[str, float]:
    """When the last reading was taken and when the run will end; ``times`` holds (step, time) pairs."""
    if not times:
        return {}
    seen = {"seen": times[-1][1]}
    # A resumed run repeats steps: a gap counts only if both step and time increase.
    pace = [
        (time - before) / (at - last)
        for (last, before), (at, time) in itertools.pairwise(times)
        if at > last and time > before
    ]
    if not pace or steps is None or step > steps:
        return seen
    ends = times[-1][1] + statistics.median(pace) * (steps - step)
    return seen | ({"ends": ends} if math.isfinite(ends) else {})
