"""A network with noise in it, asked several times."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from surefoot.ensembles.ensemble import Ensemble
from surefoot.ensembles.noise import own_noise
from surefoot.validation import check_int

__all__ = ["Sampled"]


class Sampled(Ensemble):
    """The mean of ``samples`` passes of ``model``, each with noise drawn from ``seed``; trained by one pass."""

    def __init__(self, model: nn.Module, samples: int, seed: int) -> None:
        super().__init__()
        self.samples, self.seed = check_int("samples", samples, 1), check_int("seed", seed, 0)
        self.model = model

    def member_logits(self, inputs: Tensor) -> Tensor:
        """(samples, b, k)."""
        found = []
        for sample in range(self.samples):
            with own_noise(self.seed, sample):
                found.append(self.model(inputs))
        return torch.stack(found)

    def training_logits(self, inputs: Tensor) -> Tensor:
        """One pass."""
        logits: Tensor = self.model(inputs)
        return logits
