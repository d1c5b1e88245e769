"""One-versus-rest calibrators: every class's probability is mapped separately, then the row is divided by its sum.

With two classes, one map of the second class's probability suffices; the first class gets the complement.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, logsumexp

from surefoot.errors import BadInput
from surefoot.posthoc.calibrator import Calibrator, Floats, check_shape
from surefoot.posthoc.minimise import newton
from surefoot.posthoc.rows import class_counts, row_weights, targets
from surefoot.predictions import Predictions
from surefoot.validation import check_positive

__all__ = ["CLIP", "Beta", "OneVsRest", "Platt", "check_every_class", "log_columns", "log_normalised", "maps_of"]

# Smallest probability before a logarithm, as in the authors' code. Only zeros are replaced: `Predictions` holds the
# logarithms of all other probabilities exactly.
CLIP = 1e-12
_RIDGE = 1e-10  # as in the authors' code
_LARGEST = 1e150  # the product with a coefficient must stay finite


class OneVsRest(Calibrator):
    """Base class of the maps of single probabilities; a subclass learns and applies one map for each class.

    Args:
        scores: what arrays hold, ``"logits"`` or ``"probs"``; without effect on `Predictions`.

    Attributes:
        limit_: size of the logarithm that stands for an infinite one; 0 in maps of old files, whose probabilities are
            clipped at 10⁻¹².
    """

    added: ClassVar[dict[str, Any]] = {"limit_": 0.0}
    limit_: float

    @abstractmethod
    def _fit_classes(self, log_probs: Floats, log_rest: Floats, outcomes: NDArray[Any], weights: Floats | None) -> None:
        """Learn a map for each column of ln p and ln (1 − p) (n, c), from how much each row is of that class."""

    @abstractmethod
    def _map_classes(self, log_probs: Floats, log_rest: Floats) -> tuple[Floats, Floats]:
        """(n, c) logarithms of the mapped columns, and of one minus them."""

    def _fit(self, p: Predictions) -> None:
        check_every_class(self.method, p)
        log_probs, log_rest = log_columns(p)
        first = 1 if p.classes == 2 else 0
        self._fit_classes(log_probs[:, first:], log_rest[:, first:], targets(p)[:, first:], row_weights(p))

    def _map(self, p: Predictions) -> tuple[Floats, str]:
        log_probs, log_rest = log_columns(p) if self.limit_ > 0 else _clipped_columns(p)
        if p.classes == 2:
            second, first = self._map_classes(log_probs[:, 1:], log_rest[:, 1:])
            return np.concatenate([first, second], axis=1), "logits"
        return log_normalised(self._map_classes(log_probs, log_rest)[0], log_probs), "logits"


def log_columns(p: Predictions) -> tuple[Floats, Floats]:
    """Compute the logarithms of all probabilities, and of one minus them.

    Args:
        p: predictions.

    Returns:
        (n, k) ln p and ln (1 − p), both accurate where p rounds to 0 or 1.
    """
    log_probs = p.log_probs
    if p.classes == 2:
        return log_probs, log_probs[:, ::-1].copy()
    rows, top = np.arange(len(p)), log_probs.argmax(axis=1)
    others = log_probs.copy()
    others[rows, top] = -np.inf
    with np.errstate(divide="ignore"):
        log_rest = np.log1p(-np.exp(others))
        log_rest[rows, top] = logsumexp(others, axis=1)
    return log_probs, log_rest


def _clipped_columns(p: Predictions) -> tuple[Floats, Floats]:
    """(n, k) ln p and ln (1 − p) of clipped probabilities, to which maps of old files were fitted."""
    clipped = np.clip(p.probs, CLIP, 1 - CLIP)
    return np.log(clipped), np.log1p(-clipped)


def log_normalised(mapped: Floats, log_probs: Floats) -> Floats:
    """Divide mapped probabilities by the sum of their row, all in logarithms.

    Args:
        mapped: (n, k) logarithms of the mapped probabilities.
        log_probs: (n, k) logarithms of the old probabilities, for rows whose mapped probabilities are all 0.

    Returns:
        (n, k) logarithms of probabilities that sum to 1.
    """
    total = logsumexp(mapped, axis=1, keepdims=True)
    possible = total > -np.inf
    return np.where(possible, mapped - np.where(possible, total, 0.0), log_probs)


def maps_of(classes: int) -> int:
    """Return the number of maps that are learned.

    Args:
        classes: number of classes k.

    Returns:
        1 for two classes, where only the second class has a map; otherwise k.
    """
    return 1 if classes == 2 else classes


def check_every_class(method: str, p: Predictions) -> None:
    """Check that every class has an example; without examples, nothing can be learned about a class.

    Args:
        method: name of the calibrator, for the error.
        p: predictions for the fit.

    Raises:
        BadInput: when a class has no example; the error names such classes.
    """
    count = class_counts(p)
    if (count == 0).any() and p.form != "classes":
        happened = "did not happen" if count[1] == 0 else "happened"
        raise BadInput(
            f"{method} learns from rows where the event happened and from rows where it did not, but it {happened} in "
            f"all of the {len(p)} rows; give more held-out predictions, or use temperature"
        )
    if (count == 0).any():
        missing = np.flatnonzero(count == 0)
        shown = ", ".join(str(c) for c in missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise BadInput(
            f"{method} learns from the examples of each class, but class {shown} has no example in the {len(p)} rows; "
            "give more held-out predictions, or use temperature"
        )


class Platt(OneVsRest):
    """Platt scaling: σ(a s + b) of the log-odds s of every probability, with Platt's smoothed targets.

    Args:
        scores: what arrays hold, ``"logits"`` or ``"probs"``; without effect on `Predictions`.

    Attributes:
        coefficients_: (c, 2) a and b of every class; with two classes, of the second class only.
        limit_: size of the log-odds that stand for a probability of 0 or 1; 0 in maps of old files.

    Example:
        >>> p = Predictions([[4.0, 0.0]] * 10 + [[0.0, 4.0]] * 10, [0] * 8 + [1] * 2 + [1] * 8 + [0] * 2)
        >>> Platt().fit(p).apply(p).confidence.round(3)[[0, -1]].tolist()  # 0.75, by the smoothed targets
        [0.75, 0.75]

    References:
        Platt (1999), "Probabilistic Outputs for Support Vector Machines and Comparisons to Regularized Likelihood
        Methods".
    """

    method = "platt"
    learned = ("coefficients_", "limit_")

    def _fit_classes(self, log_probs: Floats, log_rest: Floats, outcomes: NDArray[Any], weights: Floats | None) -> None:
        self.limit_ = _limit(log_probs, log_rest)
        odds = _finite(log_probs - log_rest, self.limit_)
        n = len(odds) if weights is None else float(weights.sum())
        coefficients = []
        for column, target in zip(odds.T, outcomes.T, strict=True):
            positive = float(target.sum() if weights is None else weights @ target)
            high, low = (positive + 1) / (positive + 2), 1 / (n - positive + 2)
            goal = np.where(target, high, low) if target.dtype == np.bool_ else low + (high - low) * target
            coefficients.append(fit_logistic(column[:, None], goal, weights))
        self.coefficients_: Floats = np.array(coefficients)

    def _map_classes(self, log_probs: Floats, log_rest: Floats) -> tuple[Floats, Floats]:
        a, b = self.coefficients_.T
        return _log_sigmoids(_finite(log_probs - log_rest, self.limit_) * a + b)

    def check_learned(self) -> None:
        """Check that every map has two coefficients."""
        check_shape("coefficients_", self.coefficients_, (maps_of(len(self.classes_)), 2))
        _check_limit(self.limit_)

    def number_of_parameters(self, classes: int) -> int:
        """Return 2 for every map."""
        return 2 * maps_of(classes)


class Beta(OneVsRest):
    """Beta calibration: σ(a ln p − b ln(1 − p) + c) with a, b ≥ 0; a = b = 1, c = 0 changes nothing.

    If a or b is negative, the coefficient becomes 0 and the other coefficients are fitted again.

    Args:
        scores: what arrays hold, ``"logits"`` or ``"probs"``; without effect on `Predictions`.

    Attributes:
        coefficients_: (m, 3) a, b and c of every class; with two classes, of the second class only.
        limit_: size of the logarithm that stands for the logarithm of 0; 0 in maps of old files.

    Example:
        >>> p = Predictions([[4.0, 0.0]] * 10 + [[0.0, 4.0]] * 10, [0] * 8 + [1] * 2 + [1] * 8 + [0] * 2)
        >>> Beta().fit(p).apply(p).confidence.round(3)[[0, -1]].tolist()
        [0.8, 0.8]

    References:
        Kull, Silva Filho & Flach (2017), "Beta calibration: a well-founded and easily implemented improvement on
        logistic calibration for binary classifiers".
    """

    method = "beta"
    learned = ("coefficients_", "limit_")

    def _fit_classes(self, log_probs: Floats, log_rest: Floats, outcomes: NDArray[Any], weights: Floats | None) -> None:
        self.limit_ = _limit(log_probs, log_rest)
        coefficients = []
        for first, second, target in zip(log_probs.T, log_rest.T, outcomes.T, strict=True):
            features, kept = _finite(np.stack([first, -second], axis=1), self.limit_), [0, 1]
            while True:
                *slopes, offset = fit_logistic(features[:, kept], target.astype(np.float64), weights)
                negative = [place for place, slope in enumerate(slopes) if slope < 0]
                if not negative:
                    break
                kept.pop(min(negative, key=lambda place: slopes[place]))
            full = np.zeros(3)
            full[kept], full[2] = slopes, offset
            coefficients.append(full)
        self.coefficients_: Floats = np.array(coefficients)

    def _map_classes(self, log_probs: Floats, log_rest: Floats) -> tuple[Floats, Floats]:
        a, b, c = self.coefficients_.T
        first, second = _finite(log_probs, self.limit_), _finite(-log_rest, self.limit_)
        return _log_sigmoids(first * a + second * b + c)

    def check_learned(self) -> None:
        """Check that every map has three coefficients."""
        check_shape("coefficients_", self.coefficients_, (maps_of(len(self.classes_)), 3))
        _check_limit(self.limit_)

    def number_of_parameters(self, classes: int) -> int:
        """Return 3 for every map."""
        return 3 * maps_of(classes)


def _check_limit(limit: Any) -> None:
    if limit != 0:
        check_positive("limit_", limit)


def _limit(log_probs: Floats, log_rest: Floats) -> float:
    """The size that stands for an infinite logarithm: that of the smallest probability, at most 1e-12."""
    both = np.concatenate([log_probs.ravel(), log_rest.ravel()])
    return float(min(max(-np.log(CLIP), -both[np.isfinite(both)].min(initial=0.0)), _LARGEST))


def _finite(values: Floats, limit: float) -> Floats:
    """``values`` with ±``limit`` in place of infinities."""
    return np.where(np.isinf(values), np.copysign(limit, values), values)


def _log_sigmoids(x: Floats) -> tuple[Floats, Floats]:
    """Ln σ(x) and ln σ(−x)."""
    return log_expit(x), log_expit(-x)


def fit_logistic(features: Floats, goal: Floats, weights: Floats | None = None) -> Floats:
    """Fit a logistic regression on targets in [0, 1] by Newton's method.

    Args:
        features: (n, m) finite features.
        goal: (n,) targets.
        weights: (n,) weights, which sum to the number of rows that they stand for; None counts each row once.

    Returns:
        (m + 1,) coefficients, the intercept last.
    """
    m = features.shape[1]
    n = len(features) if weights is None else float(weights.sum())
    scale = np.maximum(np.abs(features).max(axis=0, initial=0.0), 1e-300)
    rows = np.concatenate([features / scale, np.ones((len(features), 1))], axis=1)
    weighted = rows if weights is None else rows * weights[:, None]
    # Just enough regularisation to keep the coefficients of separable data finite.
    ridge = np.full(m + 1, _RIDGE / n)

    def objective(theta: Floats) -> tuple[float, Floats]:
        x = rows @ theta
        losses = np.logaddexp(0.0, x) - goal * x
        mean = losses.mean() if weights is None else weights @ losses / n
        return float(mean + 0.5 * (ridge * theta**2).sum()), weighted.T @ (expit(x) - goal) / n + ridge * theta

    def curvature(theta: Floats) -> Floats:
        q = expit(rows @ theta)
        matrix: Floats = weighted.T @ ((q * (1 - q))[:, None] * rows) / n + np.diag(ridge)
        return matrix

    theta = newton(objective, curvature, np.zeros(m + 1), 1e-12)
    return np.append(theta[:m] / scale, theta[m])
