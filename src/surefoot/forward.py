"""One pass of a model over data that leaves no trace: mode, gradients and random state as they were."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from surefoot.dataset import Dataset
from surefoot.errors import BadInput
from surefoot.validation import check_int

__all__ = ["CHUNK", "evaluating", "logits_of"]

# Rows of a forward pass wherever a run is read: the activations of more leave the cache, and a ResNet takes twice the
# time (at 1,024; an MLP a tenth more at 64 than there). One number for all, since the noise of a Bayesian network
# depends on how the rows are split.
CHUNK = 64


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
    """Logits (n, k) of inputs (n, ...), an array or a `Dataset`; a batch is moved to the model's first parameter."""
    if not isinstance(model, torch.nn.Module):
        raise BadInput(f"model must be a torch.nn.Module; got {type(model).__name__}")
    check_int("batch_size", batch_size, 1)
    first = next(model.parameters(), None)
    parts = []
    with evaluating(model), torch.no_grad(), torch.random.fork_rng():
        for batch in _inputs(inputs, batch_size, None if first is None else first.device):
            if first is not None and batch.is_floating_point():
                batch = batch.to(first.dtype)
            logits = model(batch)
            if not isinstance(logits, torch.Tensor) or logits.ndim != 2 or len(logits) != len(batch):
                found = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
                raise BadInput(
                    f"model must give logits of shape ({len(batch)}, k) for {len(batch)} inputs; got {found}"
                )
            parts.append(logits.cpu())
    if len({part.shape[1] for part in parts}) > 1:
        raise BadInput("model must give the same number of classes for every batch")
    return torch.cat(parts)


def _inputs(given: Any, batch_size: int, device: torch.device | None) -> Iterator[torch.Tensor]:
    if isinstance(given, Dataset):
        for inputs, _, _ in given.batches(batch_size, device):
            yield inputs
        return
    try:
        data = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"inputs must be a tensor or an array; {' '.join(str(error).split())}") from error
    if data.ndim == 0 or len(data) == 0:
        raise BadInput(f"inputs must have at least one row; got shape {tuple(data.shape)}")
    for batch in torch.split(data, batch_size):
        yield batch.to(device)
