"""Maximum pooling, and linear functions of its inputs that bound the maxima."""

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
    """The input of every window that stands for the maximum of the window.

    Attributes:
        place: (b, c, l) the input with the largest lower bound, as its number in the plane; never above the maximum.
        lower_gap: (b, c, l) that input minus the maximum, at the clean input.
        certain: (b, c, l) whether that input is the maximum wherever the inputs are within their bounds.
        upper_gap: (b, c, l) the largest upper bound minus the maximum at the clean input; used where not ``certain``.
    """

    place: Tensor
    lower_gap: Tensor
    certain: Tensor
    upper_gap: Tensor


@dataclass(frozen=True)
class MaxPool:
    """Maximum pooling of images (b, c, h, w), as `torch.nn.MaxPool2d`.

    Attributes:
        size: height and width of a window.
        stride: step of the window along both axes.
        padding: padding with −∞ on both sides of both axes.
        dilation: distance between the entries of a window along both axes.
        ceil_mode: whether windows may begin inside and end outside of the padded image.

    Example:
        >>> MaxPool((2, 2), (2, 2), (0, 0), (1, 1), False).apply(torch.tensor([[[[1.0, 4.0], [2.0, 3.0]]]])).item()
        4.0
    """

    size: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    ceil_mode: bool

    def apply(self, x: Tensor) -> Tensor:
        """Compute the maxima.

        Args:
            x: (b, c, h, w) images.

        Returns:
            (b, c, h', w') maxima.
        """
        maxima: Tensor = functional.max_pool2d(x, self.size, self.stride, self.padding, self.dilation, self.ceil_mode)
        return maxima

    @property
    def cover(self) -> float:
        """A bound of the Lipschitz constant in the 2-norm: the root of the number of windows that share an input."""
        spans = zip(self.size, self.stride, self.dilation, strict=True)
        return math.sqrt(math.prod(min(size, -(-(by * (size - 1) + 1) // step)) for size, step, by in spans))

    def choose(self, low: Tensor, high: Tensor, at: Tensor) -> Choice:
        """Choose the input that stands for the maximum of every window.

        Args:
            low: (b, c, h, w) lower bounds of the inputs.
            high: (b, c, h, w) upper bounds of the inputs.
            at: (b, c, h, w) the clean inputs.

        Returns:
            The choice, with l = h'·w' windows per channel.
        """
        bottom, top, value = (self._windows(x) for x in (low, high, at))
        height, width = at.shape[2:]
        plane = torch.arange(height * width, dtype=at.dtype, device=at.device).reshape(1, 1, height, width)
        chosen = bottom.argmax(dim=2, keepdim=True)
        place = self._windows(plane).expand(len(at), at.shape[1], -1, -1).gather(2, chosen).squeeze(2)
        others = top.scatter(2, chosen, -torch.inf).amax(dim=2)
        maximum = value.amax(dim=2)
        return Choice(
            # Where bounds have overflowed, a place outside the image may be chosen; its gap is −∞ for any place.
            place.clamp(0, height * width - 1).long(),
            (value.gather(2, chosen).squeeze(2) - maximum).clamp_max(0),
            bottom.gather(2, chosen).squeeze(2) >= others,
            (top.amax(dim=2) - maximum).clamp_min(0),
        )

    def back(self, c: Tensor, choice: Choice, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Compute a linear function of the inputs that is at most c·(maxima − clean maxima).

        Args:
            c: (b or 1, m, channels, h', w') coefficients.
            choice: the inputs that stand for the maxima.
            shape: shape (channels, h, w) of one input.

        Returns:
            Coefficients (b, m, *shape) and constants (b, m) of the linear function.
        """
        flat = c.flatten(3)  # (b, m, channels, l)
        place, lower_gap, certain, upper_gap = (part.unsqueeze(1) for part in choice)
        kept = torch.where((flat > 0) | certain, flat, 0.0)
        constant = kept * lower_gap + (flat - kept) * upper_gap
        # Coefficients shared by all examples (b = 1) meet choices that differ between examples.
        kept = kept.expand(max(len(kept), len(place)), -1, -1, -1)
        plane = torch.zeros(*kept.shape[:3], shape[1] * shape[2], dtype=c.dtype, device=c.device)
        coefficients = plane.scatter_add(3, place.expand_as(kept), kept)
        return coefficients.reshape(*kept.shape[:2], *shape), constant.sum(dim=(2, 3))

    def _windows(self, x: Tensor) -> Tensor:
        """(b, c, entries, l) the windows of x, with −∞ outside of the image."""
        height, width = self.apply(x[:1, :1]).shape[2:]
        # With ceil_mode the last windows may extend beyond the padding.
        over = [
            max(0, (count - 1) * step + by * (size - 1) + 1 - length - pad)
            for count, step, by, size, length, pad in zip(
                (height, width), self.stride, self.dilation, self.size, x.shape[2:], self.padding, strict=True
            )
        ]
        wide = functional.pad(x, (self.padding[1], over[1], self.padding[0], over[0]), value=-torch.inf)
        columns = functional.unfold(wide.flatten(0, 1)[:, None], self.size, self.dilation, 0, self.stride)
        return columns.reshape(*x.shape[:2], -1, columns.shape[-1])
