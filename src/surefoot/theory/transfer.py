"""Proposition B.7 and Corollary B.8 of Morosini et al. (2026): from training margins over a ball to the test ECE.

The corollary requires a coupling of the test distribution with the training set within ε, label by label. The second
marginal of the coupling is the training set. Every training example must therefore take exactly 1/n of the test mass
from its own ball, so the label frequencies must also agree. For two finite sets this is a transport problem per class.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import maximum_flow

from surefoot.deprecated import renamed_property
from surefoot.errors import BadInput
from surefoot.margins.moments import log_moment
from surefoot.predictions import Predictions
from surefoot.theory.certificate import Certificate, Hypothesis, inequality
from surefoot.theory.sample import Robust, precise_ece

__all__ = ["Coverage", "coverage", "transfer"]

_BLOCK = 256


@dataclass(frozen=True)
class Coverage:
    """How much of the test mass the training set can carry within ε.

    Attributes:
        share: largest share of the test mass that can be carried, in [0, 1]; Corollary B.8 requires 1.
        near: share of test examples with a training example of their class within ε.
        labels_agree: whether the label frequencies of both sets are equal.
    """

    share: float
    near: float
    labels_agree: bool

    @property
    def complete(self) -> bool:
        """Whether the coupling exists."""
        return self.share == 1.0

    whole = renamed_property("whole", "complete")


def coverage(train: tuple[Any, Any], test: tuple[Any, Any], eps: Any, norm: str = "inf") -> Coverage:
    """Solve the transport problem of Corollary B.8 between two finite sets by a maximum flow per class.

    Args:
        train: (inputs, labels) of the training set, inputs (n, ...) in the units of ``eps`` and labels (n,).
        test: (inputs, labels) of the test set, of the same shapes with m rows.
        eps: radius, finite and above 0: one number, or one per channel or feature.
        norm: norm of the ball, ``"inf"`` or 2.

    Returns:
        The coverage.

    Raises:
        BadInput: when an argument is not as described, or n and m have a least common multiple of 2³¹ or more.

    Example:
        >>> train = [[0.0], [1.0]], [0, 1]
        >>> test = [[0.1], [0.9]], [0, 1]
        >>> coverage(train, test, eps=0.2)
        Coverage(share=1.0, near=1.0, labels_agree=True)

    References:
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Corollary B.8.
    """
    x, y = _flat("train", *train, eps)
    x_test, y_test = _flat("test", *test, eps)
    n, m = len(x), len(x_test)
    common = gcd(n, m)
    take, give = m // common, n // common  # units of mass 1/lcm that a training and a test example hold
    if take * n > np.iinfo(np.int32).max:
        raise BadInput(f"{n:,} × {m:,} examples need more units of mass than fit; take sets whose sizes divide")
    carried, near = 0, 0
    for label in np.union1d(y, y_test):
        rows, columns = np.flatnonzero(y == label), np.flatnonzero(y_test == label)
        if len(rows) == 0 or len(columns) == 0:
            continue
        ends = _within(x_test[columns], x[rows], norm)
        near += len(np.unique(ends[0]))
        carried += _flow(ends, len(columns), len(rows), give, take)
    labels = np.union1d(y, y_test)
    agree = all(m * int((y == label).sum()) == n * int((y_test == label).sum()) for label in labels)
    return Coverage(carried / (take * n), near / m, agree)


def transfer(
    train: tuple[Any, Any], test: tuple[Any, Any], predictions: Predictions, robust: Robust, eps: Any, norm: str,
    bins: int = 15,
) -> list[Certificate]:  # fmt: skip
    """Check Proposition B.7 (the worst tail of a coupled set) and Corollary B.8 (the ECE on test data).

    Args:
        train: (inputs, labels) of the training set.
        test: (inputs, labels) of the test set.
        predictions: the predictions on the test set.
        robust: the robust margins of the training set.
        eps: radius of the ball, as for `coverage`.
        norm: norm of the ball, ``"inf"`` or 2.
        bins: number of bins of the ECE.

    Returns:
        The certificates, which apply only if the two sets can be coupled.

    Raises:
        BadInput: as `coverage`.
    """
    covered = coverage(train, test, eps, norm)
    text = f"every training example carries 1/n of the test mass within ε; {covered.share:.1%} can be carried"
    coupled = (
        Hypothesis("label frequencies agree", covered.labels_agree),
        Hypothesis(text, covered.complete),
    )
    with np.errstate(over="ignore"):
        moment = float(np.exp(log_moment(robust.margins)))
        tail = float(np.exp(log_moment(predictions.true_margin)))
    k, estimated = predictions.classes, robust.estimated
    return [
        inequality("Proposition B.7", f"mean e^{{−m}} on test ≤ Q⁰_ε of train, {robust.ball}", tail, moment, *coupled,
                   estimated=estimated),
        inequality("Corollary B.8", f"ECE on test ≤ (K−1) Q⁰_ε of train, {robust.ball}", precise_ece(predictions, bins),
                   (k - 1) * moment, *coupled, estimated=estimated),
    ]  # fmt: skip


def _flat(name: str, inputs: Any, labels: Any, eps: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Inputs (n, d) divided by the radius, so that the ball has radius 1."""
    x = np.asarray(inputs, np.float64)
    y = np.asarray(labels)
    if x.ndim < 2 or len(x) == 0 or y.shape != x.shape[:1]:
        raise BadInput(f"{name} must be inputs (n, ...) and labels (n,); got {x.shape} and {y.shape}")
    radius = np.asarray(eps, np.float64)
    if radius.ndim == 1 and x.ndim == 4:
        radius = radius[:, None, None]
    if not (np.isfinite(radius).all() and (radius > 0).all()):
        raise BadInput(f"eps must be positive and finite; got {eps!r}")
    return (x / radius).reshape(len(x), -1), y.astype(np.int64)


