"""What surefoot's optimizers share: a base class, checked closures, and several passes of one closure in a step.

An optimizer owns no model. The second pass replays the random numbers of the first pass, so that both passes see the
same dropout masks and noise. What modules remember in their buffers (running statistics above all) is put back
afterwards. torch's global forward hook reaches these modules, whoever holds them, with all their children.
"""

from __future__ import annotations

import contextlib
import math
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim import Optimizer

from surefoot.errors import BadInput

__all__ = [
    "BaseOptimizer",
    "Closure",
    "Leftovers",
    "betas_of",
    "check_groups",
    "fresh_gradients",
    "random_state",
    "replayed",
    "stored",
    "total_norm",
]

Closure = Callable[[], Any]

_LARGEST = 1 << 20  # elements; a larger buffer is taken for a table of constants


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


def fresh_gradients(parameters: Sequence[Tensor], closure: Closure) -> Any:
    """Run the closure on cleared gradients.

    Args:
        parameters: the parameters whose gradients are cleared first.
        closure: computes the loss, calls ``backward`` and returns the loss.

    Returns:
        The closure's loss.

    Raises:
        BadInput: if the closure leaves no gradient, or a sparse one.
    """
    for p in parameters:
        p.grad = None
    with torch.enable_grad():
        loss = closure()
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        raise BadInput(
            "the closure left no gradient on any parameter; it must call loss.backward() and return the loss"
        )
    if any(grad.is_sparse for grad in gradients):
        raise BadInput("two-pass optimizers do not support sparse gradients; build the embedding with sparse=False")
    return loss


def random_state(devices: set[torch.device]) -> Callable[[], None]:
    """Remember the present state of torch's generators.

    Args:
        devices: devices whose generators are remembered, in addition to the CPU's.

    Returns:
        A function that puts the generators back to the state of this call.
    """
    cpu = torch.get_rng_state()
    accelerators = [
        (getattr(torch, device.type), device) for device in devices if device.type in ("cuda", "mps", "xpu")
    ]
    states = [(module, device, module.get_rng_state(device)) for module, device in accelerators]

    def back() -> None:
        torch.set_rng_state(cpu)
        for module, device, state in states:
            module.set_rng_state(state, device)

    return back


@contextlib.contextmanager
def replayed(start: Callable[[], None], devices: set[torch.device]) -> Iterator[None]:
    """Run a second pass inside the block.

    Generators start at ``start`` and end where they are now. Running statistics are kept.

    Weights that an enclosing autocast has cast are forgotten at both ends, since the parameters have moved.

    Args:
        start: what `random_state` returned before the first pass.
        devices: devices whose generators are replayed, in addition to the CPU's.

    Returns:
        A context manager.
    """
    end = random_state(devices)
    met: set[nn.Module] = set()
    kept: list[tuple[nn.Module, str, Tensor, Tensor]] = []

    def keep(module: nn.Module, _: Any) -> None:
        if module in met:
            return
        # The children too: a compiled or scripted model calls them without a hook.
        for child in module.modules():
            if child not in met:
                met.add(child)
                kept.extend((child, name, buffer, buffer.clone()) for name, buffer in _memory_of(child))

    torch.clear_autocast_cache()
    handle = register_module_forward_pre_hook(keep)
    start()
    try:
        with warnings.catch_warnings():
            # torch warns that a compiled model fires the hook once more, which is harmless here.
            warnings.filterwarnings("ignore", message=".*when there are global hooks.*")
            yield
    finally:
        handle.remove()
        end()
        torch.clear_autocast_cache()
        with torch.no_grad():
            for module, name, buffer, value in kept:
                buffer.copy_(value)
                if getattr(module, name) is not buffer and not isinstance(module, torch.jit.ScriptModule):
                    setattr(module, name, buffer)  # a module that assigns new statistics


def _memory_of(module: nn.Module) -> list[tuple[str, Tensor]]:
    """The buffers that a forward pass may change: those of a module in training, except large tables of constants."""
    if not module.training:
        return []
    own = list(module.named_buffers(recurse=False))
    statistics = any(name == "running_mean" for name, _ in own)
    return [(name, buffer) for name, buffer in own if statistics or buffer.numel() <= _LARGEST]


@contextlib.contextmanager
def stored(parameters: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Copy the parameters, and put them back bit-exactly at the end of the block, whatever happened inside.

    Args:
        parameters: the parameters.

    Returns:
        A context manager that yields the copies.
    """
    copies = [p.detach().clone() for p in parameters]
    try:
        yield copies
    finally:
        with torch.no_grad():
            torch._foreach_copy_([p.detach() for p in parameters], copies)


class Leftovers:
    """The gradients that the last step left behind, which may be ignored.

    Gradients of another backward pass are an error. Both passes must see every micro-batch, so gradients accumulated
    before `step` cannot be used. Dropping these gradients in silence would train on the last micro-batch alone.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[weakref.ref[Tensor], int]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_seen": {}}  # a copy holds other gradients

    def remember(self, parameters: Sequence[Tensor]) -> None:
        """Record the present gradients as those of the step that ends.

        Args:
            parameters: the parameters.
        """
        self._seen = {id(p): (weakref.ref(p.grad), p.grad._version) for p in parameters if p.grad is not None}

    def refuse_others(self, parameters: Sequence[Tensor]) -> None:
        """Refuse gradients that the last step did not leave behind.

        Args:
            parameters: the parameters.

        Raises:
            BadInput: if a parameter has a nonzero gradient that is not from the last step.
        """
        for p in parameters:
            if p.grad is None:
                continue
            reference, version = self._seen.get(id(p), (None, -1))
            own = reference is not None and reference() is p.grad and p.grad._version == version
            if not own and bool((p.grad != 0).any()):
                raise BadInput(
                    "gradients were computed before step(closure): the closure must run every micro-batch itself, "
                    "since both passes need them all; call zero_grad() first if they are leftovers"
                )
