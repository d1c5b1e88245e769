"""What the page shows, as plain data: every run with thinned columns, a few frames, and the comparison of methods.

The size is kept in hand: more runs get fewer points and frames each, but never less than their ends and extremes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import __version__
from surefoot.errors import BadInput
from surefoot.files import open_file
from surefoot.reports.figures.colours import looks
from surefoot.reports.figures.compare import compare, settings
from surefoot.reports.figures.downsample import downsample, evenly
from surefoot.reports.figures.panels import BOUNDS, PANELS, drawn, final_quantities, wanted
from surefoot.reports.figures.portrait import correlations
from surefoot.reports.figures.shift import under_shift
from surefoot.reports.page.png import data_uri
from surefoot.reports.places import Place, places
from surefoot.reports.runs import Frames, RunFacts, number, read_frames, read_run
from surefoot.reports.specs import flat, shared_and_own

__all__ = ["PayloadCache", "payload"]

_POINTS, _FRAMES, _PICTURES = 50_000, 1_500, 2_000_000  # of all runs together: readings, frames, characters
_MANY = 200 << 20  # bytes of journals from which two processes read them

Packed = tuple[RunFacts, dict[str, Any], Frames]


class PayloadCache:
    """Payloads of one folder again and again: runs whose files have not changed are not read again.

    ``admit`` says which runs are shown; with one of ``processes`` all is read in the caller's thread.
    """

    def __init__(self, folder: Path, admit: Callable[[Place], bool] = lambda place: True, processes: int = 2) -> None:
        self.folder, self._admit, self._processes = folder.resolve(), admit, processes
        self._kept: dict[Path, tuple[Any, Packed]] = {}

    def payload(self) -> dict[str, Any]:
        """The page's data as of now."""
        found = [each for each in places(self.folder) if self._admit(each)]
        points, frames = budget(max(1, len(found)))
        marks = {each.folder: (points, frames, each, _mark(each.folder)) for each in found}
        old = {path: packed for path, (mark, packed) in self._kept.items() if marks.get(path) == mark}
        fresh = [each for each in found if each.folder not in old]
        read = dict(
            zip((each.folder for each in fresh), _read_all(fresh, points, frames, self._processes), strict=True)
        )
        packed = old | read
        self._kept = {each.folder: (marks[each.folder], packed[each.folder]) for each in found}
        return _assembled(self.folder, [self._kept[each.folder][1] for each in found])


def payload(folder: Path) -> dict[str, Any]:
    """The page's data for a run, a study, or a folder of runs and studies; see docs/REPORT.md for its keys."""
    return PayloadCache(folder).payload()


