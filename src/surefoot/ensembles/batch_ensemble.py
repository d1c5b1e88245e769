"""BatchEnsemble (Wen et al. 2020): members share each weight W, and differ by factors of rank one.

Member m has the weight W ∘ (r_m s_mᵀ): its inputs are scaled by s_m, its outputs by r_m, and it has a bias of its own.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from surefoot.ensembles.ensemble import Ensemble, tiled
from surefoot.ensembles.layers import Weighted, along, applied, geometry, replace_layers
from surefoot.losses.objective import Batch
from surefoot.validation import check_int, check_positive

__all__ = ["BatchEnsemble", "Scaled"]


class Scaled(nn.Module):
    """A dense or convolutional layer for inputs (m·b, ...), member after member."""

    def __init__(self, layer: Weighted, members: int) -> None:
        super().__init__()
        self.members, self.geometry = members, geometry(layer)
        self.weight = layer.weight
        outside = layer.weight.shape[0]
        inside = layer.weight.shape[1] * (1 if self.geometry is None else self.geometry[3])
        self.inside, self.outside = inside, outside
        self.bias = None if layer.bias is None else nn.Parameter(layer.bias.detach().repeat(members, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(m·b, outputs, ...)."""
        s, r = self.factors()
        grouped = x.view(self.members, -1, *x.shape[1:]) * along(s, self.weight)[:, None]
        found = applied(self.geometry, grouped.flatten(0, 1), self.weight)
        found = found.view(self.members, -1, *found.shape[1:]) * along(r, self.weight)[:, None]
        if self.bias is not None:
            found = found + along(self.bias, self.weight)[:, None]
        return found.flatten(0, 1)

    @abstractmethod
    def factors(self) -> tuple[Tensor, Tensor]:
        """Factors of the inputs (m, inputs) and of the outputs (m, outputs)."""


class _Fixed(Scaled):
    def __init__(self, layer: Weighted, members: int, deviation: float) -> None:
        super().__init__(layer, members)
        like = layer.weight.detach()
        self.s = nn.Parameter(1 + deviation * torch.randn(members, self.inside, dtype=like.dtype, device=like.device))
        self.r = nn.Parameter(1 + deviation * torch.randn(members, self.outside, dtype=like.dtype, device=like.device))

    def factors(self) -> tuple[Tensor, Tensor]:
        return self.s, self.r


class BatchEnsemble(Ensemble):
    """``members`` networks that share their weights up to factors, which start from N(1, deviation²).

    Each member sees the whole batch, and the loss is the mean over members; batch norm takes its statistics from all of
    them. With all factors 1 every member is the network that was given.
    """

    def __init__(self, model: nn.Module, members: int = 4, deviation: float = 0.5) -> None:
        super().__init__()
        self.members = check_int("members", members, 1)
        check_positive("deviation", deviation)
        replace_layers(model, lambda _, layer: _Fixed(layer, members, deviation))
        self.model = model

    def member_logits(self, inputs: Tensor) -> Tensor:
        """(members, b, k)."""
        logits: Tensor = self.model(inputs.repeat(self.members, *[1] * (inputs.ndim - 1)))
        return logits.view(self.members, len(inputs), -1)

    def training_logits(self, inputs: Tensor) -> Tensor:
        """(members · b, k)."""
        logits: Tensor = self.model(inputs)
        return logits

    def spread(self, batch: Batch) -> Batch:
        """The batch once for each member."""
        return tiled(batch, self.members)
