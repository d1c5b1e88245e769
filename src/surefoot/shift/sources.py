"""Sources of corrupted pictures: generated, or read from the published files."""

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
    """Make a source that corrupts given pictures.

    Args:
        pictures: (n, h, w, c) pictures.
        labels: (n,) labels.
        seed: seed of the noise, at least 0.

    Returns:
        Function of (kind, severity) that returns pictures and labels.
    """
    return lambda kind, severity: (corrupt(pictures, kind, severity, seed), labels)


def published(clean: str, root: Path | None, labels: NDArray[np.int64]) -> Source:
    """Make a source that reads the official corruptions of the first n test images.

    Args:
        clean: name of the clean data set: ``"cifar10"``, ``"cifar100"`` or ``"imagenet"``.
        root: the data folder.
        labels: (n,) labels of the first n test images. All images of ImageNet-C that are not held out are read.

    Returns:
        Function of (kind, severity) that returns pictures and labels. The function raises `BadInput` when files are
        missing, or when the official labels differ from ``labels``.
    """

    def read(kind: str, severity: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        pictures, official_labels = official(clean, kind, severity, root)
        if clean == "imagenet":
            return pictures, official_labels  # other images than the clean ones, because some are held out
        if len(official_labels) < len(labels) or (official_labels[: len(labels)] != labels).any():
            raise BadInput(f"the official labels are not those of {clean}'s test set; is the archive another one?")
        return pictures[: len(labels)], official_labels[: len(labels)]

    return read
