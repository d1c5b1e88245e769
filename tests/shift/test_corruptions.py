"""Corruptions: what each does in closed form, further with severity, the same for the same seed, and bad input."""

import io
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import gaussian_filter

from surefoot.errors import BadInput
from surefoot.shift import CORRUPTIONS, EXTRA, corrupt
from surefoot.shift.corruptions import kinds_named
from surefoot.shift.draws import Draws
from surefoot.shift.filters import box_matrix, disk, filtered, mirrored, sampled, streaked
from surefoot.shift.weather import plasma
from tests.shift.cases import digits, scenes

ALL = (*CORRUPTIONS, *EXTRA)


def distance(a, b):
    return float(np.sqrt(((a.astype(float) - b) ** 2).mean(axis=(1, 2, 3))).mean())


def test_there_are_fifteen_and_four():
    assert (len(CORRUPTIONS), len(EXTRA)) == (15, 4)
    assert kinds_named("all") == CORRUPTIONS
    assert kinds_named("extra,snow") == (*EXTRA, "snow")
    assert kinds_named(["none"]) == ()


@pytest.mark.parametrize("kind", ALL)
def test_every_kind(kind):
    """Severity moves away from the clean image; a seed gives the same bytes; other images change nothing."""
    x = scenes()
    corrupted = [corrupt(x, kind, severity, seed=3) for severity in (1, 2, 3, 4, 5)]
    far = [distance(images, x) for images in corrupted]
    assert far[0] > 0
    assert all(a <= b + 1e-9 for a, b in pairwise(far)), far
    assert all(images.dtype == np.uint8 and images.shape == x.shape for images in corrupted)
    again = corrupt(x[:5], kind, 4, seed=3)
    assert (again == corrupted[3][:5]).all()
    other = x.copy()
    other[:3] = 255 - other[:3]
    assert (corrupt(other, kind, 4, seed=3)[3:] == corrupted[3][3:]).all()
    floats = corrupt(x / 255.0, kind, 4, seed=3)
    assert floats.dtype == np.float64
    assert np.abs(floats * 255 - corrupted[3]).max() <= 0.51


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind != "saturate"])
def test_grey_digits(kind):
    x = digits()
    near, far = (distance(corrupt(x, kind, severity), x) for severity in (1, 5))
    assert 0 < near <= far


@pytest.mark.parametrize(
    "kind", ["gaussian_noise", "shot_noise", "impulse_noise", "snow", "fog", "frost", "glass_blur"]
)
def test_the_seed_matters_and_blocks_differ(kind):
    x = np.repeat(scenes(1), 129, axis=0)
    corrupted = corrupt(x, kind, 3, seed=1)
    assert (corrupted != corrupt(x, kind, 3, seed=2)).any()
    assert (corrupted[0] != corrupted[128]).any()  # the first image of another block


def test_noise_has_its_moments():
    x = np.full((40, 32, 32, 3), 0.5, np.float32)
    for kind, deviation in (("gaussian_noise", 0.08), ("shot_noise", (0.5 / 100) ** 0.5), ("speckle_noise", 0.06)):
        off = corrupt(x, kind, 3).astype(float) - 0.5
        assert abs(off.mean()) < 4 * deviation / off.size**0.5
        assert off.std() == pytest.approx(deviation, rel=0.02)
    hit = corrupt(x, "impulse_noise", 5) != 0.5
    assert hit.mean() == pytest.approx(0.07, abs=0.002)


def test_closed_forms():
    x = np.full((1, 8, 8, 3), 0.4, np.float32)
    x[0, :4, :, 0] = 0.8
    mean = x.mean(axis=(1, 2))
    assert np.allclose(corrupt(x, "contrast", 5), 0.15 * (x - mean) + mean, atol=1e-6)
    assert np.allclose(corrupt(x, "brightness", 3)[0, 0, 0], np.array([0.95, 0.475, 0.475]), atol=1e-6)
    assert np.allclose(corrupt(x, "brightness", 5)[0, 0, 0], np.array([1.0, 0.5, 0.5]), atol=1e-6)
    # s = 0.5 becomes 0.15: the small channels rise to 0.8·0.85; grey stays grey without a constant.
    assert np.allclose(corrupt(x, "saturate", 2)[0, 0, 0], [0.8, 0.68, 0.68], atol=1e-6)
    assert np.allclose(corrupt(x, "saturate", 2)[0, 7, 0], 0.4, atol=1e-6)
    assert np.allclose(corrupt(x, "saturate", 4)[0, 7, 0], [0.4, 0.36, 0.36], atol=1e-6)


@pytest.mark.parametrize("kind", ["defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur", "pixelate",
                                  "elastic_transform", "contrast"])  # fmt: skip
def test_a_flat_image_stays_flat(kind):
    x = np.full((2, 16, 16, 3), 77, np.uint8)
    for severity in (1, 3, 5):
        assert (corrupt(x, kind, severity) == x).all()


