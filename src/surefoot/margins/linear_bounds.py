"""Lower bounds of linear functions of a layer's value, propagated back to the input (CROWN, Zhang et al., 2018).

All quantities are differences from the clean value, so biases cancel. An affine layer multiplies coefficients by its
transpose. An activation multiplies coefficients by the slope of one of its two lines and adds the gap of that line. The
coefficients that arrive at the input count with their minimum over the ball.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from surefoot.margins.affine import Affine
from surefoot.margins.ball import Ball
from surefoot.margins.interval import Deviation, deviation_of
from surefoot.margins.max_pool import Choice, MaxPool
from surefoot.margins.network import Network, Sum
from surefoot.margins.relaxation import Activation, Lines

__all__ = ["Bounds", "tightened"]

# Largest number of float64 entries in the coefficients of one pass with many rows: 64 MB.
_NUMBERS = 1 << 23


@dataclass
class Bounds:
    """Linear bounds of a network on a batch; the lines of an activation are computed on first use.

    Attributes:
        network: the network.
        ball: the ball around the inputs.
        values: the clean value (b, *shape) of every node.
        deviations: the deviation of every node from its clean value.
    """

    network: Network
    ball: Ball
    values: list[Tensor]
    deviations: list[Deviation]
    _drawn: dict[int, Lines | Choice] = field(default_factory=dict)

    def minimum(self, coefficients: Tensor, start: int, to_input: bool = True) -> Tensor:
        """Compute lower bounds of c·δ over the ball, where δ is the deviation of a node.

        Args:
            coefficients: (b or 1, m, *shape) the coefficients c.
            start: number of the node.
            to_input: whether the coefficients are propagated to the input; otherwise the propagation ends at the first
                activation, and the deviation of that activation is used.

        Returns:
            (b, m) lower bounds.
        """
        waiting = {start: coefficients}
        total = torch.zeros((), dtype=coefficients.dtype, device=coefficients.device)
        for number in range(start, -1, -1):
            c = waiting.pop(number, None)
            if c is None:
                continue
            node = self.network.nodes[number]
            match node.layer:
                case None:
                    # The input is the last node; nothing but the caller's own argument may still need `c`.
                    own = c.untyped_storage().data_ptr() != coefficients.untyped_storage().data_ptr()
                    total = total - self.ball.reach(c, spare=own)
                case Affine():
                    shape = self.network.nodes[node.sources[0]].shape
                    pulled = node.layer.transposed(c.flatten(0, 1), shape).reshape(*c.shape[:2], *shape)
                    _add(waiting, node.sources[0], pulled)
                case Sum():
                    for source, sign in zip(node.sources, node.layer.signs, strict=True):
                        _add(waiting, source, c if sign > 0 else -c)
                case _ if not to_input:
                    total = total + self.deviations[number].minimum(c)
                case Activation() | MaxPool():
                    pulled, gap = self._through(number, c)
                    total = total + gap
                    _add(waiting, node.sources[0], pulled)
        return total

    def _through(self, number: int, c: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients (of the source of an activation) and constants of a linear function below c·δ."""
        node = self.network.nodes[number]
        source = node.sources[0]
        drawn = self._drawn.get(number)
        if drawn is None:
            at, moved = self.values[source], self.deviations[source]
            draw = node.layer.lines if isinstance(node.layer, Activation) else node.layer.choose  # type: ignore[union-attr]
            drawn = self._drawn[number] = draw(at + moved.low, at + moved.high, at)
        if isinstance(drawn, Choice):
            assert isinstance(node.layer, MaxPool)
            return node.layer.back(c, drawn, self.network.nodes[source].shape)
        lower_slope, lower_gap, upper_slope, upper_gap = (part.unsqueeze(1) for part in drawn)
        up = c > 0
        gap = (torch.where(up, lower_gap, upper_gap) * c).flatten(2).sum(dim=2)
        return torch.where(up, lower_slope, upper_slope) * c, gap


def _add(waiting: dict[int, Tensor], number: int, c: Tensor) -> None:
    """Add coefficients to those that wait at a node."""
    waiting[number] = waiting[number] + c if number in waiting else c


def tightened(network: Network, ball: Ball, values: list[Tensor], caps: Sequence[Tensor]) -> Bounds:
    """Compute linear bounds whose deviations before every activation also come from linear passes (CROWN).

    Args:
        network: the network.
        ball: the ball around the inputs.
        values: the clean value (b, *shape) of every node.
        caps: largest distances (1, *shape) from the clean value for every node.

    Returns:
        The bounds.
    """
    bounds = Bounds(network, ball, values, [])
    curved: list[bool] = []  # whether an activation comes before the node; if not, the interval is already exact
    asked = {node.sources[0]: node.layer for node in network.nodes if node.bends}
    for number, node in enumerate(network.nodes):
        curved.append(node.bends or any(curved[source] for source in node.sources))
        deviation = deviation_of(network, number, values, bounds.deviations, ball).within(caps[number])
        bounds.deviations.append(deviation)
        if number in asked and curved[number]:
            layer = asked[number]
            bent_only = isinstance(layer, Activation) and layer.kink
            bounds.deviations[number] = _tighter(bounds, number, deviation, bent_only)
    return bounds


def _tighter(bounds: Bounds, number: int, deviation: Deviation, bent_only: bool) -> Deviation:
    """The deviation of a node, with the better of interval and linear bound for every coordinate."""
    at = bounds.values[number]
    shape = bounds.network.nodes[number].shape
    low, high = (part.expand_as(at).flatten(1).clone() for part in (deviation.low, deviation.high))
    wanted = torch.ones_like(low[0], dtype=torch.bool)
    if bent_only:  # on the other coordinates the activation is linear, and tighter bounds change nothing
        wanted = ((at.flatten(1) + low < 0) & (at.flatten(1) + high > 0)).any(dim=0)
    places = wanted.nonzero().squeeze(1)
    largest = max(torch.Size(node.shape).numel() for node in bounds.network.nodes[: number + 1])
    for part in torch.split(places, max(1, _NUMBERS // (largest * len(at)))):
        rows = torch.zeros(1, len(part), low.shape[1], dtype=at.dtype, device=at.device)
        rows[0, torch.arange(len(part)), part] = 1
        rows = rows.reshape(1, -1, *shape)
        low[:, part] = torch.fmax(low[:, part], bounds.minimum(rows, number))
        high[:, part] = torch.fmin(high[:, part], -bounds.minimum(-rows, number))
    return Deviation.between(low.reshape(at.shape), high.reshape(at.shape))
