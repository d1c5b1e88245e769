"""What the training loop minimises: ``objective(model, batch) → scalar``; plain losses are lifted to one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from surefoot.errors import BadInput
from surefoot.forward import CHUNK, logits_of
from surefoot.loss import Loss, LossLike, as_loss, whole_labels, wide
from surefoot.predictions import Predictions
from surefoot.text import settings_of

__all__ = ["Batch", "Lifted", "Objective", "Validation", "Weigh", "as_objective", "unweighted"]

Split = tuple[Tensor, Tensor]
# (logits, labels, values) → values, as a step rule wants the examples weighed in this pass.
Weigh = Callable[[Tensor, Tensor, Tensor], Tensor]


class _Fields(NamedTuple):
    inputs: Tensor
    labels: Tensor
    indices: Tensor
    step: int


class Batch(_Fields):
    """What a step sees: inputs (b, ...), labels (b,), their row numbers in the training set (b,), the step from 0."""

    __slots__ = ()

    def __new__(cls, inputs: Tensor, labels: Tensor, indices: Tensor, step: int) -> Batch:
        """Labels are checked here, once: torch's cross-entropy takes soft ones without a word."""
        whole_labels(labels)
        return super().__new__(cls, inputs, labels, indices, step)


class Validation:
    """The model between two epochs: called, it gives its predictions on the validation part.

    Attributes:
        model: as it is now.
        train: inputs and labels.
        val: inputs and labels, or None.
    """

    def __init__(self, model: nn.Module, train: Split, val: Split | None) -> None:
        self.model, self.train, self.val = model, train, val

    def __call__(self) -> Predictions | None:
        """Of the validation part, the model left as it is; None where the logits are not finite any more."""
        if self.val is None:
            raise BadInput("this loss looks at validation examples after each epoch; set data.val")
        return predicted(self.model, self.val)


def predicted(model: nn.Module, split: Split) -> Predictions | None:
    """Predictions on a split; None where the logits are not finite, which the loop will find out by itself."""
    logits = logits_of(model, split[0], CHUNK)
    return Predictions(logits, split[1]) if bool(torch.isfinite(logits.amax(dim=1)).all()) else None


def unweighted(logits: Tensor, labels: Tensor, values: Tensor) -> Tensor:
    """Every example counts the same."""
    return values


class Objective(nn.Module):
    """``objective(model, batch)``: the scalar to minimise, over the model's own forward pass.

    What it remembers from step to step lies in buffers, so that it is saved and resumed with the run. An optimizer such
    as CSAM weighs the part of each example, never a term of the batch as a whole: see `weighted_by`.

    Attributes:
        curvature: as of `Loss`.
        gradients: what the last call cost, in gradients of the cross-entropy, to the nearest whole number.
    """

    curvature = "ce"
    needs_model = True  # no loss of logits and labels
    gradients = 1

    def __init__(self) -> None:
        super().__init__()
        self.weigh: Weigh = unweighted

    def weighted_by(self, optimizer: Optimizer) -> Self:
        """Bind the objective to the optimizer that minimises it.

        Args:
            optimizer: If it has a method ``weighted``, as CSAM has, that method weighs the examples' values in each
                pass. Other optimizers leave every example the same weight.

        Returns:
            The objective itself.
        """
        self.weigh = getattr(optimizer, "weighted", unweighted)
        return self

    @abstractmethod
    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        """Scalar."""

    def mean(self, logits: Tensor, labels: Tensor, values: Tensor) -> Tensor:
        """The mean of per-example values (b,), weighed as the step rule asks."""
        return self.weigh(logits, labels, values).mean()

    def extra_repr(self) -> str:
        """The settings, as torch's modules show them."""
        return settings_of(self)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model to train: the given one, changed where the objective needs more of it, such as a second head."""
        return model

    def epoch(self, validation: Validation) -> None:
        """Called after each pass over the data."""


class Lifted(Objective):
    """A loss of logits and labels as an objective."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss
        self.curvature = loss.curvature

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of the model's logits."""
        logits = wide(model(batch.inputs))
        values, weights = self.loss.values(logits, batch.labels), self.loss.example_weights(batch.labels)
        if weights is None:
            found = self.mean(logits, batch.labels, values)
        else:
            found = self.weigh(logits, batch.labels, values).sum() / weights.sum()
        term = self.loss.term(logits, batch.labels)
        return found if term is None else found + term

    def epoch(self, validation: Validation) -> None:
        """The loss's own."""
        self.loss.epoch(validation)


def as_objective(loss: Objective | LossLike) -> Objective:
    """``loss`` as an objective, if it is not one already.

    Args:
        loss: an `Objective`, or whatever `surefoot.losses.as_loss` takes. The training loop takes the mean over the
            batch, whatever the loss's own reduction.

    Returns:
        ``objective(model, batch) -> scalar``.

    Raises:
        BadInput: if it is no loss.

    Example:
        >>> as_objective(nn.CrossEntropyLoss())
        Lifted(
          (loss): CrossEntropy()
        )
    """
    return loss if isinstance(loss, Objective) else Lifted(as_loss(loss))
