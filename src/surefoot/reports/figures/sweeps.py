"""How runs end along an axis of numbers, a study's ρ or γ or learning rate (paper B, Figures S5 and S6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.errors import BadInput
from surefoot.reports.runs import RunFacts, number
from surefoot.training.spec import number_of

__all__ = ["MEASURES", "Line", "Sweep", "sweeps"]

MEASURES = ("test.accuracy", "test.ece", "test.tce", "test.entropy")
_FEWEST = 3  # values; two make no curve


@dataclass(frozen=True)
class Line:
    """What the other axes are, the axis's values from the smallest, and each measure's mean over the seeds there."""

    label: str
    values: list[float]
    means: dict[str, list[float]]


@dataclass(frozen=True)
class Sweep:
    """One axis of one study."""

    study: str
    axis: str
    lines: list[Line]


def sweeps(runs: Sequence[RunFacts]) -> list[Sweep]:
    """Every axis along which some runs differ in nothing else but the seed, at three numbers or more."""
    studied = [run for run in runs if run.place.study and run.place.counted and run.outcome == "finished"]
    found = []
    for study, axis in dict.fromkeys((str(run.place.study), axis) for run in studied for axis in run.place.axes):
        groups: dict[str, dict[float, list[RunFacts]]] = {}
        for run in studied:
            value = _value(run.place.axes.get(axis, "")) if run.place.study == study else math.nan
            if math.isfinite(value):
                others = " ".join(_named(run, name) for name in run.place.axes if name != axis)
                groups.setdefault(others, {}).setdefault(value, []).append(run)
        lines = [_line(label, group) for label, group in groups.items() if len(group) >= _FEWEST]
        if lines:
            found.append(Sweep(study, axis, lines))
    return found


def _line(label: str, group: dict[float, list[RunFacts]]) -> Line:
    values = sorted(group)
    means = {}
    for name in MEASURES:
        found = [[number(run.final.get(name)) for run in group[value]] for value in values]
        means[name] = [math.fsum(each) / len(each) for each in found]
    return Line(label, values, means)


def _named(run: RunFacts, axis: str) -> str:
    """An axis's text: a method's name stands alone, a number with its axis."""
    text = run.place.axes[axis]
    return f"{axis}={text}" if math.isfinite(_value(text)) else text


def _value(text: str) -> float:
    """``0.05`` and ``2/70`` as numbers; NaN for a name."""
    try:
        return float(number_of(text))
    except (ValueError, BadInput):
        return math.nan
