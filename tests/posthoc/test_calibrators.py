"""What every calibrator must satisfy, then each one against closed forms and independent code."""

import contextlib
import io
import json
import sys
import warnings

import numpy as np
import pytest
import torch
from scipy.special import betaln, expit
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.isotonic import IsotonicRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from surefoot import Predictions, metrics
from surefoot.errors import BadInput
from surefoot.posthoc import (
    BBQ,
    CALIBRATORS,
    Auto,
    Beta,
    Dirichlet,
    EnsembleTemperature,
    Histogram,
    Identity,
    Isotonic,
    Matrix,
    Platt,
    StructuredMatrix,
    Temperature,
    Vector,
    build_calibrator,
    load,
)
from surefoot.posthoc.linear import mean_nll
from surefoot.posthoc.tables import bbq_numbers_of_bins, log_marginal

from ..conftest import random_predictions

NAMES = list(CALIBRATORS)
SAVED = [name for name, entry in CALIBRATORS.items() if not entry.fixed]


def calibrated(n, k, seed=0, scale=1.0):
    """Logits ``scale`` times those from which the labels were drawn."""
    random = np.random.default_rng(seed)
    z = 2 * random.normal(size=(n, k))
    labels = (z + random.gumbel(size=z.shape)).argmax(1)
    return Predictions(scale * z, labels)


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("name", NAMES)
class TestEveryCalibrator:
    def test_it_repairs_overconfidence_on_new_rows(self, name, k):
        fitted = build_calibrator(name).fit(calibrated(4000, k, 0, 3.0))
        test = calibrated(4000, k, 1, 3.0)
        after = fitted.apply(test)
        assert (after.labels == test.labels).all()
        np.testing.assert_allclose(after.probs.sum(1), 1, atol=1e-9)
        if name != "none":
            assert metrics.nll(after) < metrics.nll(test)
            assert metrics.ece(after) < 0.5 * metrics.ece(test)

    def test_it_does_little_to_calibrated_predictions(self, name, k):
        fitted = build_calibrator(name).fit(calibrated(20_000, k, 0))
        test = calibrated(4000, k, 1)
        assert np.abs(fitted.apply(test).probs - test.probs).mean() < 0.02

    def test_answers_that_must_not_change_do_not(self, name, k):
        calibrator = build_calibrator(name)
        if not CALIBRATORS[name].keeps_order:
            pytest.skip("may change answers")
        test = calibrated(500, k, 1, 3.0)
        assert (calibrator.fit(calibrated(500, k, 0, 3.0)).apply(test).predicted == test.predicted).all()

    def test_arrays_and_predictions_agree(self, name, k):
        p, q = calibrated(600, k, 0, 2.0), calibrated(50, k, 1, 2.0)
        by_predictions = build_calibrator(name).fit(p).apply(q).probs
        arrays = build_calibrator(name).fit(np.asarray(p.logits), p.labels)
        np.testing.assert_allclose(arrays.predict_proba(np.asarray(q.logits)), by_predictions, atol=1e-12)
        assert (arrays.predict(torch.tensor(np.asarray(q.logits))) == by_predictions.argmax(1)).all()
        given = build_calibrator(name).set_params(scores="probs").fit(p.probs, p.labels)
        fitted = build_calibrator(name).fit(Predictions.from_probs(p.probs, p.labels))
        expected = fitted.apply(Predictions.from_probs(q.probs, q.labels)).probs
        np.testing.assert_allclose(given.predict_proba(q.probs), expected, atol=1e-12)

    def test_scikit_learn_contract(self, name, k):
        calibrator = build_calibrator(name)
        twin = clone(calibrator)
        assert twin.get_params() == calibrator.get_params()
        assert not [attribute for attribute in vars(calibrator) if attribute.endswith("_")]
        p = calibrated(200, k)
        assert calibrator.fit(p) is calibrator
        assert (calibrator.classes_ == np.arange(k)).all()
        assert not hasattr(clone(calibrator), "classes_")
        chain = make_pipeline(FunctionTransformer(), build_calibrator(name)).fit(np.asarray(p.logits), p.labels)
        assert chain.predict_proba(np.asarray(p.logits)).shape == (200, k)
        assert 0 <= chain.score(np.asarray(p.logits), p.labels) <= 1

    def test_saved_and_loaded_to_the_last_bit(self, name, k, tmp_path):
        fitted, test = build_calibrator(name).fit(calibrated(400, k)), calibrated(60, k, 5)
        fitted.save(tmp_path / "map.json")
        read = load(tmp_path / "map.json")
        assert type(read) is type(fitted)
        assert read.get_params() == fitted.get_params()
        np.testing.assert_array_equal(read.apply(test).log_probs, fitted.apply(test).log_probs)

    def test_module_agrees_and_traces(self, name, k):
        fitted, test = build_calibrator(name).fit(calibrated(400, k, 0, 2.0)), calibrated(60, k, 5, 2.0)
        module, z = fitted.to_module(), torch.tensor(np.asarray(test.logits))
        expected = fitted.apply(test).probs
        np.testing.assert_allclose(module(z).exp(), expected, atol=1e-9)
        assert module(z.float()).dtype == torch.float32
        with _quiet():
            traced = torch.jit.trace(module, (z[:3],), check_trace=False)
            buffer = io.BytesIO()
            torch.jit.save(traced, buffer)
        buffer.seek(0)
        with _quiet():
            np.testing.assert_allclose(torch.jit.load(buffer)(z).exp(), expected, atol=1e-9)
            scripted = torch.jit.script(module)
        np.testing.assert_allclose(scripted(z).exp(), expected, atol=1e-9)
        exported = torch.export.export(module, (z,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)).module()
        np.testing.assert_allclose(exported(z[:7]).exp(), expected[:7], atol=1e-9)

    def test_hard_inputs(self, name, k):
        fitted = build_calibrator(name).fit(calibrated(400, k, 0, 2.0))
        hard = np.zeros((6, k))
        hard[0, 0], hard[1, 1], hard[2], hard[3, 0], hard[4, 1] = 1e4, -np.inf, 0, 1e38, 700
        after = fitted.apply(Predictions(hard, np.zeros(6, int)))
        assert np.isfinite(after.probs).all()
        np.testing.assert_allclose(after.probs.sum(1), 1, atol=1e-9)
        half = Predictions(hard[:3].astype(np.float16), np.zeros(3, int))
        assert np.isfinite(fitted.apply(half).probs).all()
        saturated = build_calibrator(name).fit(
            Predictions(100 * np.asarray(calibrated(400, k).logits), calibrated(400, k).labels)
        )
        assert np.isfinite(saturated.apply(calibrated(20, k)).probs).all()

    def test_bad_use(self, name, k):
        p = calibrated(100, k)
        with pytest.raises(NotFittedError, match="not fitted"):
            build_calibrator(name).apply(p)
        fitted = build_calibrator(name).fit(p)
        with pytest.raises(BadInput, match=f"p has {k + 1} classes"):
            fitted.apply(calibrated(10, k + 1))
        with pytest.raises(BadInput, match="p must be Predictions"):
            fitted.apply(np.asarray(p.logits))
        with pytest.raises(BadInput, match="labels are needed"):
            build_calibrator(name).fit(np.asarray(p.logits))
        with pytest.raises(BadInput, match="labels come with"):
            build_calibrator(name).fit(p, p.labels)
        with pytest.raises(BadInput, match="scores must be"):
            build_calibrator(name).set_params(scores="scores").fit(np.asarray(p.logits), p.labels)
        with pytest.raises(BadInput, match="logits"):
            build_calibrator(name).fit(np.full((3, k), np.nan), [0, 0, 1])


