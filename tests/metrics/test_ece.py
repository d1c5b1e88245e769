import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot import Predictions, metrics

from ..conftest import binary_predictions, random_predictions


@pytest.mark.parametrize("bins", [1, 2, 10, 15, 100])
def test_all_correct_gives_mean_doubt_for_any_bins(bins):
    p = random_predictions(300, 4)
    p = Predictions(p.logits, p.predicted)
    for metric in (metrics.ece, metrics.adaptive_ece):
        np.testing.assert_allclose(metric(p, bins=bins), 1 - p.confidence.mean(), rtol=1e-12)


def test_constant_confidence():
    p = binary_predictions(np.full(10, 0.9), np.arange(10) < 6)
    for metric in (metrics.ece, metrics.adaptive_ece, metrics.mce, metrics.rmsce):
        np.testing.assert_allclose(metric(p), 0.3, rtol=1e-12)


def test_one_bin_is_the_gap_of_the_means(p):
    gap = abs(p.correct.mean() - p.confidence.mean())
    for metric in (metrics.ece, metrics.adaptive_ece, metrics.mce, metrics.rmsce):
        np.testing.assert_allclose(metric(p, bins=1), gap, rtol=1e-12)


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 3, 5, 15]), st.sampled_from([2, 3, 4]))
def test_merging_bins_never_increases(seed, bins, factor):
    p = random_predictions(60, 3, seed)
    for metric in (metrics.ece, metrics.rmsce):
        assert metric(p, bins=bins) <= metric(p, bins=bins * factor) + 1e-15


@given(st.integers(0, 10**6), st.sampled_from([1, 15, 40]))
def test_bounds_of_card_a1(seed, bins):
    """ECE ≤ mean |Z| ≤ mean (1 − p_y), and ECE ≤ RMSCE ≤ MCE."""
    p = random_predictions(50, 4, seed)
    residual = np.abs(p.correct - p.confidence).mean()
    assert metrics.ece(p, bins=bins) <= residual + 1e-15
    assert residual <= (1 - np.exp(p.log_true)).mean() + 1e-15
    assert metrics.ece(p, bins=bins) <= metrics.rmsce(p, bins=bins) + 1e-15
    assert metrics.rmsce(p, bins=bins) <= metrics.mce(p, bins=bins) + 1e-15


def brute_classwise(p, bins):
    edges = np.arange(bins + 1) / bins
    total = 0.0
    for k in range(p.classes):
        column, truth = p.probs[:, k], p.labels == k
        index = np.searchsorted(edges[1:-1], column, "left")
        total += np.abs(np.bincount(index, truth - column, bins)).sum() / len(p)
    return total / p.classes


@pytest.mark.parametrize("bins", [1, 2, 7, 15])
@pytest.mark.parametrize("k", [2, 3, 10, 60])
def test_classwise_against_a_loop(bins, k):
    p = random_predictions(700, k, seed=k)
    np.testing.assert_allclose(metrics.classwise_ece(p, bins=bins), brute_classwise(p, bins), rtol=1e-11)


def test_classwise_counts_zeros_and_ones():
    p = Predictions.from_probs([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [1, 1])
    np.testing.assert_allclose(metrics.classwise_ece(p), brute_classwise(p, 15), rtol=1e-12)
    np.testing.assert_allclose(metrics.classwise_ece(p), (0.5 + 0.5) / 3)


def test_more_bins_than_rows(p):
    few = p.take([0, 1, 2])
    assert metrics.adaptive_ece(few, bins=15).bins == 3
    np.testing.assert_allclose(metrics.adaptive_ece(few), np.abs(few.correct - few.confidence).mean(), rtol=1e-12)


def test_values_carry_their_facts(p):
    value = metrics.ece(p, bins=7)
    assert (value.n, value.bins, value.norm, value.binning) == (500, 7, 1, "equal width")
    assert isinstance(value, float)
