"""Any objective for an ensemble: its batch spread over the members, and the weights drawn to their prior."""

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

_BY_INPUTS = (Mixup, MITL, CalMO, MarginTail)  # mix inputs, or move them, and take a label for each


class EnsembleObjective(Objective):
    """inner(model, spread batch) + weight·KL/n, with n training examples (minus the evidence bound, per example).

    The weight of KL rises from 0 to 1 over the first ``anneal`` steps, so that the data speaks first.
    """

    def __init__(self, inner: Objective, examples: int, anneal: int = 0) -> None:
        super().__init__()
        self.inner = inner
        self.examples, self.anneal = check_int("examples", examples, 1), check_int("anneal", anneal, 0)
        self.curvature = inner.curvature
        self._kept: tuple[Batch, Batch] | None = None

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        """Scalar."""
        if not isinstance(model, Ensemble):
            raise BadInput(f"this objective is for models of surefoot.ensembles; got {type(model).__name__}")
        self.inner.weigh = self.weigh
        self._check_rows(model)
        rows = self._spread(model, batch)
        self.gradients = self.inner.gradients * len(rows.inputs) // len(batch.inputs)
        found: Tensor = self.inner(model, rows) * model.times
        kl = model.divergence()
        if kl is None:
            return found
        risen = 1.0 if self.anneal == 0 else min(1.0, (batch.step + 1) / self.anneal)
        return found + risen / self.examples * kl

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model as it is; a loss that needs another one, such as a second head, cannot train an ensemble."""
        if type(self.inner).wrap is not Objective.wrap:
            raise BadInput("this loss needs a second head, which an ensemble has not; take another loss or no ensemble")
        if isinstance(model, Ensemble):
            self._check_rows(model)
        return model

    def epoch(self, validation: Validation) -> None:
        """The inner one's own."""
        self.inner.epoch(validation)

    def _spread(self, model: Ensemble, batch: Batch) -> Batch:
        """One and the same object in all passes of a step, by which the inner objective knows a second pass."""
        rows = model.spread(batch)  # in every pass: it may draw random numbers, and so do those who come after
        if self._kept is None or self._kept[0] is not batch:
            self._kept = (batch, rows)
        return self._kept[1]

    def _check_rows(self, model: Ensemble) -> None:
        if model.times > 1 and isinstance(self.inner, _BY_INPUTS):
            raise BadInput(
                f"{type(self.inner).__name__} takes one label for each input, and an input of {type(model).__name__} "
                "holds several examples; take another loss or another ensemble"
            )