@contextlib.contextmanager
def _quiet():
    """Tracing tells of its own deprecation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", ["platt", "beta", "isotonic", "histogram", "bbq", "vector"])
def test_an_empty_class_is_a_clear_error(name):
    p = random_predictions(50, 4)
    with pytest.raises(BadInput, match="class 3 has no example"):
        build_calibrator(name).fit(Predictions(p.logits, p.labels % 3))


def test_linear_optima_are_stationary():
    p = calibrated(800, 4, 0, 2.0)
    vector = Vector().fit(p)
    _, residual = mean_nll(np.asarray(p.logits) * vector.weight_ + vector.bias_, p.labels)
    assert np.abs(residual.sum(0)).max() < 1e-6
    assert np.abs((residual * np.asarray(p.logits)).sum(0)).max() < 1e-5
    for kind in (Matrix, Dirichlet):
        fitted = kind(l2=0.1).fit(p)
        x = fitted._features(p)
        _, residual = mean_nll(x @ fitted.weight_.T + fitted.bias_, p.labels)
        # The penalty of matrix scaling is on the weights of z / T.
        unit = Temperature().fit(p).temperature_ ** 2 if kind is Matrix else 1.0
        slope = residual.T @ x + 0.2 * unit * fitted.weight_ * (1 - np.eye(4)) / 12
        assert np.abs(slope).max() < 1e-5
        assert np.abs(residual.sum(0) + 0.2 * fitted.bias_ / 4).max() < 1e-6


@pytest.mark.parametrize("bounds", [{"_WHOLE_CLASSES": 0}, {"_WHOLE_CLASSES": 0, "_BLOCK_CLASSES": 0}])
def test_every_scale_finds_the_same_map(monkeypatch, bounds):
    p = calibrated(600, 5, 0, 2.0)
    whole, structured = Dirichlet(l2=0.1).fit(p), StructuredMatrix().fit(p)
    for name, value in bounds.items():
        monkeypatch.setattr(sys.modules["surefoot.posthoc.linear"], name, value)
    blocks = Dirichlet(l2=0.1).fit(p)
    np.testing.assert_allclose(blocks.weight_, whole.weight_, atol=5e-3)  # flat in the directions of whole columns
    np.testing.assert_allclose(blocks.apply(p).probs, whole.apply(p).probs, atol=1e-4)
    np.testing.assert_allclose(StructuredMatrix().fit(p).weight_, structured.weight_, atol=1e-4)


def test_a_strong_penalty_leaves_a_diagonal():
    p = calibrated(800, 4, 0, 2.0)
    fitted = Dirichlet(l2=1e6).fit(p)
    off = fitted.weight_ - np.diag(np.diag(fitted.weight_))
    assert np.abs(off).max() < 1e-4
    assert np.abs(fitted.bias_).max() < 1e-3
    with pytest.raises(BadInput, match="l2 must be"):
        Dirichlet(l2="strong").fit(p)
    with pytest.raises(BadInput, match="l2 must be"):
        Matrix(l2=-1.0).fit(p)


def test_dirichlet_identity_on_calibrated_predictions():
    fitted = Dirichlet(l2=1e-3).fit(calibrated(100_000, 3))
    # W is only determined up to a constant added to each column.
    centred = fitted.weight_ - fitted.weight_.mean(0) - (np.eye(3) - 1 / 3)
    assert np.abs(centred).max() < 0.05
    assert np.abs(fitted.bias_ - fitted.bias_.mean()).max() < 0.05


def test_platt_and_beta_recover_their_own_families():
    random = np.random.default_rng(0)
    q = random.uniform(0.01, 0.99, 200_000)
    odds = np.log(q / (1 - q))
    labels = (random.random(len(q)) < expit(0.5 * odds + 0.3)).astype(int)
    p = Predictions.from_probs(np.stack([1 - q, q], 1), labels)
    np.testing.assert_allclose(Platt().fit(p).coefficients_[0], [0.5, 0.3], atol=0.02)
    labels = (random.random(len(q)) < expit(0.4 * np.log(q) - 1.5 * np.log1p(-q) - 0.2)).astype(int)
    p = Predictions.from_probs(np.stack([1 - q, q], 1), labels)
    np.testing.assert_allclose(Beta().fit(p).coefficients_[0], [0.4, 1.5, -0.2], atol=0.05)


def test_beta_drops_negative_slopes():
    random = np.random.default_rng(0)
    q = random.uniform(0.01, 0.99, 5000)
    labels = (random.random(len(q)) < expit(-0.8 * np.log(q) - 2 * np.log1p(-q))).astype(int)
    fitted = Beta().fit(Predictions.from_probs(np.stack([1 - q, q], 1), labels))
    assert fitted.coefficients_[0, 0] == 0
    assert (fitted.coefficients_[0, :2] >= 0).all()


def test_isotonic_is_scikit_learns_for_each_class():
    p, q = calibrated(500, 3, 0, 2.0), calibrated(200, 3, 1, 2.0)
    columns = []
    for c in range(3):
        model = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(p.probs[:, c], p.labels == c)
        columns.append((500 * model.predict(q.probs[:, c]) + q.probs[:, c]) / 501)
    expected = np.stack(columns, 1)
    np.testing.assert_allclose(
        Isotonic().fit(p).apply(q).probs, expected / expected.sum(1, keepdims=True), rtol=1e-6, atol=1e-12
    )


def test_pooled_isotonic_keeps_the_order_of_the_classes():
    p, q = calibrated(500, 4, 0, 2.0), calibrated(300, 4, 1, 2.0)
    assert (Isotonic(pooled=True).fit(p).apply(q).predicted == q.predicted).all()


def test_histogram_by_hand():
    probs = np.array([[0.95, 0.05], [0.92, 0.08], [0.3, 0.7], [0.35, 0.65]])
    fitted = Histogram(bins=2).fit(Predictions.from_probs(probs, [0, 1, 1, 1]))
    low, high = (1 + 0.05 + 0.08) / 4, (2 + 0.7 + 0.65) / 4
    np.testing.assert_allclose(fitted.values_, [low, high])
    fitted = Histogram(bins=4).fit(Predictions.from_probs(probs, [0, 1, 1, 1]))
    np.testing.assert_allclose(fitted.values_, [low, 0.375, high, 0.875])  # empty bins keep their middles
    with pytest.raises(BadInput, match="bins must be"):
        Histogram(bins=0).fit(calibrated(50, 2))


def test_bbq_marginal_is_the_beta_function():
    random = np.random.default_rng(0)
    count = random.integers(0, 50, 7)
    ones = (random.random(7) * (count + 1)).astype(int)
    prior = random.uniform(0.01, 0.99, 7)
    a, b = 2 * prior, 2 * (1 - prior)
    expected = (betaln(ones + a, count - ones + b) - betaln(a, b)).sum()
    assert log_marginal(ones, count, prior) == pytest.approx(expected, rel=1e-12)
    numbers = bbq_numbers_of_bins(1000)
    assert (numbers[0], numbers[-1]) == (1, 100)
    with pytest.raises(BadInput, match="least must"):
        BBQ(least=1.0).fit(calibrated(50, 2))


def test_bbq_of_ties_does_not_depend_on_order():
    random = np.random.default_rng(0)
    q = random.choice([0.1, 0.4, 0.8], 300)
    labels = (random.random(300) < q).astype(int)
    order = random.permutation(300)
    probs = np.stack([1 - q, q], 1)
    a, b = (
        BBQ().fit(Predictions.from_probs(probs, labels)),
        BBQ().fit(Predictions.from_probs(probs[order], labels[order])),
    )
    np.testing.assert_allclose(a.values_, b.values_, atol=1e-12)


def test_ensemble_is_no_worse_than_its_temperature_on_its_own_rows():
    for seed in range(5):
        p = random_predictions(300, 4, seed, sharp=2.0)
        ensemble, temperature = EnsembleTemperature().fit(p), Temperature().fit(p)
        assert metrics.nll(ensemble.apply(p)) <= metrics.nll(temperature.apply(p)) + 1e-12
        assert ensemble.weights_.min() >= 0
        assert ensemble.weights_.sum() == pytest.approx(1)


def test_ensemble_keeps_answers_where_a_flat_distribution_is_best():
    z = 3 * np.random.default_rng(1).normal(size=(200, 3))
    p = Predictions(z, (z.argmax(1) + 1) % 3)
    fitted = EnsembleTemperature().fit(p)
    assert fitted.weights_[:2].sum() >= 1e-3 * (1 - 1e-9)
    near = z[:, :1] + np.array([0.0, 1e-13, 0.0])  # apart by less than the mixture can resolve
    for q in (p, Predictions(near, p.labels)):
        assert (fitted.apply(q).predicted == q.predicted).all()


class TestAuto:
    def test_calibrated_predictions_are_left_alone(self):
        chosen = [Auto(nested=False, seed=seed).fit(calibrated(1000, 3, seed)).name_ for seed in range(4)]
        assert chosen.count("none") >= 3

    def test_a_temperature_is_found_where_one_is_needed(self):
        p = calibrated(3000, 3, 0, 2.5)
        auto = Auto(folds=3).fit(p)
        assert auto.name_ == "temperature"
        assert auto.best_.temperature_ == pytest.approx(2.5, rel=0.1)
        assert auto.estimate_ < auto.before_
        tried = [c.score for c in auto.scores_ if c.left_out is None]
        assert tried == sorted(tried)
        assert {c.name for c in auto.scores_} == set(NAMES)
        test = calibrated(100, 3, 1, 2.5)
        np.testing.assert_array_equal(auto.apply(test).log_probs, auto.best_.apply(test).log_probs)

    def test_an_affine_fault_needs_more_than_a_temperature(self):
        p = calibrated(4000, 3, 0)
        shifted = Predictions(np.asarray(p.logits) + np.array([3.0, 0.0, -1.0]), p.labels)
        auto = Auto(folds=3, nested=False).fit(shifted)
        assert auto.name_ in {"svs", "sms", "dirichlet", "matrix"}

    def test_candidates_that_cannot_be_fitted_are_left_out_with_the_reason(self):
        p = calibrated(40, 7)
        auto = Auto(folds=2, nested=False).fit(p)
        reasons = {c.name: c.left_out for c in auto.scores_ if c.left_out}
        assert "learns 56 numbers from 40 rows" in reasons["matrix"]

    def test_other_metrics_and_bad_settings(self):
        p = calibrated(600, 3, 0, 3.0)
        few = {"temperature": Temperature(), "vector": Vector()}
        assert Auto("ece", folds=2, nested=False, candidates=few).fit(p).name_ != "none"
        assert Auto("accuracy", folds=2, nested=False, candidates=few).fit(p).name_ in {"none", "vector"}
        with pytest.raises(BadInput, match="metric must be one of"):
            Auto("error").fit(p)
        with pytest.raises(BadInput, match="at least 10 rows"):
            Auto().fit(calibrated(9, 2))
        with pytest.raises(BadInput, match="folds must be"):
            Auto(folds=1).fit(p)
        with pytest.raises(NotFittedError):
            Auto().save("x.json")

    def test_scores_are_the_metrics_own_values(self):
        p = calibrated(600, 3, 0, 3.0)
        few = {"temperature": Temperature(), "vector": Vector()}
        auto = Auto("accuracy", folds=2, candidates=few).fit(p)
        assert auto.before_ == float(metrics.accuracy(p))
        assert 0 < auto.estimate_ <= 1
        assert all(0 < c.score <= 1 for c in auto.scores_)
        assert auto.scores_[0].score == max(c.score for c in auto.scores_)
        plain = next(c for c in auto.scores_ if c.name == "none")
        assert all(c.gain == pytest.approx(c.score - plain.score) for c in auto.scores_)

    @pytest.mark.parametrize(
        ("settings", "says"),
        [
            ({"metric": []}, "metric must be one of"),
            ({"candidates": [Temperature()]}, "candidates must be a dict"),
            ({"candidates": {"a": 3}}, "candidates must be calibrators"),
            ({"candidates": {3: Temperature()}}, "candidates must be calibrators"),
            ({"candidates": {"none": Temperature()}}, "must not name one 'none'"),
            ({"seed": "x"}, "seed must be"),
        ],
    )
    def test_what_is_no_setting(self, settings, says):
        with pytest.raises(BadInput, match=says):
            Auto(**settings).fit(calibrated(60, 3))

    def test_leaving_things_alone_may_be_named(self):
        auto = Auto(folds=2, nested=False, candidates={"none": Identity()}).fit(calibrated(60, 3))
        assert auto.name_ == "none"

    def test_it_saves_what_it_chose(self, tmp_path):
        auto = Auto(folds=2, nested=False, candidates={"temperature": Temperature()}).fit(calibrated(600, 3, 0, 3.0))
        auto.save(tmp_path / "map.json")
        assert load(tmp_path / "map.json").temperature_ == auto.best_.temperature_


def hostile(name):
    """What must not be read in place of the map of that name for three classes."""
    numbers = [1, 1e308, -1e200, "2", None, [], {}, [[1.0]], [1.0, 1.0], [[1e308] * 3] * 3]
    yield from ({"learned": value} for value in ([], {}, 3, None))
    yield from ({"classes": value} for value in (1, 10**6 + 0.5, 10**18, True, "3"))
    yield from ({"n": value} for value in (-1, 0, "many", 2.5, None))
    yield from ({"settings": value} for value in ([], None, {"scores": 1}))
    yield {"kind": "scores"}
    for key in build_calibrator(name).learned:
        yield from (
            {"learned": {key: value}} for value in numbers if key not in ("temperature_", "limit_") or value != 1
        )
    if name in ("temperature", "ets"):
        yield from ({"learned": {"temperature_": value}} for value in (0, -1, True))
    if name == "ets":
        yield from ({"learned": {"weights_": value}} for value in ([2, -1, 0], [1, 1, 1]))
    if name in ("vector", "matrix"):
        yield from ({"learned": {"lowest_": value}} for value in (0.0, 5))
    wrong = {"pooled": "yes", "bins": "a", "least": "x", "l2": [1], "folds": 1.5, "seed": -1, "scores": []}
    yield from (
        {"settings": {key: value}} for key, value in wrong.items() if key in build_calibrator(name).get_params()
    )


@pytest.mark.parametrize("name", SAVED)
def test_hostile_files_are_refused(name, tmp_path):
    path = tmp_path / "map.json"
    build_calibrator(name).fit(calibrated(100, 3)).save(path)
    document = json.loads(path.read_text())
    for change in hostile(name):
        ((part, value),) = change.items()
        if isinstance(value, dict) and value:
            value = {**document[part], **value}
        broken = {**document, part: value}
        if broken == document:  # nothing is learned: nothing is what it must hold
            continue
        path.write_text(json.dumps(broken))
        with pytest.raises(BadInput, match="damaged calibrator"):
            print(change, load(path))


def test_a_map_of_very_many_classes_is_read_back(tmp_path):
    path = tmp_path / "map.json"
    p = Predictions(np.random.default_rng(0).normal(size=(4, 100_000)).astype(np.float32), [0, 1, 2, 3])
    fitted = Temperature().fit(p)
    fitted.save(path)
    assert load(path).temperature_ == fitted.temperature_
    path.write_text(path.read_text().replace("100000", "1000000"))
    assert len(load(path).classes_) == 1_000_000


def test_what_is_not_finite_is_not_saved(tmp_path):
    fitted = Vector().fit(calibrated(100, 3))
    for value in (np.nan, np.inf, 1e308):
        fitted.weight_ = np.array([1.0, value, 1.0])
        with pytest.raises(BadInput, match="weight_ must be finite"):
            fitted.save(tmp_path / "map.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["vector", "matrix", "auto"])
def test_logits_and_probabilities_do_not_mix_where_it_matters(name, tmp_path):
    p, q = calibrated(400, 3, 0, 2.0), calibrated(50, 3, 1, 2.0)
    given, as_probs = np.asarray(q.logits), Predictions.from_probs(q.probs, q.labels)
    fitted = (Auto(folds=2, nested=False) if name == "auto" else build_calibrator(name)).fit(p)
    if name == "auto":
        fitted.best_ = Vector().fit(p)
    with pytest.raises(BadInput, match="p must hold logits"):
        fitted.apply(as_probs)
    fitted.save(tmp_path / "map.json")
    with pytest.raises(BadInput, match="p must hold logits"):
        load(tmp_path / "map.json").apply(as_probs)
    if name != "auto":  # the module of a map of log-probabilities takes logits, as every module does
        other = build_calibrator(name).fit(Predictions.from_probs(p.probs, p.labels))
        with pytest.raises(BadInput, match="p must hold probs"):
            other.apply(q)
        np.testing.assert_allclose(
            other.to_module()(torch.tensor(given + 7.0)).exp(), other.apply(as_probs).probs, atol=1e-9
        )


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_linear_maps_are_no_worse_than_the_temperature_they_contain(scale):
    random = np.random.default_rng(0)
    z = random.normal(size=(500, 5)) * 4
    p = Predictions(scale * z, (z / 2 + random.gumbel(size=z.shape)).argmax(1))
    least = float(metrics.nll(Temperature().fit(p).apply(p)))
    unit = Predictions(z, p.labels)
    for kind in (Vector(), Matrix(l2=1.0)):
        mapped = kind.fit(p).apply(p)
        assert float(metrics.nll(mapped)) <= least + 1e-6
        np.testing.assert_allclose(mapped.probs, clone(kind).fit(unit).apply(unit).probs, atol=1e-5)


@pytest.mark.parametrize("name", ["vector", "platt", "auto", "temperature"])
def test_a_fit_that_fails_leaves_what_was_learned(name):
    p = calibrated(200, 3, 0, 2.0)
    fitted = (Auto(folds=2, nested=False) if name == "auto" else build_calibrator(name)).fit(p)
    before = fitted.apply(p).probs
    bad = Predictions([[0.0, -np.inf, 1.0, 0.0]] * 3, [1, 1, 1])
    with pytest.raises(BadInput):
        fitted.fit(bad)
    np.testing.assert_array_equal(fitted.apply(p).probs, before)


def test_fit_takes_the_keywords_of_scikit_learn():
    p = calibrated(100, 3)
    z = np.asarray(p.logits)
    expected = Temperature().fit(p).temperature_
    assert Temperature().fit(z, y=p.labels).temperature_ == expected
    assert Temperature().fit(X=z, y=p.labels).temperature_ == expected


@pytest.mark.parametrize("name", ["platt", "beta"])
def test_a_solver_that_stops_early_says_nothing(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(100):
            z = 2.5 * np.random.default_rng(seed).normal(size=(12, 3))
            labels = np.r_[0, 1, 2, z[3:].argmax(1)]
            assert np.isfinite(build_calibrator(name).fit(Predictions(z, labels)).coefficients_).all()


@pytest.mark.parametrize(
    ("calibrator", "says"),
    [
        (BBQ(least="x"), "least must"),
        (BBQ(least=True), "least must"),
        (Histogram(bins="a"), "bins must"),
        (Isotonic(pooled="no"), "pooled must"),
        (Matrix(l2=[]), "l2 must"),
        (Matrix(l2=1.0, folds="3"), "folds must"),
        (Dirichlet(seed=-1), "seed must"),
        (Temperature(scores=[]), "scores must"),
    ],
)
def test_bad_settings(calibrator, says):
    p = calibrated(60, 3)
    with pytest.raises(BadInput, match=says):
        calibrator.fit(p)
    with pytest.raises(BadInput, match=says):
        Auto(folds=2, candidates={"mine": calibrator}).fit(p)


BROKEN = {
    "not json": "T = 2",
    "a list": "[]",
    "another format": '{"surefoot calibrator": 2}',
    "no method": '{"surefoot calibrator": 1}',
    "unknown method": {"method": "os.system"},
    "settings of another": {"settings": {"bins": 3}},
    "learned of another": {"learned": {"weight_": [1]}},
    "negative": {"learned": {"temperature_": -1.0}},
    "not a number": {"learned": {"temperature_": "2"}},
    "one class": {"classes": 1},
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_damaged_file_is_a_clear_error(name, tmp_path):
    path = tmp_path / "map.json"
    Temperature().fit(calibrated(100, 3)).save(path)
    broken = BROKEN[name]
    path.write_text(broken if isinstance(broken, str) else json.dumps({**json.loads(path.read_text()), **broken}))
    with pytest.raises(BadInput, match=r"calibrator"):
        load(path)


@pytest.mark.parametrize(
    ("key", "value"), [("knots_", [0.5, 0.1]), ("values_", [2.0]), ("knot_starts_", [0, 99]), ("knot_starts_", [])]
)
def test_damaged_tables_are_refused(key, value, tmp_path):
    path = tmp_path / "map.json"
    Histogram(bins=3).fit(calibrated(100, 3)).save(path)
    document = json.loads(path.read_text())
    document["learned"][key] = value
    path.write_text(json.dumps(document))
    with pytest.raises(BadInput, match="damaged calibrator"):
        load(path)


def test_no_file():
    with pytest.raises(BadInput, match="cannot read"):
        load("nowhere.json")
    with pytest.raises(BadInput, match="method must be one of"):
        build_calibrator("softmax")
    with pytest.raises(BadInput, match="method must be one of"):
        build_calibrator([])
    assert Identity().fit(calibrated(10, 2)).apply(q := calibrated(5, 2)) is q
