"""A journal as columns of numbers, read quickly: a thousand runs of two thousand readings must not take minutes."""

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
# Bytes of a file of readings; one that claims more (a file of holes costs its sender nothing) is not read.
_LARGEST = 1 << 30


@dataclass(frozen=True)
class Columns:
    """Numbers by name, (n,) each, NaN where a reading lacks one; ``step`` is among them and rises.

    ``words`` holds the last text of each name whose values are texts; ``corrupted`` is the number of the first line
    that is not a complete record, None if there is none.
    """

    numbers: dict[str, NDArray[np.float64]]
    words: dict[str, str]
    corrupted: int | None

    def __len__(self) -> int:
        return len(self.numbers["step"])


def complete_lines(path: Path) -> tuple[list[bytes], bool]:
    """The lines of a file that end, and whether something follows them; a missing file has none."""
    try:
        raw = read_file(path, _LARGEST)
    except FileNotFoundError:
        return [], False
    except OSError as error:
        raise BadInput(f"cannot read {path.name!r}: {error.strerror}") from error
    *lines, rest = raw.split(b"\n")
    return lines, bool(rest)


def read_columns(path: Path, wanted: Callable[[str], bool] = lambda name: True) -> Columns:
    """The wanted columns of the complete records from the front, as `surefoot.runs.records.read_journal` reads."""
    return columns_of(*complete_lines(path), wanted)


def columns_of(lines: Sequence[bytes], torn: bool, wanted: Callable[[str], bool]) -> Columns:
    """The same of the lines that `complete_lines` gives."""
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
    """Readings with the same names in the same order: the places of the wanted ones are looked up once."""

    def __init__(self, names: tuple[str, ...], wanted: Callable[[str], bool]) -> None:
        self.names = sorted(name for name in names if name == "step" or wanted(name))
        self.rows: list[list[Any]] = []
        self.places: list[int] = []
        # A line as it is written has its names sorted, and the checksum among them.
        fields = [self._field(name) for name in sorted((*names, "crc"))]
        self._match = re.compile(rb"\{" + b",".join(fields) + rb"\}").fullmatch

    def _field(self, name: str) -> bytes:
        key = re.escape(json.dumps(name, ensure_ascii=False).encode(errors="replace"))
        if name == "step":
            return key + rb":([0-9]{1,15})"
        return key + (rb":([^,}]*)" if name in self.names else rb":[^,}]*")

    def quick(self, line: bytes) -> list[Any] | None:
        """The wanted numbers of a line that differs from the others in nothing but numbers; None of any other."""
        found = self._match(line)
        try:
            return None if found is None else list(map(float, found.groups()))
        except ValueError:  # a word
            return None

    def careful(self, record: dict[str, Any]) -> list[Any]:
        """The wanted values of a record."""
        return [record[name] for name in self.names]


def _is_plain(line: bytes) -> bool:
    """Whether a line is as `encode` writes it, by its checksum; others take the long way."""
    start = line.find(_MARK)
    if start < 0 or line[start + _WIDTH - 2 : start + _WIDTH] != b'",':
        return False
    body = line[:start] + line[start + _WIDTH :]
    return f"{zlib.crc32(body):08x}".encode() == line[start + len(_MARK) : start + _WIDTH - 2]


def _is_step(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _numbers(values: Sequence[Any]) -> NDArray[np.float64] | None:
    """One number each; None of anything else, a list of lists of numbers too."""
    try:
        column = np.array(values, dtype=np.float64)  # "NaN" and "Infinity" are numbers, too
    except (ValueError, TypeError, OverflowError):
        return None
    return column if column.ndim == 1 else None


def _loaded(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    found.pop("crc", None)
    return found
