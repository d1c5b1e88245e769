"""Affine layers as matrices never written out: A, |A|, their transposes and their norms."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.grad import conv2d_input

__all__ = ["Affine", "convolution", "dense", "nonnegative", "scaling"]

Shape = tuple[int, ...]
# What two roundings of float64 may do to a norm, generously.
_UP = 1 + 1e-10


@dataclass(frozen=True)
class Affine:
    """One layer x ↦ A x + b on batches (n, *shape).

    Args:
        forward: (x, weight) to A x, the matrix made of the weight; with |weight| it is |A|.
        backward: (c, weight, shape) to Aᵀ c for c (n, *outputs) and inputs of ``shape``.
        weight: what the matrix is made of; a matrix without weights has no entry below 0.
        bias: b, or None; anything that broadcasts to the outputs.
        one_to_one: whether each output depends on one input at most and each input is used once at most.
        blocks: (weight, radii) to matrices (g, o, i) and a factor, such that the 2-norm of A·diag(radii) is at most
            the factor times their largest singular value; None if unknown.
    """

    forward: Callable[[Tensor, Tensor], Tensor]
    backward: Callable[[Tensor, Tensor, Shape], Tensor]
    weight: Tensor
    bias: Tensor | None = None
    one_to_one: bool = False
    blocks: Callable[[Tensor, Tensor], tuple[Tensor, float]] | None = None

    @cached_property
    def _sizes(self) -> Tensor:
        return self.weight.abs()

    @cached_property
    def _squares(self) -> Tensor:
        return self.weight.square()

    def apply(self, x: Tensor) -> Tensor:
        """A x + b."""
        found = self.forward(x, self.weight)
        return found if self.bias is None else found + self.bias

    def linear(self, x: Tensor) -> Tensor:
        """A x."""
        return self.forward(x, self.weight)

    def absolute(self, x: Tensor) -> Tensor:
        """|A| x."""
        return self.forward(x, self._sizes)

    def transposed(self, c: Tensor, shape: Shape) -> Tensor:
        """Aᵀ c."""
        return self.backward(c, self.weight, shape)

    def row_norms(self, radius: Tensor) -> Tensor | None:
        """√(Σ_j A_ij² r_j²) of each output i: what it moves by over an ellipsoid; None for averages, |A| r serves."""
        if self.blocks is None:
            return None
        return self.forward(radius.square(), self._squares).clamp_min(0).sqrt()

    def spectral_norm(self, radius: Tensor) -> float:
        """An upper bound of the 2-norm of A·diag(radius), radius (1, *shape)."""
        shape = tuple(radius.shape[1:])
        rows = self.absolute(radius)
        columns = radius * self.backward(torch.ones_like(rows), self._sizes, shape)
        bound = math.sqrt(float(rows.max()) * float(columns.max()))  # ‖A‖₂² ≤ ‖A‖₁ ‖A‖_∞
        if not math.isfinite(bound):
            return math.inf
        if self.blocks is not None:
            matrices, factor = self.blocks(self.weight, radius)
            small = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.mT
            largest = float(torch.linalg.eigvalsh(small @ small.mT).max())
            bound = min(bound, factor * math.sqrt(max(largest, 0.0)) * _UP)
        return bound * _UP


def dense(weight: Tensor, bias: Tensor | None) -> Affine:
    """A linear layer, weight (o, i), along the last axis."""

    def blocks(weight: Tensor, radius: Tensor) -> tuple[Tensor, float]:
        widest = radius.reshape(-1, radius.shape[-1]).amax(dim=0)
        return (weight * widest)[None], 1.0

    return Affine(functional.linear, lambda c, w, _: c @ w, weight, bias, blocks=blocks)


def convolution(
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, int],
    padding: tuple[int, int] | str,
    dilation: tuple[int, int],
    groups: int,
) -> Affine:
    """A convolution of images with zeros around them, weight (o, i / groups, h, w)."""

    def forward(x: Tensor, weight: Tensor) -> Tensor:
        return functional.conv2d(x, weight, None, stride, padding, dilation, groups)

    def backward(c: Tensor, weight: Tensor, shape: Shape) -> Tensor:
        if isinstance(padding, str):  # "same" may pad one side more than the other
            return _pull_back(lambda x: forward(x, weight), c, shape)
        found: Tensor = conv2d_input(  # type: ignore[no-untyped-call]
            [len(c), *shape], weight, c, stride, padding, dilation, groups
        )
        return found

    def blocks(weight: Tensor, radius: Tensor) -> tuple[Tensor, float]:
        widest = radius[0].flatten(1).amax(dim=1).reshape(groups, 1, -1, 1, 1)  # of each channel
        outside, inside, height, width = weight.shape
        scaled = weight.reshape(groups, outside // groups, inside, height, width) * widest
        # An input lies in so many windows at most: the norm of cutting an image into windows, squared.
        cover = math.prod(
            min(size, -(-(by * (size - 1) + 1) // step))
            for size, step, by in zip((height, width), stride, dilation, strict=True)
        )
        return scaled.flatten(2), math.sqrt(cover)

    return Affine(forward, backward, weight, None if bias is None else bias[:, None, None], blocks=blocks)


def scaling(scale: Tensor, shift: Tensor | None) -> Affine:
    """x ↦ scale · x + shift, coordinate by coordinate; both broadcast to the inputs."""
    return Affine(torch.mul, lambda c, w, _: c * w, scale, shift, one_to_one=True)


def nonnegative(function: Callable[[Tensor], Tensor], device: torch.device, one_to_one: bool = False) -> Affine:
    """A linear function without weights whose matrix has no entry below 0: means, slices, zeros around an image."""
    weight = torch.ones((), dtype=torch.float64, device=device)
    return Affine(
        lambda x, _: function(x), lambda c, _, shape: _pull_back(function, c, shape), weight, one_to_one=one_to_one
    )


def _pull_back(function: Callable[[Tensor], Tensor], c: Tensor, shape: Shape) -> Tensor:
    """Aᵀ c by one backward pass of x ↦ A x."""
    with torch.enable_grad():
        x = torch.zeros(len(c), *shape, dtype=c.dtype, device=c.device, requires_grad=True)
        (found,) = torch.autograd.grad(function(x), x, c)
    return found
