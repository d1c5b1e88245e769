"""A frozen network inside a training step: dropout off, batch norm by the statistics of the clean batch.

Gradients by the inputs, and attacks on the inputs, need a function of one example at a time. In training mode batch
norm mixes the examples. In eval mode the running statistics are far from the network's own in the first steps.

The statistics do not depend on the inputs of the frozen network. They do depend on the weights, and the gradient by the
weights goes through them. Constant statistics would hide that a layer before a batch norm has no scale. Steps would
then move scale and mean of every layer, and running statistics would fall behind. The network that learns in training
mode would be useless in eval mode.
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

# For each batch norm, the (C,) mean and variance of its calls in a pass, in order.
Statistics = dict[nn.Module, list[tuple[Tensor, Tensor]]]


@contextlib.contextmanager
def recorded_statistics(model: nn.Module) -> Iterator[Statistics]:
    """Record the statistics of each batch norm that uses the batch's own statistics, in the one pass inside the block.

    The statistics are differentiable by the weights, where gradients are recorded.

    Args:
        model: the model that runs once inside the block.

    Returns:
        A context manager that yields the statistics, filled by the pass.
    """
    norms = [norm for norm in model.modules() if isinstance(norm, _BatchNorm) and (norm.training or _untracked(norm))]
    statistics: Statistics = {norm: [] for norm in norms}

    def keep(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        x = inputs[0] if inputs else named["input"]
        x = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        variance, mean = torch.var_mean(x, [0, *range(2, x.ndim)], correction=0)
        statistics[module].append((mean, variance))

    handles = [norm.register_forward_pre_hook(keep, with_kwargs=True) for norm in norms]
    try:
        with uncompiled() if norms else contextlib.nullcontext():
            yield statistics
    finally:
        for handle in handles:
            handle.remove()
        for norm in norms:
            if not statistics[norm]:  # the pass does not use this batch norm
                del statistics[norm]


def _untracked(norm: _BatchNorm) -> bool:
    return norm.running_mean is None


def detached_statistics(statistics: Statistics) -> Statistics:
    """Statistics without their dependence on the weights: sufficient, and cheaper, for gradients by the inputs alone.

    Args:
        statistics: what `recorded_statistics` yielded.

    Returns:
        The detached statistics.
    """
    return {
        norm: [(mean.detach(), variance.detach()) for mean, variance in calls] for norm, calls in statistics.items()
    }


@contextlib.contextmanager
def frozen_network(model: nn.Module, statistics: Statistics) -> Iterator[nn.Module]:
    """The model in eval mode with given statistics, full precision, and attention that can be differentiated twice.

    Call the model that the block yields. For DistributedDataParallel it is the module inside, since the wrapper would
    overwrite these statistics with the first rank's before each pass. Gradients are still averaged, in the one
    backward.

    Args:
        model: the model.
        statistics: for each batch norm, the mean and variance of its calls; empty for running statistics.

    Returns:
        A context manager that yields the model to call.
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
    """A hook that gives batch norm the statistics of its next call, and lets gradients reach the statistics.

    torch's batch norm treats running statistics as constants μ₀, σ₀. Given σ₀(x − μ)/σ + μ₀, which is x, batch norm
    computes (x − μ)/σ with the derivatives of μ and σ.
    """
    turns = itertools.cycle(calls)

    def moved(norm: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]:
        x = inputs[0] if inputs else named["input"]
        mean, variance = next(turns)
        # torch requires statistics in the precision of the weights.
        dtype = x.dtype if norm.weight is None else norm.weight.dtype
        norm._buffers["running_mean"] = mean.detach().to(dtype)
        norm._buffers["running_var"] = variance.detach().to(dtype)
        if mean.requires_grad:
            scale = ((variance.detach() + norm.eps) / (variance + norm.eps)).sqrt()
            shift = mean.detach() - mean * scale
            shape = (1, -1, *(1 for _ in x.shape[2:]))
            x = torch.addcmul(shift.to(x).view(shape), x, scale.to(x).view(shape))
        return ((x, *inputs[1:]), named) if inputs else (inputs, named | {"input": x})

    return moved
