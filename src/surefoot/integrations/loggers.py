"""Loggers for ``Tracker(loggers=[...])``: a table in a file, TensorBoard, and the protocol of other loggers."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from typing import Any

from surefoot.errors import BadInput, MissingDependency
from surefoot.files import replace_file
from surefoot.training.tracker import Logger, numbers_of
from surefoot.validation import as_path

__all__ = ["CSVLogger", "Logger", "TensorBoardLogger", "numbers_of"]


class CSVLogger:
    """A logger that writes a CSV file with one line per reading and one column per number.

    A cell is empty if the reading lacks the number. The file is complete at any moment. A run that continues from a
    checkpoint continues its file, and replaces the lines of repeated steps. The file of another run is not modified.

    Args:
        path: the file; its folder is created if necessary.

    Raises:
        BadInput: when ``path`` is no path.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     logger = CSVLogger(Path(folder) / "run.csv")
        ...     logger.log({"step": 0, "test.ece": 0.5})
        ...     logger.log({"step": 10, "test.ece": 0.25})
        ...     (Path(folder) / "run.csv").read_text().split()
        ['step,test.ece', '0,0.5', '10,0.25']
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = as_path(path)
        self._rows: list[dict[str, str]] | None = None  # None until the first reading tells whose file the file is
        self._columns = ["step"]
        self._other_run = False
        self._complete = False  # whether the file has exactly these rows, so that a line can be appended

    def log(self, reading: Mapping[str, Any]) -> None:
        """Write the numbers of a reading.

        Args:
            reading: the reading, with its ``step``.

        Raises:
            BadInput: when the file belongs to another run.
        """
        step = int(reading["step"])
        if self._rows is None:
            self._rows = self._read(step)
        if self._other_run:
            raise BadInput(f"{str(self._path)!r} already holds readings; choose another path, or move the file")
        row = {"step": str(step)} | {name: repr(value) for name, value in numbers_of(reading).items()}
        new = [name for name in row if name not in self._columns]
        kept = [earlier for earlier in self._rows if int(earlier["step"]) < step]
        appends = self._complete and not new and len(kept) == len(self._rows)
        self._columns += new
        self._rows = [*kept, row]
        self._complete = False
        if appends:
            with self._path.open("a", newline="") as stream:
                stream.write(self._text([row]))
        else:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            header = dict(zip(self._columns, self._columns, strict=True))
            with replace_file(self._path) as file:
                file.write(self._text([header, *self._rows]).encode())
        self._complete = True

    def close(self) -> None:
        """Forget the rows, because the next run may be another run."""
        self._rows, self._columns, self._other_run, self._complete = None, ["step"], False, False

    def _read(self, step: int) -> list[dict[str, str]]:
        """The rows of the file; also notes whether the file belongs to another run."""
        if not self._path.exists():
            return []
        with self._path.open(newline="") as stream:
            lines = [line for line in stream if line.endswith("\n")]  # a killed run may have cut the last line short
        table = csv.DictReader(lines)
        rows = list(table)
        self._columns = list(table.fieldnames or self._columns)
        self._other_run = bool(lines) and (step == 0 or self._columns[0] != "step")
        return rows

    def _text(self, rows: list[dict[str, str]]) -> str:
        """The lines of rows."""
        text = io.StringIO()
        csv.DictWriter(text, self._columns, restval="", lineterminator="\n").writerows(rows)
        return text.getvalue()


class TensorBoardLogger:
    """A logger that writes the numbers of readings as scalars of a TensorBoard run.

    Args:
        folder: the folder of the TensorBoard run.

    Raises:
        MissingDependency: when TensorBoard is not installed.
        BadInput: when ``folder`` is no path.
    """

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
        """Write the numbers of a reading.

        Args:
            reading: the reading, with its ``step``.
        """
        step = int(reading["step"])
        if self._writer is None:
            # A run that continues from a checkpoint replaces the scalars of repeated steps.
            self._writer = self._make(self._folder, purge_step=step or None)
        for name, value in numbers_of(reading).items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
