"""The initial weights of convolutional networks."""

from __future__ import annotations

from torch import nn

__all__ = ["he_normal"]


def he_normal(model: nn.Module) -> None:
    """Initialise all convolutions as in He et al. (2015), in mode ``fan_out``; other layers keep torch's defaults.

    Args:
        model: the network, modified in place.

    References:
        He, Zhang, Ren & Sun (2015), "Delving Deep into Rectifiers: Surpassing Human-Level Performance on ImageNet
        Classification".
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
