"""Cox's calibration regression: intercept and slope of the outcomes on the stated log-odds.

The model is P(y = 1) = σ(a + b x) with the log-odds x = log c/(1 − c) of the stated probability c. Calibrated
predictions have a = 0 and b = 1. A slope below 1 means predictions that are too extreme. Both fits use Newton's method
in float64 on centred and scaled log-odds; the log-likelihood is concave, so that step halving makes it converge.

Events whose log-odds are infinite are left out of the fits, and their number is a fact of the value. A value that the
data do not determine is the value of calibrated predictions, and its fact ``outcome`` says why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.metrics.positive import positive_events
from surefoot.metrics.value import Value
from surefoot.predictions import Events, Predictions, takes_predictions

__all__ = [
    "CoxFit",
    "calibration_in_the_large",
    "calibration_intercept",
    "calibration_slope",
    "cox_fit",
    "two_sided",
    "weighted_sum",
]

Floats = NDArray[np.float64]

_MAX_STEPS = 200
_MAX_HALVINGS = 60
# Newton's decrement, divided by the sum of the weights: Newton's method converges quadratically below the first number,
# and is at the optimum up to rounding below the second.
_QUADRATIC = 1e-6
_CONVERGED = 1e-26
_MAX_CHANGE = 30.0  # of a log-odds in one step
_BLOCK = 1 << 13  # rows
_ESTIMATORS = {
    "optimum": "maximum likelihood",
    "separable": "none: a threshold on the log-odds separates the outcomes",
    "one outcome": "none: all outcomes are the same",
    "one log-odds": "none: all log-odds are the same",
    "no log-odds": "none: all log-odds are infinite",
    "uncertified": "maximum likelihood, not converged",
}


@dataclass(frozen=True)
class CoxFit:
    """Intercept and slope with their standard errors, and the joint test of a = 0 and b = 1.

    Attributes:
        intercept: a.
        slope: b.
        intercept_error: standard error of a; NaN if a is not determined.
        slope_error: standard error of b; NaN if b is not determined.
        statistic: statistic of the joint test.
        p_value: p-value of the joint test; NaN if there is none.
        test: name of the joint test.
        outcome: ``"optimum"``; ``"separable"``, ``"one outcome"``, ``"one log-odds"`` or ``"no log-odds"`` where the
            likelihood has no single maximum; ``"uncertified"`` if Newton's method did not converge.
        left_out: number of events with infinite log-odds.
        impossible: number of events that were left out and whose outcome had a stated probability of 0.
    """

    intercept: float
    slope: float
    intercept_error: float
    slope_error: float
    statistic: float
    p_value: float
    test: str
    outcome: str
    left_out: int
    impossible: int

    def facts(self, error: float) -> dict[str, Any]:
        """What the values of a fit state.

        Args:
            error: standard error of the value.

        Returns:
            The facts by name.
        """
        return {
            "standard_error": error,
            "joint_statistic": self.statistic,
            "joint_p_value": self.p_value,
            "joint_test": self.test,
            "left_out": self.left_out,
            "impossible": self.impossible,
            "outcome": self.outcome,
            "estimator": _ESTIMATORS[self.outcome],
        }


@takes_predictions
def calibration_intercept(p: Predictions | Events, event: str | int | None = None) -> Value:
    """Intercept a of the logistic regression of the outcomes on the stated log-odds, fitted together with the slope.

    The model is P(y = 1) = σ(a + b log c/(1 − c)); calibrated predictions have a = 0 and b = 1. `calibration_slope` is
    b of the same fit. `calibration_in_the_large` is the intercept at a slope of 1, which is another number.

    Integer weights count independent events. Other weights w enter the variance of the scores as w². Clusters make the
    standard errors those of the sandwich estimator over clusters, with the factor G/(G − 1) for G clusters.

    Args:
        p: the predictions.
        event: which events, as for `Predictions.events`; None takes the positive event of two classes, and otherwise
            the usual events.

    Returns:
        The intercept. Facts: ``standard_error``; the joint test of a = 0 and b = 1 as ``joint_statistic``,
        ``joint_p_value`` and ``joint_test`` (a likelihood ratio, or Wald's test with clusters or weights that are no
        integers); ``left_out``, the number of events with infinite log-odds; ``impossible``, those of them that stated
        a probability of 0 for what happened; ``outcome``. If a threshold separates the outcomes, the slope is infinite,
        and the intercept has the sign of the limit. If all outcomes are the same, the intercept is infinite. A
        parameter that the data do not determine has the value of calibrated predictions.

    Raises:
        BadInput: when ``p`` is no `Predictions`, or has no such events.

    Example:
        >>> e = Events([0.2, 0.2, 0.2, 0.8, 0.8, 0.8], [0, 0, 1, 0, 1, 1])
        >>> a = calibration_intercept(e)
        >>> round(abs(a), 9), round(a.standard_error, 4), a.outcome
        (0.0, 0.866, 'optimum')

    References:
        Cox (1958), "Two Further Applications of a Model for Binary Regression".
        Miller, Hui & Tierney (1991), "Validation techniques for logistic regression models".
    """
    e = positive_events(p, event)
    fit = cox_fit(e)
    return Value(fit.intercept, **e.facts(), **fit.facts(fit.intercept_error))


@takes_predictions
def calibration_slope(p: Predictions | Events, event: str | int | None = None) -> Value:
    """Slope b of the logistic regression of the outcomes on the stated log-odds, fitted together with the intercept.

    The model is P(y = 1) = σ(a + b log c/(1 − c)); calibrated predictions have a = 0 and b = 1. A slope below 1 means
    that the predictions are too extreme; 1/b is the temperature that corrects them.

    Args:
        p: the predictions.
        event: which events, as for `Predictions.events`; None takes the positive event of two classes, and otherwise
            the usual events.

    Returns:
        The slope, with the facts of `calibration_intercept`.

    Raises:
        BadInput: when ``p`` is no `Predictions`, or has no such events.

    Example:
        >>> e = Events([0.2, 0.2, 0.2, 0.8, 0.8, 0.8], [0, 0, 1, 0, 1, 1])
        >>> b = calibration_slope(e)  # log-odds of ±log 2 where ±log 4 were stated
        >>> round(b, 9), round(b.joint_statistic, 4), b.joint_test
        (0.5, 0.5847, 'likelihood ratio')

    References:
        Cox (1958), "Two Further Applications of a Model for Binary Regression".
        Miller, Hui & Tierney (1991), "Validation techniques for logistic regression models".
    """
    e = positive_events(p, event)
    fit = cox_fit(e)
    return Value(fit.slope, **e.facts(), **fit.facts(fit.slope_error))


@takes_predictions
def calibration_in_the_large(p: Predictions | Events, event: str | int | None = None) -> Value:
    """Calibration-in-the-large: the shift a of all log-odds that makes the mean probability the mean outcome.

    a is the intercept of P(y = 1) = σ(a + log c/(1 − c)), the logistic regression with the stated log-odds as offset: a
    slope of 1. It is negative where the stated probabilities are too high.

    Args:
        p: the predictions.
        event: which events, as for `Predictions.events`; None takes the positive event of two classes, and otherwise
            the usual events.

    Returns:
        The shift. Facts: ``standard_error``, by the rules of `calibration_intercept`; ``p_value`` of Wald's test of a =
        0, by Student's t with clusters; ``left_out``, ``impossible`` and ``outcome`` as of `calibration_intercept`. If
        all outcomes are the same, the shift is infinite.

    Raises:
        BadInput: when ``p`` is no `Predictions`, or has no such events.

    Example:
        >>> a = calibration_in_the_large(Events([0.5] * 10, [1] * 8 + [0] * 2))
        >>> round(a, 6), round(a.standard_error, 4)  # log 4
        (1.386294, 0.7906)

    References:
        Miller, Hui & Tierney (1991), "Validation techniques for logistic regression models".
        Van Calster et al. (2016), "A calibration hierarchy for risk models was defined: from utopia to empirical data".
    """
    e = positive_events(p, event)
    table = _table(e)
    shift, error, outcome, p_value = 0.0, math.nan, table.outcome, math.nan
    if outcome not in ("no log-odds", "one outcome"):
        solution, outcome = _newton(None, table.x, table.y, table.weight, np.zeros(1))
        shift = float(solution[0])
        variance = _covariance(None, table, table.x + shift)
        error = _root(variance[0, 0])
        if error > 0:
            p_value = two_sided(shift / error, table.groups)
    elif outcome == "one outcome":
        shift = math.inf if table.y[0] == 1 else -math.inf
    facts = {"standard_error": error, "p_value": p_value, "left_out": table.left_out, "impossible": table.impossible}
    return Value(shift, **e.facts(), **facts, outcome=outcome, estimator=_ESTIMATORS[outcome])


def two_sided(z: float, groups: int | None) -> float:
    """Two-sided p-value of a standardised estimate.

    Args:
        z: the estimate divided by its standard error.
        groups: number of clusters G, for Student's t with G − 1 degrees of freedom; None for the normal distribution.

    Returns:
        The p-value; NaN for a single cluster.

    Example:
        >>> round(two_sided(1.96, None), 3), round(two_sided(-1.96, 10), 3)
        (0.05, 0.082)
    """
    from scipy.special import ndtr, stdtr

    if groups is not None and groups < 2:
        return math.nan
    return float(2 * (ndtr(-abs(z)) if groups is None else stdtr(groups - 1, -abs(z))))


def weighted_sum(values: Floats, weight: Floats | None) -> float:
    """Sum values times weights by pairs; a product of BLAS would keep every core busy.

    Args:
        values: (n,) numbers.
        weight: (n,) weights, or None for ones.

    Returns:
        The sum.

    Example:
        >>> weighted_sum(np.array([0.5, 1.0]), np.array([2.0, 3.0]))
        4.0
    """
    return float(values.sum() if weight is None else (weight * values).sum())


def cox_fit(e: Events) -> CoxFit:
    """Fit intercept and slope once, for both metrics.

    Args:
        e: the events.

    Returns:
        The fit.

    Example:
        >>> cox_fit(Events([0.2, 0.8], [0, 1])).outcome
        'separable'
    """
    return e.memo("cox fit", lambda: _fit(_table(e)))


@dataclass(frozen=True)
class _Table:
    """Finite log-odds x, outcomes y, weights w and clusters of the events that a fit can use."""

    x: Floats
    y: Floats
    w: Floats
    weight: Floats | None  # as w; None for ones
    cluster: NDArray[np.int64] | None
    counted: bool  # whether weights count independent events
    left_out: int
    impossible: int

    @property
    def outcome(self) -> str:
        """Why the slope is not determined, or "optimum" if it is."""
        if len(self.x) == 0:
            return "no log-odds"
        if (self.y == 0).all() or (self.y == 1).all():
            return "one outcome"
        return "one log-odds" if self.x.min() == self.x.max() else "optimum"

    @property
    def groups(self) -> int | None:
        return None if self.cluster is None else len(np.unique(self.cluster))


def _table(e: Events) -> _Table:
    x, y = e.log_odds, e.happened.astype(np.float64)
    finite = np.isfinite(x)
    left_out = int(len(x) - finite.sum())
    impossible = int(((x == np.inf) & (y < 1) | (x == -np.inf) & (y > 0)).sum()) if left_out else 0
    w, cluster = e.weights, e.cluster
    if left_out:
        x, y, w, cluster = x[finite], y[finite], w[finite], None if cluster is None else cluster[finite]
    return _Table(x, y, w, None if e.weight is None else w, cluster, e.repetitions, left_out, impossible)


def _fit(table: _Table) -> CoxFit:
    x, y, w, outcome = table.x, table.y, table.weight, table.outcome
    intercept, slope, errors = 0.0, 1.0, np.full(2, math.nan)
    variance: Floats | None = None
    limit = 0.0  # log-likelihood that the fits approach, where no fit reaches it
    degrees = 2
    if outcome == "one outcome":
        intercept = math.inf if y[0] == 1 else -math.inf
    elif outcome == "one log-odds":
        intercept, degrees = _log_odds(y, w) - float(x[0]), 1
        limit = _likelihood(x + intercept, y, w)
    elif outcome == "optimum" and (threshold := _threshold(x, y)) is not None:
        outcome, (slope, middle) = "separable", threshold
        # A threshold that differs from 0 by rounding alone is 0.
        at_zero = abs(middle) <= 1e-12 * float(np.abs(x).max())
        intercept = 0.0 if at_zero else -math.copysign(math.inf, middle * slope)
        limit = _boundary_likelihood(x, y, w, middle)
    elif outcome == "optimum":
        total = weighted_sum(np.ones(len(x)), w)
        centre = weighted_sum(x, w) / total
        unit = x - centre
        scale = math.sqrt(weighted_sum(unit**2, w) / total)
        unit /= scale
        start = np.array([centre, scale])  # the stated log-odds
        solution, outcome = _newton(unit, None, y, w, start)
        z = solution[0] + solution[1] * unit
        slope = float(solution[1] / scale)
        intercept = float(solution[0] - slope * centre)
        back = np.array([[1.0, -centre / scale], [0.0, 1 / scale]])
        variance = back @ _covariance(unit, table, z) @ back.T
        errors = np.array([_root(variance[0, 0]), _root(variance[1, 1])])
        limit = _likelihood(z, y, w)
    statistic, p_value, test = _joint(table, limit, np.array([intercept, slope - 1]), variance, degrees)
    return CoxFit(
        intercept, slope, float(errors[0]), float(errors[1]), statistic, p_value, test, outcome, table.left_out,
        table.impossible,
    )  # fmt: skip


def _threshold(x: Floats, y: Floats) -> tuple[float, float] | None:
    """The infinite slope and the threshold, if one on x separates the outcomes; both may occur at the threshold."""
    happened, failed = x[y > 0], x[y < 1]
    if failed.max() <= happened.min():
        return math.inf, float(failed.max() + happened.min()) / 2
    if happened.max() <= failed.min():
        return -math.inf, float(happened.max() + failed.min()) / 2
    return None


def _boundary_likelihood(x: Floats, y: Floats, w: Floats | None, middle: float) -> float:
    """Supremum of the log-likelihood of separable data: that of the rows at the threshold, if it has both outcomes."""
    at = x == middle
    y, w = y[at], None if w is None else w[at]
    if (y == 1).all() or (y == 0).all():
        return 0.0
    return _likelihood(np.full(len(y), _log_odds(y, w)), y, w)


def _log_odds(y: Floats, w: Floats | None) -> float:
    """Log-odds of the mean outcome."""
    return math.log(weighted_sum(y, w) / weighted_sum(1 - y, w))


def _likelihood(z: Floats, y: Floats, w: Floats | None) -> float:
    """Σ w (y log σ(z) + (1 − y) log σ(−z))."""
    # log(1 + exp z); numpy's logaddexp takes nearly twice as long.
    return weighted_sum(y * z - np.maximum(z, 0.0) - np.log1p(np.exp(-np.abs(z))), w)


def _newton(x: Floats | None, offset: Floats | None, y: Floats, w: Floats | None, start: Floats) -> tuple[Floats, str]:
    """Maximise the log-likelihood of σ(offset + θ₀ + θ₁ x), which is concave.

    Args:
        x: (n,) centred and scaled log-odds; None for the intercept alone.
        offset: (n,) offset, or None.
        y: (n,) outcomes.
        w: (n,) weights, or None.
        start: (1,) or (2,) parameters to start from.

    Returns:
        θ, and ``"optimum"`` or ``"uncertified"``.
    """
    theta, size, last = start, len(start), math.inf
    total = float(len(y)) if w is None else float(w.sum())
    reach = np.array([1.0] if x is None else [1.0, float(np.abs(x).max())])
    gradient, hessian = _derivatives(x, offset, y, w, theta)
    for _ in range(_MAX_STEPS):
        # Saturated probabilities make the Hessian singular.
        ridge = 0.0
        while not _positive(hessian + ridge * np.eye(size)):
            ridge = max(10 * ridge, 1e-12 * total)
        step = np.linalg.solve(hessian + ridge * np.eye(size), gradient)
        decrement = float(gradient @ step)
        if ridge == 0 and decrement <= _QUADRATIC * total:
            # The steps end when they are rounding, or when rounding stops their decrease.
            if decrement <= _CONVERGED * total or decrement >= last:
                return theta + step, "optimum"
            last, theta = decrement, theta + step
            gradient, hessian = _derivatives(x, offset, y, w, theta)
            continue
        # Where probabilities are saturated, the Hessian underestimates the curvature on the way.
        step *= min(1.0, _MAX_CHANGE / float(np.abs(step) @ reach))
        slope = float(gradient @ step)
        for _ in range(_MAX_HALVINGS):
            gradient, hessian = _derivatives(x, offset, y, w, theta + step)
            if gradient @ step >= -slope / 2:  # the maximum along the step is not far behind
                break
            step, slope = step / 2, slope / 2
        theta = theta + step
    return theta, "uncertified"


def _derivatives(
    x: Floats | None, offset: Floats | None, y: Floats, w: Floats | None, theta: Floats
) -> tuple[Floats, Floats]:
    """Gradient and negative Hessian of the log-likelihood, by blocks that fit into a core's cache."""
    from scipy.special import expit

    size = len(theta)
    gradient, hessian = np.zeros(size), np.zeros((size, size))
    for begin in range(0, len(y), _BLOCK):
        rows = slice(begin, begin + _BLOCK)
        z = np.full(len(y[rows]), theta[0]) if offset is None else offset[rows] + theta[0]
        if x is not None:
            z += theta[1] * x[rows]
        prob = expit(z)
        residual = y[rows] - prob
        spread = prob * (1.0 - prob)
        if w is not None:
            residual *= w[rows]
            spread *= w[rows]
        part = None if x is None else x[rows]
        gradient += _moments(residual, part)[:size]
        hessian += _matrix(_moments(spread, part))[:size, :size]
    return gradient, hessian


