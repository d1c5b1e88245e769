"""The predicted cost of a run: steps, and gradients in passes over the training data. No torch."""

from __future__ import annotations

import math

from surefoot.ensembles.registry import ENSEMBLES
from surefoot.losses.registry import LOSSES
from surefoot.optim.registry import optimizer_entry
from surefoot.training.spec import RunSpec

__all__ = ["cost_of", "steps_of"]


def steps_of(spec: RunSpec, rows: int) -> int:
    """Count the steps of a run.

    Args:
        spec: the run.
        rows: number of training examples, at least 1.

    Returns:
        The number of steps.
    """
    return spec.stop.steps or int(spec.stop.epochs or 1) * max(1, rows // _size(spec, rows))


def cost_of(spec: RunSpec, rows: int) -> float:
    """Predict the number of gradients of the cross-entropy, in passes over the training set.

    cost = steps × passes × batch size / rows. The passes are those of the optimizer, times those of a gradient of the
    loss, times the members of an ensemble.

    BulkSGD and DomSGD also compute directions: about 2 (k + 1) products of two passes for every computation. The cost
    of readings is not counted.

    Args:
        spec: the run.
        rows: number of training examples, at least 1.

    Returns:
        The cost in passes over the training set.
    """
    steps, entry = steps_of(spec, rows), optimizer_entry(spec.optimizer.name)
    loss = LOSSES[spec.loss.name].gradients if spec.loss.name in LOSSES else 1
    cost = steps * entry.gradients * loss * _size(spec, rows) / rows * _members(spec)
    if entry.directions:
        k, refresh = (spec.optimizer.options.get(option, default) for option, default in entry.directions.items())
        if isinstance(k, int) and isinstance(refresh, int) and refresh > 0:
            cost += math.ceil(steps / refresh) * 4 * (k + 1)
    return cost


def _members(spec: RunSpec) -> int:
    """Number of members of an ensemble that see each batch."""
    entry = None if spec.ensemble is None else ENSEMBLES.get(spec.ensemble.name)
    if spec.ensemble is None or entry is None or entry.repeats is None:
        return 1
    option, default = entry.repeats
    members = spec.ensemble.options.get(option, default)
    return members if isinstance(members, int) else default


def _size(spec: RunSpec, rows: int) -> int:
    return rows if spec.stop.batch == "full" else min(int(spec.stop.batch), rows)
