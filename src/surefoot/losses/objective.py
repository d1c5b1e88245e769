"""What the training loop minimises: ``objective(model, batch) → scalar``; `as_objective` makes one of a plain loss."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from surefoot.dataset import Dataset
from surefoot.errors import BadInput
from surefoot.forward import CHUNK, logits_of
from surefoot.loss import Loss, LossLike, as_loss, check_integer_labels, wide
from surefoot.predictions import Predictions
from surefoot.text import settings_of

__all__ = ["Batch", "Lifted", "Objective", "Validation", "Weigh", "as_objective", "unweighted"]

# (logits, labels, values) → values, weighted as the optimizer requires in this pass.
Weigh = Callable[[Tensor, Tensor, Tensor], Tensor]


class _Fields(NamedTuple):
    inputs: Tensor
    labels: Tensor
    indices: Tensor
    step: int


class Batch(_Fields):
    """What a step sees: inputs, labels, row numbers and the number of the step.

    Args:
        inputs: (b, ...).
        labels: (b,) integers.
        indices: (b,) row numbers in the training set.
        step: number of the step, from 0.

    Raises:
        BadInput: if the labels are not integers (b,).

    Example:
        >>> Batch(torch.ones(2, 3), torch.tensor([0, 1]), torch.arange(2), step=7).step
        7
    """

    __slots__ = ()

    def __new__(cls, inputs: Tensor, labels: Tensor, indices: Tensor, step: int) -> Batch:
        """Check the labels once, here: torch's cross-entropy accepts soft labels silently."""
        check_integer_labels(labels)
        return super().__new__(cls, inputs, labels, indices, step)


class Validation:
    """The model between two epochs; a call returns the model's predictions on the validation part.

    Args:
        model: the present model.
        train: the training examples.
        val: the validation examples, or None.

    Raises:
        BadInput: when called, if there is no validation part.
    """

    def __init__(self, model: nn.Module, train: Dataset, val: Dataset | None) -> None:
        self.model, self.train, self.val = model, train, val

    def __call__(self) -> Predictions | None:
        """Predictions on the validation part, with the model left unchanged; None if the logits are not finite."""
        if self.val is None:
            raise BadInput("this loss looks at validation examples after each epoch; set data.val")
        return predicted(self.model, self.val)


def predicted(model: nn.Module, data: Dataset) -> Predictions | None:
    """Predictions on a data set; None if the logits are not finite, which the loop will detect by itself."""
    logits = logits_of(model, data, CHUNK)
    return Predictions(logits, data.labels) if bool(torch.isfinite(logits.amax(dim=1)).all()) else None


def unweighted(logits: Tensor, labels: Tensor, values: Tensor) -> Tensor:
    """Weight every example equally.

    Args:
        logits: (b, k).
        labels: (b,) integers.
        values: (b,) per-example values.

    Returns:
        (b,) the values, unchanged.

    Example:
        >>> unweighted(torch.zeros(1, 2), torch.tensor([0]), torch.tensor([3.0]))
        tensor([3.])
    """
    return values


class Objective(nn.Module):
    """``objective(model, batch)``: the scalar to minimise, over the model's own forward pass.

    Buffers hold what an objective remembers from step to step, so that a run saves and resumes these values. An
    optimizer such as CSAM weights the value of each example, never a term of the batch as a whole: see `weighted_by`.

    Attributes:
        curvature: as of `Loss`.
        gradients: what the last call cost, in gradients of the cross-entropy, rounded to an integer.
        needs_model: True, in contrast to a loss of logits and labels.
        weigh: (logits, labels, values) → values, set by `weighted_by`.
    """

    curvature = "ce"
    needs_model = True
    gradients = 1

    def __init__(self) -> None:
        super().__init__()
        self.weigh: Weigh = unweighted

    def weighted_by(self, optimizer: Optimizer) -> Self:
        """Bind the objective to the optimizer that minimises it.

        Args:
            optimizer: if the optimizer has a method ``weighted``, such as CSAM's, this method weights the examples'
                values in each pass. Other optimizers weight every example equally.

        Returns:
            The objective itself.
        """
        self.weigh = getattr(optimizer, "weighted", unweighted)
        return self

    @abstractmethod
    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of a batch.

        Args:
            model: the model, called inside.
            batch: the batch.

        Returns:
            Scalar.
        """

    def mean(self, logits: Tensor, labels: Tensor, values: Tensor) -> Tensor:
        """The mean of per-example values, weighted as the optimizer requires.

        Args:
            logits: (b, k).
            labels: (b,) integers.
            values: (b,) per-example values.

        Returns:
            Scalar.
        """
        return self.weigh(logits, labels, values).mean()

    def extra_repr(self) -> str:
        """The settings, as torch's modules show them.

        Returns:
            The text inside the parentheses of ``repr``.
        """
        return settings_of(self)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model to train: ``model``, changed if the objective needs more, such as a second head.

        Args:
            model: the user's model.

        Returns:
            The model to train.
        """
        return model

    def epoch(self, validation: Validation) -> None:
        """Called after each pass over the data.

        Args:
            validation: the model and its data after the epoch.
        """


class Lifted(Objective):
    """A loss of logits and labels as an objective.

    Args:
        loss: the loss. Its reduction has no effect.

    Example:
        >>> batch = Batch(torch.zeros(2, 2), torch.tensor([0, 1]), torch.arange(2), 0)
        >>> Lifted(as_loss("ce"))(nn.Identity(), batch)
        tensor(0.6931)
    """

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss
        self.curvature = loss.curvature

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of the model's logits."""
        logits = wide(model(batch.inputs))
        values, weights = self.loss.values(logits, batch.labels), self.loss.example_weights(batch.labels)
        if weights is None:
            loss = self.mean(logits, batch.labels, values)
        else:
            loss = self.weigh(logits, batch.labels, values).sum() / weights.sum()
        term = self.loss.term(logits, batch.labels)
        return loss if term is None else loss + term

    def epoch(self, validation: Validation) -> None:
        """Call the loss's own ``epoch``.

        Args:
            validation: the model and its data after the epoch.
        """
        self.loss.epoch(validation)


def as_objective(loss: Objective | LossLike) -> Objective:
    """``loss`` as an objective; an `Objective` is returned unchanged.

    Args:
        loss: an `Objective`, or whatever `surefoot.losses.as_loss` takes. The training loop takes the mean over the
            batch, whatever the loss's own reduction.

    Returns:
        ``objective(model, batch) -> scalar``.

    Raises:
        BadInput: if ``loss`` is no loss.

    Example:
        >>> as_objective(nn.CrossEntropyLoss())
        Lifted(
          (loss): CrossEntropy()
        )
    """
    return loss if isinstance(loss, Objective) else Lifted(as_loss(loss))
