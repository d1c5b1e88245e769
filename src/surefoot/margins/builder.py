"""A network under construction: every layer is applied to a few rows at once, so that all shapes are known."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from surefoot.margins.network import Layer, Network, Node

__all__ = ["ROWS", "Builder", "Live", "NotBounded"]

# Shapes are read off a batch of this size.
ROWS = 3


class NotBounded(Exception):
    """A layer's setting that no bound is known for; the text ends a sentence that names the layer."""


class Builder:
    """The layers so far and their values for the rows (3, *shape)."""

    def __init__(self, rows: Tensor) -> None:
        self.nodes: list[Node] = [Node(None, (), tuple(rows.shape[1:]))]
        self.values: list[Tensor] = [rows]

    @property
    def input(self) -> Live:
        """The input."""
        return Live(self, 0)

    def add(self, layer: Layer, *sources: Live) -> Live:
        """Append a layer and apply it."""
        value = layer.apply(*(source.value for source in sources))
        self.nodes.append(Node(layer, tuple(source.node for source in sources), tuple(value.shape[1:])))
        self.values.append(value)
        return Live(self, len(self.nodes) - 1)

    def network(self, last: Live) -> Network:
        """The network that ends in ``last``; what is computed beside it is left out."""
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
    """A tensor that depends on the input: the number of its node."""

    builder: Builder
    node: int

    @property
    def value(self) -> Tensor:
        """Its value for the rows."""
        return self.builder.values[self.node]
