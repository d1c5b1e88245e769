"""Loggers for ``Tracker(loggers=[...])``: a table in a file, TensorBoard, and the two methods of any other."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from typing import Any

from surefoot.errors import BadInput, MissingDependency
from surefoot.files import replace_file
from surefoot.training.loggers import Logger, numbers_of
from surefoot.validation import as_path

__all__ = ["CSVLogger", "Logger", "TensorBoardLogger", "numbers_of"]


class CSVLogger:
    """A line for each reading, a column for each number; empty where a reading has none.

    The file can be read at any moment. A run that goes on from a checkpoint goes on in its file: lines of the steps
    that it repeats are replaced. A file of another run is left as it is.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = as_path(path)
        self._rows: list[dict[str, str]] | None = None  # before the first reading it is not known whose file it is
        self._columns = ["step"]
        self._foreign = False
        self._whole = False  # whether the file holds these rows, so that a line can be added to it

    def log(self, reading: Mapping[str, Any]) -> None:
        """Write the reading's numbers."""
        step = int(reading["step"])
        if self._rows is None:
            self._rows = self._found(step)
        if self._foreign:
            raise BadInput(f"{str(self._path)!r} already holds readings; choose another path, or move the file")
        row = {"step": str(step)} | {name: repr(value) for name, value in numbers_of(reading).items()}
        new = [name for name in row if name not in self._columns]
        kept = [each for each in self._rows if int(each["step"]) < step]
        more = self._whole and not new and len(kept) == len(self._rows)
        self._columns += new
        self._rows = [*kept, row]
        self._whole = False
        if more:
            with self._path.open("a", newline="") as stream:
                stream.write(self._text([row]))
        else:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            header = dict(zip(self._columns, self._columns, strict=True))
            with replace_file(self._path) as whole:
                whole.write(self._text([header, *self._rows]).encode())
        self._whole = True

    def close(self) -> None:
        """Forget whose file it is: the next run may be another one."""
        self._rows, self._columns, self._foreign, self._whole = None, ["step"], False, False

    def _found(self, step: int) -> list[dict[str, str]]:
        """The rows that the file holds, if it is this run's."""
        if not self._path.exists():
            return []
        with self._path.open(newline="") as stream:
            lines = [line for line in stream if line.endswith("\n")]  # a death may have cut the last one short
        table = csv.DictReader(lines)
        rows = list(table)
        self._columns = list(table.fieldnames or self._columns)
        self._foreign = bool(lines) and (step == 0 or self._columns[0] != "step")
        return rows

    def _text(self, rows: list[dict[str, str]]) -> str:
        text = io.StringIO()
        csv.DictWriter(text, self._columns, restval="", lineterminator="\n").writerows(rows)
        return text.getvalue()


class TensorBoardLogger:
    """The numbers of each reading as scalars of a TensorBoard run in ``folder``."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingDependency(
                "TensorBoardLogger needs TensorBoard; install it with: pip install 'surefoot[tensorboard]'"
            ) from error
        self._make, self._folder = SummaryWriter, str(as_path(folder, "folder"))
        self._writer: SummaryWriter | None = None

    def log(self, reading: Mapping[str, Any]) -> None:
        """Write the reading's numbers."""
        step = int(reading["step"])
        if self._writer is None:
            # A run that goes on replaces what was shown of the steps that it repeats.
            self._writer = self._make(self._folder, purge_step=step or None)
        for name, value in numbers_of(reading).items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
