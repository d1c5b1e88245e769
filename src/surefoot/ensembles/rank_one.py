"""Rank-1 Bayesian neural networks (Dusenberry et al. 2020): a BatchEnsemble with Gaussian factors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from surefoot.deprecated import renamed_arguments, renamed_property
from surefoot.ensembles.batch_ensemble import BatchEnsemble, Scaled
from surefoot.ensembles.gaussian import Gaussian, kl_gaussian
from surefoot.ensembles.layers import Weighted, replace_layers, signs
from surefoot.ensembles.noise import own_noise
from surefoot.errors import BadInput
from surefoot.validation import check_int, check_positive

__all__ = ["Rank1BNN"]


class _Drawn(Scaled):
    """A layer whose factors are drawn in every pass."""

    def __init__(self, layer: Weighted, members: int, std: float) -> None:
        super().__init__(layer, members)
        like = layer.weight.detach()
        self.s = Gaussian(signs(members, self.inside, like=like), std)
        self.r = Gaussian(signs(members, self.outside, like=like), std)

    def factors(self) -> tuple[Tensor, Tensor]:
        """One draw of s and r."""
        return self.s.mean + self.s.noise(), self.r.mean + self.r.noise()


class Rank1BNN(BatchEnsemble):
    """BatchEnsemble whose factors are N(μ, σ²) with the prior N(1, prior_std²); the shared weights are not random.

    The factors are drawn in every pass. The means are initialised by random signs. The standard deviations are
    initialised by √(rate/(1 − rate)), the standard deviation of Gaussian dropout. A prediction is the mean over
    ``members`` × ``samples`` draws.

    Args:
        model: the network; its dense and convolutional layers are replaced in place.
        members: number of members, at least 1.
        rate: rate of the equivalent dropout, between 0 and 1.
        prior_std: standard deviation of the prior, above 0.
        samples: number of draws per member of a prediction, at least 1.
        seed: seed of the draws of a prediction, at least 0.

    Raises:
        BadInput: when an argument is out of range, or the network has no dense or convolutional layer to replace.

    Example:
        >>> ensemble = Rank1BNN(nn.Sequential(nn.Linear(2, 3)), members=4, samples=2).eval()
        >>> ensemble.member_logits(torch.zeros(5, 2)).shape
        torch.Size([8, 5, 3])

    References:
        Dusenberry et al. (2020), "Efficient and Scalable Bayesian Neural Nets with Rank-1 Factors".
    """

    prior = renamed_property("prior", "prior_std")

    @renamed_arguments(prior="prior_std")
    def __init__(
        self,
        model: nn.Module,
        members: int = 4,
        rate: float = 1e-3,
        prior_std: float = 0.1,
        samples: int = 1,
        seed: int = 0,
    ) -> None:
        nn.Module.__init__(self)
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < 1:
            raise BadInput(f"rate must lie between 0 and 1; got {rate!r}")
        self.members, self.samples = check_int("members", members, 1), check_int("samples", samples, 1)
        self.prior_std, self.seed = check_positive("prior_std", prior_std), check_int("seed", seed, 0)
        std = (rate / (1 - rate)) ** 0.5
        replace_layers(model, lambda _, layer: _Drawn(layer, members, std))
        self.model = model

    def member_logits(self, inputs: Tensor) -> Tensor:
        """Compute the logits of every member and draw.

        Args:
            inputs: (b, ...).

        Returns:
            (samples · members, b, k) logits.
        """
        logits = []
        for sample in range(self.samples):
            with own_noise(self.seed, sample):
                logits.append(super().member_logits(inputs))
        return torch.cat(logits)

    def divergence(self) -> Tensor:
        """Compute the mean over the members of the KL of their factors, as the likelihood is a mean over members.

        Returns:
            The divergence in nats.
        """
        parts = [m for m in self.model.modules() if isinstance(m, Gaussian)]
        total = torch.stack([kl_gaussian(g.mean, g.std, 1.0, self.prior_std) for g in parts]).sum()
        return total / self.members
