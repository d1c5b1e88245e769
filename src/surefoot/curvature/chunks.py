"""A model on data, a chunk of examples at a time, evaluated so that nothing about the model changes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from surefoot.errors import BadInput
from surefoot.forward import evaluating

__all__ = ["Data", "frozen", "saved_bytes"]


@dataclass(frozen=True)
class Data:
    """Inputs (n, ...) and labels (n,) or None, on the model's device, and how many rows go in a chunk."""

    inputs: Tensor
    labels: Tensor | None
    rows: int

    @classmethod
    def of(cls, model: nn.Module, inputs: Any, labels: Any, rows: int | None) -> Data:
        """Check and move the data; the dtype of floating inputs becomes the parameters'."""
        first = next(model.parameters())
        x = torch.as_tensor(inputs)
        if x.ndim == 0 or len(x) == 0:
            raise BadInput(f"inputs must have at least one row; got shape {tuple(x.shape)}")
        x = x.to(first.device, first.dtype) if x.is_floating_point() else x.to(first.device)
        y = None
        if labels is not None:
            y = torch.as_tensor(labels).to(first.device)
            if y.shape != x.shape[:1]:
                raise BadInput(f"labels must have shape ({len(x)},), one per input; got {tuple(y.shape)}")
            if y.is_floating_point() or y.dtype == torch.bool:
                raise BadInput(f"labels must be whole numbers; got {y.dtype}; convert with .long()")
            y = y.long()
        if rows is not None and rows < 1:
            raise BadInput(f"chunk must be at least 1; got {rows}")
        return cls(x, y, min(rows or len(x), len(x)))

    def __len__(self) -> int:
        return len(self.inputs)

    def chunks(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        """(inputs, labels) of each chunk, in order."""
        for at in range(0, len(self), self.rows):
            part = slice(at, at + self.rows)
            yield self.inputs[part], None if self.labels is None else self.labels[part]


@contextlib.contextmanager
def frozen(model: nn.Module, batch_norm: str) -> Iterator[None]:
    """Eval mode throughout, so that dropout is off; batch norm by its running or by the chunk's statistics.

    Buffers, modes and the random state are put back afterwards.
    """
    if batch_norm not in ("eval", "train"):
        raise BadInput(f"batch_norm must be 'eval' or 'train'; got {batch_norm!r}")
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and batch_norm == "train"]
    tracked = [(module, module.running_mean, module.running_var, module.track_running_stats) for module in norms]
    with evaluating(model), torch.random.fork_rng(devices=[]):
        try:
            for module in norms:
                # Without running statistics there is nothing to update, and a kept graph refers to none.
                module.training, module.track_running_stats = True, False
                module.running_mean = module.running_var = None
            yield
        finally:
            for module, mean, variance, track in tracked:
                module.running_mean, module.running_var, module.track_running_stats = mean, variance, track


@contextlib.contextmanager
def saved_bytes(parameters: list[Tensor]) -> Iterator[list[int]]:
    """Count the bytes that autograd saves inside the block, storages of the parameters aside.

    For a graph that is thrown away: what is saved is detached, since a graph whose hook hands back its own output
    holds itself alive.
    """
    known = {tensor.untyped_storage().data_ptr() for tensor in parameters}
    total = [0]

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            known.add(storage.data_ptr())
            total[0] += storage.nbytes()
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield total
