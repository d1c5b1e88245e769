import dataclasses
import re

import numpy as np
import pytest

from surefoot import Predictions
from surefoot.errors import BadInput
from surefoot.metrics import metrics_table
from surefoot.posthoc import Temperature, check_splits, compare
from surefoot.reports.recalibration import outcome_sentences

from .test_calibrators import calibrated


def test_no_change_is_noise_with_no_width():
    p = calibrated(300, 3)
    same = compare(p, p, resamples=20)
    assert same.answers_changed == 0
    assert all(c.change == c.low == c.high == 0 and c.verdict == "noise" for c in same.changes)


def test_a_repair_is_better_and_its_undoing_worse():
    before = calibrated(2000, 3, 1, 3.0)
    after = Temperature().fit(calibrated(2000, 3, 0, 3.0)).apply(before)
    there, back = compare(before, after, resamples=100), compare(after, before, resamples=100)
    for metric in ("nll", "ece", "brier", "kce"):
        assert there[metric].verdict == "better"
        assert back[metric].verdict == "worse"
        assert there[metric].low <= there[metric].change <= there[metric].high
        assert there[metric].change == pytest.approx(there[metric].after - there[metric].before)
    assert there["accuracy"].verdict == "noise"
    # Higher is better here: confidence that ranks nothing, made to rank.
    flat = Predictions(
        np.sign(np.asarray(before.logits) - np.asarray(before.logits).max(1, keepdims=True)), before.labels
    )
    assert compare(flat, before, metrics=["auroc_misclassification"], resamples=50).changes[0].verdict == "better"
    with pytest.raises(BadInput, match="metric must be one of"):
        there["error"]


def test_the_interval_covers_the_true_change():
    """Of the NLL, whose true change between two temperatures is known from a million rows."""
    big = calibrated(400_000, 3, 99, 2.0)
    scaled = Predictions(np.asarray(big.logits) / 1.5, big.labels)
    truth = float(-(scaled.log_true.mean() - big.log_true.mean()))
    covered = 0
    for seed in range(40):
        p = calibrated(400, 3, seed, 2.0)
        q = Predictions(np.asarray(p.logits) / 1.5, p.labels)
        change = compare(p, q, metrics=["nll"], resamples=200, seed=seed)["nll"]
        covered += change.low <= truth <= change.high
    assert covered >= 34  # 95 % of 40 is 38; below 34 has a chance under 0.5 %


def test_coarser_is_not_better():
    """A calibrated model against its own mean: at most 10 of 100 (chance of more at 5 %: 1 %).

    The bootstrap of plug-in errors had 22 % (ECE), 36 % (adaptive ECE) and 11 % (KCE).
    """
    found = dict.fromkeys(("ece", "adaptive_ece", "kce"), 0)
    for seed in range(100):
        random = np.random.default_rng(seed)
        c = 0.5 + 0.5 * random.random(200)
        labels = (random.random(200) >= c).astype(int)
        fine = Predictions.from_probs(np.stack([c, 1 - c], 1), labels)
        flat = Predictions.from_probs([[0.75, 0.25]] * 200, labels)
        for name in found:
            found[name] += compare(fine, flat, metrics=[name], seed=seed)[name].verdict != "noise"
    assert max(found.values()) <= 10, found


def test_the_evidence_names_the_tests_that_reject():
    before = calibrated(2000, 3, 1, 3.0)
    after = Predictions(np.asarray(before.logits) / 3.0, before.labels)
    found = compare(before, after, metrics=["nll", "ece", "mce", "accuracy"], resamples=20)
    methods = {change.metric: change.method for change in found.changes}
    assert methods == {"nll": "t", "ece": "flips and t", "mce": "bootstrap", "accuracy": "t"}
    assert re.fullmatch(r"the paired t-test rejects \(p < 0\.0001\)", found["nll"].evidence)
    assert re.fullmatch(r"both tests reject \(sign flips: p = 0\.001; t: p < 0\.0001\)", found["ece"].evidence)
    assert found["mce"].evidence == ""
    assert found["accuracy"].evidence == "the paired t-test does not reject (p = 1)"
    assert found["ece"].debiased != found["ece"].change
    assert found["nll"].debiased == found["nll"].change
    assert any(
        "interval of the debiased change" in sentence and "both tests reject" in sentence
        for sentence in outcome_sentences(found)
    )
    change = found["ece"]
    for p_flips, p_t, word in (
        (0.2, 0.3, "neither test"),
        (0.01, 0.3, "only the sign-flip"),
        (0.3, 0.01, "only the t "),
    ):
        assert dataclasses.replace(change, p_flips=p_flips, p_t=p_t, low=-1.0, high=1.0).evidence.startswith(word)
    opposed = dataclasses.replace(change, p_flips=0.01, p_t=0.01, low=-1.0, high=1.0)
    assert opposed.verdict == "noise"
    assert "on different sides" in opposed.evidence


