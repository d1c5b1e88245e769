"""Conversion between inputs of a model (standardised, channels first) and pictures (bytes, channels last)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surefoot.data.prepare import Prepared
from surefoot.errors import BadInput

__all__ = ["View"]


class View:
    """The pictures of the inputs of prepared data.

    White is the largest number of the training set. Digits, whose numbers end at 16, are therefore corrupted as
    pictures of full range. Runs that share pictures must share ``white``, which may differ between subsets of one data
    set.

    Args:
        data: the prepared data, of images (1 or 3, h, w).
        white: the number that stands for white; None takes the largest number of the training set.

    Attributes:
        white: the number that stands for white.

    Raises:
        BadInput: when the inputs are no images, or the training set has numbers below 0.
    """

    def __init__(self, data: Prepared, white: float | None = None) -> None:
        if len(data.shape) != 3 or data.shape[0] not in (1, 3):
            raise BadInput(f"corruptions need images of 1 or 3 channels; these inputs have shape {data.shape}")
        self._data = data
        raw = data.raw(data.train[0])
        if raw.min() < -1e-6:
            raise BadInput(
                f"corruptions need images whose numbers start at 0; the training set has {float(raw.min()):.4g}"
            )
        self.white = float(raw.max()) if white is None else white

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (h, w, c) of a picture."""
        c, h, w = self._data.shape
        return h, w, c

    def pictures(self, inputs: Tensor) -> NDArray[np.uint8]:
        """Convert inputs to pictures.

        Args:
            inputs: (n, c, h, w) standardised inputs.

        Returns:
            (n, h, w, c) bytes.
        """
        raw = self._data.raw(inputs).transpose(0, 2, 3, 1)
        return np.rint(np.clip(raw / self.white, 0, 1) * 255).astype(np.uint8)

    def inputs(self, pictures: NDArray[Any]) -> Tensor:
        """Convert pictures to inputs.

        Args:
            pictures: (n, h, w, c) bytes, or floats in [0, 1].

        Returns:
            (n, c, h, w) float32 standardised inputs.
        """
        unit = 255.0 if pictures.dtype == np.uint8 else 1.0
        raw = pictures.transpose(0, 3, 1, 2) * (self.white * self._data.unit / unit)
        return torch.from_numpy(((raw - self._data.shift) / self._data.scale).astype(np.float32))
