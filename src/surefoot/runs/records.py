"""Records as lines of text, and the journals that hold them.

A record is one JSON object with a checksum and bit-exact floats. A journal is append-only; reading it back gives exactly
the complete records before the first corruption.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from surefoot.errors import BadInput, StorageFault
from surefoot.files import open_regular, read_file

__all__ = [
    "ARRAYS",
    "JOURNAL",
    "MAX_TABLE",
    "RUN_FILES",
    "TIMINGS",
    "Journal",
    "Record",
    "canonical",
    "decode",
    "decode_nonfinite",
    "encode",
    "read_journal",
    "read_json",
    "read_to",
    "split_arrays",
]

# What a run's folder holds of ours.
RUN_FILES = (
    "spec.json", "facts.json", "result.json", "examples.json", "journal.jsonl", "arrays.jsonl", "timings.jsonl",
    "state-a.safetensors", "state-b.safetensors", "best.safetensors", "lock",
)  # fmt: skip
MAX_TABLE = 1 << 20  # bytes of a spec, its facts or a result

Record = dict[str, Any]

_SUM = "crc"
# json has no word for these, and a browser reads none of Python's.
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces; numbers that are not finite become words."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def encode(record: Mapping[str, Any]) -> bytes:
    """One line: the record with its checksum.

    >>> encode({"step": 3, "loss": 0.1})
    b'{"crc":"61343c42","loss":0.1,"step":3}\\n'
    """
    body = canonical(dict(record))
    return (canonical({**json.loads(body), _SUM: _checksum(body.encode())}) + "\n").encode()


def decode(line: bytes) -> Record | None:
    """The record of a complete, unharmed line; None of any other."""
    if not line.endswith(b"\n"):
        return None
    try:
        found = json.loads(line)
        if not isinstance(found, dict) or not _holds(line, found.pop(_SUM, None)):
            return None
        record: Record = decode_nonfinite(found)
    except (ValueError, RecursionError):  # no JSON, letters that no text has, or brackets without end
        return None
    return record


def read_json(path: Path, max_bytes: int = MAX_TABLE) -> Any:
    """Read a JSON file that `canonical` wrote.

    Args:
        path: A file of a run, opened as by `surefoot.files.open_regular`.
        max_bytes: A larger file is refused.

    Returns:
        The value, with numbers that are not finite as floats.

    Raises:
        BadInput: If the file is no regular file or too large.
        OSError: If the file is missing or cannot be read.
        ValueError: If the file holds no JSON.
    """
    try:
        return decode_nonfinite(json.loads(read_file(path, max_bytes)))
    except RecursionError as error:
        raise ValueError(f"{path.name} nests too deeply") from error


def split_arrays(reading: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """A reading's numbers, and its lists and tables with the step, if it has any."""
    scalars = {name: value for name, value in reading.items() if not isinstance(value, list | dict)}
    arrays = {name: value for name, value in reading.items() if isinstance(value, list | dict)}
    return scalars, {"step": reading["step"], **arrays} if arrays else None


def _holds(line: bytes, checksum: Any) -> bool:
    """Is it the checksum of the line's other bytes? `encode` wrote it among them in the order of the keys."""
    own = canonical({_SUM: checksum})[1:-1].encode()
    before, found, after = line.rstrip(b"\n").partition(own)
    # The comma that goes with it stands behind it, or before it if it is the last.
    body = before + after[1:] if after.startswith(b",") else before.removesuffix(b",") + after
    return bool(found) and checksum == _checksum(body)


def _checksum(body: bytes) -> str:
    return f"{zlib.crc32(body):08x}"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return int(value)
    number = float(value)
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def decode_nonfinite(value: Any) -> Any:
    """What `canonical` wrote, read as JSON, with words for numbers that are not finite made numbers again."""
    if isinstance(value, dict):
        return {key: decode_nonfinite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [decode_nonfinite(item) for item in value]
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


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
