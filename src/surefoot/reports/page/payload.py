"""The data of the page: every run with thinned columns, some frames, and the comparison of methods.

The size is bounded: with more runs, every run has fewer points and frames, but always its ends and extremes.
"""

from __future__ import annotations

import base64
import hashlib
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot import __version__
from surefoot.errors import BadInput
from surefoot.files import open_file
from surefoot.reports.figures.compare import compare, flat, settings, shared_and_own
from surefoot.reports.figures.downsample import downsample, evenly
from surefoot.reports.figures.legend import looks
from surefoot.reports.figures.panels import BOUNDS, PANELS, correlations, drawn, final_quantities, wanted
from surefoot.reports.figures.shift import under_shift
from surefoot.reports.runs import Frames, Place, RunFacts, number, places, read_frames, read_run

__all__ = ["PayloadCache", "data_uri", "payload", "png"]


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Encode a picture as PNG.

    Args:
        pixels: bytes, grey (h, w) or RGB (h, w, 3).

    Returns:
        The file's contents.

    References:
        RFC 2083 (1997), "PNG (Portable Network Graphics) Specification".
    """
    height, width = pixels.shape[:2]
    colour = 2 if pixels.ndim == 3 else 0
    rows = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(pixels))  # 0: no filter
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in chunks)


def data_uri(shape: Any, text: Any) -> str | None:
    """Encode a picture of ``examples.json`` as a data URI.

    Args:
        shape: height, width and number of channels (1 or 3); a side has at most 512 pixels.
        text: the bytes of the picture in base64.

    Returns:
        The URI; None if shape and bytes do not fit.
    """
    try:
        height, width, channels = (int(size) for size in shape)
        raw = base64.b64decode(text, validate=True)
        if not (1 <= height <= 512 and 1 <= width <= 512 and channels in (1, 3)):
            return None
        pixels = np.frombuffer(raw, np.uint8).reshape(height, width, channels)
    except (ValueError, TypeError, OverflowError):
        return None
    picture = pixels[..., 0] if channels == 1 else pixels
    return "data:image/png;base64," + base64.b64encode(png(picture)).decode()


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


_POINTS, _FRAMES, _PICTURES = 50_000, 1_500, 2_000_000  # readings, frames and characters of all runs together
_MANY = 200 << 20  # bytes of journals; two processes read larger folders

Packed = tuple[RunFacts, dict[str, Any], Frames]


class PayloadCache:
    """Data of one folder's page, computed repeatedly: only runs whose files have changed are read again.

    Attributes:
        folder: the folder without links.

    Args:
        folder: a run, a study, or a folder of runs and studies.
        admit: function that says which runs are shown.
        processes: number of processes that read large folders; 1 reads in the caller's thread.
    """

    def __init__(self, folder: Path, admit: Callable[[Place], bool] = lambda place: True, processes: int = 2) -> None:
        self.folder, self._admit, self._processes = folder.resolve(), admit, processes
        self._kept: dict[Path, tuple[Any, Packed]] = {}

    def payload(self) -> dict[str, Any]:
        """Compute the data of the page for the current files.

        Returns:
            The data; docs/REPORT.md describes the keys.

        Raises:
            BadInput: if there is no run in the folder.
        """
        runs = [run for run in places(self.folder) if self._admit(run)]
        points, frames = budget(max(1, len(runs)))
        marks = {run.folder: (points, frames, run, _mark(run.folder)) for run in runs}
        old = {path: packed for path, (mark, packed) in self._kept.items() if marks.get(path) == mark}
        fresh = [run for run in runs if run.folder not in old]
        read = dict(zip((run.folder for run in fresh), _read_all(fresh, points, frames, self._processes), strict=True))
        packed = old | read
        self._kept = {run.folder: (marks[run.folder], packed[run.folder]) for run in runs}
        return _assembled(self.folder, [self._kept[run.folder][1] for run in runs])


def payload(folder: Path) -> dict[str, Any]:
    """Compute the data of the page.

    Args:
        folder: a run, a study, or a folder of runs and studies.

    Returns:
        The data; docs/REPORT.md describes the keys.

    Raises:
        BadInput: if there is no run in the folder.
    """
    return PayloadCache(folder).payload()


def budget(runs: int) -> tuple[int, int]:
    """Number of readings and frames that are kept of each run.

    The number of runs is rounded up to a power of two: one more run must not change the data of all other runs.

    Example:
        >>> budget(7), budget(1000)
        ((400, 60), (48, 1))
    """
    runs = 1 << (runs - 1).bit_length()
    return min(400, max(25, _POINTS // runs)), min(60, max(1, _FRAMES // runs))


def _mark(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of a run's files, which change when the run changes."""
    stamps = []
    for name in ("spec.json", "journal.jsonl", "arrays.jsonl", "result.json", "examples.json"):
        try:
            facts = (folder / name).lstat()
        except OSError:
            continue
        stamps.append((name, facts.st_size, facts.st_mtime_ns))
    return tuple(stamps)


