"""Pad, crop and flip, as CIFAR networks are trained; what a step sees depends on the seed and the step alone."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from surefoot.seeds import generator

__all__ = ["crop_and_flip"]


def crop_and_flip(images: Tensor, seed: int, step: int, by: int = 4) -> Tensor:
    """Images (b, c, h, w) shifted by up to ``by`` pixels each way, zeros coming in, half of them mirrored."""
    b, _, h, w = images.shape
    random = generator(seed, "augment", step)
    down, right = (torch.randint(0, 2 * by + 1, (b,), generator=random) for _ in range(2))
    mirrored = torch.randint(0, 2, (b,), generator=random).bool()
    wide = pad(images, (by, by, by, by))
    rows = down[:, None] + torch.arange(h)
    columns = right[:, None] + torch.arange(w)
    columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    # Advanced indices before and after a slice put the channels last.
    found = wide[torch.arange(b)[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return found.permute(0, 3, 1, 2).contiguous()
