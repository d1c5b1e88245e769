"""Two gradients of one closure in one step, during which the model's own state advances once.

An optimizer owns no model. The second pass replays the random numbers of the first pass, so that both passes see the
same dropout masks and noise. What modules remember in their buffers (running statistics above all) is put back
afterwards. torch's global forward hook reaches these modules, whoever holds them, with all their children.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from surefoot.errors import BadInput

__all__ = ["Closure", "Leftovers", "fresh_gradients", "random_state", "replayed", "stored"]

Closure = Callable[[], Any]

_LARGEST = 1 << 20  # elements; a larger buffer is taken for a table of constants


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
