"""Rank-1 Bayesian networks (Dusenberry et al. 2020): BatchEnsemble whose factors are Gaussian."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from surefoot.ensembles.batch_ensemble import BatchEnsemble, Scaled
from surefoot.ensembles.gaussian import Gaussian, kl_gaussian
from surefoot.ensembles.layers import Weighted, replace_layers, signs
from surefoot.ensembles.noise import own_noise
from surefoot.errors import BadInput
from surefoot.validation import check_int, check_positive

__all__ = ["Rank1BNN"]


class _Drawn(Scaled):
    def __init__(self, layer: Weighted, members: int, deviation: float) -> None:
        super().__init__(layer, members)
        like = layer.weight.detach()
        self.s = Gaussian(signs(members, self.inside, like=like), deviation)
        self.r = Gaussian(signs(members, self.outside, like=like), deviation)

    def factors(self) -> tuple[Tensor, Tensor]:
        return self.s.mean + self.s.noise(), self.r.mean + self.r.noise()


class Rank1BNN(BatchEnsemble):
    """Factors N(μ, σ²) with the prior N(1, prior²), drawn anew in each pass; weights themselves are numbers.

    Means start at random signs, deviations at √(rate/(1 − rate)), that of dropout by Gaussian factors. Predictions are
    the mean over ``members`` × ``samples`` draws.
    """

    def __init__(
        self,
        model: nn.Module,
        members: int = 4,
        rate: float = 1e-3,
        prior: float = 0.1,
        samples: int = 1,
        seed: int = 0,
    ) -> None:
        nn.Module.__init__(self)
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < 1:
            raise BadInput(f"rate must lie between 0 and 1; got {rate!r}")
        self.members, self.samples = check_int("members", members, 1), check_int("samples", samples, 1)
        self.prior, self.seed = check_positive("prior", prior), check_int("seed", seed, 0)
        deviation = (rate / (1 - rate)) ** 0.5
        replace_layers(model, lambda _, layer: _Drawn(layer, members, deviation))
        self.model = model

    def member_logits(self, inputs: Tensor) -> Tensor:
        """(samples · members, b, k)."""
        found = []
        for sample in range(self.samples):
            with own_noise(self.seed, sample):
                found.append(super().member_logits(inputs))
        return torch.cat(found)

    def divergence(self) -> Tensor:
        """Mean over the members of the KL of their factors, as the likelihood is a mean over members."""
        parts = [m for m in self.model.modules() if isinstance(m, Gaussian)]
        total = torch.stack([kl_gaussian(each.mean, each.deviation, 1.0, self.prior) for each in parts]).sum()
        return total / self.members
