"""Conversion of the state of model, optimizer, tracker and objective to named tensors and plain values, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from surefoot.losses.objective import Objective
from surefoot.training.tracker import Tracker

__all__ = ["pack", "unpack"]


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
