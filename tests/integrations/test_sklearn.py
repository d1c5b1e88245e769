"""`Predictions.of` anything with `predict_proba`: labels are the estimator's own."""

import numpy as np
import pytest
import torch
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import surefoot as sf
from surefoot.errors import BadInput
from surefoot.predictions import Predictions

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["virginica", "setosa", "versicolor"])[Y]  # whose order is not that of the numbers


def estimators():
    forest = RandomForestClassifier(5, random_state=0)
    return [
        LogisticRegression(max_iter=500),
        forest,
        make_pipeline(StandardScaler(), LogisticRegression()),
        CalibratedClassifierCV(LinearSVC()),
    ]


@pytest.mark.parametrize("labels", [Y, NAMES, Y * 10 - 7, list(NAMES), Y.astype(float)], ids=lambda v: str(v[0]))
@pytest.mark.parametrize("estimator", estimators(), ids=lambda e: type(e).__name__)
def test_accuracy_and_likelihood_are_the_estimators_own(estimator, labels):
    estimator.fit(X[::2], np.asarray(labels)[::2])
    p = Predictions.of(estimator, X[1::2], labels[1::2])
    assert float(sf.metrics.accuracy(p)) == estimator.score(X[1::2], labels[1::2])
    np.testing.assert_allclose(p.probs, estimator.predict_proba(X[1::2]), rtol=1e-12)
    assert (np.asarray(estimator.classes_)[p.labels] == np.asarray(labels[1::2])).all()


def test_classes_in_any_order():
    class Backwards:
        classes_ = np.array(["b", "a"])

        def predict_proba(self, inputs):
            return np.tile([0.9, 0.1], (len(inputs), 1))

    p = Predictions.of(Backwards(), [0, 0], ["a", "b"])
    assert p.labels.tolist() == [1, 0]
    assert p.correct.tolist() == [False, True]


def test_without_classes_labels_are_columns():
    class Bare:
        def predict_proba(self, inputs):
            return np.tile([0.9, 0.1], (len(inputs), 1))

    assert Predictions.of(Bare(), [0, 0], [1, 0]).labels.tolist() == [1, 0]
    with pytest.raises(BadInput, match="labels must be integers"):
        Predictions.of(Bare(), [0, 0], ["a", "b"])


def test_our_calibrators_are_such_estimators():
    logits = np.random.default_rng(0).normal(size=(200, 3))
    labels = np.arange(200) % 3
    fitted = sf.posthoc.Temperature().fit(logits, labels)
    expected = fitted.apply(Predictions(logits, labels))
    np.testing.assert_allclose(Predictions.of(fitted, logits, labels).probs, expected.probs, rtol=1e-12)


def test_errors():
    fitted = LogisticRegression(max_iter=500).fit(X, NAMES)
    with pytest.raises(BadInput, match=r"row 1 has 'rose' \(1 such rows\).*'setosa'"):
        Predictions.of(fitted, X[:2], ["setosa", "rose"])
    with pytest.raises(BadInput, match=r"labels must have shape \(3,\)"):
        Predictions.of(fitted, X[:3], NAMES[:2])
    with pytest.raises(BadInput, match=r"LinearSVC has none.*CalibratedClassifierCV"):
        Predictions.of(LinearSVC().fit(X, Y), X, Y)
    with pytest.raises(NotFittedError):
        Predictions.of(LogisticRegression(), X, Y)
    with pytest.raises(BadInput, match="one target"):
        Predictions.of(RandomForestClassifier(2).fit(X, np.stack([Y, Y], 1)), X, Y)
    with pytest.raises(BadInput, match="a fitted LogisticRegression, not the class"):
        Predictions.of(LogisticRegression, X, Y)

    class Odd:
        classes_ = (0, 1, 2)

        def predict_proba(self, inputs):
            return np.tile([0.9, 0.1], (len(inputs), 1))

    with pytest.raises(BadInput, match="3 classes_ and 2 columns"):
        Predictions.of(Odd(), [0], [0])


def test_a_module_with_predict_proba_is_asked_for_logits():
    class Both(torch.nn.Linear):
        def predict_proba(self, inputs):
            raise AssertionError("not asked")

    assert Predictions.of(Both(4, 3), torch.zeros(5, 4), [0] * 5).classes == 3
