"""What every metric must satisfy. Adding a metric to `metrics_table` adds it to every test here."""

import copy
import json
import pickle

import numpy as np
import pytest

from surefoot import Predictions, metrics
from surefoot.errors import BadInput
from surefoot.metrics.registry import METRICS

from ..conftest import binary_predictions, random_predictions

TABLE = metrics.metrics_table()
NAMES = list(TABLE)
# Higher is better, or neither; everything else is an error of 0 for perfect predictions.
NOT_ERRORS = {
    "accuracy", "mean_confidence", "auroc_misclassification", "auroc_ovr", "fpr95", "calibration_slope", "brier_skill",
    "top_k_accuracy",
}  # fmt: skip
# Infinite where the data say so, and never NaN: outcomes that are all the same or separable, or impossible.
MAY_BE_INFINITE = {
    "calibration_intercept", "calibration_slope", "calibration_in_the_large", "brier_skill", "spiegelhalter_z",
}  # fmt: skip


def is_number(name, value):
    return not np.isnan(value) if name in MAY_BE_INFINITE else np.isfinite(value)


@pytest.mark.parametrize("name", NAMES)
class TestEveryMetric:
    def test_order_of_rows_does_not_matter(self, name):
        for seed in range(3):
            p = random_predictions(211, 4, seed)
            order = np.random.default_rng(seed).permutation(len(p))
            q = Predictions(np.asarray(p.logits)[order], p.labels[order])
            np.testing.assert_allclose(TABLE[name](q), TABLE[name](p), rtol=0, atol=1e-13)

    def test_ties_do_not_depend_on_order(self, name):
        random = np.random.default_rng(0)
        c = random.choice([0.2, 0.4, 2 / 3, 0.8, 1.0], 150)
        hit = random.random(150) < c
        order = random.permutation(150)
        p = binary_predictions(c, hit)
        q = Predictions.from_probs(p.probs[order], p.labels[order])
        np.testing.assert_allclose(TABLE[name](q), TABLE[name](p), rtol=0, atol=1e-13)

    def test_value_is_a_finite_float_that_knows_n(self, name):
        value = TABLE[name](random_predictions(90, 3))
        assert isinstance(value, float)
        assert np.isfinite(value)
        # Pooled events are a row for each class, of which a threshold takes some.
        if name == "threshold_ece":
            assert 90 < value.n <= 270
        else:
            assert value.n == (270 if name == "event_ece" else 90)
        assert json.loads(json.dumps(value)) == float(value)
        assert pickle.loads(pickle.dumps(value)).facts == value.facts
        assert copy.copy(value).n == value.n

    def test_arrays_are_refused_by_name(self, name):
        with pytest.raises(BadInput, match=r"p must be Predictions; got ndarray.*from_probs"):
            TABLE[name](np.full((3, 2), 0.5))

    @pytest.mark.parametrize("n", [2, 3])
    def test_tiny_data(self, name, n):
        for seed in range(5):
            assert is_number(name, TABLE[name](random_predictions(n, 2, seed)))

    def test_one_row(self, name):
        if name == "skce":
            pytest.skip("pairs of rows: says so, see test_skce")
        assert is_number(name, TABLE[name](random_predictions(1, 3)))

    @pytest.mark.parametrize("right", [True, False])
    def test_saturated_predictions(self, name, right):
        logits = 1e4 * np.eye(3)[np.arange(30) % 3]
        value = TABLE[name](Predictions(logits, (np.arange(30) + (not right)) % 3))
        assert is_number(name, value)
        if right and name not in NOT_ERRORS:
            assert value == pytest.approx(0, abs=1e-12)

    def test_one_label_only(self, name):
        p = random_predictions(60, 4)
        assert is_number(name, TABLE[name](Predictions(p.logits, np.zeros(60, int))))

    def test_all_logits_equal(self, name):
        assert np.isfinite(TABLE[name](Predictions(np.zeros((40, 5)), np.arange(40) % 5)))

    def test_classes_that_never_occur(self, name):
        logits = np.full((50, 6), -np.inf)
        logits[:, :2] = np.random.default_rng(0).normal(size=(50, 2))
        assert np.isfinite(TABLE[name](Predictions(logits, np.arange(50) % 2)))

    def test_shifting_a_row_of_logits_changes_nothing(self, name):
        p = random_predictions(80, 3)
        q = Predictions(np.asarray(p.logits) + np.arange(80)[:, None], p.labels)
        np.testing.assert_allclose(TABLE[name](q), TABLE[name](p), rtol=1e-9, atol=1e-11)

    def test_float32_equals_casting_first(self, name):
        p = random_predictions(100, 4)
        logits = np.asarray(p.logits).astype(np.float32)
        a = TABLE[name](Predictions(logits, p.labels))
        assert a == TABLE[name](Predictions(logits.astype(np.float64), p.labels))

    def test_arguments_are_not_changed(self, name):
        logits = np.random.default_rng(0).normal(size=(70, 3))
        labels = np.arange(70) % 3
        before = logits.copy(), labels.copy()
        TABLE[name](Predictions(logits, labels))
        assert (logits == before[0]).all()
        assert (labels == before[1]).all()

    def test_calibrated_data_tend_to_zero(self, name):
        """Labels drawn from the probabilities: calibration errors vanish with n, the others need not."""
        if name in {"accuracy", "mean_confidence", "nll", "brier", "aurc", "e_aurc", "fpr95"} or "auroc" in name:
            pytest.skip("not a calibration error")
        if name.startswith("calibration_") or name in {"brier_skill", "spiegelhalter_z", "top_k_accuracy"}:
            pytest.skip("a parameter, a test or a score; see test_cox, test_skill and test_top_k")
        if name == "skce":
            pytest.skip("quadratic in n; see test_skce")
        p = random_predictions(200_000, 3, sharp=1.0)
        assert TABLE[name](p) < (0.05 if name == "mce" else 0.012)
        if name != "under_confidence":  # sharper predictions are not underconfident
            assert TABLE[name](p) < 0.2 * TABLE[name](random_predictions(200_000, 3, sharp=2.5))


def test_summary_holds_all_but_the_costly():
    p = random_predictions(200, 4)
    found = metrics.summary(p, bins=10)
    costly = {name for name, entry in METRICS.items() if entry.costly}
    assert {"auroc_ovr", "skce", "ici", "e50", "e90", "top_k_ece", "threshold_ece"} <= costly
    of_two = {"event_ece", "brier_skill", "spiegelhalter_z", "calibration_intercept", "calibration_slope"}
    assert set(found) == set(TABLE) - costly - of_two
    two = random_predictions(200, 2)
    assert of_two <= set(metrics.summary(two))
    one = Predictions.from_probs(two.probs[:, 1], two.labels)
    assert of_two - {"event_ece"} <= set(metrics.summary(one))
    assert not of_two & set(metrics.summary(Predictions.from_confidence(two.confidence, two.correct)))
    for name, value in found.items():
        assert value == metrics.metrics_table(10)[name](p)
    assert found["ece"].bins == 10


def test_every_metric_is_exported():
    for name in TABLE:
        assert name in metrics.__all__
        assert getattr(metrics, name)
