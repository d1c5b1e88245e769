"""Builds the parts of a run from its spec (model, objective, optimizer, batches, tracker), and packs their state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from surefoot.curvature import Sharpness
from surefoot.curvature.lanczos import Eigenpairs
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
from surefoot.training.spec import ReadingScheduleSpec, RunSpec, members_of
from surefoot.training.tracker import Tracker
from surefoot.validation import check_int

__all__ = ["Assembled", "assemble", "check_parts", "fresh_model", "network_of", "objective_of", "pack", "unpack"]


@dataclass(frozen=True)
class Assembled:
    """The parts of a run at its first step.

    Attributes:
        model: The network with its initial weights.
        optimizer: The optimizer of the network's parameters.
        objective: The function to minimise.
        train: Training examples.
        val: Validation examples; None if none are held out.
        batches: The rows of each step.
        steps: Number of steps of the run.
        factor: Factor of the learning rate by step.
        tracker: Takes the readings.
    """

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
    """Build the spec's model with its initial weights, and with the second head that its loss may need.

    Args:
        spec: Specification of the run.
        data: Prepared data of the run.

    Returns:
        The model.

    Raises:
        BadInput: If model, loss or ensemble have wrong options, or the model cannot take examples of this shape.
    """
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
    """Build the spec's network in the form that its ensemble and its loss need; one member for a deep ensemble.

    Args:
        spec: Specification of the run.
        objective: The objective, which may add to the network.
        shape: Shape of the inputs of one example.
        classes: Number of classes.

    Returns:
        The untrained network.

    Raises:
        BadInput: If model or ensemble are unknown or have wrong options.
    """
    model = build_model(spec.model.name, shape, classes, **spec.model.options)
    if spec.ensemble is not None and spec.ensemble.name != "deep":
        options = {key: value for key, value in spec.ensemble.options.items() if key != "anneal"}
        model = build_ensemble(spec.ensemble.name, model, **options)
    return objective.wrap(model)


def objective_of(spec: RunSpec, facts: Facts) -> Objective:
    """Build the spec's loss as an objective, applied to every member of an ensemble within one network.

    Args:
        spec: Specification of the run.
        facts: Properties of the training data that losses need.

    Returns:
        The objective.

    Raises:
        BadInput: If the loss is unknown or has wrong options, or ``ensemble.anneal`` is no integer from 0.
    """
    objective = build_objective(spec.loss.name, spec.loss.options, facts)
    loss = getattr(objective, "loss", objective)
    if getattr(loss, "needs_validation", False) and spec.data.val == 0:  # a loss of a user, whose entry does not say it
        raise BadInput(f"loss {spec.loss.name} looks at validation examples after each epoch; set data.val")
    if spec.ensemble is None or spec.ensemble.name == "deep":
        return objective
    anneal = spec.ensemble.options.get("anneal", 0)
    return EnsembleObjective(objective, facts.examples, check_int("ensemble.anneal", anneal, 0))


def _facts(data: Prepared) -> Facts:
    return Facts(len(data.train), data.classes, data.radius)


def assemble(spec: RunSpec, data: Prepared, ranks: Ranks = ALONE) -> Assembled:
    """Build the parts of a run.

    Args:
        spec: Specification of the run.
        data: Prepared data of the run.
        ranks: Processes that share the batches, the curvature and the tracker's readings.

    Returns:
        The parts of the run at its first step.

    Raises:
        BadInput: If a part is unknown or has wrong options, or the batch does not fit the data or the ranks.
    """
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
    schedules_of_groups, budget = _schedules(spec, steps), spec.track.budget
    eps = None if spec.track.eps is None else data.radius(spec.track.eps)
    settings: dict[str, Any] = {
        "seed": spec.seed,
        "eps": eps,
        "norm": spec.track.norm,
        "sample": spec.track.sample,
        "ranks": over,
    }
    parts = own(data.train), own(data.test), None if data.val is None else own(data.val)
    tracker = Tracker(model, *parts, optimizer, loss, schedules_of_groups, budget, size, **settings)
    return Assembled(model, optimizer, objective, data.train, data.val, batches, steps, _factor(spec, steps), tracker)


def _schedules(spec: RunSpec, steps: int) -> dict[str, Any]:
    """The schedule of each group of readings."""
    groups: dict[str, Any] = {}
    for group in GROUPS:
        chosen = getattr(spec.track, group)
        if chosen is False:
            continue
        own = chosen if isinstance(chosen, ReadingScheduleSpec) else ReadingScheduleSpec()
        groups[group] = Logarithmic(own.log, steps) if own.log is not None else Every(own.every or spec.track.every)
    return groups


def _factor(spec: RunSpec, steps: int) -> Callable[[int], float]:
    s = spec.schedule
    inner = schedules.constant()
    if s.name == "cosine":
        inner = schedules.cosine(max(1, steps - s.warm_up), s.floor)
    elif s.name == "step":
        inner = schedules.stepped(s.milestones, s.factor)
    return schedules.warm_up(s.warm_up, inner) if s.warm_up else inner


class _NoCurvature:
    """Stands for the curvature of a training loss while an optimizer that uses curvature is built."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters: Mapping[str, Tensor] = {n: p for n, p in model.named_parameters() if p.requires_grad}

    def top(self, k: int, tol: float, start: Tensor | None, *, max_products: int) -> Eigenpairs:
        """Never called: the optimizer is built and discarded."""
        raise AssertionError("an optimizer must not ask for curvature while it is built")


