"""Ensemble temperature scaling (Zhang et al. 2020): a mixture that cannot do worse than a temperature on its data."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from surefoot.posthoc.calibrator import Calibrator, Floats, check_shape
from surefoot.posthoc.temperature import Temperature, scaled_logits
from surefoot.predictions import Predictions
from surefoot.validation import check_positive

__all__ = ["EnsembleTemperature"]


# Least weight of the two parts that rank: of a lesser one, rounding would leave no order.
_LEAST = 1e-3


class EnsembleTemperature(Calibrator):
    """w₁ softmax(z/T) + w₂ softmax(z) + w₃/k with weights that sum to 1; no answer changes.

    T is the temperature's; the weights then minimise the NLL, which is convex in them (the authors minimise the
    squared error in both), with w₁ + w₂ ≥ 0.001. Learned: ``temperature_`` and its ``outcome_``, ``weights_ (3,)``.
    """

    method = "ets"
    learned = ("temperature_", "weights_")
    keeps_order = True

    def _fit(self, p: Predictions) -> None:
        temperature = Temperature().fit(p)
        self.temperature_, self.outcome_ = temperature.temperature_, temperature.outcome_
        rows = p.take(np.flatnonzero(p.possible))
        cooled = scaled_logits(rows, 1.0 / self.temperature_)
        log_cooled = cooled[np.arange(len(rows)), rows.labels] - logsumexp(cooled, axis=1)
        parts = np.exp(np.stack([log_cooled, rows.log_true, np.full(len(rows), -np.log(p.classes))], axis=1))

        def objective(w: Floats) -> tuple[float, Floats]:
            mixed = np.maximum(parts @ w, 1e-300)
            return float(-np.log(mixed).mean()), -(parts / mixed[:, None]).mean(axis=0)

        start = np.array([1.0, 0.0, 0.0])
        found = minimize(
            objective, start, jac=True, method="SLSQP", bounds=[(0, 1), (0, 1), (0, 1 - _LEAST)],
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(3)},
            options={"ftol": 1e-12, "maxiter": 300},
        )  # fmt: skip
        weights = np.clip(found.x, 0, [1, 1, 1 - _LEAST])
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
        mixed = np.logaddexp.reduce(parts)
        # Where rounding made the answer a tie with another class, it keeps the last bit.
        lost = np.flatnonzero(mixed.argmax(axis=1) != p.predicted)
        mixed[lost, p.predicted[lost]] = np.nextafter(mixed[lost].max(axis=1), np.inf)
        return mixed, "logits"

    def check_learned(self) -> None:
        """A temperature above 0, and weights that sum to 1."""
        check_positive("temperature_", self.temperature_)
        check_shape("weights_", self.weights_, (3,))
        if self.weights_.min() < 0 or abs(self.weights_.sum() - 1) > 1e-6:
            raise ValueError(f"weights_ must be at least 0 and sum to 1; got {self.weights_.tolist()}")

    def number_of_parameters(self, classes: int) -> int:
        """Three."""
        return 3