def test_against_other_implementations():
    x = scenes(6)
    theirs = gaussian_filter(x / 255.0, (0, 0.8, 0.8, 0), mode="nearest")
    assert np.abs(corrupt(x / 255.0, "gaussian_blur", 4) - theirs).max() < 1e-6
    for severity, share in enumerate((0.95, 0.9, 0.85, 0.75, 0.65), 1):
        side = int(32 * share)
        box = [Image.fromarray(image).resize((side, side), Image.Resampling.BOX) for image in x]
        big = np.stack([np.asarray(image.resize((32, 32), Image.Resampling.BOX)) for image in box])
        # Pillow rounds after each of its two passes.
        assert np.abs(corrupt(x, "pixelate", severity).astype(int) - big).max() <= 1
    file = io.BytesIO()
    Image.fromarray(x[2]).save(file, "JPEG", quality=58)
    assert (corrupt(x, "jpeg_compression", 3)[2] == np.asarray(Image.open(file))).all()


def test_glass_is_the_walk_over_the_pixels():
    """The original's double loop, its random numbers ours, gives the same picture as all pixels at once."""
    x = scenes(1)
    draws = Draws(0, "glass_blur", 0)
    up, left = (draws.uniform(0, 1, 1, 32, 32)[0] < 0.5 for _ in range(2))
    walked = x[0].copy()
    for row in range(31, 1, -1):
        for column in range(31, 1, -1):
            walked[row, column] = walked[row - int(up[row, column]), column - int(left[row, column])]
    assert (corrupt(x, "glass_blur", 2)[0] == walked).all()  # σ = 0.05 blurs nothing


def test_filters():
    kernel = disk(1.5, 0.1)
    assert kernel.sum() == pytest.approx(1)
    assert kernel[2, 2] == pytest.approx(1 / 9, rel=1e-3)
    point = np.zeros((1, 9, 9, 1), np.float32)
    point[0, 4, 4] = 1
    assert np.allclose(filtered(point, kernel)[0, 2:7, 2:7, 0], kernel[::-1, ::-1])
    assert mirrored(np.arange(-3, 8), 4).tolist() == [3, 2, 1, 0, 1, 2, 3, 2, 1, 0, 1]
    rows, columns = (grid[None].astype(np.float32) for grid in np.mgrid[:9, :9])
    assert (sampled(point, rows, columns) == point).all()
    assert sampled(point, rows + 0.25, columns)[0, 3:5, 4, 0].tolist() == [0.25, 0.75]
    assert np.allclose(box_matrix(8, 4).sum(1), 1)
    streak = streaked(point, 6, 1.0, np.zeros(1, np.float32))[0, 4, :, 0]
    weights = np.exp(-(np.arange(5.0) ** 2) / 2)
    assert np.allclose(streak[4::-1], weights / weights.sum(), atol=1e-3)
    assert (streak[5:] == 0).all()


def test_plasma_fills_its_range_and_roughens():
    smooth, rough = (plasma(Draws(0, "fog", 0), 20, 32, 32, decay) for decay in (3.0, 1.2))
    for sky in (smooth, rough):
        assert sky.min(axis=(1, 2)).max() < 1e-6
        assert sky.max(axis=(1, 2)).min() > 1 - 1e-6
    steps = [np.abs(np.diff(sky, axis=1)).mean() for sky in (smooth, rough)]
    assert steps[0] < steps[1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"images": np.full((2, 8, 8, 3), 7.0)}, "0 to 1; got 7 to 7; divide by 255"),
        ({"images": np.full((2, 8, 8, 3), -1.5)}, "undo the standardisation"),
        ({"images": np.full((2, 8, 8, 3), np.nan)}, "must lie in 0 to 1"),
        ({"images": np.zeros((2, 8, 8, 3), np.int64)}, "uint8"),
        ({"images": np.zeros((2, 3, 8, 8), np.uint8)}, "channels come last"),
        ({"images": np.zeros((8, 8, 3), np.uint8)}, r"\(n, h, w, 1 or 3\)"),
        ({"images": np.zeros((0, 8, 8, 3), np.uint8)}, "n at least 1"),
        ({"images": np.zeros((1, 2, 8, 3), np.uint8)}, "4 pixels"),
        ({"kind": "gausian_noise"}, "did you mean 'gaussian_noise'"),
        ({"kind": 3}, "corruption must be one of"),
        ({"severity": 0}, "severity must be an integer from 1 to 5; got 0"),
        ({"severity": 6}, "got 6"),
        ({"severity": 2.0}, "got 2.0"),
        ({"seed": -1}, "seed"),
        ({"images": np.zeros((2, 8, 8, 1), np.uint8), "kind": "saturate"}, "colour"),
    ],
)
def test_bad_input(change, said):
    given = {"images": scenes(2), "kind": "fog", "severity": 3, "seed": 0} | change
    with pytest.raises(BadInput, match=said):
        corrupt(**given)
