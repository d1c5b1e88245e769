"""Linear maps of logits or log-probabilities, then softmax: vector and matrix scaling, and Dirichlet calibration.

All maps minimise the mean NLL of softmax(W x + b), which is convex in (W, b), in float64, by L-BFGS with a scale from
the second derivative. Off-diagonal and intercept regularisation (ODIR, Kull et al.
2019) keeps W near a diagonal matrix and b near 0, by adding l2 · Σ_{i≠j} W_ij² / (k (k − 1)) + l2 · Σ_j b_j² / k.

Vector and matrix scaling take x = z / T with the temperature T, which is then multiplied into W. Both therefore start
where temperature scaling ends, and logits on another scale give the same map.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp
from torch import Tensor

from surefoot.errors import BadInput
from surefoot.posthoc.calibrator import Calibrator, Floats, check_shape
from surefoot.posthoc.minimise import minimise
from surefoot.posthoc.ovr import CLIP, check_every_class
from surefoot.posthoc.rows import row_weights
from surefoot.posthoc.temperature import Temperature
from surefoot.predictions import Predictions
from surefoot.threads import one_thread
from surefoot.validation import check_int, check_positive

__all__ = ["SMALL", "Dirichlet", "Matrix", "Path", "Vector", "labels_of", "mean_nll", "odir", "renumbered"]

# Lower bound of a logit minus the largest logit of its row, in units of the temperature, because −inf has no linear
# image; exp(−80) is 1.8e-35.
LOWEST = -80.0
_WHOLE_CLASSES = 12  # with more classes, the (k² + k)² second derivatives cost more time than they save
_SCALE_ROWS = 50  # rows for each class that the scale is computed from, with many classes
_BLOCK_CLASSES = 256  # with more classes, the k³ numbers of separate blocks would be too many
SMALL = 1 << 21  # features up to which threads cost more than they save
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
        goal, weights = labels_of(p), row_weights(p)

        def objective(theta: Floats) -> tuple[float, Floats]:
            value, residual = mean_nll(x * theta[:k] + theta[k:], goal, weights)
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

    def _fit_on(self, x: Floats, p: Predictions, scale: float) -> None:
        path = Path(x, labels_of(p), scale, row_weights(p))
        self.l2_ = self._choose(path, p) if isinstance(self.l2, str) else float(self.l2)
        theta = path.fit(odir(path.classes, self.l2_)).numpy()
        self.weight_, self.bias_ = theta[:, :-1].copy(), theta[:, -1].copy()

    def _choose(self, path: Path, p: Predictions) -> float:
        """The strength with the lowest NLL over folds, from strong to weak; every fold starts from its last optimum."""
        folds = int(self.folds)
        owner, n = (None, len(p)) if p.clusters is None else renumbered(p.clusters)
        if n < 2 * folds:
            return _GRID[0]
        fold = np.random.default_rng(self.seed).permutation(n) % folds
        fold = fold if owner is None else fold[owner]
        parts = [(np.flatnonzero(fold != each), np.flatnonzero(fold == each)) for each in range(folds)]
        warm: list[Tensor | None] = [None] * folds
        totals: list[float] = []
        for l2 in _GRID:
            pull, total = odir(path.classes, l2), 0.0
            for each, (train, test) in enumerate(parts):
                theta = warm[each] = path.fit(pull, train, warm[each], 1e-4)
                total += path.nll(theta, test) * path.mass(test)
            totals.append(total)
            # Once the maps overfit, weaker penalties fit only worse.
            if total > 1.02 * min(totals) or (totals[-3:] == sorted(set(totals[-3:])) and len(totals) > 2):
                break
        return _GRID[int(np.argmin(totals))]

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
        with one_thread(len(p) * p.classes <= SMALL):
            x, temperature = self._cooled(p)
            self._fit_on(x, p, 1.0)
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
        with one_thread(len(p) * p.classes <= SMALL):
            self._fit_on(self._features(p), p, 1 / Temperature().fit(p).temperature_)

    def _features(self, p: Predictions) -> Floats:
        return np.maximum(p.log_probs, np.log(CLIP))


def labels_of(p: Predictions) -> NDArray[Any]:
    """Return what a fit compares with.

    Args:
        p: predictions for the fit.

    Returns:
        (n,) classes, or (n, k) soft labels.
    """
    return p.labels if p.soft_labels is None else p.soft_labels


def renumbered(clusters: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Number the clusters of some rows 0..G−1.

    Args:
        clusters: (n,) clusters.

    Returns:
        (n,) numbers, and G.
    """
    found, owner = np.unique(clusters, return_inverse=True)
    return owner.astype(np.int64), len(found)


