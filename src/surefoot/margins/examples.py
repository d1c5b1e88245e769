"""Validation of the arguments of robust margins: a model, inputs and labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from surefoot.errors import BadInput

__all__ = ["check_labels", "examples", "runner_ups", "true_margins"]


def examples(model: Any, inputs: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Check a model, inputs and labels.

    Args:
        model: a torch module.
        inputs: (n, ...) finite floating-point numbers, n at least 1.
        labels: (n,) integers.

    Returns:
        The inputs in their dtype and the labels as int64, both on the model's device.

    Raises:
        BadInput: when an argument is not as described.
    """
    if not isinstance(model, nn.Module):
        raise BadInput(f"model must be a torch.nn.Module; got {type(model).__name__}")
    try:
        x, y = torch.as_tensor(inputs), torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"inputs and labels must be tensors or arrays; {' '.join(str(error).split())}") from error
    if x.ndim < 2 or len(x) == 0:
        raise BadInput(f"inputs must have shape (n, ...) with n at least 1; got {tuple(x.shape)}")
    if not x.is_floating_point():
        raise BadInput(
            f"inputs must be floating-point numbers to be moved by eps; got {x.dtype}; convert with .float()"
        )
    finite = x.isfinite().flatten(1).all(dim=1)
    if not bool(finite.all()):
        raise BadInput(f"inputs must be finite; row {int((~finite).nonzero()[0])} is not")
    if y.shape != x.shape[:1]:
        raise BadInput(f"labels must have shape ({len(x)},), one per input; got {tuple(y.shape)}")
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise BadInput(f"labels must be integers; got {y.dtype}; convert with .long()")
    first = next(model.parameters(), None)
    device = x.device if first is None else first.device
    return x.detach().to(device), y.to(device, torch.int64)


def check_labels(labels: Tensor, logits: Any, rows: int) -> None:
    """Check the logits of a model, and the labels against the classes of the logits.

    Args:
        labels: (rows,) integers.
        logits: the output of the model.
        rows: number of inputs.

    Raises:
        BadInput: unless the logits are (rows, k) with k at least 2, and every label is one of the k classes.
    """
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != rows or logits.shape[1] < 2:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise BadInput(
            f"model must give logits of shape ({rows}, k), two classes at least, for {rows} inputs; got {shape}"
        )
    classes = logits.shape[1]
    wrong = ((labels < 0) | (labels >= classes)).nonzero()
    if len(wrong):
        row = int(wrong[0])
        raise BadInput(
            f"labels must lie in 0..{classes - 1}, the model's classes; got {int(labels[row])} in row {row}; "
            "leave out rows without a label"
        )


def runner_ups(labels: Tensor, classes: int) -> Tensor:
    """List the classes other than the label of every row.

    Args:
        labels: (b,) integers in 0..k−1.
        classes: number of classes k.

    Returns:
        (b, k − 1) classes in ascending order.

    Example:
        >>> runner_ups(torch.tensor([1]), 3).tolist()
        [[0, 2]]
    """
    others = torch.arange(classes - 1, device=labels.device).expand(len(labels), -1)
    return others + (others >= labels[:, None]).long()


def true_margins(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute the true margins z_y − max_{j≠y} z_j.

    Args:
        logits: (b, k), k at least 2.
        labels: (b,) integers in 0..k−1.

    Returns:
        (b,) float64 margins, with gradients if the logits have gradients.

    Example:
        >>> true_margins(torch.tensor([[2.0, 0.5]]), torch.tensor([0])).tolist()
        [1.5]
    """
    z = logits.double()
    others = z.gather(1, runner_ups(labels, z.shape[1]))
    return z.gather(1, labels[:, None]).squeeze(1) - others.amax(dim=1)
