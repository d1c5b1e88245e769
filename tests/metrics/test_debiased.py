from itertools import pairwise

import numpy as np
import pytest

from surefoot import metrics
from surefoot.errors import BadInput
from surefoot.metrics.bins import mass_table

from ..conftest import binary_predictions, random_predictions


def calibrated(n, seed):
    random = np.random.default_rng(seed)
    c = 0.5 + random.random(n) / 2
    return binary_predictions(c, random.random(n) < c)


def test_l2_removes_the_bias_of_calibrated_data():
    """The mean of the signed squares is zero within its error; the plug-in's is far above."""
    signed, plain = [], []
    for seed in range(300):
        p = calibrated(300, seed)
        table = mass_table(p.confidence, p.correct, 15)
        noise = table.accuracy * (1 - table.accuracy) / (table.count - 1)
        signed.append((table.count * (table.gap**2 - noise)).sum() / 300)
        plain.append(table.error(2) ** 2)
        assert metrics.debiased_ece(p) == pytest.approx(np.sqrt(max(0, signed[-1])), abs=1e-12)
    assert abs(np.mean(signed)) < 3 * np.std(signed) / np.sqrt(300)
    assert np.mean(plain) > 10 * np.std(plain) / np.sqrt(300)


def test_l1_equals_the_authors_resampling():
    p = random_predictions(400, 4)
    table = mass_table(p.confidence, p.correct, 15)
    random = np.random.default_rng(0)
    spread = np.sqrt(table.accuracy * (1 - table.accuracy) / table.count)
    drawn = random.normal(table.accuracy, spread, (200_000, 15))
    redrawn = (np.abs(drawn - table.confidence) * table.count).sum(1) / 400
    expected = 2 * table.error(1) - redrawn.mean()
    np.testing.assert_allclose(metrics.debiased_ece(p, norm=1), expected, atol=5 * redrawn.std() / np.sqrt(200_000))


def test_values_know_the_plug_in(p):
    for norm in (1, 2):
        value = metrics.debiased_ece(p, norm=norm)
        assert value.plugin == mass_table(p.confidence, p.correct, 15).error(norm)
        assert 0 <= value <= value.plugin


def reference_sweep(p, norm):
    """The definition, with a loop over the number of bins and over the bins (no ties in the data)."""
    order = np.argsort(p.confidence)
    c, hit = p.confidence[order], p.correct[order].astype(float)
    n, best = len(c), None
    for bins in range(1, n + 1):
        cuts = [j * n // bins for j in range(bins + 1)]
        parts = [slice(a, b) for a, b in pairwise(cuts)]
        accuracies = [hit[s].mean() for s in parts]
        if any(b < a for a, b in pairwise(accuracies)):
            break
        terms = [len(c[s]) / n * abs(hit[s].mean() - c[s].mean()) ** norm for s in parts]
        best = bins, sum(terms) ** (1 / norm)
    return best


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("seed", range(8))
def test_sweep_against_its_definition(seed, norm):
    p = random_predictions(300, 4, seed)
    bins, value = reference_sweep(p, norm)
    found = metrics.sweep_ece(p, norm)
    assert found.bins == bins
    np.testing.assert_allclose(found, value, rtol=1e-9)


def test_sweep_on_monotone_data_uses_a_bin_per_row_and_ends():
    c = np.linspace(0.5, 1, 100_000)
    value = metrics.sweep_ece(binary_predictions(c, c > 0.7))
    assert value.bins == 100_000


def test_sweep_where_a_fall_hides_in_two_rows_ends_soon():
    """One wrong row that is not the least confident shows only in bins of a row or two."""
    for n in (50, 300, 100_000):
        hit = np.ones(n, bool)
        hit[[0, 2]] = False
        p = binary_predictions(np.linspace(0.6, 0.999999, n), hit)
        found = metrics.sweep_ece(p)
        assert n // 2 - 1 <= found.bins <= n
        if n <= 300:
            assert found.bins == reference_sweep(p, 2)[0]


def test_sweep_treats_ties_alike_in_any_order():
    random = np.random.default_rng(0)
    c = random.choice([0.5, 0.6, 0.9], 200)
    hit = random.random(200) < c
    order = random.permutation(200)
    assert metrics.sweep_ece(binary_predictions(c, hit)) == metrics.sweep_ece(binary_predictions(c[order], hit[order]))


@pytest.mark.parametrize("metric", [metrics.debiased_ece, metrics.sweep_ece])
def test_bad_norm(p, metric):
    with pytest.raises(BadInput, match="norm must be 1 or 2"):
        metric(p, norm=3)
