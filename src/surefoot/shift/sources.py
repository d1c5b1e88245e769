"""Where corrupted pictures come from: made here, or read from the published files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.shift.corruptions import corrupt
from surefoot.shift.official import official

__all__ = ["Source", "generated", "published"]

Source = Callable[[str, int], tuple[NDArray[Any], NDArray[np.int64]]]


def generated(pictures: NDArray[Any], labels: NDArray[np.int64], seed: int = 0) -> Source:
    """These pictures under any corruption."""
    return lambda kind, severity: (corrupt(pictures, kind, severity, seed), labels)


def published(clean: str, root: Path | None, labels: NDArray[np.int64]) -> Source:
    """The official corruptions of the first test images of the set ``clean``, as many as there are ``labels``."""

    def read(kind: str, severity: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        pictures, found = official(clean, kind, severity, root)
        if clean == "imagenet":
            return pictures, found  # other images than the clean ones: those held out are gone
        if len(found) < len(labels) or (found[: len(labels)] != labels).any():
            raise BadInput(f"the official labels are not those of {clean}'s test set; is the archive another one?")
        return pictures[: len(labels)], found[: len(labels)]

    return read
