"""What a plan needs to know of a data set, read once: its digest, which names the runs, and its sizes. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from surefoot.data.sets import load_set
from surefoot.errors import BadInput
from surefoot.training.spec import DataSpec

__all__ = ["DatasetIndex", "DatasetInfo"]


@dataclass(frozen=True)
class DatasetInfo:
    """Digest, numbers of examples, shape of one as a network sees it, classes."""

    digest: str
    train: int
    test: int
    shape: tuple[int, ...]
    classes: int


class DatasetIndex:
    """The facts of data sets under a folder; where a set is missing, an error, or None if ``lenient``."""

    def __init__(self, root: Path | None, lenient: bool = False) -> None:
        self.root, self._lenient = root, lenient
        self._known: dict[str, DatasetInfo | None] = {}
        self.missing: list[str] = []

    def of(self, name: str) -> DatasetInfo | None:
        """The facts of a set."""
        if name not in self._known:
            self._known[name] = self._read(name)
        return self._known[name]

    def rows(self, data: DataSpec) -> int | None:
        """How many examples train a run; None if that takes the data to know, and it is missing."""
        known = self.of(data.name)
        if known is None:
            return data.train
        for part, wanted, there in (
            ("train", (data.train or 1) + data.val, known.train),
            ("test", data.test or 1, known.test),
        ):
            if wanted > there:
                what = "data.train and data.val together" if part == "train" else "data.test"
                raise BadInput(f"{what} must be at most {there:,} for {data.name}; got {wanted:,}")
        return known.train - data.val if data.train is None else data.train

    def _read(self, name: str) -> DatasetInfo | None:
        try:
            data = load_set(name, self.root)
        except BadInput as error:
            if not self._lenient:
                raise
            self.missing.append(str(error))
            return None
        shape = tuple(int(size) for size in data.x_train.shape[1:])
        if len(shape) == 3:  # images come with their channels last
            shape = (shape[2], shape[0], shape[1])
        return DatasetInfo(data.digest(), len(data.x_train), len(data.x_test), shape, data.classes)
