"""Parameters as one flat vector: chosen by name, tied weights once, in the model's own order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import torch
from torch import Tensor, nn

from surefoot.errors import BadInput

__all__ = ["add_into", "select", "split"]


def select(model: nn.Module, names: Iterable[str] | None = None) -> dict[str, nn.Parameter]:
    """Trainable parameters of ``model`` by name, each tensor once; or those of the given names."""
    if not isinstance(model, nn.Module):
        raise BadInput(f"model must be a torch.nn.Module; got {type(model).__name__}")
    # named_parameters lists a tied weight once, under its first name.
    every = dict(model.named_parameters())
    trainable = {name: value for name, value in every.items() if value.requires_grad}
    if names is not None:
        chosen: dict[str, nn.Parameter] = {}
        for name in names:
            if name not in every:
                near = get_close_matches(name, every, 1)
                raise BadInput(
                    f"names: the model has no parameter {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
                )
            if name not in trainable:
                raise BadInput(
                    f"names: parameter {name!r} is frozen (requires_grad is False); leave it out or unfreeze it"
                )
            chosen[name] = trainable[name]
        trainable = chosen
    if not trainable:
        raise BadInput("model has no trainable parameter; set requires_grad=True on those whose curvature you want")
    kinds = {(value.dtype, value.device) for value in trainable.values()}
    if len(kinds) > 1:
        raise BadInput(f"the chosen parameters must share one dtype and device; got {sorted(map(str, kinds))}")
    if not next(iter(trainable.values())).is_floating_point():
        raise BadInput("the chosen parameters must be floating-point numbers")
    return trainable


def add_into(vector: Tensor, tensors: Sequence[Tensor | None], like: Sequence[Tensor]) -> None:
    """Add the tensors to the vector (d,), in place; None (no dependence) adds nothing."""
    for part, tensor in zip(split(vector, like), tensors, strict=True):
        if tensor is not None:
            part += tensor


def split(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Views of the vector (d,) in the shapes of ``like``."""
    sizes = [tensor.numel() for tensor in like]
    return [part.view_as(tensor) for part, tensor in zip(torch.split(vector, sizes), like, strict=True)]
