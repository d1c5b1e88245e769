"""One chunk's logits as a linear map of the parameters: products with J and Jᵀ on a graph that is kept.

The graph of g(u) = Jᵀu in u is built once; differentiating ⟨g(u), v⟩ by u gives J v. Two backward passes over the kept
activations make a Gauss–Newton product. This costs about one gradient step, without a forward pass. If an operation
cannot be differentiated twice, or only at a higher cost, J v comes from forward mode instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.autograd.graph import get_gradient_edge
from torch.func import functional_call
from torch.nn.modules.conv import _ConvNd

from surefoot.curvature.chunks import Data, frozen
from surefoot.errors import BadInput

__all__ = [
    "Linearised",
    "Retained",
    "check_logits",
    "check_repeatable",
    "differentiable_twice",
    "model_forward",
    "prefers_forward_mode",
    "probe",
]


Forward = Callable[[Sequence[Tensor]], Tensor]


class Linearised:
    """J of ``forward(tensors)`` → logits (b, k) at the tensors' present values.

    Args:
        forward: the logits as a function of the tensors.
        tensors: the tensors that J differentiates by.
        twice: whether J v may come from differentiating the graph of Jᵀu (see `differentiable_twice`); otherwise J v
            comes from forward mode.

    Attributes:
        logits: (b, k).

    Raises:
        BadInput: if the logits have another number of dimensions.

    Example:
        >>> w = torch.ones(2, 2, requires_grad=True)
        >>> linear = Linearised(lambda tensors: torch.eye(2) @ tensors[0], [w])
        >>> linear.jvp([torch.eye(2)])
        tensor([[1., 0.],
                [0., 1.]])
    """

    def __init__(self, forward: Forward, tensors: Sequence[Tensor], twice: bool = True) -> None:
        self._forward, self._tensors, self._twice = forward, list(tensors), twice
        with torch.enable_grad():
            self.logits = check_logits(forward(self._tensors))
            if twice:
                self._dual = torch.zeros_like(self.logits, requires_grad=True)
                transposed = torch.autograd.grad(
                    self.logits, self._tensors, self._dual, create_graph=True, allow_unused=True
                )
                self._linked = [value is not None and value.requires_grad for value in transposed]
                # Edges of the graph replace the values of Jᵀu, which would occupy as much memory as the parameters.
                self._transposed = [
                    get_gradient_edge(value) for value in transposed if value is not None and value.requires_grad
                ]

    def jvp(self, parts: Sequence[Tensor]) -> Tensor:
        """The product J v.

        Args:
            parts: v in the shapes of the tensors.

        Returns:
            (b, k).

        Raises:
            BadInput: if an operation of the model has neither a second derivative nor forward mode.
        """
        if not self._twice:
            return self._forward_jvp(parts)
        chosen = [part for part, linked in zip(parts, self._linked, strict=True) if linked]
        if not chosen:
            return torch.zeros_like(self.logits)
        return torch.autograd.grad(self._transposed, self._dual, chosen, retain_graph=True)[0]

    def vjp(self, u: Tensor) -> tuple[Tensor | None, ...]:
        """The product Jᵀ u.

        Args:
            u: (b, k).

        Returns:
            Jᵀ u in the shapes of the tensors; None where the logits do not depend on a tensor.
        """
        return torch.autograd.grad(self.logits, self._tensors, u, retain_graph=True, allow_unused=True)

    def _forward_jvp(self, parts: Sequence[Tensor]) -> Tensor:
        with torch.no_grad(), forward_ad.dual_level():
            pairs = zip(self._tensors, parts, strict=True)
            duals = [forward_ad.make_dual(tensor.detach(), part) for tensor, part in pairs]  # type: ignore[no-untyped-call]
            try:
                dual = self._forward(duals)
                tangent: Tensor | None = forward_ad.unpack_dual(dual).tangent  # type: ignore[no-untyped-call]
            except NotImplementedError as error:
                raise BadInput(
                    "the model has an operation with neither a second derivative nor forward mode "
                    f"({' '.join(str(error).split())[:120]}); replace it (for attention, take the 'math' backend)"
                ) from error
        return torch.zeros_like(self.logits) if tangent is None else tangent


def differentiable_twice(forward: Forward, tensors: Sequence[Tensor]) -> bool:
    """Whether J v may come from two backward passes; meant for a few rows.

    An operation without a second derivative may raise. It may also cut the graph silently, as a function marked
    once_differentiable does: only the numbers show the difference.

    Args:
        forward: the logits as a function of the tensors.
        tensors: the tensors that J differentiates by.

    Returns:
        True or False.
    """
    return _transposes_agree(forward, tensors, twice=True)


def prefers_forward_mode(model: nn.Module, forward: Forward, tensors: Sequence[Tensor]) -> bool:
    """Whether forward mode is correct, and cheaper for J v: this holds for convolutions; meant for a few rows.

    A convolution's second backward pass also computes two derivatives that are not needed. This costs more than running
    the model again.

    Args:
        model: the model.
        forward: the logits as a function of the tensors.
        tensors: the tensors that J differentiates by.

    Returns:
        True or False.
    """
    convolutions = any(isinstance(module, _ConvNd) for module in model.modules())
    return convolutions and _transposes_agree(forward, tensors, twice=False)


def probe(like: Tensor, generator: torch.Generator) -> Tensor:
    """Normal numbers in the shape of a tensor, drawn in float32, which is six times faster than in float64.

    Args:
        like: the tensor whose shape, dtype and device are used.
        generator: a generator on the CPU.

    Returns:
        The numbers.
    """
    return torch.randn(like.shape, generator=generator, dtype=torch.float32).to(like)


def _transposes_agree(forward: Forward, tensors: Sequence[Tensor], twice: bool) -> bool:
    """Whether ⟨u, J v⟩ equals ⟨Jᵀu, v⟩ for random u and v, with J v computed as ``twice`` says."""
    generator = torch.Generator().manual_seed(0)
    try:
        linear = Linearised(forward, tensors, twice)
        v = [probe(t, generator) for t in tensors]
        u = probe(linear.logits, generator)
        image = linear.jvp(v)
        pairs = zip(linear.vjp(u), v, strict=True)
        there = sum(float((g * w).sum()) for g, w in pairs if g is not None)
    except (RuntimeError, BadInput):
        return False
    back = float((u * image).sum())
    if not (math.isfinite(there) and math.isfinite(back)):
        return True  # a diverged model shows nothing about its operations
    return abs(there - back) <= 1e-3 * (abs(there) + float(u.norm() * image.norm())) + 1e-12


def model_forward(model: nn.Module, names: Sequence[str], inputs: Tensor) -> Forward:
    """The model on ``inputs`` as a function of the named parameters; tied weights move together.

    Args:
        model: the model.
        names: names of the parameters, in the order of the function's tensors.
        inputs: (b, ...).

    Returns:
        A function from tensors to logits.
    """
    return lambda tensors: functional_call(model, dict(zip(names, tensors, strict=True)), (inputs,))


Graph = TypeVar("Graph")


class Retained(Generic[Graph]):
    """Graphs of chunks, kept between products as far as memory allows.

    Args:
        memory: maximum of bytes.
        chunk_bytes: bytes of one graph.

    Example:
        >>> kept = Retained(memory=10, chunk_bytes=10)
        >>> kept.get(0, lambda: "graph"), kept.get(0, lambda: "another graph")
        ('graph', 'graph')
    """

    def __init__(self, memory: int, chunk_bytes: float) -> None:
        self._room = int(memory / max(chunk_bytes, 1))
        self._kept: dict[int, Graph] = {}

    def __getstate__(self) -> dict[str, object]:
        return {"_room": self._room, "_kept": {}}  # a copy's graphs would belong to the original

    def clear(self) -> None:
        """Discard all graphs."""
        self._kept.clear()

    def get(self, index: int, build: Callable[[], Graph]) -> Graph:
        """The kept graph of a chunk, or a new graph, which is kept if there is room.

        Args:
            index: number of the chunk.
            build: makes a new graph.

        Returns:
            The graph.
        """
        if index in self._kept:
            return self._kept[index]
        graph = build()
        if len(self._kept) < self._room:
            self._kept[index] = graph
        return graph


def check_logits(logits: Tensor) -> Tensor:
    """Refuse logits of another shape than (b, k).

    Args:
        logits: what the model returned.

    Returns:
        ``logits``.

    Raises:
        BadInput: if ``logits`` is no tensor of two dimensions.
    """
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise BadInput(f"the model must map inputs to logits of shape (n, k); got {shape}")
    return logits


def check_repeatable(model: nn.Module, data: Data, batch_norm: str, rows: int = 64) -> int:
    """Refuse a model that is random in eval mode: two passes over a few rows must agree.

    Args:
        model: the model.
        data: the data.
        batch_norm: as of `frozen`.
        rows: number of rows to use.

    Returns:
        The number of classes k.

    Raises:
        BadInput: if the model fails on the inputs, returns no logits, or the passes disagree.
    """
    few = data.inputs[:rows]
    with frozen(model, batch_norm), torch.no_grad():
        try:
            first, second = check_logits(model(few)), model(few)
        except (BadInput, torch.OutOfMemoryError):
            raise
        except Exception as error:
            message = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise BadInput(
                f"the model must map the inputs to logits; given {few.dtype} of shape {tuple(few.shape)}, it failed: "
                f"{message}; convert or reshape the inputs"
            ) from error
    same = torch.equal(first, second) or torch.allclose(first, second, rtol=1e-5, atol=1e-6, equal_nan=True)
    if not same:
        raise BadInput(
            "the model is random even in eval mode: two passes over the same inputs differ; freeze its noise "
            "(a fixed mask or sample) before its curvature is measured"
        )
    return first.shape[1]
