"""The memory layout of images."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["channels_last"]


def channels_last(images: Tensor) -> Tensor:
    """Store images with the channels of a pixel adjacent in memory; all later layers keep this layout.

    Convolutions of few channels train a third faster on a CPU in this layout.

    Args:
        images: (b, c, h, w).

    Returns:
        (b, c, h, w) the same numbers in ``torch.channels_last`` format.
    """
    return images.contiguous(memory_format=torch.channels_last)
