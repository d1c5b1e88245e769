"""Maximum pooling between linear functions of its inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["Choice", "MaxPool"]

Pair = tuple[int, int]


class Choice(NamedTuple):
    """Which input of each window stands for its maximum.

    Args:
        place: (b, c, l) the input with the largest lower bound, as its number in the plane; never above the maximum.
        lower_gap: (b, c, l) that input minus the maximum, at the clean input.
        sure: (b, c, l) whether it is the maximum wherever the inputs are within their bounds.
        upper_gap: (b, c, l) where it is not: the largest upper bound minus the maximum at the clean input.
    """

    place: Tensor
    lower_gap: Tensor
    sure: Tensor
    upper_gap: Tensor


@dataclass(frozen=True)
class MaxPool:
    """The maximum over windows of images (b, c, h, w)."""

    size: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    ceil_mode: bool

    def apply(self, x: Tensor) -> Tensor:
        """The maxima (b, c, h', w')."""
        found: Tensor = functional.max_pool2d(x, self.size, self.stride, self.padding, self.dilation, self.ceil_mode)
        return found

    @property
    def cover(self) -> float:
        """A bound of its Lipschitz constant in the 2-norm: the root of how many windows an input can lie in."""
        spans = zip(self.size, self.stride, self.dilation, strict=True)
        return math.sqrt(math.prod(min(size, -(-(by * (size - 1) + 1) // step)) for size, step, by in spans))

    def choose(self, low: Tensor, high: Tensor, at: Tensor) -> Choice:
        """The stand-ins, for inputs between ``low`` and ``high`` that are ``at`` at the clean input."""
        bottom, top, value = (self._windows(x) for x in (low, high, at))
        height, width = at.shape[2:]
        plane = torch.arange(height * width, dtype=at.dtype, device=at.device).reshape(1, 1, height, width)
        chosen = bottom.argmax(dim=2, keepdim=True)
        place = self._windows(plane).expand(len(at), at.shape[1], -1, -1).gather(2, chosen).squeeze(2)
        others = top.scatter(2, chosen, -torch.inf).amax(dim=2)
        maximum = value.amax(dim=2)
        return Choice(
            # Where bounds have overflowed, a place over the edge may be chosen: its gap is −∞, and any place does.
            place.clamp(0, height * width - 1).long(),
            (value.gather(2, chosen).squeeze(2) - maximum).clamp_max(0),
            bottom.gather(2, chosen).squeeze(2) >= others,
            (top.amax(dim=2) - maximum).clamp_min(0),
        )

    def back(self, c: Tensor, choice: Choice, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Coefficients (b, m, *shape) and constants (b, m) of a linear function below c·(maxima − clean maxima)."""
        flat = c.flatten(3)  # (b, m, channels, l)
        place, lower_gap, sure, upper_gap = (part.unsqueeze(1) for part in choice)
        kept = torch.where((flat > 0) | sure, flat, 0.0)
        constant = kept * lower_gap + (flat - kept) * upper_gap
        # Rows shared by all examples (b = 1) meet choices that differ.
        kept = kept.expand(max(len(kept), len(place)), -1, -1, -1)
        plane = torch.zeros(*kept.shape[:3], shape[1] * shape[2], dtype=c.dtype, device=c.device)
        found = plane.scatter_add(3, place.expand_as(kept), kept)
        return found.reshape(*kept.shape[:2], *shape), constant.sum(dim=(2, 3))

    def _windows(self, x: Tensor) -> Tensor:
        """(b, c, entries, l) the windows of x, −∞ where they reach over the edge."""
        height, width = self.apply(x[:1, :1]).shape[2:]
        # With ceil_mode the last windows may reach further than the padding.
        over = [
            max(0, (count - 1) * step + by * (size - 1) + 1 - length - pad)
            for count, step, by, size, length, pad in zip(
                (height, width), self.stride, self.dilation, self.size, x.shape[2:], self.padding, strict=True
            )
        ]
        wide = functional.pad(x, (self.padding[1], over[1], self.padding[0], over[0]), value=-torch.inf)
        columns = functional.unfold(wide.flatten(0, 1)[:, None], self.size, self.dilation, 0, self.stride)
        return columns.reshape(*x.shape[:2], -1, columns.shape[-1])
