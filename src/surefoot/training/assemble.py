"""What a spec names, put together: model, loss, step rule, batches, tracker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.curvature import Sharpness
from surefoot.curvature.losses import LogitLoss, loss_named
from surefoot.data.prepare import Prepared, Split
from surefoot.errors import BadInput
from surefoot.forward import logits_of
from surefoot.models import model_named
from surefoot.optim import schedules
from surefoot.optim.names import rule_named
from surefoot.seeds import reseed
from surefoot.training.cadence import GROUPS, Every, Logarithmic
from surefoot.training.loop import Batches
from surefoot.training.spec import CadenceSpec, RunSpec
from surefoot.training.tracker import Tracker

__all__ = ["Assembled", "assemble", "fresh_model"]


@dataclass(frozen=True)
class Assembled:
    """The parts of a run at its first step; ``factor`` is of the learning rate at a step."""

    model: nn.Module
    optimizer: Optimizer
    loss: LogitLoss
    train: Split
    batches: Batches
    steps: int
    factor: Callable[[int], float]
    tracker: Tracker


def fresh_model(spec: RunSpec, data: Prepared) -> nn.Module:
    """The spec's model with the weights of its first step."""
    reseed(spec.seed, "init")
    dtype = getattr(torch, spec.dtype)
    model = model_named(spec.model.name, data.shape, data.classes, **spec.model.options).to(dtype)
    try:
        logits_of(model, data.train[0][:1].to(dtype))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:150]
        raise BadInput(f"model {spec.model.name} cannot take examples of shape {data.shape}: {reason}") from error
    return model


def assemble(spec: RunSpec, data: Prepared) -> Assembled:
    """The parts of the spec's run over ``data``."""
    dtype = getattr(torch, spec.dtype)
    train, test = (data.train[0].to(dtype), data.train[1]), (data.test[0].to(dtype), data.test[1])
    val = None if data.val is None else (data.val[0].to(dtype), data.val[1])
    rows = len(train[0])
    model, loss = fresh_model(spec, data), loss_named(spec.loss.name)
    optimizer = rule_named(spec.rule.name, model, spec.rule.options, lambda: Sharpness(model, *train, loss))
    size = rows if spec.stop.batch == "full" else int(spec.stop.batch)
    if size > rows:
        raise BadInput(f"stop.batch is {size:,}, and there are {rows:,} training examples; make it 'full'")
    batches = Batches(rows, size, spec.seed)
    steps = spec.stop.steps or int(spec.stop.epochs or 1) * batches.per_epoch
    cadences, budget = _cadences(spec, steps), spec.track.budget
    eps = None if spec.track.eps is None else data.radius(spec.track.eps)
    tracker = Tracker(
        model, train, test, val, optimizer, loss, cadences, budget, size, seed=spec.seed, eps=eps, norm=spec.track.norm
    )
    return Assembled(model, optimizer, loss, train, batches, steps, _factor(spec, steps), tracker)


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
