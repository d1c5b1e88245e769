"""What a run will cost, before it starts: steps, and gradients in passes over the training data. No torch."""

from __future__ import annotations

import math

from surefoot.errors import BadInput
from surefoot.training.spec import RunSpec
from surefoot.validation import suggest

__all__ = ["GRADIENTS", "PASSES", "cost_of", "steps_of"]

# Gradients of a batch in one step of each rule.
PASSES = {
    "gd": 1,
    "sgd": 1,
    "adamw": 1,
    "muon": 1,
    "bsam": 2,
    "sam": 2,
    "asam": 2,
    "vasso": 2,
    "csam": 2,
    "bulk": 1,
    "dom": 1,
}
# What one gradient of a loss costs with its defaults, in gradients of the cross-entropy; 1 for all others.
GRADIENTS = {"calmo": 7, "margin-tail": 6, "mit-l": 2}


def steps_of(spec: RunSpec, rows: int) -> int:
    """Steps of a run over ``rows`` training examples."""
    return spec.stop.steps or int(spec.stop.epochs or 1) * max(1, rows // _size(spec, rows))


def cost_of(spec: RunSpec, rows: int) -> float:
    """Gradients of the cross-entropy in passes over the training set: steps × passes × batch rows / rows.

    The passes are the rule's, times what a gradient of the loss costs, times the members of an ensemble.

    BulkSGD and DomSGD also pay for their directions: about 2 (k + 1) products of two passes each time they are found.
    What readings cost is not counted.
    """
    name = spec.optimizer.name
    if name not in PASSES:
        raise BadInput(f"optimizer must be one of {', '.join(PASSES)}; got {name!r}{suggest(name, PASSES)}")
    steps = steps_of(spec, rows)
    found = steps * PASSES[name] * GRADIENTS.get(spec.loss.name, 1) * _size(spec, rows) / rows * _members(spec)
    if name in ("bulk", "dom"):
        k, refresh = (spec.optimizer.options.get(option, default) for option, default in (("k", 5), ("refresh", 1)))
        if isinstance(k, int) and isinstance(refresh, int) and refresh > 0:
            found += math.ceil(steps / refresh) * 4 * (k + 1)
    return found


def _members(spec: RunSpec) -> int:
    """How often an ensemble sees each batch."""
    name = None if spec.ensemble is None else spec.ensemble.name
    option, default = {"deep": ("members", 5), "batch": ("members", 4), "rank1": ("members", 4),
                       "mimo": ("repetitions", 4)}.get(str(name), ("", 1))  # fmt: skip
    found = default if spec.ensemble is None else spec.ensemble.options.get(option, default)
    return found if isinstance(found, int) else default


def _size(spec: RunSpec, rows: int) -> int:
    return rows if spec.stop.batch == "full" else min(int(spec.stop.batch), rows)
