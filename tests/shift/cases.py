"""Pictures to test with: real digits made larger, and coloured scenes with the spectrum of photographs."""

import numpy as np
from scipy.ndimage import gaussian_filter, zoom
from sklearn.datasets import load_digits


def digits(count: int = 24) -> np.ndarray:
    """(count, 32, 32, 1) bytes."""
    images = load_digits().images[:count] / 16
    return np.rint(np.clip(zoom(images, (1, 4, 4), order=1), 0, 1) * 255).astype(np.uint8)[..., None]


def scenes(count: int = 24, seed: int = 0) -> np.ndarray:
    """(count, 32, 32, 3) bytes: sums of noise blurred at several scales, channels alike, edges of a disk."""
    random = np.random.default_rng(seed)
    total = np.zeros((count, 32, 32, 3))
    for sigma in (1, 2, 4, 8):
        shared = random.standard_normal((count, 32, 32, 1)) + 0.5 * random.standard_normal((count, 32, 32, 3))
        total += sigma * gaussian_filter(shared, (0, sigma, sigma, 0), mode="nearest")
    rows, columns = np.mgrid[:32, :32]
    for image in total:
        centre, radius = random.uniform(8, 24, 2), random.uniform(4, 10)
        image[(rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 < radius**2] += random.normal(0, 1, 3)
    return np.rint(np.clip(0.5 + 0.22 * total / total.std(), 0, 1) * 255).astype(np.uint8)
