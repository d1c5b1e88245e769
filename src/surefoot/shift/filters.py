"""Linear maps of images (b, h, w, c): small kernels, rows and columns by matrices, and sampling between pixels."""

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
    """Every channel X of every image as R X Cᵀ: any separable map is this, and matrix products are quick."""
    planes = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    found: Images = np.matmul(rows, planes @ columns.T)
    return found.transpose(0, 2, 3, 1)


@lru_cache(maxsize=64)
def gaussian_matrix(size: int, sigma: float, mode: str = "nearest", truncate: float = 4.0) -> Matrix:
    """(size, size) matrix of a Gaussian blur along one axis."""
    eye = np.eye(size)
    found = eye if sigma == 0 else gaussian_filter1d(eye, sigma, axis=0, mode=mode, truncate=truncate)
    return np.asarray(found, np.float32)


def blurred(x: Images, sigma: float, mode: str = "nearest", truncate: float = 4.0) -> Images:
    """Gaussian blur of every channel."""
    _, h, w, _ = x.shape
    return two_sided(x, gaussian_matrix(h, sigma, mode, truncate), gaussian_matrix(w, sigma, mode, truncate))


@lru_cache(maxsize=256)
def zoom_matrix(size: int, factor: float) -> Matrix:
    """(size, size) matrix that magnifies the middle of an axis by ``factor`` >= 1, linear between pixels."""
    inside = int(np.ceil(size / factor))
    top = (size - inside) // 2
    found = zoom(np.eye(size)[top : top + inside], (factor, 1), order=1)
    extra = (len(found) - size) // 2
    return np.asarray(found[extra : extra + size], np.float32)


@lru_cache(maxsize=64)
def box_matrix(size: int, target: int) -> Matrix:
    """(target, size) matrix of Pillow's BOX filter: means of the pixels whose centres fall into a cell.

    Where there are more cells than pixels it takes the nearest pixel.
    """
    scale = size / target
    support = 0.5 * max(scale, 1.0)
    found = np.zeros((target, size), np.float32)
    for row in range(target):
        centre = (row + 0.5) * scale
        first, last = max(0, int(centre - support + 0.5)), min(size, int(centre + support + 0.5))
        found[row, first:last] = 1 / (last - first)
    return found


def filtered(x: Images, kernel: Matrix) -> Images:
    """Correlation with a small kernel (odd sides); the border is mirrored at the outer pixels' centres."""
    _, h, w, _ = x.shape
    down, right = kernel.shape[0] // 2, kernel.shape[1] // 2
    wide = np.pad(x, ((0, 0), (down, down), (right, right), (0, 0)), mode="reflect")
    found = np.zeros_like(x)
    for i, j in np.argwhere(kernel):
        found += kernel[i, j] * wide[:, i : i + h, j : j + w]
    return found


def disk(radius: float, alias: float) -> Matrix:
    """The spot of a lens out of focus: pixels within ``radius``, softened by a 3×3 Gaussian of width ``alias``."""
    reach = np.arange(-(int(radius) + 1), int(radius) + 2)
    spot = (reach[:, None] ** 2 + reach**2 <= radius**2).astype(np.float64)
    side = np.exp(-np.array([1.0, 0.0, 1.0]) / (2 * alias**2))
    side /= side.sum()
    soft = sum(
        side[i] * side[j] * np.roll(spot / spot.sum(), (i - 1, j - 1), (0, 1)) for i in range(3) for j in range(3)
    )
    return np.asarray(soft, np.float32)


def pick(x: Images, rows: NDArray[np.integer], columns: NDArray[np.integer]) -> Images:
    """Pixels (b, h', w', c) at whole-numbered rows and columns, each broadcast to (b, h', w')."""
    b, h, w, c = x.shape
    place = (np.arange(b)[:, None, None] * h + rows) * w + columns
    found: Images = x.reshape(b * h * w, c).take(place, axis=0)
    return found


def mirrored(index: NDArray[np.integer], size: int) -> NDArray[np.integer]:
    """Whole numbers brought into 0..size − 1 by mirroring at the outer pixels' centres."""
    inside = np.abs(index) % (2 * size - 2)
    found: NDArray[np.integer] = np.minimum(inside, 2 * size - 2 - inside)
    return found


def sampled(x: Images, rows: NDArray[np.float32], columns: NDArray[np.float32]) -> Images:
    """Images at real-numbered rows and columns (b, h, w), linear between pixels, mirrored at the border."""
    _, h, w, _ = x.shape
    top, left = np.floor(rows).astype(np.int64), np.floor(columns).astype(np.int64)
    down, right = (rows - top)[..., None], (columns - left)[..., None]
    upper, lower = mirrored(top, h), mirrored(top + 1, h)
    near, far = mirrored(left, w), mirrored(left + 1, w)
    above = (1 - right) * pick(x, upper, near) + right * pick(x, upper, far)
    below = (1 - right) * pick(x, lower, near) + right * pick(x, lower, far)
    found: Images = (1 - down) * above + down * below
    return found.astype(np.float32)


def streaked(x: Images, radius: int, sigma: float, degrees: NDArray[np.float32]) -> Images:
    """Motion blur, one angle for each image: half a Gaussian of 2·radius + 1 pixels along a line."""
    _, h, w, _ = x.shape
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    weights = weights[weights > 1e-4]  # the rest moves no byte
    angle = np.radians(degrees)[:, None, None]
    found = np.zeros_like(x)
    for i, weight in enumerate(weights / weights.sum()):
        rows = np.clip(np.arange(h)[:, None] + np.rint(i * np.sin(angle)).astype(np.int64), 0, h - 1)
        columns = np.clip(np.arange(w) + np.rint(i * np.cos(angle)).astype(np.int64), 0, w - 1)
        found += np.float32(weight) * pick(x, rows, columns)
    return found
