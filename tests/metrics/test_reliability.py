import numpy as np
import pytest
from scipy.stats import binom
from scipy.stats._binomtest import binomtest

from surefoot import metrics
from surefoot.errors import BadInput

from ..conftest import binary_predictions, random_predictions


@pytest.mark.parametrize(("binning", "metric"), [("width", metrics.ece), ("mass", metrics.adaptive_ece)])
def test_plot_and_number_come_from_one_table(p, binning, metric):
    for bins in (1, 7, 15):
        diagram = metrics.reliability(p, bins, binning)
        assert diagram.ece == metric(p, bins)
        assert diagram.table.n == len(p)
        np.testing.assert_allclose(diagram.mean_confidence, p.confidence.mean(), rtol=1e-12)
        np.testing.assert_allclose(diagram.accuracy, p.correct.mean(), rtol=1e-12)


def test_wilson_and_band_against_scipy(p):
    diagram = metrics.reliability(p, 10, level=0.9)
    table = diagram.table
    for j, count in enumerate(table.count):
        if count == 0:
            assert np.isnan(diagram.interval[:, j]).all()
            assert np.isnan(diagram.band[:, j]).all()
            continue
        hits = round(table.accuracy[j] * count)
        expected = binomtest(hits, count).proportion_ci(0.9, "wilson")
        np.testing.assert_allclose(diagram.interval[:, j], [expected.low, expected.high], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(diagram.band[:, j], binom.ppf([0.05, 0.95], count, table.confidence[j]) / count)


def test_band_holds_calibrated_data():
    inside = []
    for seed in range(60):
        random = np.random.default_rng(seed)
        c = 0.3 + 0.7 * random.random(2000)
        diagram = metrics.reliability(binary_predictions(c, random.random(2000) < c))
        some = diagram.table.count > 0
        accuracy = diagram.table.accuracy[some]
        inside += list((diagram.band[0, some] <= accuracy) & (accuracy <= diagram.band[1, some]))
    assert 0.93 < np.mean(inside) < 0.99


def test_wilson_reaches_the_ends():
    from surefoot.metrics.reliability import wilson

    n = np.arange(1.0, 20_000.0)
    assert (wilson(np.ones_like(n), n, 0.95)[1] == 1).all()
    assert (wilson(np.zeros_like(n), n, 0.95)[0] == 0).all()


def test_certain_rows():
    p = binary_predictions(np.ones(5), np.array([1, 1, 1, 1, 0], bool))
    diagram = metrics.reliability(p)
    assert diagram.band[:, -1].tolist() == [1, 1]


def test_bad_arguments(p):
    with pytest.raises(BadInput, match="binning"):
        metrics.reliability(p, binning="log")
    for level in (0, 1, 95, np.nan):
        with pytest.raises(BadInput, match="level"):
            metrics.reliability(p, level=level)
        with pytest.raises(BadInput, match="level"):
            metrics.interval(metrics.ece, p, level=level)


def test_chance_against_redrawn_labels():
    p = random_predictions(400, 4)
    chance = metrics.chance_ece(p, bins=10, resamples=4000)
    random = np.random.default_rng(1)
    drawn = []
    for _ in range(2000):
        hit = random.random(400) < p.confidence
        drawn.append(
            np.abs(np.bincount(np.minimum((p.confidence * 10).astype(int), 9), hit - p.confidence, 10)).sum() / 400
        )
    assert metrics.ece(p, 10) == chance.observed
    np.testing.assert_allclose(chance.mean, np.mean(drawn), rtol=0.03)
    np.testing.assert_allclose(chance.upper, np.quantile(drawn, 0.95), rtol=0.05)


def test_chance_p_values_are_uniform_under_calibration():
    values = []
    for seed in range(200):
        random = np.random.default_rng(seed)
        c = 0.5 + random.random(150) / 2
        values.append(metrics.chance_ece(binary_predictions(c, random.random(150) < c), resamples=200).p_value)
    # Kolmogorov's 1 % point for 200 values.
    values = np.sort(values)
    assert np.abs(values - np.arange(1, 201) / 200).max() < 1.63 / np.sqrt(200)
