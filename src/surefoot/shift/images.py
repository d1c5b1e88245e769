"""Validation and conversion of images: bytes, or numbers from 0 to 1, with channels last."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput

__all__ = ["Images", "as_floats", "as_given", "check_images"]

Images = NDArray[np.float32]


def check_images(images: Any) -> NDArray[Any]:
    """Check images.

    Args:
        images: (n, h, w, c) with n at least 1, h and w at least 4 and c = 1 or 3; bytes, or floats in [0, 1].

    Returns:
        The images as an array.

    Raises:
        BadInput: when ``images`` is not as described.
    """
    try:
        array = np.asarray(images)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"images must be an array; {' '.join(str(error).split())}") from error
    if array.ndim != 4 or array.shape[3] not in (1, 3) or 0 in array.shape:
        hint = "; channels come last here: images.transpose(0, 2, 3, 1)" if _channels_first(array.shape) else ""
        raise BadInput(f"images must have shape (n, h, w, 1 or 3), n at least 1; got {array.shape}{hint}")
    if min(array.shape[1:3]) < 4:
        raise BadInput(f"images must be 4 pixels high and wide at least; got {array.shape[1:3]}")
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind != "f":
        raise BadInput(f"images must be uint8, or floats from 0 to 1; got dtype {array.dtype}; use .astype(np.uint8)")
    low, high = float(array.min()), float(array.max())
    if not (low >= 0 and high <= 1):  # true for NaN as well
        hint = "divide by 255" if low >= 0 and high <= 255 else "undo the standardisation of the inputs first"
        raise BadInput(f"images given as floats must lie in 0 to 1; got {low:.4g} to {high:.4g}; {hint}")
    return array


def as_floats(images: NDArray[Any]) -> Images:
    """Convert checked images to float32 in [0, 1].

    Args:
        images: images of `check_images`.

    Returns:
        The images; bytes are divided by 255.
    """
    floats = images.astype(np.float32)
    return floats / np.float32(255) if images.dtype == np.uint8 else floats


def as_given(images: Images, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Clip images to [0, 1] and convert the images to a dtype.

    Args:
        images: images of floats.
        dtype: the wanted dtype; uint8 rounds to bytes.

    Returns:
        The images in the dtype.
    """
    clipped = np.clip(images, 0, 1)
    return np.rint(clipped * 255).astype(np.uint8) if dtype == np.uint8 else clipped.astype(dtype)


def _channels_first(shape: tuple[int, ...]) -> bool:
    """Whether the shape is that of images with channels first."""
    return len(shape) == 4 and shape[1] in (1, 3) and shape[3] not in (1, 3)
