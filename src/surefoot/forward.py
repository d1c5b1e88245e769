"""One pass of a model over data that leaves no trace: mode, gradients and random state as they were."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from surefoot.errors import BadInput

__all__ = ["evaluating", "logits_of"]


@contextlib.contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Put every module of ``model`` into eval mode, and each back into its own mode afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def logits_of(model: torch.nn.Module, inputs: Any, batch_size: int = 1024) -> torch.Tensor:
    """Logits (n, k) of ``inputs`` (n, ...), moved to the device of the model's first parameter."""
    if batch_size < 1:
        raise BadInput(f"batch_size must be at least 1; got {batch_size}")
    data = torch.as_tensor(inputs)
    if data.ndim == 0 or len(data) == 0:
        raise BadInput(f"inputs must have at least one row; got shape {tuple(data.shape)}")
    first = next(model.parameters(), None)
    device = data.device if first is None else first.device
    with evaluating(model), torch.no_grad(), torch.random.fork_rng(devices=[]):
        parts = [model(batch.to(device)).cpu() for batch in torch.split(data, batch_size)]
    return torch.cat(parts)
