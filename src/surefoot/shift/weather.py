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
    deviation: float,
    zoom: float,
    threshold: float,
    radius: int,
    sigma: float,
    mix: float,
) -> Images:
    """Flakes (numbers above a threshold, magnified, streaked downwards) over a whitened image, twice, one turned."""
    b, h, w, _ = x.shape
    layer = np.float32(mean) + np.float32(deviation) * draws.normal(b, h, w, 1)
    layer = two_sided(layer, zoom_matrix(h, zoom), zoom_matrix(w, zoom))
    layer = np.clip(np.where(layer < threshold, 0, layer), 0, 1)
    layer = streaked(layer, radius, sigma, draws.uniform(-135, -45, b))
    white = np.maximum(x, _grey(x) * 1.5 + np.float32(0.5))
    found: Images = np.float32(mix) * x + np.float32(1 - mix) * white + layer + layer[:, ::-1, ::-1]
    return found


def frost(x: Images, draws: Draws, kept: float, strength: float) -> Images:
    """Ice over the image. Its texture is made here, from veins of a rough plasma; the original takes photographs."""
    b, h, w, c = x.shape
    veins = 1 - np.abs(2 * plasma(draws, b, h, w, 1.3) - 1)
    ice = (veins**8)[..., None] * (_ICE if c == 3 else _ICE.mean())
    found: Images = np.float32(kept) * x + np.float32(strength) * ice
    return found


def fog(x: Images, draws: Draws, strength: float, decay: float) -> Images:
    """A cloud is added, and the image is scaled back to its brightest pixel."""
    b, h, w, _ = x.shape
    most = x.max(axis=(1, 2, 3), keepdims=True)
    thick = x + np.float32(strength) * plasma(draws, b, h, w, decay)[..., None]
    found: Images = thick * (most / (most + np.float32(strength)))
    return found


def brightness(x: Images, draws: Draws, more: float) -> Images:
    """The value of HSV raised: colours scaled so that the largest channel is ``more`` higher, 1 at most."""
    value = x.max(axis=3, keepdims=True)
    raised = np.minimum(value + np.float32(more), 1)
    found: Images = np.where(value > 0, x * (raised / np.maximum(value, np.float32(1e-6))), raised)
    return found


def spatter(
    x: Images, draws: Draws, mean: float, deviation: float, sigma: float, threshold: float, strength: float, mud: bool
) -> Images:
    """Drops of water, lit from one side, or specks of mud where blurred noise is high.

    The original finds the edges of the drops by Canny's method; here they are cut from a relief.
    """
    b, h, w, c = x.shape
    liquid = blurred(np.float32(mean) + np.float32(deviation) * draws.normal(b, h, w, 1), sigma)
    wet = (liquid > threshold).astype(np.float32)
    if mud:
        cover = blurred(wet, strength)
        cover = np.where(cover < 0.8, np.float32(0), cover)
        return x * (1 - cover) + cover * (_MUD if c == 3 else _MUD.mean())
    drop = wet * np.maximum(filtered(wet, _RELIEF), 0)
    drop /= np.maximum(drop.max(axis=(1, 2, 3), keepdims=True), np.float32(1e-6))
    found: Images = x + np.float32(strength) * drop**2 * (_WATER if c == 3 else _WATER.mean())
    return found


def plasma(draws: Draws, count: int, height: int, width: int, decay: float) -> Images:
    """(count, height, width) clouds in [0, 1] by the diamond–square algorithm on a torus.

    At each halving of the grid the noise's amplitude falls by decay²: the original scales its noise twice.
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
    found: Images = ((sky - low) / np.maximum(high - low, np.float32(1e-6)))[:, :height, :width]
    return found


def _grey(x: Images) -> Images:
    return (x @ _GREY)[..., None] if x.shape[3] == 3 else x
