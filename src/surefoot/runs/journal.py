"""An append-only file of records; what is read back is exactly the complete records before the first harm."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from surefoot.errors import BadInput, StorageFault
from surefoot.files import open_regular, read_file
from surefoot.runs.records import Record, decode, encode

__all__ = ["ARRAYS", "JOURNAL", "TIMINGS", "Journal", "read_journal", "read_to"]

JOURNAL, ARRAYS, TIMINGS = "journal.jsonl", "arrays.jsonl", "timings.jsonl"
_MAX_BYTES = 1 << 32  # of a journal; a larger one is a file of holes


def read_journal(path: Path) -> tuple[list[Record], int]:
    """The complete records from the front, and the offset where they end; a missing file has none."""
    try:
        raw = read_file(path, _MAX_BYTES)
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise BadInput(f"cannot read {path.name!r}: {error.strerror}") from error
    records: list[Record] = []
    offset = 0
    for line in raw.splitlines(keepends=True):
        record = decode(line)
        if record is None:
            break
        records.append(record)
        offset += len(line)
    return records, offset


def read_to(folder: Path, step: int) -> list[Record] | None:
    """The readings of a run that ended at ``step``; None if its journal does not come there, and so was harmed."""
    readings = read_journal(folder / JOURNAL)[0]
    return readings if readings and readings[-1].get("step") == step else None


class Journal:
    """Writes records at the end of a file, which is first cut to ``offset``: what lies behind was never committed."""

    def __init__(self, path: Path, offset: int) -> None:
        self._path = path
        try:
            self._file = open_regular(path, os.O_RDWR | os.O_CREAT)
            os.ftruncate(self._file, offset)
            os.lseek(self._file, offset, os.SEEK_SET)
        except OSError as error:
            raise StorageFault(f"cannot open {path.name!r}: {error.strerror}") from error
        self.offset = offset

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record; a write cut short goes on where it stopped."""
        line = encode(record)
        try:
            done = 0
            while done < len(line):
                done += os.write(self._file, line[done:])
        except OSError as error:
            raise StorageFault(f"cannot write {self._path.name!r}: {error.strerror}") from error
        self.offset += len(line)

    def sync(self) -> None:
        """Wait until everything written is on the disk."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise StorageFault(f"cannot sync {self._path.name!r}: {error.strerror}") from error

    def close(self) -> None:
        """Let go of the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
