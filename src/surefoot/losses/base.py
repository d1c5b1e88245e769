"""What every loss of logits and labels is: values for each example, perhaps a term of the whole batch, a reduction.

Shapes: ``logits (n, k)``, ``labels (n,)`` whole numbers.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from surefoot.errors import BadInput

if TYPE_CHECKING:
    from surefoot.losses.objective import Validation

__all__ = ["Loss", "checked", "flag", "non_negative", "whole_labels", "wide", "within"]

_REDUCTIONS = ("mean", "none", "sum")


class Loss(nn.Module):
    """``loss(logits, labels)``: the mean over the examples, or ``"none"`` of it, or the ``"sum"``.

    A loss has a part for each example (`values`) and may have a `term` of the whole batch. With ``"none"`` the term is
    added to every value, so that the mean of what is returned is always the loss. ``curvature`` names the loss whose
    Gauss–Newton matrix is read along a run: cross-entropy, where this one has none of its own. ``needs_validation``
    says that `epoch` looks at validation examples. ``masks`` says that a logit may be −inf, a class that is ruled out.
    """

    curvature = "ce"
    needs_validation = False
    masks = True

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        if reduction not in _REDUCTIONS:
            raise BadInput(f"reduction must be one of {', '.join(map(repr, _REDUCTIONS))}; got {reduction!r}")
        self.reduction = reduction

    @abstractmethod
    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(n,) the part of each example; arguments are taken as they are."""

    def term(self, logits: Tensor, labels: Tensor) -> Tensor | None:
        """The scalar part of the batch as a whole (of all ranks), if there is one."""
        return None

    def epoch(self, validation: Validation) -> None:
        """Called after each pass over the data."""

    def check_masks(self, logits: Tensor) -> None:
        """A clear error for a logit of −inf where the loss would be infinite."""
        if self.masks or bool((least := logits.detach().amin(dim=1)).isfinite().all()):
            return
        row = int((~least.isfinite()).nonzero()[0])
        raise BadInput(
            f"{type(self).__name__} looks at every logit, so that none may be -inf; row {row} has one; leave the class "
            "out, or take a loss of probabilities (CrossEntropy, Focal, …)"
        )

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Scalar, or (n,) with ``reduction="none"``; halves are computed in float32."""
        z, y = checked(logits, labels)
        self.check_masks(z)
        values, term = self.values(z, y), self.term(z, y)
        if term is not None:
            values = values + term
        if self.reduction == "none":
            return values
        return values.mean() if self.reduction == "mean" else values.sum()


def wide(logits: Tensor) -> Tensor:
    """Half-precision logits in float32, others as they are."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def checked(logits: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Logits in float32 or better and labels in int64, or an error that says what is wrong and what to do."""
    if not isinstance(logits, Tensor) or logits.ndim != 2 or not logits.is_floating_point() or logits.shape[1] < 2:
        found = f"{logits.dtype} {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise BadInput(f"logits must be a floating-point tensor of shape (n, k), two classes at least; got {found}")
    if len(logits) == 0:
        raise BadInput("logits must have at least one row; got none")
    whole_labels(labels)
    if labels.shape != logits.shape[:1]:
        raise BadInput(f"labels must have shape ({len(logits)},), one per row of logits; got {tuple(labels.shape)}")
    least, most = (int(bound) for bound in labels.aminmax())
    if least < 0 or most >= logits.shape[1]:
        row = int(((labels < 0) | (labels >= logits.shape[1])).nonzero()[0])
        raise BadInput(
            f"labels must lie in 0..{logits.shape[1] - 1}; got {int(labels[row])} in row {row}; "
            "leave out rows without a label"
        )
    # The largest entry is finite unless a row holds NaN or +inf, or nothing but −inf.
    finite = logits.detach().amax(dim=1).isfinite()
    if not bool(finite.all()):
        raise BadInput(f"logits must be finite; row {int((~finite).nonzero()[0])} is not; did the training diverge?")
    return wide(logits), labels.long()


def whole_labels(labels: Any) -> None:
    """An error that says what to do unless labels are whole numbers (n,): torch would take soft ones for granted."""
    if not isinstance(labels, Tensor):
        raise BadInput(f"labels must be a tensor of shape (n,); got {type(labels).__name__}")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise BadInput(
            f"labels must be whole numbers, one class for each example; got {labels.dtype} {tuple(labels.shape)}; "
            "for soft labels use Mixup or LabelSmoothing, which make their own"
        )
    if labels.ndim != 1:
        raise BadInput(f"labels must have shape (n,), one class for each example; got {tuple(labels.shape)}")


def within(name: str, value: Any, least: float, most: float) -> float:
    """``value`` as a finite float in least..most."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise BadInput(f"{name} must be a number from {least:g} to {most:g}; got {value!r}")
    return float(value)


def flag(name: str, value: Any) -> bool:
    """``value`` if it is True or False: any word would count as True."""
    if not isinstance(value, bool):
        raise BadInput(f"{name} must be true or false; got {value!r}")
    return value


def non_negative(name: str, value: Any) -> float:
    """``value`` as a finite float of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise BadInput(f"{name} must be a finite number of at least 0; got {value!r}")
    return float(value)
