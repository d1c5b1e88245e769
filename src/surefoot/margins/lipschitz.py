"""Lipschitz constants of the differences of logits, bounded layer by layer."""

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

# Sums and products of float64 numbers, all of one sign, through a deep network.
_UP = 1 + 1e-9


def lipschitz(model: nn.Module, example: Any, norm: Any = "inf", eps: Any = 1.0) -> Tensor:
    """(k, k) float64 upper bounds L[y, j] of the Lipschitz constant of z_y − z_j by the input in ``norm``, everywhere.

    |(z_y − z_j)(x) − (z_y − z_j)(x')| ≤ L[y, j] ‖x − x'‖ for all x, x'. In the 2-norm each layer counts with a bound
    of its spectral norm, in the ∞-norm with its absolute weights (never more than the product of the largest row
    sums) or as in the 2-norm around it, whichever is less; residual branches add, and the last layer counts with the
    differences of its rows.

    Args:
        model: of the layers that `certified` knows, in eval mode; left as it is.
        example: inputs (n, *shape), or the shape of one of them as a tuple of whole numbers.
        norm: ``"inf"`` or 2.
        eps: the unit of length, as `robust` takes it; the result then bounds how far z_y − z_j moves within that ball.

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
    """(k, k) upper bounds of how far z_y − z_j moves when the input moves within the ball, wherever it starts."""
    identity = torch.eye(network.classes, dtype=torch.float64, device=ball.radius.device)
    found = torch.full_like(identity, torch.inf)
    for each in {ball.norm: ball, 2.0: ball.rounded()}.values():
        bounds = Bounds(network, each, [], _reaches(network, each))
        rows = [-bounds.least((row - identity)[None], network.last, to_input=False)[0] for row in identity]
        found = torch.fmin(found, torch.stack(rows))
    return found * _UP


def coordinate_reaches(network: Network, ball: Ball) -> list[Tensor]:
    """(1, *shape) for every node: how far each coordinate moves at most, by what moves in the 2-norm before it.

    Intervals alone forget that not all coordinates of a layer can be at their ends at once; lengths do not.
    """
    ellipsoids = _reaches(network, ball.rounded())
    found = []
    for node, own in zip(network.nodes, ellipsoids, strict=True):
        caps = [own.radius]
        if isinstance(node.layer, Affine):
            norms = node.layer.row_norms(ellipsoids[node.sources[0]].radius)
            caps += [] if norms is None else [norms]
        found.append(torch.stack(torch.broadcast_tensors(*caps)).amin(dim=0) * _UP)  # type: ignore[no-untyped-call]
    return found


def _reaches(network: Network, ball: Ball) -> list[Deviation]:
    """How far each node moves, activations counting with their steepest slope: a box, or an ellipsoid."""
    found: list[Deviation] = []
    for node in network.nodes:
        sources = [found[source].radius for source in node.sources]
        match node.layer:
            case None:
                radius = ball.radius
            case Activation():  # no coordinate moves further than its source by more than the slope
                radius = sources[0] * node.layer.lipschitz
            case _ if ball.round:
                radius = _after(node.layer, sources, node.shape)
            case Affine():
                radius = node.layer.absolute(sources[0])
            case Sum():
                radius = sum(sources[1:], start=sources[0])
            case MaxPool():
                radius = node.layer.apply(sources[0])
        found.append(Deviation(None, radius, ball.round))
    return found


def _after(layer: Affine | MaxPool | Sum, sources: list[Tensor], shape: tuple[int, ...]) -> Tensor:
    """Half-axes of an ellipsoid around all that a layer makes of those of its sources."""
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
