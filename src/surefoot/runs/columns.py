"""Fast reader of a journal as columns of numbers.

The speed is for studies: a thousand runs of two thousand readings must not take minutes.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.files import read_file
from surefoot.runs.records import decode

__all__ = ["Columns", "columns_of", "complete_lines", "read_columns"]

_MARK = b'"crc":"'
_WIDTH = len(_MARK) + 8 + 2  # the checksum's eight digits, its quotation mark and the comma
# Bytes of a file of readings. A larger file is not read: a sparse file of any size costs its sender nothing.
_LARGEST = 1 << 30


@dataclass(frozen=True)
class Columns:
    """The readings of a journal by name.

    Attributes:
        numbers: Float64 arrays (n,) by name, NaN where a reading lacks the name. ``"step"`` is among the names, and
            steps increase.
        words: The last text of each name whose values are texts.
        corrupted: Number, from 1, of the first line that is not a complete record; None if there is none.
    """

    numbers: dict[str, NDArray[np.float64]]
    words: dict[str, str]
    corrupted: int | None

    def __len__(self) -> int:
        return len(self.numbers["step"])


def complete_lines(path: Path) -> tuple[list[bytes], bool]:
    """Read the lines of a file that end with a line break.

    Args:
        path: The file; a missing file has no lines.

    Returns:
        The lines without their line breaks, and whether an incomplete line follows.

    Raises:
        BadInput: If the file is a link, is not regular, is too large, or cannot be read.

    Example:
        >>> complete_lines(Path("no-such-journal.jsonl"))
        ([], False)
    """
    try:
        raw = read_file(path, _LARGEST)
    except FileNotFoundError:
        return [], False
    except OSError as error:
        raise BadInput(f"cannot read {path.name!r}: {error.strerror}") from error
    *lines, rest = raw.split(b"\n")
    return lines, bool(rest)


def read_columns(path: Path, wanted: Callable[[str], bool] = lambda name: True) -> Columns:
    """Read columns of a journal up to the first corrupted record, as `surefoot.runs.records.read_journal` does.

    Args:
        path: The journal; a missing file has no readings.
        wanted: Whether a column of this name is kept; all are by default.

    Returns:
        The columns.

    Raises:
        BadInput: If the file is a link, is not regular, is too large, or cannot be read.

    Example:
        >>> import tempfile
        >>> from surefoot.runs.records import encode
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "journal.jsonl"
        ...     _ = path.write_bytes(encode({"step": 0, "loss": 2.5}) + encode({"step": 50, "loss": 0.5}))
        ...     columns = read_columns(path)
        >>> len(columns), columns.numbers["loss"], columns.corrupted
        (2, array([2.5, 0.5]), None)
    """
    return columns_of(*complete_lines(path), wanted)


def columns_of(lines: Sequence[bytes], torn: bool, wanted: Callable[[str], bool]) -> Columns:
    """Decode lines of a journal to columns, up to the first corrupted record.

    Args:
        lines: Lines without line breaks, as `complete_lines` returns them.
        torn: Whether an incomplete line follows.
        wanted: Whether a column of this name is kept.

    Returns:
        The columns.
    """
    blocks: dict[tuple[str, ...], _Block] = {}  # readings with the same names
    block: _Block | None = None
    count, corrupted = 0, None
    for line in lines:
        plain = _is_plain(line)
        row = block.quick(line) if plain and block is not None else None
        if row is None:
            record = _loaded(line) if plain else decode(line + b"\n")
            if record is None or not _is_step(record.get("step")):
                corrupted = count + 1
                break
            block = blocks.setdefault(tuple(record), _Block(tuple(record), wanted))
            row = block.careful(record)
        assert block is not None
        block.rows.append(row)
        block.places.append(count)
        count += 1
    if corrupted is None and torn:
        corrupted = count + 1
    numbers: dict[str, NDArray[np.float64]] = {"step": np.full(count, np.nan)}
    words: dict[str, str] = {}
    for block in blocks.values():
        for name, values in zip(block.names, zip(*block.rows, strict=True), strict=True):
            column = _numbers(values)
            if column is not None:
                numbers.setdefault(name, np.full(count, np.nan))[block.places] = column
            elif isinstance(values[-1], str):
                words[name] = values[-1]
    return Columns(numbers, words, corrupted)


class _Block:
    """Readings with the same names in the same order; the places of wanted columns are looked up once."""

    def __init__(self, names: tuple[str, ...], wanted: Callable[[str], bool]) -> None:
        self.names = sorted(name for name in names if name == "step" or wanted(name))
        self.rows: list[list[Any]] = []
        self.places: list[int] = []
        # `encode` writes the names of a line in sorted order, with the checksum among them.
        fields = [self._field(name) for name in sorted((*names, "crc"))]
        self._match = re.compile(rb"\{" + b",".join(fields) + rb"\}").fullmatch

    def _field(self, name: str) -> bytes:
        key = re.escape(json.dumps(name, ensure_ascii=False).encode(errors="replace"))
        if name == "step":
            return key + rb":([0-9]{1,15})"
        return key + (rb":([^,}]*)" if name in self.names else rb":[^,}]*")

    def quick(self, line: bytes) -> list[Any] | None:
        """The wanted numbers of a line that differs from the block's in numbers alone; None for any other line."""
        match = self._match(line)
        try:
            return None if match is None else list(map(float, match.groups()))
        except ValueError:  # a text
            return None

    def careful(self, record: dict[str, Any]) -> list[Any]:
        """The wanted values of a record."""
        return [record[name] for name in self.names]


def _is_plain(line: bytes) -> bool:
    """Whether a line has the form of `encode` and a right checksum; other lines are decoded slowly."""
    start = line.find(_MARK)
    if start < 0 or line[start + _WIDTH - 2 : start + _WIDTH] != b'",':
        return False
    body = line[:start] + line[start + _WIDTH :]
    return f"{zlib.crc32(body):08x}".encode() == line[start + len(_MARK) : start + _WIDTH - 2]


def _is_step(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _numbers(values: Sequence[Any]) -> NDArray[np.float64] | None:
    """Values as a column of numbers; None for other values, such as lists of numbers."""
    try:
        column = np.array(values, dtype=np.float64)  # numpy reads "NaN" and "Infinity", too
    except (ValueError, TypeError, OverflowError):
        return None
    return column if column.ndim == 1 else None


def _loaded(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    record.pop("crc", None)
    return record
