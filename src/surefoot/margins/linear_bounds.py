"""Lower bounds of linear functions of a layer's value, pushed back towards the input (CROWN, Zhang et al. 2018).

Everything is a difference from the clean value, so that biases do not matter: an affine layer passes coefficients to
its transpose, an activation to one of its two lines, whose gap is added, and what reaches the input is worth its
least value over the ball.
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

# Numbers in the coefficients of one pass, when rows are many: 64 MB.
_NUMBERS = 1 << 23


@dataclass
class Bounds:
    """A batch, the clean values and the deviations of all nodes; the lines are drawn when they are first needed."""

    network: Network
    ball: Ball
    values: list[Tensor]
    deviations: list[Deviation]
    _drawn: dict[int, Lines | Choice] = field(default_factory=dict)

    def least(self, coefficients: Tensor, start: int, to_input: bool = True) -> Tensor:
        """(b, m) lower bounds of c·δ over the ball, δ the deviation of node ``start``, c (b or 1, m, *shape).

        With ``to_input`` = False the way back ends at the first activation, whose deviation then counts.
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
                    # The input is the last to be reached: only the caller may still hold what arrives.
                    own = c.untyped_storage().data_ptr() != coefficients.untyped_storage().data_ptr()
                    total = total - self.ball.reach(c, spare=own)
                case Affine():
                    shape = self.network.nodes[node.sources[0]].shape
                    found = node.layer.transposed(c.flatten(0, 1), shape).reshape(*c.shape[:2], *shape)
                    _add(waiting, node.sources[0], found)
                case Sum():
                    for source, sign in zip(node.sources, node.layer.signs, strict=True):
                        _add(waiting, source, c if sign > 0 else -c)
                case _ if not to_input:
                    total = total + self.deviations[number].least(c)
                case Activation() | MaxPool():
                    found, gap = self._through(number, c)
                    total = total + gap
                    _add(waiting, node.sources[0], found)
        return total

    def _through(self, number: int, c: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients of the source of an activation, and constants, of a linear function below c·δ."""
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
    waiting[number] = waiting[number] + c if number in waiting else c


def tightened(network: Network, ball: Ball, values: list[Tensor], caps: Sequence[Tensor]) -> Bounds:
    """Bounds whose deviations before every activation are themselves pushed back to the input (CROWN throughout)."""
    bounds = Bounds(network, ball, values, [])
    curved: list[bool] = []  # whether an activation comes before: if not, the interval is exact already
    asked = {node.sources[0]: node.layer for node in network.nodes if node.bends}
    for number, node in enumerate(network.nodes):
        curved.append(node.bends or any(curved[source] for source in node.sources))
        found = deviation_of(network, number, values, bounds.deviations, ball).within(caps[number])
        bounds.deviations.append(found)
        if number in asked and curved[number]:
            layer = asked[number]
            bent_only = isinstance(layer, Activation) and layer.kink
            bounds.deviations[number] = _tighter(bounds, number, found, bent_only)
    return bounds


def _tighter(bounds: Bounds, number: int, found: Deviation, bent_only: bool) -> Deviation:
    """The deviation of a node, each coordinate's bounds the better of two."""
    at = bounds.values[number]
    shape = bounds.network.nodes[number].shape
    low, high = (part.expand_as(at).flatten(1).clone() for part in (found.low, found.high))
    wanted = torch.ones_like(low[0], dtype=torch.bool)
    if bent_only:  # straight on the rest whatever their bounds
        wanted = ((at.flatten(1) + low < 0) & (at.flatten(1) + high > 0)).any(dim=0)
    places = wanted.nonzero().squeeze(1)
    largest = max(torch.Size(node.shape).numel() for node in bounds.network.nodes[: number + 1])
    for part in torch.split(places, max(1, _NUMBERS // (largest * len(at)))):
        rows = torch.zeros(1, len(part), low.shape[1], dtype=at.dtype, device=at.device)
        rows[0, torch.arange(len(part)), part] = 1
        rows = rows.reshape(1, -1, *shape)
        low[:, part] = torch.fmax(low[:, part], bounds.least(rows, number))
        high[:, part] = torch.fmin(high[:, part], -bounds.least(-rows, number))
    return Deviation.between(low.reshape(at.shape), high.reshape(at.shape))
