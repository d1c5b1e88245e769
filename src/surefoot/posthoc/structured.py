"""Structured vector and matrix scaling: linear maps of log-probabilities that penalties shrink to the identity."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from surefoot.posthoc.calibrator import Calibrator, Floats, check_shape, check_share, mix_uniform
from surefoot.posthoc.linear import SMALL, Path, labels_of, mean_nll
from surefoot.posthoc.minimise import minimise, newton
from surefoot.posthoc.rows import row_count, row_weights
from surefoot.posthoc.temperature import Temperature, scaled_logits
from surefoot.predictions import Predictions
from surefoot.threads import one_thread
from surefoot.validation import check_positive

__all__ = ["StructuredMatrix", "StructuredVector"]

_NEWTON_CLASSES = 150  # with more classes, the (2k)² second derivatives cost more time than they save


class _Structured(Calibrator):
    """softmax(W x + b), x = ln of softmax(z / T), mixed with the uniform distribution with the share 1/(n + 1)."""

    learned = ("temperature_", "share_", "weight_", "bias_", "uniform_")

    def __init__(self, scores: str = "logits", *, prior: float | None = None, mixed: bool = False) -> None:
        super().__init__(scores)
        self.prior, self.mixed = prior, mixed

    def _start(self, p: Predictions) -> Floats:
        """(n, k) x of the rows of the fit."""
        self.temperature_ = Temperature(prior=self.prior).fit(p).temperature_
        self.share_ = 1 / (row_count(p) + 1)
        return self._features(p)

    def _features(self, p: Predictions) -> Floats:
        return mix_uniform(scaled_logits(p, 1 / self.temperature_), self.share_)

    def _map(self, p: Predictions) -> tuple[Floats, str]:
        x = self._features(p)
        return x * self.weight_ + self.bias_ if self.weight_.ndim == 1 else x @ self.weight_.T + self.bias_, "logits"

    def check_learned(self) -> None:
        """Check that the temperature is above 0, and the shares, factors and offsets fit together."""
        super().check_learned()
        check_positive("temperature_", self.temperature_)
        check_share("share_", self.share_)
        k = len(self.classes_)
        check_shape("weight_", self.weight_, (k,) if isinstance(self, StructuredVector) else (k, k))
        check_shape("bias_", self.bias_, (k,))
        if self.share_ == 0:
            raise ValueError("share_ must be above 0")


class StructuredVector(_Structured):
    """Structured vector scaling (SVS): softmax((1 + v) ⊙ x + b), with v and b shrunk to 0.

    x = ln((n q + 1/k)/(n + 1)) with the n rows of the fit and q = softmax(z / T). The fit minimises the mean NLL plus
    (k/n) (Σ v² + Σ b²), so that few rows change little. A class without examples is no obstacle.

    Args:
        scores: what arrays hold, ``"logits"`` or ``"probs"``; without effect on `Predictions`.
        prior: standard deviation of a normal prior of log T around 0, for few rows; None for no prior.
        mixed: mix the result with the uniform distribution, with the share 1/(n + 1).

    Attributes:
        temperature_: T.
        share_: share of the uniform distribution in x.
        weight_: (k,) factors 1 + v.
        bias_: (k,) offsets b.

    Example:
        >>> p = Predictions([[4.0, 0.0]] * 10 + [[0.0, 4.0]] * 10, [0] * 8 + [1] * 2 + [1] * 9 + [0])
        >>> StructuredVector().fit(p).apply(p).probs[[0, -1]].round(3).tolist()
        [[0.803, 0.197], [0.124, 0.876]]

    References:
        Berta, Holzmüller, Jordan & Bach (2026), "Structured Matrix Scaling for Multi-Class Calibration".
    """

    method = "svs"

    def _fit(self, p: Predictions) -> None:
        x, k, n = self._start(p), p.classes, row_count(p)
        goal, weights = labels_of(p), row_weights(p)
        penalty = np.full(2 * k, k / n)
        centre = np.concatenate([np.ones(k), np.zeros(k)])

        def objective(theta: Floats) -> tuple[float, Floats]:
            value, residual = mean_nll(x * theta[:k] + theta[k:], goal, weights)
            away = theta - centre
            slope = np.concatenate([np.vecdot(residual.T, x.T), residual.sum(axis=0)])
            return value + float((penalty * away**2).sum()), slope + 2 * penalty * away

        def curvature(theta: Floats) -> Floats:
            q = softmax(x * theta[:k] + theta[k:], axis=1)
            both = np.concatenate([q * x, q], axis=1)
            if weights is None:
                matrix: Floats = -(both.T @ both) / n
            else:
                matrix = -(both.T @ (both * weights[:, None])) / n
                q *= weights[:, None]
            own = np.arange(k)
            matrix[own, own] += np.vecdot(q.T, (x * x).T) / n
            matrix[own + k, own + k] += q.sum(axis=0) / n
            cross = np.vecdot(q.T, x.T) / n
            matrix[own, own + k] += cross
            matrix[own + k, own] += cross
            return matrix + np.diag(2 * penalty)

        few = k <= _NEWTON_CLASSES
        theta = newton(objective, curvature, centre, 1e-9) if few else minimise(objective, centre)
        self.weight_, self.bias_ = theta[:k], theta[k:]


class StructuredMatrix(_Structured):
    """Structured matrix scaling (SMS): softmax((I + M) x + b), with M and b shrunk to 0.

    x = ln((n q + 1/k)/(n + 1)) with the n rows of the fit and q = softmax(z / T). The fit minimises the mean NLL plus
    (k/n) (Σ_i M_ii² + Σ b²) + (k (k − 1)/n) Σ_{i≠j} M_ij², so that few rows change little. A class without examples is
    no obstacle.

    Args:
        scores: what arrays hold, ``"logits"`` or ``"probs"``; without effect on `Predictions`.
        prior: standard deviation of a normal prior of log T around 0, for few rows; None for no prior.
        mixed: mix the result with the uniform distribution, with the share 1/(n + 1).

    Attributes:
        temperature_: T.
        share_: share of the uniform distribution in x.
        weight_: (k, k) matrix I + M.
        bias_: (k,) offsets b.

    Example:
        >>> p = Predictions([[4.0, 0.0]] * 10 + [[0.0, 4.0]] * 10, [0] * 8 + [1] * 2 + [1] * 9 + [0])
        >>> StructuredMatrix().fit(p).apply(p).probs[[0, -1]].round(3).tolist()
        [[0.803, 0.197], [0.118, 0.882]]

    References:
        Berta, Holzmüller, Jordan & Bach (2026), "Structured Matrix Scaling for Multi-Class Calibration".
    """

    method = "sms"

    def _fit(self, p: Predictions) -> None:
        x, k, n = self._start(p), p.classes, row_count(p)
        pull = np.full((k, k + 1), k * (k - 1) / n)
        pull[np.arange(k), np.arange(k)] = pull[:, k] = k / n
        with one_thread(x.size <= SMALL):
            theta = Path(x, labels_of(p), weights=row_weights(p)).fit(pull).numpy()
        self.weight_, self.bias_ = theta[:, :-1].copy(), theta[:, -1].copy()
