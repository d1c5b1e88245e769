"""Ensembles by several passes of one network with noise."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from surefoot.ensembles.ensemble import Ensemble
from surefoot.ensembles.noise import own_noise
from surefoot.validation import check_int

__all__ = ["Sampled"]


class Sampled(Ensemble):
    """The mean of several passes of a network with noise; a training step uses one pass.

    Args:
        model: the network.
        samples: number of passes of a prediction, at least 1.
        seed: seed of the noise of a prediction, at least 0.

    Raises:
        BadInput: when ``samples`` or ``seed`` is out of range.
    """

    def __init__(self, model: nn.Module, samples: int, seed: int) -> None:
        super().__init__()
        self.samples, self.seed = check_int("samples", samples, 1), check_int("seed", seed, 0)
        self.model = model

    def member_logits(self, inputs: Tensor) -> Tensor:
        """Compute the logits of every pass.

        Args:
            inputs: (b, ...).

        Returns:
            (samples, b, k) logits.
        """
        logits = []
        for sample in range(self.samples):
            with own_noise(self.seed, sample):
                logits.append(self.model(inputs))
        return torch.stack(logits)

    def training_logits(self, inputs: Tensor) -> Tensor:
        """Compute the logits of one pass, with noise from torch's global generator.

        Args:
            inputs: (b, ...).

        Returns:
            (b, k) logits.
        """
        logits: Tensor = self.model(inputs)
        return logits
