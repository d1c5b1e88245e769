"""Fully connected networks; Morosini et al. (2026) train 3072-200-200-10 with tanh, as Cohen et al. (2021) do."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from surefoot.errors import BadInput

__all__ = ["MLP"]

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU}


class MLP(nn.Module):
    """Inputs (b, ...) flattened to ``features``, hidden layers of the given widths, logits (b, k).

    PyTorch's own initialisation, as the papers have it.

    >>> sum(p.numel() for p in MLP(3072).parameters())
    656810
    """

    def __init__(
        self,
        features: int,
        classes: int = 10,
        widths: Sequence[int] = (200, 200),
        activation: str = "tanh",
        dropout: float = 0.0,
    ) -> None:
        if activation not in ACTIVATIONS:
            raise BadInput(f"activation must be one of {', '.join(ACTIVATIONS)}; got {activation!r}")
        super().__init__()
        layers: list[nn.Module] = [nn.Flatten()]
        for inside, outside in pairwise((features, *widths)):
            layers += [nn.Linear(inside, outside), ACTIVATIONS[activation]()]
            if dropout:
                layers.append(nn.Dropout(dropout))
        self.layers = nn.Sequential(*layers, nn.Linear((features, *widths)[-1], classes))

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (b, k)."""
        logits: Tensor = self.layers(inputs)
        return logits
