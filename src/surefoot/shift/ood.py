"""Out-of-distribution (OOD) images: images of another data set than the model was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.data.sets import load_set
from surefoot.errors import BadInput
from surefoot.shift.images import check_images

__all__ = ["ood_by_name", "ood_images", "short_name"]


def ood_by_name(names: Sequence[str], root: Path | None, shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
    """Read the images of several data sets.

    Args:
        names: names of data sets, or ``arrays:NAME`` for ``NAME.npz`` in the data folder.
        root: the data folder.
        shape: shape (h, w, c) of the model's images.

    Returns:
        The images by the short names of the sets.

    Raises:
        BadInput: when a set is missing or has images of another shape, or two sets have one short name.
    """
    short: dict[str, str] = {}
    for name in names:
        before = short.setdefault(short_name(name), name)
        if before != name:
            raise BadInput(
                f"out-of-distribution sets must have different short names; {before} and {name} would both be "
                f"{short_name(name)}"
            )
    return {key: ood_images(name, root, shape) for key, name in short.items()}


def ood_images(name: str, root: Path | None, shape: tuple[int, ...]) -> NDArray[Any]:
    """Read the test images of a data set.

    Args:
        name: name of a data set, or ``arrays:NAME`` for ``x_test``, ``x_val`` or ``x`` of ``NAME.npz`` in the data
            folder.
        root: the data folder.
        shape: shape (h, w, c) of the model's images.

    Returns:
        (n, h, w, c) images.

    Raises:
        BadInput: when the set is missing or has images of another shape.
    """
    own = name.removeprefix("arrays:") if name.startswith("arrays:") else None
    images = check_images(_known(name, root) if own is None else _own(name, own, root))
    if images.shape[1:] != shape:
        raise BadInput(
            f"out-of-distribution images must have the model's shape {shape}; those of {name} have {images.shape[1:]}"
        )
    return images


def short_name(name: str) -> str:
    """Shorten the name of a data set to the name that measures use.

    Args:
        name: name of a data set, or ``arrays:NAME``.

    Returns:
        The name without prefix and suffix.

    Example:
        >>> short_name("arrays:svhn_2k"), short_name("svhn")
        ('svhn_2k', 'svhn')
    """
    return name.removeprefix("arrays:").removesuffix(".npz").replace(".", "_").replace(" ", "_")


def _known(name: str, root: Path | None) -> NDArray[Any]:
    """Test images of a data set by name; white is the largest number of the training set, as in `View`."""
    data = load_set(name, root)
    images: NDArray[Any] = data.x_test
    white = int(np.max(data.x_train))
    if images.dtype != np.uint8 or white in (0, 255):
        return images
    scaled: NDArray[np.uint8] = np.rint(np.minimum(images / white, 1) * 255).astype(np.uint8)
    return scaled


def _own(name: str, own: str, root: Path | None) -> NDArray[Any]:
    """Images of an .npz file of the user."""
    if not own or Path(own).name != own:
        raise BadInput(f"arrays:NAME takes the name of an .npz file in the data folder, not a path; got {own!r}")
    if root is None:
        raise BadInput(f"{name} needs a folder of data; give data=... or set SUREFOOT_DATA")
    path = root / f"{own.removesuffix('.npz')}.npz"
    try:
        with np.load(path, allow_pickle=False) as file:
            for key in ("x_test", "x_val", "x"):
                if key in file:
                    return np.asarray(file[key])
    except FileNotFoundError as error:
        raise BadInput(f"there is no {path.name} in the data folder; put x_test or x there, as bytes") from error
    except (OSError, ValueError) as error:
        raise BadInput(f"{path.name} is no .npz file of arrays ({error})") from error
    raise BadInput(f"{path.name} must hold x_test, x_val or x")
