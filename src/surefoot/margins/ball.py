"""Balls around inputs: all δ with ‖δ / r‖ ≤ 1 in the ∞- or the 2-norm, r one radius for each coordinate."""

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
    """The norm as a number, inf or 2, from ``"inf"``, ``inf``, ``2`` or ``"2"``."""
    known = {"inf": math.inf, math.inf: math.inf, "2": 2.0, 2: 2.0}
    try:
        return known[norm]
    except (KeyError, TypeError):
        raise BadInput(f"norm must be 'inf' or 2; got {norm!r}") from None


@dataclass(frozen=True)
class Ball:
    """Radius (1, *shape) for inputs of ``shape``, and the norm: inf makes a box, 2 an ellipsoid, of these half-axes."""

    radius: Tensor
    norm: float

    @classmethod
    def of(cls, eps: Any, norm: Any, shape: tuple[int, ...], device: torch.device) -> Ball:
        """The ball of ``eps``: one number, one per channel (the first axis), or anything that fits ``shape``."""
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
        # A vector counts channels, the first axis; for flat inputs that is also how arrays broadcast.
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
        """Whether it is the 2-norm's, and so smaller than the box around it."""
        return self.norm == 2

    def rounded(self) -> Ball:
        """The ellipsoid around it: a box of d sides lies in the one whose half-axes are √d times as long."""
        sides = int((self.radius > 0).sum())
        return self if self.round else Ball(self.radius * math.sqrt(sides), 2.0)

    def reach(self, coefficients: Tensor, spare: bool = False) -> Tensor:
        """(b, m) largest value of c·δ over the ball, of coefficients c (b, m, *shape): the dual norm of c·r.

        Coefficients that nobody needs any more (``spare``) are overwritten, which is quicker than new memory.
        """
        flat, radius = coefficients.flatten(2), self.radius.flatten()
        order = 2 if self.round else 1
        low, high = radius.aminmax()
        if low == high:  # one radius for all spares a pass over the coefficients
            found: Tensor = torch.linalg.vector_norm(flat, order, dim=2) * high
        else:
            scaled = flat.mul_(radius) if spare and flat.is_contiguous() else flat * radius
            found = torch.linalg.vector_norm(scaled, order, dim=2)
        return found

    def project(self, steps: Tensor) -> Tensor:
        """The nearest points of the unit ball to ``steps`` (b, *shape), which are measured in radii."""
        if not self.round:
            return steps.clamp(-1, 1)
        return steps / _lengths(steps).clamp_min(1)

    def steepest(self, gradients: Tensor) -> Tensor:
        """The longest way up within the unit ball, for gradients (b, *shape) by coordinates measured in radii."""
        if not self.round:
            return gradients.sign()
        # Where the gradient vanishes there is no way up; the tiny number only keeps 0/0 away.
        return gradients / _lengths(gradients).clamp_min(torch.finfo(gradients.dtype).tiny)

    def sample(self, rows: int, first: int, seed: int) -> Tensor:
        """(rows, *shape) float64 points, uniform in the unit ball; a row's point depends on its number and the seed."""
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
    found: Tensor = torch.linalg.vector_norm(rows.flatten(1), dim=1).reshape(-1, *[1] * (rows.ndim - 1))
    return found
