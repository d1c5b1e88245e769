import sys
from functools import partial

import numpy as np
import pytest

from surefoot import Predictions, metrics
from surefoot.errors import BadInput
from surefoot.metrics.skce import median_distance

from ..conftest import random_predictions


def brute(p, bandwidth):
    """h_ij from the general formula, the expectations over classes taken one by one."""
    n, k = len(p), p.classes
    probs = p.probs
    h = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            kernel = np.exp(-np.linalg.norm(probs[i] - probs[j]) / bandwidth)
            same = np.eye(k)
            h[i, j] = kernel * (
                same[p.labels[i], p.labels[j]]
                - sum(probs[i, c] * same[c, p.labels[j]] for c in range(k))
                - sum(probs[j, c] * same[p.labels[i], c] for c in range(k))
                + sum(probs[i, a] * probs[j, b] * same[a, b] for a in range(k) for b in range(k))
            )
    return h


@pytest.mark.parametrize("k", [2, 4])
def test_estimators_against_the_general_formula(k):
    p = random_predictions(23, k)
    h = brute(p, 0.7)
    n = len(p)
    off = h[~np.eye(n, dtype=bool)].mean()
    np.testing.assert_allclose(metrics.skce(p, "biased", 0.7), h.mean(), rtol=1e-7)
    np.testing.assert_allclose(metrics.skce(p, "unbiased", 0.7), off, rtol=1e-7)
    order = np.lexsort((p.labels, *p.probs.T))[np.random.default_rng(0).permutation(n)]
    blocks = [h[np.ix_(rows, rows)] for rows in (order[a : a + 5] for a in (0, 5, 10, 15))]
    expected = np.mean([b[~np.eye(5, dtype=bool)].mean() for b in blocks])
    value = metrics.skce(p, "block", 0.7, block_size=5)
    np.testing.assert_allclose(value, expected, rtol=1e-7)
    assert value.blocks == 4


def test_unbiased_has_mean_zero_when_labels_follow_the_probabilities():
    base = random_predictions(40, 3)
    random = np.random.default_rng(0)
    values = []
    for _ in range(1000):
        labels = (np.asarray(base.log_probs) + random.gumbel(size=(40, 3))).argmax(1)
        values.append(float(metrics.skce(Predictions(base.logits, labels), bandwidth=0.5)))
    assert abs(np.mean(values)) < 3 * np.std(values) / np.sqrt(1000)


def test_many_tiles_equal_one(monkeypatch):
    p = random_predictions(300, 3)
    whole = float(metrics.skce(p))
    monkeypatch.setattr(sys.modules["surefoot.metrics.skce"], "_TILE", 64)
    np.testing.assert_allclose(float(metrics.skce(p)), whole, rtol=1e-10)


def test_order_of_rows_does_not_change_the_bandwidth():
    p = random_predictions(2500, 3)
    q = p.take(np.random.default_rng(0).permutation(len(p)))
    assert metrics.skce(p).bandwidth == metrics.skce(q).bandwidth


def test_order_of_rows_does_not_change_the_blocks():
    p = random_predictions(300, 3)
    q = p.take(np.random.default_rng(0).permutation(300))
    np.testing.assert_allclose(metrics.skce(p, "block"), metrics.skce(q, "block"), rtol=1e-9)


def test_interval_of_the_block_estimate_covers():
    """Labels follow the probabilities, so the truth is 0."""
    held = 0
    for seed in range(30):
        random = np.random.default_rng(seed)
        logits = random.normal(size=(100, 3))
        p = Predictions(logits, (logits + random.gumbel(size=(100, 3))).argmax(1))
        low, high = metrics.interval(partial(metrics.skce, estimator="block"), p, level=0.9, resamples=60)
        held += low <= 0 <= high
    assert held >= 23


def test_equal_rows_have_the_documented_width():
    random = np.random.default_rng(0)
    for _ in range(50):
        row = random.dirichlet(np.ones(random.integers(2, 8)))
        assert median_distance(np.tile(row, (16, 1))) == 1


def test_bad_arguments(p):
    for arguments, says in [
        ({"estimator": "exact"}, "estimator"),
        ({"bandwidth": 0.0}, "bandwidth"),
        ({"block_size": 5}, "block_size"),
        ({"estimator": "block", "block_size": 1}, "block_size"),
        ({"estimator": "block", "block_size": 501}, "block_size"),
        ({"estimator": "block", "block_size": 2.5}, "block_size"),
        ({"bandwidth": "a"}, "bandwidth"),
    ]:
        with pytest.raises(BadInput, match=says):
            metrics.skce(p, **arguments)
    with pytest.raises(BadInput, match="at least 2"):
        metrics.skce(p.take([0]))
    assert metrics.skce(p.take([0]), "biased") >= 0
