"""What a spec names, put together: model, loss, step rule, batches, tracker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.curvature import Sharpness
from surefoot.data.prepare import Prepared
from surefoot.dataset import Dataset
from surefoot.ensembles.objective import EnsembleObjective
from surefoot.ensembles.registry import build_ensemble
from surefoot.errors import BadInput
from surefoot.forward import logits_of
from surefoot.losses.objective import Objective
from surefoot.losses.registry import Facts, build_objective
from surefoot.models import build_model
from surefoot.optim import schedules
from surefoot.optim.registry import build_optimizer
from surefoot.optim.two_pass import TwoPass
from surefoot.ranks import ALONE, Ranks
from surefoot.seeds import reseed
from surefoot.training.loop import Batches
from surefoot.training.schedule import GROUPS, Every, Logarithmic
from surefoot.training.spec import CadenceSpec, RunSpec
from surefoot.training.tracker import Tracker
from surefoot.validation import check_int

__all__ = ["Assembled", "assemble", "fresh_model", "network_of", "objective_of"]


@dataclass(frozen=True)
class Assembled:
    """The parts of a run at its first step; ``factor`` is of the learning rate at a step."""

    model: nn.Module
    optimizer: Optimizer
    objective: Objective
    train: Dataset
    val: Dataset | None
    batches: Batches
    steps: int
    factor: Callable[[int], float]
    tracker: Tracker


def fresh_model(spec: RunSpec, data: Prepared) -> nn.Module:
    """The spec's model with the weights of its first step, and the second head that its loss may need."""
    reseed(spec.seed, "init")
    dtype = getattr(torch, spec.dtype)
    model = network_of(spec, objective_of(spec, _facts(data)), data.shape, data.classes).to(dtype)
    try:
        logits_of(model, data.train.part(slice(0, 1)))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:150]
        raise BadInput(f"model {spec.model.name} cannot take examples of shape {data.shape}: {reason}") from error
    return model


def network_of(spec: RunSpec, objective: Objective, shape: tuple[int, ...], classes: int) -> nn.Module:
    """The spec's network as its ensemble and its loss need it, untrained; one member of a deep ensemble."""
    model = build_model(spec.model.name, shape, classes, **spec.model.options)
    if spec.ensemble is not None and spec.ensemble.name != "deep":
        options = {key: value for key, value in spec.ensemble.options.items() if key != "anneal"}
        model = build_ensemble(spec.ensemble.name, model, **options)
    return objective.wrap(model)


def objective_of(spec: RunSpec, facts: Facts) -> Objective:
    """The spec's loss as an objective, spread over the members of its ensemble."""
    found = build_objective(spec.loss.name, spec.loss.options, facts)
    if spec.ensemble is None or spec.ensemble.name == "deep":
        return found
    anneal = spec.ensemble.options.get("anneal", 0)
    return EnsembleObjective(found, facts.examples, check_int("ensemble.anneal", anneal, 0))


def _facts(data: Prepared) -> Facts:
    return Facts(len(data.train), data.classes, data.radius)


def assemble(spec: RunSpec, data: Prepared, ranks: Ranks = ALONE) -> Assembled:
    """The parts of the spec's run over ``data``; curvature and the tracker's readings are shared by the ranks."""
    rows = len(data.train)
    model, objective = fresh_model(spec, data), objective_of(spec, _facts(data))
    loss, over = objective.curvature, ranks.count > 1

    def own(part: Dataset) -> Dataset:
        return part.part(ranks.share(len(part)))

    def curvature() -> Sharpness:
        return Sharpness(model, *own(data.train).take(), loss, ranks=over)

    optimizer = build_optimizer(spec.optimizer.name, model, spec.optimizer.options, curvature)
    if isinstance(optimizer, TwoPass):
        optimizer.over_ranks = ranks.mean
    objective = objective.weighted_by(optimizer)
    size = rows if spec.stop.batch == "full" else int(spec.stop.batch)
    if size > rows:
        raise BadInput(f"stop.batch is {size:,}, and there are {rows:,} training examples; make it 'full'")
    if size % ranks.count:
        raise BadInput(f"{ranks.count} ranks share a batch equally; got {size:,} rows; change data.train or stop.batch")
    batches = Batches(rows, size, spec.seed)
    steps = spec.stop.steps or int(spec.stop.epochs or 1) * batches.per_epoch
    cadences, budget = _cadences(spec, steps), spec.track.budget
    eps = None if spec.track.eps is None else data.radius(spec.track.eps)
    settings: dict[str, Any] = {
        "seed": spec.seed,
        "eps": eps,
        "norm": spec.track.norm,
        "sample": spec.track.sample,
        "ranks": over,
    }
    parts = own(data.train), own(data.test), None if data.val is None else own(data.val)
    tracker = Tracker(model, *parts, optimizer, loss, cadences, budget, size, **settings)
    return Assembled(model, optimizer, objective, data.train, data.val, batches, steps, _factor(spec, steps), tracker)


def _cadences(spec: RunSpec, steps: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for group in GROUPS:
        chosen = getattr(spec.track, group)
        if chosen is False:
            continue
        own = chosen if isinstance(chosen, CadenceSpec) else CadenceSpec()
        found[group] = Logarithmic(own.log, steps) if own.log is not None else Every(own.every or spec.track.every)
    return found


def _factor(spec: RunSpec, steps: int) -> Callable[[int], float]:
    s = spec.schedule
    inner = schedules.constant()
    if s.name == "cosine":
        inner = schedules.cosine(max(1, steps - s.warm_up), s.floor)
    elif s.name == "step":
        inner = schedules.stepped(s.milestones, s.factor)
    return schedules.warm_up(s.warm_up, inner) if s.warm_up else inner
