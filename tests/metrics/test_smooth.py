import numpy as np
import pytest
from scipy.stats import norm

from surefoot import metrics
from surefoot.metrics.smooth import _NARROWEST

from ..conftest import binary_predictions, random_predictions


def brute(c, hit, width, points=4001, images=3):
    """∫ |mean Z φ(t − c)| dt with the Gaussian reflected by explicit images of every row."""
    t = (np.arange(points) + 0.5) / points
    z = hit - c
    density = np.zeros(points)
    for m in range(-images, images + 1):
        for sign in (1, -1):
            density += (z[:, None] * norm.pdf(t[None] - (2 * m + sign * c[:, None]), scale=width)).sum(0)
    return np.abs(density).mean() / len(c)


@pytest.mark.parametrize("seed", range(4))
def test_is_the_fixed_point_of_its_definition(seed):
    random = np.random.default_rng(seed)
    c = 0.3 + 0.7 * random.random(80)
    hit = random.random(80) < c**2
    width = float(metrics.smooth_ece(binary_predictions(c, hit)))
    np.testing.assert_allclose(brute(c, hit, width), width, rtol=2e-4)


def test_card_a4_constant_forecast():
    p = binary_predictions(np.full(20, 0.8), np.arange(20) < 10)
    np.testing.assert_allclose(metrics.smooth_ece(p), 0.3, rtol=1e-6)


def test_is_continuous_where_ece_jumps():
    c = np.repeat([0.5 - 1e-6, 0.5 + 1e-6], 50)
    hit = np.repeat([True, False], 50)
    a = metrics.smooth_ece(binary_predictions(c, hit))
    b = metrics.smooth_ece(binary_predictions(np.full(100, 0.5), hit))
    assert abs(a - b) < 2e-3  # the modulus of continuity is the square root of the step of 2e-6
    assert (
        abs(
            metrics.ece(binary_predictions(c, hit), bins=2)
            - metrics.ece(binary_predictions(np.full(100, 0.5), hit), bins=2)
        )
        > 0.4
    )


def test_never_above_the_mean_residual():
    for seed in range(20):
        p = random_predictions(50, 3, seed)
        assert metrics.smooth_ece(p) <= np.abs(p.correct - p.confidence).mean() + 1e-9


def test_perfect_predictions_are_zero():
    p = binary_predictions(np.ones(10), np.ones(10, bool))
    assert metrics.smooth_ece(p) == 0
    assert metrics.smooth_ece(p).bandwidth == _NARROWEST


def test_worst_predictions_are_one():
    p = binary_predictions(np.ones(10), np.zeros(10, bool))
    np.testing.assert_allclose(metrics.smooth_ece(p), 1, atol=1e-6)
