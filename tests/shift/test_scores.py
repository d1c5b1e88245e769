"""Scores of familiarity: closed forms, saturated rows that do not tie, and ranking against pairs counted by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from surefoot import Predictions, metrics
from surefoot.errors import BadInput
from surefoot.shift import SCORES, auroc_ood, fpr95_ood, ood_scores
from tests.conftest import random_predictions


def test_closed_forms():
    z = np.array([[2.0, 0.5, -1.0], [0.1, 0.0, 0.2]])
    p = Predictions(z, [0, 0])
    probs = p.probs
    assert np.allclose(ood_scores(p), -np.log(1 - probs.max(1)))
    assert np.allclose(ood_scores(p, "entropy"), -np.log(-(probs * np.log(probs)).sum(1)))
    assert np.allclose(ood_scores(p, "energy"), np.log(np.exp(z).sum(1)))
    assert np.allclose(ood_scores(p, "max_logit"), z.max(1))
    assert np.allclose(ood_scores(p, "margin"), [1.5, 0.1])


@pytest.mark.parametrize("score", SCORES)
def test_saturated_rows_do_not_tie(score):
    """Confidences that all round to 1, beyond where even 1 − c underflows, are still told apart."""
    gaps = np.array([40.0, 50.0, 400.0, 800.0, 900.0])
    p = Predictions(np.stack([gaps, np.zeros(5), np.zeros(5)], 1), np.zeros(5, int))
    assert (p.confidence == 1).all()
    assert (np.diff(ood_scores(p, score)) > 0).all()
    inside, outside = p.take([2, 3, 4]), p.take([0, 1])
    assert auroc_ood(inside, outside, score) == 1
    assert auroc_ood(outside, inside, score) == 0


def test_certain_rows():
    p = Predictions.from_probs([[1.0, 0.0], [0.5, 0.5]], [0, 0])
    for score in ("max_probability", "entropy"):
        assert ood_scores(p, score)[0] == np.inf
    assert auroc_ood(p.take([0]), p.take([1])) == 1
    assert auroc_ood(p.take([0]), p.take([0])) == 0.5


@given(st.integers(0, 10_000), st.sampled_from(sorted(SCORES)))
def test_against_scikit_learn_and_pairs(seed, score):
    random = np.random.default_rng(seed)
    # Few values: ties within and across the sets.
    a, b = (Predictions(random.integers(0, 4, (n, 3)) * 1.5 + 5, np.zeros(n, int)) for n in random.integers(1, 30, 2))
    one, two = ood_scores(a, score), ood_scores(b, score)
    truth = np.r_[np.ones(len(a)), np.zeros(len(b))]
    assert auroc_ood(a, b, score) == pytest.approx(roc_auc_score(truth, np.r_[one, two]))
    wins = (one[:, None] > two).mean() + 0.5 * (one[:, None] == two).mean()
    assert auroc_ood(a, b, score) == pytest.approx(wins)
    threshold = max(t for t in one if (one >= t).mean() >= 0.95)
    assert fpr95_ood(a, b, score) == pytest.approx((two >= threshold).mean())


def test_one_implementation_of_ranking():
    """Right rows as insiders and wrong ones as outsiders are the misclassification statistics."""
    p = random_predictions(400, 4, seed=3)
    right, wrong = p.take(p.correct), p.take(~p.correct)
    assert auroc_ood(right, wrong) == pytest.approx(metrics.auroc_misclassification(p), abs=1e-12)
    assert fpr95_ood(right, wrong) == metrics.fpr95(p)
    assert auroc_ood(right, wrong).facts == {"n": 400, "pairs": len(right) * len(wrong), "score": "max_probability"}


def test_bad_input():
    p = random_predictions(10, 3)
    with pytest.raises(BadInput, match="did you mean 'entropy'"):
        ood_scores(p, "entropi")
    with pytest.raises(BadInput, match="in_distribution must be Predictions"):
        auroc_ood([[1.0, 2.0]], p)
    with pytest.raises(BadInput, match="3 and 4 classes"):
        auroc_ood(p, random_predictions(10, 4))
    with pytest.raises(BadInput, match="energy needs logits"):
        ood_scores(Predictions.from_probs(p.probs, p.labels), "energy")
