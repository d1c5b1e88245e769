"""A model as a list of layers that bounds can be pushed through, in float64."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from surefoot.margins.affine import Affine
from surefoot.margins.max_pool import MaxPool
from surefoot.margins.relaxation import Activation

__all__ = ["Layer", "Network", "Node", "Sum"]


@dataclass(frozen=True)
class Sum:
    """The sum of its inputs, each with its sign."""

    signs: tuple[float, ...]

    def apply(self, *inputs: Tensor) -> Tensor:
        """±x₁ ± x₂ …"""
        first, *rest = (x if sign > 0 else -x for x, sign in zip(inputs, self.signs, strict=True))
        for x in rest:
            first = first + x
        return first


Layer = Affine | Activation | MaxPool | Sum


@dataclass(frozen=True)
class Node:
    """One layer, the numbers of the nodes it reads, and the shape of its value for one example."""

    layer: Layer | None  # None: the input
    sources: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def bends(self) -> bool:
        """Whether it is not affine."""
        return isinstance(self.layer, Activation | MaxPool)


@dataclass(frozen=True)
class Network:
    """Nodes in an order in which each comes after its sources; the first is the input, the last the logits."""

    nodes: tuple[Node, ...]

    @property
    def last(self) -> int:
        """The number of the node of the logits."""
        return len(self.nodes) - 1

    @property
    def classes(self) -> int:
        """How many logits there are."""
        return self.nodes[-1].shape[0]

    def values(self, x: Tensor) -> list[Tensor]:
        """The value (b, *shape) of every node at inputs x (b, *shape)."""
        found: list[Tensor] = []
        for node in self.nodes:
            found.append(x if node.layer is None else node.layer.apply(*(found[source] for source in node.sources)))
        return found
