"""Between what a model takes (standardised, channels first) and pictures (bytes, channels last)."""

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
    """The pictures behind the inputs of prepared data; white is the brightest number of the training set.

    So digits, whose bytes end at 16, are corrupted as pictures with the full range. Runs that share pictures must share
    their ``white``, which subsets of one data set may not.
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
        """(h, w, c) of a picture."""
        c, h, w = self._data.shape
        return h, w, c

    def pictures(self, inputs: Tensor) -> NDArray[np.uint8]:
        """Pictures (n, h, w, c) of inputs (n, c, h, w)."""
        raw = self._data.raw(inputs).transpose(0, 2, 3, 1)
        return np.rint(np.clip(raw / self.white, 0, 1) * 255).astype(np.uint8)

    def inputs(self, pictures: NDArray[Any]) -> Tensor:
        """Inputs (n, c, h, w) float32 of pictures (n, h, w, c), bytes or floats in [0, 1]."""
        unit = 255.0 if pictures.dtype == np.uint8 else 1.0
        raw = pictures.transpose(0, 3, 1, 2) * (self.white * self._data.unit / unit)
        return torch.from_numpy(((raw - self._data.shift) / self._data.scale).astype(np.float32))
