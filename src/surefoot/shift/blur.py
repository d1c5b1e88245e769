"""Corruptions by blur: defocus, glass, motion, zoom, Gaussian."""

from __future__ import annotations

import numpy as np

from surefoot.shift.draws import Draws
from surefoot.shift.filters import blurred, disk, filtered, pick, streaked, two_sided, zoom_matrix
from surefoot.shift.images import Images

__all__ = ["defocus_blur", "gaussian_blur", "glass_blur", "motion_blur", "zoom_blur"]


def defocus_blur(x: Images, draws: Draws, radius: float, alias: float) -> Images:
    """A disk instead of each point."""
    return filtered(x, disk(radius, alias))


def glass_blur(x: Images, draws: Draws, sigma: float, times: int) -> Images:
    """Blur, then every pixel takes the colour of itself or of the one above, to the left or both, and blur again.

    The original walks over the pixels from the last to the first and exchanges each with such a neighbour. Through
    numpy's views only one of the two is written, and the neighbour has not been visited yet: all pixels at once is the
    same. The first two rows and columns stay.
    """
    b, h, w, _ = x.shape
    x = blurred(x, sigma)
    rows, columns = np.arange(h)[:, None], np.arange(w)
    inside = (rows > 1) & (columns > 1)
    for _ in range(times):
        up, left = (inside & (draws.uniform(0, 1, b, h, w) < 0.5) for _ in range(2))
        x = pick(x, rows - up, columns - left)
    return blurred(x, sigma)


def motion_blur(x: Images, draws: Draws, radius: int, sigma: float) -> Images:
    """A streak at an angle of up to 45° from the horizontal."""
    return streaked(x, radius, sigma, draws.uniform(-45, 45, len(x)))


def zoom_blur(x: Images, draws: Draws, factors: int) -> Images:
    """The mean of the image and of ``factors`` magnifications 1.00, 1.01, 1.02, …"""
    _, h, w, _ = x.shape
    total = x.copy()
    for step in range(factors):
        total += two_sided(x, zoom_matrix(h, 1 + step / 100), zoom_matrix(w, 1 + step / 100))
    return total / np.float32(factors + 1)


def gaussian_blur(x: Images, draws: Draws, sigma: float) -> Images:
    """A Gaussian instead of each point."""
    return blurred(x, sigma)
