"""The gain of recalibration: no gain of the identity, known gains, intervals over rows and over clusters."""

import math

import numpy as np
import pytest
from scipy.special import expit, log_softmax
from scipy.stats import ttest_1samp

from surefoot import Predictions, metrics, posthoc
from surefoot.errors import BadInput
from surefoot.posthoc import recalibration_gain
from surefoot.posthoc.gain import _spread

SCORES = ["nll", "brier"]


def binary(n, seed, sharp=1.0, form="positive"):
    random = np.random.default_rng(seed)
    x = 1.5 * random.normal(size=n)
    y = (random.random(n) < expit(x)).astype(int)
    c = expit(sharp * x)
    if form == "positive":
        return Predictions.from_probs(c, y)
    if form == "confidence":
        return Predictions.from_confidence(c, y)
    return Predictions.from_probs(np.stack([1 - c, c], axis=1), y)


def classes(n, seed, sharp=1.5, k=4):
    random = np.random.default_rng(seed)
    z = 2 * random.normal(size=(n, k))
    labels = (np.exp(log_softmax(z, axis=1)).cumsum(axis=1) < random.random((n, 1))).sum(axis=1)
    return Predictions(sharp * z, np.minimum(labels, k - 1))


@pytest.mark.parametrize("score", SCORES)
def test_the_identity_gains_nothing(score):
    for p in (binary(100, 0, 2.0), classes(100, 0)):
        gain = recalibration_gain(p, score, calibrator=posthoc.Identity())
        assert (gain, gain.standard_error, gain.low, gain.high, gain.p_value) == (0, 0, 0, 0, 1)
        assert gain.before == gain.after


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("form", ["positive", "confidence", "classes"])
def test_forms_of_binary_predictions_agree(score, form):
    p = binary(400, 1, 1.7, form)
    gain = recalibration_gain(p, score)
    assert gain.before == pytest.approx(float(getattr(metrics, score)(p)), abs=1e-12)
    assert gain == pytest.approx(gain.before - gain.after, abs=1e-12)
    reference = recalibration_gain(binary(400, 1, 1.7), score)
    assert gain == pytest.approx(reference * (2 if (score, form) == ("brier", "classes") else 1), abs=1e-9)
    assert (gain.method, gain.folds, gain.n) == ("platt", 5, 400)


@pytest.mark.parametrize("make", [binary, classes])
@pytest.mark.parametrize("score", SCORES)
def test_a_known_gain(make, score):
    """Predictions too sharp by 1.8 against the true ones, whose score is the best."""
    p, true = make(20_000, 2, 1.8), make(20_000, 2, 1.0)
    gain = recalibration_gain(p, score)
    best = float(getattr(metrics, score)(p)) - float(getattr(metrics, score)(true))
    assert gain == pytest.approx(best, abs=0.002)
    assert gain.low < best < gain.high
    assert gain.method == ("platt" if make is binary else "temperature")


def test_calibrated_predictions_gain_nothing_and_tables_pretend():
    """Mean over 30 calibrated sets of 500 rows: near 0, and a loss for isotonic steps."""
    ours = np.mean([recalibration_gain(binary(500, seed)) for seed in range(30)])
    assert -0.006 < ours < 0.001
    steps = np.mean(
        [recalibration_gain(binary(500, seed), "brier", calibrator=posthoc.Isotonic()) for seed in range(5)]
    )
    assert steps < np.mean([recalibration_gain(binary(500, seed), "brier") for seed in range(5)]) - 0.002


def test_cross_fitting_by_hand_and_the_paired_t():
    p = classes(200, 3)
    shuffled = np.random.default_rng(7).permutation(200)
    fold = np.empty(200, int)
    fold[shuffled[np.argsort(p.labels[shuffled], kind="stable")]] = np.arange(200) % 4
    gains = np.empty(200)
    for index in range(4):
        fitted = posthoc.Temperature().fit(p.take(fold != index))
        test = p.take(fold == index)
        gains[fold == index] = fitted.apply(test).log_true - test.log_true
    gain = recalibration_gain(p, folds=4, seed=7, level=0.9)
    assert gain == pytest.approx(gains.mean(), abs=1e-14)
    test = ttest_1samp(gains, 0)
    interval = test.confidence_interval(0.9)
    assert (gain.low, gain.high, gain.p_value) == pytest.approx((interval.low, interval.high, test.pvalue), rel=1e-9)
    assert recalibration_gain(p, seed=8) != recalibration_gain(p, seed=9)


