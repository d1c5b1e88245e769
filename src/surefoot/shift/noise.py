"""Corruptions by noise: Gaussian, shot, impulse, speckle."""

from __future__ import annotations

import numpy as np

from surefoot.shift.draws import Draws
from surefoot.shift.images import Images

__all__ = ["gaussian_noise", "impulse_noise", "shot_noise", "speckle_noise"]


def gaussian_noise(x: Images, draws: Draws, deviation: float) -> Images:
    """x + normal noise."""
    return x + np.float32(deviation) * draws.normal(*x.shape)


def shot_noise(x: Images, draws: Draws, photons: float) -> Images:
    """Counts of so many photons at white; fewer are noisier."""
    return draws.poisson(x * np.float32(photons)) / np.float32(photons)


def impulse_noise(x: Images, draws: Draws, share: float) -> Images:
    """A share of the numbers becomes 0 or 1, one as often as the other."""
    fate = draws.uniform(0, 1, *x.shape)
    return np.where(fate < share / 2, np.float32(0), np.where(fate > 1 - share / 2, np.float32(1), x))


def speckle_noise(x: Images, draws: Draws, deviation: float) -> Images:
    """Noise in proportion to the brightness."""
    return x + x * np.float32(deviation) * draws.normal(*x.shape)
