"""What a run will cost, before it starts: steps, and gradients in passes over the training data. No torch."""

from __future__ import annotations

import math

from surefoot.ensembles.registry import ENSEMBLES
from surefoot.losses.registry import LOSSES
from surefoot.optim.registry import optimizer_entry
from surefoot.training.spec import RunSpec

__all__ = ["cost_of", "steps_of"]


def steps_of(spec: RunSpec, rows: int) -> int:
    """Steps of a run over ``rows`` training examples."""
    return spec.stop.steps or int(spec.stop.epochs or 1) * max(1, rows // _size(spec, rows))


def cost_of(spec: RunSpec, rows: int) -> float:
    """Gradients of the cross-entropy in passes over the training set: steps × passes × batch rows / rows.

    The passes are the optimizer's, times what a gradient of the loss costs, times the members of an ensemble.

    BulkSGD and DomSGD also pay for their directions: about 2 (k + 1) products of two passes each time they are found.
    What readings cost is not counted.
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
    """How often an ensemble sees each batch."""
    entry = None if spec.ensemble is None else ENSEMBLES.get(spec.ensemble.name)
    if spec.ensemble is None or entry is None or entry.repeats is None:
        return 1
    option, default = entry.repeats
    members = spec.ensemble.options.get(option, default)
    return members if isinstance(members, int) else default


def _size(spec: RunSpec, rows: int) -> int:
    return rows if spec.stop.batch == "full" else min(int(spec.stop.batch), rows)
