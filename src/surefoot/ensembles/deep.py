"""Deep ensembles (Lakshminarayanan et al. 2017): networks from different seeds, their probabilities averaged."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from surefoot.ensembles.ensemble import Ensemble, tiled
from surefoot.errors import BadInput
from surefoot.losses.objective import Batch

__all__ = ["DeepEnsemble"]


class DeepEnsemble(Ensemble):
    """Networks as one. Trained as one module, each sees every batch and the loss is the mean over them.

    Under a rule that looks at all gradients together (SAM's ascent) that is not the same as training each alone; the
    ``[ensemble]`` table of a run trains them alone.
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        if len(members) == 0 or not all(isinstance(each, nn.Module) for each in members):
            raise BadInput("members must be one or more torch modules")
        self.networks = nn.ModuleList(members)

    def member_logits(self, inputs: Tensor) -> Tensor:
        """(m, b, k)."""
        return torch.stack(_alike([network(inputs) for network in self.networks]))

    def training_logits(self, inputs: Tensor) -> Tensor:
        """(m · b, k)."""
        parts = inputs.chunk(len(self.networks))
        return torch.cat(_alike([network(part) for network, part in zip(self.networks, parts, strict=True)]))

    def spread(self, batch: Batch) -> Batch:
        """The batch once for each member."""
        return tiled(batch, len(self.networks))


def _alike(found: list[Tensor]) -> list[Tensor]:
    if len({each.shape[-1] for each in found}) > 1:
        counts = ", ".join(str(each.shape[-1]) for each in found)
        raise BadInput(f"members must have the same classes; they give {counts}")
    return found
