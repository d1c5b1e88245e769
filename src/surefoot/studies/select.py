"""The protocol of Tan et al. (2026): values chosen on validation with one method, and taken over by the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.errors import BadInput
from surefoot.metrics.registry import higher_is_better
from surefoot.studies.folder import StudyFolder
from surefoot.studies.plan import Group, Plan, Planned, axes_of, group_of

__all__ = ["Choice", "choose", "described"]

Candidates = dict[tuple[tuple[str, str], ...], list[float | None]]
"""The values of the chosen axes, and their score on each seed, None while there is none."""


@dataclass(frozen=True)
class Choice:
    """The best values of the chosen axes for a group of runs, their score, and the scores of all candidates.

    A candidate without a rival is chosen before it has a score.
    """

    group: Group
    values: dict[str, str]
    score: float | None
    scores: list[tuple[dict[str, str], float | None]]


def choose(plan: Plan, folder: StudyFolder) -> dict[Group, Choice] | None:
    """The choices once every run of the first stage that has a rival has ended; None before.

    Of each candidate the mean of the metric's final reading over the seeds counts; one of whose runs diverged is out.
    The first of equals is taken.
    """
    select, axis = plan.study.select, plan.method_axis
    assert select is not None
    assert axis is not None
    first = [run for run in plan.runs if run.stage == 1]
    known = axes_of(run.shown for run in first)
    candidates: dict[Group, Candidates] = {}
    for run in first:
        result = None if run.id is None else folder.result(run.id)
        values = tuple((name, run.shown[name]) for name in select.axes if name in run.shown)
        group = group_of(run.shown, axis, select, known)
        score = None if result is None else _score(run, result, select.metric)
        candidates.setdefault(group, {}).setdefault(values, []).append(score)
    if any(None in scores for found in candidates.values() if len(found) > 1 for scores in found.values()):
        return None
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


def _best(group: Group, found: Candidates, metric: str) -> Choice:
    scores = [(dict(values), _mean(each)) for values, each in found.items()]
    if len(scores) == 1:
        return Choice(group, *scores[0], scores)
    finite = [(values, score) for values, score in scores if score is not None and math.isfinite(score)]
    if not finite:
        where = " ".join(text for _, text in group)
        raise BadInput(f"select{f' for {where}' if where else ''}: every candidate diverged; offer smaller values")
    better = max if higher_is_better(metric) else min
    values, score = better(finite, key=lambda pair: pair[1])
    return Choice(group, values, score, scores)


def _mean(scores: Sequence[float | None]) -> float | None:
    """Over the seeds; of a candidate without a rival some may be missing."""
    there = [score for score in scores if score is not None]
    return float(np.mean(there)) if len(there) == len(scores) else None
