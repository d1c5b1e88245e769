"""Losses as curvature needs them: per-example values, and the product with their Hessian in the logits.

Shapes: ``logits (b, k)``, ``labels (b,)`` or None, ``u (b, k)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from surefoot.errors import BadInput

__all__ = ["Convex", "CrossEntropy", "LogitLoss", "SquaredError", "loss_named"]


class LogitLoss(Protocol):
    """A convex function of one example's logits."""

    needs_labels: bool

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(b,) loss of each example."""

    def hessian_product(self, logits: Tensor, labels: Tensor | None, u: Tensor) -> Tensor:
        """(b, k) H_z u of each example."""


class CrossEntropy:
    """−log p_y; H_z = diag(p) − p pᵀ (paper A, Section 4), which no label enters."""

    needs_labels = False

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(b,) −log p_y."""
        return functional.cross_entropy(logits, labels, reduction="none")

    def hessian_product(self, logits: Tensor, labels: Tensor | None, u: Tensor) -> Tensor:
        """p ⊙ (u − ⟨p, u⟩)."""
        p = logits.softmax(dim=1)
        return p * (u - (p * u).sum(dim=1, keepdim=True))


class SquaredError:
    """Squared distance of the logits to the one-hot label, in one of three conventions.

    ``"mean"`` averages over the k classes, H_z = (2/k) I (paper A, Appendix D, and torch's MSELoss);
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
            (gradient,) = torch.autograd.grad(self.values(z, labels).sum(), z, create_graph=True)
            if not gradient.requires_grad:
                return torch.zeros_like(u)
            return torch.autograd.grad(gradient, z, u)[0]


def loss_named(loss: str | LogitLoss | Callable[[Tensor, Tensor], Tensor]) -> LogitLoss:
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
    if callable(loss):
        return Convex(loss)
    raise BadInput(f"loss must be a name or a function (logits, labels) -> (n,) values; got {type(loss).__name__}")
