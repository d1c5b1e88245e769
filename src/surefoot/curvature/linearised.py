"""One chunk's logits as a linear map of the parameters: products with J and Jᵀ on a graph that is kept.

With g(u) = Jᵀu built once as a graph in u, differentiating ⟨g(u), v⟩ by u gives J v: two backward passes over
the kept activations make a Gauss–Newton product, about the cost of one gradient step, and no forward pass.
Where an operation cannot be differentiated twice, or only at a higher price, J v comes from forward mode instead.
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
        twice: whether J v may come from differentiating the graph of Jᵀu (see `differentiable_twice`); else it
            comes from forward mode.
    """

    def __init__(self, forward: Forward, tensors: Sequence[Tensor], twice: bool = True) -> None:
        self._forward, self._tensors, self._twice = forward, list(tensors), twice
        with torch.enable_grad():
            self.logits = check_logits(forward(self._tensors))
            if twice:
                self._dual = torch.zeros_like(self.logits, requires_grad=True)
                found = torch.autograd.grad(
                    self.logits, self._tensors, self._dual, create_graph=True, allow_unused=True
                )
                self._linked = [value is not None and value.requires_grad for value in found]
                # Places in the graph instead of the values of Jᵀu, which would hold a copy of the parameters.
                self._transposed = [
                    get_gradient_edge(value) for value in found if value is not None and value.requires_grad
                ]

    def jvp(self, parts: Sequence[Tensor]) -> Tensor:
        """(b, k) J v for v given in the shapes of the tensors."""
        if not self._twice:
            return self._forward_jvp(parts)
        chosen = [part for part, linked in zip(parts, self._linked, strict=True) if linked]
        if not chosen:
            return torch.zeros_like(self.logits)
        return torch.autograd.grad(self._transposed, self._dual, chosen, retain_graph=True)[0]

    def vjp(self, u: Tensor) -> tuple[Tensor | None, ...]:
        """Jᵀ u in the shapes of the tensors; None where the logits do not depend on one."""
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

    An operation without a second derivative may raise, but it may also cut the graph in silence (a function marked
    once_differentiable does): only the numbers tell.
    """
    return _transposes_agree(forward, tensors, twice=True)


def prefers_forward_mode(model: nn.Module, forward: Forward, tensors: Sequence[Tensor]) -> bool:
    """Whether J v is cheaper by forward mode, and right: so for convolutions, meant for a few rows.

    A convolution's second backward pass also computes two derivatives that nobody asked for, which is more than
    running the model again.
    """
    convolutions = any(isinstance(module, _ConvNd) for module in model.modules())
    return convolutions and _transposes_agree(forward, tensors, twice=False)


def probe(like: Tensor, generator: torch.Generator) -> Tensor:
    """Normal numbers in the shape of a tensor; drawn in float32, which is six times faster than in float64."""
    return torch.randn(like.shape, generator=generator, dtype=torch.float32).to(like)


def _transposes_agree(forward: Forward, tensors: Sequence[Tensor], twice: bool) -> bool:
    """Whether ⟨u, J v⟩ equals ⟨Jᵀu, v⟩ for a random u and v, J v taken the way ``twice`` says."""
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
        return True  # a diverged model says nothing of its operations
    return abs(there - back) <= 1e-3 * (abs(there) + float(u.norm() * image.norm())) + 1e-12


def model_forward(model: nn.Module, names: Sequence[str], inputs: Tensor) -> Forward:
    """The model on ``inputs`` as a function of the named parameters; tied weights move together."""
    return lambda tensors: functional_call(model, dict(zip(names, tensors, strict=True)), (inputs,))


Kept = TypeVar("Kept")


class Retained(Generic[Kept]):
    """Graphs of chunks kept between products, as many as fit into ``memory`` bytes of ``chunk_bytes`` each."""

    def __init__(self, memory: int, chunk_bytes: float) -> None:
        self._room = int(memory / max(chunk_bytes, 1))
        self._kept: dict[int, Kept] = {}

    def __getstate__(self) -> dict[str, object]:
        return {"_room": self._room, "_kept": {}}  # a copy's graphs would be of the original

    def clear(self) -> None:
        """Let go of all graphs."""
        self._kept.clear()

    def get(self, index: int, build: Callable[[], Kept]) -> Kept:
        """Chunk ``index``: the kept graph, or a new one, which is kept if there is room."""
        if index in self._kept:
            return self._kept[index]
        made = build()
        if len(self._kept) < self._room:
            self._kept[index] = made
        return made


def check_logits(logits: Tensor) -> Tensor:
    """``logits`` if they have shape (b, k), or a clear error."""
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise BadInput(f"the model must map inputs to logits of shape (n, k); got {shape}")
    return logits


def check_repeatable(model: nn.Module, data: Data, batch_norm: str, rows: int = 64) -> int:
    """The number of classes k, if two passes over a few rows agree: random layers would make a matrix that is none."""
    few = data.inputs[:rows]
    with frozen(model, batch_norm), torch.no_grad():
        try:
            first, second = check_logits(model(few)), model(few)
        except (BadInput, torch.OutOfMemoryError):
            raise
        except Exception as error:
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise BadInput(
                f"the model must map the inputs to logits; given {few.dtype} of shape {tuple(few.shape)}, it failed: "
                f"{said}; convert or reshape the inputs"
            ) from error
    same = torch.equal(first, second) or torch.allclose(first, second, rtol=1e-5, atol=1e-6, equal_nan=True)
    if not same:
        raise BadInput(
            "the model is random even in eval mode: two passes over the same inputs differ; freeze its noise "
            "(a fixed mask or sample) before its curvature is measured"
        )
    return first.shape[1]
