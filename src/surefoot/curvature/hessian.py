"""The Hessian of the training loss as a matrix-free operator; it is indefinite (cards A6 and H)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from surefoot.curvature.chunks import Data, frozen
from surefoot.curvature.gauss_newton import check_one_chunk, mean_or_sum
from surefoot.curvature.linearised import (
    Forward,
    Retained,
    check_logits,
    check_repeatable,
    differentiable_twice,
    model_forward,
)
from surefoot.curvature.losses import LogitLoss, loss_named
from surefoot.curvature.operator import Operator
from surefoot.curvature.parameters import flatten, select, split
from surefoot.errors import BadInput

__all__ = ["Hessian"]


class Hessian(Operator):
    """∇²L of L = mean (or sum) of the loss over all rows; arguments as `GaussNewton`, labels required."""

    def __init__(
        self,
        model: nn.Module,
        inputs: Any,
        labels: Any,
        loss: str | LogitLoss | Callable[[Tensor, Tensor], Tensor] = "ce",
        *,
        names: Iterable[str] | None = None,
        reduction: str = "mean",
        chunk: int | None = None,
        batch_norm: str = "eval",
        memory: int = 4 << 30,
    ) -> None:
        if labels is None:
            raise BadInput("labels are needed: the Hessian of the loss depends on them")
        self._parameters = select(model, names)
        self._loss = loss_named(loss)
        self._data = Data.of(model, inputs, labels, chunk)
        self._model, self._batch_norm = model, batch_norm
        self._weight = mean_or_sum(reduction, len(self._data))
        check_one_chunk(self._data, batch_norm)
        first = next(iter(self._parameters.values()))
        self.dtype, self.device = first.dtype, first.device
        self.dim = sum(value.numel() for value in self._parameters.values())
        self.facts = {
            "matrix": "hessian",
            "n": len(self._data),
            "reduction": reduction,
            "batch_norm": batch_norm,
            "parameters": list(self._parameters),
        }
        check_repeatable(model, self._data, batch_norm)
        with frozen(model, batch_norm):
            few = model_forward(model, list(self._parameters), self._data.inputs[:2])
            if not differentiable_twice(few, list(self._parameters.values())):
                raise BadInput(
                    "the model has an operation that cannot be differentiated twice, so its Hessian cannot be had; "
                    "replace it (for attention, take the 'math' backend), or use GaussNewton"
                )
        self._retained: Retained[Gradient] = Retained(list(self._parameters.values()), memory)

    def matvec(self, v: Tensor) -> Tensor:
        """(d,) H v."""
        tensors = list(self._parameters.values())
        parts = split(self._check(v), tensors)
        total = torch.zeros(self.dim, dtype=self.dtype, device=self.device)
        with frozen(self._model, self._batch_norm):
            for gradient in self._gradients():
                total += flatten(gradient.product(parts), tensors)
        return total

    def gradient(self) -> Tensor:
        """(d,) ∇L, from the same graphs."""
        tensors = list(self._parameters.values())
        total = torch.zeros(self.dim, dtype=self.dtype, device=self.device)
        with frozen(self._model, self._batch_norm):
            for gradient in self._gradients():
                total += flatten([None if g is None else g.detach() for g in gradient.values], tensors)
        return total

    def _gradients(self) -> Iterable[Gradient]:
        tensors = list(self._parameters.values())
        for index, (inputs, labels) in enumerate(self._data.chunks()):
            forward = model_forward(self._model, list(self._parameters), inputs)
            loss = partial(self._chunk_loss, forward, labels)
            yield self._retained.get(index, partial(Gradient, loss, tensors))

    def _chunk_loss(self, forward: Forward, labels: Tensor | None, tensors: Sequence[Tensor]) -> Tensor:
        assert labels is not None
        return self._weight * self._loss.values(check_logits(forward(tensors)), labels).sum()


class Gradient:
    """The gradient of a scalar as a graph that can be differentiated again, as often as asked."""

    def __init__(self, loss: Callable[[Sequence[Tensor]], Tensor], tensors: Sequence[Tensor]) -> None:
        self._tensors = list(tensors)
        with torch.enable_grad():
            self.values = torch.autograd.grad(loss(self._tensors), self._tensors, create_graph=True, allow_unused=True)

    def product(self, parts: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
        """Hessian times the vector given in the shapes of the tensors."""
        pairs = [(g, v) for g, v in zip(self.values, parts, strict=True) if g is not None and g.requires_grad]
        if not pairs:
            return tuple(None for _ in parts)
        gradients, vectors = zip(*pairs, strict=True)
        return torch.autograd.grad(gradients, self._tensors, vectors, retain_graph=True, allow_unused=True)
