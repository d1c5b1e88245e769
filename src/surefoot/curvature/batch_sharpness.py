"""Batch sharpness: the curvature that stochastic gradient steps feel (Andreyev & Beneventano 2024)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from surefoot.curvature.chunks import Data, check_repeatable, plain_mode
from surefoot.curvature.hessian import Hessian
from surefoot.curvature.operator import GaussNewton
from surefoot.curvature.problem import select
from surefoot.errors import BadInput
from surefoot.loss import LossLike, as_loss
from surefoot.ranks import ALONE, all_ranks, unwrapped
from surefoot.validation import check_int, check_positive

__all__ = ["BatchSharpness", "batch_sharpness"]


@dataclass(frozen=True)
class BatchSharpness:
    """The estimate of batch sharpness, its standard error, and how it was computed.

    Attributes:
        value: the estimate; NaN if every gradient was zero.
        standard_error: of ``value``; 0 for a single batch of all rows.
        batches: number of batches that were drawn.
        flat: number of drawn batches with a zero gradient. The ratio is undefined for them, so they were left out.
        kind: as given to `batch_sharpness`.
        matrix: as given to `batch_sharpness`.
        batch_size: as given to `batch_sharpness`.
    """

    value: float
    standard_error: float
    batches: int
    flat: int
    kind: str
    matrix: str
    batch_size: int


@plain_mode()
def batch_sharpness(
    model: nn.Module,
    inputs: Any,
    labels: Any,
    batch_size: int,
    seed: int = 0,
    *,
    loss: LossLike = "ce",
    kind: str = "mean of ratios",
    matrix: str = "hessian",
    velocity: Tensor | None = None,
    momentum: float = 0.9,
    tol: float = 0.01,
    min_batches: int = 10,
    max_batches: int = 500,
    batch_norm: str = "eval",
    ranks: bool = False,
) -> BatchSharpness:
    """E_B[g_Bᵀ H_B g_B / ‖g_B‖²] over random batches B; SGD with step η keeps this value near 2/η.

    Args:
        model: any module from inputs to logits (n, k).
        inputs: (n, ...) tensor or array.
        labels: (n,) integers.
        batch_size: rows per batch, drawn without replacement; all rows make a single batch, without an error.
        seed: of the batches; the training's own randomness is not touched.
        loss: as of `GaussNewton`.
        kind: ``"mean of ratios"`` (the definition); ``"ratio of means"``, E[gᵀHg]/E[‖g‖²]; or ``"momentum"``,
            E[sᵀHs/(sᵀg)] with the step direction s = momentum·velocity + g.
        matrix: ``"hessian"`` or ``"gauss-newton"`` of the same batch as the gradient.
        velocity: (d,) the optimizer's buffer, for ``"momentum"``.
        momentum: the optimizer's momentum, for ``"momentum"``.
        tol: stop when the standard error is at most ``tol`` times the value, after ``min_batches``; above 0.
        min_batches: minimum of batches before ``tol`` may stop the estimate.
        max_batches: maximum of batches, at least 1.
        batch_norm: ``"train"`` for the curvature of training with batch norm, or ``"eval"``.
        ranks: as of `GaussNewton`; batches are drawn from the rows of all ranks, which share each batch equally.

    Returns:
        The estimate.

    Raises:
        BadInput: if an argument is out of its range, ``labels`` are missing, or ``velocity`` and ``kind`` do not match.

    Example:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> x, y = torch.eye(2), torch.tensor([0, 1])
        >>> round(batch_sharpness(model, x, y, batch_size=2, loss="mse-sum").value, 4)
        1.0

    References:
        Andreyev and Beneventano (2024), "Edge of Stochastic Stability: Revisiting the Edge of Stability for SGD".
    """
    model, over = unwrapped(model), all_ranks() if ranks else ALONE
    dim = sum(parameter.numel() for parameter in select(model).values())
    if labels is None:
        raise BadInput("labels are needed: the gradient of the loss depends on them")
    with over.agreeing():
        data = Data.of(model, inputs, labels, None)
    counts = over.counts(len(data))
    n = sum(counts)
    check_int("batch_size", batch_size, over.count, n)
    check_int("max_batches", max_batches, 1)
    check_positive("tol", tol)
    if kind not in ("mean of ratios", "ratio of means", "momentum"):
        raise BadInput(f"kind must be 'mean of ratios', 'ratio of means' or 'momentum'; got {kind!r}")
    if matrix not in ("hessian", "gauss-newton"):
        raise BadInput(f"matrix must be 'hessian' or 'gauss-newton'; got {matrix!r}")
    if (kind == "momentum") != (velocity is not None):
        raise BadInput("velocity goes with kind='momentum', and that kind needs it")
    if velocity is not None and velocity.shape != (dim,):
        raise BadInput(f"velocity must have shape ({dim},), one number a parameter; got {tuple(velocity.shape)}")
    separable = as_loss(loss, separable=True)
    if separable.reads_classes:
        # Check here, since a batch numbers its rows differently.
        with over.agreeing():
            data.check_classes(check_repeatable(model, data, batch_norm))
    above: list[float] = []
    below: list[float] = []
    flat = drawn = 0
    for rows in _batches(n, batch_size, seed, max_batches):
        drawn += 1
        assert data.labels is not None
        x, y = over.picked(data.inputs, counts, rows), over.picked(data.labels, counts, rows)
        hessian = Hessian(model, x, y, separable, batch_norm=batch_norm, ranks=ranks)
        g = hessian.gradient()
        s = g if velocity is None else momentum * velocity.to(g) + g
        size = float(s.double() @ g.double())
        if size == 0.0:
            flat += 1
            continue
        product = (
            hessian if matrix == "hessian" else GaussNewton(model, x, y, separable, batch_norm=batch_norm, ranks=ranks)
        )
        above.append(float(s.double() @ product.matvec(s).double()))
        below.append(size)
        if not math.isfinite(above[-1] + size):  # a diverged model: no further batch would help
            break
        value, error = _estimate(above, below, kind)
        if drawn >= min_batches and error <= tol * abs(value):
            break
    value, error = _estimate(above, below, kind)
    if batch_size == n and math.isfinite(value):
        error = 0.0
    return BatchSharpness(value, error, drawn, flat, kind, matrix, batch_size)


def _batches(n: int, size: int, seed: int, max_batches: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(1 if size == n else max_batches):
        yield torch.randperm(n, generator=generator)[:size]


def _estimate(above: list[float], below: list[float], kind: str) -> tuple[float, float]:
    """Value and standard error; the error of the ratio of means comes from the delta method."""
    if not above:
        return math.nan, math.nan
    a, b = torch.tensor(above, dtype=torch.float64), torch.tensor(below, dtype=torch.float64)
    if kind == "ratio of means":
        value = float(a.mean() / b.mean())
        spread = (a - value * b) / b.mean()
    else:
        spread = a / b
        value = float(spread.mean())
    error = float(spread.std() / math.sqrt(len(a))) if len(a) > 1 else math.inf
    return value, error
