"""Paper B's protocol: values chosen on validation with one method, and taken over by the others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.errors import BadInput
from surefoot.studies.folder import StudyFolder
from surefoot.studies.plan import Group, Plan, Planned, axes_of, group_of

__all__ = ["Choice", "choose", "described"]


@dataclass(frozen=True)
class Choice:
    """The best values of the chosen axes for a group of runs, their score, and the scores of all candidates."""

    group: Group
    values: dict[str, str]
    score: float
    scores: list[tuple[dict[str, str], float]]


def choose(plan: Plan, folder: StudyFolder) -> dict[Group, Choice] | None:
    """The choices once every run of the first stage has ended; None before.

    Of each candidate the mean of the metric's final reading over the seeds counts; one of whose runs diverged is out.
    The first of equals is taken.
    """
    select, axis = plan.study.select, plan.method_axis
    assert select is not None
    assert axis is not None
    first = [run for run in plan.runs if run.stage == 1]
    known = axes_of(run.shown for run in first)
    candidates: dict[Group, dict[tuple[tuple[str, str], ...], list[float]]] = {}
    for run in first:
        result = None if run.id is None else folder.result(run.id)
        if result is None:
            return None
        values = tuple((name, run.shown[name]) for name in select.axes if name in run.shown)
        group = group_of(run.shown, axis, select, known)
        candidates.setdefault(group, {}).setdefault(values, []).append(_score(run, result, select.metric))
    return {group: _best(group, found, select.metric) for group, found in candidates.items()}


def described(choices: dict[Group, Choice]) -> list[dict[str, Any]]:
    """The choices as plain tables."""
    return [
        {
            "group": dict(choice.group),
            "values": choice.values,
            "score": choice.score,
            "scores": [{"values": values, "score": score} for values, score in choice.scores],
        }
        for choice in choices.values()
    ]


def _score(run: Planned, result: dict[str, Any], metric: str) -> float:
    if result["outcome"] != "finished":
        return math.nan
    value = result["final"].get(metric)
    if not isinstance(value, int | float):
        names = ", ".join(sorted(name for name in result["final"] if name.startswith("val.")))
        raise BadInput(f"{run.label}: its final reading has no {metric}; it has {names or 'nothing of validation'}")
    return float(value)


def _best(group: Group, found: dict[tuple[tuple[str, str], ...], list[float]], metric: str) -> Choice:
    higher = metric == "val.accuracy"
    scores = [(dict(values), float(np.mean(each))) for values, each in found.items()]
    finite = [pair for pair in scores if math.isfinite(pair[1])]
    if not finite:
        where = " ".join(text for _, text in group)
        raise BadInput(f"select{f' for {where}' if where else ''}: every candidate diverged; offer smaller values")
    values, score = (max if higher else min)(finite, key=lambda pair: pair[1])
    return Choice(group, values, score, scores)
