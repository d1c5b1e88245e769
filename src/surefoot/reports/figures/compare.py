"""Methods side by side: accuracy against calibration error, with intervals over the seeds, and who is not beaten."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from surefoot.reports.figures.labels import rate_text, seeds_text, setting_text
from surefoot.reports.runs import RunFacts, number
from surefoot.reports.specs import shared_and_own
from surefoot.runs.records import canonical
from surefoot.statistics import summarise

__all__ = ["by_setting", "census", "compare", "labels", "not_beaten", "settings", "spread"]

_MEASURES = ("test.accuracy", "test.ece", "test.tce", "test.kce", "test.nll")
_LONGEST = 80  # letters of what tells two settings apart


def compare(runs: Sequence[RunFacts]) -> list[dict[str, Any]]:
    """One entry for each setting, which is all that its runs share but the seed, from those that finished.

    An entry holds ``label``, ``method``, ``rate``, ``runs`` (how many count), ``left_out``, ``best`` (on the Pareto
    front of accuracy and ECE) and, for each measure, mean, deviation and bootstrap interval over the seeds.
    """
    pairs = [(entry, group[0]) for group in by_setting(runs) if (entry := _entry(group)) is not None]
    found = [entry for entry, _ in pairs]
    for (entry, _), label in zip(pairs, labels([run for _, run in pairs]), strict=True):
        entry["label"] = label
    points = [(entry["measures"]["test.accuracy"]["mean"], entry["measures"]["test.ece"]["mean"]) for entry in found]
    for entry, best in zip(found, not_beaten(points), strict=True):
        entry["best"] = best
    return found


def by_setting(runs: Sequence[RunFacts]) -> list[list[RunFacts]]:
    """The runs that count, in groups that share all but the seed, in order of appearance."""
    groups: dict[tuple[Any, ...], list[RunFacts]] = {}
    for run in runs:
        if run.place.counted:
            groups.setdefault(_setting(run), []).append(run)
    return list(groups.values())


def settings(runs: Sequence[RunFacts]) -> list[int]:
    """The number of each run's setting, in order of appearance: runs with the same one differ in the seed alone."""
    seen: dict[tuple[Any, ...], int] = {}
    return [seen.setdefault(_setting(run), len(seen)) for run in runs]


def census(runs: Sequence[RunFacts]) -> str:
    """How many lines share a colour: ``3 seeds``; ``12 settings, 1 seed`` where methods and rates are fewer."""
    sizes = Counter(settings(runs))
    told = len({(run.method, str(run.rate)) for run in runs})  # as text: a rate may be NaN
    return (f"{len(sizes)} settings, " if len(sizes) > told else "") + seeds_text(sizes.values())


def not_beaten(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Whether each point (more is better, less is better) has none that is as good in both and better in one.

    >>> not_beaten([(0.9, 0.1), (0.8, 0.2), (0.7, 0.01)])
    [True, False, True]
    """
    known = [place for place, pair in enumerate(points) if not any(math.isnan(value) for value in pair)]
    found = [False] * len(points)
    least, at = math.inf, math.nan
    for place in sorted(known, key=lambda place: (-points[place][0], points[place][1])):
        gain, loss = points[place]
        if loss < least or (loss == least and gain == at):
            found[place], least, at = True, loss, gain
    return found


def _setting(run: RunFacts) -> tuple[Any, ...]:
    """What the runs of an entry agree on."""
    if run.place.study is not None:
        return run.place.study, tuple(item for item in run.place.axes.items() if item[0] != "seed")
    if not run.spec:
        return None, run.place.folder  # nothing tells what it shares with others
    return None, canonical({key: value for key, value in run.spec.items() if key != "seed"})


def _entry(group: Sequence[RunFacts]) -> dict[str, Any] | None:
    counted = [run for run in group if run.outcome in ("finished", "tracked")]
    measures = {name: found for name in _MEASURES if (found := spread(counted, name)) is not None}
    if not all(math.isfinite(measures.get(name, {}).get("mean", math.nan)) for name in ("test.accuracy", "test.ece")):
        return None
    first = group[0]
    return {
        "method": first.method,
        "rate": first.rate,
        "runs": len(counted),
        "left_out": len(group) - len(counted),
        "measures": measures,
    }


def spread(runs: Sequence[RunFacts], name: str) -> dict[str, Any] | None:
    """Mean, deviation, bootstrap interval and number of a measure at the end of runs; None if none of them has it."""
    found = summarise([number(run.final.get(name)) for run in runs])
    return asdict(found) if found.n else None


def labels(firsts: Sequence[RunFacts]) -> list[str]:
    """A name for each setting, by one of its runs: as short as tells it from the others."""
    several = len({run.place.study for run in firsts}) > 1
    found = [f"{run.place.study}: {_label(run)}" if several and run.place.study else _label(run) for run in firsts]
    for label in {label for label in found if found.count(label) > 1}:
        alike = [place for place, each in enumerate(found) if each == label]
        for place, own in zip(alike, shared_and_own([firsts[place].spec for place in alike])[1], strict=True):
            differs = ", ".join(f"{key} = {value}" for key, value in own.items() if key != "seed")
            found[place] = f"{label}, {differs[:_LONGEST]}" if differs else label
    return found


def _label(run: RunFacts) -> str:
    rate = f", {rate_text(run)}" if math.isfinite(run.rate) else ""
    return setting_text(run.place.axes) or f"{run.method}{rate}"
