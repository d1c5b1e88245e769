"""Predictions of every kind: one score a row, several labels, positions, soft labels, confidences, weights."""

import numpy as np
import pytest
import torch

from surefoot import Predictions
from surefoot.errors import BadInput
from surefoot.predictions import Events

RANDOM = np.random.default_rng(0)
PROBS = RANDOM.dirichlet(np.ones(3), 50)
LABELS = RANDOM.integers(0, 3, 50)


def both(p1):
    return np.stack([1 - p1, p1], axis=1)


def test_one_probability_a_row_is_the_second_of_two_columns():
    p1, y = PROBS[:, 0], LABELS % 2
    one, two = Predictions.from_probs(p1, y), Predictions.from_probs(both(p1), y)
    for column in ("confidence", "correct", "log_true", "true_margin", "squared_error", "predicted"):
        np.testing.assert_allclose(getattr(one, column), getattr(two, column), rtol=1e-12)
    np.testing.assert_array_equal(one.probs, two.probs)
    np.testing.assert_array_equal(one.events().prob, p1)
    np.testing.assert_array_equal(one.events().happened, y == 1)
    np.testing.assert_array_equal(two.events("positive").prob, p1)
    assert (one.form, two.form) == ("positive", "classes")
    assert two.events().name == "top"


def test_one_logit_a_row():
    z, y = RANDOM.normal(size=40) * 5, LABELS[:40] % 2
    one, two = Predictions(z, y), Predictions(np.stack([np.zeros(40), z], axis=1), y)
    for column in ("confidence", "correct", "log_true", "true_margin", "squared_error", "error_probability"):
        np.testing.assert_allclose(getattr(one, column), getattr(two, column), rtol=1e-12)
    np.testing.assert_allclose(one.events().prob, 1 / (1 + np.exp(-z)), rtol=1e-12)
    np.testing.assert_allclose(one.events().log_odds, z, rtol=1e-12)
    saturated = Predictions([50.0], [1]).events()
    assert saturated.prob[0] == 1.0
    assert saturated.complement[0] == pytest.approx(np.exp(-50), rel=1e-12)
    assert saturated.log_odds[0] == pytest.approx(50)


@pytest.mark.parametrize(
    ("labels", "positive"),
    [([1, 0, 1], None), ([True, False, True], None), (["yes", "no", "yes"], "yes"), ([2, 1, 2], 2), ([0, 1, 0], 0)],
)
def test_labels_of_the_positive_event(labels, positive):
    p = Predictions.from_probs([0.2, 0.6, 0.7], labels, positive=positive)
    assert p.events().happened.tolist() == [True, False, True]


def test_names_of_classes():
    p = Predictions.from_probs(PROBS, np.array(["cat", "dog", "eel"])[LABELS], names=["cat", "dog", "eel"])
    np.testing.assert_array_equal(p.labels, LABELS)
    np.testing.assert_array_equal(p.events("dog").prob, p.probs[:, 1])
    with pytest.raises(BadInput, match="among the names cat, dog, eel; row 1 has 'fox'"):
        Predictions.from_probs(PROBS[:2], ["cat", "fox"], names=["cat", "dog", "eel"])
    with pytest.raises(BadInput, match="which one is the positive event: positive='no' or positive='yes'"):
        Predictions.from_probs([0.5, 0.5], ["yes", "no"])
    with pytest.raises(BadInput, match="'maybe' and another; got 'no', 'yes'"):
        Predictions.from_probs([0.5, 0.5], ["yes", "no"], positive="maybe")


def test_positions_of_tokens_are_rows_and_rows_are_clusters():
    logits, labels = RANDOM.normal(size=(4, 6, 5)), RANDOM.integers(0, 5, (4, 6))
    labels[0, 2:] = -100
    p = Predictions(logits, labels, ignore_index=-100)
    kept = labels.ravel() != -100
    flat = Predictions(logits.reshape(-1, 5)[kept], labels.ravel()[kept])
    np.testing.assert_array_equal(p.log_true, flat.log_true)
    np.testing.assert_array_equal(p.clusters, np.repeat(np.arange(4), 6)[kept])
    weighted = Predictions(logits, labels, weights=[1, 2, 3, 4], ignore_index=-100)
    np.testing.assert_array_equal(weighted.weights, np.repeat([1.0, 2, 3, 4], 6)[kept])
    with pytest.raises(BadInput, match="movedim"):
        Predictions(torch.zeros(4, 5, 6), labels)
    with pytest.raises(BadInput, match="all rows are so"):
        Predictions(logits, np.full((4, 6), -100), ignore_index=-100)


def test_soft_labels():
    soft = RANDOM.dirichlet(np.ones(3), 50)
    p = Predictions.from_probs(PROBS, soft)
    np.testing.assert_allclose(p.log_true, (soft * np.log(PROBS)).sum(1), rtol=1e-12)
    np.testing.assert_allclose(p.squared_error, ((PROBS - soft) ** 2).sum(1), rtol=1e-12)
    np.testing.assert_array_equal(p.correct, soft[np.arange(50), PROBS.argmax(1)])
    hard = Predictions.from_probs(PROBS, np.eye(3)[LABELS])
    np.testing.assert_allclose(hard.log_true, Predictions.from_probs(PROBS, LABELS).log_true, rtol=1e-12)
    assert hard.events().happened.tolist() == Predictions.from_probs(PROBS, LABELS).correct.tolist()
    with pytest.raises(BadInput, match="row 0 sums to 2"):
        Predictions.from_probs(PROBS[:1], [[1.0, 1.0, 0.0]])


