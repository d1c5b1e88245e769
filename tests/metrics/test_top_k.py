"""Top-k sets and probabilities above a threshold: scikit-learn, brute force, ties and underflow."""

import math

import numpy as np
import pytest
from sklearn.metrics import top_k_accuracy_score

from surefoot import Predictions, metrics
from surefoot.errors import BadInput
from surefoot.metrics.top_k import top_k_events
from surefoot.predictions import Events

from ..conftest import random_predictions

ACCURACY, ERROR = metrics.top_k_accuracy, metrics.top_k_ece


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_accuracy_is_that_of_scikit_learn(k):
    p = random_predictions(500, 7)
    w = np.random.default_rng(0).uniform(0.5, 2, 500)
    assert ACCURACY(p, k) == top_k_accuracy_score(p.labels, p.probs, k=k)
    weighted = ACCURACY(Predictions(p.logits, p.labels, weights=w), k)
    expected = top_k_accuracy_score(p.labels, p.probs, k=k, sample_weight=w)
    assert weighted == pytest.approx(expected, abs=1e-14)


def test_one_class_is_the_usual_event():
    p = random_predictions(400, 5)
    assert ACCURACY(p, 1) == metrics.accuracy(p)
    assert ERROR(p, 1) == pytest.approx(metrics.ece(p), abs=1e-14)
    e, top = top_k_events(p, 1), p.events("top")
    np.testing.assert_allclose(e.prob, top.prob, atol=1e-15)
    np.testing.assert_allclose(e.complement, top.complement, rtol=1e-12)


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_error_by_brute_force(binning):
    p = random_predictions(600, 6)
    best = np.argsort(-p.probs, axis=1)[:, :3]
    prob = np.take_along_axis(p.probs, best, axis=1).sum(axis=1)
    e = Events(prob, (best == p.labels[:, None]).any(axis=1))
    assert ERROR(p, 3, 10, binning) == pytest.approx(metrics.ece(e, 10, binning=binning), abs=1e-12)
    assert ERROR(p, 3).k == 3


def test_all_classes_are_certain():
    p = random_predictions(50, 3)
    for k in (3, 10):
        assert (ACCURACY(p, k), ERROR(p, k)) == (1, 0)


def test_ties_and_underflow():
    """Of equal logits the lower index wins, as for the predicted class; logits rank what probabilities cannot."""
    p = Predictions(np.zeros((4, 4)), [0, 1, 2, 3])
    assert top_k_events(p, 2).happened.tolist() == [True, True, False, False]
    far = Predictions([[0.0, -900.0, -800.0]] * 2, [1, 2])
    assert top_k_events(far, 2).happened.tolist() == [False, True]
    e = top_k_events(Predictions([[0.0, -1.0, -90.0]], [0]), 2)
    assert e.complement[0] == pytest.approx(math.exp(-90) / (1 + math.exp(-1)), rel=1e-12)
    flat = top_k_events(Predictions(np.zeros((1, 100)), [0]), 2)
    assert (flat.prob[0], flat.complement[0]) == pytest.approx((0.02, 0.98), abs=1e-15)


def test_soft_labels_count_their_share_of_the_set():
    p = Predictions.from_probs([[0.5, 0.3, 0.2]], [[0.2, 0.3, 0.5]])
    assert ACCURACY(p) == pytest.approx(0.5)
    assert ERROR(p) == pytest.approx(0.3)


def test_calibrated_sets():
    p = random_predictions(100_000, 4, sharp=1.0)
    assert ERROR(p) < 0.006
    assert ERROR(random_predictions(100_000, 4, sharp=2.5)) > 0.05


def test_what_is_refused():
    with pytest.raises(BadInput, match="k must be"):
        ACCURACY(random_predictions(10, 3), 0)
    with pytest.raises(BadInput, match="needs the probabilities of all classes"):
        ERROR(Predictions.from_confidence([0.9], [1]))


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_threshold_by_brute_force(binning):
    p = random_predictions(300, 8)
    happened = p.labels[:, None] == np.arange(8)
    kept = p.probs > 0.05
    expected = metrics.ece(Events(p.probs[kept], happened[kept]), 12, binning=binning)
    value = metrics.threshold_ece(p, 0.05, 12, binning=binning)
    assert value == expected
    assert (value.n, value.share) == (kept.sum(), kept.mean())


def test_threshold_of_the_confidence():
    """Of what a threshold of the confidence accepts: the usual error of the accepted rows."""
    p = random_predictions(300, 4)
    accepted = p.take(np.flatnonzero(p.confidence > 0.8))
    value = metrics.threshold_ece(p, 0.8, event="top", binning="width")
    assert value == pytest.approx(metrics.ece(accepted), abs=1e-15)
    assert value.share == len(accepted) / 300


def test_small_probabilities_wash_out_the_error_of_all_classes():
    """50 classes, 48 of them never plausible: the pooled error is small, the error above the threshold is not."""
    random = np.random.default_rng(0)
    logits = np.full((2000, 50), -12.0)
    logits[:, :2] = [2.0, 0.0]
    p = Predictions(logits, (random.random(2000) < 0.4).astype(int))
    assert metrics.threshold_ece(p) > 10 * metrics.ece(p, event="pooled")


def test_threshold_with_nothing_above():
    value = metrics.threshold_ece(Events([0.1, 0.2], [0, 1]), 0.5)
    assert math.isnan(value)
    assert (value.n, value.share) == (0, 0.0)
    with pytest.raises(BadInput, match="threshold must lie between 0 and 1"):
        metrics.threshold_ece(Events([0.1], [0]), 1.5)
