"""Deep ensembles (Lakshminarayanan et al. 2017): networks from different seeds, with averaged probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from surefoot.ensembles.ensemble import Ensemble, tiled
from surefoot.errors import BadInput
from surefoot.losses.objective import Batch

__all__ = ["DeepEnsemble"]


class DeepEnsemble(Ensemble):
    """Several networks as one module.

    If the ensemble is trained as one module, every network is trained on every batch, and the loss is the mean over the
    networks. An optimizer that combines all gradients, such as SAM in its ascent step, then gives another result than
    separate training. The ``[ensemble]`` table of a run trains the networks separately.

    Args:
        members: the networks, at least one, with equal numbers of classes.

    Raises:
        BadInput: when ``members`` is empty or holds anything but modules.

    Example:
        >>> ensemble = DeepEnsemble([nn.Linear(2, 3), nn.Linear(2, 3)]).eval()
        >>> ensemble(torch.zeros(5, 2)).exp().sum(dim=1).round(decimals=4).tolist()
        [1.0, 1.0, 1.0, 1.0, 1.0]

    References:
        Lakshminarayanan, Pritzel & Blundell (2017), "Simple and Scalable Predictive Uncertainty Estimation using Deep
        Ensembles".
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        if len(members) == 0 or not all(isinstance(member, nn.Module) for member in members):
            raise BadInput("members must be one or more torch modules")
        self.networks = nn.ModuleList(members)

    def member_logits(self, inputs: Tensor) -> Tensor:
        """Compute the logits of every network.

        Args:
            inputs: (b, ...).

        Returns:
            (m, b, k) logits.

        Raises:
            BadInput: when the networks have different numbers of classes.
        """
        return torch.stack(_alike([network(inputs) for network in self.networks]))

    def training_logits(self, inputs: Tensor) -> Tensor:
        """Compute the logits of the rows that `spread` made.

        Args:
            inputs: (m · b, ...), ordered by network.

        Returns:
            (m · b, k) logits.

        Raises:
            BadInput: when the networks have different numbers of classes.
        """
        parts = inputs.chunk(len(self.networks))
        return torch.cat(_alike([network(part) for network, part in zip(self.networks, parts, strict=True)]))

    def spread(self, batch: Batch) -> Batch:
        """Repeat a batch once for every network.

        Args:
            batch: the batch.

        Returns:
            The repeated batch, ordered by network.
        """
        return tiled(batch, len(self.networks))


def _alike(outputs: list[Tensor]) -> list[Tensor]:
    """The outputs, or a clear error if their numbers of classes differ."""
    counts = [logits.shape[-1] for logits in outputs]
    if len(set(counts)) > 1:
        raise BadInput(f"members must have the same classes; they give {', '.join(map(str, counts))}")
    return outputs
