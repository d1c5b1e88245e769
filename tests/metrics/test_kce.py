import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot import metrics
from surefoot.errors import BadInput
from surefoot.metrics.kce import laplacian_sum

from ..conftest import binary_predictions, random_predictions


def double_sum(c, z, bandwidth):
    """Σ_ij z_i z_j k_ij and Σ_ij |z_i z_j| k_ij, in extended precision."""
    c, z = c.astype(np.longdouble), z.astype(np.longdouble)
    kernel = np.exp(-np.abs(c[:, None] - c) / np.longdouble(bandwidth))
    return float(z @ kernel @ z), float(np.abs(z) @ kernel @ np.abs(z))


@pytest.mark.parametrize("bandwidth", [100.0, 0.4, 0.02, 1e-3, 1e-6, 1e-12])
@pytest.mark.parametrize("shape", ["uniform", "crowded at one", "ties"])
def test_against_the_double_sum(bandwidth, shape):
    random = np.random.default_rng(0)
    n = 2000
    c = {
        "uniform": random.random(n),
        "crowded at one": 1 - 10.0 ** (-16 * random.random(n)),
        "ties": random.choice([0.1, 0.25, 0.9, 1.0], n),
    }[shape]
    c = np.sort(c)
    z = (random.random(n) < c) - c
    total, scale = double_sum(c, z, bandwidth)
    assert abs(laplacian_sum(c, z, bandwidth) - total) <= 1e-12 * scale


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_across_many_blocks(monkeypatch, block):
    monkeypatch.setattr(sys.modules["surefoot.metrics.kce"], "_BLOCK", block)
    random = np.random.default_rng(1)
    c = np.sort(random.random(3000))
    z = (random.random(len(c)) < c) - c
    total, scale = double_sum(c, z, 0.4)
    assert abs(laplacian_sum(c, z, 0.4) - total) <= 1e-12 * scale


def test_card_a2():
    p = binary_predictions(np.full(10, 0.9), np.arange(10) < 6)
    np.testing.assert_allclose(metrics.kce(p, squared=True), 0.09, rtol=1e-12)
    np.testing.assert_allclose(metrics.kce(p, unbiased=True, squared=True), 0.0633, atol=5e-5)
    np.testing.assert_allclose(metrics.kce(p), 0.3, rtol=1e-12)


@given(st.integers(0, 10**6), st.floats(1e-3, 10))
def test_v_is_never_negative_and_u_differs_by_the_diagonal(seed, bandwidth):
    p = random_predictions(40, 3, seed)
    n, z = len(p), p.correct - p.confidence
    v = metrics.kce(p, bandwidth, squared=True)
    u = metrics.kce(p, bandwidth, unbiased=True, squared=True)
    assert v >= 0
    np.testing.assert_allclose(u, (n**2 * v - (z**2).sum()) / (n * (n - 1)), rtol=1e-9, atol=1e-12)


def test_unbiased_when_calibrated():
    random = np.random.default_rng(0)
    values = []
    for _ in range(400):
        c = 0.5 + random.random(50) / 2
        values.append(metrics.kce(binary_predictions(c, random.random(50) < c), unbiased=True, squared=True))
    assert abs(np.mean(values)) < 3 * np.std(values) / 20


def test_falls_to_zero_with_more_calibrated_rows():
    random = np.random.default_rng(0)
    c = 0.5 + random.random(200_000) / 2
    assert metrics.kce(binary_predictions(c, random.random(len(c)) < c)) < 0.003


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, np.nan, np.inf, 1e-300, "a", None, True])
def test_bad_bandwidth(p, bandwidth):
    with pytest.raises(BadInput, match="bandwidth"):
        metrics.kce(p, bandwidth)


def test_u_needs_two_rows(p):
    with pytest.raises(BadInput, match="at least 2"):
        metrics.kce(p.take([0]), unbiased=True)
