"""Linear maps of logits or log-probabilities, then softmax: vector and matrix scaling, and Dirichlet calibration.

All maps minimise the mean NLL of softmax(W x + b), which is convex in (W, b), from W = I, b = 0, in float64. Newton's
method solves problems with few classes, L-BFGS the others. Off-diagonal and intercept regularisation (ODIR, Kull et al.
2019) keeps W near a diagonal matrix and b near 0, by adding l2 · Σ_{i≠j} W_ij² / (k (k − 1)) + l2 · Σ_j b_j² / k.

Vector and matrix scaling take x = z / T with the temperature T, which is then multiplied into W. Both therefore start
where temperature scaling ends, and logits on another scale give the same map.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from surefoot.errors import BadInput
from surefoot.posthoc.calibrator import Calibrator, Floats, check_shape
from surefoot.posthoc.minimise import minimise, newton
from surefoot.posthoc.ovr import CLIP, check_every_class
from surefoot.posthoc.temperature import Temperature
from surefoot.predictions import Predictions
from surefoot.validation import check_int, check_positive

__all__ = ["Dirichlet", "Matrix", "Vector"]

# Lower bound of a logit minus the largest logit of its row, in units of the temperature, because −inf has no linear
# image; exp(−80) is 1.8e-35.
LOWEST = -80.0
_NEWTON_CLASSES = 12  # with more classes, the (k² + k)² second derivatives cost more time than they save
_ROWS_SCALED_ALONE = 256  # with more classes, the k³ numbers of separate scales would be too many
_GRID = (1e4, 1e3, 1e2, 1e1, 1e0, 1e-1, 1e-2)


class _Linear(Calibrator):
    """softmax(W x + b); a subclass defines x and the free entries of W."""

    @abstractmethod
    def _features(self, p: Predictions) -> Floats:
        """(n, k) features x."""

    def _map(self, p: Predictions) -> tuple[Floats, str]:
        x = self._features(p)
        z = x * self.weight_ + self.bias_ if self.weight_.ndim == 1 else x @ self.weight_.T + self.bias_
        return z - logsumexp(z, axis=1, keepdims=True), "logits"


class _OfLogits(_Linear):
    """Linear map of the logits, none of them further below the largest logit of its row than ``lowest_``."""

    learned = ("weight_", "bias_", "lowest_")
    reads_logits = True

    def _features(self, p: Predictions) -> Floats:
        logits = np.array(p.logits, dtype=np.float64)
        top = logits.max(axis=1, keepdims=True)
        clipped: Floats = np.maximum(logits, top + self.lowest_)
        return clipped

    def _cooled(self, p: Predictions) -> tuple[Floats, float]:
        """(n, k) x / T, and T."""
        temperature = Temperature().fit(p).temperature_
        self.lowest_ = LOWEST * temperature
        return self._features(p) / temperature, temperature

    def check_learned(self) -> None:
        """Check that ``lowest_`` is below 0, and whatever the base class checks."""
        super().check_learned()
        if not (isinstance(self.lowest_, float) and self.lowest_ < 0):
            raise ValueError(f"lowest_ must be below 0; got {self.lowest_!r}")


class Vector(_OfLogits):
    """Vector scaling: softmax(w ⊙ z + b) with a factor and an offset for each class.

    Unlike a temperature, vector scaling can change predicted classes.

    Args:
        scores: what arrays hold, ``"logits"`` or ``"probs"``; without effect on `Predictions`.

    Attributes:
        weight_: (k,) factors w.
        bias_: (k,) offsets b.
        lowest_: lower bound of a logit minus the largest logit of its row; lower logits are clipped.

    Example:
        >>> p = Predictions([[4.0, 0.0]] * 10 + [[0.0, 4.0]] * 10, [0] * 8 + [1] * 2 + [1] * 9 + [0])
        >>> Vector().fit(p).apply(p).probs[[0, -1]].round(3).tolist()
        [[0.8, 0.2], [0.1, 0.9]]

    References:
        Guo, Pleiss, Sun & Weinberger (2017), "On Calibration of Modern Neural Networks".
    """

    method = "vector"

    def _fit(self, p: Predictions) -> None:
        check_every_class(self.method, p)  # the offset of a class without examples would fall without end
        (x, temperature), k = self._cooled(p), p.classes

        def objective(theta: Floats) -> tuple[float, Floats]:
            value, residual = _nll(x * theta[:k] + theta[k:], p.labels)
            return value, np.concatenate([np.vecdot(residual.T, x.T), residual.sum(axis=0)])

        theta = minimise(objective, np.concatenate([np.ones(k), np.zeros(k)]))
        self.weight_, self.bias_ = theta[:k] / temperature, theta[k:]

    def check_learned(self) -> None:
        """Check that every class has a factor and an offset."""
        super().check_learned()
        k = len(self.classes_)
        check_shape("weight_", self.weight_, (k,))
        check_shape("bias_", self.bias_, (k,))

    def number_of_parameters(self, classes: int) -> int:
        """Return 2 k."""
        return 2 * classes


class _Full(_Linear):
    """Linear map with a full matrix W, regularised by ODIR."""

    def __init__(self, l2: float | str = "auto", folds: int = 3, seed: int = 0, scores: str = "logits") -> None:
        super().__init__(scores)
        self.l2, self.folds, self.seed = l2, folds, seed

    def check_settings(self) -> None:
        """Check that ``l2`` is a strength or ``"auto"``, and that ``folds`` and ``seed`` are integers."""
        super().check_settings()
        if isinstance(self.l2, str):
            if self.l2 != "auto":
                raise BadInput(f"l2 must be a number or 'auto'; got {self.l2!r}")
        else:
            check_positive("l2", self.l2)
        check_int("folds", self.folds, 2)
        check_int("seed", self.seed, 0)

    def check_learned(self) -> None:
        """Check that every pair of classes has a factor and every class an offset."""
        super().check_learned()
        k = len(self.classes_)
        check_shape("weight_", self.weight_, (k, k))
        check_shape("bias_", self.bias_, (k,))

    def _fit_on(self, x: Floats, labels: NDArray[np.int64]) -> None:
        self.l2_ = self._choose(x, labels) if isinstance(self.l2, str) else float(self.l2)
        self.weight_, self.bias_ = _fit_full(x, labels, self.l2_, None, 1e-6)

    def _choose(self, x: Floats, labels: NDArray[np.int64]) -> float:
        """The strength with the lowest NLL over folds; every fold goes from strong to weak, warm-started."""
        folds = int(self.folds)
        if len(x) < 2 * folds:
            return _GRID[0]
        fold = np.random.default_rng(self.seed).permutation(len(x)) % folds
        total = np.zeros(len(_GRID))
        for test_fold in range(folds):
            train, test = fold != test_fold, fold == test_fold
            warm, lowest = None, np.inf
            for index, l2 in enumerate(_GRID):
                warm = _fit_full(x[train], labels[train], l2, warm, 1e-4)
                value = _nll(x[test] @ warm[0].T + warm[1], labels[test])[0]
                total[index] += value * test.sum()
                if value > 1.02 * lowest:  # overfitting, which weaker penalties only increase
                    total[index + 1 :] = np.inf
                    break
                lowest = min(lowest, value)
        return _GRID[int(total.argmin())]

    def number_of_parameters(self, classes: int) -> int:
        """Return k² + k."""
        return classes * (classes + 1)


class Matrix(_Full, _OfLogits):
    """Matrix scaling: softmax(W z + b), regularised by ODIR.

    Without the regularisation, matrix scaling overfits for many classes.

    Args:
        l2: strength of the regularisation, above 0; ``"auto"`` chooses from 10,000, 1,000, ..., 0.01 by
            cross-validation.
        folds: number of folds of that cross-validation, at least 2.
        seed: seed of the folds, an integer of at least 0.
        scores: what arrays hold, ``"logits"`` or ``"probs"``; without effect on `Predictions`.

    Attributes:
        weight_: (k, k) matrix W.
        bias_: (k,) offsets b.
        lowest_: lower bound of a logit minus the largest logit of its row; lower logits are clipped.
        l2_: strength used.

    Example:
        >>> p = Predictions([[4.0, 0.0]] * 10 + [[0.0, 4.0]] * 10, [0] * 8 + [1] * 2 + [1] * 9 + [0])
        >>> Matrix(l2=0.01).fit(p).apply(p).probs[[0, -1]].round(3).tolist()
        [[0.8, 0.2], [0.1, 0.9]]

    References:
        Guo, Pleiss, Sun & Weinberger (2017), "On Calibration of Modern Neural Networks".
        Kull et al. (2019), "Beyond temperature scaling: Obtaining well-calibrated multi-class probabilities with
        Dirichlet calibration", for ODIR.
    """

    method = "matrix"

    def _fit(self, p: Predictions) -> None:
        x, temperature = self._cooled(p)
        self._fit_on(x, p.labels)
        self.weight_ = self.weight_ / temperature


class Dirichlet(_Full):
    """Dirichlet calibration: softmax(W ln p + b), regularised by ODIR; p is at least 10⁻¹².

    Args:
        l2: strength of the regularisation, above 0; ``"auto"`` chooses from 10,000, 1,000, ..., 0.01 by
            cross-validation.
        folds: number of folds of that cross-validation, at least 2.
        seed: seed of the folds, an integer of at least 0.
        scores: what arrays hold, ``"logits"`` or ``"probs"``; without effect on `Predictions`.

    Attributes:
        weight_: (k, k) matrix W.
        bias_: (k,) offsets b.
        l2_: strength used.

    Example:
        >>> p = Predictions([[4.0, 0.0]] * 10 + [[0.0, 4.0]] * 10, [0] * 8 + [1] * 2 + [1] * 8 + [0] * 2)
        >>> Dirichlet(l2=0.01).fit(p).apply(p).confidence.round(2)[[0, -1]].tolist()
        [0.8, 0.8]

    References:
        Kull et al. (2019), "Beyond temperature scaling: Obtaining well-calibrated multi-class probabilities with
        Dirichlet calibration".
    """

    method = "dirichlet"
    learned = ("weight_", "bias_")

    def _fit(self, p: Predictions) -> None:
        self._fit_on(self._features(p), p.labels)

    def _features(self, p: Predictions) -> Floats:
        return np.maximum(p.log_probs, np.log(CLIP))


def _nll(z: Floats, labels: NDArray[np.int64]) -> tuple[float, Floats]:
    """Mean NLL of logits (n, k), and its derivative (n, k) in them."""
    rows = np.arange(len(z))
    z = z - z.max(axis=1, keepdims=True)
    e = np.exp(z)
    total = e.sum(axis=1)
    value = float((np.log(total) - z[rows, labels]).mean())
    e /= total[:, None]
    e[rows, labels] -= 1.0
    e /= len(z)
    return value, e


def _fit_full(
    x: Floats, labels: NDArray[np.int64], l2: float, start: tuple[Floats, Floats] | None, tol: float
) -> tuple[Floats, Floats]:
    k = x.shape[1]
    off = l2 * (1.0 - np.eye(k)) / (k * (k - 1))
    weight, bias = (np.eye(k), np.zeros(k)) if start is None else start

    if k <= _NEWTON_CLASSES:

        def objective(theta: Floats) -> tuple[float, Floats]:
            w, b = theta[: k * k].reshape(k, k), theta[k * k :]
            value, residual = _nll(x @ w.T + b, labels)
            value += float((off * w**2).sum() + l2 * (b**2).sum() / k)
            slope_w, slope_b = residual.T @ x + 2 * off * w, residual.sum(axis=0) + 2 * l2 * b / k
            return value, np.concatenate([slope_w.ravel(), slope_b])

        diagonal = np.concatenate([2 * off.ravel(), np.full(k, 2 * l2 / k)])
        theta = newton(objective, lambda t: _curvature(x, t, diagonal), np.concatenate([weight.ravel(), bias]), tol)
        return theta[: k * k].reshape(k, k), theta[k * k :]

    # L-BFGS needs a well-conditioned problem: every row of (W, b) is scaled by the Cholesky factor of its block of the
    # second derivative at the start, including the penalty.
    wide = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    scale = _row_scales(wide, np.concatenate([2 * off, np.full((k, 1), 2 * l2 / k)], axis=1))

    rows, goal, factor = torch.from_numpy(wide), torch.tensor(labels), torch.from_numpy(scale)
    pull = torch.from_numpy(np.concatenate([off, np.full((k, 1), l2 / k)], axis=1))

    def scaled(phi: Floats) -> tuple[float, Floats]:
        theta = (factor.mT @ torch.from_numpy(phi).view(k, k + 1, 1))[:, :, 0]
        log_probs = torch.log_softmax(rows @ theta.T, 1)
        value = torch.nn.functional.nll_loss(log_probs, goal) + (pull * theta**2).sum()
        residual = log_probs.exp_()
        residual[torch.arange(len(rows)), goal] -= 1.0
        slope = residual.T @ rows / len(rows) + 2 * pull * theta
        return float(value), (factor @ slope[:, :, None]).numpy().ravel()

    theta = np.concatenate([weight, bias[:, None]], axis=1)
    phi = np.linalg.solve(scale.transpose(0, 2, 1), theta[:, :, None])[:, :, 0].astype(np.float64)
    optimum: Floats = np.matvec(scale.transpose(0, 2, 1), minimise(scaled, phi.ravel(), tol).reshape(k, k + 1))
    return optimum[:, :k], optimum[:, k]


def _row_scales(wide: Floats, penalty: Floats) -> Floats:
    """(k or 1, k + 1, k + 1) inverse Cholesky factors of w_i X̃ᵀX̃/n + diag(penalty_i), w_i = mean p_i (1 − p_i).

    With more than 256 classes, all rows share one factor of the mean.
    """
    p = softmax(wide[:, :-1], axis=1)
    weight = np.maximum((p * (1 - p)).mean(axis=0), 1e-6)
    if len(weight) > _ROWS_SCALED_ALONE:
        weight, penalty = weight.mean(keepdims=True), penalty.mean(axis=0, keepdims=True)
    gram = wide.T @ wide / len(wide)
    blocks = weight[:, None, None] * gram
    index = np.arange(len(gram))
    blocks[:, index, index] += penalty + 1e-9 * np.trace(gram) / len(gram)
    factors: Floats = np.linalg.inv(np.linalg.cholesky(blocks))
    return factors


def _curvature(x: Floats, theta: Floats, penalty: Floats) -> Floats:
    """(k² + k, k² + k) second derivative: mean over rows of (diag(p) − p pᵀ) ⊗ x̃ x̃ᵀ, x̃ = (x, 1), plus the penalty."""
    n, k = x.shape
    p = softmax(x @ theta[: k * k].reshape(k, k).T + theta[k * k :], axis=1)
    wide = np.concatenate([x, np.ones((n, 1))], axis=1)
    blocks = np.empty((k, k + 1, k, k + 1))
    for i in range(k):
        for j in range(i, k):
            weight = p[:, i] * ((i == j) - p[:, j])
            blocks[i, :, j] = blocks[j, :, i] = wide.T @ (weight[:, None] * wide) / n
    # Reorder from rows of (W, b) to all of W, followed by b.
    order = np.arange(k * (k + 1)).reshape(k, k + 1)
    flat = np.concatenate([order[:, :k].ravel(), order[:, k]])
    matrix: Floats = blocks.reshape(k * (k + 1), -1)[np.ix_(flat, flat)] + np.diag(penalty)
    return matrix
