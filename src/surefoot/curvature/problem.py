"""What a curvature matrix is of: a model, its parameters, data and loss, checked once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from surefoot.curvature.chunks import Data, frozen, saved_bytes
from surefoot.curvature.linearised import (
    Forward,
    check_repeatable,
    differentiable_twice,
    model_forward,
    prefers_forward_mode,
)
from surefoot.curvature.losses import LogitLoss, loss_named
from surefoot.curvature.parameters import select
from surefoot.errors import BadInput

__all__ = ["Loss", "Problem"]

# Activations of a default chunk: few enough to stay near the cores. A ResNet-20's product over 512 images took 0.67
# gradient steps in chunks of 32 to 64, 0.93 in chunks of 256.
_CHUNK_BYTES = 64 << 20

Loss = str | LogitLoss | Callable[[Tensor, Tensor], Tensor]


class Problem:
    """A model on data under a loss; the arguments are those of `GaussNewton`.

    Attributes:
        tensors: the chosen parameters, in the model's order.
        weight: of one row: 1/n for the mean, 1 for the sum.
        twice: whether the model's graph can be differentiated twice.
        prefers_forward_mode: whether J v is cheaper by forward mode.
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
        self.refresh()
        self.weight = 1.0 / len(self.data) if reduction == "mean" else 1.0
        self.dim = sum(tensor.numel() for tensor in self.tensors)
        self.facts: dict[str, Any] = {
            "n": len(self.data),
            "reduction": reduction,
            "batch_norm": batch_norm,
            "parameters": list(self.parameters),
        }
        check_repeatable(model, self.data, batch_norm)
        if chunk is None and batch_norm == "eval":
            rows = _CHUNK_BYTES / max(self.row_bytes(lambda forward, _: forward(self.tensors)), 1)
            self.data = replace(self.data, rows=max(1, min(len(self.data), int(rows))))
        few = self.forward(self.data.inputs[:2])
        with self.frozen():
            self.twice = differentiable_twice(few, self.tensors)
            self.prefers_forward_mode = prefers_forward_mode(model, few, self.tensors)

    def row_bytes(self, build: Callable[[Forward, Tensor | None], object]) -> float:
        """Bytes that a graph saves for each row, judged by building it for two rows and for four."""

        def saved(rows: int) -> int:
            inputs, labels = self.data.inputs[:rows], None if self.data.labels is None else self.data.labels[:rows]
            with self.frozen(), torch.enable_grad(), saved_bytes(self.tensors) as size:
                build(self.forward(inputs), labels)
            return size[0]

        return max(0, saved(4) - saved(2)) / 2

    def refresh(self) -> None:
        """Take the parameters as they are now."""
        self._versions = [tensor._version for tensor in self.tensors]

    def check_still(self) -> None:
        """A clear error if the parameters were changed: graphs kept from before would mix two models."""
        if [tensor._version for tensor in self.tensors] != self._versions:
            raise BadInput("the model's parameters changed after this operator was made; make a new one, or refresh it")

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