def budget(runs: int) -> tuple[int, int]:
    """How many readings and frames of each run are kept, when there are so many runs.

    Runs are counted in powers of two: one more run must not change what is kept of all the others.

    >>> budget(7), budget(1000)
    ((400, 60), (48, 1))
    """
    runs = 1 << (runs - 1).bit_length()
    return min(400, max(25, _POINTS // runs)), min(60, max(1, _FRAMES // runs))


def _mark(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """What tells whether a run's files have changed."""
    found = []
    for name in ("spec.json", "journal.jsonl", "arrays.jsonl", "result.json", "examples.json"):
        try:
            facts = (folder / name).lstat()
        except OSError:
            continue
        found.append((name, facts.st_size, facts.st_mtime_ns))
    return tuple(found)


def _read_all(found: Sequence[Place], points: int, frames: int, processes: int) -> list[Packed]:
    size = sum(mark[1] for each in found for mark in _mark(each.folder))
    read = partial(_packed, points=points, frames=frames)
    if size < _MANY or processes == 1:
        return [read(each) for each in found]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return list(pool.map(read, found, chunksize=8))


# A stranger's numbers may be too large to be summed; what follows from them is then no number, and said to be none.
_QUIET = np.errstate(over="ignore", invalid="ignore")


@_QUIET
def _packed(place: Place, points: int, frames: int) -> Packed:
    """A run, read and thinned; the correlations need all readings, so they are taken here."""
    run = read_run(place, wanted)
    related = correlations(run)
    columns = {name: column for name, column in run.columns.numbers.items() if name == "step" or drawn(name)}
    columns = {name: column for name, column in columns.items() if name == "step" or np.isfinite(column).any()}
    rows = downsample(columns, points)
    curves = {name: _short(column[rows], name == "step") for name, column in columns.items()}
    run.columns.numbers.clear()
    kept = read_frames(place.folder, lambda total: evenly(total, frames))
    return run, {"curves": curves, "correlations": related, "readings": len(columns["step"])}, kept


def _short(column: Any, whole: bool) -> Any:
    """Four digits of each number, null for none, and one number for a column that never changes."""
    if whole:
        return [int(value) for value in column]
    values = [None if not math.isfinite(value) else float(f"{value:.4g}") for value in column.tolist()]
    return values[0] if len(values) > 1 and len(set(values)) == 1 else values


@_QUIET
def _assembled(folder: Path, packed: Sequence[Packed]) -> dict[str, Any]:
    runs = [run for run, _, _ in packed]
    shared, own = shared_and_own([run.spec for run in runs])
    pictures = _Pictures()
    listed = []
    for (run, found, frames), look, differs, setting in zip(
        packed, looks([(run.method, run.rate) for run in runs]), own, settings(runs), strict=True
    ):
        listed.append(
            {
                "id": run.id,
                "path": run.place.folder.relative_to(folder).as_posix(),
                "label": run.label,
                "study": run.place.study,
                "method": run.method,
                "rate": _plain(run.rate),
                "seed": run.seed,
                "outcome": run.outcome,
                "note": run.note,
                "step": run.step,
                "steps": run.steps,
                "seconds": _plain(run.seconds),
                "pace": _plain(run.pace),
                "colour": look[0],
                "dash": look[1],
                "axes": run.place.axes,
                "setting": setting,
                "spec": differs,
                "regime": run.columns.words.get("train.regime"),
                "final": {
                    name: _plain(number(run.final.get(name))) for name in final_quantities() if name in run.final
                },
                **found,
                "frames": [pictures.framed(frame, frames.examples) for frame in frames.frames],
            }
        )
    shown: dict[str, Any] = _strict(
        {
            "title": folder.resolve().name,
            "version": __version__,
            "panels": [asdict(panel) for panel in PANELS],
            "bounds": [asdict(statement) for statement in BOUNDS],
            "shared": shared,
            "facts": _facts(runs),
            "studies": _studies([run.place for run in runs]),
            "compared": compare(runs),
            "shift": under_shift(runs),
            "runs": listed,
            "pictures": pictures.found,
        }
    )
    return shown


class _Pictures:
    """The pictures of the examples in frames, each once: runs on the same data show the same ones."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self._left = _PICTURES

    def framed(self, frame: dict[str, Any], examples: dict[str, Any]) -> dict[str, Any]:
        """The frame, with the names of its tails' pictures beside their rows."""
        frame = dict(frame)
        for part in ("train", "test"):
            tail = frame.get(f"{part}.tail")
            stored = examples.get(part)
            if not isinstance(tail, dict) or not isinstance(tail.get("rows"), list):
                frame.pop(f"{part}.tail", None)
                continue
            texts = [stored.get(str(row)) if isinstance(stored, dict) else None for row in tail["rows"]]
            frame[f"{part}.tail"] = tail | {"pictures": [self._named(examples.get("shape"), text) for text in texts]}
        return frame

    def _named(self, shape: Any, text: Any) -> str | None:
        if not isinstance(text, str):
            return None
        name = hashlib.sha256(f"{shape} {text}".encode(errors="replace")).hexdigest()[:12]
        if name not in self.found:
            if self._left < len(text) or (picture := data_uri(shape, text)) is None:
                return None
            self.found[name] = picture
            self._left -= len(picture)
        return name


def _facts(runs: Sequence[RunFacts]) -> dict[str, list[Any]]:
    """What the runs say of versions, machine and data: for each fact its different values, a few at most."""
    found: dict[str, list[Any]] = {}
    for run in runs:
        for key, value in flat(run.facts).items():
            values = found.setdefault(key, [])
            if value not in values and len(values) < 7:
                values.append(value)
    return found


def _studies(found: Sequence[Place]) -> dict[str, str]:
    """The text of each study's own file, by the study's name."""
    folders = {each.study: each.study_folder for each in found if each.study_folder is not None}
    texts = {}
    for name, folder in folders.items():
        try:
            with open_file(folder / "study.toml") as stream:
                texts[str(name)] = stream.read(1 << 17).decode(errors="replace")
        except (OSError, BadInput):
            texts[str(name)] = ""
    return texts


def _plain(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _strict(value: Any, digits: int = 6) -> Any:
    """``value`` with null for every number that JSON has no word for, and four digits of those in lists."""
    if isinstance(value, dict):
        return {str(key): _strict(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item, 4 if isinstance(item, float) else digits) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    if isinstance(value, int) and abs(value) > 1 << 53:
        return None
    return value
