"""Corruptions by blur: defocus, glass, motion, zoom, Gaussian."""

from __future__ import annotations

import numpy as np

from surefoot.shift.draws import Draws
from surefoot.shift.filters import blurred, disk, filtered, pick, streaked, two_sided, zoom_matrix
from surefoot.shift.images import Images

__all__ = ["defocus_blur", "gaussian_blur", "glass_blur", "motion_blur", "zoom_blur"]


def defocus_blur(x: Images, draws: Draws, radius: float, alias: float) -> Images:
    """Blur by a disk, as a lens out of focus does.

    Args:
        x: (b, h, w, c) images in [0, 1].
        draws: random numbers of the block; not used.
        radius: radius of the disk, in pixels.
        alias: width of the Gaussian that softens the disk, in pixels.

    Returns:
        (b, h, w, c) images.
    """
    return filtered(x, disk(radius, alias))


def glass_blur(x: Images, draws: Draws, sigma: float, times: int) -> Images:
    """Blur, move pixels by at most one place, and blur again, as frosted glass does.

    Every pixel takes its own colour or the colour of a neighbour: above, to the left, or both. The first two rows and
    columns stay. The original code visits the pixels from the last to the first and exchanges every pixel with such a
    neighbour. Because of numpy's views, the original writes only one of the two pixels, and the neighbour is not yet
    visited. Moving all pixels at once therefore gives the same result.

    Args:
        x: (b, h, w, c) images in [0, 1].
        draws: random numbers of the block.
        sigma: standard deviation of the Gaussian blur, in pixels.
        times: number of moves.

    Returns:
        (b, h, w, c) images.
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
    """Blur along a line at a random angle of up to 45° from the horizontal.

    Args:
        x: (b, h, w, c) images in [0, 1].
        draws: random numbers of the block.
        radius: the line has 2·radius + 1 pixels.
        sigma: standard deviation of the half Gaussian along the line, in pixels.

    Returns:
        (b, h, w, c) images.
    """
    return streaked(x, radius, sigma, draws.uniform(-45, 45, len(x)))


def zoom_blur(x: Images, draws: Draws, factors: int) -> Images:
    """Average the image and its magnifications by 1.00, 1.01, 1.02 and so on.

    Args:
        x: (b, h, w, c) images in [0, 1].
        draws: random numbers of the block; not used.
        factors: number of magnifications.

    Returns:
        (b, h, w, c) images.
    """
    _, h, w, _ = x.shape
    total = x.copy()
    for step in range(factors):
        total += two_sided(x, zoom_matrix(h, 1 + step / 100), zoom_matrix(w, 1 + step / 100))
    return total / np.float32(factors + 1)


def gaussian_blur(x: Images, draws: Draws, sigma: float) -> Images:
    """Blur by a Gaussian.

    Args:
        x: (b, h, w, c) images in [0, 1].
        draws: random numbers of the block; not used.
        sigma: standard deviation of the Gaussian, in pixels.

    Returns:
        (b, h, w, c) images.
    """
    return blurred(x, sigma)
