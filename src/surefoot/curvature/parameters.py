"""Parameters as one flat vector: chosen by name, tied weights once, in the model's own order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

import torch
from torch import Tensor, nn

from surefoot.errors import BadInput

__all__ = ["add_into", "layout", "leaves", "select", "split"]


def select(model: nn.Module, names: Iterable[str] | None = None) -> dict[str, nn.Parameter]:
    """Trainable parameters of a model by name, each tensor once.

    Args:
        model: the model.
        names: names of the parameters; None for all trainable parameters.

    Returns:
        The parameters by name, in the model's order or in the order of ``names``.

    Raises:
        BadInput: if a name is unknown or frozen, there is no parameter, or dtypes or devices are not suitable.

    Example:
        >>> list(select(nn.Linear(2, 2)))
        ['weight', 'bias']
    """
    if not isinstance(model, nn.Module):
        raise BadInput(f"model must be a torch.nn.Module; got {type(model).__name__}")
    if isinstance(names, str):
        raise BadInput(f"names must be a list of parameter names; got the string {names!r}; write [{names!r}]")
    # named_parameters lists a tied weight once, under its first name.
    by_name = dict(model.named_parameters())
    trainable = {name: value for name, value in by_name.items() if value.requires_grad}
    if names is not None:
        chosen: dict[str, nn.Parameter] = {}
        for name in names:
            if name not in by_name:
                near = get_close_matches(name, by_name, 1)
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
    ((dtype, _),) = kinds
    if dtype not in (torch.float32, torch.float64):
        raise BadInput(f"curvature needs float32 or float64; got {dtype}; use copy.deepcopy(model).float()")
    return trainable


def leaves(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    """The tensors to differentiate by: the parameters, or aliases of those with hooks, which would act on products.

    Parameters without hooks are not replaced, since a model may also reach a parameter without its name. Such a model
    would not use the alias.

    Args:
        parameters: the parameters.

    Returns:
        One tensor for each parameter.
    """
    return [p.detach().requires_grad_() if p._backward_hooks else p for p in parameters]


def layout(parameters: Mapping[str, nn.Parameter]) -> list[tuple[object, ...]]:
    """What a flat vector over the parameters must match: names, shapes, dtype and device.

    Args:
        parameters: the parameters by name.

    Returns:
        (name, shape, dtype, device) of each parameter.
    """
    return [(name, value.shape, value.dtype, value.device) for name, value in parameters.items()]


def add_into(vector: Tensor, tensors: Sequence[Tensor | None], like: Sequence[Tensor]) -> None:
    """Add tensors to a flat vector, in place.

    Args:
        vector: (d,).
        tensors: one tensor, or None (no dependence), for each part of the vector.
        like: tensors with the shapes of the parts.
    """
    for part, tensor in zip(split(vector, like), tensors, strict=True):
        if tensor is not None:
            part += tensor


def split(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Views of a flat vector in given shapes.

    Args:
        vector: (d,).
        like: tensors with the shapes of the parts.

    Returns:
        One view for each tensor.

    Example:
        >>> split(torch.arange(3.0), [torch.zeros(2), torch.zeros(1, 1)])
        [tensor([0., 1.]), tensor([[2.]])]
    """
    sizes = [tensor.numel() for tensor in like]
    return [part.view_as(tensor) for part, tensor in zip(torch.split(vector, sizes), like, strict=True)]
