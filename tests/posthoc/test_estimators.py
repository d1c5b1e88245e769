"""Calibrators as estimators of scikit-learn: a subset of what its own checks ask for, for arrays of scores."""

import inspect
import pickle

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

from surefoot.errors import BadInput
from surefoot.posthoc import CALIBRATORS, Auto, build_calibrator

from .test_calibrators import calibrated

ESTIMATORS = [*CALIBRATORS, "auto"]
K = 3


def make(name):
    return Auto(folds=2, nested=False) if name == "auto" else build_calibrator(name)


@pytest.fixture(scope="module")
def data():
    p = calibrated(120, K, 0, 2.0)
    return np.array(p.logits), p.labels.copy()


@pytest.mark.parametrize("name", ESTIMATORS)
class TestEveryEstimator:
    def test_the_constructor_only_stores(self, name):
        estimator = make(name)
        parameters = inspect.signature(type(estimator)).parameters
        assert set(estimator.get_params()) == set(parameters)
        assert set(vars(estimator)) == set(parameters)
        assert all(parameter.kind != parameter.VAR_KEYWORD for parameter in parameters.values())
        assert is_classifier(estimator)

    def test_parameters_are_set_and_cloned(self, name, data):
        estimator = make(name)
        assert estimator.set_params(scores="probs") is estimator
        assert estimator.get_params()["scores"] == "probs"
        twin = clone(estimator)
        assert twin is not estimator
        assert twin.get_params() == estimator.get_params()
        before = make(name)
        parameters = before.get_params()
        before.fit(*data)
        assert before.get_params() == parameters
        with pytest.raises(ValueError, match="Invalid parameter"):
            estimator.set_params(unknown=1)

    def test_what_is_not_fitted_says_so(self, name, data):
        estimator = make(name)
        for method in (estimator.predict_proba, estimator.predict):
            with pytest.raises(NotFittedError):
                method(data[0])
        with pytest.raises(NotFittedError):
            check_is_fitted(estimator)
        check_is_fitted(estimator.fit(*data))

    def test_probabilities_and_classes(self, name, data):
        estimator = make(name)
        assert estimator.fit(*data) is estimator
        probs = estimator.predict_proba(data[0])
        assert probs.shape == (120, K)
        assert probs.dtype == np.float64
        assert probs.min() >= 0
        np.testing.assert_allclose(probs.sum(1), 1)
        assert estimator.classes_.tolist() == list(range(K))
        np.testing.assert_array_equal(estimator.predict(data[0]), probs.argmax(1))
        assert np.isfinite(log_loss(data[1], probs))
        assert 0 <= estimator.score(*data) <= 1

    def test_fitting_again_forgets(self, name, data):
        more = calibrated(90, 4, 1)
        again = make(name).fit(np.array(more.logits), more.labels).fit(*data)
        np.testing.assert_array_equal(again.predict_proba(data[0]), make(name).fit(*data).predict_proba(data[0]))

    def test_inputs_are_not_changed(self, name, data):
        scores, labels = data[0].copy(), data[1].copy()
        scores.flags.writeable = labels.flags.writeable = False
        estimator = make(name).fit(scores, labels)
        estimator.predict_proba(scores)
        np.testing.assert_array_equal(scores, data[0])
        np.testing.assert_array_equal(labels, data[1])

    def test_single_precision_lists_and_memory_layouts(self, name, data):
        expected = make(name).fit(*data).predict_proba(data[0])
        single = data[0].astype(np.float32)
        np.testing.assert_allclose(make(name).fit(single, data[1]).predict_proba(single), expected, atol=1e-4)
        for scores in (data[0].tolist(), np.asfortranarray(data[0]), np.repeat(data[0], 2, axis=0)[::2]):
            found = make(name).fit(scores, data[1].tolist()).predict_proba(scores)
            np.testing.assert_allclose(found, expected, atol=1e-12)

    def test_rows_are_mapped_one_by_one(self, name, data):
        estimator = make(name).fit(*data)
        whole, order = estimator.predict_proba(data[0]), np.random.default_rng(0).permutation(120)
        np.testing.assert_allclose(estimator.predict_proba(data[0][order]), whole[order], atol=1e-13)
        np.testing.assert_allclose(estimator.predict_proba(data[0][:1]), whole[:1], atol=1e-13)

    def test_pipelines_and_cross_validation(self, name, data):
        chain = Pipeline([("same", FunctionTransformer()), ("calibrator", make(name))]).fit(*data)
        np.testing.assert_allclose(chain.predict_proba(data[0]), make(name).fit(*data).predict_proba(data[0]))
        probs = cross_val_predict(make(name), *data, cv=3, method="predict_proba")
        assert probs.shape == (120, K)

    def test_pickles(self, name, data):
        estimator = make(name).fit(*data)
        again = pickle.loads(pickle.dumps(estimator))
        np.testing.assert_array_equal(again.predict_proba(data[0]), estimator.predict_proba(data[0]))

    @pytest.mark.parametrize(
        ("scores", "labels"),
        [
            (np.full((9, K), np.nan), np.arange(9) % K),
            (np.zeros((0, K)), np.zeros(0, int)),
            (np.zeros(9), np.arange(9) % K),
            (np.zeros((9, 1)), np.zeros(9, int)),
            (np.zeros((9, K)), np.arange(8) % K),
            (np.zeros((9, K)), np.full(9, K)),
        ],
    )
    def test_what_is_no_data(self, name, scores, labels):
        with pytest.raises(BadInput):
            make(name).fit(scores, labels)