def _moments(values: Floats, x: Floats | None) -> Floats:
    """Σ v, Σ v x and Σ v x²; zeros where x is None."""
    if x is None:
        return np.array([values.sum(), 0.0, 0.0])
    first = values * x
    return np.array([values.sum(), first.sum(), (first * x).sum()])


def _matrix(moments: Floats) -> Floats:
    """Σ v (1, x)ᵀ(1, x) of the moments."""
    return moments[[[0, 1], [1, 2]]]


def _positive(matrix: Floats) -> bool:
    """Whether a matrix (1, 1) or (2, 2) is positive definite with a margin above rounding."""
    if matrix[0, 0] <= 0:
        return False
    product = float(np.prod(np.diag(matrix)))
    return len(matrix) == 1 or product - matrix[0, 1] ** 2 > 1e-13 * product > 0


def _covariance(x: Floats | None, table: _Table, z: Floats) -> Floats:
    """Covariance of the parameters at the linear predictor z: H⁻¹ S H⁻¹ with the variance S of the scores."""
    from scipy.special import expit

    size, w = 1 if x is None else 2, table.weight
    prob = expit(z)
    spread = prob * expit(-z)
    if w is not None:
        spread *= w
    hessian = _matrix(_moments(spread, x))[:size, :size]
    if not _positive(hessian):
        return np.full(hessian.shape, math.nan)
    inverse: Floats = np.linalg.inv(hessian).astype(np.float64)
    variance: Floats
    if table.cluster is not None:
        scores = table.w * (table.y - prob)
        codes = np.unique(table.cluster, return_inverse=True)[1]
        groups = int(codes.max()) + 1
        if groups < 2:
            return np.full(hessian.shape, math.nan)
        sums = np.stack([np.bincount(codes, column) for column in ([scores] if x is None else [scores, scores * x])])
        variance = (sums @ sums.T * (groups / (groups - 1))).astype(np.float64)
    elif table.counted:
        return inverse
    else:
        variance = _matrix(_moments(table.w * spread, x))[:size, :size]
    covariance: Floats = inverse @ variance @ inverse
    return covariance


def _joint(
    table: _Table, limit: float, difference: Floats, variance: Floats | None, degrees: int
) -> tuple[float, float, str]:
    """Statistic, p-value and name of the test that intercept and slope are 0 and 1."""
    from scipy.special import chdtrc, fdtrc

    if len(table.x) == 0:
        return math.nan, math.nan, "none"
    if table.counted and table.cluster is None:
        statistic = max(0.0, 2 * (limit - _likelihood(table.x, table.y, table.weight)))
        return statistic, float(chdtrc(degrees, statistic)), "likelihood ratio"
    if variance is None or not np.isfinite(variance).all() or not _positive(variance):
        return math.nan, math.nan, "none"
    statistic = float(difference @ np.linalg.solve(variance, difference))
    if table.groups is None:
        return statistic, float(chdtrc(2, statistic)), "Wald"
    return statistic, float(fdtrc(2, table.groups - 1, statistic / 2)), "Wald, clusters"


def _root(variance: float) -> float:
    return math.sqrt(variance) if variance >= 0 else math.nan