def test_several_labels_a_row():
    probs = RANDOM.uniform(size=(20, 4))
    labels = RANDOM.integers(0, 2, (20, 4)).astype(float)
    labels[3, 1] = np.nan
    labels[5, 2] = -1
    p = Predictions.multilabel(probs, labels)
    kept = ~np.isnan(labels) & (labels >= 0)
    assert (len(p), p.missing) == (78, 2)
    np.testing.assert_array_equal(p.events().prob, probs[kept])
    np.testing.assert_array_equal(p.events(1).prob, probs[:, 1][kept[:, 1]])
    np.testing.assert_array_equal(p.clusters, np.repeat(np.arange(20), 4)[kept.ravel()])
    with pytest.raises(BadInput, match="row 0, label 1 has 2"):
        Predictions.multilabel([[0.1, 0.2]], [[0, 2]])
    with pytest.raises(BadInput, match="same shape"):
        Predictions.multilabel([[0.1, 0.2]], [0])


def test_only_a_confidence():
    p = Predictions.from_confidence([0.9, 0.3, 0.6], [1, 1, 0])
    assert p.confidence.tolist() == [0.9, 0.3, 0.6]
    assert p.correct.tolist() == [True, True, False]
    assert p.error_probability.tolist() == [1 - 0.9, 0.7, 0.4]
    np.testing.assert_allclose(p.log_true, np.log([0.9, 0.3, 0.4]))
    with pytest.raises(BadInput, match="no classes"):
        p.events("positive")
    with pytest.raises(BadInput, match=r"confidence must lie in \[0, 1\]; row 1 has 90. These look like percentages"):
        Predictions.from_confidence([0.4, 90.0], [1, 1])


def test_rows_of_weight_zero_are_left_out():
    p = Predictions(np.log(PROBS), LABELS, weights=np.arange(50) % 3)
    np.testing.assert_array_equal(p.labels, LABELS[np.arange(50) % 3 > 0])
    assert p.events().total == (np.arange(50) % 3).sum()


def test_rows_keep_their_columns():
    p = Predictions(np.log(PROBS), LABELS, weights=np.ones(50), clusters=np.arange(50) // 5, groups={"site": LABELS})
    part = p.take([7, 3])
    assert part.clusters.tolist() == [1, 0]
    assert part.groups["site"].tolist() == LABELS[[7, 3]].tolist()
    again = part.with_scores(np.log(PROBS[:2]), "logits")
    assert again.clusters.tolist() == [1, 0]
    assert again.weights.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Predictions(np.clip(PROBS + 0.3, 0, 1), LABELS), "outputs of sigmoids"),
        (lambda: Predictions(PROBS * 100, LABELS), "percentages"),
        (lambda: Predictions(PROBS[:, 0], LABELS % 2), "from_probs"),
        (lambda: Predictions.from_probs(PROBS * 100, LABELS), "percentages"),
        (lambda: Predictions.from_probs(np.log(PROBS), LABELS), r"Predictions\(log_probs, labels\)"),
        (lambda: Predictions.from_probs(np.clip(PROBS + 0.3, 0, 1), LABELS), "multilabel"),
        (lambda: Predictions.from_probs(PROBS[:, 0] * 100, LABELS % 2), "percentages"),
        (lambda: Predictions(np.log(PROBS), LABELS + 1), "subtract 1"),
        (lambda: Predictions(np.log(PROBS), np.array(["a", "b", "c"])[LABELS]), "give names="),
        (lambda: Predictions(np.log(PROBS), LABELS, weights=-np.ones(50)), "weights must be finite"),
        (lambda: Predictions(np.log(PROBS), LABELS, weights=np.zeros(50)), "all are 0"),
        (lambda: Predictions(np.log(PROBS), LABELS, names=["a", "b"]), "names of the 3 classes"),
        (lambda: Predictions(np.log(PROBS), LABELS, names=["a", "b", "a"]), "'a' is repeated"),
        (lambda: Predictions(np.log(PROBS), LABELS, positive="a"), "positive must be"),
    ],
)
def test_what_seems_to_be_something_else_is_refused(make, says):
    with pytest.raises(BadInput, match=says):
        make()


def test_each_row_of_probabilities_is_judged_by_itself():
    one_hot = np.eye(30)[RANDOM.integers(0, 30, 40)]
    one_hot[7] = 0
    with pytest.raises(BadInput, match="row 7 is not: it sums to 0"):
        Predictions.from_probs(one_hot, np.zeros(40, int))
    thousand = RANDOM.dirichlet(np.ones(1000), 5).round(3)
    assert np.abs(thousand.sum(1) - 1).max() > 0.01
    with pytest.raises(BadInput, match="sums to"):
        Predictions.from_probs(thousand, np.zeros(5, int))
    # A rounded row does not excuse another row, whose numbers are exact.
    mixed = np.array([[0.33, 0.33, 0.33], [0.3312345, 0.3312345, 0.3312345]])
    with pytest.raises(BadInput, match="row 1 is not"):
        Predictions.from_probs(mixed, [0, 0])


def test_events_of_arrays():
    e = Events([0.9, 0.9, 0.6], [1, 0, 1], weight=[2, 0, 1], cluster=["a", "b", "a"])
    assert len(e) == 2
    assert e.cluster.tolist() == [0, 0]
    with pytest.raises(BadInput, match="prob must lie in"):
        Events([1.2], [1])
    with pytest.raises(BadInput, match="clusters must have no missing entries; row 1"):
        Events([0.2, 0.3], [1, 0], cluster=[1.0, np.nan])


def test_real_weights_become_integers():
    counts, unit = Events([0.5, 0.5], [1, 0], weight=[0.3, 0.7]).counts()
    assert counts[1] == 1 << 40
    assert abs(counts[0] * unit - 0.3) <= unit / 2
    assert Events([0.5, 0.5], [1, 0], weight=[3, 7]).counts()[0].tolist() == [3, 7]
