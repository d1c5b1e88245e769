"""Corruptions by weather: snow, frost, fog, brightness, spatter."""

from __future__ import annotations

import numpy as np

from surefoot.shift.draws import Draws
from surefoot.shift.filters import blurred, filtered, streaked, two_sided, zoom_matrix
from surefoot.shift.images import Images

__all__ = ["brightness", "fog", "frost", "plasma", "snow", "spatter"]

_GREY = np.array([0.299, 0.587, 0.114], np.float32)
_ICE = np.array([0.82, 0.92, 1.0], np.float32)
_RELIEF = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32)
_WATER = np.array([175, 238, 238], np.float32) / 255
_MUD = np.array([63, 42, 20], np.float32) / 255


def snow(
    x: Images,
    draws: Draws,
    mean: float,
    std: float,
    zoom: float,
    threshold: float,
    radius: int,
    sigma: float,
    mix: float,
) -> Images:
    """Whiten the image and add a layer of flakes twice, once rotated by 180°.

    Flakes are random numbers above a threshold, magnified and blurred along a downward line.

    Args:
        x: (b, h, w, c) images in [0, 1].
        draws: random numbers of the block.
        mean: mean of the random numbers.
        std: standard deviation of the random numbers.
        zoom: magnification of the flakes, at least 1.
        threshold: numbers below the threshold are set to 0.
        radius: the line of the motion blur has 2·radius + 1 pixels.
        sigma: standard deviation of the motion blur, in pixels.
        mix: weight of the image, in [0, 1]; the whitened image has weight 1 − mix.

    Returns:
        (b, h, w, c) images.
    """
    b, h, w, _ = x.shape
    layer = np.float32(mean) + np.float32(std) * draws.normal(b, h, w, 1)
    layer = two_sided(layer, zoom_matrix(h, zoom), zoom_matrix(w, zoom))
    layer = np.clip(np.where(layer < threshold, 0, layer), 0, 1)
    layer = streaked(layer, radius, sigma, draws.uniform(-135, -45, b))
    white = np.maximum(x, _grey(x) * 1.5 + np.float32(0.5))
    snowy: Images = np.float32(mix) * x + np.float32(1 - mix) * white + layer + layer[:, ::-1, ::-1]
    return snowy


def frost(x: Images, draws: Draws, kept: float, strength: float) -> Images:
    """Add ice to the image; the texture is generated from veins of `plasma`, while the original uses photographs.

    Args:
        x: (b, h, w, c) images in [0, 1].
        draws: random numbers of the block.
        kept: weight of the image.
        strength: weight of the ice.

    Returns:
        (b, h, w, c) images.
    """
    b, h, w, c = x.shape
    veins = 1 - np.abs(2 * plasma(draws, b, h, w, 1.3) - 1)
    ice = (veins**8)[..., None] * (_ICE if c == 3 else _ICE.mean())
    icy: Images = np.float32(kept) * x + np.float32(strength) * ice
    return icy


def fog(x: Images, draws: Draws, strength: float, decay: float) -> Images:
    """Add a cloud of `plasma`, and scale the image by the brightness of its brightest pixel.

    Args:
        x: (b, h, w, c) images in [0, 1].
        draws: random numbers of the block.
        strength: weight of the cloud.
        decay: roughness of the cloud; see `plasma`.

    Returns:
        (b, h, w, c) images.
    """
    b, h, w, _ = x.shape
    brightest = x.max(axis=(1, 2, 3), keepdims=True)
    thick = x + np.float32(strength) * plasma(draws, b, h, w, decay)[..., None]
    foggy: Images = thick * (brightest / (brightest + np.float32(strength)))
    return foggy


def brightness(x: Images, draws: Draws, more: float) -> Images:
    """Raise the value of HSV: scale colours so that the largest channel increases by ``more``, up to 1.

    Args:
        x: (b, h, w, c) images in [0, 1].
        draws: random numbers of the block; not used.
        more: increase of the largest channel.

    Returns:
        (b, h, w, c) images.
    """
    value = x.max(axis=3, keepdims=True)
    raised = np.minimum(value + np.float32(more), 1)
    brighter: Images = np.where(value > 0, x * (raised / np.maximum(value, np.float32(1e-6))), raised)
    return brighter


def spatter(
    x: Images, draws: Draws, mean: float, std: float, sigma: float, threshold: float, strength: float, mud: bool
) -> Images:
    """Add drops of water, lit from one side, or specks of mud where blurred noise is high.

    The original finds the edges of the drops by Canny's method. Here the edges come from a relief filter.

    Args:
        x: (b, h, w, c) images in [0, 1].
        draws: random numbers of the block.
        mean: mean of the noise.
        std: standard deviation of the noise.
        sigma: standard deviation of the blur of the noise, in pixels.
        threshold: the blurred noise is a drop or speck above the threshold.
        strength: weight of the water, or standard deviation of the blur of the mud in pixels.
        mud: whether to add mud instead of water.

    Returns:
        (b, h, w, c) images.
    """
    b, h, w, c = x.shape
    liquid = blurred(np.float32(mean) + np.float32(std) * draws.normal(b, h, w, 1), sigma)
    wet = (liquid > threshold).astype(np.float32)
    if mud:
        cover = blurred(wet, strength)
        cover = np.where(cover < 0.8, np.float32(0), cover)
        return x * (1 - cover) + cover * (_MUD if c == 3 else _MUD.mean())
    drop = wet * np.maximum(filtered(wet, _RELIEF), 0)
    drop /= np.maximum(drop.max(axis=(1, 2, 3), keepdims=True), np.float32(1e-6))
    wetter: Images = x + np.float32(strength) * drop**2 * (_WATER if c == 3 else _WATER.mean())
    return wetter


def plasma(draws: Draws, count: int, height: int, width: int, decay: float) -> Images:
    """Generate clouds by the diamond–square algorithm on a torus.

    Every halving of the grid divides the amplitude of the noise by decay², because the original scales its noise twice.

    Args:
        draws: random numbers of the block.
        count: number of clouds.
        height: height in pixels.
        width: width in pixels.
        decay: root of the factor between amplitudes, above 1; larger values give smoother clouds.

    Returns:
        (count, height, width) clouds in [0, 1].
    """
    size = 1 << max(1, int(np.ceil(np.log2(max(height, width)))))
    sky = np.zeros((count, size, size), np.float32)
    step, amplitude = size, 1.0
    while step > 1:
        half = step // 2
        noise = np.float32(amplitude) * draws.uniform(-1, 1, count, 3, size // step, size // step)
        corners = sky[:, ::step, ::step]
        pairs = corners + np.roll(corners, -1, axis=1)
        centres = (pairs + np.roll(pairs, -1, axis=2)) / 4 + noise[:, 0]
        sky[:, half::step, half::step] = centres
        beside = corners + np.roll(corners, -1, axis=2) + centres + np.roll(centres, 1, axis=1)
        sky[:, ::step, half::step] = beside / 4 + noise[:, 1]
        below = corners + np.roll(corners, -1, axis=1) + centres + np.roll(centres, 1, axis=2)
        sky[:, half::step, ::step] = below / 4 + noise[:, 2]
        step, amplitude = half, amplitude / decay**2
    low, high = (end(sky, axis=(1, 2), keepdims=True) for end in (np.min, np.max))
    clouds: Images = ((sky - low) / np.maximum(high - low, np.float32(1e-6)))[:, :height, :width]
    return clouds


def _grey(x: Images) -> Images:
    """Brightness (b, h, w, 1) of images."""
    return (x @ _GREY)[..., None] if x.shape[3] == 3 else x
