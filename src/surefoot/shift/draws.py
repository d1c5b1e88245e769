"""Random numbers of a corruption by position: the numbers of image i do not depend on the images after image i."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surefoot.seeds import derive

__all__ = ["Draws"]

Floats = NDArray[np.float32]


class Draws:
    """The random numbers for one block of images; every array has a separate stream, which is read image by image.

    The stream does not depend on the severity. An image therefore gets the same noise at every severity, with another
    amplitude.

    Args:
        seed: seed of the corruption.
        kind: name of the corruption.
        block: number of the block.

    Example:
        >>> bool((Draws(0, "fog", 0).normal(2) == Draws(0, "fog", 0).normal(3)[:2]).all())
        True
    """

    def __init__(self, seed: int, kind: str, block: int) -> None:
        self._seed, self._kind, self._block, self._count = seed, kind, block, 0

    def normal(self, *shape: int) -> Floats:
        """Draw standard normal numbers.

        Args:
            shape: lengths of the axes, images first.

        Returns:
            float32 numbers.
        """
        return self._next().standard_normal(shape, dtype=np.float32)

    def uniform(self, low: float, high: float, *shape: int) -> Floats:
        """Draw uniform numbers.

        Args:
            low: lower end.
            high: upper end.
            shape: lengths of the axes, images first.

        Returns:
            float32 numbers.
        """
        return np.float32(low) + np.float32(high - low) * self._next().random(shape, dtype=np.float32)

    def poisson(self, mean: Floats) -> Floats:
        """Draw Poisson counts.

        Every image has a separate stream, because the number of random numbers per count depends on the mean. With one
        stream for all, the noise of an image would depend on the images before the image.

        Args:
            mean: (b, ...) means, at least 0.

        Returns:
            (b, ...) float32 counts.
        """
        self._count += 1
        counts = (self._stream(f"/{row}").poisson(means) for row, means in enumerate(mean))
        return np.stack([count.astype(np.float32) for count in counts])

    def _next(self) -> np.random.Generator:
        """The generator of the next array."""
        self._count += 1
        return self._stream("")

    def _stream(self, row: str) -> np.random.Generator:
        """The generator of the current array, or of one row of the array."""
        return np.random.default_rng(derive(self._seed, f"corrupt/{self._kind}/{self._count}{row}", self._block))
