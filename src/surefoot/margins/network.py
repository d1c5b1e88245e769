"""A model as a list of layers that bounds can be propagated through, in float64."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from surefoot.margins.affine import Affine
from surefoot.margins.max_pool import MaxPool
from surefoot.margins.relaxation import Activation

__all__ = ["Layer", "Network", "Node", "Sum"]


@dataclass(frozen=True)
class Sum:
    """The signed sum ±x₁ ± x₂ … of the inputs.

    Attributes:
        signs: 1 or −1 for every input.
    """

    signs: tuple[float, ...]

    def apply(self, *inputs: Tensor) -> Tensor:
        """Compute the sum.

        Args:
            inputs: one tensor for every sign; all of one shape.

        Returns:
            The sum.
        """
        first, *rest = (x if sign > 0 else -x for x, sign in zip(inputs, self.signs, strict=True))
        for x in rest:
            first = first + x
        return first


Layer = Affine | Activation | MaxPool | Sum


@dataclass(frozen=True)
class Node:
    """One layer in a network.

    Attributes:
        layer: the layer; None for the input.
        sources: numbers of the nodes that the layer reads.
        shape: shape of the value of the node for one example.
    """

    layer: Layer | None
    sources: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def bends(self) -> bool:
        """Whether the layer is not affine."""
        return isinstance(self.layer, Activation | MaxPool)


@dataclass(frozen=True)
class Network:
    """A network of layers.

    Attributes:
        nodes: the nodes, every node after its sources; the first node is the input, the last node the logits.
    """

    nodes: tuple[Node, ...]

    @property
    def last(self) -> int:
        """Number of the node of the logits."""
        return len(self.nodes) - 1

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.nodes[-1].shape[0]

    def values(self, x: Tensor) -> list[Tensor]:
        """Compute the value of every node.

        Args:
            x: (b, *shape) inputs.

        Returns:
            The values (b, *shape of the node), in the order of the nodes.
        """
        values: list[Tensor] = []
        for node in self.nodes:
            values.append(x if node.layer is None else node.layer.apply(*(values[source] for source in node.sources)))
        return values
