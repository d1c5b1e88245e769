"""What counts as images here: bytes, or numbers from 0 to 1, with channels last."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput

__all__ = ["Images", "as_floats", "as_given", "check_images"]

Images = NDArray[np.float32]


def check_images(images: Any) -> NDArray[Any]:
    """``images`` as an array (n, h, w, c), c = 1 or 3, of bytes or of floats in [0, 1]; or a clear error."""
    try:
        found = np.asarray(images)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"images must be an array; {' '.join(str(error).split())}") from error
    if found.ndim != 4 or found.shape[3] not in (1, 3) or 0 in found.shape:
        hint = "; channels come last here: images.transpose(0, 2, 3, 1)" if _channels_first(found.shape) else ""
        raise BadInput(f"images must have shape (n, h, w, 1 or 3), n at least 1; got {found.shape}{hint}")
    if min(found.shape[1:3]) < 4:
        raise BadInput(f"images must be 4 pixels high and wide at least; got {found.shape[1:3]}")
    if found.dtype == np.uint8:
        return found
    if found.dtype.kind != "f":
        raise BadInput(f"images must be uint8, or floats from 0 to 1; got dtype {found.dtype}; use .astype(np.uint8)")
    low, high = float(found.min()), float(found.max())
    if not (low >= 0 and high <= 1):  # NaN, too
        hint = "divide by 255" if low >= 0 and high <= 255 else "undo the standardisation of the inputs first"
        raise BadInput(f"images given as floats must lie in 0 to 1; got {low:.4g} to {high:.4g}; {hint}")
    return found


def as_floats(images: NDArray[Any]) -> Images:
    """Checked images as float32 in [0, 1]."""
    found = images.astype(np.float32)
    return found / np.float32(255) if images.dtype == np.uint8 else found


def as_given(found: Images, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Images clipped to [0, 1] in the type that they came in; bytes are rounded."""
    found = np.clip(found, 0, 1)
    return np.rint(found * 255).astype(np.uint8) if dtype == np.uint8 else found.astype(dtype)


def _channels_first(shape: tuple[int, ...]) -> bool:
    return len(shape) == 4 and shape[1] in (1, 3) and shape[3] not in (1, 3)
