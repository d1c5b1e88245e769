"""MC-Dropout (Gal & Ghahramani 2016): dropout stays on, and several passes are averaged."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import dropout

from surefoot.ensembles.layers import replace_layers, weighted_layers
from surefoot.ensembles.sampled import Sampled
from surefoot.errors import BadInput

__all__ = ["AlwaysDropout", "MCDropout"]


class AlwaysDropout(nn.Module):
    """Dropout in either mode; batch norm beside it may be in eval mode."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Some of the numbers, the others 0."""
        return dropout(x, self.rate, training=True)


class MCDropout(Sampled):
    """The mean of ``samples`` passes with dropout of the given rate.

    Dropout stands where the network has a place for it (``nn.Dropout``, at whatever rate). Where it has none, it stands
    before each convolution larger than a pixel but the first, or before each dense layer but the first.
    """

    def __init__(self, model: nn.Module, rate: float = 0.1, samples: int = 5, seed: int = 0) -> None:
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < 1:
            raise BadInput(f"rate must lie in [0, 1); got {rate!r}")
        super().__init__(model, samples, seed)
        _insert(model, float(rate))


def _insert(model: nn.Module, rate: float) -> None:
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
