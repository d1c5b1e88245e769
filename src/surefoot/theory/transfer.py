"""Proposition B.7 and Corollary B.8 of Morosini et al. (2026): from training margins over a ball to the test ECE.

The corollary asks that the test distribution be a coupling of the training set within ε, label by label. Its second
marginal is the training set itself: every training example must take exactly 1/n of the test mass from its own ball,
so the label frequencies must agree, too. For two finite sets this is a transport problem in each class.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import maximum_flow

from surefoot.errors import BadInput
from surefoot.margins.moments import log_moment
from surefoot.predictions import Predictions
from surefoot.theory.certificate import Certificate, Hypothesis, inequality
from surefoot.theory.sample import Robust, precise_ece

__all__ = ["Coverage", "coverage", "transfer"]

_BLOCK = 256


@dataclass(frozen=True)
class Coverage:
    """How much of the test mass the training set can carry within ε, and what stands in the way.

    Attributes:
        share: of the test mass, at most; 1 is what the corollary asks for.
        near: share of test examples with a training example of their class in reach.
        labels_agree: whether label frequencies are the same.
    """

    share: float
    near: float
    labels_agree: bool

    @property
    def whole(self) -> bool:
        """Whether the coupling exists."""
        return self.share == 1.0


def coverage(train: tuple[Any, Any], test: tuple[Any, Any], eps: Any, norm: str = "inf") -> Coverage:
    """Solve the transport problem of Corollary B.8 between two finite sets, by a maximum flow in each class.

    Args:
        train, test: (inputs, labels); inputs (n, ...) in the same units as ``eps``.
        eps: radius, a scalar, or one number for each channel or feature: then the ball is scaled by it.
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
    agree = all(m * int((y == each).sum()) == n * int((y_test == each).sum()) for each in labels)
    return Coverage(carried / (take * n), near / m, agree)


def transfer(
    train: tuple[Any, Any], test: tuple[Any, Any], predictions: Predictions, robust: Robust, eps: Any, norm: str,
    bins: int = 15,
) -> list[Certificate]:  # fmt: skip
    """Proposition B.7 (the worst tail of a coupled set) and Corollary B.8 (test ECE), of the test ``predictions``."""
    found = coverage(train, test, eps, norm)
    text = f"every training example carries 1/n of the test mass within ε; {found.share:.1%} can be carried"
    coupled = (
        Hypothesis("label frequencies agree", found.labels_agree),
        Hypothesis(text, found.whole),
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
    found: list[tuple[NDArray[Any], NDArray[Any]]] = []
    for start in range(0, len(a), _BLOCK):
        block = a[start : start + _BLOCK]
        # ‖·‖∞ ≥ ‖·‖₂/√d: what is far in the 2-norm needs no look at its coordinates.
        squares = np.maximum(0, (block**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * block @ b.T)
        reach = 1.0 if str(norm) == "2" else a.shape[1]
        i, j = np.nonzero(squares <= reach * (1 + 1e-9) + 1e-9)
        difference = block[i] - b[j]
        size = np.abs(difference).max(1) if str(norm) == "inf" else np.sqrt((difference**2).sum(1))
        close = size <= 1.0
        found.append((i[close] + start, j[close]))
    return np.concatenate([i for i, _ in found]), np.concatenate([j for _, j in found])


def _flow(ends: tuple[NDArray[Any], NDArray[Any]], tests: int, trains: int, give: int, take: int) -> int:
    """Units of mass that flow from test examples (``give`` each) to training examples (room for ``take``)."""
    source, sink = tests + trains, tests + trains + 1
    i, j = ends
    tails = np.concatenate([np.full(tests, source), i, tests + np.arange(trains)])
    heads = np.concatenate([np.arange(tests), tests + j, np.full(trains, sink)])
    room = np.concatenate([np.full(tests, give), np.full(len(i), min(give, take)), np.full(trains, take)])
    graph = coo_matrix((room.astype(np.int32), (tails, heads)), shape=(sink + 1, sink + 1)).tocsr()
    return int(maximum_flow(graph, source, sink).flow_value)
