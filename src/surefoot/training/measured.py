"""What readings are taken of, what groups of readings share, and how those that are due are taken together.

Costs are in gradient steps of the training loop. A forward pass is half of a gradient step for an MLP, whose inputs
need no gradient, and a third for deeper networks; we count the half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from surefoot.curvature import Hessian, Sharpness
from surefoot.dataset import Dataset
from surefoot.forward import CHUNK, logits_of
from surefoot.loss import CrossEntropy, Loss
from surefoot.predictions import Predictions
from surefoot.ranks import Ranks
from surefoot.seeds import generator
from surefoot.theory.sample import Robust
from surefoot.training.schedule import GROUPS, Schedule

__all__ = ["Group", "Measured", "Record", "measure", "prefix"]

Record = dict[str, Any]


@dataclass
class Measured:
    """What is measured, and what groups share.

    Args:
        model: From inputs to logits.
        parts: This rank's examples by name: train, test and maybe val.
        labels: The labels of all ranks by name.
        loss: Of curvature and gradient.
        batch: Rows of all ranks in a training step.
        seed: Of samples and random starts.
        sample: Examples of a part that its sharpness and the ascent are read on; all if None.
        optimizer: Whose ascent is read.
        eps: Radius of the ball of robust margins.
        norm: Norm of the ball.
        ranks: Who shares the examples.

    Attributes:
        balls: What was proved about each part's ball at the reading under way, for the bounds.
    """

    model: nn.Module
    parts: Mapping[str, Dataset]
    labels: Mapping[str, Tensor]
    loss: Loss
    batch: int
    seed: int
    sample: int | None
    optimizer: Optimizer | None
    eps: Any
    norm: str
    ranks: Ranks
    balls: dict[str, Robust | None] = field(default_factory=dict)
    _readers: dict[str, Sharpness] = field(default_factory=dict)

    def cost_of_passes(self, part: str) -> float:
        """A gradient of all examples of a part, in gradient steps."""
        return len(self.labels[part]) / self.batch

    def sampled(self, part: str) -> int:
        """Examples of a part that its sharpness is read on."""
        rows = len(self.labels[part])
        return rows if self.sample is None else min(self.sample, rows)

    @property
    def has_cross_entropy(self) -> bool:
        """Whether the loss is cross-entropy, which the theorems are about."""
        return isinstance(self.loss, CrossEntropy)

    def predictions(self, part: str, record: Record) -> Predictions | None:
        """The predictions on a part; None, and a word in the record, where the logits are not finite."""
        logits = self.ranks.rows(logits_of(self.model, self.parts[part], CHUNK))
        if not bool(torch.isfinite(logits.amax(dim=1)).all()):
            record["diverged"] = True  # an outcome to write down, where wrong labels are an error
            return None
        return Predictions(logits, self.labels[part])

    def sharpness(self, part: str) -> Sharpness:
        """The reader of a part's sharpness, which starts from where it ended the time before."""
        if part not in self._readers:
            settings: dict[str, Any] = {"seed": self.seed, "ranks": self.ranks.count > 1}
            self._readers[part] = Sharpness(self.model, *self.sample_of(part), self.loss, **settings)
        return self._readers[part]

    def sample_of(self, part: str) -> tuple[Tensor, Tensor]:
        """This rank's share of the examples that a part's sharpness is read on: inputs and labels."""
        total, size = len(self.labels[part]), self.sampled(part)
        if size == total:
            return self.parts[part].take()
        chosen = torch.randperm(total, generator=generator(self.seed, "sample"))[:size].sort().values
        own = self.ranks.own(chosen, self.ranks.counts(len(self.parts[part])))
        inputs, labels = self.parts[part].take(own)
        share = self.ranks.share(size)
        return self.ranks.rows(inputs)[share], self.ranks.rows(labels)[share]

    def set_up_sharpness(self, part: str) -> float:
        """Make the reader of a part's sharpness; the cost of finding principal directions, the first time."""
        first = part not in self._readers
        return 4.5 * (self.sampled(part) / self.batch) if self.sharpness(part).compressed and first else 0.0

    def hessian(self) -> Hessian:
        """The Hessian of the training loss."""
        return Hessian(self.model, *self.parts["train"].take(), self.loss, ranks=self.ranks.count > 1)

    def state_dict(self) -> dict[str, Tensor]:
        """What the next readings of sharpness start from."""
        return {
            f"{prefix(part)}sharpness.{name}": value
            for part, reader in self._readers.items()
            for name, value in reader.state_dict().items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        for part in ("train", "test"):
            start = f"{prefix(part)}sharpness."
            inner = {name.removeprefix(start): value for name, value in state.items() if name.startswith(start)}
            if inner:
                self.sharpness(part).load_state_dict(inner)


class Group:
    """A group of readings with its schedule.

    A subclass reads either from predictions, in `of_part` and `at_end`, or from the model, in `read`. Each adds numbers
    to the record and returns its cost.
    """

    name: ClassVar[str]
    needs_predictions: ClassVar[bool] = False

    def __init__(self, measured: Measured, schedule: Schedule) -> None:
        self.measured, self.schedule = measured, schedule

    def check(self) -> None:
        """Raise `BadInput` if the group cannot be read here."""

    def set_up(self) -> float:
        """What is done once, before the first reading; its cost."""
        return 0.0

    def of_part(self, part: str, p: Predictions, record: Record) -> float:
        """Read from the predictions on ``train`` or ``test``."""
        return 0.0

    def at_end(self, predictions: Mapping[str, Predictions], record: Record) -> float:
        """Read once all parts were read; ``predictions`` lacks those that are not finite."""
        return 0.0

    def read(self, record: Record) -> float:
        """Read from the model."""
        return 0.0

    def state_dict(self) -> dict[str, Tensor]:
        """What the next reading starts from."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave; other names in ``state`` are passed over."""


def measure(groups: Sequence[Group], measured: Measured, record: Record) -> tuple[float, float]:
    """Read groups together: a forward pass over each part serves all that need predictions.

    Args:
        groups: Those that are due.
        measured: What is read.
        record: Takes the numbers.

    Returns:
        The cost of the readings, and the cost of what was done for the first time and will not be done again.
    """
    once = sum(group.set_up() for group in groups)
    cost = 0.0
    readers = sorted((group for group in groups if group.needs_predictions), key=lambda group: GROUPS.index(group.name))
    predictions: dict[str, Predictions] = {}
    for part in ("train", "test") if readers else ():
        p = measured.predictions(part, record)
        cost += measured.cost_of_passes(part) / 2
        if p is not None:
            predictions[part] = p
            for group in readers:
                cost += group.of_part(part, p, record)
    for group in readers:
        cost += group.at_end(predictions, record)
    return cost + sum(group.read(record) for group in groups), once


def prefix(part: str) -> str:
    """Before the name of a part's sharpness: that of the training set is the plain one."""
    return "" if part == "train" else f"{part}."
