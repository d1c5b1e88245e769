"""The dense and convolutional layers of a network, found and replaced in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear

from surefoot.errors import BadInput

__all__ = ["Weighted", "along", "applied", "geometry", "replace_layers", "signs", "weighted_layers"]

Weighted = nn.Linear | nn.Conv2d
Moves = tuple[Any, Any, Any, int]


def weighted_layers(model: nn.Module) -> list[tuple[str, Weighted]]:
    """The dense and convolutional layers in the order in which they were made, with their names."""
    found: list[tuple[str, Weighted]] = [
        (name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)
    ]
    if not found:
        raise BadInput(f"an ensemble of this kind needs dense or convolutional layers; {type(model).__name__} has none")
    return found


def replace_layers(model: nn.Module, make: Callable[[str, Weighted], nn.Module]) -> None:
    """Put ``make(name, layer)`` in the place of every dense and convolutional layer, in all its places."""
    if isinstance(model, nn.Linear | nn.Conv2d):
        raise BadInput(f"a bare {type(model).__name__} has no place for another layer; give it as nn.Sequential(layer)")
    made = {layer: make(name, layer) for name, layer in weighted_layers(model)}
    places = [(name, made[each]) for name, each in model.named_modules(remove_duplicate=False) if each in made]
    for name, new in places:
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, new)


def applied(moves: Moves | None, inputs: Tensor, weight: Tensor) -> Tensor:
    """``inputs`` through a weight of a layer's shape, without a bias; ``moves`` is its `geometry`."""
    if moves is None:
        return linear(inputs, weight)
    stride, padding, dilation, groups = moves
    return conv2d(inputs, weight, None, stride, padding, dilation, groups)


def geometry(layer: Weighted) -> Moves | None:
    """How a convolution moves: stride, padding, dilation, groups; None for a dense layer."""
    if isinstance(layer, nn.Linear):
        return None
    if layer.padding_mode != "zeros":
        raise BadInput(f"convolutions of ensembles pad with zeros; got padding_mode {layer.padding_mode!r}")
    return layer.stride, layer.padding, layer.dilation, layer.groups


def along(values: Tensor, weight: Tensor) -> Tensor:
    """Numbers (..., channels) as factors of outputs (..., channels) or (..., channels, h, w)."""
    return values if weight.ndim == 2 else values[..., None, None]


def signs(*shape: int, like: Tensor) -> Tensor:
    """Random ±1."""
    return torch.randint(0, 2, shape, device=like.device).to(like.dtype) * 2 - 1
