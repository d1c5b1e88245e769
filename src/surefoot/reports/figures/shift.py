"""Settings under shift: calibration by severity and by corruption, and detection of out-of-distribution data."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from surefoot.metrics.registry import shifted_metrics
from surefoot.reports.figures.compare import by_setting, labels, spread
from surefoot.reports.runs import RunFacts, number

__all__ = ["shifted_settings", "under_shift", "worst_first"]

_SEVERITIES = range(6)  # 0 is clean
# Names that `surefoot.shift.measure.quantities` gives; names of kinds and sets have no dot.
_KIND = re.compile(r"shift\.(?!temperature\.|severity\d\.)([^.]{1,60})\.ece")
_SET = re.compile(r"ood\.([^.]{1,60})\.auroc")
_KINDS, _SETS = 40, 12  # more than any study needs; a stranger's result may hold thousands


def under_shift(runs: Sequence[RunFacts]) -> dict[str, Any]:
    """Summarise the finished runs of every setting under shift; the runs of a setting differ only in the seed.

    An entry has ``label``, ``method``, ``rate``, ``runs`` (number of runs read under shift) and ``left_out``.

    ``plain`` and ``temperature`` (fitted on clean data) have ``mean`` (over kinds and severities) and ``severities`` (0
    is clean). A measure there has mean, standard deviation and bootstrap interval over the seeds. ``kinds`` has means
    alone.

    ``auroc`` is the AUROC of corrupted against clean images, ``foreign`` the AUROC of every out-of-distribution set.

    Args:
        runs: the runs.

    Returns:
        ``kinds``: the corruptions from the worst mean ECE to the best. ``sets``: the out-of-distribution sets.
        ``settings``: one entry per setting.
    """
    entries = [entry for entry, _ in shifted_settings(runs)]
    return {
        "kinds": worst_first(entries),
        "sets": sorted({name for entry in entries for name in entry["foreign"]}),
        "settings": entries,
    }


def shifted_settings(runs: Sequence[RunFacts]) -> list[tuple[dict[str, Any], RunFacts]]:
    """Summarise every setting, as the entries ``settings`` of `under_shift`.

    Args:
        runs: the runs.

    Returns:
        Every entry with one of its runs.
    """
    kinds, sets = _names(runs, _KIND, _KINDS), _names(runs, _SET, _SETS)
    pairs = [(entry, group[0]) for group in by_setting(runs) if (entry := _entry(group, kinds, sets)) is not None]
    for (entry, _), label in zip(pairs, labels([run for _, run in pairs]), strict=True):
        entry["label"] = label
    return pairs


def worst_first(entries: Sequence[dict[str, Any]]) -> list[str]:
    """Order the corruptions by the mean of their ECE over the settings, worst first.

    Args:
        entries: entries of `shifted_settings`.

    Returns:
        The names of the corruptions.
    """
    kinds = sorted({kind for entry in entries for kind in entry["kinds"]})
    heights = {kind: _mean([entry["kinds"].get(kind, {}).get("ece", math.nan) for entry in entries]) for kind in kinds}
    return sorted((kind for kind in kinds if math.isfinite(heights[kind])), key=lambda kind: -heights[kind])


def _names(runs: Sequence[RunFacts], pattern: re.Pattern[str], limit: int) -> list[str]:
    return sorted({match[1] for run in runs for name in run.final if (match := pattern.fullmatch(name))})[:limit]


def _entry(group: Sequence[RunFacts], kinds: Sequence[str], sets: Sequence[str]) -> dict[str, Any] | None:
    read = [run for run in group if run.outcome == "finished" and _is_read(run, sets)]
    if not read:
        return None
    return {
        "method": group[0].method,
        "rate": group[0].rate,
        "runs": len(read),
        "left_out": len(group) - len(read),
        "plain": _conditions(read, "shift"),
        "temperature": _conditions(read, "shift.temperature"),
        "kinds": {kind: means for kind in kinds if (means := _of_kind(read, kind))},
        "auroc": spread(read, "shift.auroc"),
        "foreign": {name: summary for name in sets if (summary := spread(read, f"ood.{name}.auroc")) is not None},
    }


def _is_read(run: RunFacts, sets: Sequence[str]) -> bool:
    names = ("shift.ece", *(f"ood.{name}.auroc" for name in sets))
    return any(math.isfinite(number(run.final.get(name))) for name in names)


def _conditions(runs: Sequence[RunFacts], start: str) -> dict[str, Any]:
    """The mean over all conditions, and the severities that were read, in order."""
    rows = [{"severity": severity, **_measures(runs, f"{start}.severity{severity}")} for severity in _SEVERITIES]
    return {"mean": _measures(runs, start), "severities": [row for row in rows if "ece" in row]}


def _measures(runs: Sequence[RunFacts], start: str) -> dict[str, Any]:
    return {name: summary for name in shifted_metrics() if (summary := spread(runs, f"{start}.{name}")) is not None}


def _of_kind(runs: Sequence[RunFacts], kind: str) -> dict[str, float]:
    """Means over the seeds, without intervals: a chart of all kinds with intervals would be unreadable."""
    means = {name: _mean([number(run.final.get(f"shift.{kind}.{name}")) for run in runs]) for name in shifted_metrics()}
    return {name: value for name, value in means.items() if math.isfinite(value)}


def _mean(values: Sequence[float]) -> float:
    """Mean of the finite values; NaN if there are none."""
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan
