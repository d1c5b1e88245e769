"""Interval bounds: how far the value of every layer can be from the clean value over a ball, by coordinate."""

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
    """All differences δ from the clean value with |δ − centre| ≤ radius; b = 1 stands for all examples.

    Attributes:
        centre: (b, *shape), or None for 0.
        radius: (b, *shape), at least 0.
        round: whether δ is in the ellipsoid with these half-axes, not only in the box.

    Example:
        >>> deviation = Deviation.between(torch.tensor([[-1.0]]), torch.tensor([[3.0]]))
        >>> deviation.centre.item(), deviation.radius.item()
        (1.0, 2.0)
    """

    centre: Tensor | None
    radius: Tensor
    round: bool = False

    @classmethod
    def between(cls, low: Tensor, high: Tensor) -> Deviation:
        """Make the deviation from ``low`` to ``high``.

        Args:
            low: (b, *shape) lower ends, at most 0 up to rounding; values above 0 are set to 0.
            high: (b, *shape) upper ends, at least 0 up to rounding; values below 0 are set to 0.

        Returns:
            The deviation.
        """
        low, high = low.clamp_max(0), high.clamp_min(0)
        return cls((low + high) / 2, (high - low) / 2)

    @property
    def low(self) -> Tensor:
        """(b, *shape) the smallest δ."""
        return -self.radius if self.centre is None else self.centre - self.radius

    @property
    def high(self) -> Tensor:
        """(b, *shape) the largest δ."""
        return self.radius if self.centre is None else self.centre + self.radius

    def within(self, cap: Tensor) -> Deviation:
        """Restrict the deviation to |δ| ≤ cap.

        Args:
            cap: (b, *shape) largest distances from 0.

        Returns:
            The restricted deviation; an ellipsoid is returned unchanged.
        """
        if self.round:
            return self
        if self.centre is None:
            return Deviation(None, torch.fmin(self.radius, cap))
        return Deviation.between(torch.fmax(self.low, -cap), torch.fmin(self.high, cap))

    def minimum(self, coefficients: Tensor) -> Tensor:
        """Compute the smallest value of c·δ.

        Args:
            coefficients: (b, m, *shape) the coefficients c.

        Returns:
            (b, m) minima.
        """
        flat = coefficients.flatten(2)
        if self.round:
            reach: Tensor = torch.linalg.vector_norm(flat * self.radius.flatten(1).unsqueeze(1), dim=2)
            return -reach
        minima = -(flat.abs() @ self.radius.flatten(1).unsqueeze(2))
        if self.centre is not None:
            minima = minima + flat @ self.centre.flatten(1).unsqueeze(2)
        return minima.squeeze(2)


def deviations(
    network: Network, values: list[Tensor], ball: Ball, caps: Sequence[Tensor] | None = None
) -> list[Deviation]:
    """Compute the deviation of every node of a network.

    Args:
        network: the network.
        values: the clean value (b, *shape) of every node.
        ball: the ball around the inputs.
        caps: largest distances (1, *shape) from the clean value for every node, or None.

    Returns:
        The deviations in the order of the nodes.
    """
    results: list[Deviation] = []
    for number in range(len(network.nodes)):
        deviation = deviation_of(network, number, values, results, ball)
        results.append(deviation if caps is None else deviation.within(caps[number]))
    return results


def deviation_of(network: Network, number: int, values: list[Tensor], before: list[Deviation], ball: Ball) -> Deviation:
    """Compute the deviation of one node from the deviations of its sources.

    Args:
        network: the network.
        number: number of the node.
        values: the clean value (b, *shape) of every node.
        before: deviations of the nodes before the node.
        ball: the ball around the inputs.

    Returns:
        The deviation.
    """
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
    """Deviation behind an affine layer."""
    if source.round and source.centre is None:
        if layer.one_to_one:
            return Deviation(None, layer.absolute(source.radius), round=True)
        norms = layer.row_norms(source.radius)
        if norms is not None:
            return Deviation(None, norms)
    centre = None if source.centre is None else layer.linear(source.centre)
    return Deviation(centre, layer.absolute(source.radius))


def _sum(layer: Sum, sources: list[Deviation]) -> Deviation:
    """Deviation of a signed sum."""
    radius = torch.zeros((), dtype=torch.float64, device=sources[0].radius.device)
    centre = None
    for source, sign in zip(sources, layer.signs, strict=True):
        radius = radius + source.radius
        if source.centre is not None:
            centre = sign * source.centre if centre is None else centre + sign * source.centre
    return Deviation(centre, radius)