def test_clusters_stay_in_one_fold_and_give_the_interval():
    base = binary(60, 4, 1.6)
    rows = np.repeat(np.arange(60), 5)
    p = Predictions.from_probs(base.probs[rows, 1], base.labels[rows], clusters=rows)
    seen = []

    class Watching(posthoc.Temperature):
        def _fit(self, q):
            seen.append(set(q.clusters.tolist()))
            super()._fit(q)

        def _map(self, q):
            assert not seen[-1] & set(q.clusters.tolist())
            return super()._map(q)

    gain = recalibration_gain(p, calibrator=Watching())
    assert len(seen) == 5
    apart = Predictions.from_probs(base.probs[rows, 1], base.labels[rows])
    blind = recalibration_gain(apart, calibrator=posthoc.Temperature())
    assert gain.standard_error > 1.8 * blind.standard_error  # √5, as the copies are no new rows
    with pytest.raises(BadInput, match="folds must be at most the number of clusters, 3; got 5"):
        recalibration_gain(Predictions.from_probs(base.probs[:, 1], base.labels, clusters=np.arange(60) % 3))


def test_standard_error_of_clusters():
    """Z = (.1, −.9 | .4, .2) has .35 over two clusters, and .290 over rows."""
    z = np.array([0.1, -0.9, 0.4, 0.2])
    p = Predictions(np.zeros((4, 2)), [0, 1, 0, 1], clusters=[0, 0, 1, 1])
    assert _spread(z, z.mean(), p, 0.95)["standard_error"] == pytest.approx(0.35, abs=1e-12)
    assert _spread(z, z.mean(), Predictions(np.zeros((4, 2)), [0, 1, 0, 1]), 0.95)["standard_error"] == pytest.approx(
        z.std(ddof=1) / 2, rel=1e-12
    )


def test_weights_count_in_the_mean():
    p = binary(200, 5, 1.6)
    w = np.random.default_rng(5).uniform(0.2, 3, 200)
    scaled = [
        recalibration_gain(Predictions.from_probs(p.probs[:, 1], p.labels, weights=factor * w)) for factor in (1, 10)
    ]
    assert scaled[0] == pytest.approx(scaled[1], abs=1e-7)
    assert scaled[0].standard_error == pytest.approx(scaled[1].standard_error, rel=1e-4)
    weighted = Predictions.from_probs(p.probs[:, 1], p.labels, weights=w)
    assert scaled[0].before == pytest.approx(float(metrics.nll(weighted)), abs=1e-13)


def test_coverage_of_the_interval():
    """Of 60 sets, 95 % intervals hold the population's gain in at least 51 (chance of fewer: under 1 %)."""
    z = np.random.default_rng(6).normal(size=10**6) * 1.5
    true = expit(z)
    population = np.mean(
        -true * np.log(expit(1.6 * z)) - (1 - true) * np.log(expit(-1.6 * z))
        + true * np.log(true) + (1 - true) * np.log(expit(-z))
    )  # fmt: skip
    found = [recalibration_gain(binary(500, 100 + seed, 1.6)) for seed in range(60)]
    assert sum(gain.low <= population <= gain.high for gain in found) >= 51


def test_labels_of_probability_zero():
    """A temperature keeps a zero: no gain. Platt scaling gives the label a probability: an infinite gain."""
    p = classes(100, 8)
    logits = np.array(p.logits)
    logits[0, p.labels[0]] = -np.inf
    gain = recalibration_gain(Predictions(logits, p.labels))
    assert math.isfinite(gain)
    assert gain.impossible == 1
    two = binary(100, 8)
    probs = two.probs[:, 1].copy()
    probs[0] = 1.0 - two.labels[0]
    gain = recalibration_gain(Predictions.from_probs(probs, two.labels))
    assert (gain, gain.low, gain.high, gain.impossible) == (math.inf, -math.inf, math.inf, 1)


def test_one_label_only_takes_a_temperature():
    gain = recalibration_gain(Predictions.from_probs([0.7] * 20, [1] * 20))
    assert gain.method == "temperature"
    assert gain > 0


def test_what_is_refused():
    p = binary(40, 9)
    with pytest.raises(BadInput, match="score must be 'nll' or 'brier'; got 'ece'"):
        recalibration_gain(p, "ece")
    with pytest.raises(BadInput, match="at least 100 rows for 50 folds; got 40"):
        recalibration_gain(p, folds=50)
    with pytest.raises(BadInput, match="folds must be"):
        recalibration_gain(p, folds=1)
    with pytest.raises(BadInput, match="calibrator must be a calibrator"):
        recalibration_gain(p, calibrator="platt")
    with pytest.raises(BadInput, match="labels are soft"):
        recalibration_gain(Predictions.from_probs([[0.9, 0.1]] * 20, [[0.8, 0.2]] * 20))
    with pytest.raises(BadInput, match="p must be Predictions"):
        recalibration_gain(np.zeros((20, 2)))
