"""Upper bounds of the Lipschitz constants of differences of logits, layer by layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from surefoot.curvature.chunks import plain_mode
from surefoot.errors import BadInput
from surefoot.margins.affine import Affine
from surefoot.margins.ball import Ball
from surefoot.margins.interval import Deviation
from surefoot.margins.linear_bounds import Bounds
from surefoot.margins.max_pool import MaxPool
from surefoot.margins.network import Network, Sum
from surefoot.margins.relaxation import Activation
from surefoot.margins.tracing import network_of

__all__ = ["coordinate_reaches", "lipschitz", "reach_of_differences"]

# A bound of the relative error of float64 sums and products of numbers of one sign through a deep network.
_UP = 1 + 1e-9


def lipschitz(model: nn.Module, example: Any, norm: Any = "inf", eps: Any = 1.0) -> Tensor:
    """Bound the Lipschitz constants of all differences of logits, over all inputs.

    |(z_y − z_j)(x) − (z_y − z_j)(x')| ≤ L[y, j] ‖x − x'‖ for all x, x'.

    In the 2-norm, every layer contributes a bound of its spectral norm. In the ∞-norm, the bound is the smaller of two.
    The first uses the absolute weights of every layer, and never exceeds the product of the largest row sums. The
    second is the 2-norm bound for the ellipsoid around the box. Residual branches add. The last layer contributes the
    differences of its rows.

    Args:
        model: a module of the layers that `certified` knows; used in eval mode and not modified.
        example: inputs (n, *shape), or the shape of one input as a tuple of integers.
        norm: ``"inf"`` or 2.
        eps: the unit of length, as `robust` takes it. The result then bounds how far z_y − z_j moves within that ball.

    Returns:
        (k, k) float64 upper bounds L.

    Raises:
        BadInput: when an argument is not as described, or no bound is known for a layer, which the error names.

    Example:
        >>> model = nn.Linear(2, 2).requires_grad_(False)
        >>> model.weight[:] = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
        >>> round(float(lipschitz(model, (2,), 2)[0, 1]), 4), round(float(lipschitz(model, (2,), "inf")[1, 0]), 4)
        (5.0, 7.0)
    """
    if not isinstance(model, nn.Module):
        raise BadInput(f"model must be a torch.nn.Module; got {type(model).__name__}")
    first = next(model.parameters(), torch.zeros(0))
    if isinstance(example, tuple) and example and all(type(length) is int and length > 0 for length in example):
        one = torch.zeros(1, *example, dtype=torch.float64, device=first.device)
    else:
        inputs = torch.as_tensor(example) if not isinstance(example, tuple) else torch.zeros(0)
        if inputs.ndim < 2 or len(inputs) == 0:
            raise BadInput(
                f"example must be inputs (n, ...) or the shape of one as a tuple of lengths; got {example!r}"
            )
        one = inputs[:1].detach().to(first.device, torch.float64)
    with plain_mode(), torch.no_grad():
        network = network_of(model, one)
        return reach_of_differences(network, Ball.of(eps, norm, tuple(one.shape[1:]), one.device))


def reach_of_differences(network: Network, ball: Ball) -> Tensor:
    """Bound how far every difference z_y − z_j moves when any input moves within the ball.

    Args:
        network: the network, with k classes.
        ball: the ball.

    Returns:
        (k, k) upper bounds.
    """
    identity = torch.eye(network.classes, dtype=torch.float64, device=ball.radius.device)
    smallest = torch.full_like(identity, torch.inf)
    for around in {ball.norm: ball, 2.0: ball.rounded()}.values():
        bounds = Bounds(network, around, [], _reaches(network, around))
        rows = [-bounds.minimum((row - identity)[None], network.last, to_input=False)[0] for row in identity]
        smallest = torch.fmin(smallest, torch.stack(rows))
    return smallest * _UP


def coordinate_reaches(network: Network, ball: Ball) -> list[Tensor]:
    """Bound how far every coordinate of every node moves, from 2-norms of the layers before the node.

    Intervals ignore that the coordinates of a layer cannot all be at their ends at once. The 2-norm accounts for this.

    Args:
        network: the network.
        ball: the ball around any input.

    Returns:
        Upper bounds (1, *shape) for every node, in the order of the nodes.
    """
    ellipsoids = _reaches(network, ball.rounded())
    reaches = []
    for node, own in zip(network.nodes, ellipsoids, strict=True):
        caps = [own.radius]
        if isinstance(node.layer, Affine):
            norms = node.layer.row_norms(ellipsoids[node.sources[0]].radius)
            caps += [] if norms is None else [norms]
        reaches.append(torch.stack(torch.broadcast_tensors(*caps)).amin(dim=0) * _UP)  # type: ignore[no-untyped-call]
    return reaches


def _reaches(network: Network, ball: Ball) -> list[Deviation]:
    """How far every node moves, as boxes or ellipsoids; an activation counts with its largest slope."""
    reaches: list[Deviation] = []
    for node in network.nodes:
        sources = [reaches[source].radius for source in node.sources]
        match node.layer:
            case None:
                radius = ball.radius
            case Activation():  # a coordinate moves at most its slope times as far as its source
                radius = sources[0] * node.layer.lipschitz
            case _ if ball.round:
                radius = _after(node.layer, sources, node.shape)
            case Affine():
                radius = node.layer.absolute(sources[0])
            case Sum():
                radius = sum(sources[1:], start=sources[0])
            case MaxPool():
                radius = node.layer.apply(sources[0])
        reaches.append(Deviation(None, radius, ball.round))
    return reaches


def _after(layer: Affine | MaxPool | Sum, sources: list[Tensor], shape: tuple[int, ...]) -> Tensor:
    """Half-axes of an ellipsoid around the image of the ellipsoids of the sources."""
    match layer:
        case Affine():
            if layer.one_to_one:
                return layer.absolute(sources[0])
            length = layer.spectral_norm(sources[0])
        case MaxPool():
            length = layer.cover * float(sources[0].max())
        case Sum():
            length = sum(float(source.max()) for source in sources)
    return torch.full((1, *shape), length, dtype=sources[0].dtype, device=sources[0].device)
