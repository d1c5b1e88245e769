"""Corruptions by processing: contrast, elastic, pixelate, jpeg, saturate."""

from __future__ import annotations

import io

import numpy as np

from surefoot.errors import BadInput
from surefoot.shift.draws import Draws
from surefoot.shift.filters import blurred, box_matrix, sampled, two_sided
from surefoot.shift.images import Images

__all__ = ["contrast", "elastic_transform", "jpeg_compression", "pixelate", "saturate"]


def contrast(x: Images, draws: Draws, kept: float) -> Images:
    """A share of the distance of each channel from its mean is kept."""
    mean = x.mean(axis=(1, 2), keepdims=True)
    found: Images = (x - mean) * np.float32(kept) + mean
    return found


def elastic_transform(x: Images, draws: Draws, strength: float, smooth: float, tilt: float) -> Images:
    """A random affine map and smooth random displacements, all in shares of the image's size, in one sampling."""
    b, h, w, _ = x.shape
    rows, columns = (grid.astype(np.float32) for grid in np.mgrid[:h, :w])
    # Always drawn, so that the affine map is the same at each severity.
    wander = draws.uniform(-1, 1, b, h, w, 2)
    if strength:
        wander = np.float32(strength * h) * blurred(wander, smooth * h, "reflect", 3.0)
        rows, columns = rows + wander[..., 0], columns + wander[..., 1]
    third, middle = np.array([h // 3, w // 3]), np.array([h // 2, w // 2])
    before = middle + third * np.array([[1, 1], [1, -1], [-1, -1]])
    after = before + draws.uniform(-tilt * h, tilt * h, b, 3, 2)
    # Pixels of the result are looked up where the inverse map sends them: (r, c, 1) ↦ (r, c, 1) M.
    ones = np.ones((b, 3, 1))
    maps = np.linalg.solve(np.concatenate([after, ones], axis=2), np.broadcast_to(before, (b, 3, 2)))
    m = maps.astype(np.float32)[:, :, :, None, None]
    found = (rows * m[:, 0, k] + columns * m[:, 1, k] + m[:, 2, k] for k in range(2))
    return sampled(x, *found)


def pixelate(x: Images, draws: Draws, share: float) -> Images:
    """Down to a share of the size by means of boxes, and up again by nearest pixels; bytes in between."""
    _, h, w, _ = x.shape
    small = int(h * share), int(w * share)
    found = two_sided(x, box_matrix(h, small[0]), box_matrix(w, small[1]))
    bytes_ = (np.rint(found * 255) / 255).astype(np.float32)
    return two_sided(bytes_, box_matrix(small[0], h), box_matrix(small[1], w))


def jpeg_compression(x: Images, draws: Draws, quality: int) -> Images:
    """Through Pillow's JPEG and back."""
    from PIL import Image

    pixels = np.rint(np.clip(x, 0, 1) * 255).astype(np.uint8)
    found = np.empty_like(pixels)
    for row, image in enumerate(pixels):
        file = io.BytesIO()
        Image.fromarray(image if image.shape[2] == 3 else image[..., 0]).save(file, "JPEG", quality=quality)
        with Image.open(file) as opened:
            found[row] = np.asarray(opened).reshape(image.shape)
    return (found / 255).astype(np.float32)


def saturate(x: Images, draws: Draws, factor: float, more: float) -> Images:
    """The saturation s of HSV becomes factor·s + more, in [0, 1]; as there, grey has the hue of red."""
    if x.shape[3] != 3:
        raise BadInput("saturate needs images in colour; these have one channel; leave it out")
    value, least = x.max(axis=3, keepdims=True), x.min(axis=3, keepdims=True)
    span = value - least
    before = span / np.maximum(value, np.float32(1e-6))
    after = np.clip(np.float32(factor) * before + np.float32(more), 0, 1)
    # A colour is value − span·shape, with shape 0 for the largest channel and 1 for the smallest.
    red = np.array([0, 1, 1], np.float32)
    shape = np.where(span > 0, (value - x) / np.maximum(span, np.float32(1e-6)), red)
    found: Images = value - value * after * shape
    return found