def test_few_kinds_of_metrics_resample_rows():
    """The default metrics need no resampling of the rows."""
    p = calibrated(300, 3)
    calls = []
    for metrics in (None, ["mce"]):
        calls.clear()
        compare(p, p, metrics, resamples=10, progress=lambda *call: calls.append(call))
        assert calls[-1] == (10, 10)
    assert len(calls) == 11
    compare(p, p, resamples=10, progress=lambda *call: calls.append(call))
    assert len(calls) == 12


def test_a_difference_of_infinities_is_undefined():
    z = np.array([[0.0, -np.inf]] + [[3.0, 0.0], [0.0, 3.0]] * 50)
    p = Predictions(z, [1] + [0, 1] * 40 + [1, 0] * 10)
    found = compare(p, Temperature().fit(p).apply(p), metrics=["nll", "brier"], resamples=50)
    change = found["nll"]
    assert np.isnan([change.change, change.low, change.high]).all()
    assert change.verdict == "undefined"
    assert found["brier"].verdict != "undefined"
    assert (found.impossible_before, found.impossible_after) == (1, 1)
    soft = Predictions(np.maximum(z, -5), p.labels)
    assert compare(p, soft, metrics=["nll"], resamples=50)["nll"].change == -np.inf


def test_too_few_rows_get_no_verdict():
    before = calibrated(20, 3, 1, 30.0)
    after = Predictions(np.asarray(before.logits) / 30, before.labels)
    assert compare(before, after, metrics=["nll"], resamples=50)["nll"].verdict != "too few rows"
    rows = np.arange(19)
    few = compare(before.take(rows), after.take(rows), metrics=["nll", "ece"], resamples=50)
    assert {c.verdict for c in few.changes} == {"too few rows"}


def test_bad_pairs():
    p = calibrated(30, 3)
    with pytest.raises(BadInput, match="same rows"):
        compare(p, calibrated(31, 3))
    with pytest.raises(BadInput, match="after must be Predictions"):
        compare(p, np.zeros((30, 3)))
    with pytest.raises(BadInput, match="metrics must be among"):
        compare(p, p, metrics=["error"])


def test_doubts():
    big, other = calibrated(2000, 3, 0), calibrated(2000, 3, 1)
    assert check_splits(big, other) == []
    assert "third set" in check_splits(big, other, used_before=True)[0]
    assert "small" in check_splits(calibrated(60, 3), other)[0]
    skewed = other.take(np.flatnonzero(other.labels != 2))
    assert "distributed differently" in check_splits(big, skewed)[0]
    assert "same rows" in check_splits(big, big)[0]
    learned = Predictions(big.logits, big.predicted)
    assert any("is it the training set?" in said for said in check_splits(learned, other))
    assert not any("training set" in said for said in check_splits(other, learned))  # the other way round is bad luck
    assert not any("training set" in said for said in check_splits(learned, learned.take(np.arange(700))))
    z = np.asarray(big.logits).copy()
    z[np.arange(3), big.labels[:3]] = -np.inf
    assert any("3 of the 2,000 validation rows" in said for said in check_splits(Predictions(z, big.labels), other))
    with pytest.raises(BadInput, match="got 3 and 2 classes"):
        check_splits(big, calibrated(100, 2))
    with pytest.raises(BadInput, match="val must be Predictions"):
        check_splits(np.zeros((3, 2)), big)


