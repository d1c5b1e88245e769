"""Temperature scaling against closed forms, brute force and hard inputs."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from surefoot import Predictions, metrics
from surefoot.errors import BadInput
from surefoot.posthoc import Temperature

from ..conftest import random_predictions


def brute(p):
    """argmin over log T of the NLL, by scipy in float64."""
    z = np.asarray(p.logits, dtype=np.float64)

    def nll(log_t):
        q = z / np.exp(log_t)
        q = q - q.max(1, keepdims=True)
        return float((np.log(np.exp(q).sum(1)) - q[np.arange(len(q)), p.labels]).mean())

    return float(np.exp(minimize_scalar(nll, bounds=(-8, 8), method="bounded", options={"xatol": 1e-10}).x))


@pytest.mark.parametrize("scale", [0.05, 0.4, 1.0, 3.0, 40.0])
@pytest.mark.parametrize("k", [2, 5])
def test_against_brute_force(scale, k):
    for seed in range(4):
        p = random_predictions(300, k, seed, sharp=1.0)
        p = Predictions(scale * np.asarray(p.logits), p.labels)
        found = Temperature().fit(p)
        assert found.outcome_ == "optimum"
        assert found.passes_ <= 12
        assert found.temperature_ == pytest.approx(brute(p), rel=2e-5)
        low, high = found.bracket_
        assert low <= found.temperature_ <= high
        assert high - low <= 1e-5 * found.temperature_


def test_the_bracket_really_certifies():
    p = random_predictions(500, 4, 3, sharp=2.0)
    low, high = Temperature().fit(p).bracket_
    z = np.asarray(p.logits, dtype=np.float64)

    def slope(temperature):
        q = np.exp(z / temperature)
        q /= q.sum(1, keepdims=True)
        return ((q * z).sum(1) - z[np.arange(len(z)), p.labels]).mean()

    # At a smaller T (larger β) the NLL rises in β, at a larger one it falls.
    assert slope(low) > 0 > slope(high)


@given(st.floats(0.1, 10), st.integers(0, 5))
def test_scaled_logits_of_calibrated_predictions_give_the_scale_back(scale, seed):
    random = np.random.default_rng(seed)
    z = random.normal(size=(3000, 4)) * 1.5
    labels = (z + random.gumbel(size=z.shape)).argmax(1)
    found = Temperature().fit(Predictions(scale * z, labels)).temperature_
    assert found == pytest.approx(scale, rel=0.15)
    # Scaling the logits scales the answer: exactly, up to the width of the bracket.
    assert found == pytest.approx(scale * Temperature().fit(Predictions(z, labels)).temperature_, rel=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_low_precision_gives_the_float64_answer(dtype):
    p = random_predictions(400, 6, 1, sharp=2.0)
    given_ = np.asarray(p.logits).astype(dtype)
    exact = Temperature().fit(Predictions(given_.astype(np.float64), p.labels)).temperature_
    assert Temperature().fit(Predictions(given_, p.labels)).temperature_ == exact


def test_a_rough_first_pass_changes_no_answer(monkeypatch):
    p = random_predictions(400, 6, 1, sharp=2.0)
    z = np.asarray(p.logits).astype(np.float32)
    exact = Temperature().fit(Predictions(z, p.labels)).temperature_
    monkeypatch.setattr(sys.modules["surefoot.posthoc.temperature"], "_ROUGH", 0)
    seen = []
    slope = sys.modules["surefoot.posthoc.temperature"]._slope
    monkeypatch.setattr(
        sys.modules["surefoot.posthoc.temperature"], "_slope", lambda *a, **b: seen.append(a[2]) or slope(*a, **b)
    )
    assert Temperature().fit(Predictions(z, p.labels)).temperature_ == pytest.approx(exact, rel=2e-6)
    assert set(seen[:2]) == {torch.float32}
    assert set(seen[2:]) == {torch.float64}
    huge = np.where(np.arange(6) == 5, -np.inf, z).astype(np.float32)
    found = Temperature().fit(Predictions(huge, p.labels % 5))
    assert found.outcome_ == "optimum"


def test_underconfident_logits_never_give_a_temperature_of_zero_or_less():
    for seed in range(40):
        random = np.random.default_rng(seed)
        z = random.normal(size=(200, 5)) * 4
        labels = (z + random.gumbel(size=z.shape)).argmax(1)
        assert Temperature().fit(Predictions(0.01 * z, labels)).temperature_ > 0


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_separable_data_obeys_the_rule_of_succession(scale):
    z = scale * np.array([[2.0, 0.0, 1.0], [0.0, 3.0, 1.0]] * 20)
    p = Predictions(z, [0, 1] * 20)
    found = Temperature().fit(p)
    assert found.outcome_ == "separable"
    assert float(metrics.mean_confidence(found.apply(p))) == pytest.approx(41 / 42, rel=1e-5)


def test_logits_worse_than_chance_become_flat():
    p = Predictions([[3.0, 0.0]] * 10 + [[0.0, 1.0]], [1] * 10 + [0])
    found = Temperature().fit(p)
    assert found.outcome_ == "uninformative"
    assert 0 < found.temperature_ < np.inf
    assert found.apply(p).confidence.max() < 0.5005
    assert (found.apply(p).predicted == p.predicted).all()


def test_constant_logits():
    found = Temperature().fit(Predictions(np.zeros((6, 3)), [0, 1, 2] * 2))
    assert found.temperature_ > 0
    assert np.isfinite(found.temperature_)


def test_minus_infinity_is_the_limit():
    random = np.random.default_rng(0)
    z = random.normal(size=(300, 4)) * 3
    labels = (z + random.gumbel(size=z.shape)).argmax(1)
    wide = np.concatenate([z, np.full((300, 1), -np.inf)], axis=1)
    low = np.concatenate([z, np.full((300, 1), -1e9)], axis=1)
    expected = Temperature().fit(Predictions(z, labels)).temperature_
    assert Temperature().fit(Predictions(wide, labels)).temperature_ == pytest.approx(expected, rel=1e-9)
    assert Temperature().fit(Predictions(low, labels)).temperature_ == pytest.approx(expected, rel=1e-9)
    applied = Temperature().fit(Predictions(wide, labels)).apply(Predictions(wide, labels))
    assert (applied.probs[:, 4] == 0).all()


def test_impossible_labels_are_left_out_and_counted():
    random = np.random.default_rng(0)
    z = random.normal(size=(300, 3)) * 3
    labels = (z + random.gumbel(size=z.shape)).argmax(1)
    bad = np.concatenate([z, [[0.0, -np.inf, 1.0]]])
    found = Temperature().fit(Predictions(bad, np.append(labels, 1)))
    assert found.impossible_ == 1
    assert found.temperature_ == pytest.approx(Temperature().fit(Predictions(z, labels)).temperature_, rel=1e-9)
    with pytest.raises(BadInput, match="probability 0"):
        Temperature().fit(Predictions([[0.0, -np.inf]], [1]))


@pytest.mark.parametrize("scale", [1e4, 1e30, 1e100])
def test_huge_logits(scale):
    random = np.random.default_rng(0)
    z = random.normal(size=(200, 3))
    labels = (2 * z + random.gumbel(size=z.shape)).argmax(1)
    found = Temperature().fit(Predictions(scale * z, labels))
    assert found.temperature_ == pytest.approx(scale * Temperature().fit(Predictions(z, labels)).temperature_, rel=1e-5)


def test_few_passes_over_many_rows():
    random = np.random.default_rng(0)
    z = random.normal(size=(60_000, 5)) * 3
    labels = (z / 2.5 + random.gumbel(size=z.shape)).argmax(1)
    found = Temperature().fit(Predictions(z, labels))
    assert found.passes_ <= 8
    assert found.temperature_ == pytest.approx(brute(Predictions(z, labels)), rel=2e-5)


def test_from_probabilities():
    p = random_predictions(300, 4, 0, sharp=2.0)
    same = Predictions.from_probs(p.probs, p.labels)
    assert Temperature().fit(same).temperature_ == pytest.approx(Temperature().fit(p).temperature_, rel=1e-6)


def test_logits_worse_than_chance_are_flattened_over_their_whole_range():
    p = Predictions([[5.0, 4.999, -1000.0]] * 10, [2] * 10)
    found = Temperature().fit(p)
    assert found.outcome_ == "uninformative"
    assert float(metrics.nll(found.apply(p))) == pytest.approx(np.log(3), abs=1e-3)
    flat = Predictions([[1e-5, 0.0]] * 2, [1, 1])
    assert Temperature().fit(flat).temperature_ == 1.0  # never sharper than it was


@pytest.mark.parametrize("margin", [0.0, 1e-9])
def test_ties_do_not_put_the_goal_of_separable_rows_out_of_reach(margin):
    p = Predictions([[5.0, 0.0]] * 18 + [[1.0 + margin, 1.0]] * 2, [0] * 20)
    found = Temperature().fit(p)
    assert found.outcome_ == "separable"
    assert found.temperature_ == pytest.approx(5 / np.log(19), rel=1e-5)  # 18 rows can move: 19/20
    sure = Predictions([[0.0, -np.inf]] * 19 + [[1.0, 0.0]], [0] * 20)
    assert Temperature().fit(sure).temperature_ == pytest.approx(1 / np.log(2), rel=1e-5)  # one row can: 2/3


def test_ties_alone_above_the_rest_are_left_as_they_are():
    found = Temperature().fit(Predictions([[1.0, 1.0, 0.0]] * 5, [0] * 5))
    assert (found.outcome_, found.temperature_) == ("separable", 1.0)
