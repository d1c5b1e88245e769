"""The Gauss–Newton matrix G = (1/n) Σ J_iᵀ H_z,i J_i as a matrix-free operator (paper A, Section 4; card A6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from surefoot.curvature.chunks import Data, frozen
from surefoot.curvature.linearised import Linearised, Retained, check_repeatable, differentiable_twice, model_forward
from surefoot.curvature.losses import LogitLoss, loss_named
from surefoot.curvature.operator import Operator
from surefoot.curvature.parameters import flatten, select, split
from surefoot.errors import BadInput

__all__ = ["GaussNewton"]


class GaussNewton(Operator):
    """G v = (1/n) Σ_i J_iᵀ H_z(p_i) J_i v over all rows of ``inputs``, a chunk at a time.

    Args:
        model: any module from inputs to logits (n, k).
        inputs: (n, ...) tensor or array.
        labels: (n,), needed only by losses whose logit Hessian depends on them.
        loss: ``"ce"``; ``"mse"`` (mean over classes), ``"mse-half"``, ``"mse-sum"``; or a convex function
            (logits, labels) → (n,) values.
        names: parameters to take; all trainable ones by default.
        reduction: ``"mean"`` over the rows or ``"sum"``.
        chunk: rows per chunk; all at once by default.
        batch_norm: ``"eval"`` (running statistics) or ``"train"`` (statistics of the rows; one chunk only).
        memory: bytes of activations that may be kept between products; graphs beyond it are rebuilt.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Any,
        labels: Any = None,
        loss: str | LogitLoss | Callable[[Tensor, Tensor], Tensor] = "ce",
        *,
        names: Iterable[str] | None = None,
        reduction: str = "mean",
        chunk: int | None = None,
        batch_norm: str = "eval",
        memory: int = 4 << 30,
    ) -> None:
        self._parameters = select(model, names)
        self._loss = loss_named(loss)
        self._data = Data.of(model, inputs, labels, chunk)
        self._model, self._batch_norm = model, batch_norm
        if self._loss.needs_labels and labels is None:
            raise BadInput("labels are needed: this loss's Hessian in the logits depends on them")
        self._weight = mean_or_sum(reduction, len(self._data))
        check_one_chunk(self._data, batch_norm)
        first = next(iter(self._parameters.values()))
        self.dtype, self.device = first.dtype, first.device
        self.dim = sum(value.numel() for value in self._parameters.values())
        self.facts = {
            "matrix": "gauss-newton",
            "n": len(self._data),
            "reduction": reduction,
            "batch_norm": batch_norm,
            "parameters": list(self._parameters),
        }
        check_repeatable(model, self._data, batch_norm)
        with frozen(model, batch_norm):
            few = model_forward(model, list(self._parameters), self._data.inputs[:2])
            self._twice = differentiable_twice(few, list(self._parameters.values()))
        self._retained: Retained[Linearised] = Retained(list(self._parameters.values()), memory)

    def matvec(self, v: Tensor) -> Tensor:
        """(d,) G v."""
        tensors = list(self._parameters.values())
        parts = split(self._check(v), tensors)
        total = torch.zeros(self.dim, dtype=self.dtype, device=self.device)
        with frozen(self._model, self._batch_norm):
            for index, (inputs, labels) in enumerate(self._data.chunks()):
                forward = model_forward(self._model, list(self._parameters), inputs)
                linear = self._retained.get(index, partial(Linearised, forward, tensors, self._twice))
                s = self._loss.hessian_product(linear.logits.detach(), labels, linear.jvp(parts))
                total += flatten(linear.vjp(self._weight * s), tensors)
        return total


def mean_or_sum(reduction: str, n: int) -> float:
    """The weight of one row."""
    if reduction not in ("mean", "sum"):
        raise BadInput(f"reduction must be 'mean' or 'sum'; got {reduction!r}")
    return 1.0 / n if reduction == "mean" else 1.0


def check_one_chunk(data: Data, batch_norm: str) -> None:
    """Batch statistics tie all rows of a chunk together, so they need one chunk."""
    if batch_norm == "train" and data.rows < len(data):
        raise BadInput(f"batch_norm='train' needs all {len(data)} rows in one chunk; got chunk={data.rows}")
