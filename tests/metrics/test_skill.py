"""Brier skill and Spiegelhalter's z: closed forms, scikit-learn, and the level of the test."""

import math

import numpy as np
import pytest
from scipy.stats import norm, t
from sklearn.metrics import brier_score_loss, log_loss, r2_score

from surefoot import Predictions, metrics
from surefoot.errors import BadInput
from surefoot.predictions import Events

from ..conftest import random_predictions

C = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
Y = (0, 0, 1, 0, 0, 1, 1, 0, 1, 1)
SKILL, Z = metrics.brier_skill, metrics.spiegelhalter_z


def test_ten_events():
    """Numbers of an independent computation."""
    e = Events(C, Y)
    assert round(SKILL(e).brier, 5) == 0.18525
    assert round(SKILL(e), 3) == 0.259
    assert round(Z(e), 5) == 0.26005
    assert Z(e).p_value == pytest.approx(2 * norm.sf(Z(e)), rel=1e-12)


def test_brier_skill_is_the_share_of_variance_explained():
    random = np.random.default_rng(0)
    c, w = random.uniform(size=200), random.uniform(0.3, 2, 200)
    y = random.random(200) < c
    skill = SKILL(Events(c, y, weight=w))
    assert skill == pytest.approx(r2_score(y, c, sample_weight=w), abs=1e-13)
    assert skill.brier == pytest.approx(brier_score_loss(y, c, sample_weight=w), abs=1e-14)
    assert SKILL(Events([y.mean()] * 200, y)) == pytest.approx(0, abs=1e-14)
    assert SKILL(Events(y.astype(float), y)) == 1
    p = Predictions.from_probs(c, y, weights=w)
    assert metrics.brier(p) == pytest.approx(skill.brier, abs=1e-14)
    soft = random.uniform(size=200)
    assert SKILL(Events(c, soft)) == pytest.approx(r2_score(soft, c), abs=1e-13)


def test_outcomes_that_are_all_the_same_have_no_base_rate_to_beat():
    assert SKILL(Events([1.0, 1.0], [1, 1])) == 1
    assert SKILL(Events([0.9, 1.0], [1, 1])) == -math.inf
    assert SKILL(Events([0.1, 0.1, 0.1], [0.3, 0.3, 0.3])) == -math.inf


def test_two_classes_are_read_as_the_positive_event():
    p = random_predictions(300, 2)
    for metric in (SKILL, Z):
        assert metric(p) == metric(p.events("positive"))
        assert metric(p) == pytest.approx(metric(p, event=0), abs=1e-12)  # both are symmetric
        assert metric(random_predictions(300, 3)).facts.get("event") is None
    # The z of the top event is the same for two classes, and the skill is not.
    assert Z(p) == pytest.approx(Z(p, event="top"), abs=1e-12)
    assert abs(SKILL(p) - SKILL(p, event="top")) > 0.01


def test_z_by_its_formula_and_integer_weights():
    random = np.random.default_rng(1)
    c, counts = random.uniform(size=100), random.integers(0, 4, 100)
    y = random.random(100) < c**1.5
    u, v = (y - c) * (1 - 2 * c), (1 - 2 * c) ** 2 * c * (1 - c)
    assert Z(Events(c, y)) == pytest.approx(u.sum() / math.sqrt(v.sum()), rel=1e-12)
    rows = np.repeat(np.arange(100), counts)
    a, b = Z(Events(c, y, weight=counts)), Z(Events(c[rows], y[rows]))
    assert a == pytest.approx(b, abs=1e-12)
    assert a.p_value == pytest.approx(b.p_value, rel=1e-10)
    w = random.uniform(0.5, 2, 100)
    assert Z(Events(c, y, weight=w)) == pytest.approx((w * u).sum() / math.sqrt((w**2 * v).sum()), rel=1e-12)
    cluster = random.integers(0, 12, 100)
    sums = np.bincount(cluster, w * u)
    z = Z(Events(c, y, weight=w, cluster=cluster))
    assert z == pytest.approx(sums.sum() / math.sqrt((sums**2).sum()), rel=1e-12)
    assert z.p_value == pytest.approx(2 * t.sf(abs(z), 11), rel=1e-10)
    assert z.clusters == 12


def test_the_level_of_z():
    """2,000 calibrated sets: 5 % rejected within four standard errors; overconfident sets have a positive z."""
    random = np.random.default_rng(2)
    c = random.beta(1, 2, (2000, 100))
    p_values = [Z(Events(row, random.random(100) < row)).p_value for row in c]
    assert abs(np.mean(np.array(p_values) < 0.05) - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 2000)
    sharp = random_predictions(2000, 2, sharp=2.0)
    assert Z(sharp) > 5


def test_z_where_the_variance_is_zero():
    assert Z(Events([0.5] * 4, [1, 1, 1, 1])) == 0
    assert Z(Events([0.0, 1.0], [0, 1])) == 0
    impossible = Z(Events([0.0, 1.0], [0, 0]))
    assert (impossible, impossible.p_value) == (math.inf, 0.0)
    assert math.isnan(Z(Events(C, Y, cluster=[0] * 10)).p_value)
    # A probability that rounds to 1 still has a variance.
    tiny = Events([1.0, 0.5], [1, 0], complement=[1e-20, 0.5])
    assert Z(tiny) == pytest.approx(-1e-10)


def test_soft_outcomes_have_no_binomial_variance():
    with pytest.raises(BadInput, match="these outcomes are soft"):
        Z(Events([0.3, 0.4], [0.5, 1.0]))
    p = Predictions.from_probs([[0.9, 0.1], [0.3, 0.7]], [[0.8, 0.2], [0.5, 0.5]])
    assert "spiegelhalter_z" not in metrics.summary(p)
    assert "brier_skill" in metrics.summary(p)


def test_log_loss_in_bits():
    p = random_predictions(200, 3)
    bits = metrics.nll(p, unit="bits")
    assert bits == pytest.approx(metrics.nll(p) / math.log(2), rel=1e-15)
    assert bits == pytest.approx(log_loss(p.labels, p.probs) / math.log(2), rel=1e-12)
    assert (bits.unit, metrics.nll(p).unit) == ("bits", "nats")
    uniform = Predictions(np.zeros((8, 4)), [0] * 8)
    assert metrics.nll(uniform, unit="bits") == pytest.approx(2, rel=1e-15)
    with pytest.raises(BadInput, match="unit must be 'nats' or 'bits'; got 'dits'"):
        metrics.nll(p, unit="dits")
