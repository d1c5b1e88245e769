"""Asking a closure for gradients twice in one step, so that the model's own state advances once.

An optimizer owns no model. In the second pass the random numbers of the first are replayed, so that both passes see
the same dropout masks and noise, and what modules remember in their buffers (running statistics above all) is put back
afterwards: they are met through torch's global forward hook, whoever holds them, with all their children.
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

_LARGEST = 1 << 20  # numbers of a buffer that is still taken for a memory, not for a table


def fresh_gradients(parameters: Sequence[Tensor], closure: Closure) -> Any:
    """Run the closure on cleared gradients and return its loss; a closure that leaves none is an error."""
    for p in parameters:
        p.grad = None
    with torch.enable_grad():
        loss = closure()
    found = [p.grad for p in parameters if p.grad is not None]
    if not found:
        raise BadInput(
            "the closure left no gradient on any parameter; it must call loss.backward() and return the loss"
        )
    if any(grad.is_sparse for grad in found):
        raise BadInput("sparse gradients are not supported by two-pass rules; build the embedding with sparse=False")
    return loss


def random_state(devices: set[torch.device]) -> Callable[[], None]:
    """A function that puts torch's generators, of the CPU and of these devices, back to where they are now."""
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
    """A second pass: the generators go back to ``start`` and end where they are now; running statistics are kept.

    Weights cast by an enclosing autocast are forgotten at both ends, since the parameters have moved.
    """
    end = random_state(devices)
    met: set[nn.Module] = set()
    kept: list[tuple[nn.Module, str, Tensor, Tensor]] = []

    def keep(module: nn.Module, _: Any) -> None:
        if module in met:
            return
        # The children too: a compiled or scripted model calls them without a hook.
        for each in module.modules():
            if each not in met:
                met.add(each)
                kept.extend((each, name, buffer, buffer.clone()) for name, buffer in _memory_of(each))

    torch.clear_autocast_cache()
    handle = register_module_forward_pre_hook(keep)
    start()
    try:
        with warnings.catch_warnings():
            # torch warns that a compiled model fires the hook once more, which does no harm here.
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
                    setattr(module, name, buffer)  # a module that assigns its statistics anew


def _memory_of(module: nn.Module) -> list[tuple[str, Tensor]]:
    """The buffers that a forward pass may change: those of a module in training, large tables of constants aside."""
    if not module.training:
        return []
    own = list(module.named_buffers(recurse=False))
    statistics = any(name == "running_mean" for name, _ in own)
    return [(name, buffer) for name, buffer in own if statistics or buffer.numel() <= _LARGEST]


@contextlib.contextmanager
def stored(parameters: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Copies of the parameters, put back at the end to the bit, whatever happened in between."""
    copies = [p.detach().clone() for p in parameters]
    try:
        yield copies
    finally:
        with torch.no_grad():
            torch._foreach_copy_([p.detach() for p in parameters], copies)


class Leftovers:
    """The gradients that a step left behind: nobody minds them. Those of somebody else's backward are an error.

    Both passes must see every micro-batch, so gradients gathered before `step` cannot be used, and dropping them in
    silence would train on the last micro-batch alone.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[weakref.ref[Tensor], int]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_seen": {}}  # a copy holds other gradients

    def remember(self, parameters: Sequence[Tensor]) -> None:
        """The gradients as they are now belong to the step that ends."""
        self._seen = {id(p): (weakref.ref(p.grad), p.grad._version) for p in parameters if p.grad is not None}

    def refuse_others(self, parameters: Sequence[Tensor]) -> None:
        """A clear error if a parameter holds a gradient that is not zero and was not left by the last step."""
        for p in parameters:
            if p.grad is None:
                continue
            reference, version = self._seen.get(id(p), (None, -1))
            ours = reference is not None and reference() is p.grad and p.grad._version == version
            if not ours and bool((p.grad != 0).any()):
                raise BadInput(
                    "gradients were computed before step(closure): the closure must run every micro-batch itself, "
                    "since both passes need them all; call zero_grad() first if they are leftovers"
                )
