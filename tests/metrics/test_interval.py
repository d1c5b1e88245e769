import pickle
from functools import partial

import numpy as np
import pytest
from scipy.special import ndtr

from surefoot import Predictions, metrics
from surefoot.errors import BadInput
from surefoot.metrics.ece import classwise_resampled

from ..conftest import binary_predictions, random_predictions

TABLE = metrics.metrics_table()


def shifted(n, gap, seed):
    """Confidences whose true accuracy lies ``gap`` below them everywhere: every binned error is the gap."""
    random = np.random.default_rng(seed)
    c = 0.55 + 0.45 * random.random(n)
    return binary_predictions(c, random.random(n) < c - gap)


@pytest.mark.parametrize(("count", "least"), [(8, 5), pytest.param(40, 31, marks=pytest.mark.slow)])
@pytest.mark.parametrize("gap", [0.0, 0.03, 0.15])
def test_coverage_of_known_truths(gap, count, least):
    """90 % intervals hold the truth in at least 5 of 8 or 31 of 40 data sets (chance of fewer: under 1 %)."""
    names = ["ece", "adaptive_ece", "rmsce", "debiased_ece", "kce"]
    held = dict.fromkeys(names, 0)
    for seed in range(count):
        p = shifted(400, gap, seed)
        found = metrics.intervals({name: TABLE[name] for name in names}, p, level=0.9, resamples=80)
        truth = dict.fromkeys(names, gap) | {"kce": gap * kernel_norm(p)}
        for name in names:
            held[name] += found[name].low <= truth[name] <= found[name].high
    assert min(held.values()) >= least, held


def kernel_norm(p):
    """√ of the mean kernel value: the kernel error of a constant gap of 1."""
    return np.exp(-np.abs(p.confidence[:, None] - p.confidence) / 0.4).mean() ** 0.5


def test_the_percentile_interval_would_fail_here():
    """Why the correction is there: no resampled ECE of a calibrated model is near its true 0."""
    p = shifted(400, 0.0, 0)
    random = np.random.default_rng(0)
    draws = [metrics.ece(p.take(random.integers(0, 400, 400))) for _ in range(200)]
    assert np.quantile(draws, 0.025) > 0.02
    assert metrics.interval(metrics.ece, p).low == 0


@pytest.mark.parametrize("name", [name for name in TABLE if name != "skce"])
def test_every_metric_has_an_interval_around_it(name):
    p = random_predictions(300, 4)
    value = TABLE[name](p)
    found = metrics.interval(TABLE[name], p, resamples=40)
    assert found.low <= found.high
    assert np.isfinite(found).all()
    assert found.high >= value - abs(value) / 2
    assert found.method


def test_methods_are_stated():
    p = random_predictions(100, 3)
    methods = {name: metrics.interval(TABLE[name], p, resamples=20).method for name in ("accuracy", "nll", "ece")}
    assert methods == {
        "accuracy": "Wilson",
        "nll": "Student's t",
        "ece": "bias-corrected bootstrap of squares, from bin sums",
    }
    rows = {name: metrics.interval(TABLE[name], p, resamples=20).method for name in ("classwise_ece", "aurc")}
    assert rows == {"classwise_ece": "bias-corrected bootstrap of squares", "aurc": "percentile bootstrap"}
    squared = metrics.interval(partial(metrics.kce, squared=True), p, resamples=20)
    assert squared.method == "bias-corrected bootstrap, from bin sums"
    own = metrics.interval(lambda p: float(p.true_margin.mean()), p, resamples=20)
    assert own.method == "bias-corrected bootstrap"
    assert own.low < p.true_margin.mean() < own.high


def test_same_seed_same_interval(p):
    a, b = (metrics.interval(metrics.kce, p, seed=3, resamples=20) for _ in range(2))
    assert a == b
    assert a != metrics.interval(metrics.kce, p, seed=4, resamples=20)


def test_order_of_rows_hardly_matters(p):
    """The rows are put in the order of their confidence before they are drawn."""
    q = p.take(np.random.default_rng(0).permutation(len(p)))
    assert metrics.interval(metrics.ece, p, resamples=20) == metrics.interval(metrics.ece, q, resamples=20)


