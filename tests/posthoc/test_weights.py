"""Weights, soft labels, clusters and every form of predictions, through every calibrator."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.base import clone

from surefoot import Predictions, metrics
from surefoot.errors import BadInput
from surefoot.posthoc import CALIBRATORS, Auto, Dirichlet, Matrix, Temperature, build_calibrator, load

from .test_calibrators import calibrated

NAMES = list(CALIBRATORS)
# Cross-validation keeps a weighted row whole, so that a strength chosen by it is not that of repeated rows.
FIXED = {"dirichlet": Dirichlet(l2=0.1), "matrix": Matrix(l2=0.1)}
TABLES = {"histogram", "isotonic", "isotonic-pooled", "bbq"}
RANDOM = np.random.default_rng(0)


def build(name, **settings):
    return clone(FIXED[name]) if name in FIXED else build_calibrator(name).set_params(**settings)


def weighted(p, weights):
    return Predictions(p.logits, p.labels, weights=weights)


def learned(calibrator):
    return np.concatenate([np.ravel(getattr(calibrator, name)) for name in calibrator.learned] or [[]])


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("name", NAMES)
class TestWeights:
    @pytest.mark.parametrize("safe", [False, True])
    def test_integer_weights_are_repeated_rows(self, name, k, safe):
        if safe and "prior" not in build_calibrator(name).get_params():
            pytest.skip("has no settings for few rows")
        settings = {"prior": 0.5, "mixed": True} if safe else {}
        p, counts = calibrated(150, k, 3, 2.0), RANDOM.integers(1, 5, 150)
        rows = np.repeat(np.arange(150), counts)
        one = build(name, **settings).fit(weighted(p, counts))
        other = build(name, **settings).fit(Predictions(p.logits[rows], p.labels[rows]))
        difference = np.abs(learned(one) - learned(other)).max(initial=0.0)
        assert difference <= (1e-14 if name in TABLES else 1e-9)
        np.testing.assert_allclose(one.apply(p).probs, other.apply(p).probs, rtol=0, atol=1e-9)
        fewer = build(name, **settings).fit(p)
        moved = np.abs(one.apply(p).probs - fewer.apply(p).probs).max()
        assert name == "none" or moved > 1e-3  # the weights do something

    def test_real_weights_have_no_scale(self, name, k):
        p, weights = calibrated(150, k, 3, 2.0), RANDOM.uniform(0.1, 3, 150)
        one, other = (build(name).fit(weighted(p, factor * weights)) for factor in (1, 7.3))
        np.testing.assert_allclose(one.apply(p).probs, other.apply(p).probs, rtol=0, atol=1e-8)

    def test_equal_weights_change_nothing(self, name, k):
        p = calibrated(150, k, 3, 2.0)
        for weight in (1.0, 0.37):
            found = build(name).fit(weighted(p, np.full(150, weight)))
            same = build(name).fit(p)
            np.testing.assert_allclose(found.apply(p).probs, same.apply(p).probs, rtol=0, atol=1e-8)

    def test_sample_weight_of_arrays(self, name, k):
        p, weights = calibrated(150, k, 3, 2.0), RANDOM.integers(0, 3, 150)
        found = build(name).fit(np.array(p.logits), p.labels, sample_weight=weights)
        np.testing.assert_array_equal(learned(found), learned(build(name).fit(weighted(p, weights))))


def test_sample_weight_beside_predictions_is_refused():
    with pytest.raises(BadInput, match="sample_weight is for arrays only"):
        Temperature().fit(calibrated(20, 2), sample_weight=np.ones(20))


@pytest.mark.parametrize("name", NAMES)
def test_soft_labels_that_are_certain_are_labels(name):
    p = calibrated(200, 3, 1, 2.0)
    hard, soft = build(name).fit(p), build(name).fit(Predictions(p.logits, np.eye(3)[p.labels]))
    np.testing.assert_allclose(soft.apply(p).probs, hard.apply(p).probs, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_soft_labels_are_rows_of_every_class_with_weights(name):
    """A soft label (.25, .75) is a row of each class, of the weights 1 and 3; the strength of penalties is of 1 row."""
    p = calibrated(120, 2, 1, 2.0)
    soft = RANDOM.integers(0, 5, 120) / 4
    soft = np.stack([1 - soft, soft], axis=1)
    row, column = np.nonzero(soft)
    one = build(name).fit(Predictions(p.logits, soft, weights=np.full(120, 4)))
    other = build(name).fit(Predictions(p.logits[row], column, weights=4 * soft[row, column]))
    np.testing.assert_allclose(one.apply(p).probs, other.apply(p).probs, rtol=0, atol=1e-8)


def test_a_temperature_of_soft_labels_is_optimal():
    z = 3 * RANDOM.normal(size=(300, 4))
    soft = np.exp(log_softmax(z / 2.5 + 0.5 * RANDOM.normal(size=z.shape), axis=1))
    found = Temperature().fit(Predictions(z, soft))
    best = minimize_scalar(
        lambda t: -(soft * log_softmax(z / t, axis=1)).sum(1).mean(), bounds=(0.1, 10), options={"xatol": 1e-10}
    )
    assert found.temperature_ == pytest.approx(best.x, rel=1e-5)
    assert found.outcome_ == "optimum"


def test_soft_labels_of_tied_classes_are_separable():
    z = np.array([[0.0, 0.0, -2.0], [0.0, 0.0, -1.0], [3.0, 0.0, 0.0]] * 5)
    soft = np.array([[0.5, 0.5, 0.0], [0.3, 0.7, 0.0], [1.0, 0.0, 0.0]] * 5)
    assert Temperature().fit(Predictions(z, soft)).outcome_ == "separable"
    soft[0] = [0.4, 0.5, 0.1]
    assert Temperature().fit(Predictions(z, soft)).outcome_ == "optimum"


# --- every form of predictions ----------------------------------------------------------------------


def forms(n=240, seed=0):
    """Overconfident predictions of every form, with whatever else rows can carry."""
    random = np.random.default_rng(seed)
    odds = 1.5 * random.normal(size=(n, 3))
    happened = random.random((n, 3)) < 1 / (1 + np.exp(-odds / 2.5 + 0.3))
    probs, more = 1 / (1 + np.exp(-odds)), {"weights": random.integers(1, 4, n), "groups": {"site": np.arange(n) % 3}}
    z, labels = 2 * random.normal(size=(n, 4)), random.integers(0, 4, n)
    labels = (z / 2 + random.gumbel(size=z.shape)).argmax(1)
    clusters = np.arange(n) // 3
    tokens = np.where(random.random((n // 4, 4)) < 0.2, -100, labels.reshape(-1, 4))
    one = probs[:, 0].copy()
    one[:4] = [0.0, 1.0, 0.0, 1.0]  # certain, and right or wrong
    return {
        "classes": Predictions(z, labels, clusters=clusters, names=["a", "b", "c", "d"], **more),
        "soft labels": Predictions(z, random.dirichlet(0.3 + 3 * np.eye(4)[labels].mean(0), n), **more),
        "positions": Predictions(z.reshape(-1, 4, 4), tokens, ignore_index=-100),
        "probability": Predictions.from_probs(probs[:, 0], happened[:, 0], clusters=clusters, **more),
        "logit": Predictions(odds[:, 0], happened[:, 0], **more),
        "certain": Predictions.from_probs(one, happened[:, 0]),
        "multilabel": Predictions.multilabel(probs, happened, names=["x", "y", "z"], **more),
        "confidence": Predictions.from_confidence(probs[:, 0], happened[:, 0], clusters=clusters, **more),
        "two soft labels": Predictions.from_probs(
            np.stack([1 - probs[:, 0], probs[:, 0]], 1), np.stack([1 - probs[:, 1], probs[:, 1]], 1)
        ),
    }


FORMS = forms()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
class TestEveryForm:
    def test_a_fit_keeps_what_the_rows_carry(self, name, form, tmp_path):
        p = FORMS[form]
        fitted = build(name).fit(p)
        after = fitted.apply(p)
        assert (after.form, after.names, after.positive, len(after)) == (p.form, p.names, p.positive, len(p))
        assert after.groups.keys() == p.groups.keys()
        for column in ("labels", "soft_labels", "weights", "clusters"):
            before = getattr(p, column)
            assert (getattr(after, column) is None) == (before is None)
            if before is not None:
                np.testing.assert_array_equal(getattr(after, column), before)
        e, f = p.events(), after.events()
        assert len(e) == len(f)
        assert ((f.prob >= 0) & (f.prob <= 1)).all()
        if CALIBRATORS[name].keeps_order:
            np.testing.assert_array_equal(after.as_classes().predicted, p.as_classes().predicted)
        if not CALIBRATORS[name].fixed:
            fitted.save(tmp_path / "map.json")
            again = load(tmp_path / "map.json").apply(p)
            np.testing.assert_array_equal(again.as_classes().probs, after.as_classes().probs)

    def test_the_rows_of_the_fit_do_not_get_worse(self, name, form):
        p = FORMS[form]
        if name in {"svs", "sms", "histogram", "bbq", "isotonic", "isotonic-pooled", "matrix", "dirichlet"}:
            pytest.skip("is shrunk, or divided by the sum of the row")
        if name in {"platt", "beta"} and p.classes > 2:
            pytest.skip("is divided by the sum of the row")
        before, after = metrics.nll(p), metrics.nll(build(name).fit(p).apply(p))
        assert after <= before + 1e-9 or np.isinf(before)
        if name in {"temperature", "beta"} and form != "certain" and form != "two soft labels":
            assert after < before - 0.005

    def test_a_module_or_an_array_gives_the_same(self, name, form):
        p = FORMS[form].as_classes()
        fitted = build(name).fit(p)
        if p.form == "classes" and p.scores == "logits" and p.soft_labels is None:
            np.testing.assert_allclose(fitted.predict_proba(p.logits), fitted.apply(p).probs, rtol=0, atol=1e-12)


def test_a_map_of_confidences_is_none_of_events():
    fitted = Temperature().fit(FORMS["confidence"])
    with pytest.raises(BadInput, match="confidences of predictions; got probabilities of events"):
        fitted.apply(FORMS["probability"])
    with pytest.raises(BadInput, match="probabilities of events; got confidences of predictions"):
        Temperature().fit(FORMS["probability"]).apply(FORMS["confidence"])


def test_certain_probabilities_are_mapped():
    p = FORMS["certain"]
    for name in NAMES:
        prob = build(name).fit(p).apply(p).events().prob[:2]
        assert 0 <= prob[0] < prob[1] <= 1, name
        if name in {"platt", "beta", "histogram"}:
            assert 0 < prob[0] < prob[1] < 1, name


def test_one_class_only():
    right = Predictions.from_confidence([0.9, 0.8] * 20, [True] * 40)
    for name in ("platt", "beta", "isotonic", "histogram", "bbq"):
        with pytest.raises(BadInput, match="but it happened in all of the 40 rows; give more"):
            build_calibrator(name).fit(right)
    with pytest.raises(BadInput, match="it did not happen in all"):
        build_calibrator("platt").fit(Predictions.from_confidence([0.9, 0.8] * 20, [False] * 40))
    assert Temperature().fit(right).outcome_ == "separable"


def test_a_saved_choice_knows_its_form(tmp_path):
    auto = Auto(nested=False).fit(FORMS["confidence"])
    assert auto.name_ != "none"
    auto.save(tmp_path / "map.json")
    again = load(tmp_path / "map.json")
    expected = auto.apply(FORMS["confidence"]).confidence
    np.testing.assert_array_equal(again.apply(FORMS["confidence"]).confidence, expected)
    with pytest.raises(BadInput, match="another map calibrates"):
        again.apply(FORMS["probability"])
    document = json.loads((tmp_path / "map.json").read_text())
    assert document["form"] == "confidence"
    (tmp_path / "map.json").write_text(json.dumps({**document, "form": "rows"}))
    with pytest.raises(BadInput, match="form must be a form of predictions; got 'rows'"):
        load(tmp_path / "map.json")
    del document["form"]
    (tmp_path / "map.json").write_text(json.dumps(document))
    np.testing.assert_array_equal(load(tmp_path / "map.json").apply(FORMS["confidence"]).confidence, expected)


def test_the_example_of_boosted_trees(capsys):
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "boosted_trees.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert [line.split()[-1] for line in said.splitlines()[1:4]] == ["better"] * 3
    assert "pipeline and predictions differ by at most" in said
    assert float(said.split()[-1]) < 1e-12
