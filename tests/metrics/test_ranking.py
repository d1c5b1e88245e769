import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from surefoot import Predictions, metrics

from ..conftest import binary_predictions, random_predictions

ROWS = st.lists(st.tuples(st.sampled_from([0.5, 0.6, 0.7, 0.9, 1.0]), st.booleans()), min_size=2, max_size=12)


@given(ROWS)
def test_auroc_against_all_pairs(rows):
    c, hit = (np.array(column) for column in zip(*rows, strict=True))
    value = metrics.auroc_misclassification(binary_predictions(c, hit))
    pairs = [(a > b) + (a == b) / 2 for a in c[hit] for b in c[~hit]]
    np.testing.assert_allclose(value, np.mean(pairs) if pairs else 0.5)
    assert value.pairs == len(pairs)


@given(ROWS)
def test_fpr95_against_every_threshold(rows):
    c, hit = (np.array(column) for column in zip(*rows, strict=True))
    value = metrics.fpr95(binary_predictions(c, hit))
    if not hit.any() or hit.all():
        assert value == 0.95
        assert value.pairs == 0
        return
    rates = [(np.mean(c[~hit] >= t), np.mean(c[hit] >= t)) for t in c]
    assert value == min(false for false, true in rates if true >= 0.95)


@given(ROWS)
def test_aurc_is_the_mean_over_orders_of_ties(rows):
    c, hit = (np.array(column) for column in zip(*rows, strict=True))
    random = np.random.default_rng(0)
    n = len(c)
    values = []
    for _ in range(400):
        order = np.lexsort((random.random(n), -c))
        values.append((np.cumsum(~hit[order]) / np.arange(1, n + 1)).mean())
    error = 4 * np.std(values) / 20 + 1e-12
    assert abs(metrics.aurc(binary_predictions(c, hit)) - np.mean(values)) <= error


def test_against_scikit_learn():
    p = random_predictions(800, 6)
    np.testing.assert_allclose(metrics.auroc_misclassification(p), roc_auc_score(p.correct, p.confidence), rtol=1e-12)
    expected = roc_auc_score(p.labels, p.probs, multi_class="ovr")
    np.testing.assert_allclose(metrics.auroc_ovr(p), expected, rtol=1e-12)
    false, true, _ = roc_curve(p.correct, p.confidence, drop_intermediate=False)
    np.testing.assert_allclose(metrics.fpr95(p), false[np.argmax(true >= 0.95)])


def test_saturated_confidences_are_still_ranked():
    margins = np.linspace(40, 300, 50)
    p = Predictions(np.stack([margins, np.zeros(50)], 1), (margins < 100).astype(int))
    assert (p.confidence == 1).all()
    assert metrics.auroc_misclassification(p) == 1
    assert metrics.auroc_ovr(p) == 1


def test_excess_is_zero_for_an_ideal_ranking():
    c = np.linspace(0.5, 1, 20_001)
    p = binary_predictions(c, c > 0.6)
    assert 0 <= metrics.e_aurc(p) < 1e-4
    worst = binary_predictions(c, c < 0.9)
    assert metrics.e_aurc(worst) > 0.1


@pytest.mark.parametrize("hit", [True, False])
def test_nothing_to_rank_is_chance_and_said(hit):
    p = binary_predictions(np.linspace(0.5, 0.9, 10), np.full(10, hit))
    assert metrics.auroc_misclassification(p) == 0.5
    assert metrics.auroc_misclassification(p).pairs == 0
    assert metrics.aurc(p) == (0 if hit else 1)
    assert abs(metrics.e_aurc(p)) < 1e-12


def test_absent_classes_are_left_out_and_counted():
    p = random_predictions(300, 6)
    rows = p.take(p.labels < 4)
    value = metrics.auroc_ovr(rows)
    assert value.classes == 4
    single = metrics.auroc_ovr(p.take(p.labels == 2))
    assert (single, single.classes) == (0.5, 0)
