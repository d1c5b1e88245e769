"""Corruptions by noise: Gaussian, shot, impulse, speckle."""

from __future__ import annotations

import numpy as np

from surefoot.shift.draws import Draws
from surefoot.shift.images import Images

__all__ = ["gaussian_noise", "impulse_noise", "shot_noise", "speckle_noise"]


def gaussian_noise(x: Images, draws: Draws, std: float) -> Images:
    """Add normal noise.

    Args:
        x: (b, h, w, c) images in [0, 1].
        draws: random numbers of the block.
        std: standard deviation of the noise.

    Returns:
        (b, h, w, c) images.
    """
    return x + np.float32(std) * draws.normal(*x.shape)


def shot_noise(x: Images, draws: Draws, photons: float) -> Images:
    """Replace brightness by Poisson counts of photons.

    Args:
        x: (b, h, w, c) images in [0, 1].
        draws: random numbers of the block.
        photons: expected count of white, above 0; fewer photons give more noise.

    Returns:
        (b, h, w, c) images.
    """
    return draws.poisson(x * np.float32(photons)) / np.float32(photons)


def impulse_noise(x: Images, draws: Draws, share: float) -> Images:
    """Set a share of the numbers to 0 or 1, with equal probability.

    Args:
        x: (b, h, w, c) images in [0, 1].
        draws: random numbers of the block.
        share: expected share, in [0, 1].

    Returns:
        (b, h, w, c) images.
    """
    fate = draws.uniform(0, 1, *x.shape)
    return np.where(fate < share / 2, np.float32(0), np.where(fate > 1 - share / 2, np.float32(1), x))


def speckle_noise(x: Images, draws: Draws, std: float) -> Images:
    """Add normal noise in proportion to the brightness.

    Args:
        x: (b, h, w, c) images in [0, 1].
        draws: random numbers of the block.
        std: standard deviation of the noise of white.

    Returns:
        (b, h, w, c) images.
    """
    return x + x * np.float32(std) * draws.normal(*x.shape)
