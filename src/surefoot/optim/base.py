"""What surefoot's optimizers add to torch's Optimizer: working copies, refused empty groups, checked closures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from surefoot.errors import BadInput
from surefoot.optim.passes import Closure

__all__ = ["BaseOptimizer", "betas_of", "check_groups", "total_norm"]


class BaseOptimizer(Optimizer):
    """A torch optimizer that can be copied and pickled completely; torch keeps only three fields of a subclass."""

    def __getstate__(self) -> dict[str, Any]:
        # torch makes new hooks, and a scheduler's wrapper of `step` belongs to the original.
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_optimizer_") and k != "step"}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group, as torch does, and refuse a group without parameters.

        Args:
            param_group: the group, with its parameters under ``"params"``.

        Raises:
            BadInput: if the group has no parameters.
        """
        check_groups([param_group])
        super().add_param_group(param_group)

    def _run(self, closure: Closure | None) -> Any:
        """The loss of an optional closure, for optimizers that take one gradient a step; None without a closure."""
        if closure is None:
            return None
        with torch.enable_grad():
            loss = closure()
        if all(p.grad is None for group in self.param_groups for p in group["params"]):
            raise BadInput("the closure left no gradient on any parameter; it must call backward() and return the loss")
        return loss


def check_groups(groups: Sequence[dict[str, Any]]) -> None:
    """Refuse parameter groups without parameters.

    Args:
        groups: parameter groups. A generator under ``"params"`` is replaced by a list.

    Raises:
        BadInput: if a group has no parameters.

    Example:
        >>> check_groups([{"params": [torch.zeros(2)]}])
    """
    for index, group in enumerate(groups):
        if isinstance(group["params"], Tensor):
            continue
        group["params"] = list(group["params"])
        if not group["params"]:
            raise BadInput(f"parameter group {index} is empty; give it parameters or leave it out")


def betas_of(value: Any) -> tuple[float, float]:
    """Check and return two averaging factors.

    Args:
        value: two numbers in [0, 1).

    Returns:
        The two numbers as floats.

    Raises:
        BadInput: if ``value`` is anything else.

    Example:
        >>> betas_of([0.9, 0.999])
        (0.9, 0.999)
    """
    try:
        first, second = value
        if not (0 <= first < 1 and 0 <= second < 1):
            raise ValueError
    except (TypeError, ValueError) as error:
        raise BadInput(f"betas must be two numbers in [0, 1), such as (0.9, 0.999); got {value!r}") from error
    return float(first), float(second)


def total_norm(tensors: Sequence[Tensor]) -> float:
    """‖·‖₂ of all tensors together.

    Half-precision tensors are summed in float32. A sum that overflows is repeated in float64.

    Args:
        tensors: tensors of any shapes.

    Returns:
        The norm; 0 without tensors.

    Example:
        >>> total_norm([torch.tensor([3.0]), torch.tensor([4.0])])
        5.0
    """
    if not tensors:
        return 0.0
    half = any(tensor.dtype in (torch.float16, torch.bfloat16) for tensor in tensors)
    norm = _norm(tensors, torch.float32 if half else None)
    return norm if math.isfinite(norm) else _norm([t.detach().double() for t in tensors], None)


def _norm(tensors: Sequence[Tensor], dtype: torch.dtype | None) -> float:
    norms = torch._foreach_norm(list(tensors), 2, dtype)
    all_norms = torch.stack([norm.to(norms[0].device, torch.float64) for norm in norms])
    return float(torch.linalg.vector_norm(all_norms))
