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
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from surefoot.curvature.chunks import plain_mode
from surefoot.forward import evaluating

__all__ = ["Statistics", "constant", "held", "recorded"]

Statistics = dict[nn.Module, tuple[Tensor, Tensor]]


@contextlib.contextmanager
def recorded(model: nn.Module) -> Iterator[Statistics]:
    """(C,) mean and variance of what each batch norm in training mode meets inside the block (the last time, if twice).

    They are differentiable by the weights, where gradients are recorded.
    """
    found: Statistics = {}

    def keep(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        x = inputs[0].float() if inputs[0].dtype in (torch.float16, torch.bfloat16) else inputs[0]
        variance, mean = torch.var_mean(x, [0, *range(2, x.ndim)], correction=0)
        found[module] = mean, variance

    norms = [each for each in model.modules() if isinstance(each, _BatchNorm) and each.training]
    handles = [norm.register_forward_pre_hook(keep) for norm in norms]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def constant(statistics: Statistics) -> Statistics:
    """The same without their dependence on the weights: enough, and cheaper, for gradients by the inputs alone."""
    return {module: (mean.detach(), variance.detach()) for module, (mean, variance) in statistics.items()}


@contextlib.contextmanager
def held(model: nn.Module, statistics: Statistics) -> Iterator[nn.Module]:
    """The model in eval mode with these statistics, full precision, and attention that can be differentiated twice.

    What is given is to be called: of a model in DistributedDataParallel the one inside, since the wrapper would write
    the first rank's statistics over these before each pass. Gradients are still averaged, in the one backward.
    """
    before = {module: dict(module._buffers) for module in statistics}
    with evaluating(model), plain_mode(), sdpa_kernel(SDPBackend.MATH), torch.enable_grad():
        handles = []
        try:
            for module, (mean, variance) in statistics.items():
                module._buffers["running_mean"], module._buffers["running_var"] = mean.detach(), variance.detach()
                if mean.requires_grad:
                    handles.append(module.register_forward_pre_hook(_through(module, mean, variance)))
            yield model.module if isinstance(model, DistributedDataParallel) else model
        finally:
            for handle in handles:
                handle.remove()
            for module, buffers in before.items():
                module._buffers.update(buffers)


def _through(norm: Any, mean: Tensor, variance: Tensor) -> Callable[[nn.Module, tuple[Any, ...]], tuple[Any, ...]]:
    """A hook that leaves batch norm's input as it is, and lets gradients reach the statistics.

    torch's batch norm sees running statistics as constants μ₀, σ₀. Given σ₀(x − μ)/σ + μ₀, which is x, it computes
    (x − μ)/σ with the derivatives of μ and σ.
    """
    scale = ((variance.detach() + norm.eps) / (variance + norm.eps)).sqrt()
    shift = mean.detach() - mean * scale

    def moved(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x = inputs[0]
        shape = (1, -1, *(1 for _ in x.shape[2:]))
        return torch.addcmul(shift.to(x).view(shape), x, scale.to(x).view(shape)), *inputs[1:]

    return moved