def test_classwise_in_one_sweep_equals_one_by_one():
    p = random_predictions(200, 7)
    random = np.random.default_rng(0)
    times = random.integers(0, 3, (5, 200))
    found = classwise_resampled(p, times.astype(np.float32), 10)
    for line, value in zip(times, found, strict=True):
        expected = metrics.classwise_ece(p.take(np.repeat(np.arange(200), line)), 10)
        np.testing.assert_allclose(value, expected, rtol=1e-6)


def test_an_infinite_score_keeps_an_interval():
    from surefoot import Predictions

    p = Predictions([[0.0, -np.inf], [0.0, 1.0]] * 20, [1, 0] * 20)
    low, high = metrics.interval(metrics.nll, p, resamples=20)
    assert high == np.inf
    assert not np.isnan(low)


def test_resamples_with_nothing_to_rank_are_left_out():
    """One error in 200 rows: a third of the resamples has none, and says nothing of its rank."""
    c = np.linspace(0.5, 0.99, 200)
    p = binary_predictions(c, c > 0.5)
    low, high = metrics.interval(metrics.auroc_misclassification, p, resamples=60)
    assert low == high == 1


@pytest.mark.parametrize(
    "arguments", [{"resamples": 10.5}, {"resamples": "a"}, {"seed": -1}, {"level": "a"}, {"level": None}]
)
def test_bad_arguments(p, arguments):
    with pytest.raises(BadInput, match=next(iter(arguments))):
        metrics.interval(metrics.ece, p, **arguments)


def test_a_metric_that_is_none(p):
    for metric in (3, lambda p: float("nan"), lambda p: "x"):
        with pytest.raises(BadInput, match="metric must"):
            metrics.interval(metric, p, resamples=20)


def test_a_single_row():
    p = random_predictions(1, 3)
    for name in ("ece", "nll", "accuracy", "classwise_ece"):
        low, high = metrics.interval(TABLE[name], p, resamples=20)
        assert low <= high


def test_intervals_are_pairs_that_travel(p):
    found = metrics.interval(metrics.ece, p, resamples=20)
    assert tuple(pickle.loads(pickle.dumps(found))) == tuple(found)
    assert pickle.loads(pickle.dumps(found)).method == found.method
    with pytest.raises(BadInput, match="resamples"):
        metrics.interval(metrics.ece, p, resamples=3)


def drawn(n, seed, temperature=1.5):
    """Three classes, logits too large by the factor ``temperature``."""
    random = np.random.default_rng(seed)
    z = 2 * random.standard_normal((n, 3))
    return Predictions(temperature * z, (z + random.gumbel(size=z.shape)).argmax(1))


def test_coverage_of_means_and_of_the_auroc():
    """95 % intervals hold the value of 400,000 rows in at least 178 of 200 data sets (chance of fewer: under 0.1 %)."""
    names = ["nll", "brier", "mean_confidence", "auroc_misclassification"]
    big = drawn(400_000, 999)
    truth = {name: TABLE[name](big) for name in names}
    held = dict.fromkeys(names, 0)
    for seed in range(200):
        found = metrics.intervals({name: TABLE[name] for name in names}, drawn(300, seed))
        for name in names:
            held[name] += found[name].low <= truth[name] <= found[name].high
    assert min(held.values()) >= 178, held
    assert found["nll"].method == "Student's t"
    assert found["auroc_misclassification"].method == "DeLong"


def test_delong_against_the_definition():
    """The variance from the placements of every pair; AUROC of ties counts half."""
    p = random_predictions(60, 3)
    error = np.round(p.error_probability, 1)
    p._cache["error_probability"] = error  # with ties
    hit, miss = error[p.correct], error[~p.correct]
    wins = (hit[:, None] < miss) + 0.5 * (hit[:, None] == miss)
    area = wins.mean()
    parts = np.concatenate([(wins.mean(1) - area) / len(hit), (wins.mean(0) - area) / len(miss)])
    deviation = np.sqrt(60 / 59 * (parts**2).sum()) / (area * (1 - area))
    found = metrics.interval(metrics.auroc_misclassification, p)
    middle = np.log(area / (1 - area))
    np.testing.assert_allclose(
        np.log(np.array(found) / (1 - np.array(found))), middle + 1.959964 * np.array([-1, 1]) * deviation, rtol=1e-6
    )


