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
    """Reduce the distance of every channel from its mean.

    Args:
        x: (b, h, w, c) images in [0, 1].
        draws: random numbers of the block; not used.
        kept: share of the distance that is kept.

    Returns:
        (b, h, w, c) images.
    """
    mean = x.mean(axis=(1, 2), keepdims=True)
    reduced: Images = (x - mean) * np.float32(kept) + mean
    return reduced


def elastic_transform(x: Images, draws: Draws, strength: float, smooth: float, tilt: float) -> Images:
    """Apply a random affine map and smooth random displacements in one sampling.

    Args:
        x: (b, h, w, c) images in [0, 1].
        draws: random numbers of the block.
        strength: size of the displacements, as a share of the height.
        smooth: standard deviation of the Gaussian that smooths the displacements, as a share of the height.
        tilt: largest move of the corners of the affine map, as a share of the height.

    Returns:
        (b, h, w, c) images.
    """
    b, h, w, _ = x.shape
    rows, columns = (grid.astype(np.float32) for grid in np.mgrid[:h, :w])
    # The displacements are always drawn, so that the affine map is the same at every severity.
    wander = draws.uniform(-1, 1, b, h, w, 2)
    if strength:
        wander = np.float32(strength * h) * blurred(wander, smooth * h, "reflect", 3.0)
        rows, columns = rows + wander[..., 0], columns + wander[..., 1]
    third, middle = np.array([h // 3, w // 3]), np.array([h // 2, w // 2])
    before = middle + third * np.array([[1, 1], [1, -1], [-1, -1]])
    after = before + draws.uniform(-tilt * h, tilt * h, b, 3, 2)
    # The inverse map (r, c, 1) ↦ (r, c, 1) M gives the place in the image where a pixel of the result is read.
    ones = np.ones((b, 3, 1))
    maps = np.linalg.solve(np.concatenate([after, ones], axis=2), np.broadcast_to(before, (b, 3, 2)))
    m = maps.astype(np.float32)[:, :, :, None, None]
    places = (rows * m[:, 0, k] + columns * m[:, 1, k] + m[:, 2, k] for k in range(2))
    return sampled(x, *places)


def pixelate(x: Images, draws: Draws, share: float) -> Images:
    """Shrink the image by box means, round to bytes, and enlarge the image by nearest pixels.

    Args:
        x: (b, h, w, c) images in [0, 1].
        draws: random numbers of the block; not used.
        share: size of the small image, as a share of the size.

    Returns:
        (b, h, w, c) images.
    """
    _, h, w, _ = x.shape
    small = int(h * share), int(w * share)
    shrunk = two_sided(x, box_matrix(h, small[0]), box_matrix(w, small[1]))
    bytes_ = (np.rint(shrunk * 255) / 255).astype(np.float32)
    return two_sided(bytes_, box_matrix(small[0], h), box_matrix(small[1], w))


def jpeg_compression(x: Images, draws: Draws, quality: int) -> Images:
    """Compress and decompress the images by Pillow's JPEG.

    Args:
        x: (b, h, w, c) images in [0, 1].
        draws: random numbers of the block; not used.
        quality: quality of the JPEG, 1 to 95.

    Returns:
        (b, h, w, c) images.
    """
    from PIL import Image

    pixels = np.rint(np.clip(x, 0, 1) * 255).astype(np.uint8)
    decoded = np.empty_like(pixels)
    for row, image in enumerate(pixels):
        file = io.BytesIO()
        Image.fromarray(image if image.shape[2] == 3 else image[..., 0]).save(file, "JPEG", quality=quality)
        with Image.open(file) as opened:
            decoded[row] = np.asarray(opened).reshape(image.shape)
    return (decoded / 255).astype(np.float32)


def saturate(x: Images, draws: Draws, factor: float, more: float) -> Images:
    """Change the saturation s of HSV to factor·s + more, clipped to [0, 1]; as in HSV, grey has the hue of red.

    Args:
        x: (b, h, w, 3) images in [0, 1].
        draws: random numbers of the block; not used.
        factor: factor of the saturation.
        more: summand of the saturation.

    Returns:
        (b, h, w, 3) images.

    Raises:
        BadInput: when the images have one channel.
    """
    if x.shape[3] != 3:
        raise BadInput("saturate needs images in colour; these have one channel; leave it out")
    value, smallest = x.max(axis=3, keepdims=True), x.min(axis=3, keepdims=True)
    span = value - smallest
    before = span / np.maximum(value, np.float32(1e-6))
    after = np.clip(np.float32(factor) * before + np.float32(more), 0, 1)
    # A colour is value − span·shape, with shape 0 for the largest channel and 1 for the smallest.
    red = np.array([0, 1, 1], np.float32)
    shape = np.where(span > 0, (value - x) / np.maximum(span, np.float32(1e-6)), red)
    saturated: Images = value - value * after * shape
    return saturated
