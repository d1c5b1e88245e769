"""The training loop for every optimizer and objective.

Each step builds a closure, lets the optimizer step, and takes the readings that are due. `Best` remembers the
best reading, whose weights are kept, and says when to stop early.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from surefoot.data.augment import crop_and_flip
from surefoot.dataset import Dataset
from surefoot.losses.objective import Batch, Objective, Validation
from surefoot.metrics.registry import higher_is_better
from surefoot.ranks import ALONE, Ranks
from surefoot.seeds import generator, reseed
from surefoot.training.tracker import Tracker

__all__ = ["Batches", "Best", "Outcome", "Reading", "train"]

Reading = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        kind: ``"finished"``, ``"interrupted"``, or ``"diverged"`` if a loss or a logit is not finite.
        step: The step at which the run ended.
    """

    kind: str
    step: int


@dataclass(frozen=True)
class Batches:
    """The rows of each step: a shuffled pass over the data in each epoch, or all rows at every step.

    Attributes:
        rows: Number of training examples.
        size: Number of examples of a batch; all rows form every batch if ``size`` is at least ``rows``.
        seed: Seed of the shuffling.

    Example:
        >>> batches = Batches(rows=10, size=4, seed=0)
        >>> batches.per_epoch, len(batches.at(0)), Batches(10, 10, 0).at(0)
        (2, 4, slice(None, None, None))
    """

    rows: int
    size: int
    seed: int

    @property
    def per_epoch(self) -> int:
        """Number of steps of one pass over the data; a last batch that would be smaller is left out."""
        return max(1, self.rows // self.size)

    def at(self, step: int) -> Tensor | slice:
        """Row numbers of a step; they depend on the seed and the step alone.

        Args:
            step: Number of the step, from 0.

        Returns:
            Row numbers (size,), or a slice of all rows.
        """
        if self.size >= self.rows:
            return slice(None)
        epoch, place = divmod(step, self.per_epoch)
        return _order(self.rows, self.seed, epoch)[place * self.size : (place + 1) * self.size]


@lru_cache(maxsize=2)
def _order(rows: int, seed: int, epoch: int) -> Tensor:
    return torch.randperm(rows, generator=generator(seed, "order", epoch))


@dataclass
class Best:
    """The best value of a metric over the readings, by the metric's own direction.

    Attributes:
        metric: Name of the metric, such as ``"val.nll"``.
        patience: Number of readings without improvement after which training stops; None never stops early.
        value: The best value so far; NaN before the first reading.
        step: The step of the best reading; -1 before the first reading.
        since: Number of readings since the best one.

    Example:
        >>> best = Best("val.nll", patience=1)
        >>> [best.improves({"step": step, "val.nll": nll}) for step, nll in ((0, 2.3), (50, 1.1), (100, 1.2))]
        [True, True, False]
        >>> best.step, best.exhausted
        (50, True)
    """

    metric: str
    patience: int | None = None
    value: float = math.nan
    step: int = -1
    since: int = 0

    def improves(self, reading: Mapping[str, Any]) -> bool:
        """Take a reading into account.

        Args:
            reading: Values by name with the ``"step"``; a reading without the metric does not count.

        Returns:
            Whether the reading is the best so far. A tie is no improvement.
        """
        if self.metric not in reading:
            return False
        value = float(reading[self.metric])
        larger = higher_is_better(self.metric)
        if math.isfinite(value) and (self.step < 0 or (value > self.value if larger else value < self.value)):
            self.value, self.step, self.since = value, int(reading["step"]), 0
            return True
        self.since += 1
        return False

    @property
    def exhausted(self) -> bool:
        """Whether the last ``patience`` readings brought no improvement."""
        return self.patience is not None and self.since >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """The state with which a resumed run continues.

        Returns:
            The attributes by name.
        """
        return asdict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of `state_dict`.

        Args:
            state: The attributes by name; the metric and the patience are not changed.
        """
        self.value, self.step, self.since = float(state["value"]), int(state["step"]), int(state["since"])


def train(
    model: nn.Module,
    optimizer: Optimizer,
    objective: Objective,
    data: Dataset,
    batches: Batches,
    steps: int,
    factor: Callable[[int], float],
    tracker: Tracker,
    *,
    seed: int = 0,
    start: int = 0,
    augment: bool = False,
    val: Dataset | None = None,
    ranks: Ranks = ALONE,
    after: Callable[[int, float, Reading | None], str | None] = lambda step, loss, reading: None,
) -> Outcome:
    """Train a model from step ``start`` to step ``steps``.

    Args:
        model: The network, from inputs to logits.
        optimizer: An optimizer that steps with a closure. Over several ranks, the caller sets its ``over_ranks`` to
            `Ranks.mean`.
        objective: Function (model, batch) → the scalar to minimise. For an optimizer that weighs examples, such as
            CSAM, the caller binds the objective to the optimizer by `Objective.weighted_by`.
        data: All training examples.
        batches: The rows of each step.
        steps: The step at which training ends.
        factor: Factor of the initial learning rate of each parameter group, by step.
        tracker: Takes the readings that are due, and all groups of readings at the last step.
        seed: Seed of augmentation, dropout and noise.
        start: Number of steps already taken.
        augment: Whether images are cropped and flipped.
        val: Validation examples, for objectives that evaluate them after each epoch.
        ranks: Processes that share every batch equally; each has all the data and the same random numbers.
        after: Called with the number of steps taken, the loss and the reading, or None if no reading was due. If
            ``after`` returns a text, the run ends with this text as the outcome.

    Returns:
        How and at which step the training ended; ``"diverged"`` if the loss is not finite.
    """
    rates = [group.setdefault("initial_lr", group["lr"]) for group in optimizer.param_groups]
    validation, all_rows = Validation(model, data, val), torch.arange(len(data))
    model.train()
    for step in range(start, steps):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * factor(step)
        rows = batches.at(step)
        originals, labels = data.take(rows)
        inputs = crop_and_flip(originals, seed, step) if augment else originals
        own = ranks.share(len(inputs))
        indices = all_rows if isinstance(rows, slice) else rows
        batch = Batch(inputs[own], labels[own], indices[own], step)
        reseed(seed, "step", step)

        def closure(batch: Batch = batch) -> Any:
            optimizer.zero_grad()
            loss = objective(model, batch)
            tracker.count(objective.gradients)
            loss.backward()
            return ranks.of_whole_batch(model, loss, own_gradients=getattr(optimizer, "alone", False))

        before: Any = optimizer.step(closure)
        ranks.take_buffers(model)
        loss = float(before.detach())
        if not math.isfinite(loss):
            return Outcome("diverged", step)
        if (step + 1) % batches.per_epoch == 0:
            objective.epoch(validation)
        ended = after(step + 1, loss, tracker.advance(step + 1, everything=step + 1 == steps))
        if ended is not None:
            return Outcome(ended, step + 1)
    return Outcome("finished", steps)
