"""Weights, events and the signed gap: every metric, against repeated rows, closed forms and scikit-learn."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from surefoot import Predictions, metrics
from surefoot.errors import BadInput
from surefoot.metrics.bins import equal_mass, equal_width
from surefoot.metrics.weighted import int_dot
from surefoot.predictions import Events

from ..conftest import random_predictions

TABLE = metrics.metrics_table()
TABLE |= {
    "kce unbiased": partial(metrics.kce, unbiased=True, squared=True),
    "skce biased": partial(metrics.skce, estimator="biased"),
    "debiased ece, norm 1": partial(metrics.debiased_ece, norm=1),
    "ece of mass": partial(metrics.ece, binning="mass"),
    "ece of class 1": partial(metrics.ece, event=1),
    "ece pooled": partial(metrics.ece, event="pooled"),
}
RANDOM = np.random.default_rng(0)


def weighted(weights, n=120, k=3, seed=0):
    p = random_predictions(n, k, seed)
    return p, Predictions(p.logits, p.labels, weights=weights)


def repeated(p, counts):
    rows = np.repeat(np.arange(len(p)), counts)
    return Predictions(np.asarray(p.logits)[rows], p.labels[rows])


@pytest.mark.parametrize("name", TABLE)
class TestEveryMetric:
    def test_integer_weights_are_repeated_rows(self, name):
        if "skce" in name:
            pytest.skip("its kernel's width is the median over rows; see test_skce_with_weights")
        counts = RANDOM.integers(1, 5, 120)
        p, w = weighted(counts)
        value = TABLE[name](w)
        exact = name in {
            "ece",
            "mce",
            "rmsce",
            "adaptive_ece",
            "gap",
            "over_confidence",
            "under_confidence",
            "event_ece",
        }
        tolerance = 0 if exact else 1e-12
        np.testing.assert_allclose(value, TABLE[name](repeated(p, counts)), rtol=0, atol=tolerance)
        assert value.facts["weights"] == "repetitions"

    def test_a_weight_of_one_changes_nothing(self, name):
        p, w = weighted(np.ones(120))
        np.testing.assert_allclose(TABLE[name](w), TABLE[name](p), rtol=0, atol=1e-13)

    def test_a_weight_of_zero_is_no_row(self, name):
        p, w = weighted((np.arange(120) < 70).astype(float))
        fewer = Predictions(np.asarray(p.logits)[:70], p.labels[:70])
        np.testing.assert_allclose(TABLE[name](w), TABLE[name](fewer), rtol=0, atol=1e-13)

    def test_importance_weights_have_no_scale(self, name):
        weights = RANDOM.uniform(0.1, 3, 120)
        a, b = (TABLE[name](weighted(factor * weights)[1]) for factor in (1, 7.3))
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)
        assert a.facts["weights"] == "importance"
        close = TABLE[name](weighted(np.where(np.arange(120) == 0, 1 + 1e-9, 1.0))[1])
        loose = {
            "adaptive_ece", "sweep_ece", "debiased_ece", "aurc", "e_aurc", "debiased ece, norm 1", "ece of mass",
            "threshold_ece",
        }  # fmt: skip
        if name not in loose:
            np.testing.assert_allclose(close, TABLE[name](weighted(np.ones(120))[0]), rtol=0, atol=1e-6)

    def test_order_of_rows_does_not_matter(self, name):
        weights = RANDOM.uniform(0.1, 3, 120)
        _, w = weighted(weights)
        order = RANDOM.permutation(120)
        mixed = Predictions(np.asarray(w.logits)[order], w.labels[order], weights=weights[order])
        np.testing.assert_allclose(TABLE[name](w), TABLE[name](mixed), rtol=0, atol=1e-12)


def test_three_events():
    e = Events([0.9, 0.9, 0.6], [1, 0, 1], weight=[2, 1, 1])
    assert metrics.ece(e) == pytest.approx(0.275, abs=1e-15)
    assert metrics.gap(e) == pytest.approx(0.075, abs=1e-15)
    assert metrics.over_confidence(e) == pytest.approx(0.175, abs=1e-15)
    assert metrics.under_confidence(e) == pytest.approx(0.1, abs=1e-15)
    assert metrics.kce(e, squared=True) == pytest.approx(0.024092, abs=1e-6)
    assert metrics.kce(e, squared=True, unbiased=True) == pytest.approx(-0.050377, abs=1e-6)
    importance = Events(e.prob, e.happened, weight=[0.5, 0.25, 0.25])
    assert metrics.kce(importance, squared=True, unbiased=True) == pytest.approx(-0.062453, abs=1e-6)


def test_area_under_risk_and_coverage_knows_n():
    """Two rows have .25, each seen twice .2083; the limit of many repetitions is (1 − ln 2)/2."""
    p = Predictions.from_confidence([0.9, 0.6], [1, 0])
    assert metrics.aurc(p) == 0.25
    twice = Predictions.from_confidence([0.9, 0.6], [1, 0], weights=[2, 2])
    assert metrics.aurc(twice) == pytest.approx(0.20833333333333334)
    limit = Predictions.from_confidence([0.9, 0.6], [1, 0], weights=[0.5, 0.5])
    assert metrics.aurc(limit) == pytest.approx((1 - math.log(2)) / 2)
    many = Predictions.from_confidence([0.9, 0.6], [1, 0], weights=[10**6, 10**6])
    assert metrics.aurc(many) == pytest.approx((1 - math.log(2)) / 2, abs=1e-6)


def test_skce_with_weights():
    counts = RANDOM.integers(1, 4, 60)
    p, w = weighted(counts, 60)
    for estimator in ("biased", "unbiased"):
        a = metrics.skce(w, estimator, bandwidth=0.5)
        # Distances of equal rows, from differences of squares, are 1e-8 instead of 0.
        assert a == pytest.approx(metrics.skce(repeated(p, counts), estimator, bandwidth=0.5), abs=1e-8)


probabilities = st.lists(st.tuples(st.floats(0, 1), st.booleans(), st.integers(1, 4)), min_size=1, max_size=40)


@given(probabilities, st.integers(1, 20))
def test_over_and_under_confidence_add_up(rows, bins):
    c, y, w = (np.array(column) for column in zip(*rows, strict=True))
    e = Events(c, y, weight=w)
    over, under = metrics.over_confidence(e, bins), metrics.under_confidence(e, bins)
    assert over + under == pytest.approx(metrics.ece(e, bins), abs=1e-15)
    assert over - under == pytest.approx(metrics.gap(e), abs=1e-15)


@given(probabilities, st.integers(1, 20))
def test_tables_of_weights_are_those_of_repeated_rows(rows, bins):
    c, y, w = (np.array(column) for column in zip(*rows, strict=True))
    a, b = Events(c, y, weight=w), Events(np.repeat(c, w), np.repeat(y, w))
    for table in (equal_width, equal_mass):
        one, two = table(a, bins), table(b, bins)
        for column in ("residual", "mass", "accuracy", "confidence", "lower", "upper"):
            np.testing.assert_array_equal(getattr(one, column), getattr(two, column))


def test_the_sign_of_pooled_classes_is_empty():
    p = random_predictions(500, 4, sharp=3.0)
    assert metrics.gap(p) > 0.1
    assert metrics.gap(p, event="pooled") == pytest.approx(0, abs=1e-15)


def test_event_error_of_a_model_that_top_labels_reassure():
    """Says .3 and .7 where the event happens .4 and .8 of the time."""
    prob = np.repeat([0.3, 0.7], 1000)
    happened = np.concatenate([np.arange(1000) < 400, np.arange(1000) < 800])
    p = Predictions.from_probs(np.stack([1 - prob, prob], axis=1), happened.astype(int))
    assert metrics.ece(p) < 1e-12
    assert metrics.event_ece(p) == pytest.approx(0.1)
    assert metrics.gap(p, event="positive") == pytest.approx(-0.1)
    one = Predictions.from_probs(prob, happened)
    assert metrics.ece(one) == metrics.event_ece(p)


def test_binary_metrics_are_those_of_scikit_learn():
    random = np.random.default_rng(3)
    prob = random.beta(2, 3, 400)
    happened, weights = random.random(400) < prob**1.3, random.uniform(0.2, 2, 400)
    p = Predictions.from_probs(prob, happened, weights=weights)
    assert metrics.brier(p) == pytest.approx(brier_score_loss(happened, prob, sample_weight=weights), abs=1e-14)
    assert metrics.nll(p) == pytest.approx(log_loss(happened, prob, sample_weight=weights), abs=1e-14)
    assert metrics.auroc_ovr(p) == pytest.approx(roc_auc_score(happened, prob, sample_weight=weights), abs=1e-13)
    # 15 equal bins: the edges of linspace are the quotients there, so that the curve has the same bins.
    true, said = calibration_curve(happened, prob, n_bins=15)
    table = equal_width(Events(prob, happened), 15)
    filled = table.count > 0
    np.testing.assert_allclose(table.accuracy[filled], true, atol=1e-14)
    np.testing.assert_allclose(table.confidence[filled], said, atol=1e-14)


def test_weighted_error_by_brute_force():
    random = np.random.default_rng(5)
    c, w = random.uniform(size=300), random.uniform(size=300)
    y = random.uniform(size=300)  # soft outcomes
    e = Events(c, y, weight=w)
    cell = np.ceil(c * 15).astype(int)
    expected = sum(abs((w * (y - c))[cell == b].sum()) for b in range(1, 16)) / w.sum()
    assert metrics.ece(e) == pytest.approx(expected, abs=1e-12)


def test_metrics_of_a_confidence_alone():
    p = Predictions.from_confidence([0.9, 0.3, 0.6], [1, 1, 0])
    found = metrics.summary(p)
    assert found["ece"] == pytest.approx(metrics.ece(Events([0.9, 0.3, 0.6], [1, 1, 0])))
    assert found["brier"] == pytest.approx((0.01 + 0.49 + 0.36) / 3)
    assert "classwise_ece" not in found
    for metric in (metrics.classwise_ece, metrics.auroc_ovr, metrics.skce):
        with pytest.raises(BadInput, match="needs the probabilities of all classes"):
            metric(p)


def test_soft_labels_have_no_ranking():
    p = Predictions.from_probs([[0.9, 0.1], [0.3, 0.7]], [[0.8, 0.2], [0.5, 0.5]])
    assert "aurc" not in metrics.summary(p)
    assert metrics.ece(p) == pytest.approx((0.1 + 0.2) / 2)
    with pytest.raises(BadInput, match="labels are soft"):
        metrics.auroc_misclassification(p)


class TestNamesOfScikitLearn:
    Y = np.array([1, 0, 1, 0])
    P = np.array([0.8, 0.4, 0.6, 0.3])

    def test_labels_come_first(self):
        p = Predictions.from_probs(self.P, self.Y)
        assert metrics.ece(self.Y, self.P) == metrics.ece(p)
        assert metrics.ece(y_true=self.Y, y_prob=self.P, n_bins=4) == metrics.ece(p, 4)
        assert metrics.ece(self.Y, self.P, n_bins=2, strategy="quantile") == metrics.adaptive_ece(p, 2)
        assert metrics.brier(self.Y, self.P) == pytest.approx(brier_score_loss(self.Y, self.P))
        named = np.where(self.Y == 1, "yes", "no")
        assert metrics.ece(named, self.P, pos_label="yes") == metrics.ece(p)
        w = [1, 2, 1, 2]
        assert metrics.ece(self.Y, self.P, sample_weight=w) == metrics.ece(
            Predictions.from_probs(self.P, self.Y, weights=w)
        )

    def test_what_is_ambiguous_is_refused(self):
        with pytest.raises(BadInput, match="first of two arrays must be the labels"):
            metrics.ece(self.P, self.Y)
        with pytest.raises(BadInput, match=r"\(y_true, y_prob\) or \(y_prob, y_true\)"):
            metrics.ece(self.Y, np.array([1, 0, 1, 1]))
        with pytest.raises(BadInput, match="strategy must be"):
            metrics.ece(self.Y, self.P, strategy="kmeans")
        with pytest.raises(BadInput, match="one kind of bins"):
            metrics.mce(self.Y, self.P, strategy="quantile")
        with pytest.raises(BadInput, match="which one is the positive event"):
            metrics.ece(np.array(["a", "b"]), np.array([0.2, 0.4]))


def test_products_of_as_many_bits_as_there_can_be_are_summed_exactly():
    random = np.random.default_rng(0)
    left, right = (1 << 40) - random.integers(0, 99, 40_000), (1 << 57) - random.integers(0, 1 << 50, 40_000)
    exact = sum(a * b for a, b in zip(left.tolist(), right.tolist(), strict=True))
    assert int_dot(np.zeros(40_000, np.int64), 1, left, right) == [exact]
