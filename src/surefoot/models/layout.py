"""How images lie in memory."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["channels_last"]


def channels_last(images: Tensor) -> Tensor:
    """The same images (b, c, h, w) with a pixel's channels side by side; every layer after them keeps it so.

    Convolutions of few channels train a third faster on a processor that way.
    """
    return images.contiguous(memory_format=torch.channels_last)
