"""The Hessian of the training loss as a matrix-free operator; it is indefinite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from surefoot.curvature.chunks import Forward, Retained, check_logits, plain_mode
from surefoot.curvature.operator import Operator, differentiable_twice, probe
from surefoot.curvature.problem import Problem, add_into, split
from surefoot.deprecated import renamed_arguments
from surefoot.errors import BadInput
from surefoot.loss import LossLike

__all__ = ["Hessian"]


class Hessian(Operator):
    """∇²L of L = mean (or sum) of the loss over all rows; this matrix is indefinite.

    Args:
        model: any module from inputs to logits (n, k), differentiable twice.
        inputs: (n, ...) tensor or array.
        labels: (n,) integers.
        loss: as of `GaussNewton`; it need not be convex.
        names: parameters to use; all trainable parameters by default.
        reduction: ``"mean"`` over the rows or ``"sum"``, whatever the loss's own reduction.
        batch_size: rows at a time, at least 1; by default as many as keep their activations within 64 MB.
        batch_norm: ``"eval"`` or ``"train"``, as of `GaussNewton`.
        memory: bytes of activations that may be kept between products; graphs beyond this limit are rebuilt.
        ranks: as of `GaussNewton`.

    Attributes:
        parameters: the parameters that the vectors run over, by name.

    Raises:
        BadInput: if an argument is invalid, ``labels`` are missing, the model is random in eval mode, or torch cannot
            differentiate the model twice.

    Example:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> hessian = Hessian(model, torch.eye(2), torch.tensor([0, 1]), loss="mse-sum")
        >>> hessian.matvec(torch.ones(4))
        tensor([1., 1., 1., 1.])
    """

    @renamed_arguments(chunk="batch_size")
    @plain_mode()
    def __init__(
        self,
        model: nn.Module,
        inputs: Any,
        labels: Any,
        loss: LossLike = "ce",
        *,
        names: Iterable[str] | None = None,
        reduction: str = "mean",
        batch_size: int | None = None,
        batch_norm: str = "eval",
        memory: int = 4 << 30,
        ranks: bool = False,
    ) -> None:
        if labels is None:
            raise BadInput("labels are needed: the Hessian of the loss depends on them")
        settings: dict[str, Any] = {
            "names": names,
            "reduction": reduction,
            "batch_size": batch_size,
            "batch_norm": batch_norm,
        }
        self._problem = Problem(model, inputs, labels, loss, **settings, ranks=ranks)
        rows = self._problem.forward(self._problem.data.inputs[:2])
        with self._problem.frozen():
            twice = differentiable_twice(rows, self._problem.tensors)
        if not twice:
            raise BadInput(
                "the model has an operation that cannot be differentiated twice, so its Hessian cannot be had; "
                "replace it (for attention, take the 'math' backend), or use GaussNewton"
            )
        super().__init__(self._problem.dim, self._problem.tensors[0], {"matrix": "hessian", **self._problem.facts})
        with self._problem.frozen():
            _check_symmetric(rows, self._problem.tensors)
        row = self._problem.row_bytes(self._build)
        self._retained: Retained[Gradient] = Retained(memory, row * self._problem.data.rows)

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """The parameters that the vectors run over, by name."""
        return self._problem.parameters

    def refresh(self) -> None:
        """Use the model as it is now, and discard the activations that were kept."""
        self._problem.refresh()
        self._retained.clear()

    @plain_mode()
    def matvec(self, v: Tensor) -> Tensor:
        """(d,) H v."""
        parts = split(self._check(v), self._problem.tensors)
        return self._sum(lambda gradient: gradient.product(parts))

    @plain_mode()
    def gradient(self) -> Tensor:
        """∇L, from the same graphs as the products.

        Returns:
            (d,).
        """
        return self._sum(lambda gradient: [None if g is None else g.detach() for g in gradient.values])

    def _sum(self, term: Callable[[Gradient], Sequence[Tensor | None]]) -> Tensor:
        self._problem.check_still()
        total = torch.zeros(self.dim, dtype=self.dtype, device=self.device)
        with self._problem.frozen():
            for index, forward, labels in self._problem.chunks():
                # No local name refers to a chunk, so that its graph is freed before the next graph is built.
                add_into(total, term(self._gradient(index, forward, labels)), self._problem.tensors)
        return self._problem.ranks.sum_(total)

    def _gradient(self, index: int, forward: Forward, labels: Tensor | None) -> Gradient:
        return self._retained.get(index, partial(self._build, forward, labels))

    def _build(self, forward: Forward, labels: Tensor | None) -> Gradient:
        return Gradient(partial(self._chunk_loss, forward, labels), self._problem.tensors)

    def _chunk_loss(self, forward: Forward, labels: Tensor | None, tensors: Sequence[Tensor]) -> Tensor:
        assert labels is not None
        values = self._problem.loss.values(check_logits(forward(tensors)), labels)
        return self._problem.weight * values.sum()


class Gradient:
    """The gradient of a scalar as a graph that can be differentiated again any number of times."""

    def __init__(self, loss: Callable[[Sequence[Tensor]], Tensor], tensors: Sequence[Tensor]) -> None:
        self._tensors = list(tensors)
        self.values: tuple[Tensor | None, ...] = (None,) * len(self._tensors)
        with torch.enable_grad():
            value = loss(self._tensors)
            if value.requires_grad:  # a constant has no gradient
                self.values = torch.autograd.grad(value, self._tensors, create_graph=True, allow_unused=True)

    def product(self, parts: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
        """Hessian times the vector given in the shapes of the tensors."""
        pairs = [(g, v) for g, v in zip(self.values, parts, strict=True) if g is not None and g.requires_grad]
        if not pairs:
            return tuple(None for _ in parts)
        gradients, vectors = zip(*pairs, strict=True)
        return torch.autograd.grad(gradients, self._tensors, vectors, retain_graph=True, allow_unused=True)


def _check_symmetric(forward: Forward, tensors: Sequence[Tensor]) -> None:
    """Refuse a model with uᵀ∇²f v ≠ vᵀ∇²f u for f = ⟨c, logits⟩ and random c, u, v; meant for a few rows.

    f replaces the loss, whose own curvature may consist of rounding where the model is confident.
    """
    generator = torch.Generator().manual_seed(0)

    def combined(given: Sequence[Tensor]) -> Tensor:
        logits = forward(given)
        return (probe(logits, generator) * logits).sum()

    gradient = Gradient(combined, tensors)
    vectors = [[probe(tensor, generator) for tensor in tensors] for _ in range(2)]
    images = [gradient.product(vector) for vector in vectors]
    there, back = (_inner(vectors[i], images[1 - i]) for i in range(2))
    scale = sum(float(part.double().square().sum()) for image in images for part in image if part is not None) ** 0.5
    if abs(there - back) > 1e-2 * scale:  # False for a model that is not finite
        raise BadInput(
            "the Hessian of this model is not symmetric as torch computes it, so it is wrong; weight_norm is known for "
            "this: call torch.nn.utils.parametrize.remove_parametrizations (or remove_weight_norm) on a copy first"
        )


def _inner(left: Sequence[Tensor], right: Sequence[Tensor | None]) -> float:
    return sum(float((a.double() * b.double()).sum()) for a, b in zip(left, right, strict=True) if b is not None)