def _read_all(runs: Sequence[Place], points: int, frames: int, processes: int) -> list[Packed]:
    size = sum(mark[1] for run in runs for mark in _mark(run.folder))
    read = partial(_packed, points=points, frames=frames)
    if size < _MANY or processes == 1:
        return [read(run) for run in runs]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return list(pool.map(read, runs, chunksize=8))


# A stranger's numbers may overflow a sum; the results are then not finite, and the page shows no number.
_QUIET = np.errstate(over="ignore", invalid="ignore")


@_QUIET
def _packed(place: Place, points: int, frames: int) -> Packed:
    """A run, read and thinned; the correlations are computed here, as they need all readings."""
    run = read_run(place, wanted)
    related = correlations(run)
    columns = {name: column for name, column in run.columns.numbers.items() if name == "step" or drawn(name)}
    columns = {name: column for name, column in columns.items() if name == "step" or np.isfinite(column).any()}
    rows = downsample(columns, points)
    curves = {name: _short(column[rows], name == "step") for name, column in columns.items()}
    run.columns.numbers.clear()
    kept = read_frames(place.folder, lambda total: evenly(total, frames))
    return run, {"curves": curves, "correlations": related, "readings": len(columns["step"])}, kept


def _short(column: Any, integers: bool) -> Any:
    """Four digits of every number, null for a missing number, and one number for a constant column."""
    if integers:
        return [int(value) for value in column]
    values = [None if not math.isfinite(value) else float(f"{value:.4g}") for value in column.tolist()]
    return values[0] if len(values) > 1 and len(set(values)) == 1 else values


@_QUIET
def _assembled(folder: Path, packed: Sequence[Packed]) -> dict[str, Any]:
    runs = [run for run, _, _ in packed]
    shared, own = shared_and_own([run.spec for run in runs])
    pictures = _Pictures()
    listed = []
    for (run, fields, frames), look, differs, setting in zip(
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
                **fields,
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
            "pictures": pictures.by_name,
        }
    )
    return shown


class _Pictures:
    """The pictures of the examples in frames, each once: runs on the same data share pictures."""

    def __init__(self) -> None:
        self.by_name: dict[str, str] = {}
        self._left = _PICTURES

    def framed(self, frame: dict[str, Any], examples: dict[str, Any]) -> dict[str, Any]:
        """The frame, with the names of the pictures added to the rows of its tails."""
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
        if name not in self.by_name:
            if self._left < len(text) or (picture := data_uri(shape, text)) is None:
                return None
            self.by_name[name] = picture
            self._left -= len(picture)
        return name


def _facts(runs: Sequence[RunFacts]) -> dict[str, list[Any]]:
    """The metadata of the runs: for each key its different values, at most seven."""
    values_of: dict[str, list[Any]] = {}
    for run in runs:
        for key, value in flat(run.facts).items():
            values = values_of.setdefault(key, [])
            if value not in values and len(values) < 7:
                values.append(value)
    return values_of


def _studies(runs: Sequence[Place]) -> dict[str, str]:
    """The text of each study's own file, by the study's name."""
    folders = {run.study: run.study_folder for run in runs if run.study_folder is not None}
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
    """``value`` with null for every number that JSON cannot write, and four digits of the numbers in lists."""
    if isinstance(value, dict):
        return {str(key): _strict(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item, 4 if isinstance(item, float) else digits) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    if isinstance(value, int) and abs(value) > 1 << 53:
        return None
    return value
