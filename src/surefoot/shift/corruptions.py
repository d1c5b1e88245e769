"""`corrupt`: generated images like those of CIFAR-10-C (Hendrycks & Dietterich 2019).

Kinds and constants are those of the authors for 32×32 images. The pixels differ: frost has a generated texture, motion
blur and snow are streaks without ImageMagick, and spatter has other drops. Bytes are rounded, not truncated. The result
is therefore named ``cifar-c-like``. Use the official arrays (`surefoot.shift.official`) for published numbers.

A higher severity is further from the clean image, measured by the root of the mean squared difference of pixels. The
authors' settings of glass blur, elastic transform, spatter and saturate are not in that order and are sorted here.
Means over the severities use the same five settings as the authors.
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
# Number of images at a time: few enough for the cache. Random streams depend on the block, so this number is fixed.
_BLOCK = 128

Corruption = Callable[..., Images]

# name -> function, and the settings of the function at the five severities (make_cifar_c.py of the authors).
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
"""The four kinds that the authors of the benchmark reserve for validation."""


def corrupt(images: Any, kind: str, severity: int, seed: int = 0) -> NDArray[Any]:
    """Apply a corruption to images.

    Args:
        images: (n, h, w, 1 or 3) bytes, or floats in [0, 1]; not modified.
        kind: a name in `CORRUPTIONS` or `EXTRA`.
        severity: 1 to 5.
        seed: seed of the noise, at least 0. The noise of an image depends on its row, not on the other images. The
            random numbers of an image are the same at every severity.

    Returns:
        The corrupted images, of the same shape and dtype.

    Raises:
        BadInput: when an argument is not as described, or the corruption needs colour images.

    Example:
        >>> grey = np.full((1, 8, 8, 3), 128, np.uint8)
        >>> corrupt(grey, "brightness", 5)[0, 0, 0].tolist()
        [205, 205, 205]

    References:
        Hendrycks & Dietterich (2019), "Benchmarking Neural Network Robustness to Common Corruptions and
        Perturbations".
    """
    given = check_images(images)
    function, settings = _entry(kind)
    chosen = settings[check_int("severity", severity, 1, 5) - 1]
    check_int("seed", seed, 0)
    corrupted = np.empty_like(given)

    def block(first: int) -> None:
        rows = slice(first, first + _BLOCK)
        result = function(as_floats(given[rows]), Draws(seed, kind, first // _BLOCK), *chosen)
        corrupted[rows] = as_given(result, given.dtype)

    run_ranges(block, list(range(0, len(given), _BLOCK)), given.size > 1 << 22)
    return corrupted


def kinds_named(names: str | Sequence[str]) -> tuple[str, ...]:
    """Resolve names and groups of corruptions.

    Args:
        names: names of corruptions, or the groups ``"all"`` (`CORRUPTIONS`), ``"extra"`` (`EXTRA`) and ``"none"``; a
            sequence, or a string separated by commas.

    Returns:
        The kinds without repetition, in order of first appearance.

    Raises:
        BadInput: when there is no such corruption.

    Example:
        >>> kinds_named("fog, snow, fog")
        ('fog', 'snow')
    """
    words = names.split(",") if isinstance(names, str) else names
    groups = {"all": CORRUPTIONS, "extra": EXTRA, "none": ()}
    kinds: list[str] = []
    for word in words:
        name = word.strip() if isinstance(word, str) else word
        if name not in groups:
            _entry(name)
        kinds += groups.get(name, (name,))
    return tuple(dict.fromkeys(kinds))


def try_kinds(images: Any, kinds: Sequence[str]) -> None:
    """Apply every kind to the first image, so that an unsuitable corruption is an error before the long work.

    Args:
        images: (n, h, w, 1 or 3) bytes, or floats in [0, 1].
        kinds: names of corruptions.

    Raises:
        BadInput: when a corruption cannot be applied.
    """
    for kind in kinds:
        corrupt(images[:1], kind, 1)


def _entry(kind: Any) -> tuple[Corruption, Sequence[tuple[float, ...]]]:
    """The function of a corruption and its settings, or a clear error."""
    if not isinstance(kind, str) or kind not in _TABLE:
        raise BadInput(f"corruption must be one of {', '.join(_TABLE)}; got {kind!r}{suggest(str(kind), _TABLE)}")
    return _TABLE[kind]