def clustered(groups, gap, seed):
    """Twenty rows in each cluster, whose errors correlate by a normal copula."""
    random = np.random.default_rng(seed)
    c = 0.55 + 0.4 * random.random(20 * groups)
    shared = np.repeat(random.standard_normal(groups), 20)
    hit = ndtr(0.12**0.5 * shared + 0.88**0.5 * random.standard_normal(len(c))) < c - gap
    return binary_predictions(c, hit), np.repeat(np.arange(groups), 20)


def test_clusters_widen_intervals_enough():
    """95 % intervals of clusters hold the truth in at least 129 of 150 data sets (chance of fewer: under 0.1 %).

    Intervals of rows hold the mean in about 82 %.
    """
    names = ["accuracy", "ece", "adaptive_ece", "rmsce"]
    held, by_rows = dict.fromkeys(names, 0), 0
    for seed in range(150):
        p, groups = clustered(40, 0.06, seed)
        p.clusters = groups
        found = metrics.intervals({name: TABLE[name] for name in names}, p, resamples=200)
        truth = dict.fromkeys(names, 0.06) | {"accuracy": 0.75 - 0.06}
        for name in names:
            held[name] += found[name].low <= truth[name] <= found[name].high
        low, high = metrics.interval(metrics.accuracy, p, clusters=np.arange(len(p)))
        by_rows += low <= truth["accuracy"] <= high
    assert min(held.values()) >= 129, held
    assert by_rows < 135
    assert found["accuracy"].method == "Student's t of clusters"


@pytest.mark.parametrize("name", ["accuracy", "nll", "ece", "kce", "auroc_misclassification", "aurc", "classwise_ece"])
def test_copies_of_rows_as_clusters_are_no_news(name, p):
    """Every row three times, as a cluster: the interval of the rows themselves, which is narrower without clusters."""
    again = np.random.default_rng(0).permutation(np.repeat(np.arange(len(p)), 3))
    q = p.take(again)
    once = metrics.interval(TABLE[name], p, resamples=400)
    tripled = metrics.interval(TABLE[name], q, resamples=400, clusters=again)
    blind = metrics.interval(TABLE[name], q, resamples=400)
    width, expected = tripled.high - tripled.low, once.high - once.low
    assert width == pytest.approx(expected, rel=0.25)
    assert blind.high - blind.low < 0.85 * width


def carrying(p, weights=None, clusters=None):
    """The same rows with weights and clusters."""
    return Predictions(p.logits, p.labels, weights, clusters)


def test_the_clusters_of_predictions_are_the_default(p):
    groups = np.arange(len(p)) // 4
    for name in ("accuracy", "ece", "aurc", "classwise_ece"):
        named = metrics.interval(TABLE[name], p, resamples=100, clusters=groups)
        assert metrics.interval(TABLE[name], carrying(p, None, groups), resamples=100) == named
        assert metrics.interval(TABLE[name], p, resamples=100) != named


@pytest.mark.parametrize("name", [name for name in TABLE if name not in ("skce", "auroc_ovr", "sweep_ece")])
def test_integer_weights_are_clusters_of_repeated_rows(name, p):
    """The interval of weighted rows is that of repeated rows, each row with its copies a cluster."""
    counts = np.random.default_rng(2).integers(1, 5, len(p))
    rows = np.repeat(np.arange(len(p)), counts)
    if name not in metrics.registry.applicable(p):
        pytest.skip("needs two classes")
    one = metrics.interval(TABLE[name], carrying(p, counts), resamples=200)
    many = metrics.interval(TABLE[name], p.take(rows), resamples=200, clusters=rows)
    exact = {"mean_confidence", "nll", "brier", "ece", "mce", "rmsce", "kce", "accuracy"}
    width = many.high - many.low
    np.testing.assert_allclose(one, many, rtol=0, atol=1e-9 if name in exact else 0.35 * width)
    plain = metrics.interval(TABLE[name], p, resamples=200)
    assert max(abs(plain.low - one.low), abs(plain.high - one.high)) > 1e-5
    for factor in (0.37, 7.3):
        weights = factor * counts * (1 + 1e-3 * np.arange(len(p)) / len(p))
        scaled = metrics.interval(TABLE[name], carrying(p, weights), resamples=100)
        again = metrics.interval(TABLE[name], carrying(p, weights * np.pi), resamples=100)
        np.testing.assert_allclose(scaled, again, rtol=0, atol=1e-7)


