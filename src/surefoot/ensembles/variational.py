"""Mean-field variational inference: every weight a Gaussian. Bayes by backprop, and Flipout's noise.

Bayes by backprop (Blundell et al. 2015) draws one weight W̄ + ΔW for a batch. Flipout (Wen et al. 2018) gives each
example its own signs: y = x W̄ + ((x ∘ S) ΔW) ∘ R, of the same mean and variance, but independent between examples.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from surefoot.ensembles.gaussian import Gaussian, kl_gaussian
from surefoot.ensembles.layers import Weighted, along, applied, geometry, replace_layers, signs
from surefoot.ensembles.sampled import Sampled
from surefoot.validation import check_positive

__all__ = ["MeanField"]


class _Drawn(nn.Module):
    def __init__(self, layer: Weighted, deviation: float, flipout: bool) -> None:
        super().__init__()
        self.geometry, self.flipout = geometry(layer), flipout
        self.weight = Gaussian(layer.weight, deviation)
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        mean, noise = self.weight.mean, self.weight.noise()
        if self.flipout and self.training:
            s = along(signs(len(x), x.shape[1], like=x), mean)
            r = along(signs(len(x), len(mean), like=x), mean)
            found = applied(self.geometry, x, mean) + r * applied(self.geometry, x * s, noise)
        else:
            found = applied(self.geometry, x, mean + noise)
        return found if self.bias is None else found + along(self.bias, mean)


class MeanField(Sampled):
    """Weights N(μ, σ²) with the prior N(0, prior²); biases and batch norm are numbers.

    Args:
        model: its weights are the first means.
        deviation: the first σ of every weight.
        prior: deviation of the prior.
        tied: the prior's mean is the weight's own, so that only deviations are drawn to it.
        flipout: signs for each example in training; predictions draw whole weights either way.
        samples: whole networks whose predictions are averaged.
        seed: of those.
    """

    def __init__(
        self,
        model: nn.Module,
        deviation: float = 1e-3,
        prior: float = 0.1,
        tied: bool = False,
        flipout: bool = False,
        samples: int = 5,
        seed: int = 0,
    ) -> None:
        super().__init__(model, samples, seed)
        self.prior, self.tied = check_positive("prior", prior), bool(tied)
        first = check_positive("deviation", deviation)
        replace_layers(model, lambda _, layer: _Drawn(layer, first, bool(flipout)))

    def divergence(self) -> Tensor:
        """KL of all weights."""
        parts = [m for m in self.model.modules() if isinstance(m, Gaussian)]
        kls = [kl_gaussian(g.mean, g.deviation, g.mean if self.tied else 0.0, self.prior) for g in parts]
        return torch.stack(kls).sum()
