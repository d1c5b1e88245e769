"""Calibration intercept and slope against closed forms, scikit-learn, scipy's optimisers and brute force."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import chi2, f, norm, t
from sklearn.linear_model import LogisticRegression

from surefoot import Predictions, metrics
from surefoot.metrics.cox import cox_fit
from surefoot.predictions import Events

INTERCEPT, SLOPE = metrics.calibration_intercept, metrics.calibration_slope
LARGE = metrics.calibration_in_the_large
C = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
Y = (0, 0, 1, 0, 0, 1, 1, 0, 1, 1)


def events_at(x, y, **options):
    """Events with given log-odds, precise also where probabilities round to 1."""
    x = np.asarray(x, float)
    return Events(expit(x), y, complement=expit(-x), **options)


def planted(n, seed, a=0.4, b=0.7, **options):
    random = np.random.default_rng(seed)
    x = 2 * random.normal(size=n) - 0.5
    return events_at(x, random.random(n) < expit(a + b * x), **options)


def log_likelihood(z, y, w):
    return float(w @ (y * z - np.logaddexp(0, z)))


def test_ten_events():
    """Numbers of an independent computation: logistic regressions on logit(c), and with the offset logit(c)."""
    e = Events(C, Y)
    a, b, large = INTERCEPT(e), SLOPE(e), LARGE(e)
    assert [round(number, 5) for number in (a, a.standard_error)] == [-0.24714, 0.76487]
    assert [round(number, 5) for number in (b, b.standard_error)] == [0.92172, 0.62282]
    assert [round(number, 5) for number in (large, large.standard_error)] == [-0.26478, 0.76745]
    assert round(a.joint_statistic, 5) == 0.1344
    assert a.joint_p_value == pytest.approx(chi2.sf(a.joint_statistic, 2), rel=1e-12)
    assert a.facts | {"standard_error": 0} == b.facts | {"standard_error": 0}
    assert large.p_value == pytest.approx(2 * norm.sf(abs(large) / large.standard_error), rel=1e-12)


def test_two_levels_have_a_closed_form():
    """Two stated levels: the fit passes through both observed log-odds."""
    e = Events([0.2] * 10 + [0.6] * 10, [1] * 3 + [0] * 7 + [1] * 8 + [0] * 2)
    b = (logit(0.8) - logit(0.3)) / (logit(0.6) - logit(0.2))
    assert SLOPE(e) == pytest.approx(b, rel=1e-13)
    assert INTERCEPT(e) == pytest.approx(logit(0.3) - b * logit(0.2), rel=1e-13)


@pytest.mark.parametrize("weighted", [False, True])
def test_scikit_learn_finds_the_same_line(weighted):
    random = np.random.default_rng(1)
    w = random.uniform(0.2, 3, 500) if weighted else None
    e = planted(500, 1, weight=w)
    model = LogisticRegression(C=np.inf, tol=1e-12, max_iter=1000).fit(e.log_odds[:, None], e.happened, w)
    assert SLOPE(e) == pytest.approx(model.coef_[0, 0], abs=1e-6)
    assert INTERCEPT(e) == pytest.approx(model.intercept_[0], abs=1e-6)
    shift = brentq(lambda a: float(e.weights @ (e.happened - expit(e.log_odds + a))), -5, 5, xtol=1e-14)
    assert LARGE(e) == pytest.approx(shift, abs=1e-12)


def test_likelihood_ratio_by_brute_force():
    e = planted(300, 2)
    x, y, w = e.log_odds, e.happened.astype(float), np.ones(300)
    fit = cox_fit(e)
    best = log_likelihood(fit.intercept + fit.slope * x, y, w)
    assert fit.statistic == pytest.approx(2 * (best - log_likelihood(x, y, w)), rel=1e-10)
    # The gradient vanishes there.
    residual = y - expit(fit.intercept + fit.slope * x)
    assert abs(residual.sum()) < 1e-11
    assert abs(residual @ x) < 1e-11


def test_standard_errors_by_numerical_curvature():
    e = planted(400, 3)
    x, y, w = e.log_odds, e.happened.astype(float), np.ones(400)
    fit, h = cox_fit(e), 1e-4

    def at(i, j):
        return log_likelihood(fit.intercept + i * h + (fit.slope + j * h) * x, y, w)

    aa = (at(1, 0) - 2 * at(0, 0) + at(-1, 0)) / h**2
    bb = (at(0, 1) - 2 * at(0, 0) + at(0, -1)) / h**2
    ab = (at(1, 1) - at(1, -1) - at(-1, 1) + at(-1, -1)) / (4 * h**2)
    errors = np.sqrt(np.diag(np.linalg.inv(-np.array([[aa, ab], [ab, bb]]))))
    np.testing.assert_allclose([fit.intercept_error, fit.slope_error], errors, rtol=1e-5)


def test_clusters_by_the_sandwich_formula():
    random = np.random.default_rng(4)
    cluster, w = random.integers(0, 23, 300), random.uniform(0.5, 2, 300)
    e = planted(300, 4, weight=w, cluster=cluster)
    a, b, large = INTERCEPT(e), SLOPE(e), LARGE(e)

    def sandwich(design, z):
        prob = expit(z)
        inverse = np.linalg.inv(design.T @ (design * (w * prob * (1 - prob))[:, None]))
        meat = 0
        for g in range(23):
            rows = cluster == g
            score = (design * (w * (e.happened - prob))[:, None])[rows].sum(axis=0)
            meat = meat + np.outer(score, score)
        return inverse @ meat @ inverse * 23 / 22

    design = np.stack([np.ones(300), e.log_odds], axis=1)
    covariance = sandwich(design, a + b * e.log_odds)
    np.testing.assert_allclose([a.standard_error, b.standard_error], np.sqrt(np.diag(covariance)), rtol=1e-9)
    off = np.array([a, b - 1])
    statistic = float(off @ np.linalg.inv(covariance) @ off)
    assert a.joint_statistic == pytest.approx(statistic, rel=1e-9)
    assert a.joint_test == "Wald, clusters"
    assert a.joint_p_value == pytest.approx(f.sf(statistic / 2, 2, 22), rel=1e-9)
    error = math.sqrt(sandwich(np.ones((300, 1)), large + e.log_odds)[0, 0])
    assert large.standard_error == pytest.approx(error, rel=1e-9)
    assert large.p_value == pytest.approx(2 * t.sf(abs(large) / error, 22), rel=1e-9)


def test_clusters_of_one_event_are_robust_errors_and_rows_in_copies_change_nothing():
    e = planted(400, 5)
    alone = SLOPE(events_at(e.log_odds, e.happened, cluster=np.arange(400)))
    assert alone.standard_error == pytest.approx(SLOPE(e).standard_error, rel=0.2)
    copies = np.repeat(np.arange(400), 3)
    thrice = SLOPE(events_at(e.log_odds[copies], e.happened[copies], cluster=copies))
    assert thrice.standard_error == pytest.approx(alone.standard_error, rel=1e-9)


@pytest.mark.parametrize("metric", [INTERCEPT, SLOPE, LARGE])
def test_integer_weights_are_repeated_events(metric):
    counts = np.random.default_rng(6).integers(0, 4, 200)
    e = planted(200, 6)
    a = metric(events_at(e.log_odds, e.happened, weight=counts))
    rows = np.repeat(np.arange(200), counts)
    b = metric(events_at(e.log_odds[rows], e.happened[rows]))
    assert a == pytest.approx(b, abs=1e-13)
    for name in ("standard_error", *(["p_value"] if metric is LARGE else ["joint_statistic", "joint_p_value"])):
        assert a.facts[name] == pytest.approx(b.facts[name], rel=1e-9)


def test_weights_without_a_scale_have_errors_without_a_scale():
    w = np.random.default_rng(7).uniform(0.5, 2, 300)
    one, ten = (SLOPE(planted(300, 7, weight=factor * w)) for factor in (1, 10.3))
    assert one.standard_error == pytest.approx(ten.standard_error, rel=1e-10)
    assert one.joint_statistic == pytest.approx(ten.joint_statistic, rel=1e-10)
    assert one.joint_test == "Wald"
    # Nearly equal weights: the inverse of the information.
    near = SLOPE(planted(300, 7, weight=np.where(np.arange(300) == 0, 1 + 1e-9, 1.0)))
    assert near.standard_error == pytest.approx(SLOPE(planted(300, 7)).standard_error, rel=1e-7)


def test_the_joint_test_has_its_level():
    """1,000 calibrated sets: 5 % rejected within four standard errors, with and without clusters."""
    random = np.random.default_rng(8)
    rejected = np.zeros(2)
    for _ in range(1000):
        x = random.normal(size=200)
        y = random.random(200) < expit(x)
        plain, grouped = (events_at(x, y, cluster=cluster) for cluster in (None, np.arange(200) // 4))
        rejected += [SLOPE(plain).joint_p_value < 0.05, SLOPE(grouped).joint_p_value < 0.05]
    assert (np.abs(rejected / 1000 - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 1000)).all(), rejected


def test_the_slope_is_the_inverse_temperature():
    random = np.random.default_rng(9)
    z = random.normal(size=20_000) * 2
    p = Predictions(np.stack([np.zeros(20_000), 1.6 * z], axis=1), (random.random(20_000) < expit(z)).astype(int))
    assert SLOPE(p) == pytest.approx(1 / 1.6, abs=4 * SLOPE(p).standard_error)
    assert abs(INTERCEPT(p)) < 4 * INTERCEPT(p).standard_error
    assert SLOPE(p) == SLOPE(p.events("positive"))
    assert SLOPE(p) == pytest.approx(SLOPE(p, event=0), rel=1e-9)
    assert INTERCEPT(p) == pytest.approx(-INTERCEPT(p, event=0), rel=1e-7)


def test_infinite_log_odds_are_left_out_and_counted():
    x = np.concatenate([planted(100, 10).log_odds, [np.inf, np.inf, -np.inf]])
    y = np.concatenate([planted(100, 10).happened, [True, False, False]])
    e = events_at(x, y)
    for metric in (INTERCEPT, SLOPE, LARGE):
        value = metric(e)
        assert (value.left_out, value.impossible, value.n) == (3, 1, 103)
        assert value == pytest.approx(metric(planted(100, 10)), abs=1e-13)


@pytest.mark.parametrize(
    ("x", "y", "intercept", "slope", "outcome"),
    [
        ([-2, -1, 1, 3], [0, 0, 1, 1], 0.0, math.inf, "separable"),
        ([1, 2, 3, 4], [0, 0, 1, 1], -math.inf, math.inf, "separable"),
        ([-4, -3, -2, -1], [0, 0, 1, 1], math.inf, math.inf, "separable"),
        ([1, 2, 3, 4], [1, 1, 0, 0], math.inf, -math.inf, "separable"),
        ([1, 2, 2, 4], [0, 0, 1, 1], -math.inf, math.inf, "separable"),  # both outcomes at the threshold
        ([1, 2, 3], [1, 1, 1], math.inf, 1.0, "one outcome"),
        ([1, 2, 3], [0, 0, 0], -math.inf, 1.0, "one outcome"),
        ([1, 1, 1, 1], [0, 1, 1, 1], math.log(3) - 1, 1.0, "one log-odds"),
        ([np.inf, -np.inf], [1, 0], 0.0, 1.0, "no log-odds"),
    ],
)
def test_degenerate_data_have_a_value_and_a_reason(x, y, intercept, slope, outcome):
    e = events_at(x, y)
    a, b = INTERCEPT(e), SLOPE(e)
    assert a == pytest.approx(intercept, abs=1e-14)
    assert b == slope
    assert a.outcome == b.outcome == outcome
    assert a.estimator != "maximum likelihood"
    assert math.isnan(b.standard_error)
    assert LARGE(e).outcome in ("optimum", outcome)
    clustered = SLOPE(events_at(x, y, cluster=np.arange(len(x)) // 2))
    assert (clustered, clustered.outcome, clustered.joint_test) == (slope, outcome, "none")


def test_the_likelihood_of_separable_data_is_that_of_fits_that_grow():
    x, y = np.array([1.0, 2, 2, 4]), np.array([0.0, 0, 1, 1])
    far = log_likelihood(200 * (x - 2), y, np.ones(4))
    statistic = SLOPE(events_at(x, y)).joint_statistic
    assert statistic == pytest.approx(2 * (far - log_likelihood(x, y, np.ones(4))), rel=1e-12)


def test_hard_data_converge():
    """Overlap of 1e-9, log-odds of 700, and a spread of 1e-13."""
    near = cox_fit(events_at([-1, 0, 1e-9, 1], [0, 1, 0, 1]))
    assert near.outcome == "optimum"
    assert near.slope > 20
    shift = LARGE(events_at([700, 700], [0, 1]))
    assert shift == pytest.approx(-700)
    wide = cox_fit(events_at([700, -700, 650, 3], [0, 1, 1, 0]))
    assert wide.outcome == "optimum"
    assert cox_fit(events_at([1, 1 + 1e-13, 1 + 2e-13], [1, 0, 1])).outcome == "optimum"
    random = np.random.default_rng(11)
    for _ in range(300):
        n = random.integers(2, 9)
        e = events_at(random.normal(size=n) * 10 ** random.uniform(-3, 2.5), random.random(n) < 0.5)
        assert cox_fit(e).outcome != "uncertified"
        assert LARGE(e).outcome != "uncertified"


def test_a_sure_and_right_model_is_evaluated():
    """Separable predictions: the table states it, and nothing raises."""
    p = Predictions([[3.0, 0.0], [0.0, 2.0]] * 20, [0, 1] * 20)
    assert metrics.summary(p)["calibration_slope"] == math.inf
    assert metrics.interval(SLOPE, p, resamples=20) == (math.inf, math.inf)
