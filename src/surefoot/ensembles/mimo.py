"""MIMO (Havasi et al. 2021): one network takes several inputs at once and has a head for each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from surefoot.ensembles.ensemble import Ensemble
from surefoot.ensembles.layers import Weighted, replace_layers, weighted_layers
from surefoot.errors import BadInput
from surefoot.losses.objective import Batch
from surefoot.validation import check_int

__all__ = ["MIMO"]


class MIMO(Ensemble):
    """Inputs of ``members`` examples beside each other on the channels, logits for each.

    In training each head gets its own shuffle of the batch, taken ``repetitions`` times; the loss is the sum over
    heads. To predict, every head gets the same example. The first layer and the last are made anew, wider.

    Args:
        model: its first and last weighted layers are those of the input and of the logits.
        members: heads.
        repetitions: how often each example is in a batch.
        same: share of the rows in which all heads get the same example.
    """

    def __init__(self, model: nn.Module, members: int = 3, repetitions: int = 4, same: float = 0.0) -> None:
        super().__init__()
        self.members = self.times = check_int("members", members, 1)
        self.repetitions = check_int("repetitions", repetitions, 1)
        if isinstance(same, bool) or not isinstance(same, int | float) or not 0 <= same <= 1:
            raise BadInput(f"same must lie in [0, 1]; got {same!r}")
        self.same = float(same)
        layers = weighted_layers(model)
        first, last = layers[0][0], layers[-1][0]
        if first == last or not isinstance(layers[-1][1], nn.Linear):
            raise BadInput("MIMO needs a first layer and a dense last one; this network has not both")

        def wider(name: str, layer: Weighted) -> nn.Module:
            return _wider(layer, members if name == first else 1, members if name == last else 1)

        replace_layers(model, wider)
        self.model = model

    def member_logits(self, inputs: Tensor) -> Tensor:
        """(members, b, k)."""
        found: Tensor = self.model(torch.cat([inputs] * self.members, dim=1))
        return found.view(len(inputs), self.members, -1).transpose(0, 1)

    def training_logits(self, inputs: Tensor) -> Tensor:
        """(b · members, k), the heads of an example one after another."""
        found: Tensor = self.model(inputs)
        return found.view(len(inputs) * self.members, -1)

    def spread(self, batch: Batch) -> Batch:
        """Shuffles of the repeated batch, a head each, beside each other."""
        total = len(batch.labels) * self.repetitions
        rows = torch.randperm(total, device=batch.labels.device)
        moved = round(total * (1 - self.same))
        orders = torch.stack(
            [torch.cat([rows[torch.randperm(moved, device=rows.device)], rows[moved:]]) for _ in range(self.members)]
        ) % len(batch.labels)
        inputs = torch.cat([batch.inputs[order] for order in orders], dim=1)
        flat = orders.T.flatten()
        return Batch(inputs, batch.labels[flat], batch.indices[flat], batch.step)


def _wider(layer: Weighted, inputs: int, outputs: int) -> nn.Module:
    """The layer with so many times its inputs and outputs; itself if neither is more."""
    if inputs == outputs == 1:
        return layer
    biased = layer.bias is not None
    found: Weighted
    if isinstance(layer, nn.Linear):
        found = nn.Linear(inputs * layer.in_features, outputs * layer.out_features, biased)
    else:
        moves: Any = (layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.groups, biased)
        found = nn.Conv2d(inputs * layer.in_channels, outputs * layer.out_channels, *moves)
        nn.init.kaiming_normal_(found.weight, mode="fan_out", nonlinearity="relu")
    return found.to(layer.weight)
