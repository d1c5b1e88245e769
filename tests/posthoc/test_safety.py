"""What no calibrator may do: change predicted classes that it promises to keep, or give probability 0."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit

from surefoot import Predictions, metrics
from surefoot.posthoc import CALIBRATORS, Beta, Histogram, Isotonic, Platt, build_calibrator, load

SAVED_BEFORE = json.loads((Path(__file__).parent / "saved_before.json").read_text())
KEEPING = [name for name, entry in CALIBRATORS.items() if entry.keeps_order]


def with_ties(seed, n, k, levels, spread):
    """Logits of few levels, some of them apart by rounding, some rows flat; every class is a label."""
    random = np.random.default_rng(seed)
    z = -spread * random.integers(0, levels, (n, k)).astype(float)  # not from 0 to 1, as probabilities
    near = random.random(n) < 0.3
    z[near, 0] = np.nextafter(z[near].max(1), np.where(random.random(near.sum()) < 0.5, np.inf, -np.inf))
    labels = (z + 1.5 * random.gumbel(size=z.shape)).argmax(1)
    labels[:k] = np.arange(k)
    return z, labels


def test_who_keeps_predicted_classes():
    assert set(KEEPING) >= {"none", "temperature", "ets", "isotonic-pooled"}
    assert not set(KEEPING) & {"platt", "beta", "vector", "matrix", "dirichlet", "isotonic", "histogram", "bbq"}


@pytest.mark.parametrize("kind", ["logits", "probs"])
@pytest.mark.parametrize("name", KEEPING)
@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    k=st.integers(2, 12),
    n=st.integers(12, 60),
    levels=st.integers(1, 6),
    spread=st.sampled_from([5e-324, 1e-300, 1e-13, 0.1, 1.0, 7.3, 900.0]),
)
def test_no_predicted_class_changes(name, kind, seed, k, n, levels, spread):
    z, labels = with_ties(seed, n, k, levels, spread)
    more, _ = with_ties(seed + 1, 50, k, levels + 2, spread)

    def made(logits, labels):
        p = Predictions(logits, labels)
        return p if kind == "logits" else Predictions.from_probs(p.probs, labels)

    fitted = build_calibrator(name).fit(made(z, labels))
    for q in (made(z, labels), made(more, np.zeros(50, int))):
        assert (fitted.apply(q).predicted == q.predicted).all()


def test_two_classes_in_eighty_random_problems():
    for seed in range(80):
        random = np.random.default_rng(seed)
        z = 2 * random.normal(size=(60, 2))
        p = Predictions(z, (z + random.gumbel(size=z.shape)).argmax(1))
        q = Predictions(2 * random.normal(size=(2000, 2)), np.zeros(2000, int))
        fitted = Isotonic(pooled=True).fit(p)
        assert (fitted.apply(q).predicted == q.predicted).all()


@pytest.mark.parametrize("k", [2, 3, 7])
@pytest.mark.parametrize("name", list(CALIBRATORS))
def test_no_label_that_can_come_gets_probability_zero(name, k):
    for seed, scale in ((0, 1.0), (1, 8.0), (2, 100.0)):
        random = np.random.default_rng(seed)
        z = scale * random.normal(size=(40, k))
        labels = np.r_[np.arange(k), z[k:].argmax(1)]  # nearly all right: tables of zeros and ones
        fitted = build_calibrator(name).fit(Predictions(z, labels))
        fresh = scale * 2 * random.normal(size=(500, k))
        for label in range(k):
            q = fitted.apply(Predictions(fresh, np.full(500, label)))
            assert np.isfinite(q.log_true).all()
        assert np.isfinite(float(metrics.nll(fitted.apply(Predictions(fresh, random.integers(0, k, 500))))))


@pytest.mark.parametrize("name", ["histogram", "bbq", "platt", "beta"])
def test_zeros_of_a_file_of_probabilities_are_not_believed(name):
    probs = np.eye(3)[[0] * 20 + [1] * 20 + [2] * 20]
    fitted = build_calibrator(name).fit(Predictions.from_probs(probs, [0] * 20 + [1] * 20 + [2] * 20))
    assert fitted.apply(Predictions.from_probs(probs, [1] * 60)).probs.min() > 0


def test_tables_are_smoothed():
    probs = np.array([[0.95, 0.05], [0.92, 0.08], [0.3, 0.7], [0.35, 0.65]])
    p = Predictions.from_probs(probs, [0, 0, 1, 1])
    np.testing.assert_allclose(Histogram(bins=2).fit(p).values_, [(0 + 0.13) / 4, (2 + 1.35) / 4])
    mapped = Isotonic().fit(p).apply(p).probs
    np.testing.assert_allclose(mapped[:, 1], (4 * np.array([0, 0, 1, 1]) + probs[:, 1]) / 5)


@pytest.mark.parametrize("name", list(SAVED_BEFORE))
def test_maps_of_earlier_versions_apply_as_they_did(name, tmp_path):
    case = SAVED_BEFORE[name]
    (tmp_path / "map.json").write_text(json.dumps(case["file"]))
    fitted = load(tmp_path / "map.json")
    p = Predictions(case["logits"], np.zeros(len(case["logits"]), int))
    np.testing.assert_allclose(fitted.apply(p).probs, case["probs"], rtol=1e-12, atol=1e-15)
    module = fitted.to_module()(torch.tensor(case["logits"], dtype=torch.float64))
    np.testing.assert_allclose(module.exp(), case["probs"], rtol=1e-9, atol=1e-12)
    fitted.save(tmp_path / "again.json")
    np.testing.assert_array_equal(load(tmp_path / "again.json").apply(p).probs, fitted.apply(p).probs)


def saturated(n=4000, seed=0):
    """Two classes whose log-odds are twelve times too large: half of the probabilities are beyond 1e-12."""
    random = np.random.default_rng(seed)
    odds = 5 * random.normal(size=n)
    return 12 * odds, (random.random(n) < expit(odds)).astype(int)


def mean_nll(odds, labels):
    return float((np.logaddexp(0, odds) - labels * odds).mean())


@pytest.mark.parametrize("kind", ["logits", "probs"])
@pytest.mark.parametrize("method", [Platt, Beta])
def test_saturated_log_odds_reach_the_optimum(method, kind):
    odds, labels = saturated()
    p = Predictions(np.stack([np.zeros_like(odds), odds], 1), labels)
    if kind == "probs":
        p = Predictions.from_probs(p.probs, labels)
        odds = np.diff(p.log_probs, axis=1)[:, 0]
        odds = np.where(np.isinf(odds), np.sign(odds) * np.abs(odds[np.isfinite(odds)]).max(), odds)
    best = minimize(lambda w: mean_nll(w[0] * odds + w[1], labels), [0.1, 0.0], method="Nelder-Mead").fun
    clipped = np.clip(odds, -27.6, 27.6)
    worse = minimize(lambda w: mean_nll(w[0] * clipped + w[1], labels), [0.1, 0.0], method="Nelder-Mead").fun
    assert worse > best + 0.01  # what a clip at 1e-12 costs here
    assert float(metrics.nll(method().fit(p).apply(p))) <= best + 1e-5


@pytest.mark.parametrize("method", [Platt, Beta])
def test_saturated_rows_of_several_classes_stay_apart(method):
    z = np.zeros((400, 3))
    z[:, 0] = np.linspace(30, 300, 400)
    labels = np.where(np.arange(400) % 10 == 0, 1, 0)
    labels[5] = 2
    confidence = method().fit(Predictions(z, labels)).apply(Predictions(z, labels)).confidence
    assert (np.diff(confidence) != 0).all()