def of_form(form, rows):
    """Overconfident predictions, and the same at their true temperature, of ``rows`` of 400 rows."""
    random = np.random.default_rng(0)
    odds = random.normal(size=400)
    happened = random.random(400) < 1 / (1 + np.exp(-odds))
    pairs = []
    for scale in (2.5, 1.0):
        prob = (1 / (1 + np.exp(-scale * odds)))[rows]
        made = {
            "classes": lambda scale=scale: Predictions(
                scale * np.stack([0 * odds, odds, -odds], 1)[rows] + 3, (happened[rows]).astype(int)
            ),
            "positive": lambda prob=prob: Predictions.from_probs(prob, happened[rows]),
            "multilabel": lambda prob=prob: Predictions.multilabel(prob[:, None], happened[rows][:, None]),
            "confidence": lambda prob=prob: Predictions.from_confidence(prob, happened[rows]),
            "soft": lambda scale=scale: Predictions(
                scale * np.stack([0 * odds, odds], 1)[rows] + 3,
                0.05 + 0.9 * np.eye(2)[happened[rows].astype(int)],
            ),
        }[form]()
        pairs.append(made)
    return pairs


def carrying(p, weights=None, clusters=None):
    """The same rows with weights and clusters."""
    q = p.take(slice(None))
    q.weights = None if weights is None else np.asarray(weights, dtype=np.float64)
    q.clusters = None if clusters is None else np.asarray(clusters)
    return q


