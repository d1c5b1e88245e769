"""Records as lines of text, the journals that hold them, and the lock of a run's folder. Needs no torch.

A record is one JSON object with a checksum and bit-exact floats. A journal is append-only; its reader returns exactly
the complete records before the first corruption. The lock is the kernel's (``flock``), which releases the lock of a
process that dies, so that one process trains the run at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from surefoot.errors import BadInput, RunLocked, StorageFault
from surefoot.files import open_regular, read_file

__all__ = [
    "ARRAYS",
    "JOURNAL",
    "LOCK",
    "MAX_TABLE",
    "RUN_FILES",
    "TIMINGS",
    "Journal",
    "Record",
    "canonical",
    "decode",
    "decode_nonfinite",
    "encode",
    "is_locked",
    "locked",
    "read_journal",
    "read_json",
    "read_to",
    "split_arrays",
]

# The files that surefoot writes in a run's folder.
RUN_FILES = (
    "spec.json", "facts.json", "result.json", "examples.json", "journal.jsonl", "arrays.jsonl", "timings.jsonl",
    "state-a.safetensors", "state-b.safetensors", "best.safetensors", "lock",
)  # fmt: skip
LOCK = "lock"
MAX_TABLE = 1 << 20  # bytes of spec.json, facts.json or result.json

Record = dict[str, Any]

_SUM = "crc"
# JSON has no words for these, and browsers do not read the words of Python's json.
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def canonical(value: Any) -> str:
    """Write a value as JSON with sorted keys and without spaces.

    Args:
        value: Dictionaries, lists, tuples, texts, numbers, booleans and None, in any nesting.

    Returns:
        The text. NaN and infinities become the texts ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``.

    Example:
        >>> canonical({"b": (1, 2.0), "a": math.nan})
        '{"a":"NaN","b":[1,2.0]}'
    """
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def encode(record: Mapping[str, Any]) -> bytes:
    r"""Write a record with its CRC-32 checksum as one line.

    Args:
        record: Values by name, as `canonical` takes them.

    Returns:
        The line with its line break.

    Example:
        >>> encode({"step": 3, "loss": 0.1})
        b'{"crc":"61343c42","loss":0.1,"step":3}\n'
    """
    body = canonical(dict(record))
    return (canonical({**json.loads(body), _SUM: _checksum(body.encode())}) + "\n").encode()


def decode(line: bytes) -> Record | None:
    r"""Read a line that `encode` wrote.

    Args:
        line: The line with its line break.

    Returns:
        The record without its checksum; None if the line is incomplete or corrupted.

    Example:
        >>> decode(b'{"crc":"61343c42","loss":0.1,"step":3}\n')
        {'loss': 0.1, 'step': 3}
        >>> decode(b'{"crc":"61343c42","loss":0.2,"step":3}\n') is None
        True
    """
    if not line.endswith(b"\n"):
        return None
    try:
        values = json.loads(line)
        if not isinstance(values, dict) or not _is_intact(line, values.pop(_SUM, None)):
            return None
        record: Record = decode_nonfinite(values)
    except (ValueError, RecursionError):  # no JSON, invalid UTF-8, or endless brackets
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
    """Split a reading into its plain values and its lists and tables.

    Args:
        reading: Values by name; ``"step"`` is among them.

    Returns:
        The plain values, and the lists and tables together with the step. The second is None if there are none.

    Example:
        >>> split_arrays({"step": 0, "loss": 2.5, "counts": [1, 2]})
        ({'step': 0, 'loss': 2.5}, {'step': 0, 'counts': [1, 2]})
    """
    scalars = {name: value for name, value in reading.items() if not isinstance(value, list | dict)}
    arrays = {name: value for name, value in reading.items() if isinstance(value, list | dict)}
    return scalars, {"step": reading["step"], **arrays} if arrays else None


def _is_intact(line: bytes, checksum: Any) -> bool:
    """Whether the checksum is that of the line's other bytes; `encode` wrote the checksum in the order of the keys."""
    own = canonical({_SUM: checksum})[1:-1].encode()
    before, entry, after = line.rstrip(b"\n").partition(own)
    # A comma follows the entry of the checksum, or precedes the entry if it is the last one.
    body = before + after[1:] if after.startswith(b",") else before.removesuffix(b",") + after
    return bool(entry) and checksum == _checksum(body)


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
    """Convert the texts that `canonical` writes for NaN and infinities back to floats.

    Args:
        value: A value that was read from JSON.

    Returns:
        The value with floats in place of these texts, in dictionaries and lists too.

    Example:
        >>> decode_nonfinite({"loss": ["Infinity", 0.5]})
        {'loss': [inf, 0.5]}
    """
    if isinstance(value, dict):
        return {key: decode_nonfinite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [decode_nonfinite(item) for item in value]
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


JOURNAL, ARRAYS, TIMINGS = "journal.jsonl", "arrays.jsonl", "timings.jsonl"
_MAX_BYTES = 1 << 32  # of a journal; a larger one is a sparse file


def read_journal(path: Path) -> tuple[list[Record], int]:
    """Read the records of a journal up to the first corrupted one.

    Args:
        path: The journal; a missing file has no records.

    Returns:
        The records, and the offset in bytes at which the last of them ends.

    Raises:
        BadInput: If the file is a link, is not regular, is too large, or cannot be read.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "journal.jsonl"
        ...     _ = path.write_bytes(encode({"step": 0}) + b'{"step":')
        ...     read_journal(path)
        ([{'step': 0}], 28)
    """
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
    """Read the readings of a run that ended at a known step.

    Args:
        folder: The run's folder.
        step: The step at which the run ended.

    Returns:
        The readings; None if the last one is not of this step, so that the journal must be corrupted.

    Raises:
        BadInput: If the journal is a link, is not regular, is too large, or cannot be read.
    """
    readings = read_journal(folder / JOURNAL)[0]
    return readings if readings and readings[-1].get("step") == step else None


class Journal:
    """Appends records to a file, which is first cut to ``offset``: bytes behind the offset were never committed.

    Args:
        path: The file, made if it does not exist.
        offset: Length in bytes to which the file is cut.

    Attributes:
        offset: Length of the file with all records written so far.

    Raises:
        BadInput: If the file is a link or not regular.
        StorageFault: If the file cannot be opened or cut.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     journal = Journal(Path(folder) / "journal.jsonl", 0)
        ...     journal.append({"step": 0})
        ...     journal.close()
        ...     read_journal(Path(folder) / "journal.jsonl")[0]
        [{'step': 0}]
    """

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
        """Write one record; a partial write is continued.

        Args:
            record: Values by name, as `canonical` takes them.

        Raises:
            StorageFault: If the disk refuses the write.
        """
        line = encode(record)
        try:
            done = 0
            while done < len(line):
                done += os.write(self._file, line[done:])
        except OSError as error:
            raise StorageFault(f"cannot write {self._path.name!r}: {error.strerror}") from error
        self.offset += len(line)

    def sync(self) -> None:
        """Wait until all written records are on the disk.

        Raises:
            StorageFault: If the disk refuses.
        """
        try:
            os.fsync(self._file)
        except OSError as error:
            raise StorageFault(f"cannot sync {self._path.name!r}: {error.strerror}") from error

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run inside a ``with`` block.

    Args:
        folder: The run's folder, which exists.

    Yields:
        None, while the lock is held.

    Raises:
        RunLocked: If another process holds the lock.
        BadInput: If the folder or the lock file is a link, or the lock file is not regular.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, locked(Path(folder)):
        ...     is_locked(Path(folder))
        True
    """
    handle = open_regular(folder / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunLocked(f"another process is running {folder.name}; wait for it, or stop it") from error
        yield
    finally:
        os.close(handle)


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock of a run now.

    Args:
        folder: The run's folder, which may not exist.

    Returns:
        True if the lock is held; False also if the folder or the lock file cannot be opened.
    """
    try:
        handle = open_regular(folder / LOCK)
    except (OSError, BadInput):  # `locked` raises a clear error in this case
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
