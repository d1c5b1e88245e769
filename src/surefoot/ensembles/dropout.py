"""MC-Dropout (Gal & Ghahramani 2016): dropout stays on in eval mode, and several passes are averaged."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import dropout

from surefoot.ensembles.layers import replace_layers, weighted_layers
from surefoot.ensembles.sampled import Sampled
from surefoot.errors import BadInput

__all__ = ["AlwaysDropout", "MCDropout"]


class AlwaysDropout(nn.Module):
    """Dropout that is on in both modes, so that the batch norm of the network can be in eval mode.

    Args:
        rate: share of the numbers that is set to 0, in [0, 1).
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Apply dropout.

        Args:
            x: a tensor of any shape.

        Returns:
            The tensor with some numbers set to 0, and the others divided by 1 − rate.
        """
        return dropout(x, self.rate, training=True)


class MCDropout(Sampled):
    """The mean of several passes with dropout.

    Dropout replaces every ``nn.Dropout`` of the network, whatever its rate. A network without ``nn.Dropout`` gets
    dropout before every convolution larger than 1×1 except the first. If the network has no such convolution, dropout
    is inserted before every dense or convolutional layer except the first.

    Args:
        model: the network, modified in place.
        rate: rate of the dropout, in [0, 1).
        samples: number of passes of a prediction, at least 1.
        seed: seed of the passes of a prediction, at least 0.

    Raises:
        BadInput: when an argument is out of range, or the network has no place for dropout.

    Example:
        >>> import torch
        >>> ensemble = MCDropout(nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3)), rate=0.5).eval()
        >>> x = torch.ones(4, 2)
        >>> ensemble.member_logits(x).shape, bool((ensemble(x) == ensemble(x)).all())
        (torch.Size([5, 4, 3]), True)

    References:
        Gal & Ghahramani (2016), "Dropout as a Bayesian Approximation: Representing Model Uncertainty in Deep
        Learning".
    """

    def __init__(self, model: nn.Module, rate: float = 0.1, samples: int = 5, seed: int = 0) -> None:
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < 1:
            raise BadInput(f"rate must lie in [0, 1); got {rate!r}")
        super().__init__(model, samples, seed)
        _insert(model, float(rate))


def _insert(model: nn.Module, rate: float) -> None:
    """Put `AlwaysDropout` into the network."""
    places = [name for name, module in model.named_modules() if isinstance(module, nn.Dropout)]
    for name in places:
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, AlwaysDropout(rate))
    if places:
        return
    layers = weighted_layers(model)
    convolutions = [name for name, layer in layers if isinstance(layer, nn.Conv2d) and layer.kernel_size != (1, 1)]
    chosen = (convolutions or [name for name, _ in layers])[1:]
    if not chosen:
        raise BadInput("dropout needs a layer after the first; this network has one layer")
    replace_layers(model, lambda name, layer: nn.Sequential(AlwaysDropout(rate), layer) if name in chosen else layer)
