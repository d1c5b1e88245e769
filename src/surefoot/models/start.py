"""The initial weights of convolutional networks."""

from __future__ import annotations

from torch import nn

__all__ = ["he_normal"]


def he_normal(model: nn.Module) -> None:
    """Convolutions start as in He et al. 2015, by their outputs; everything else as torch makes it."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
