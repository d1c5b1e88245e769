"""Affine layers as implicit matrices: products with A, |A| and Aᵀ, and norms of A."""

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
# A generous bound of the relative error that two roundings of float64 add to a norm.
_UP = 1 + 1e-10


@dataclass(frozen=True)
class Affine:
    """One layer x ↦ A x + b on batches (n, *shape).

    Attributes:
        forward: function of (x, weight) that returns A x, with A made of the weight; |weight| makes |A|.
        backward: function of (c, weight, shape) that returns Aᵀ c for c (n, *outputs) and inputs of ``shape``.
        weight: the tensor that A is made of. A matrix without weights has no entry below 0.
        bias: b, a tensor that broadcasts to the outputs; None stands for 0.
        one_to_one: whether every output depends on at most one input and every input is used at most once.
        blocks: function of (weight, radii) that returns matrices (g, o, i) and a factor. The 2-norm of A·diag(radii)
            is at most the factor times the largest singular value of the matrices. None if no such bound is known.

    Example:
        >>> layer = dense(torch.tensor([[1.0, -2.0]]), torch.tensor([3.0]))
        >>> x = torch.tensor([[1.0, 1.0]])
        >>> layer.apply(x).tolist(), layer.linear(x).tolist(), layer.absolute(x).tolist()
        ([[2.0]], [[-1.0]], [[3.0]])
    """

    forward: Callable[[Tensor, Tensor], Tensor]
    backward: Callable[[Tensor, Tensor, Shape], Tensor]
    weight: Tensor
    bias: Tensor | None = None
    one_to_one: bool = False
    blocks: Callable[[Tensor, Tensor], tuple[Tensor, float]] | None = None

    @cached_property
    def _sizes(self) -> Tensor:
        """|weight|."""
        return self.weight.abs()

    @cached_property
    def _squares(self) -> Tensor:
        """The square of every weight."""
        return self.weight.square()

    def apply(self, x: Tensor) -> Tensor:
        """Compute A x + b.

        Args:
            x: (n, *shape) inputs.

        Returns:
            (n, *outputs).
        """
        product = self.forward(x, self.weight)
        return product if self.bias is None else product + self.bias

    def linear(self, x: Tensor) -> Tensor:
        """Compute A x.

        Args:
            x: (n, *shape) inputs.

        Returns:
            (n, *outputs).
        """
        return self.forward(x, self.weight)

    def absolute(self, x: Tensor) -> Tensor:
        """Compute |A| x, with the absolute value of every entry.

        Args:
            x: (n, *shape) inputs.

        Returns:
            (n, *outputs).
        """
        return self.forward(x, self._sizes)

    def transposed(self, c: Tensor, shape: Shape) -> Tensor:
        """Compute Aᵀ c.

        Args:
            c: (n, *outputs) coefficients.
            shape: shape of one input.

        Returns:
            (n, *shape).
        """
        return self.backward(c, self.weight, shape)

    def row_norms(self, radius: Tensor) -> Tensor | None:
        """Compute √(Σ_j A_ij² r_j²) of every output i: how far output i moves over an ellipsoid of half-axes r.

        Args:
            radius: (n, *shape) half-axes, at least 0.

        Returns:
            (n, *outputs) norms; None for a layer without `blocks`, such as an average, where |A| r is the bound.
        """
        if self.blocks is None:
            return None
        return self.forward(radius.square(), self._squares).clamp_min(0).sqrt()

    def spectral_norm(self, radius: Tensor) -> float:
        """Bound the 2-norm of A·diag(radius) from above.

        Args:
            radius: (1, *shape) half-axes, at least 0.

        Returns:
            The bound; infinite where it overflows.
        """
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
    """Make the affine map of a linear layer along the last axis.

    Args:
        weight: (o, i).
        bias: (o,), or None.

    Returns:
        The map from (n, ..., i) to (n, ..., o).
    """

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
    """Make the affine map of a convolution of zero-padded images.

    Args:
        weight: (o, i / groups, h, w).
        bias: (o,), or None.
        stride: step of the window along both axes of the image.
        padding: zeros added on both sides of both axes; or ``"same"``, as torch takes it.
        dilation: distance between the entries of the window.
        groups: number of groups of channels that do not mix.

    Returns:
        The map from (n, i, height, width) to (n, o, height', width').
    """

    def forward(x: Tensor, weight: Tensor) -> Tensor:
        return functional.conv2d(x, weight, None, stride, padding, dilation, groups)

    def backward(c: Tensor, weight: Tensor, shape: Shape) -> Tensor:
        if isinstance(padding, str):  # "same" may pad one side more than the other
            return _pull_back(lambda x: forward(x, weight), c, shape)
        product: Tensor = conv2d_input(  # type: ignore[no-untyped-call]
            [len(c), *shape], weight, c, stride, padding, dilation, groups
        )
        return product

    def blocks(weight: Tensor, radius: Tensor) -> tuple[Tensor, float]:
        widest = radius[0].flatten(1).amax(dim=1).reshape(groups, 1, -1, 1, 1)  # one radius per channel
        outside, inside, height, width = weight.shape
        scaled = weight.reshape(groups, outside // groups, inside, height, width) * widest
        # The largest number of windows that share an input: the squared norm of cutting an image into windows.
        cover = math.prod(
            min(size, -(-(by * (size - 1) + 1) // step))
            for size, step, by in zip((height, width), stride, dilation, strict=True)
        )
        return scaled.flatten(2), math.sqrt(cover)

    return Affine(forward, backward, weight, None if bias is None else bias[:, None, None], blocks=blocks)


def scaling(scale: Tensor, shift: Tensor | None) -> Affine:
    """Make the affine map x ↦ scale · x + shift, coordinate by coordinate.

    Args:
        scale: factors that broadcast to the inputs.
        shift: summands that broadcast to the inputs, or None.

    Returns:
        The map from (n, *shape) to (n, *shape).
    """
    return Affine(torch.mul, lambda c, w, _: c * w, scale, shift, one_to_one=True)


def nonnegative(function: Callable[[Tensor], Tensor], device: torch.device, one_to_one: bool = False) -> Affine:
    """Make the map of a linear function without weights whose matrix has no entry below 0: means, slices, padding.

    Args:
        function: the linear function, from (n, *shape) to (n, *outputs), row by row.
        device: device of the inputs.
        one_to_one: whether every output depends on at most one input and every input is used at most once.

    Returns:
        The map.
    """
    weight = torch.ones((), dtype=torch.float64, device=device)
    return Affine(
        lambda x, _: function(x), lambda c, _, shape: _pull_back(function, c, shape), weight, one_to_one=one_to_one
    )


def _pull_back(function: Callable[[Tensor], Tensor], c: Tensor, shape: Shape) -> Tensor:
    """Compute Aᵀ c by one backward pass of x ↦ A x."""
    with torch.enable_grad():
        x = torch.zeros(len(c), *shape, dtype=c.dtype, device=c.device, requires_grad=True)
        (product,) = torch.autograd.grad(function(x), x, c)
    return product