@pytest.mark.parametrize("squared", [True, False])
def test_the_unbiased_kce_of_weights(p, squared):
    counts = np.random.default_rng(2).integers(1, 5, len(p))
    metric = partial(metrics.kce, unbiased=True, squared=squared)
    weights = counts * 0.7
    for found in (metrics.interval(metric, carrying(p, weights)), metrics.interval(metric, carrying(p, counts))):
        assert found.method.endswith("from bin sums")
    value = metric(carrying(p, weights))
    low, high = metrics.interval(metric, carrying(p, weights))
    assert low < value < high
    assert (low, high) == pytest.approx(metrics.interval(metric, carrying(p, weights * 3)), abs=1e-9)


def test_one_score_a_row_and_soft_labels():
    """The interval is of the same quantity as the metric, whatever the form."""
    random = np.random.default_rng(0)
    prob, happened = random.random(300), random.random(300) < 0.4
    for q in (
        Predictions.from_probs(prob, happened),
        Predictions.from_confidence(prob, happened),
        Predictions.multilabel(prob.reshape(-1, 3), happened.reshape(-1, 3)),
        Predictions(np.stack([1 - prob, 1 + prob], 1), np.stack([0.7 - 0.4 * happened, 0.3 + 0.4 * happened], 1)),
    ):
        names = [name for name in metrics.registry.applicable(q) if name not in ("skce", "auroc_ovr")]
        values = {name: TABLE[name](q) for name in names}
        for name, found in metrics.intervals({name: TABLE[name] for name in names}, q, resamples=60).items():
            assert found.low - 1e-9 <= found.high
            if name in ("accuracy", "mean_confidence", "nll", "brier"):
                assert found.low < values[name] < found.high, (q, name)
                assert sum(found) / 2 == pytest.approx(values[name], abs=0.01)


def test_bin_sums_give_the_interval_of_resampled_rows():
    """Wrapped in a function, a metric is not recognised, and the rows are resampled."""
    p = shifted(2000, 0.06, 3)
    for name in ("ece", "adaptive_ece", "rmsce", "mce", "debiased_ece", "kce"):
        sums = metrics.interval(TABLE[name], p, resamples=1000)
        rows = metrics.interval(lambda p, metric=TABLE[name]: metric(p), p, resamples=300)
        assert sums.method.endswith("from bin sums")
        assert rows.method == "bias-corrected bootstrap of squares"
        width = rows.high - rows.low
        assert sums.high - sums.low == pytest.approx(width, rel=0.3)
        assert abs(sums.low - rows.low) + abs(sums.high - rows.high) < 0.35 * width, (name, sums, rows)


def test_settings_that_bin_sums_do_not_know_resample_rows(p):
    for metric in (partial(metrics.debiased_ece, norm=1), partial(metrics.ece, bins=501)):
        assert "bin sums" not in metrics.interval(metric, p, resamples=20).method
    for metric in (partial(metrics.debiased_ece, norm=2), partial(metrics.ece, bins=500), partial(metrics.ece)):
        assert "bin sums" in metrics.interval(metric, p, resamples=20).method
    narrow = partial(metrics.kce, bandwidth=0.01)
    assert "bin sums" not in metrics.interval(narrow, p, resamples=20).method


def test_progress_ends(p):
    calls = []
    for names in (["ece"], ["ece", "aurc"]):
        calls.clear()
        metrics.intervals({n: TABLE[n] for n in names}, p, resamples=12, progress=lambda *call: calls.append(call))
        assert calls[-1] == (12, 12)


def test_bad_clusters(p):
    with pytest.raises(BadInput, match="clusters must have shape"):
        metrics.interval(metrics.ece, p, clusters=[1, 2])
    with pytest.raises(BadInput, match="clusters must be integers"):
        metrics.interval(metrics.ece, p, clusters=np.zeros(len(p)))
