"""Conversion between inputs of a model (standardised, channels first) and pictures (bytes, channels last)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surefoot.data.prepare import Prepared
from surefoot.dataset import ArrayDataset, Dataset
from surefoot.errors import BadInput

__all__ = ["View"]

_BLOCK = 1024  # inputs that are float64 at once


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
        blocks = (data.raw(inputs) for inputs, _, _ in data.train.batches(_BLOCK))
        lows, highs = zip(*((float(raw.min()), float(raw.max())) for raw in blocks), strict=True)
        if min(lows) < -1e-6:
            raise BadInput(f"corruptions need images whose numbers start at 0; the training set has {min(lows):.4g}")
        self.white = max(highs) if white is None else white

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (h, w, c) of a picture."""
        c, h, w = self._data.shape
        return h, w, c

    def pictures(self, images: Dataset) -> NDArray[np.uint8]:
        """Convert the inputs of a data set to pictures.

        Args:
            images: a data set of standardised inputs (c, h, w).

        Returns:
            (n, h, w, c) bytes.
        """
        return np.concatenate([self._painted(inputs) for inputs, _, _ in images.batches(_BLOCK)])

    def dataset(self, pictures: NDArray[Any], labels: NDArray[np.int64]) -> Dataset:
        """Make a data set of pictures; a batch is standardised when it is read.

        Args:
            pictures: (n, h, w, c) bytes, or floats in [0, 1].
            labels: (n,) their labels.

        Returns:
            A data set of float32 inputs (c, h, w).
        """
        return ArrayDataset(pictures, torch.from_numpy(labels), lambda stored: self._inputs(stored.numpy()))

    def _painted(self, inputs: Tensor) -> NDArray[np.uint8]:
        raw = self._data.raw(inputs).transpose(0, 2, 3, 1)
        return np.rint(np.clip(raw / self.white, 0, 1) * 255).astype(np.uint8)

    def _inputs(self, pictures: NDArray[Any]) -> Tensor:
        unit = 255.0 if pictures.dtype == np.uint8 else 1.0
        raw = pictures.transpose(0, 3, 1, 2) * (self.white * self._data.unit / unit)
        standardise = self._data.standardise
        return torch.from_numpy(((raw - standardise.shift) / standardise.scale).astype(np.float32))
