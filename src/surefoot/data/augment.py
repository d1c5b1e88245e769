"""Pad, crop and flip, the usual augmentation of CIFAR training; and random numbers by row for other augmentations.

The images of a step depend on the seed and the step number alone, so that a resumed run sees the same images.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from surefoot.seeds import derive, generator

__all__ = ["crop_and_flip", "uniforms"]


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


def uniforms(seed: int, step: int, rows: Tensor, k: int) -> Tensor:
    """Draw k random numbers for each example of a step: functions of seed, step and row number alone.

    The numbers of an example depend neither on the other examples of the batch nor on their order, nor on k. They are
    hashes by SplitMix64, so that no random state is read or moved.

    Args:
        seed: Seed of the run.
        step: Number of the training step.
        rows: Row numbers (b,) of the examples, from 0.
        k: Numbers for each example.

    Returns:
        Numbers (b, k) in [0, 1), float32, on the device of ``rows``.

    Example:
        >>> both = uniforms(0, step=7, rows=torch.tensor([3, 5]), k=2)
        >>> torch.equal(uniforms(0, step=7, rows=torch.tensor([5]), k=1), both[1:, :1])
        True
    """
    start = _mixed(torch.tensor(derive(seed, "uniforms", step), device=rows.device) + rows.long() * _GOLDEN)
    bits = _mixed(start[:, None] + torch.arange(1, k + 1, device=rows.device) * _GOLDEN)
    return _shifted(bits, 40).float() * 2.0**-24  # float32 holds 24 bits exactly


# Steele, Lea and Flood (2014), "Fast Splittable Pseudorandom Number Generators"; 64-bit constants as signed integers.
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15 - 2**64, 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64


def _mixed(x: Tensor) -> Tensor:
    x = (x ^ _shifted(x, 30)) * _FIRST
    x = (x ^ _shifted(x, 27)) * _SECOND
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, by: int) -> Tensor:
    """``x >> by`` of the 64 bits as an unsigned number."""
    return torch.bitwise_and(x >> by, 2 ** (64 - by) - 1)
