"""BatchEnsemble (Wen et al. 2020): members share every weight W and differ by factors of rank one.

Member m has the weight W ∘ (r_m s_mᵀ): its inputs are scaled by s_m and its outputs by r_m. Every member has a separate
bias.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from surefoot.deprecated import renamed_arguments, renamed_property
from surefoot.ensembles.ensemble import Ensemble, tiled
from surefoot.ensembles.layers import Weighted, along, applied, geometry, replace_layers
from surefoot.losses.objective import Batch
from surefoot.validation import check_int, check_positive

__all__ = ["BatchEnsemble", "Scaled"]


class Scaled(nn.Module):
    """A dense or convolutional layer with member factors, for inputs (m·b, ...) that are ordered by member.

    Args:
        layer: the layer whose weight all members share; its bias is copied for every member.
        members: number of members m, at least 1.
    """

    def __init__(self, layer: Weighted, members: int) -> None:
        super().__init__()
        self.members, self.geometry = members, geometry(layer)
        self.weight = layer.weight
        outside = layer.weight.shape[0]
        inside = layer.weight.shape[1] * (1 if self.geometry is None else self.geometry[3])
        self.inside, self.outside = inside, outside
        self.bias = None if layer.bias is None else nn.Parameter(layer.bias.detach().repeat(members, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer of every member to the rows of the member.

        Args:
            x: (m·b, inputs, ...), m blocks of b rows.

        Returns:
            (m·b, outputs, ...).
        """
        s, r = self.factors()
        grouped = x.view(self.members, -1, *x.shape[1:]) * along(s, self.weight)[:, None]
        output = applied(self.geometry, grouped.flatten(0, 1), self.weight)
        output = output.view(self.members, -1, *output.shape[1:]) * along(r, self.weight)[:, None]
        if self.bias is not None:
            output = output + along(self.bias, self.weight)[:, None]
        return output.flatten(0, 1)

    @abstractmethod
    def factors(self) -> tuple[Tensor, Tensor]:
        """Return the factors of all members.

        Returns:
            Factors of the inputs (m, inputs) and of the outputs (m, outputs).
        """


class _Fixed(Scaled):
    """A layer whose factors are parameters."""

    def __init__(self, layer: Weighted, members: int, std: float) -> None:
        super().__init__(layer, members)
        like = layer.weight.detach()
        self.s = nn.Parameter(1 + std * torch.randn(members, self.inside, dtype=like.dtype, device=like.device))
        self.r = nn.Parameter(1 + std * torch.randn(members, self.outside, dtype=like.dtype, device=like.device))

    def factors(self) -> tuple[Tensor, Tensor]:
        """The parameters s and r."""
        return self.s, self.r


class BatchEnsemble(Ensemble):
    """Networks that share their weights up to factors of rank one.

    The factors are initialised from N(1, std²). Every member is trained on the entire batch, and the loss is the
    mean over members. Batch norm takes its statistics from the rows of all members. If all factors are 1, every member
    equals the given network.

    Args:
        model: the network; its dense and convolutional layers are replaced in place.
        members: number of members m, at least 1.
        std: standard deviation of the initial factors, above 0.

    Raises:
        BadInput: when an argument is out of range, or the network has no dense or convolutional layer to replace.

    Example:
        >>> ensemble = BatchEnsemble(nn.Sequential(nn.Linear(2, 3)), members=4).eval()
        >>> ensemble.member_logits(torch.zeros(5, 2)).shape, ensemble(torch.zeros(5, 2)).shape
        (torch.Size([4, 5, 3]), torch.Size([5, 3]))

    References:
        Wen, Tran & Ba (2020), "BatchEnsemble: An Alternative Approach to Efficient Ensemble and Lifelong Learning".
    """

    deviation = renamed_property("deviation", "std")

    @renamed_arguments(deviation="std")
    def __init__(self, model: nn.Module, members: int = 4, std: float = 0.5) -> None:
        super().__init__()
        self.members = check_int("members", members, 1)
        self.std = check_positive("std", std)
        replace_layers(model, lambda _, layer: _Fixed(layer, members, std))
        self.model = model

    def member_logits(self, inputs: Tensor) -> Tensor:
        """Compute the logits of every member.

        Args:
            inputs: (b, ...).

        Returns:
            (members, b, k) logits.
        """
        logits: Tensor = self.model(inputs.repeat(self.members, *[1] * (inputs.ndim - 1)))
        return logits.view(self.members, len(inputs), -1)

    def training_logits(self, inputs: Tensor) -> Tensor:
        """Compute the logits of the rows that `spread` made.

        Args:
            inputs: (members · b, ...), ordered by member.

        Returns:
            (members · b, k) logits.
        """
        logits: Tensor = self.model(inputs)
        return logits

    def spread(self, batch: Batch) -> Batch:
        """Repeat a batch once for every member.

        Args:
            batch: the batch.

        Returns:
            The repeated batch, ordered by member.
        """
        return tiled(batch, self.members)
