"""How runs end along an axis of numbers, a study's ρ or γ or learning rate (Tan et al. 2026, Figures S5, S6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.reports.figures.labels import setting_text, value_of
from surefoot.reports.runs import RunFacts, number

__all__ = ["MEASURES", "Line", "Sweep", "sweeps"]

MEASURES = ("test.accuracy", "test.ece", "test.tce", "test.entropy")
_FEWEST = 3  # values; two make no curve


@dataclass(frozen=True)
class Line:
    """What the other axes are, the axis's values from the smallest, how many seeds were read there, measures' means."""

    label: str
    values: list[float]
    seeds: list[int]
    means: dict[str, list[float]]


@dataclass(frozen=True)
class Sweep:
    """One axis of one study, and how the study writes its values."""

    study: str
    axis: str
    lines: list[Line]
    texts: dict[float, str]


def sweeps(runs: Sequence[RunFacts]) -> list[Sweep]:
    """Every axis along which some runs differ in nothing else but the seed, at three numbers or more."""
    studied = [run for run in runs if run.place.study and run.place.counted and run.outcome == "finished"]
    found = []
    for study, axis in dict.fromkeys((str(run.place.study), axis) for run in studied for axis in run.place.axes):
        groups: dict[str, dict[float, list[RunFacts]]] = {}
        texts: dict[float, str] = {}
        for run in studied:
            text = run.place.axes.get(axis, "") if run.place.study == study else ""
            if math.isfinite(value := value_of(text)):
                others = setting_text({name: text for name, text in run.place.axes.items() if name != axis})
                groups.setdefault(others, {}).setdefault(value, []).append(run)
                texts.setdefault(value, text)
        lines = [_line(label, group) for label, group in groups.items() if len(group) >= _FEWEST]
        if lines:
            found.append(Sweep(study, axis, lines, texts))
    return found


def _line(label: str, group: dict[float, list[RunFacts]]) -> Line:
    values = sorted(group)
    means = {}
    for name in MEASURES:
        found = [[number(run.final.get(name)) for run in group[value]] for value in values]
        means[name] = [math.fsum(each) / len(each) for each in found]
    return Line(label, values, [len(group[value]) for value in values], means)
