"""The measured model and data, the base class of groups of readings, and the joint reading of several groups.

Costs are in gradient steps of the training loop. A forward pass is half of a gradient step for an MLP, whose inputs
need no gradient, and a third for deeper networks; the costs here count a half.
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
    """The measured model and data, and the state that groups share.

    Attributes:
        model: The network, from inputs to logits.
        parts: This rank's examples by name: train, test and, if there are validation examples, val.
        labels: The labels of all ranks by name.
        loss: The loss of curvature and gradient.
        batch: Number of rows, over all ranks, of a training step.
        seed: Seed of samples and random starts.
        sample: Number of examples on which sharpness and ascent are read; all if None.
        optimizer: The optimizer whose ascent is read.
        eps: Radius of the ball of robust margins.
        norm: Norm of the ball.
        ranks: The processes that share the examples.
        balls: The certified margins of each part at the current reading, for the bounds.
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
        """Cost of a gradient of all examples of a part.

        Args:
            part: Name of the part.

        Returns:
            The cost in gradient steps.
        """
        return len(self.labels[part]) / self.batch

    def sampled(self, part: str) -> int:
        """Number of examples of a part on which its sharpness is read.

        Args:
            part: Name of the part.

        Returns:
            The number, at most that of all examples.
        """
        rows = len(self.labels[part])
        return rows if self.sample is None else min(self.sample, rows)

    @property
    def has_cross_entropy(self) -> bool:
        """Whether the loss is cross-entropy, as the theorems assume."""
        return isinstance(self.loss, CrossEntropy)

    def predictions(self, part: str, record: Record) -> Predictions | None:
        """Predict a part.

        Args:
            part: Name of the part.
            record: Record of the reading; its ``"diverged"`` becomes True if a logit is not finite.

        Returns:
            Predictions on the examples of all ranks; None if a logit is not finite.
        """
        logits = self.ranks.rows(logits_of(self.model, self.parts[part], CHUNK))
        if not bool(torch.isfinite(logits.amax(dim=1)).all()):
            record["diverged"] = True  # divergence is an outcome to record; wrong labels are an error
            return None
        return Predictions(logits, self.labels[part])

    def sharpness(self, part: str) -> Sharpness:
        """The reader of a part's sharpness, which starts from the vector of its last reading.

        Args:
            part: Name of the part.

        Returns:
            The reader.
        """
        if part not in self._readers:
            settings: dict[str, Any] = {"seed": self.seed, "ranks": self.ranks.count > 1}
            self._readers[part] = Sharpness(self.model, *self.sample_of(part), self.loss, **settings)
        return self._readers[part]

    def sample_of(self, part: str) -> tuple[Tensor, Tensor]:
        """This rank's share of the examples on which a part's sharpness is read.

        Args:
            part: Name of the part.

        Returns:
            Inputs (m, ...) and labels (m,).
        """
        total, size = len(self.labels[part]), self.sampled(part)
        if size == total:
            return self.parts[part].take()
        chosen = torch.randperm(total, generator=generator(self.seed, "sample"))[:size].sort().values
        own = self.ranks.own(chosen, self.ranks.counts(len(self.parts[part])))
        inputs, labels = self.parts[part].take(own)
        share = self.ranks.share(size)
        return self.ranks.rows(inputs)[share], self.ranks.rows(labels)[share]

    def set_up_sharpness(self, part: str) -> float:
        """Make the reader of a part's sharpness.

        Args:
            part: Name of the part.

        Returns:
            The cost of the principal directions in gradient steps; 0 after the first call.
        """
        first = part not in self._readers
        return 4.5 * (self.sampled(part) / self.batch) if self.sharpness(part).compressed and first else 0.0

    def hessian(self) -> Hessian:
        """The Hessian of the training loss.

        Returns:
            The operator.
        """
        return Hessian(self.model, *self.parts["train"].take(), self.loss, ranks=self.ranks.count > 1)

    def state_dict(self) -> dict[str, Tensor]:
        """The vectors from which the next readings of sharpness start.

        Returns:
            Tensors by name.
        """
        return {
            f"{prefix(part)}sharpness.{name}": value
            for part, reader in self._readers.items()
            for name, value in reader.state_dict().items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of `state_dict`.

        Args:
            state: Tensors by name; other names are ignored.
        """
        for part in ("train", "test"):
            start = f"{prefix(part)}sharpness."
            inner = {name.removeprefix(start): value for name, value in state.items() if name.startswith(start)}
            if inner:
                self.sharpness(part).load_state_dict(inner)


class Group:
    """A group of readings with its schedule.

    A subclass reads either from predictions, in `of_part` and `at_end`, or from the model, in `read`. These methods add
    numbers to the record and return their cost in gradient steps.

    Args:
        measured: The measured model and data.
        schedule: The steps at which the group is due.
    """

    name: ClassVar[str]
    needs_predictions: ClassVar[bool] = False

    def __init__(self, measured: Measured, schedule: Schedule) -> None:
        self.measured, self.schedule = measured, schedule

    def check(self) -> None:
        """Raise `BadInput` if the group cannot be read here."""

    def set_up(self) -> float:
        """Do the work that is needed once, before the first reading.

        Returns:
            The cost in gradient steps; 0 after the first call.
        """
        return 0.0

    def of_part(self, part: str, p: Predictions, record: Record) -> float:
        """Read from the predictions on a part.

        Args:
            part: Name of the part, ``"train"`` or ``"test"``.
            p: Predictions on the part.
            record: Record of the reading, to which numbers are added.

        Returns:
            The cost in gradient steps.
        """
        return 0.0

    def at_end(self, predictions: Mapping[str, Predictions], record: Record) -> float:
        """Read after all parts were read.

        Args:
            predictions: Finite predictions by name of the part.
            record: Record of the reading, to which numbers are added.

        Returns:
            The cost in gradient steps.
        """
        return 0.0

    def read(self, record: Record) -> float:
        """Read from the model.

        Args:
            record: Record of the reading, to which numbers are added.

        Returns:
            The cost in gradient steps.
        """
        return 0.0

    def state_dict(self) -> dict[str, Tensor]:
        """The state from which the next reading starts.

        Returns:
            Tensors by name.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of `state_dict`.

        Args:
            state: Tensors by name; other names are ignored.
        """


def measure(groups: Sequence[Group], measured: Measured, record: Record) -> tuple[float, float]:
    """Read groups together; one forward pass over each part serves all groups that need predictions.

    Args:
        groups: The groups that are due.
        measured: The measured model and data.
        record: Record of the reading, to which numbers are added.

    Returns:
        The cost of the readings, and the cost of the work that is done once, both in gradient steps.
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
    """Prefix of the name of a part's sharpness; the training set has none.

    Args:
        part: Name of the part.

    Returns:
        The prefix.

    Example:
        >>> prefix("train"), prefix("test")
        ('', 'test.')
    """
    return "" if part == "train" else f"{part}."
