"""How far every layer's value can be from the clean one over a ball, coordinate by coordinate (interval bounds)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from surefoot.margins.affine import Affine
from surefoot.margins.ball import Ball
from surefoot.margins.max_pool import MaxPool
from surefoot.margins.network import Network, Sum
from surefoot.margins.relaxation import Activation

__all__ = ["Deviation", "deviation_of", "deviations"]


@dataclass(frozen=True)
class Deviation:
    """All differences δ from the clean value with |δ − centre| ≤ radius; a row of 1 stands for all examples.

    Args:
        centre: (b, *shape), or None for 0.
        radius: (b, *shape).
        round: whether δ lies in the ellipsoid with these half-axes, not only in the box.
    """

    centre: Tensor | None
    radius: Tensor
    round: bool = False

    @classmethod
    def between(cls, low: Tensor, high: Tensor) -> Deviation:
        """From low ≤ 0 to high ≥ 0; what rounding left on the wrong side of 0 is put there."""
        low, high = low.clamp_max(0), high.clamp_min(0)
        return cls((low + high) / 2, (high - low) / 2)

    @property
    def low(self) -> Tensor:
        """The least δ."""
        return -self.radius if self.centre is None else self.centre - self.radius

    @property
    def high(self) -> Tensor:
        """The largest δ."""
        return self.radius if self.centre is None else self.centre + self.radius

    def within(self, cap: Tensor) -> Deviation:
        """What of it is no further than ``cap`` from 0."""
        if self.round:
            return self
        if self.centre is None:
            return Deviation(None, torch.fmin(self.radius, cap))
        return Deviation.between(torch.fmax(self.low, -cap), torch.fmin(self.high, cap))

    def least(self, coefficients: Tensor) -> Tensor:
        """(b, m) the least value of c·δ, of coefficients c (b, m, *shape)."""
        flat = coefficients.flatten(2)
        if self.round:
            reach: Tensor = torch.linalg.vector_norm(flat * self.radius.flatten(1).unsqueeze(1), dim=2)
            return -reach
        found = -(flat.abs() @ self.radius.flatten(1).unsqueeze(2))
        if self.centre is not None:
            found = found + flat @ self.centre.flatten(1).unsqueeze(2)
        return found.squeeze(2)


def deviations(
    network: Network, values: list[Tensor], ball: Ball, caps: Sequence[Tensor] | None = None
) -> list[Deviation]:
    """The deviation of every node, from the clean values of all of them; no coordinate beyond its cap."""
    found: list[Deviation] = []
    for number in range(len(network.nodes)):
        each = deviation_of(network, number, values, found, ball)
        found.append(each if caps is None else each.within(caps[number]))
    return found


def deviation_of(network: Network, number: int, values: list[Tensor], before: list[Deviation], ball: Ball) -> Deviation:
    """The deviation of one node, from those of its sources."""
    node = network.nodes[number]
    sources = [before[source] for source in node.sources]
    match node.layer:
        case None:
            return Deviation(None, ball.radius, ball.round)
        case Affine():
            return _affine(node.layer, sources[0])
        case Sum():
            return _sum(node.layer, sources)
        case Activation() | MaxPool():
            at = values[node.sources[0]]
            low, high = at + sources[0].low, at + sources[0].high
            if isinstance(node.layer, Activation):
                low, high = node.layer.image(low, high)
            else:
                low, high = node.layer.apply(low), node.layer.apply(high)
            return Deviation.between(low - values[number], high - values[number])
    raise AssertionError(node)


def _affine(layer: Affine, source: Deviation) -> Deviation:
    if source.round and source.centre is None:
        if layer.one_to_one:
            return Deviation(None, layer.absolute(source.radius), round=True)
        norms = layer.row_norms(source.radius)
        if norms is not None:
            return Deviation(None, norms)
    centre = None if source.centre is None else layer.linear(source.centre)
    return Deviation(centre, layer.absolute(source.radius))


def _sum(layer: Sum, sources: list[Deviation]) -> Deviation:
    radius = torch.zeros((), dtype=torch.float64, device=sources[0].radius.device)
    centre = None
    for source, sign in zip(sources, layer.signs, strict=True):
        radius = radius + source.radius
        if source.centre is not None:
            centre = sign * source.centre if centre is None else centre + sign * source.centre
    return Deviation(centre, radius)
