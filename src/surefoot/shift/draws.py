"""Random numbers of a corruption, by position: those of image i do not depend on the images after it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surefoot.seeds import derive

__all__ = ["Draws"]

Floats = NDArray[np.float32]


class Draws:
    """The draws for one block of images; every array comes from a stream of its own, image after image.

    The severity is no part of the stream: the same image gets the same noise at each severity, only more of it.
    """

    def __init__(self, seed: int, kind: str, block: int) -> None:
        self._seed, self._kind, self._block, self._count = seed, kind, block, 0

    def normal(self, *shape: int) -> Floats:
        """Standard normal numbers."""
        return self._next().standard_normal(shape, dtype=np.float32)

    def uniform(self, low: float, high: float, *shape: int) -> Floats:
        """Numbers spread evenly from ``low`` to ``high``."""
        return np.float32(low) + np.float32(high - low) * self._next().random(shape, dtype=np.float32)

    def poisson(self, mean: Floats) -> Floats:
        """Counts with these means (b, ...).

        How many random numbers a count takes depends on its mean: with one stream for all, an image's noise would
        depend on the images before it.
        """
        self._count += 1
        rows = (self._stream(f"/{row}").poisson(each) for row, each in enumerate(mean))
        return np.stack([row.astype(np.float32) for row in rows])

    def _next(self) -> np.random.Generator:
        self._count += 1
        return self._stream("")

    def _stream(self, row: str) -> np.random.Generator:
        return np.random.default_rng(derive(self._seed, f"corrupt/{self._kind}/{self._count}{row}", self._block))