def mean_nll(z: Floats, labels: NDArray[Any], weights: Floats | None = None) -> tuple[float, Floats]:
    """Compute the mean NLL and its derivative.

    Args:
        z: (n, k) logits.
        labels: (n,) classes in 0..k−1, or (n, k) soft labels, whose rows sum to 1.
        weights: (n,) weights; None weighs all rows 1.

    Returns:
        The mean, and its derivative (n, k) in the logits.
    """
    rows = np.arange(len(z))
    z = z - z.max(axis=1, keepdims=True)
    e = np.exp(z)
    total = e.sum(axis=1)
    losses = np.log(total) - (z[rows, labels] if labels.ndim == 1 else np.vecdot(labels, z))
    e /= total[:, None]
    if labels.ndim == 1:
        e[rows, labels] -= 1.0
    else:
        e -= labels
    if weights is None:
        e /= len(z)
        return float(losses.mean()), e
    share = weights / weights.sum()
    e *= share[:, None]
    return float(share @ losses), e


class Path:
    """Minimises the mean NLL of softmax(W x + b) plus a quadratic penalty, for several penalties and parts of the rows.

    L-BFGS needs a well-conditioned problem: θ = (W, b) is scaled by the Cholesky factor of the second derivative,
    including the penalty. The second derivative is computed once, of all rows at the start. With many classes it is
    replaced by the blocks of the rows of θ, and with very many by one block for all of them.

    Args:
        x: (n, k) features.
        labels: (n,) classes in 0..k−1, or (n, k) soft labels, whose rows sum to 1.
        scale: the start is W = scale · I, b = 0.
        weights: (n,) weights of the rows; None weighs all rows 1.
    """

    def __init__(self, x: Floats, labels: NDArray[Any], scale: float = 1.0, weights: Floats | None = None) -> None:
        self.classes = k = x.shape[1]
        self.wide = torch.from_numpy(np.concatenate([x, np.ones((len(x), 1))], axis=1))
        self.labels = torch.from_numpy(labels.copy())
        self.weights = None if weights is None else torch.from_numpy(weights.copy())
        self.centre = torch.eye(k, k + 1, dtype=torch.float64)
        self.start = scale * self.centre
        self.bends = self._second_derivative()

    def _second_derivative(self) -> Tensor:
        """(1, k² + k, k² + k), (k, k + 1, k + 1) or (1, k + 1, k + 1): Σ (diag(p) − p pᵀ) ⊗ x̃ x̃ᵀ / n or its blocks."""
        n, k = self.mass(), self.classes
        p = torch.softmax(self.wide @ self.start.T, 1)
        if k > _WHOLE_CLASSES:
            # A scale needs no precision: single precision and a part of the rows suffice.
            part = slice(None, None, max(1, len(p) // (_SCALE_ROWS * k)))
            rows, weight = self.wide[part].float(), (p * (1 - p))[part].float()
            n = float(len(rows))
            if self.weights is not None:
                weight, n = weight * self.weights[part, None].float(), float(self.weights[part].sum())
            if k > _BLOCK_CLASSES:
                weight = weight.mean(1, keepdim=True)
            return torch.stack([rows.T @ (w[:, None] * rows) for w in weight.T]).double() / n
        # Both terms as products of matrices: p_i x̃ for all classes i side by side.
        products = (p[:, :, None] * self.wide[:, None, :]).reshape(len(p), -1)
        weighted = products if self.weights is None else products * self.weights[:, None]
        matrix = -(products.T @ weighted)
        own = (weighted.T @ self.wide).view(k, k + 1, k + 1)
        for i in range(k):
            block = slice(i * (k + 1), (i + 1) * (k + 1))
            matrix[block, block] += own[i]
        return matrix[None] / n

    def _factor(self, pull: Tensor) -> Tensor:
        """Inverse Cholesky factors of the second derivative with the penalty."""
        penalty = 2 * pull
        if len(self.bends) == 1:
            penalty = penalty.reshape(1, -1) if self.classes <= _WHOLE_CLASSES else penalty.mean(0, keepdim=True)
        matrix = self.bends.clone()
        diagonal = matrix.diagonal(dim1=1, dim2=2)
        # Adding a constant to a column of W changes only the penalty: a small multiple of the mean keeps these flat
        # directions finite.
        diagonal += penalty + 1e-6 * diagonal.mean(1, keepdim=True) + 1e-12
        identity = torch.eye(matrix.shape[1], dtype=torch.float64)
        factors: Tensor = torch.linalg.solve_triangular(torch.linalg.cholesky(matrix), identity, upper=False)
        return factors

    def fit(
        self, pull: Floats, rows: NDArray[np.int64] | None = None, start: Tensor | None = None, tol: float | None = None
    ) -> Tensor:
        """Minimise for one penalty.

        Args:
            pull: (k, k + 1) penalties of the squares of (W − I, b).
            rows: rows of the fit; None for all.
            start: (k, k + 1) a W and b to start from.
            tol: the search ends where no entry of the gradient in scaled θ is larger; None for 1e-7, or 1e-6 with many
                classes.

        Returns:
            (k, k + 1) W and b side by side.
        """
        tol = tol or (1e-7 if self.classes <= _WHOLE_CLASSES else 1e-6)
        penalty = torch.from_numpy(pull)
        factor = self._factor(penalty)
        shape = (len(factor), -1, 1) if len(factor) > 1 or self.classes <= _WHOLE_CLASSES else (self.classes, -1, 1)
        begin = self.start if start is None else start
        wide = self.wide if rows is None else self.wide[rows]
        labels = self.labels if rows is None else self.labels[rows]
        weights = self.weights if rows is None or self.weights is None else self.weights[rows]
        share = None if weights is None else weights / weights.sum()
        each, soft = torch.arange(len(wide)), labels.ndim > 1

        def theta_of(phi: Floats) -> Tensor:
            return begin + (factor.mT @ torch.from_numpy(phi).view(shape)).view(begin.shape)

        def objective(phi: Floats) -> tuple[float, Floats]:
            theta = theta_of(phi)
            log_probs = torch.log_softmax(wide @ theta.T, 1)
            away = theta - self.centre
            of_label = (log_probs * labels).sum(1) if soft else log_probs[each, labels]
            value = (penalty * away**2).sum() - (of_label.mean() if share is None else of_label @ share)
            residual = log_probs.exp_()
            if soft:
                residual -= labels
            else:
                residual[each, labels] -= 1.0
            mean = residual.T @ wide / len(wide) if share is None else residual.T @ (wide * share[:, None])
            slope = mean + 2 * penalty * away
            return float(value), (factor @ slope.view(shape)).numpy().ravel()

        return theta_of(minimise(objective, np.zeros(begin.numel()), tol))

    def nll(self, theta: Tensor, rows: NDArray[np.int64]) -> float:
        """Mean NLL of rows.

        Args:
            theta: (k, k + 1) W and b side by side.
            rows: the rows.

        Returns:
            The mean.
        """
        losses = torch.nn.functional.cross_entropy(
            self.wide[rows] @ theta.T, self.labels[rows], reduction="mean" if self.weights is None else "none"
        )
        return float(losses if self.weights is None else losses @ self.weights[rows] / self.weights[rows].sum())

    def mass(self, rows: NDArray[np.int64] | None = None) -> float:
        """Sum the weights of rows.

        Args:
            rows: the rows; None for all.

        Returns:
            The sum; the number of rows without weights.
        """
        if self.weights is None:
            return float(len(self.wide) if rows is None else len(rows))
        return float(self.weights.sum() if rows is None else self.weights[rows].sum())


def odir(classes: int, l2: float) -> Floats:
    """Compute the penalties of off-diagonal and intercept regularisation (ODIR).

    Args:
        classes: number of classes k.
        l2: strength of the regularisation.

    Returns:
        (k, k + 1) penalties of the squares of W − I and b; those of the diagonal are 0.
    """
    off = (1.0 - np.eye(classes)) / (classes * (classes - 1))
    return l2 * np.concatenate([off, np.full((classes, 1), 1 / classes)], axis=1)
