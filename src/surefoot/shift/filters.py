"""Linear maps of images (b, h, w, c): separable maps by matrices, small kernels, and sampling between pixels."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d, zoom

from surefoot.shift.images import Images

__all__ = [
    "blurred", "box_matrix", "disk", "filtered", "gaussian_matrix", "mirrored", "pick", "sampled", "streaked",
    "two_sided", "zoom_matrix",
]  # fmt: skip

Matrix = NDArray[np.float32]


def two_sided(x: Images, rows: Matrix, columns: Matrix) -> Images:
    """Apply a separable linear map R X Cᵀ to every channel X of every image.

    Args:
        x: (b, h, w, c) images.
        rows: (h', h) the matrix R.
        columns: (w', w) the matrix C.

    Returns:
        (b, h', w', c) images.
    """
    planes = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    mapped: Images = np.matmul(rows, planes @ columns.T)
    return mapped.transpose(0, 2, 3, 1)


@lru_cache(maxsize=64)
def gaussian_matrix(size: int, sigma: float, mode: str = "nearest", truncate: float = 4.0) -> Matrix:
    """Make the matrix of a Gaussian blur along one axis.

    Args:
        size: length of the axis.
        sigma: standard deviation in pixels, at least 0.
        mode: how the border is extended, as in `scipy.ndimage.gaussian_filter1d`.
        truncate: radius of the kernel, in standard deviations.

    Returns:
        (size, size) matrix.
    """
    eye = np.eye(size)
    blur = eye if sigma == 0 else gaussian_filter1d(eye, sigma, axis=0, mode=mode, truncate=truncate)
    return np.asarray(blur, np.float32)


def blurred(x: Images, sigma: float, mode: str = "nearest", truncate: float = 4.0) -> Images:
    """Blur every channel by a Gaussian.

    Args:
        x: (b, h, w, c) images.
        sigma: standard deviation in pixels, at least 0.
        mode: how the border is extended, as in `scipy.ndimage.gaussian_filter1d`.
        truncate: radius of the kernel, in standard deviations.

    Returns:
        (b, h, w, c) images.
    """
    _, h, w, _ = x.shape
    return two_sided(x, gaussian_matrix(h, sigma, mode, truncate), gaussian_matrix(w, sigma, mode, truncate))


@lru_cache(maxsize=256)
def zoom_matrix(size: int, factor: float) -> Matrix:
    """Make the matrix that magnifies the middle of an axis, linear between pixels.

    Args:
        size: length of the axis.
        factor: magnification, at least 1.

    Returns:
        (size, size) matrix.
    """
    inside = int(np.ceil(size / factor))
    top = (size - inside) // 2
    magnified = zoom(np.eye(size)[top : top + inside], (factor, 1), order=1)
    extra = (len(magnified) - size) // 2
    return np.asarray(magnified[extra : extra + size], np.float32)


@lru_cache(maxsize=64)
def box_matrix(size: int, target: int) -> Matrix:
    """Make the matrix of Pillow's BOX filter: means of the pixels whose centres are in a cell.

    With more cells than pixels, a cell takes the nearest pixel.

    Args:
        size: number of pixels.
        target: number of cells.

    Returns:
        (target, size) matrix.

    Example:
        >>> box_matrix(4, 2).tolist()
        [[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]]
    """
    scale = size / target
    support = 0.5 * max(scale, 1.0)
    matrix = np.zeros((target, size), np.float32)
    for row in range(target):
        centre = (row + 0.5) * scale
        first, last = max(0, int(centre - support + 0.5)), min(size, int(centre + support + 0.5))
        matrix[row, first:last] = 1 / (last - first)
    return matrix


def filtered(x: Images, kernel: Matrix) -> Images:
    """Correlate every channel with a small kernel; the border is mirrored at the centres of the outer pixels.

    Args:
        x: (b, h, w, c) images.
        kernel: the kernel, with odd side lengths.

    Returns:
        (b, h, w, c) images.
    """
    _, h, w, _ = x.shape
    down, right = kernel.shape[0] // 2, kernel.shape[1] // 2
    wide = np.pad(x, ((0, 0), (down, down), (right, right), (0, 0)), mode="reflect")
    total = np.zeros_like(x)
    for i, j in np.argwhere(kernel):
        total += kernel[i, j] * wide[:, i : i + h, j : j + w]
    return total


def disk(radius: float, alias: float) -> Matrix:
    """Make the kernel of a lens out of focus: the pixels within a radius, softened by a 3×3 Gaussian.

    Args:
        radius: radius in pixels, at least 0.
        alias: standard deviation of the Gaussian in pixels, above 0.

    Returns:
        Square kernel with odd side length.
    """
    reach = np.arange(-(int(radius) + 1), int(radius) + 2)
    spot = (reach[:, None] ** 2 + reach**2 <= radius**2).astype(np.float64)
    side = np.exp(-np.array([1.0, 0.0, 1.0]) / (2 * alias**2))
    side /= side.sum()
    soft = sum(
        side[i] * side[j] * np.roll(spot / spot.sum(), (i - 1, j - 1), (0, 1)) for i in range(3) for j in range(3)
    )
    return np.asarray(soft, np.float32)


def pick(x: Images, rows: NDArray[np.integer], columns: NDArray[np.integer]) -> Images:
    """Read pixels at integer rows and columns.

    Args:
        x: (b, h, w, c) images.
        rows: rows in 0..h−1, broadcast to (b, h', w').
        columns: columns in 0..w−1, broadcast to (b, h', w').

    Returns:
        (b, h', w', c) pixels.
    """
    b, h, w, c = x.shape
    place = (np.arange(b)[:, None, None] * h + rows) * w + columns
    pixels: Images = x.reshape(b * h * w, c).take(place, axis=0)
    return pixels


def mirrored(index: NDArray[np.integer], size: int) -> NDArray[np.integer]:
    """Map integers into 0..size−1 by mirroring at the centres of the outer pixels.

    Args:
        index: integers of any shape.
        size: length of the axis, at least 2.

    Returns:
        Integers of the same shape.

    Example:
        >>> mirrored(np.array([-1, 0, 3, 4]), 4).tolist()
        [1, 0, 3, 2]
    """
    inside = np.abs(index) % (2 * size - 2)
    places: NDArray[np.integer] = np.minimum(inside, 2 * size - 2 - inside)
    return places


def sampled(x: Images, rows: NDArray[np.float32], columns: NDArray[np.float32]) -> Images:
    """Sample images at real rows and columns, linear between pixels and mirrored at the border.

    Args:
        x: (b, h, w, c) images.
        rows: (b, h, w) rows.
        columns: (b, h, w) columns.

    Returns:
        (b, h, w, c) images.
    """
    _, h, w, _ = x.shape
    top, left = np.floor(rows).astype(np.int64), np.floor(columns).astype(np.int64)
    down, right = (rows - top)[..., None], (columns - left)[..., None]
    upper, lower = mirrored(top, h), mirrored(top + 1, h)
    near, far = mirrored(left, w), mirrored(left + 1, w)
    above = (1 - right) * pick(x, upper, near) + right * pick(x, upper, far)
    below = (1 - right) * pick(x, lower, near) + right * pick(x, lower, far)
    values: Images = (1 - down) * above + down * below
    return values.astype(np.float32)


def streaked(x: Images, radius: int, sigma: float, degrees: NDArray[np.float32]) -> Images:
    """Apply motion blur with one angle per image: half a Gaussian of 2·radius + 1 pixels along a line.

    Args:
        x: (b, h, w, c) images.
        radius: the line has 2·radius + 1 pixels.
        sigma: standard deviation of the Gaussian, in pixels.
        degrees: (b,) angles from the horizontal, in degrees.

    Returns:
        (b, h, w, c) images.
    """
    _, h, w, _ = x.shape
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    weights = weights[weights > 1e-4]  # smaller weights change no byte
    angle = np.radians(degrees)[:, None, None]
    total = np.zeros_like(x)
    for i, weight in enumerate(weights / weights.sum()):
        rows = np.clip(np.arange(h)[:, None] + np.rint(i * np.sin(angle)).astype(np.int64), 0, h - 1)
        columns = np.clip(np.arange(w) + np.rint(i * np.cos(angle)).astype(np.int64), 0, w - 1)
        total += np.float32(weight) * pick(x, rows, columns)
    return total
