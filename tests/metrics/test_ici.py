"""The lowess curve and its errors: brute force, closed forms, the effect of ties and of groups."""

import sys

import numpy as np
import pytest
from scipy.special import expit, logit

from surefoot import Predictions, metrics
from surefoot.metrics.ici import lowess
from surefoot.predictions import Events

from ..conftest import random_predictions

module = sys.modules["surefoot.metrics.ici"]  # the package's attribute of this name is the function


def brute_force(x, y, share=2 / 3):
    """Cleveland's smoother at every event, by a weighted least squares fit of numpy; ties are events of their own."""
    n = len(x)
    count = max(2, int(share * n + 1e-7))
    smooth = np.empty(n)
    for i in range(n):
        d = np.abs(x - x[i])
        h = np.sort(d)[min(count, n) - 1]
        w = np.where(d == 0, 1.0, 0.0) if h == 0 else np.clip(1 - (d / h) ** 3, 0, None) ** 3
        w /= w.sum()
        spread = w @ (x - w @ x) ** 2
        if np.sqrt(spread) > 1e-3 * (x.max() - x.min()):
            _, level = np.polyfit(x[w > 0] - x[i], y[w > 0], 1, w=np.sqrt(w[w > 0]))
        else:
            level = w @ y
        smooth[i] = level
    return smooth


@pytest.mark.parametrize("n", [2, 3, 10, 101, 400])
def test_the_curve_by_brute_force(n):
    random = np.random.default_rng(n)
    c = random.beta(1, 3, n)
    y = (random.random(n) < c**1.3).astype(float)
    error = np.abs(brute_force(c, y) - c)
    value = metrics.ici(Events(c, y))
    assert value == pytest.approx(error.mean(), abs=1e-10)
    assert value.e50 == pytest.approx(np.quantile(error, 0.5, method="inverted_cdf"), abs=1e-10)
    assert value.e90 == pytest.approx(np.quantile(error, 0.9, method="inverted_cdf"), abs=1e-10)
    assert (metrics.e50(Events(c, y)), metrics.e90(Events(c, y))) == (value.e50, value.e90)
    assert value.points == n


def test_ties_by_brute_force():
    random = np.random.default_rng(0)
    c = random.choice(np.linspace(0.05, 0.95, 12), 300)
    y = (random.random(300) < c).astype(float)
    assert metrics.ici(Events(c, y)) == pytest.approx(np.abs(brute_force(c, y) - c).mean(), abs=1e-10)


def test_a_tie_wider_than_the_window():
    """90 events at .2 that happen .2 of the time, 10 at .8 that happen .7 of the time: no line through nothing."""
    e = Events([0.2] * 90 + [0.8] * 10, [1] * 18 + [0] * 72 + [1] * 7 + [0] * 3)
    assert metrics.ici(e) == pytest.approx(0.01, abs=1e-14)
    curve = lowess(np.array([0.2, 0.8]), np.array([0.2, 0.7]), np.array([90.0, 10.0]), 66.0)
    np.testing.assert_allclose(curve, [0.2, 0.7], atol=1e-14)


def test_rare_events_are_no_outliers():
    """Robustness iterations would give 0 for every event, and an index of the mean probability."""
    random = np.random.default_rng(1)
    c = random.beta(1, 60, 3000)
    e = Events(c, random.random(3000) < c)
    assert metrics.ici(e) < 0.3 * c.mean()


def test_integer_weights_are_repeated_events():
    random = np.random.default_rng(2)
    c, counts = random.uniform(size=150), random.integers(0, 5, 150)
    y = random.random(150) < c**2
    rows = np.repeat(np.arange(150), counts)
    a, b = metrics.ici(Events(c, y, weight=counts)), metrics.ici(Events(c[rows], y[rows]))
    assert a == pytest.approx(b, abs=1e-13)
    assert (a.e50, a.e90) == pytest.approx((b.e50, b.e90), abs=1e-13)
    assert a == pytest.approx(np.abs(brute_force(c[rows], y[rows].astype(float)) - c[rows]).mean(), abs=1e-10)


def test_groups_of_many_events_change_little(monkeypatch):
    """20,000 events in 2,048 groups, against the curve at every event."""
    random = np.random.default_rng(3)
    c = random.beta(0.5, 4, 20_000)
    y = random.random(20_000) < c**1.2
    grouped = metrics.ici(Events(c, y))
    assert grouped.points == 2048
    monkeypatch.setattr(module, "_POINTS", 4000)
    assert metrics.ici(Events(c, y)) == pytest.approx(grouped, abs=3e-6)
    sample = slice(0, 3000)
    monkeypatch.setattr(module, "_POINTS", 10**6)
    exact = metrics.ici(Events(c[sample], y[sample]))
    monkeypatch.setattr(module, "_POINTS", 2048)
    close = metrics.ici(Events(c[sample], y[sample]))
    assert close == pytest.approx(exact, abs=2e-5)
    assert (close.e50, close.e90) == pytest.approx((exact.e50, exact.e90), abs=2e-4)


def test_weights_of_groups_are_repeated_events():
    random = np.random.default_rng(4)
    c, counts = random.uniform(size=5000), random.integers(1, 4, 5000)
    y = random.random(5000) < c**1.2
    rows = np.repeat(np.arange(5000), counts)
    assert metrics.ici(Events(c, y, weight=counts)) == pytest.approx(metrics.ici(Events(c[rows], y[rows])), abs=1e-12)


def test_a_known_truth():
    """Outcomes follow a smooth curve: the index finds its distance, and calibrated events have the known bias."""
    random = np.random.default_rng(5)
    c = random.uniform(size=40_000)
    true = expit(0.3 + 0.8 * logit(c))
    e = Events(c, random.random(40_000) < true)
    assert metrics.ici(e) == pytest.approx(np.abs(true - c).mean(), abs=0.006)
    calibrated = [metrics.ici(Events(c := random.uniform(size=200), random.random(200) < c)) for _ in range(200)]
    assert np.mean(calibrated) == pytest.approx(0.034, abs=0.004)


def test_the_interval_corrects_the_bias():
    random = np.random.default_rng(6)
    c = random.uniform(size=300)
    p = Predictions.from_probs(c, random.random(300) < c)
    found = metrics.interval(metrics.ici, p, resamples=60)
    assert found.method.startswith("bias-corrected")
    assert found.low < 0.02


def test_two_classes_are_read_as_the_positive_event():
    p = random_predictions(300, 2)
    assert metrics.ici(p) == metrics.ici(p.events("positive"))
    assert metrics.ici(p) == pytest.approx(metrics.ici(p, event=0), abs=1e-9)
