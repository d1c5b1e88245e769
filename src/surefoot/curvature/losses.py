"""Losses as curvature needs them: per-example values, and the product with their Hessian in the logits.

Shapes: ``logits (b, k)``, ``labels (b,)`` or None, ``u (b, k)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

import torch
from torch import Tensor
from torch.nn import functional

from surefoot.errors import BadInput

__all__ = ["Convex", "CrossEntropy", "LogitLoss", "SquaredError", "as_loss", "check_convex", "names_classes"]


class LogitLoss(Protocol):
    """A convex function of one example's logits."""

    needs_labels: bool

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(b,) loss of each example."""

    def hessian_product(self, logits: Tensor, labels: Tensor | None, u: Tensor) -> Tensor:
        """(b, k) H_z u of each example."""


class CrossEntropy:
    """−log p_y; H_z = diag(p) − p pᵀ (Morosini et al. 2026, Section 4), which no label enters."""

    needs_labels = False

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(b,) −log p_y."""
        return functional.cross_entropy(logits, labels, reduction="none")

    def hessian_product(self, logits: Tensor, labels: Tensor | None, u: Tensor) -> Tensor:
        """p ⊙ (u − ⟨p, u⟩), u taken relative to its value at the likeliest class.

        A constant added to u changes nothing but rounding: where that p is nearly 1, u − ⟨p, u⟩ would cancel.
        """
        p = logits.softmax(dim=1)
        u = u - u.gather(1, logits.argmax(dim=1, keepdim=True))
        return p * (u - (p * u).sum(dim=1, keepdim=True))


class SquaredError:
    """Squared distance of the logits to the one-hot label, in one of three conventions.

    ``"mean"`` averages over the k classes, H_z = (2/k) I (Morosini et al. 2026, Appendix D; torch's MSELoss);
    ``"half"`` is ½‖·‖², H_z = I (Cohen et al. 2021); ``"sum"`` is ‖·‖², H_z = 2 I.
    """

    needs_labels = False

    def __init__(self, convention: str = "mean") -> None:
        if convention not in ("mean", "half", "sum"):
            raise BadInput(f"convention of the squared error must be 'mean', 'half' or 'sum'; got {convention!r}")
        self.convention = convention

    def _scale(self, classes: int) -> float:
        return {"mean": 2.0 / classes, "half": 1.0, "sum": 2.0}[self.convention]

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(b,) squared distance, scaled."""
        target = functional.one_hot(labels, logits.shape[1]).to(logits.dtype)
        return 0.5 * self._scale(logits.shape[1]) * (logits - target).square().sum(dim=1)

    def hessian_product(self, logits: Tensor, labels: Tensor | None, u: Tensor) -> Tensor:
        """A multiple of u."""
        return self._scale(logits.shape[1]) * u


class Convex:
    """Any loss that is convex in the logits, given as a function (logits, labels) → (b,) values."""

    needs_labels = True

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._function = function

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(b,) the function's own values."""
        values = self._function(logits, labels)
        if values.shape != logits.shape[:1]:
            raise BadInput(
                f"loss must return one value per example, shape ({len(logits)},); got {tuple(values.shape)}; "
                "use reduction='none'"
            )
        return values

    def hessian_product(self, logits: Tensor, labels: Tensor | None, u: Tensor) -> Tensor:
        """By differentiating the gradient once more."""
        assert labels is not None
        with torch.enable_grad():
            z = logits.detach().requires_grad_()
            values = self.values(z, labels)
            if not values.requires_grad:
                return torch.zeros_like(u)
            (gradient,) = torch.autograd.grad(values.sum(), z, create_graph=True)
            if not gradient.requires_grad:
                return torch.zeros_like(u)
            return torch.autograd.grad(gradient, z, u)[0]


def check_convex(loss: LogitLoss, labels: Tensor | None, like: Tensor) -> None:
    """A clear error if some uᵀH_z u is negative at random logits shaped as ``like`` (b, k): then G is none.

    Not at the model's own logits: where those are saturated, only rounding is left of H_z.
    """
    if names_classes(loss):  # known to be convex
        return
    generator = torch.Generator().manual_seed(0)
    for size in (0.5, 1.0, 2.0, 4.0):
        logits, u = (torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like) for _ in range(2))
        image = loss.hessian_product(size * logits, labels, u)
        bound = 1e-3 * u.norm(dim=1) * image.norm(dim=1)
        if bool(((u * image).sum(dim=1) < -bound).any()):
            raise BadInput(
                "loss must be convex in the logits, or its Gauss–Newton matrix is none; got one with negative "
                "curvature; use Hessian"
            )


def names_classes(loss: LogitLoss) -> bool:
    """Whether the labels are indices of classes: a function of one's own may read them otherwise."""
    return isinstance(loss, CrossEntropy | SquaredError)


def as_loss(loss: str | LogitLoss | Callable[[Tensor, Tensor], Tensor]) -> LogitLoss:
    """The loss behind a name, an object of this file, or a plain function."""
    table: dict[str, LogitLoss] = {
        "ce": CrossEntropy(),
        "mse": SquaredError("mean"),
        "mse-half": SquaredError("half"),
        "mse-sum": SquaredError("sum"),
    }
    if isinstance(loss, str):
        if loss not in table:
            raise BadInput(f"loss must be one of {', '.join(map(repr, table))}, or a function; got {loss!r}")
        return table[loss]
    if isinstance(loss, CrossEntropy | SquaredError | Convex):
        return loss
    if not isinstance(loss, type) and all(
        hasattr(loss, part) for part in ("needs_labels", "values", "hessian_product")
    ):
        return cast(LogitLoss, loss)
    if callable(loss):
        return Convex(loss)
    raise BadInput(f"loss must be a name or a function (logits, labels) -> (n,) values; got {type(loss).__name__}")
