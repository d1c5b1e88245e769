"""One-versus-rest calibrators: every class's probability is mapped separately, then the row is divided by its sum.

With two classes, one map of the second class's probability suffices; the first class gets the complement.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgWarning
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from surefoot.errors import BadInput
from surefoot.posthoc.calibrator import Calibrator, Floats, check_shape
from surefoot.predictions import Predictions

__all__ = ["CLIP", "Beta", "OneVsRest", "Platt", "check_every_class", "maps_of"]

CLIP = 1e-12  # smallest probability before a logarithm, as in the authors' code


class OneVsRest(Calibrator):
    """Base class of the maps of single probabilities; a subclass learns and applies one map for each class.

    Args:
        scores: what arrays hold, ``"logits"`` or ``"probs"``; without effect on `Predictions`.
    """

    @abstractmethod
    def _fit_classes(self, probs: Floats, targets: NDArray[np.bool_]) -> None:
        """Learn a map for each column of ``probs`` (n, c), whose rows are of that class where ``targets`` is true."""

    @abstractmethod
    def _map_classes(self, probs: Floats) -> Floats:
        """(n, c) mapped columns."""

    def _fit(self, p: Predictions) -> None:
        check_every_class(self.method, p)
        probs, targets = p.probs, p.labels[:, None] == np.arange(p.classes)
        self._fit_classes(*((probs[:, 1:], targets[:, 1:]) if p.classes == 2 else (probs, targets)))

    def _map(self, p: Predictions) -> tuple[Floats, str]:
        probs = p.probs
        return normalised(self._map_classes(probs[:, 1:] if p.classes == 2 else probs), probs), "probs"


def normalised(mapped: Floats, probs: Floats) -> Floats:
    """Rows of ``mapped`` (n, k) divided by their sums, or (n, 1) and its complement; ``probs`` for rows of zeros."""
    if mapped.shape[1] == 1:
        return np.concatenate([1 - mapped, mapped], axis=1)
    total = mapped.sum(axis=1, keepdims=True)
    return np.where(total > 0, mapped / np.where(total > 0, total, 1), probs)


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
    count = np.bincount(p.labels, minlength=p.classes)
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

    Example:
        >>> p = Predictions([[4.0, 0.0]] * 10 + [[0.0, 4.0]] * 10, [0] * 8 + [1] * 2 + [1] * 8 + [0] * 2)
        >>> Platt().fit(p).apply(p).confidence.round(3)[[0, -1]].tolist()  # 0.75, by the smoothed targets
        [0.75, 0.75]

    References:
        Platt (1999), "Probabilistic Outputs for Support Vector Machines and Comparisons to Regularized Likelihood
        Methods".
    """

    method = "platt"
    learned = ("coefficients_",)

    def _fit_classes(self, probs: Floats, targets: NDArray[np.bool_]) -> None:
        coefficients = []
        for column, target in zip(probs.T, targets.T, strict=True):
            positive, n = int(target.sum()), len(target)
            goal = np.where(target, (positive + 1) / (positive + 2), 1 / (n - positive + 2))
            coefficients.append(_logistic(_log_odds(column)[:, None], goal))
        self.coefficients_: Floats = np.array(coefficients)

    def _map_classes(self, probs: Floats) -> Floats:
        a, b = self.coefficients_.T
        return _sigmoid(_log_odds(probs) * a + b)

    def check_learned(self) -> None:
        """Check that every map has two coefficients."""
        check_shape("coefficients_", self.coefficients_, (maps_of(len(self.classes_)), 2))

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

    Example:
        >>> p = Predictions([[4.0, 0.0]] * 10 + [[0.0, 4.0]] * 10, [0] * 8 + [1] * 2 + [1] * 8 + [0] * 2)
        >>> Beta().fit(p).apply(p).confidence.round(3)[[0, -1]].tolist()
        [0.8, 0.8]

    References:
        Kull, Silva Filho & Flach (2017), "Beta calibration: a well-founded and easily implemented improvement on
        logistic calibration for binary classifiers".
    """

    method = "beta"
    learned = ("coefficients_",)

    def _fit_classes(self, probs: Floats, targets: NDArray[np.bool_]) -> None:
        coefficients = []
        for column, target in zip(probs.T, targets.T, strict=True):
            features, kept = _beta_features(column), [0, 1]
            while True:
                *slopes, offset = _logistic(features[:, kept], target.astype(np.float64))
                negative = [place for place, slope in enumerate(slopes) if slope < 0]
                if not negative:
                    break
                kept.pop(min(negative, key=lambda place: slopes[place]))
            full = np.zeros(3)
            full[kept], full[2] = slopes, offset
            coefficients.append(full)
        self.coefficients_: Floats = np.array(coefficients)

    def _map_classes(self, probs: Floats) -> Floats:
        a, b, c = self.coefficients_.T
        features = _beta_features(probs)
        return _sigmoid(features[..., 0] * a + features[..., 1] * b + c)

    def check_learned(self) -> None:
        """Check that every map has three coefficients."""
        check_shape("coefficients_", self.coefficients_, (maps_of(len(self.classes_)), 3))

    def number_of_parameters(self, classes: int) -> int:
        """Return 3 for every map."""
        return 3 * maps_of(classes)


def _log_odds(probs: Floats) -> Floats:
    clipped = np.clip(probs, CLIP, 1 - CLIP)
    odds: Floats = np.log(clipped) - np.log1p(-clipped)
    return odds


def _beta_features(probs: Floats) -> Floats:
    clipped = np.clip(probs, CLIP, 1 - CLIP)
    return np.stack([np.log(clipped), -np.log1p(-clipped)], axis=-1)


def _sigmoid(x: Floats) -> Floats:
    value: Floats = expit(x)
    return value


def _logistic(features: Floats, goal: Floats) -> Floats:
    """Coefficients (m + 1,) of the logistic regression on targets in [0, 1], the intercept last."""
    n, m = features.shape
    if m == 0:
        share = float(np.clip(goal.mean(), CLIP, 1 - CLIP))
        return np.array([np.log(share / (1 - share))])
    # A target between 0 and 1 becomes two weighted rows, one with target 1 and one with target 0.
    weights = np.concatenate([goal, 1 - goal])
    used = weights > 0
    # C as in the authors' code: just enough regularisation to keep the coefficients of separable data finite.
    model = LogisticRegression(C=1e10, solver="newton-cholesky", max_iter=200, tol=1e-8)
    scale = np.maximum(np.abs(features).max(axis=0), 1e-300)
    rows = np.concatenate([features, features])[used] / scale
    with warnings.catch_warnings():
        # Separable rows have no optimum; the curve at which the solver stops is steep enough.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", LinAlgWarning)
        model.fit(rows, np.repeat([1, 0], n)[used], sample_weight=weights[used])
    return np.append(model.coef_[0] / scale, model.intercept_)
