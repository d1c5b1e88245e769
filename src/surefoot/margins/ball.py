"""Balls around inputs: all δ with ‖δ / r‖ ≤ 1 in the ∞-norm or the 2-norm, with one radius r per coordinate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from surefoot.errors import BadInput
from surefoot.seeds import generator

__all__ = ["Ball", "as_norm"]


def as_norm(norm: Any) -> float:
    """Parse a norm.

    Args:
        norm: ``"inf"``, ``inf``, ``"2"`` or ``2``.

    Returns:
        The norm as a number, inf or 2.

    Raises:
        BadInput: when ``norm`` is anything else.

    Example:
        >>> as_norm("inf"), as_norm(2)
        (inf, 2.0)
    """
    known = {"inf": math.inf, math.inf: math.inf, "2": 2.0, 2: 2.0}
    try:
        return known[norm]
    except (KeyError, TypeError):
        raise BadInput(f"norm must be 'inf' or 2; got {norm!r}") from None


@dataclass(frozen=True)
class Ball:
    """A ball around an input: a box for the ∞-norm, an ellipsoid for the 2-norm.

    Attributes:
        radius: (1, *shape) half-axes, at least 0, for inputs of ``shape``.
        norm: inf or 2.

    Example:
        >>> ball = Ball.of(0.5, "inf", (2,), torch.device("cpu"))
        >>> ball.reach(torch.tensor([[[1.0, -2.0]]])).tolist()
        [[1.5]]
    """

    radius: Tensor
    norm: float

    @classmethod
    def of(cls, eps: Any, norm: Any, shape: tuple[int, ...], device: torch.device) -> Ball:
        """Make the ball of a radius in the units of the inputs.

        Args:
            eps: the radius, finite and at least 0: one number, one per channel (the first axis), or an array that
                broadcasts to ``shape``.
            norm: ``"inf"`` or 2.
            shape: shape of one input.
            device: device of the inputs.

        Returns:
            The ball.

        Raises:
            BadInput: when ``eps`` or ``norm`` is not as described.
        """
        number = as_norm(norm)
        if isinstance(eps, bool):
            raise BadInput(f"eps must be a number, or one per channel; got {eps!r}")
        try:
            given = torch.as_tensor(eps, dtype=torch.float64, device=device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise BadInput(f"eps must be a number, or one per channel; got {eps!r}") from error
        bad = given[~(given.isfinite() & (given >= 0))]
        if bad.numel():
            raise BadInput(f"eps must be finite and at least 0; got {float(bad[0])}")
        # A vector holds one radius per channel, the first axis; for flat inputs arrays broadcast in the same way.
        if given.ndim == 1 and len(shape) > 1 and len(given) == shape[0]:
            given = given.reshape(-1, *[1] * (len(shape) - 1))
        try:
            radius = given.broadcast_to(shape)
        except RuntimeError as error:
            raise BadInput(
                f"eps must be one number, one per channel, or fit one input's shape {shape}; "
                f"got shape {tuple(given.shape)}"
            ) from error
        return cls(radius[None].contiguous(), number)

    @property
    def round(self) -> bool:
        """Whether the ball is one of the 2-norm, and therefore smaller than the box around it."""
        return self.norm == 2

    def rounded(self) -> Ball:
        """Return an ellipsoid that contains the ball.

        A box of d sides is contained in the ellipsoid whose half-axes are √d times as long.

        Returns:
            The ellipsoid; the ball itself for the 2-norm.
        """
        sides = int((self.radius > 0).sum())
        return self if self.round else Ball(self.radius * math.sqrt(sides), 2.0)

    def reach(self, coefficients: Tensor, spare: bool = False) -> Tensor:
        """Compute the largest value of c·δ over the ball: the dual norm of c·r.

        Args:
            coefficients: (b, m, *shape) the coefficients c.
            spare: whether the coefficients may be overwritten, which is faster than new memory.

        Returns:
            (b, m) maxima.
        """
        flat, radius = coefficients.flatten(2), self.radius.flatten()
        order = 2 if self.round else 1
        low, high = radius.aminmax()
        if low == high:  # one radius for all spares a pass over the coefficients
            maxima: Tensor = torch.linalg.vector_norm(flat, order, dim=2) * high
        else:
            scaled = flat.mul_(radius) if spare and flat.is_contiguous() else flat * radius
            maxima = torch.linalg.vector_norm(scaled, order, dim=2)
        return maxima

    def project(self, steps: Tensor) -> Tensor:
        """Project points onto the unit ball.

        Args:
            steps: (b, *shape) points, measured in radii.

        Returns:
            (b, *shape) the nearest points of the unit ball.
        """
        if not self.round:
            return steps.clamp(-1, 1)
        return steps / _lengths(steps).clamp_min(1)

    def steepest(self, gradients: Tensor) -> Tensor:
        """Return the points of the unit ball that maximise the inner product with the gradients.

        Args:
            gradients: (b, *shape) gradients with respect to coordinates measured in radii.

        Returns:
            (b, *shape) points; 0 where the gradient is 0.
        """
        if not self.round:
            return gradients.sign()
        # Where the gradient vanishes, the tiny number prevents 0/0.
        return gradients / _lengths(gradients).clamp_min(torch.finfo(gradients.dtype).tiny)

    def sample(self, rows: int, first: int, seed: int) -> Tensor:
        """Draw points uniformly from the unit ball.

        The point of a row depends on the number of the row and the seed only.

        Args:
            rows: number of points.
            first: number of the first row.
            seed: seed of the draws.

        Returns:
            (rows, *shape) float64 points.
        """
        shape = self.radius.shape[1:]
        points = []
        for row in range(first, first + rows):
            draw = generator(seed, "point of a ball", row)
            if self.round:
                direction = torch.randn(shape, generator=draw, dtype=torch.float64)
                length = torch.rand((), generator=draw, dtype=torch.float64) ** (1 / max(direction.numel(), 1))
                points.append(direction * (length / direction.norm()))
            else:
                points.append(2 * torch.rand(shape, generator=draw, dtype=torch.float64) - 1)
        return torch.stack(points).to(self.radius.device)


def _lengths(rows: Tensor) -> Tensor:
    """2-norms of rows (b, *shape), as (b, 1, ...)."""
    lengths: Tensor = torch.linalg.vector_norm(rows.flatten(1), dim=1).reshape(-1, *[1] * (rows.ndim - 1))
    return lengths
