import pickle

import numpy as np
import pytest

from surefoot import metrics
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
        "nll": "percentile bootstrap",
        "ece": "bias-corrected bootstrap of squares",
    }
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
