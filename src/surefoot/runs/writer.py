"""The writer of run folders: locks a folder, appends readings, commits checkpoints, stores pictures. Needs torch."""

from __future__ import annotations

import base64
import contextlib
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot.data.prepare import Prepared
from surefoot.errors import StorageFault
from surefoot.files import check_regular, make_folder, remove_leftovers, replace_file
from surefoot.runs.checkpoint import save_best, save_checkpoint
from surefoot.runs.records import (
    ARRAYS,
    JOURNAL,
    RUN_FILES,
    TIMINGS,
    Journal,
    canonical,
    locked,
    read_journal,
    split_arrays,
)

__all__ = ["EXAMPLES", "NullWriter", "RunWriter", "claimed", "write_examples", "write_json"]

EXAMPLES = "examples.json"
_MAX_PICTURES = 256  # of each set: the examples that dominated the moment most often


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Make a run's folder, lock it, check its files and delete leftovers of interrupted writes.

    Args:
        folder: The run's own folder, made if there is none.

    Yields:
        None, while the lock is held.

    Raises:
        BadInput: If the folder or one of the run's files is a symbolic link, or no regular file.
        RunLocked: If another process holds the lock.
        StorageFault: If the folder cannot be made.
    """
    make_folder(folder)
    with locked(folder):
        check_regular(folder, RUN_FILES)
        remove_leftovers(folder, (*RUN_FILES, "state"))  # version 0.1 wrote checkpoints as .state.*
        yield


def write_json(path: Path, value: Any) -> None:
    r"""Write a file of a run as canonical JSON, by an atomic rename.

    Args:
        path: The file.
        value: A value, as `surefoot.runs.records.canonical` takes it.

    Raises:
        BadInput: If the folder is a symbolic link.
        StorageFault: If the disk refuses the write; the file is then as it was.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_json(Path(folder) / "result.json", {"step": 500, "outcome": "finished"})
        ...     (Path(folder) / "result.json").read_text()
        '{"outcome":"finished","step":500}\n'
    """
    with replace_file(path, follow_folder=False) as stream:
        stream.write(canonical(value).encode() + b"\n")


class NullWriter:
    """Writes nothing, for ranks other than the first: all ranks take the same readings, and the first writes them."""

    def note(self, reading: Mapping[str, Any]) -> None:
        """Write a reading.

        Args:
            reading: Values by name; ``"step"`` is among them.
        """

    def keep(self, weights: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
        """Write the weights of the best reading so far.

        Args:
            weights: Weights by name.
            metadata: The ``"step"`` of the weights, and the value of the metric.
        """

    def commit(self, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], turn: int) -> None:
        """Write a checkpoint from which the run can be resumed.

        Args:
            tensors: The state's tensors by name.
            metadata: The rest of the state, as values that JSON can hold; ``"step"`` is among them.
            turn: Number of the checkpoint; even and odd numbers use different files.
        """

    def close(self) -> None:
        """Close the files."""


class RunWriter(NullWriter):
    """Writes the readings and checkpoints of a run, or of a `surefoot.Tracker`, in its folder.

    The journals are first cut to ``offsets``: bytes behind an offset were never committed.

    Args:
        folder: The run's folder, which exists and whose files were checked.
        offsets: Where the journals of numbers and of arrays end, as the checkpoint says.
        timed: Whether the time and the peak memory of each reading are written, too.

    Raises:
        StorageFault: If a journal is corrupted before its offset, so that the run cannot be resumed.
    """

    def __init__(self, folder: Path, offsets: tuple[int, int] = (0, 0), timed: bool = True) -> None:
        self._folder = folder
        for name, offset in zip((JOURNAL, ARRAYS), offsets, strict=True):
            records, end = read_journal(folder / name)
            if offset > end:
                raise StorageFault(
                    f"{name} of run {folder.name} is corrupted after its record {len(records)}, before the place that "
                    "the checkpoint names, so the run cannot go on; move its folder away and run it again"
                )
        self._scalars, self._arrays = (
            Journal(folder / name, offset) for name, offset in zip((JOURNAL, ARRAYS), offsets, strict=True)
        )
        self._timings = Journal(folder / TIMINGS, read_journal(folder / TIMINGS)[1]) if timed else None

    @property
    def offsets(self) -> tuple[int, int]:
        """Where the journals of numbers and of arrays end."""
        return self._scalars.offset, self._arrays.offset

    def note(self, reading: Mapping[str, Any]) -> None:
        """Write a reading: numbers into one journal, lists and tables into the other."""
        scalars, arrays = split_arrays(reading)
        self._scalars.append(scalars)
        if arrays is not None:
            self._arrays.append(arrays)
        if self._timings is not None:
            self._timings.append({"step": reading["step"], "time": time.time(), "peak_mb": _peak_memory()})

    def keep(self, weights: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
        """Write the weights of the best reading so far."""
        save_best(self._folder, weights, metadata)

    def commit(self, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], turn: int) -> None:
        """Write a checkpoint from which the run can be resumed, with the offsets of the journals."""
        self.sync()
        save_checkpoint(self._folder, tensors, {**metadata, "offsets": self.offsets}, turn)

    def sync(self) -> None:
        """Wait until every reading is on the disk."""
        self._scalars.sync()
        self._arrays.sync()

    def close(self) -> None:
        """Close the files."""
        for journal in (self._scalars, self._arrays, self._timings):
            if journal is not None:
                journal.close()


def _peak_memory() -> float:
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def write_examples(folder: Path, data: Prepared) -> None:
    """Write ``examples.json``: pictures (h, w, c) by row, as bytes in base64.

    Nothing is written if the data are no images or no tails were read. The file depends only on the run's own files and
    data, so that a resumed run writes the same bytes.

    Args:
        folder: The run's folder.
        data: Prepared data of the run.

    Raises:
        BadInput: If the folder is a symbolic link.
        StorageFault: If the disk refuses the write.
    """
    if len(data.shape) != 3 or data.shape[0] not in (1, 3):
        return
    records = read_journal(folder / ARRAYS)[0]
    pictures: dict[str, Any] = {}
    for part, examples in (("train", data.train), ("test", data.test)):
        seen = Counter(
            row for record in records if (tail := record.get(f"{part}.tail")) is not None for row in tail["rows"]
        )
        rows = sorted(row for row, _ in sorted(seen.items(), key=lambda item: (-item[1], item[0]))[:_MAX_PICTURES])
        if rows:
            # The range of the set maps to black and white: digits range from 0 to 16, photographs from 0 to 255.
            images = data.raw(examples.take(torch.tensor(rows))[0]).transpose(0, 2, 3, 1)
            low, high = float(images.min()), float(images.max())
            pixels = np.rint((images - low) / max(high - low, 1e-12) * 255).astype(np.uint8)
            texts = [base64.b64encode(image.tobytes()).decode() for image in pixels]
            pictures[part] = {str(row): text for row, text in zip(rows, texts, strict=True)}
    if pictures:
        channels, height, width = data.shape
        write_json(folder / EXAMPLES, {"shape": [height, width, channels], **pictures})
