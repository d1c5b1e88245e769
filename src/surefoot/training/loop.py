"""The loop: one for every step rule and objective. It builds a closure, lets the rule step, reads, and commits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from surefoot.data.augment import crop_and_flip
from surefoot.dataset import Dataset
from surefoot.losses.objective import Batch, Objective, Validation
from surefoot.ranks import ALONE, Ranks
from surefoot.seeds import generator, reseed
from surefoot.training.tracker import Tracker

__all__ = ["Batches", "Outcome", "Reading", "train"]

Reading = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """How a run ended: ``"finished"``, ``"interrupted"`` or ``"diverged"``, where a loss or logit is not finite."""

    kind: str
    step: int


@dataclass(frozen=True)
class Batches:
    """The rows of each step: a shuffled pass over the data in each epoch, or all rows at every step."""

    rows: int
    size: int
    seed: int

    @property
    def per_epoch(self) -> int:
        """Steps in one pass over the data; a last batch that would be smaller is left out."""
        return max(1, self.rows // self.size)

    def at(self, step: int) -> Tensor | slice:
        """Row numbers of ``step``; a function of seed and step alone."""
        if self.size >= self.rows:
            return slice(None)
        epoch, place = divmod(step, self.per_epoch)
        return _order(self.rows, self.seed, epoch)[place * self.size : (place + 1) * self.size]


@lru_cache(maxsize=2)
def _order(rows: int, seed: int, epoch: int) -> Tensor:
    return torch.randperm(rows, generator=generator(seed, "order", epoch))


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
    """Train from step ``start`` to ``steps``.

    Args:
        model: The network, from inputs to logits.
        optimizer: Steps with a closure. Over several ranks, its ``over_ranks`` is `Ranks.mean` already.
        objective: (model, batch) → the scalar to minimise. For an optimizer that weighs examples, such as CSAM, it is
            bound to that optimizer by `Objective.weighted_by`.
        data: All training examples.
        batches: The rows of each step.
        steps: The step to stop at.
        factor: Factor of the initial learning rate of each parameter group, by step.
        tracker: Takes the readings that are due, and all of them at the last step.
        seed: Seed of augmentation, dropout and noise.
        start: Steps done before.
        augment: Whether images are cropped and flipped.
        val: Validation examples, for objectives that look at them after each epoch.
        ranks: They share every batch equally; all have all the data and the same random numbers.
        after: Called with the number of steps done, the loss and the reading, None where none was due. If it returns a
            word, the run ends with that outcome.

    Returns:
        How and at which step the training ended; ``"diverged"`` where the loss is not finite.
    """
    rates = [group.setdefault("initial_lr", group["lr"]) for group in optimizer.param_groups]
    validation, all_rows = Validation(model, data, val), torch.arange(len(data))
    model.train()
    for step in range(start, steps):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * factor(step)
        rows = batches.at(step)
        taken, labels = data.take(rows)
        inputs = crop_and_flip(taken, seed, step) if augment else taken
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
