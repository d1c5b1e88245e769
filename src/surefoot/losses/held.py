"""A network held still inside a training step: dropout off, batch norm by this batch's statistics as constants.

Gradients by the inputs, and attacks on them, need a function of one example at a time. In training mode batch norm
mixes the examples; in eval mode its running statistics are far from the network's own in the first steps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from surefoot.curvature.chunks import plain_mode
from surefoot.forward import evaluating

__all__ = ["Statistics", "held", "recorded"]

Statistics = dict[nn.Module, tuple[Tensor, Tensor]]


@contextlib.contextmanager
def recorded(model: nn.Module) -> Iterator[Statistics]:
    """Mean and variance of what each batch norm in training mode meets inside the block (the last time, if twice)."""
    found: Statistics = {}

    def keep(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        with torch.no_grad():
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


@contextlib.contextmanager
def held(model: nn.Module, statistics: Statistics) -> Iterator[nn.Module]:
    """The model in eval mode with these statistics, full precision, and attention that can be differentiated twice.

    What is given is to be called: of a model in DistributedDataParallel the one inside, since the wrapper would write
    the first rank's statistics over these before each pass. Gradients are still averaged, in the one backward.
    """
    before = {module: dict(module._buffers) for module in statistics}
    with evaluating(model), plain_mode(), sdpa_kernel(SDPBackend.MATH), torch.enable_grad():
        try:
            for module, (mean, variance) in statistics.items():
                module._buffers["running_mean"], module._buffers["running_var"] = mean, variance
            yield model.module if isinstance(model, DistributedDataParallel) else model
        finally:
            for module, buffers in before.items():
                module._buffers.update(buffers)
