"""MIMO (Havasi et al. 2021): one network takes several inputs at once and has one head per input."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from surefoot.deprecated import renamed_arguments, renamed_property
from surefoot.ensembles.ensemble import Ensemble
from surefoot.ensembles.layers import Weighted, replace_layers, weighted_layers
from surefoot.errors import BadInput
from surefoot.losses.objective import Batch
from surefoot.validation import check_int, check_within

__all__ = ["MIMO"]


class MIMO(Ensemble):
    """A network that takes several examples, concatenated along the channels, and returns logits for every example.

    In training, every head gets a separate shuffle of the batch, which is repeated ``repetitions`` times. The loss is
    the sum over heads. In eval mode, every head gets the same example. The first and the last layer are replaced by
    wider, newly initialised layers.

    Args:
        model: the network, modified in place; its first weighted layer takes the input, its last one is dense and
            returns the logits.
        members: number of heads, at least 1.
        repetitions: number of times that every example is in a batch, at least 1.
        input_repetition_probability: share of the rows in which all heads get the same example, in [0, 1].

    Raises:
        BadInput: when an argument is out of range, or the network has no separate first and dense last layer.

    Example:
        >>> ensemble = MIMO(nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3)), members=3).eval()
        >>> ensemble.member_logits(torch.zeros(5, 2)).shape
        torch.Size([3, 5, 3])

    References:
        Havasi et al. (2021), "Training independent subnetworks for robust prediction".
    """

    same = renamed_property("same", "input_repetition_probability")

    @renamed_arguments(same="input_repetition_probability")
    def __init__(
        self, model: nn.Module, members: int = 3, repetitions: int = 4, input_repetition_probability: float = 0.0
    ) -> None:
        super().__init__()
        self.members = self.times = check_int("members", members, 1)
        self.repetitions = check_int("repetitions", repetitions, 1)
        self.input_repetition_probability = check_within(
            "input_repetition_probability", input_repetition_probability, 0, 1
        )
        layers = weighted_layers(model)
        first, last = layers[0][0], layers[-1][0]
        if first == last or not isinstance(layers[-1][1], nn.Linear):
            raise BadInput("MIMO needs a first layer and a dense last one; this network has not both")

        def wider(name: str, layer: Weighted) -> nn.Module:
            return _wider(layer, members if name == first else 1, members if name == last else 1)

        replace_layers(model, wider)
        self.model = model

    def member_logits(self, inputs: Tensor) -> Tensor:
        """Compute the logits of every head for the same examples.

        Args:
            inputs: (b, channels, ...).

        Returns:
            (members, b, k) logits.
        """
        logits: Tensor = self.model(torch.cat([inputs] * self.members, dim=1))
        return logits.view(len(inputs), self.members, -1).transpose(0, 1)

    def training_logits(self, inputs: Tensor) -> Tensor:
        """Compute the logits of the rows that `spread` made.

        Args:
            inputs: (b, members · channels, ...).

        Returns:
            (b · members, k) logits, with the heads of a row one after another.
        """
        logits: Tensor = self.model(inputs)
        return logits.view(len(inputs) * self.members, -1)

    def spread(self, batch: Batch) -> Batch:
        """Repeat a batch, shuffle it separately for every head, and concatenate the shuffles along the channels.

        Args:
            batch: the batch.

        Returns:
            The batch, with ``members`` labels per row of inputs.
        """
        total = len(batch.labels) * self.repetitions
        rows = torch.randperm(total, device=batch.labels.device)
        moved = round(total * (1 - self.input_repetition_probability))
        orders = torch.stack(
            [torch.cat([rows[torch.randperm(moved, device=rows.device)], rows[moved:]]) for _ in range(self.members)]
        ) % len(batch.labels)
        inputs = torch.cat([batch.inputs[order] for order in orders], dim=1)
        flat = orders.T.flatten()
        return Batch(inputs, batch.labels[flat], batch.indices[flat], batch.step)


def _wider(layer: Weighted, inputs: int, outputs: int) -> nn.Module:
    """A new layer with multiples of the inputs and outputs; the layer itself if both factors are 1."""
    if inputs == outputs == 1:
        return layer
    biased = layer.bias is not None
    wide: Weighted
    if isinstance(layer, nn.Linear):
        wide = nn.Linear(inputs * layer.in_features, outputs * layer.out_features, biased)
    else:
        moves: Any = (layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.groups, biased)
        wide = nn.Conv2d(inputs * layer.in_channels, outputs * layer.out_channels, *moves)
        nn.init.kaiming_normal_(wide.weight, mode="fan_out", nonlinearity="relu")
    return wide.to(layer.weight)
