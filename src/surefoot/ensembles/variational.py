"""Mean-field variational inference with Gaussian weights: Bayes by backprop and Flipout.

Bayes by backprop (Blundell et al. 2015) draws one weight W̄ + ΔW for a batch. Flipout (Wen et al. 2018) draws separate
signs for every example: y = x W̄ + ((x ∘ S) ΔW) ∘ R. The mean and variance of y are the same, but Flipout's noise is
independent between examples.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from surefoot.deprecated import renamed_arguments, renamed_property
from surefoot.ensembles.gaussian import Gaussian, kl_gaussian
from surefoot.ensembles.layers import Weighted, along, applied, geometry, replace_layers, signs
from surefoot.ensembles.sampled import Sampled
from surefoot.validation import check_positive

__all__ = ["MeanField"]


class _Drawn(nn.Module):
    """A layer whose weight is drawn in every pass."""

    def __init__(self, layer: Weighted, std: float, flipout: bool) -> None:
        super().__init__()
        self.geometry, self.flipout = geometry(layer), flipout
        self.weight = Gaussian(layer.weight, std)
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """Outputs under one draw of the weight."""
        mean, noise = self.weight.mean, self.weight.noise()
        if self.flipout and self.training:
            s = along(signs(len(x), x.shape[1], like=x), mean)
            r = along(signs(len(x), len(mean), like=x), mean)
            output = applied(self.geometry, x, mean) + r * applied(self.geometry, x * s, noise)
        else:
            output = applied(self.geometry, x, mean + noise)
        return output if self.bias is None else output + along(self.bias, mean)


class MeanField(Sampled):
    """A network with weights N(μ, σ²) and the prior N(0, prior_std²); biases and batch norm are not random.

    Args:
        model: the network, modified in place; its weights are the initial means.
        std: initial standard deviation σ of every weight, above 0.
        prior_std: standard deviation of the prior, above 0.
        tied: whether the mean of the prior is the mean of the weight, so that KL acts on standard deviations only.
        flipout: whether training draws signs for every example; predictions draw complete weights in both cases.
        samples: number of drawn networks whose predictions are averaged, at least 1.
        seed: seed of the draws of a prediction, at least 0.

    Raises:
        BadInput: when an argument is out of range, or the network has no dense or convolutional layer to replace.

    Example:
        >>> ensemble = MeanField(nn.Sequential(nn.Linear(2, 3)), samples=5).eval()
        >>> ensemble.member_logits(torch.zeros(4, 2)).shape
        torch.Size([5, 4, 3])

    References:
        Blundell, Cornebise, Kavukcuoglu & Wierstra (2015), "Weight Uncertainty in Neural Networks".
        Wen, Vicol, Ba, Tran & Grosse (2018), "Flipout: Efficient Pseudo-Independent Weight Perturbations on
        Mini-Batches".
    """

    deviation = renamed_property("deviation", "std")
    prior = renamed_property("prior", "prior_std")

    @renamed_arguments(deviation="std", prior="prior_std")
    def __init__(
        self,
        model: nn.Module,
        std: float = 1e-3,
        prior_std: float = 0.1,
        tied: bool = False,
        flipout: bool = False,
        samples: int = 5,
        seed: int = 0,
    ) -> None:
        super().__init__(model, samples, seed)
        self.prior_std, self.tied = check_positive("prior_std", prior_std), bool(tied)
        self.std = first = check_positive("std", std)
        replace_layers(model, lambda _, layer: _Drawn(layer, first, bool(flipout)))

    def divergence(self) -> Tensor:
        """Compute the KL divergence of all weights from the prior.

        Returns:
            The divergence in nats.
        """
        parts = [m for m in self.model.modules() if isinstance(m, Gaussian)]
        kls = [kl_gaussian(g.mean, g.std, g.mean if self.tied else 0.0, self.prior_std) for g in parts]
        return torch.stack(kls).sum()
