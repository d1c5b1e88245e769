"""An objective for ensembles: the batch is spread over the members, and KL pulls the weights to their prior."""

from __future__ import annotations

from torch import Tensor, nn

from surefoot.ensembles.ensemble import Ensemble
from surefoot.errors import BadInput
from surefoot.losses.calmo import CalMO
from surefoot.losses.margin_tail import MarginTail
from surefoot.losses.mixing import MITL, Mixup
from surefoot.losses.objective import Batch, Objective, Validation
from surefoot.validation import check_int

__all__ = ["EnsembleObjective"]

_BY_INPUTS = (Mixup, MITL, CalMO, MarginTail)  # these mix or move inputs, and take one label for every input


class EnsembleObjective(Objective):
    """The objective inner(model, spread batch) + w·KL/n of an ensemble, with n training examples.

    With w = 1 the objective is the negative evidence lower bound per example. The weight w increases linearly to 1 over
    the first ``anneal`` steps, so that the data dominates the first steps.

    Args:
        inner: the objective of the spread batch.
        examples: number of training examples n, at least 1.
        anneal: number of steps until w is 1, at least 0.

    Raises:
        BadInput: when ``examples`` or ``anneal`` is out of range.

    Example:
        >>> import torch
        >>> from surefoot.ensembles.variational import MeanField
        >>> from surefoot.losses import CrossEntropy
        >>> from surefoot.losses.objective import as_objective
        >>> objective = EnsembleObjective(as_objective(CrossEntropy()), examples=100)
        >>> batch = Batch(torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64), torch.arange(4), 0)
        >>> objective(MeanField(nn.Sequential(nn.Linear(2, 3))), batch).shape
        torch.Size([])
    """

    def __init__(self, inner: Objective, examples: int, anneal: int = 0) -> None:
        super().__init__()
        self.inner = inner
        self.examples, self.anneal = check_int("examples", examples, 1), check_int("anneal", anneal, 0)
        self.curvature = inner.curvature
        self._kept: tuple[Batch, Batch] | None = None

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        """Compute the objective.

        Args:
            model: an ensemble in training mode.
            batch: the batch, before `Ensemble.spread`.

        Returns:
            A scalar.

        Raises:
            BadInput: when ``model`` is no `Ensemble`, or the inner objective cannot train the ensemble.
        """
        if not isinstance(model, Ensemble):
            raise BadInput(f"this objective is for models of surefoot.ensembles; got {type(model).__name__}")
        self.inner.weigh = self.weigh
        self._check_rows(model)
        rows = self._spread(model, batch)
        self.gradients = self.inner.gradients * len(rows.inputs) // len(batch.inputs)
        loss: Tensor = self.inner(model, rows) * model.times
        kl = model.divergence()
        if kl is None:
            return loss
        weight = 1.0 if self.anneal == 0 else min(1.0, (batch.step + 1) / self.anneal)
        return loss + weight / self.examples * kl

    def wrap(self, model: nn.Module) -> nn.Module:
        """Check that the inner objective can train the model.

        Args:
            model: the model.

        Returns:
            The model itself.

        Raises:
            BadInput: when the inner objective needs another model, such as one with a second head, or cannot train
                the ensemble.
        """
        if type(self.inner).wrap is not Objective.wrap:
            raise BadInput("this loss needs a second head, which an ensemble has not; take another loss or no ensemble")
        if isinstance(model, Ensemble):
            self._check_rows(model)
        return model

    def epoch(self, validation: Validation) -> None:
        """Pass the end of an epoch to the inner objective.

        Args:
            validation: function that returns the predictions on validation data.
        """
        self.inner.epoch(validation)

    def _spread(self, model: Ensemble, batch: Batch) -> Batch:
        """The spread batch: the same object in all passes of a step, so that the inner objective sees a second pass."""
        rows = model.spread(batch)  # in every pass, because `spread` may draw random numbers that later draws follow
        if self._kept is None or self._kept[0] is not batch:
            self._kept = (batch, rows)
        return self._kept[1]

    def _check_rows(self, model: Ensemble) -> None:
        """Refuse an objective that needs one label per input for an ensemble with several labels per input."""
        if model.times > 1 and isinstance(self.inner, _BY_INPUTS):
            raise BadInput(
                f"{type(self.inner).__name__} takes one label for each input, and an input of {type(model).__name__} "
                "holds several examples; take another loss or another ensemble"
            )
