"""Fully connected networks; Morosini et al. (2026) train 3072-200-200-10 with tanh, as Cohen et al. (2021) do."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from surefoot.errors import BadInput

__all__ = ["MLP"]

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU}


class MLP(nn.Module):
    """Multilayer perceptron on flattened inputs, with PyTorch's default initialisation as in the papers.

    Args:
        features: number of features of a flattened input.
        classes: number of classes k.
        widths: widths of the hidden layers; empty for a linear classifier.
        activation: ``"tanh"``, ``"relu"`` or ``"gelu"``.
        dropout: rate of the dropout behind every hidden layer, in [0, 1]; 0 adds no dropout layers.

    Raises:
        BadInput: when ``activation`` is not as described.

    Example:
        >>> sum(p.numel() for p in MLP(3072).parameters())
        656810

    References:
        Cohen, Kaur, Li, Kolter & Talwalkar (2021), "Gradient Descent on Neural Networks Typically Occurs at the Edge
        of Stability".
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature".
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
        """Compute logits.

        Args:
            inputs: (b, ...) with ``features`` numbers per row.

        Returns:
            (b, k) logits.
        """
        logits: Tensor = self.layers(inputs)
        return logits
