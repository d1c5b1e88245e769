"""Ensemble temperature scaling: a mixture that cannot do worse than a temperature on the data of the fit."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from surefoot.posthoc.calibrator import Calibrator, Floats, check_shape, keep_predicted
from surefoot.posthoc.rows import true_entries
from surefoot.posthoc.temperature import Temperature, scaled_logits
from surefoot.predictions import Predictions
from surefoot.validation import check_positive

__all__ = ["EnsembleTemperature"]


# Smallest total weight of the two parts that rank the classes: with a smaller weight, rounding would destroy the order.
_MIN_WEIGHT = 1e-3


class EnsembleTemperature(Calibrator):
    """Ensemble temperature scaling (ETS): w₁ softmax(z/T) + w₂ softmax(z) + w₃/k; no predicted class changes.

    T is the temperature of `Temperature`. The weights sum to 1 and then minimise the NLL, which is convex in the
    weights, with w₁ + w₂ ≥ 0.001. The authors minimise the squared error for both T and the weights.

    Args:
        scores: what arrays hold, ``"logits"`` or ``"probs"``; without effect on `Predictions`.
        prior: standard deviation of a normal prior of log T around 0, for few rows; None for no prior.
        mixed: mix the result with the uniform distribution, with the share 1/(n + 1).

    Attributes:
        temperature_: T.
        outcome_: how the fit of T ended, as in `Temperature`.
        weights_: (3,) the weights w₁, w₂, w₃.

    Example:
        >>> p = Predictions([[4.0, 0.0]] * 10, [0] * 8 + [1] * 2)
        >>> EnsembleTemperature().fit(p).apply(p).probs[0].round(4).tolist()
        [0.8, 0.2]

    References:
        Zhang, Kailkhura & Han (2020), "Mix-n-Match: Ensemble and Compositional Methods for Uncertainty Calibration in
        Deep Learning".
    """

    method = "ets"
    learned = ("temperature_", "weights_", "uniform_")
    added: ClassVar[dict[str, Any]] = {"uniform_": 0.0, "prior": None, "mixed": False}

    def __init__(self, scores: str = "logits", *, prior: float | None = None, mixed: bool = False) -> None:
        super().__init__(scores)
        self.prior, self.mixed = prior, mixed

    def _fit(self, p: Predictions) -> None:
        temperature = Temperature(prior=self.prior).fit(p)
        self.temperature_, self.outcome_ = temperature.temperature_, temperature.outcome_
        rows = p.take(np.flatnonzero(p.possible))
        cooled = scaled_logits(rows, 1.0 / self.temperature_)
        row, label, weight = true_entries(rows)
        log_cooled = cooled[row, label] - logsumexp(cooled, axis=1)[row]
        log_plain = rows.log_true if rows.soft_labels is None else rows.log_probs[row, label]
        parts = np.exp(np.stack([log_cooled, log_plain, np.full(len(row), -np.log(p.classes))], axis=1))
        share = None if weight is None else weight / weight.sum()

        def objective(w: Floats) -> tuple[float, Floats]:
            mixed = np.maximum(parts @ w, 1e-300)
            if share is None:
                return float(-np.log(mixed).mean()), -(parts / mixed[:, None]).mean(axis=0)
            return -float(share @ np.log(mixed)), -(share / mixed) @ parts

        start = np.array([1.0, 0.0, 0.0])
        result = minimize(
            objective, start, jac=True, method="SLSQP", bounds=[(0, 1), (0, 1), (0, 1 - _MIN_WEIGHT)],
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(3)},
            options={"ftol": 1e-12, "maxiter": 300},
        )  # fmt: skip
        weights = np.clip(result.x, 0, [1, 1, 1 - _MIN_WEIGHT])
        weights /= weights.sum()
        self.weights_: Floats = weights if objective(weights)[0] <= objective(start)[0] else start

    def _map(self, p: Predictions) -> tuple[Floats, str]:
        cooled = scaled_logits(p, 1.0 / self.temperature_)
        with np.errstate(divide="ignore"):
            log_w = np.log(self.weights_)
        parts = [
            cooled - logsumexp(cooled, axis=1, keepdims=True) + log_w[0],
            p.log_probs + log_w[1],
            np.full((len(p), p.classes), -np.log(p.classes) + log_w[2]),
        ]
        return keep_predicted(np.logaddexp.reduce(parts), p), "logits"

    def check_learned(self) -> None:
        """Check that the temperature is above 0 and the weights sum to 1."""
        super().check_learned()
        check_positive("temperature_", self.temperature_)
        check_shape("weights_", self.weights_, (3,))
        if self.weights_.min() < 0 or abs(self.weights_.sum() - 1) > 1e-6:
            raise ValueError(f"weights_ must be at least 0 and sum to 1; got {self.weights_.tolist()}")

    def number_of_parameters(self, classes: int) -> int:
        """Return 3."""
        return 3
