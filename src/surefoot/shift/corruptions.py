"""`corrupt`: images like those of CIFAR-10-C (Hendrycks & Dietterich 2019), made here.

Kinds and constants are those that the authors used for 32×32 images; the pixels are not theirs: frost has a texture
made here, motion blur and snow are streaks without ImageMagick, spatter has drops of its own, bytes are rounded instead
of cut off. So the result is called ``cifar-c-like``; for published numbers take the official arrays
(`surefoot.shift.official`).

A higher severity is further from the clean image, in the root of the mean squared difference of pixels. The authors'
settings of glass blur, elastic transform, spatter and saturate are not in that order, and are sorted here; means over
the severities speak of the same five settings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.shift import blur, digital, noise, weather
from surefoot.shift.draws import Draws
from surefoot.shift.images import Images, as_floats, as_given, check_images
from surefoot.threads import run_ranges
from surefoot.validation import check_int, suggest

__all__ = ["CORRUPTIONS", "EXTRA", "NAME", "SEVERITIES", "corrupt", "kinds_named", "try_kinds"]

NAME = "cifar-c-like"
SEVERITIES = (1, 2, 3, 4, 5)
# Images at a time: few enough for the numbers to stay near a core. Random streams are by block, so this is a constant.
_BLOCK = 128

Corruption = Callable[..., Images]

# name -> function, and its settings at the five severities (make_cifar_c.py of the authors).
_TABLE: dict[str, tuple[Corruption, Sequence[tuple[float, ...]]]] = {
    "gaussian_noise": (noise.gaussian_noise, [(0.04,), (0.06,), (0.08,), (0.09,), (0.10,)]),
    "shot_noise": (noise.shot_noise, [(500,), (250,), (100,), (75,), (50,)]),
    "impulse_noise": (noise.impulse_noise, [(0.01,), (0.02,), (0.03,), (0.05,), (0.07,)]),
    "defocus_blur": (blur.defocus_blur, [(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)]),
    "glass_blur": (blur.glass_blur, [(0.4, 1), (0.05, 1), (0.25, 1), (0.4, 2), (0.25, 2)]),
    "motion_blur": (blur.motion_blur, [(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)]),
    "zoom_blur": (blur.zoom_blur, [(7,), (12,), (16,), (21,), (26,)]),
    "snow": (
        weather.snow,
        [
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ],
    ),
    "frost": (weather.frost, [(1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)]),
    "fog": (weather.fog, [(0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)]),
    "brightness": (weather.brightness, [(0.05,), (0.1,), (0.15,), (0.2,), (0.3,)]),
    "contrast": (digital.contrast, [(0.75,), (0.5,), (0.4,), (0.3,), (0.15,)]),
    "elastic_transform": (
        digital.elastic_transform,
        [(0.1, 0.03, 0.03), (0.1, 0.04, 0.05), (0.08, 0.06, 0.06), (0.05, 0.2, 0.07), (0, 0, 0.08)],
    ),
    "pixelate": (digital.pixelate, [(0.95,), (0.9,), (0.85,), (0.75,), (0.65,)]),
    "jpeg_compression": (digital.jpeg_compression, [(80,), (65,), (58,), (50,), (40,)]),
    "speckle_noise": (noise.speckle_noise, [(0.06,), (0.1,), (0.12,), (0.16,), (0.2,)]),
    "gaussian_blur": (blur.gaussian_blur, [(0.4,), (0.6,), (0.7,), (0.8,), (1,)]),
    "spatter": (
        weather.spatter,
        [
            (0.62, 0.1, 0.7, 0.7, 0.5, False),
            (0.65, 0.1, 0.8, 0.7, 0.5, False),
            (0.65, 0.1, 0.7, 0.69, 0.6, True),
            (0.65, 0.3, 1, 0.69, 0.5, False),
            (0.65, 0.1, 0.5, 0.68, 0.6, True),
        ],
    ),
    "saturate": (digital.saturate, [(1.5, 0), (0.3, 0), (0.1, 0), (2, 0.1), (2.5, 0.2)]),
}
CORRUPTIONS = tuple(_TABLE)[:15]
"""The fifteen kinds of the benchmark."""
EXTRA = tuple(_TABLE)[15:]
"""The four kinds that its authors keep for validation."""


def corrupt(images: Any, kind: str, severity: int, seed: int = 0) -> NDArray[Any]:
    """Images (n, h, w, 1 or 3), bytes or floats in [0, 1], under a corruption; same shape and type.

    Args:
        images: as above; they are not modified.
        kind: one of `CORRUPTIONS` or `EXTRA`.
        severity: 1 to 5.
        seed: of the noise; an image's noise depends on its row, not on the other images, and its random numbers are
            the same at each severity.

    >>> grey = np.full((1, 8, 8, 3), 128, np.uint8)
    >>> corrupt(grey, "brightness", 5)[0, 0, 0].tolist()
    [205, 205, 205]
    """
    given = check_images(images)
    function, settings = _found(kind)
    chosen = settings[check_int("severity", severity, 1, 5) - 1]
    check_int("seed", seed, 0)
    found = np.empty_like(given)

    def block(first: int) -> None:
        rows = slice(first, first + _BLOCK)
        result = function(as_floats(given[rows]), Draws(seed, kind, first // _BLOCK), *chosen)
        found[rows] = as_given(result, given.dtype)

    run_ranges(block, list(range(0, len(given), _BLOCK)), given.size > 1 << 22)
    return found


def kinds_named(names: str | Sequence[str]) -> tuple[str, ...]:
    """Kinds of corruption: ``"all"`` (the fifteen), ``"extra"`` (the four), ``"none"``, or names, one by one."""
    words = names.split(",") if isinstance(names, str) else names
    groups = {"all": CORRUPTIONS, "extra": EXTRA, "none": ()}
    found: list[str] = []
    for word in words:
        name = word.strip() if isinstance(word, str) else word
        if name not in groups:
            _found(name)
        found += groups.get(name, (name,))
    return tuple(dict.fromkeys(found))


def try_kinds(images: Any, kinds: Sequence[str]) -> None:
    """Corrupt the first image by each kind: what cannot be done to such images is said before the long work."""
    for kind in kinds:
        corrupt(images[:1], kind, 1)


def _found(kind: Any) -> tuple[Corruption, Sequence[tuple[float, ...]]]:
    if not isinstance(kind, str) or kind not in _TABLE:
        raise BadInput(f"corruption must be one of {', '.join(_TABLE)}; got {kind!r}{suggest(str(kind), _TABLE)}")
    return _TABLE[kind]
