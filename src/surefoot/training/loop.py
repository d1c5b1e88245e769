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
from surefoot.data.prepare import Split
from surefoot.losses.objective import Batch, Objective, Validation, unweighted
from surefoot.ranks import ALONE, Ranks
from surefoot.seeds import generator, reseed
from surefoot.training.tracker import Tracker

__all__ = ["Batches", "Outcome", "train"]


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
    data: Split,
    batches: Batches,
    steps: int,
    factor: Callable[[int], float],
    tracker: Tracker,
    *,
    seed: int = 0,
    start: int = 0,
    augment: bool = False,
    val: Split | None = None,
    ranks: Ranks = ALONE,
    after: Callable[[int, float], str | None] = lambda step, loss: None,
) -> Outcome:
    """Train from step ``start`` to ``steps``.

    Args:
        objective: (model, batch) → the scalar to minimise; a rule such as CSAM may weigh its examples.
        factor: of each group's first learning rate, at a step.
        val: validation examples, for objectives that look at them after each epoch.
        ranks: share every batch equally; all have all the data and the same random numbers.
        after: called with the number of steps done and the loss; a word from it ends the run with that outcome.
    """
    x, y = data
    rates = [group.setdefault("initial_lr", group["lr"]) for group in optimizer.param_groups]
    objective.weigh = getattr(optimizer, "weighted", unweighted)
    optimizer.over_ranks = ranks.mean  # type: ignore[attr-defined]
    validation, all_rows = Validation(model, data, val), torch.arange(len(x))
    model.train()
    for step in range(start, steps):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * factor(step)
        rows = batches.at(step)
        inputs, labels = x[rows], y[rows]
        if augment:
            inputs = crop_and_flip(inputs, seed, step)
        own = ranks.share(len(inputs))
        indices = all_rows if isinstance(rows, slice) else rows
        batch = Batch(inputs[own], labels[own], indices[own], step)
        reseed(seed, "step", step)

        def closure(batch: Batch = batch) -> Any:
            optimizer.zero_grad()
            loss = objective(model, batch)
            tracker.gradients += objective.gradients
            loss.backward()
            return ranks.of_whole_batch(model, loss, own_gradients=getattr(optimizer, "alone", False))

        found: Any = optimizer.step(closure)
        ranks.take_buffers(model)
        loss = float(found.detach())
        if not math.isfinite(loss):
            return Outcome("diverged", step)
        if (step + 1) % batches.per_epoch == 0:
            objective.epoch(validation)
        tracker.step(step, everything=step + 1 == steps)
        ended = after(step + 1, loss)
        if ended is not None:
            return Outcome(ended, step + 1)
    return Outcome("finished", steps)