def _within(a: NDArray[np.float64], b: NDArray[np.float64], norm: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Pairs (i, j) with ‖a_i − b_j‖ ≤ 1."""
    if str(norm) not in ("inf", "2"):
        raise BadInput(f"norm must be 'inf' or 2; got {norm!r}")
    pairs: list[tuple[NDArray[Any], NDArray[Any]]] = []
    for start in range(0, len(a), _BLOCK):
        block = a[start : start + _BLOCK]
        # ‖·‖∞ ≥ ‖·‖₂/√d: pairs that are far apart in the 2-norm are excluded first, without their coordinates.
        squares = np.maximum(0, (block**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * block @ b.T)
        reach = 1.0 if str(norm) == "2" else a.shape[1]
        i, j = np.nonzero(squares <= reach * (1 + 1e-9) + 1e-9)
        difference = block[i] - b[j]
        size = np.abs(difference).max(1) if str(norm) == "inf" else np.sqrt((difference**2).sum(1))
        close = size <= 1.0
        pairs.append((i[close] + start, j[close]))
    return np.concatenate([i for i, _ in pairs]), np.concatenate([j for _, j in pairs])


def _flow(ends: tuple[NDArray[Any], NDArray[Any]], tests: int, trains: int, give: int, take: int) -> int:
    """Units of mass that flow from test examples (``give`` units each) to training examples (at most ``take`` each)."""
    source, sink = tests + trains, tests + trains + 1
    i, j = ends
    tails = np.concatenate([np.full(tests, source), i, tests + np.arange(trains)])
    heads = np.concatenate([np.arange(tests), tests + j, np.full(trains, sink)])
    room = np.concatenate([np.full(tests, give), np.full(len(i), min(give, take)), np.full(trains, take)])
    graph = coo_matrix((room.astype(np.int32), (tails, heads)), shape=(sink + 1, sink + 1)).tocsr()
    return int(maximum_flow(graph, source, sink).flow_value)
