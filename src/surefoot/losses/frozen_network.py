"""A network held still inside a training step: dropout off, batch norm by the statistics of the clean batch.

Gradients by the inputs, and attacks on them, need a function of one example at a time. In training mode batch norm
mixes the examples; in eval mode its running statistics are far from the network's own in the first steps.

The statistics do not depend on the inputs that the held network is given, but they do depend on the weights, and the
gradient by the weights goes through them. Taken as constants, they would hide from it that a layer before a batch norm
has no scale: steps then move scale and mean of every layer, running statistics fall behind, and the network that
learns in training mode is useless in eval mode.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from surefoot.curvature.chunks import plain_mode, uncompiled
from surefoot.forward import evaluating

__all__ = ["Statistics", "detached_statistics", "frozen_network", "recorded_statistics"]

# Of each batch norm the (C,) mean and variance at each of its calls in a pass, in order.
Statistics = dict[nn.Module, list[tuple[Tensor, Tensor]]]


@contextlib.contextmanager
def recorded_statistics(model: nn.Module) -> Iterator[Statistics]:
    """The statistics of what each batch norm that uses the batch's own meets in the one pass inside the block.

    They are differentiable by the weights, where gradients are recorded.
    """
    norms = [each for each in model.modules() if isinstance(each, _BatchNorm) and (each.training or _untracked(each))]
    found: Statistics = {norm: [] for norm in norms}

    def keep(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        x = inputs[0] if inputs else named["input"]
        x = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        variance, mean = torch.var_mean(x, [0, *range(2, x.ndim)], correction=0)
        found[module].append((mean, variance))

    handles = [norm.register_forward_pre_hook(keep, with_kwargs=True) for norm in norms]
    try:
        with uncompiled() if norms else contextlib.nullcontext():
            yield found
    finally:
        for handle in handles:
            handle.remove()
        for norm in norms:
            if not found[norm]:  # it takes no part in the pass
                del found[norm]


def _untracked(norm: _BatchNorm) -> bool:
    return norm.running_mean is None


def detached_statistics(statistics: Statistics) -> Statistics:
    """The same without their dependence on the weights: enough, and cheaper, for gradients by the inputs alone."""
    return {
        norm: [(mean.detach(), variance.detach()) for mean, variance in calls] for norm, calls in statistics.items()
    }


@contextlib.contextmanager
def frozen_network(model: nn.Module, statistics: Statistics) -> Iterator[nn.Module]:
    """The model in eval mode with these statistics, full precision, and attention that can be differentiated twice.

    What is given is to be called: of a model in DistributedDataParallel the one inside, since the wrapper would write
    the first rank's statistics over these before each pass. Gradients are still averaged, in the one backward.
    """
    before = {module: dict(module._buffers) for module in statistics}
    handles = []
    with evaluating(model), plain_mode(), uncompiled(), sdpa_kernel(SDPBackend.MATH), torch.enable_grad():
        try:
            for module, calls in statistics.items():
                handles.append(module.register_forward_pre_hook(_through(calls), with_kwargs=True))
            yield model.module if isinstance(model, DistributedDataParallel) else model
        finally:
            for handle in handles:
                handle.remove()
            for module, buffers in before.items():
                module._buffers.update(buffers)


Hook = Callable[[Any, tuple[Any, ...], dict[str, Any]], tuple[Any, Any]]


def _through(calls: list[tuple[Tensor, Tensor]]) -> Hook:
    """A hook that gives batch norm the statistics of its next call, and lets gradients reach them.

    torch's batch norm sees running statistics as constants μ₀, σ₀. Given σ₀(x − μ)/σ + μ₀, which is x, it computes
    (x − μ)/σ with the derivatives of μ and σ.
    """
    turns = itertools.cycle(calls)

    def moved(norm: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]:
        x = inputs[0] if inputs else named["input"]
        mean, variance = next(turns)
        kept = x.dtype if norm.weight is None else norm.weight.dtype  # torch wants statistics of the weights' precision
        norm._buffers["running_mean"] = mean.detach().to(kept)
        norm._buffers["running_var"] = variance.detach().to(kept)
        if mean.requires_grad:
            scale = ((variance.detach() + norm.eps) / (variance + norm.eps)).sqrt()
            shift = mean.detach() - mean * scale
            shape = (1, -1, *(1 for _ in x.shape[2:]))
            x = torch.addcmul(shift.to(x).view(shape), x, scale.to(x).view(shape))
        return ((x, *inputs[1:]), named) if inputs else (inputs, named | {"input": x})

    return moved
