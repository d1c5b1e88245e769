"""Pad, crop and flip, the usual augmentation of CIFAR training.

The images of a step depend on the seed and the step number alone, so that a resumed run sees the same images.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from surefoot.seeds import generator

__all__ = ["crop_and_flip"]


def crop_and_flip(images: Tensor, seed: int, step: int, by: int = 4) -> Tensor:
    """Shift images by up to ``by`` pixels in each direction, and mirror each image with probability 1/2.

    Args:
        images: Images (b, c, h, w).
        seed: Seed of the run.
        step: Number of the training step; another step draws other shifts.
        by: Largest shift in pixels; zeros fill the pixels that come in.

    Returns:
        Images (b, c, h, w) of the dtype of ``images``.

    Example:
        >>> crop_and_flip(torch.arange(4.0).reshape(1, 1, 2, 2), seed=0, step=0, by=0).shape
        torch.Size([1, 1, 2, 2])
    """
    b, _, h, w = images.shape
    random = generator(seed, "augment", step)
    down, right = (torch.randint(0, 2 * by + 1, (b,), generator=random) for _ in range(2))
    mirrored = torch.randint(0, 2, (b,), generator=random).bool()
    wide = pad(images, (by, by, by, by))
    rows = down[:, None] + torch.arange(h)
    columns = right[:, None] + torch.arange(w)
    columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    # Advanced indices before and after a slice put the channels last.
    cropped = wide[torch.arange(b)[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return cropped.permute(0, 3, 1, 2).contiguous()
