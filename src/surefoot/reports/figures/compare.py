"""Methods compared: accuracy against calibration error with intervals over the seeds, and the Pareto front."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from surefoot.reports.figures.legend import rate_text, seeds_text, setting_text
from surefoot.reports.runs import RunFacts, number
from surefoot.runs.records import canonical
from surefoot.statistics import summarise

__all__ = ["by_setting", "census", "compare", "flat", "labels", "not_beaten", "settings", "shared_and_own", "spread"]

_LONGEST = 600  # characters of a value on a page


def flat(table: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Flatten nested tables; a very long value is cut.

    Args:
        table: the tables.
        before: prefix of the keys.

    Returns:
        The values by dotted key.

    Example:
        >>> flat({"optimizer": {"name": "sgd", "lr": 0.1}, "seed": 0})
        {'optimizer.name': 'sgd', 'optimizer.lr': 0.1, 'seed': 0}
    """
    values: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and value:
            values |= flat(value, f"{before}{key}.")
        else:
            values[f"{before}{key}"[:_LONGEST]] = _short(value)
    return values


def shared_and_own(specs: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Separate the values that all specs share from the values of each spec.

    Args:
        specs: the specs. A spec that could not be read is empty and shares nothing.

    Returns:
        The shared values, and the other values of each spec; both by dotted key.
    """
    tables = [flat(spec) for spec in specs]
    known = [flattened for flattened in tables if flattened]
    first = known[0] if known else {}
    shared = {
        key: value for key, value in first.items() if all(key in other and other[key] == value for other in known)
    }
    return shared, [{key: value for key, value in own.items() if key not in shared} for own in tables]


def _short(value: Any) -> Any:
    if not isinstance(value, str | list):
        return value
    text = value if isinstance(value, str) else canonical(value)
    return value if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


_MEASURES = ("test.accuracy", "test.ece", "test.tce", "test.kce", "test.nll")
_LONGEST = 80  # characters of the difference between two settings


def compare(runs: Sequence[RunFacts]) -> list[dict[str, Any]]:
    """Summarise the finished runs of every setting; the runs of a setting differ only in the seed.

    Args:
        runs: the runs.

    Returns:
        One entry per setting that has accuracy and ECE: ``label``, ``method``, ``rate``, ``runs`` (number of runs that
        count), ``left_out``, ``best`` (whether the setting is on the Pareto front of accuracy and ECE), and
        ``measures``. Every measure has mean, standard deviation and bootstrap interval over the seeds.
    """
    pairs = [(entry, group[0]) for group in by_setting(runs) if (entry := _entry(group)) is not None]
    entries = [entry for entry, _ in pairs]
    for (entry, _), label in zip(pairs, labels([run for _, run in pairs]), strict=True):
        entry["label"] = label
    points = [(entry["measures"]["test.accuracy"]["mean"], entry["measures"]["test.ece"]["mean"]) for entry in entries]
    for entry, best in zip(entries, not_beaten(points), strict=True):
        entry["best"] = best
    return entries


def by_setting(runs: Sequence[RunFacts]) -> list[list[RunFacts]]:
    """Group the runs that count by setting.

    Args:
        runs: the runs.

    Returns:
        The groups in order of appearance; runs of a group differ only in the seed.
    """
    groups: dict[tuple[Any, ...], list[RunFacts]] = {}
    for run in runs:
        if run.place.counted:
            groups.setdefault(_setting(run), []).append(run)
    return list(groups.values())


def settings(runs: Sequence[RunFacts]) -> list[int]:
    """Number the settings of runs.

    Args:
        runs: the runs.

    Returns:
        The number of every run's setting, in order of appearance; runs with the same number differ only in the seed.
    """
    seen: dict[tuple[Any, ...], int] = {}
    return [seen.setdefault(_setting(run), len(seen)) for run in runs]


def census(runs: Sequence[RunFacts]) -> str:
    """Describe how many lines share a colour: ``3 seeds``, or ``12 settings, 1 seed`` if settings share a colour.

    Args:
        runs: the runs that are drawn.

    Returns:
        The description.
    """
    sizes = Counter(settings(runs))
    looks = len({(run.method, str(run.rate)) for run in runs})  # as text: a rate may be NaN
    return (f"{len(sizes)} settings, " if len(sizes) > looks else "") + seeds_text(sizes.values())


def not_beaten(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Find the points on the Pareto front.

    A point is beaten if another point is as good in both values and better in one value.

    Args:
        points: pairs (value to maximise, value to minimise).

    Returns:
        Whether every point is not beaten; False for a pair with NaN.

    Example:
        >>> not_beaten([(0.9, 0.1), (0.8, 0.2), (0.7, 0.01)])
        [True, False, True]
    """
    known = [place for place, pair in enumerate(points) if not any(math.isnan(value) for value in pair)]
    best = [False] * len(points)
    lowest, at = math.inf, math.nan
    for place in sorted(known, key=lambda place: (-points[place][0], points[place][1])):
        gain, loss = points[place]
        if loss < lowest or (loss == lowest and gain == at):
            best[place], lowest, at = True, loss, gain
    return best


def _setting(run: RunFacts) -> tuple[Any, ...]:
    """What the runs of an entry agree on."""
    if run.place.study is not None:
        return run.place.study, tuple(item for item in run.place.axes.items() if item[0] != "seed")
    if not run.spec:
        return None, run.place.folder  # without a spec, nothing says what the run shares with others
    return None, canonical({key: value for key, value in run.spec.items() if key != "seed"})


def _entry(group: Sequence[RunFacts]) -> dict[str, Any] | None:
    counted = [run for run in group if run.outcome in ("finished", "tracked")]
    measures = {name: summary for name in _MEASURES if (summary := spread(counted, name)) is not None}
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
    """Summarise a measure of the last readings.

    Args:
        runs: the runs.
        name: the measure.

    Returns:
        The fields of `surefoot.statistics.Summary`; None if no run has the measure.
    """
    summary = summarise([number(run.final.get(name)) for run in runs])
    return asdict(summary) if summary.n else None


def labels(firsts: Sequence[RunFacts]) -> list[str]:
    """Label every setting as briefly as keeps the labels different.

    Args:
        firsts: one run of every setting.

    Returns:
        The labels.
    """
    several = len({run.place.study for run in firsts}) > 1
    texts = [f"{run.place.study}: {_label(run)}" if several and run.place.study else _label(run) for run in firsts]
    for label in {label for label in texts if texts.count(label) > 1}:
        alike = [place for place, text in enumerate(texts) if text == label]
        for place, own in zip(alike, shared_and_own([firsts[place].spec for place in alike])[1], strict=True):
            differs = ", ".join(f"{key} = {value}" for key, value in own.items() if key != "seed")
            texts[place] = f"{label}, {differs[:_LONGEST]}" if differs else label
    return texts


def _label(run: RunFacts) -> str:
    rate = f", {rate_text(run)}" if math.isfinite(run.rate) else ""
    return setting_text(run.place.axes) or f"{run.method}{rate}"
