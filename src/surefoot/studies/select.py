"""The protocol of Tan et al. (2026): choose values on validation data with one method, and use them for all methods."""

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
"""The values of the chosen axes, and their score on each seed; None before the run has ended."""


@dataclass(frozen=True)
class Choice:
    """The best values of the chosen axes for a group of runs.

    A group with a single candidate is decided before the candidate has a score.

    Attributes:
        group: pairs (axis, value) that the runs of the group share.
        values: the chosen values.
        score: score of the chosen values; None before the candidate has a score.
        scores: values and score of every candidate.
    """

    group: Group
    values: dict[str, str]
    score: float | None
    scores: list[tuple[dict[str, str], float | None]]


def choose(plan: Plan, folder: StudyFolder) -> dict[Group, Choice] | None:
    """Choose values once every run of the first stage in a group with several candidates has ended.

    The score of a candidate is the mean of the metric's final reading over the seeds. A candidate with a diverged run
    is not chosen. The first of equal candidates is chosen.

    Args:
        plan: the plan of a study with ``select``.
        folder: the study's folder.

    Returns:
        The choice of every group; None before the runs have ended.

    Raises:
        BadInput: if a reading lacks the metric, or every candidate of a group diverged.
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
    if any(None in scores for by_values in candidates.values() if len(by_values) > 1 for scores in by_values.values()):
        return None
    return {group: _best(group, by_values, select.metric) for group, by_values in candidates.items()}


def described(choices: dict[Group, Choice]) -> list[dict[str, Any]]:
    """Turn choices into plain tables.

    Args:
        choices: the choices.

    Returns:
        One table per choice, with the keys ``group``, ``values``, ``score`` and ``scores``.
    """
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


def _best(group: Group, candidates: Candidates, metric: str) -> Choice:
    scores = [(dict(values), _mean(by_seed)) for values, by_seed in candidates.items()]
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
    """The mean over the seeds; None if a score is missing, as a single candidate's may be."""
    known = [score for score in scores if score is not None]
    return float(np.mean(known)) if len(known) == len(scores) else None
