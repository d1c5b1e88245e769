"""Search and in-place replacement of the dense and convolutional layers of a network."""

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
    """List the dense and convolutional layers of a network in the order of ``named_modules``.

    Args:
        model: the network.

    Returns:
        Names and layers.

    Raises:
        BadInput: when the network has no such layer.

    Example:
        >>> weighted_layers(nn.Sequential(nn.Flatten(), nn.Linear(2, 3)))
        [('1', Linear(in_features=2, out_features=3, bias=True))]
    """
    layers: list[tuple[str, Weighted]] = [
        (name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)
    ]
    if not layers:
        raise BadInput(f"an ensemble of this kind needs dense or convolutional layers; {type(model).__name__} has none")
    return layers


def replace_layers(model: nn.Module, make: Callable[[str, Weighted], nn.Module]) -> None:
    """Replace every dense and convolutional layer of a network, wherever the layer is used.

    Args:
        model: the network, modified in place.
        make: function of the name and the layer that returns the new module.

    Raises:
        BadInput: when the network is a single layer, or has no dense or convolutional layer.
    """
    if isinstance(model, nn.Linear | nn.Conv2d):
        raise BadInput(f"a bare {type(model).__name__} has no place for another layer; give it as nn.Sequential(layer)")
    made = {layer: make(name, layer) for name, layer in weighted_layers(model)}
    modules = model.named_modules(remove_duplicate=False)
    places = [(name, made[module]) for name, module in modules if module in made]
    for name, new in places:
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, new)


def applied(moves: Moves | None, inputs: Tensor, weight: Tensor) -> Tensor:
    """Apply the weight of a layer to inputs, without the bias.

    Args:
        moves: the `geometry` of the layer.
        inputs: (b, inputs, ...).
        weight: the weight, of the shape of the layer's weight.

    Returns:
        (b, outputs, ...).
    """
    if moves is None:
        return linear(inputs, weight)
    stride, padding, dilation, groups = moves
    return conv2d(inputs, weight, None, stride, padding, dilation, groups)


def geometry(layer: Weighted) -> Moves | None:
    """Read the settings of a convolution.

    Args:
        layer: the layer.

    Returns:
        Stride, padding, dilation and groups; None for a dense layer.

    Raises:
        BadInput: when the convolution does not pad with zeros.
    """
    if isinstance(layer, nn.Linear):
        return None
    if layer.padding_mode != "zeros":
        raise BadInput(f"convolutions of ensembles pad with zeros; got padding_mode {layer.padding_mode!r}")
    return layer.stride, layer.padding, layer.dilation, layer.groups


def along(values: Tensor, weight: Tensor) -> Tensor:
    """Shape numbers per channel so that they broadcast to the outputs of a layer.

    Args:
        values: (..., channels).
        weight: the weight of the layer.

    Returns:
        (..., channels) for a dense layer, (..., channels, 1, 1) for a convolution.
    """
    return values if weight.ndim == 2 else values[..., None, None]


def signs(*shape: int, like: Tensor) -> Tensor:
    """Draw random signs ±1.

    Args:
        shape: lengths of the axes.
        like: a tensor of the wanted device and dtype.

    Returns:
        The signs.
    """
    return torch.randint(0, 2, shape, device=like.device).to(like.dtype) * 2 - 1
