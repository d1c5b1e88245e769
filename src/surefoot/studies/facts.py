"""The metadata of data sets that a plan needs, read once: the digest, which run ids contain, and sizes. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from surefoot.data.sets import load_set
from surefoot.errors import BadInput
from surefoot.training.spec import DataSpec

__all__ = ["DatasetIndex", "DatasetInfo"]


@dataclass(frozen=True)
class DatasetInfo:
    """Metadata of a data set.

    Attributes:
        digest: digest of the data.
        train: number of training examples.
        test: number of test examples.
        shape: shape of one example as a network receives it; images are (channels, height, width).
        classes: number of classes.
    """

    digest: str
    train: int
    test: int
    shape: tuple[int, ...]
    classes: int


class DatasetIndex:
    """Metadata of the data sets in a folder, read when first asked for.

    Attributes:
        root: the folder.
        missing: messages about the missing sets.

    Args:
        root: folder of the data sets; None has embedded data sets alone.
        lenient: whether a missing set gives None instead of an error.
    """

    def __init__(self, root: Path | None, lenient: bool = False) -> None:
        self.root, self._lenient = root, lenient
        self._known: dict[str, DatasetInfo | None] = {}
        self.missing: list[str] = []

    def of(self, name: str) -> DatasetInfo | None:
        """Read the metadata of a data set.

        Args:
            name: name of the set.

        Returns:
            The metadata; None if the set is missing and the index is lenient.

        Raises:
            BadInput: if the set is missing or unknown, and the index is not lenient.
        """
        if name not in self._known:
            self._known[name] = self._read(name)
        return self._known[name]

    def rows(self, data: DataSpec) -> int | None:
        """Count the training examples of a run.

        Args:
            data: the data section of the run's spec.

        Returns:
            The number of examples; None if the number depends on a missing set.

        Raises:
            BadInput: if the spec asks for more examples than the set has.
        """
        known = self.of(data.name)
        if known is None:
            return data.train
        for part, wanted, available in (
            ("train", (data.train or 1) + data.val, known.train),
            ("test", data.test or 1, known.test),
        ):
            if wanted > available:
                what = "data.train and data.val together" if part == "train" else "data.test"
                raise BadInput(f"{what} must be at most {available:,} for {data.name}; got {wanted:,}")
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