FORMS = ["classes", "positive", "multilabel", "confidence", "soft"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_compared(form):
    before, after = of_form(form, np.arange(400))
    found = compare(before, after, resamples=50)
    assert {"accuracy", "nll", "brier", "ece", "adaptive_ece", "kce"} <= {c.metric for c in found.changes}
    # Soft labels are drawn towards one half, so that the probabilities are too extreme after too.
    assert found["nll"].verdict == found["brier"].verdict == "better"
    assert all(np.isfinite([c.low, c.high]).all() for c in found.changes)
    assert outcome_sentences(found)
    for change in found.changes:
        assert change.before_interval.low <= change.before_interval.high
        assert change.before == pytest.approx(float(metrics_table()[change.metric](before)))
    if form != "multilabel":
        assert found["ece"].clusters is None


@pytest.mark.parametrize("form", FORMS)
def test_integer_weights_are_clusters_of_repeated_rows(form):
    """Estimates, tests and intervals of means and bins of equal width agree to rounding; those of ties nearly."""
    counts = np.random.default_rng(1).integers(1, 5, 400)
    rows = np.repeat(np.arange(400), counts)
    one = [carrying(p, counts) for p in of_form(form, np.arange(400))]
    many = [carrying(p, None, rows) for p in of_form(form, rows)]
    a, b = compare(*one, resamples=50), compare(*many, resamples=50)
    for name in (c.metric for c in a.changes):
        x, y = a[name], b[name]
        np.testing.assert_allclose([x.before, x.after, x.change], [y.before, y.after, y.change], rtol=0, atol=1e-12)
        loose = name in ("adaptive_ece", "kce")
        np.testing.assert_allclose(
            [x.debiased, x.low, x.high, x.p_t, x.p_flips],
            [y.debiased, y.low, y.high, y.p_t, y.p_flips],
            rtol=0,
            atol=0.01 if loose else 1e-9,
        )
        if not loose and name != "accuracy":
            np.testing.assert_allclose(x.before_interval, y.before_interval, rtol=0, atol=1e-9)
    plain = compare(*of_form(form, np.arange(400)), resamples=50)
    assert abs(plain["nll"].change - a["nll"].change) > 1e-4


def test_the_scale_of_real_weights_does_not_matter():
    weights = np.random.default_rng(1).uniform(0.1, 3, 400)
    pair = of_form("positive", np.arange(400))
    a, b = (compare(*[carrying(p, factor * weights) for p in pair], resamples=50) for factor in (1, 7.3))
    for x, y in zip(a.changes, b.changes, strict=True):
        np.testing.assert_allclose([x.debiased, x.low, x.high], [y.debiased, y.low, y.high], rtol=0, atol=1e-9)


def test_two_classes_are_judged_by_the_positive_event():
    """.3 and .7 where the event happens .4 and .8 of the time: top-label errors of opposite sign cancel."""
    y = np.array([1] * 400 + [0] * 600 + [1] * 800 + [0] * 200)
    said, true = (np.repeat(values, 1000) for values in ([0.3, 0.7], [0.4, 0.8]))
    two = [Predictions.from_probs(np.stack([1 - c, c], 1), y) for c in (said, true)]
    found = compare(*two)
    assert found["ece"].before < 1e-12
    assert found["event_ece"].before == pytest.approx(0.1)
    assert found["event_ece"].verdict == "better"
    assert found["event_ece"].method == "flips and t"
    one = compare(*(Predictions.from_probs(c, y) for c in (said, true)))
    assert one["ece"].before == pytest.approx(0.1)
    assert (one["ece"].low, one["ece"].p_flips) == pytest.approx((found["event_ece"].low, found["event_ece"].p_flips))


def test_clusters_of_the_predictions_widen_the_verdict():
    """Copies of rows as clusters are no news, and without clusters they are taken for news."""
    before, after = of_form("positive", np.repeat(np.arange(400), 5))
    clusters = np.repeat(np.arange(400), 5)
    blind = compare(before, after)
    found = compare(carrying(before, None, clusters), carrying(after, None, clusters))
    for name in ("nll", "ece", "kce", "brier"):
        ratio = (found[name].high - found[name].low) / (blind[name].high - blind[name].low)
        assert 1.5 < ratio < 3.2, name  # √5 for a mean
    few = [carrying(p, None, clusters // 50) for p in (before, after)]
    judged = compare(*few)
    assert judged["nll"].verdict == "too few clusters"
    assert "too few clusters to judge (8 of at least 10)" in outcome_sentences(judged)[0]


def test_null_rates_with_clusters():
    """Of two equally wrong models with clusters of 20 rows, at most 16 of 120 (chance of more at 5 %: under 0.1 %)."""
    rejected = dict.fromkeys(("nll", "ece", "brier", "kce"), 0)
    for seed in range(120):
        random = np.random.default_rng(seed)
        shared = np.repeat(random.normal(size=30), 20)
        odds = random.normal(size=600)
        happened = random.random(600) < 1 / (1 + np.exp(-odds - shared))
        flip = np.repeat(random.random(30) < 0.5, 20)
        pair = [
            Predictions(1.5 * odds + np.where(flip == side, 0.4, -0.4), happened, clusters=np.repeat(np.arange(30), 20))
            for side in (True, False)
        ]
        found = compare(*pair, metrics=list(rejected), resamples=20, seed=seed)
        for name in rejected:
            rejected[name] += found[name].verdict != "noise"
    assert max(rejected.values()) <= 16, rejected


def test_rows_that_carry_something_else_are_refused():
    before, after = of_form("positive", np.arange(400))
    for change, word in (({"weights": np.ones(400)}, "weights"), ({"clusters": np.arange(400)}, "clusters")):
        with pytest.raises(BadInput, match=f"same rows with the same {word}"):
            compare(before, carrying(after, **change))
    with pytest.raises(BadInput, match="same form; got 'positive' and 'confidence'"):
        compare(before, of_form("confidence", np.arange(400))[1])


def test_splits_of_clusters_and_weights():
    """Few clusters, whose labels differ by chance, are no reason; neither are repetitions."""
    random = np.random.default_rng(3)
    labels = np.repeat(random.integers(0, 2, 60), 20)
    p = Predictions(random.normal(size=1200), labels, clusters=np.repeat(np.arange(60), 20))
    val, test = p.take(np.flatnonzero(np.arange(1200) < 600)), p.take(np.flatnonzero(np.arange(1200) >= 600))
    differ = "distributed differently"
    assert any(differ in said for said in check_splits(carrying(val), carrying(test)))
    assert not any(differ in said for said in check_splits(val, test))
    small = calibrated(600, 2, 0), calibrated(600, 2, 4)
    heavy = [carrying(p, np.where(p.labels == index, 30, 25)) for index, p in enumerate(small)]
    assert not any(differ in said for said in check_splits(*heavy))


@pytest.mark.parametrize("name", ["smooth_ece", "classwise_ece"])
def test_the_bootstrap_draws_whole_clusters(name):
    """Copies of rows as clusters give the interval of the rows; without clusters it is narrower."""
    once = compare(*of_form("classes", np.arange(400)), metrics=[name], resamples=200)[name]
    rows = np.repeat(np.arange(400), 6)
    before, after = of_form("classes", rows)
    blind = compare(before, after, metrics=[name], resamples=200)[name]
    found = compare(carrying(before, None, rows), carrying(after, None, rows), metrics=[name], resamples=200)[name]
    assert found.method == "bootstrap"
    assert found.high - found.low == pytest.approx(once.high - once.low, rel=0.3)
    assert blind.high - blind.low < 0.65 * (found.high - found.low)
