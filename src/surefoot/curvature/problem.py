"""What a curvature matrix is of: a model, its parameters, data and loss, checked once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn

from surefoot.curvature.chunks import Data, frozen
from surefoot.curvature.linearised import Forward, check_repeatable, differentiable_twice, model_forward
from surefoot.curvature.losses import LogitLoss, loss_named
from surefoot.curvature.parameters import select
from surefoot.errors import BadInput

__all__ = ["Loss", "Problem"]

Loss = str | LogitLoss | Callable[[Tensor, Tensor], Tensor]


class Problem:
    """A model on data under a loss; the arguments are those of `GaussNewton`.

    Attributes:
        tensors: the chosen parameters, in the model's order.
        weight: of one row: 1/n for the mean, 1 for the sum.
        twice: whether the model's graph can be differentiated twice.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Any,
        labels: Any,
        loss: Loss,
        *,
        names: Iterable[str] | None,
        reduction: str,
        chunk: int | None,
        batch_norm: str,
    ) -> None:
        self.model, self.batch_norm = model, batch_norm
        self.parameters = select(model, names)
        self.tensors: list[Tensor] = list(self.parameters.values())
        self.loss = loss_named(loss)
        self.data = Data.of(model, inputs, labels, chunk)
        if self.loss.needs_labels and labels is None:
            raise BadInput("labels are needed: this loss's Hessian in the logits depends on them")
        if reduction not in ("mean", "sum"):
            raise BadInput(f"reduction must be 'mean' or 'sum'; got {reduction!r}")
        if batch_norm == "train" and self.data.rows < len(self.data):
            # Batch statistics tie all rows of a chunk together.
            raise BadInput(
                f"batch_norm='train' needs all {len(self.data)} rows in one chunk; got chunk={self.data.rows}"
            )
        self.weight = 1.0 / len(self.data) if reduction == "mean" else 1.0
        self.dim = sum(tensor.numel() for tensor in self.tensors)
        self.facts: dict[str, Any] = {
            "n": len(self.data),
            "reduction": reduction,
            "batch_norm": batch_norm,
            "parameters": list(self.parameters),
        }
        check_repeatable(model, self.data, batch_norm)
        with self.frozen():
            self.twice = differentiable_twice(self.forward(self.data.inputs[:2]), self.tensors)

    def frozen(self) -> AbstractContextManager[None]:
        """The model held still while it is used; see `chunks.frozen`."""
        return frozen(self.model, self.batch_norm)

    def forward(self, inputs: Tensor) -> Forward:
        """The logits of ``inputs`` as a function of the chosen parameters."""
        return model_forward(self.model, list(self.parameters), inputs)

    def chunks(self) -> Iterator[tuple[int, Forward, Tensor | None]]:
        """Index, logits as a function of the parameters, and labels of each chunk."""
        for index, (inputs, labels) in enumerate(self.data.chunks()):
            yield index, self.forward(inputs), labels
