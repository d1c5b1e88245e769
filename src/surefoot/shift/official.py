"""The published corrupted images, read from the user's files: CIFAR-10-C, CIFAR-100-C, ImageNet-C.

The data folder must hold ``CIFAR-10-C/<kind>.npy`` and ``CIFAR-10-C/labels.npy``, likewise for CIFAR-100-C. These have
50,000 rows: the 10,000 test images at severities 1 to 5. Images of ImageNet-C are
``ImageNet-C/<kind>/<severity>/<class>/<image>.JPEG``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.data.formats import read_folder
from surefoot.data.registry import DATASETS
from surefoot.errors import BadInput
from surefoot.shift.corruptions import kinds_named
from surefoot.validation import check_int

__all__ = ["held_out", "official"]

Pair = tuple[NDArray[Any], NDArray[np.int64]]


def official(clean: str, kind: str, severity: int, root: Path | None, size: int = 224) -> Pair:
    """Read the official images of one corruption, in the order of the test set.

    ImageNet-C is read without the fifth of the validation images that is held out for choices (see `held_out`).

    Args:
        clean: name of the clean data set: ``"cifar10"``, ``"cifar100"`` or ``"imagenet"``.
        kind: name of the corruption.
        severity: 1 to 5.
        root: the data folder.
        size: height and width of the images of ImageNet, in pixels.

    Returns:
        Images (n, h, w, 3) and labels (n,).

    Raises:
        BadInput: when an argument is not as described, or a file is missing or not as described.
    """
    known = {entry.name: entry.corrupted for entry in DATASETS.values() if entry.corrupted is not None}
    if clean not in known:
        raise BadInput(f"there are official corruptions of {', '.join(known)}; got {clean!r}; use generated ones")
    kinds_named([kind])
    severity = check_int("severity", severity, 1, 5)
    if root is None:
        raise BadInput(f"{known[clean]} needs a folder of data; give data=... or set SUREFOOT_DATA")
    folder = root / known[clean]
    if clean == "imagenet":
        return _folder(folder / kind / str(severity), size)
    images, labels = _array(folder / f"{kind}.npy"), _array(folder / "labels.npy")
    if len(images) != len(labels) or len(images) % 5 or images.ndim != 4 or images.dtype != np.uint8:
        raise BadInput(
            f"{folder.name}/{kind}.npy must hold bytes (5n, h, w, c), one after another for five severities, with as "
            f"many labels; got {images.dtype} {images.shape} and {len(labels):,} labels"
        )
    rows = slice((severity - 1) * len(images) // 5, severity * len(images) // 5)
    return np.ascontiguousarray(images[rows]), labels[rows].astype(np.int64)


def held_out(names: list[str]) -> NDArray[np.bool_]:
    """Select the validation images for choices and temperature: every fifth in the order of the file names.

    Tan et al. (2026), with Minderer et al. (2021), hold out 20 % of ImageNet's validation set and do not state which
    images. Selection by file name leaves out the same images of ImageNet and of every corruption.

    Args:
        names: file names of the images.

    Returns:
        (n,) whether an image is held out.

    Example:
        >>> held_out(["b", "a", "c", "e", "d", "f"]).tolist()
        [False, True, False, False, False, True]
    """
    chosen = np.zeros(len(names), bool)
    chosen[np.argsort(np.array(names), kind="stable")[::5]] = True
    return chosen


def _folder(place: Path, size: int) -> Pair:
    """Images and labels of a folder of classes, without those held out."""
    if not place.is_dir():
        raise BadInput(f"there is no folder {'/'.join(place.parts[-3:])} in the data folder; unpack ImageNet-C there")
    (images, labels), classes = read_folder(place, size)
    names = [
        path.name
        for class_name in classes
        for path in sorted((place / class_name).rglob("*"))
        if path.suffix.lower() in (".jpeg", ".jpg", ".png")
    ]
    kept = ~held_out(names)
    return images[kept], labels[kept]


def _array(path: Path) -> NDArray[Any]:
    """A memory-mapped .npy file."""
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        where = "/".join(path.parts[-2:])
        raise BadInput(f"there is no {where} in the data folder; unpack the official archive there") from error
    except (OSError, ValueError) as error:
        raise BadInput(f"{path.name} is no .npy file of an array ({error})") from error
    return array