def check_parts(spec: RunSpec, shape: tuple[int, ...], classes: int) -> None:
    """Check before any run that its parts can be built, without memory: on the ``meta`` device.

    Args:
        spec: the run.
        shape: shape of one example as the network receives it.
        classes: number of classes.

    Raises:
        BadInput: if a part cannot be built with its options. Other errors of constructors pass through.
    """
    if spec.ensemble is not None and spec.ensemble.name == "deep":
        members_of(spec)
    objective = objective_of(spec, Facts(1, classes, torch.tensor))
    with torch.device("meta"):
        model = network_of(spec, objective, shape, classes)
    build_optimizer(spec.optimizer.name, model, spec.optimizer.options, lambda: _NoCurvature(model))


def pack(
    model: nn.Module, optimizer: Optimizer, tracker: Tracker, objective: Objective
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Collect the state with which a run is resumed.

    Args:
        model: The network.
        optimizer: Its optimizer.
        tracker: Its tracker.
        objective: Its objective.

    Returns:
        Tensors by name, and the rest of the state as values that JSON can hold.
    """
    tensors = {f"model/{name}": value.clone() for name, value in model.state_dict().items()}
    tensors |= {f"loss/{name}": value.clone() for name, value in objective.state_dict().items()}
    state = optimizer.state_dict()
    plain: dict[str, dict[str, Any]] = {}
    for index, entry in state["state"].items():
        for name, value in entry.items():
            if isinstance(value, Tensor):
                tensors[f"rule/{index}/{name}"] = value.clone()
            else:
                plain.setdefault(str(index), {})[name] = value
    track = tracker.state_dict()
    tensors |= {f"tracker/{name}": value for name, value in track.items() if isinstance(value, Tensor)}
    numbers = {name: value for name, value in track.items() if not isinstance(value, Tensor)}
    return tensors, {"rule": {"groups": state["param_groups"], "plain": plain}, "tracker": numbers}


def unpack(
    model: nn.Module,
    optimizer: Optimizer,
    tracker: Tracker,
    objective: Objective,
    tensors: Mapping[str, Tensor],
    plain: Mapping[str, Any],
) -> None:
    """Restore the state that `pack` collected.

    Args:
        model: The network, whose weights are replaced.
        optimizer: The optimizer, whose state is replaced.
        tracker: The tracker, whose state is replaced.
        objective: The objective, whose state is replaced.
        tensors: Tensors by name.
        plain: The rest of the state.
    """
    model.load_state_dict(_under(tensors, "model/"))
    objective.load_state_dict(_under(tensors, "loss/"))
    state: dict[int, dict[str, Any]] = {int(index): dict(entry) for index, entry in plain["rule"]["plain"].items()}
    for name, value in _under(tensors, "rule/").items():
        index, _, key = name.partition("/")
        state.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({"state": state, "param_groups": plain["rule"]["groups"]})
    tracker.load_state_dict({**_under(tensors, "tracker/"), **plain["tracker"]})


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with ``prefix``, without the prefix."""
    return {name.removeprefix(prefix): torch.as_tensor(t) for name, t in tensors.items() if name.startswith(prefix)}
