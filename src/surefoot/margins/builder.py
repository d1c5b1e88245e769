"""A network under construction: every added layer is applied to three rows, so that all shapes are known."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from surefoot.margins.network import Layer, Network, Node

__all__ = ["ROWS", "Builder", "Live", "NotBounded"]

# Size of the batch that shapes are read from.
ROWS = 3


class NotBounded(Exception):
    """Raised for a setting of a layer that no bound is known for; the text ends a sentence that names the layer."""


class Builder:
    """The layers added so far, and the values of the layers for three rows.

    Args:
        rows: (3, *shape) inputs.

    Attributes:
        nodes: the layers, with the input as the first.
        values: the value of every node for the rows.
    """

    def __init__(self, rows: Tensor) -> None:
        self.nodes: list[Node] = [Node(None, (), tuple(rows.shape[1:]))]
        self.values: list[Tensor] = [rows]

    @property
    def input(self) -> Live:
        """The input node."""
        return Live(self, 0)

    def add(self, layer: Layer, *sources: Live) -> Live:
        """Append a layer and apply the layer to the values of its sources.

        Args:
            layer: the layer.
            sources: the tensors that the layer reads.

        Returns:
            The output of the layer.
        """
        value = layer.apply(*(source.value for source in sources))
        self.nodes.append(Node(layer, tuple(source.node for source in sources), tuple(value.shape[1:])))
        self.values.append(value)
        return Live(self, len(self.nodes) - 1)

    def network(self, last: Live) -> Network:
        """Make the network that ends in a given node; nodes that the given node does not depend on are left out.

        Args:
            last: the logits.

        Returns:
            The network.
        """
        wanted = {0, last.node}
        for number in range(last.node, 0, -1):
            if number in wanted:
                wanted.update(self.nodes[number].sources)
        order = {old: new for new, old in enumerate(sorted(wanted))}
        kept = (self.nodes[old] for old in sorted(wanted))
        return Network(
            tuple(Node(node.layer, tuple(order[source] for source in node.sources), node.shape) for node in kept)
        )


@dataclass(frozen=True)
class Live:
    """A tensor that depends on the input.

    Attributes:
        builder: the network under construction.
        node: number of the node that computes the tensor.
    """

    builder: Builder
    node: int

    @property
    def value(self) -> Tensor:
        """Value of the tensor for the three rows."""
        return self.builder.values[self.node]
