"""Calibration under shift, drawn by matplotlib: by severity and by kind of corruption."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from surefoot.reports.figures.colours import Look
from surefoot.reports.figures.shift import under_shift
from surefoot.reports.figures.strokes import DASHES, MARKS, Drawn, gap, new_figure, said

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["shift_figure"]


def shift_figure(drawn: Sequence[Drawn]) -> Figure | None:
    """ECE from clean to severity 5, dotted after the temperature of clean data, and by kind, the worst on top."""
    found = under_shift([run for run, _ in drawn])
    kinds = found["kinds"]
    if not kinds:
        return None
    own = {(run.method, str(run.rate)): look for run, look in drawn}  # as text: a rate may be NaN
    entries = [(entry, own[entry["method"], str(entry["rate"])]) for entry in found["settings"][:12]]
    figure = new_figure(5.4, max(2.4, 0.8 + 0.16 * len(kinds)))
    left, right = figure.subplots(1, 2)
    _severities(left, entries)
    for entry, (colour, dash) in entries:
        known = [at for at, kind in enumerate(kinds) if "ece" in entry["kinds"].get(kind, {})]
        values = [entry["kinds"][kinds[at]]["ece"] for at in known]
        right.plot(values, known, MARKS[dash], color=colour, markersize=3, label=said(entry["label"]))
    right.set_yticks(range(len(kinds)), [said(kind.replace("_", " ")) for kind in kinds], parse_math=False)
    right.invert_yaxis()
    right.set(xlabel="ECE, mean over severities", xlim=(0, None))
    legend = figure.legend(*right.get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def _severities(axes: Axes, entries: Sequence[tuple[dict[str, Any], Look]]) -> None:
    lines = [(entry[name]["severities"], look, name) for entry, look in entries for name in ("plain", "temperature")]
    lines = [line for line in lines if line[0]]
    if not lines:
        axes.set_axis_off()  # results that hold no means by severity
    for place, (rows, (colour, dash), name) in enumerate(lines):
        aside = min(0.08, 0.4 / len(lines)) * (place - (len(lines) - 1) / 2)  # so that no interval covers another
        means, low, high = ([row["ece"][end] for row in rows] for end in ("mean", "low", "high"))
        axes.errorbar(
            [row["severity"] + aside for row in rows],
            means,
            [list(map(gap, means, low)), list(map(gap, high, means))],
            color=colour,
            linestyle=DASHES[dash] if name == "plain" else ":",
            marker=MARKS[dash],
            markersize=3,
            markerfacecolor=colour if name == "plain" else "none",
            markeredgewidth=0.6,
            elinewidth=0.5,
        )
    axes.set(xlabel="severity (0: clean)", ylabel="ECE (dotted: after temperature)", ylim=(0, None), xticks=range(6))
