import numpy as np
import pytest
from sklearn.metrics import log_loss

from surefoot import Predictions, metrics

from ..conftest import random_predictions


def test_against_scikit_learn(p):
    np.testing.assert_allclose(metrics.nll(p), log_loss(p.labels, p.probs, labels=range(5)), rtol=1e-12)
    np.testing.assert_allclose(metrics.accuracy(p), p.correct.mean(), rtol=1e-15)
    onehot = np.eye(5)[p.labels]
    np.testing.assert_allclose(metrics.brier(p), ((p.probs - onehot) ** 2).sum(1).mean(), rtol=1e-13)


def test_an_impossible_label_is_infinite_and_said():
    value = metrics.nll(Predictions([[0.0, -np.inf], [0.0, 0.0]], [1, 0]))
    assert value == np.inf
    assert value.impossible == 1


def test_nll_of_saturated_predictions_is_not_zero():
    assert 0 < metrics.nll(Predictions([[50.0, 0.0]], [0])) < 1e-20


@pytest.mark.parametrize("bins", [1, 3, 15, 200])
@pytest.mark.parametrize("k", [2, 5, 40])
def test_the_decomposition_is_exact(bins, k):
    p = random_predictions(400, k, seed=k)
    parts = metrics.brier_decomposition(p, bins)
    np.testing.assert_allclose(parts.brier, metrics.brier(p), rtol=1e-12)
    assert parts.reliability >= 0
    assert parts.resolution >= 0
    assert parts.within_variance >= -1e-15


def test_murphys_three_terms_suffice_for_discrete_forecasts():
    probs = np.array([[0.7, 0.3], [0.2, 0.8]])[np.arange(100) % 2]
    p = Predictions.from_probs(probs, (np.arange(100) % 3 == 0).astype(int))
    parts = metrics.brier_decomposition(p)
    np.testing.assert_allclose(parts.within_variance, 0, atol=1e-15)
    np.testing.assert_allclose(parts.within_covariance, 0, atol=1e-15)
    np.testing.assert_allclose(parts.reliability - parts.resolution + parts.uncertainty, metrics.brier(p), rtol=1e-12)
