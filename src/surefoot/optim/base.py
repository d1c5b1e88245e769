"""What every rule of ours adds to torch's Optimizer: copies that work, empty groups refused, closures checked."""

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
    """A torch optimizer that can be copied and pickled whole; torch itself keeps three fields of a subclass only."""

    def __getstate__(self) -> dict[str, Any]:
        # torch makes hooks anew, and a scheduler's wrapper of `step` belongs to the original.
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_optimizer_") and k != "step"}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As in torch, but a group without parameters is refused."""
        check_groups([param_group])
        super().add_param_group(param_group)

    def _run(self, closure: Closure | None) -> Any:
        """The loss of a closure that rules of one gradient may be given, or None."""
        if closure is None:
            return None
        with torch.enable_grad():
            loss = closure()
        if all(p.grad is None for group in self.param_groups for p in group["params"]):
            raise BadInput("the closure left no gradient on any parameter; it must call backward() and return the loss")
        return loss


def check_groups(groups: Sequence[dict[str, Any]]) -> None:
    """A clear error for a parameter group without parameters; a generator of them becomes a list."""
    for index, group in enumerate(groups):
        if isinstance(group["params"], Tensor):
            continue
        group["params"] = list(group["params"])
        if not group["params"]:
            raise BadInput(f"parameter group {index} is empty; give it parameters or leave it out")


def betas_of(value: Any) -> tuple[float, float]:
    """``value`` as two factors in [0, 1)."""
    try:
        first, second = value
        if not (0 <= first < 1 and 0 <= second < 1):
            raise ValueError
    except (TypeError, ValueError) as error:
        raise BadInput(f"betas must be two numbers in [0, 1), such as (0.9, 0.999); got {value!r}") from error
    return float(first), float(second)


def total_norm(tensors: Sequence[Tensor]) -> float:
    """‖·‖₂ of all tensors together; halves are summed in float32, and what overflows so in float64."""
    if not tensors:
        return 0.0
    half = any(tensor.dtype in (torch.float16, torch.bfloat16) for tensor in tensors)
    found = _norm(tensors, torch.float32 if half else None)
    return found if math.isfinite(found) else _norm([t.detach().double() for t in tensors], None)


def _norm(tensors: Sequence[Tensor], dtype: torch.dtype | None) -> float:
    norms = torch._foreach_norm(list(tensors), 2, dtype)
    together = torch.stack([norm.to(norms[0].device, torch.float64) for norm in norms])
    return float(torch.linalg.vector_norm(together))
