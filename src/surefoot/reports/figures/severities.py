"""Calibration under shift, drawn by matplotlib: by severity, before and after a temperature, and by corruption."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from surefoot.reports.figures.legend import Look, mean_text, setting_looks, setting_words
from surefoot.reports.figures.mpl_style import (
    DASHES,
    LABEL,
    MARKS,
    Drawn,
    draw_key,
    drawable,
    first_few,
    gap,
    new_figure,
    sample,
)
from surefoot.reports.figures.shift import shifted_settings, worst_first

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["shift_figure"]

_MOST = 12  # settings
_PANELS = {"plain": "as trained", "temperature": "after the temperature of clean data"}


def shift_figure(drawn: Sequence[Drawn]) -> Figure | None:
    """Draw ECE from clean data to severity 5, as trained and after a temperature, and ECE by kind of corruption.

    The temperature is fitted on clean data. The worst corruption is on top.

    Args:
        drawn: runs with their looks; the first twelve settings are drawn.

    Returns:
        The figure; None if no run was read on corrupted images.
    """
    pairs, note = first_few(shifted_settings([run for run, _ in drawn]), _MOST)
    kinds = worst_first([entry for entry, _ in pairs])
    if not kinds:
        return None
    own = setting_looks([setting_words(run, entry["label"]) for entry, run in pairs])
    entries = [(entry, look) for (entry, _), look in zip(pairs, own, strict=True)]
    shown = [name for name in _PANELS if any(entry[name]["severities"] for entry, _ in entries)]
    figure = new_figure(2.4 * len(shown) + 2.8, max(2.4, 0.8 + 0.16 * len(kinds)))
    *panels, right = figure.subplots(1, len(shown) + 1, squeeze=False)[0]
    for axes, name in zip(panels, shown, strict=True):
        _severities(axes, [(entry[name]["severities"], look) for entry, look in entries])
        axes.sharey(panels[0])
        axes.set(xlabel="severity (0: clean)", xticks=range(6), title=_PANELS[name])
    for axes in panels[:1]:
        axes.set(ylabel="test ECE", ylim=(0, None))
    for entry, (colour, dash) in entries:
        known = [at for at, kind in enumerate(kinds) if "ece" in entry["kinds"].get(kind, {})]
        values = [entry["kinds"][kinds[at]]["ece"] for at in known]
        right.plot(values, known, MARKS[dash], color=colour, markersize=3)
    right.set_yticks(range(len(kinds)), [drawable(kind.replace("_", " ")) for kind in kinds], parse_math=False)
    right.invert_yaxis()
    right.set(xlabel="test ECE, mean over severities", xlim=(0, None))
    key = {drawable(entry["label"], LABEL): _sample(look) for entry, look in entries}
    counts = [entry["runs"] for entry, _ in entries]
    draw_key(figure, key, note, mean_text(counts), "" if max(counts) == 1 else "bars: 95 % interval of the mean")
    return figure


def _sample(look: Look) -> Any:
    return sample(color=look[0], linestyle=DASHES[look[1]], marker=MARKS[look[1]], markersize=3)


def _severities(axes: Axes, lines: Sequence[tuple[list[dict[str, Any]], Look]]) -> None:
    for place, (rows, (colour, dash)) in enumerate(lines):
        aside = min(0.08, 0.4 / len(lines)) * (place - (len(lines) - 1) / 2)  # so that intervals do not overlap
        means, low, high = ([row["ece"][end] for row in rows] for end in ("mean", "low", "high"))
        axes.errorbar(
            [row["severity"] + aside for row in rows],
            means,
            [list(map(gap, means, low)), list(map(gap, high, means))],
            color=colour,
            linestyle=DASHES[dash],
            marker=MARKS[dash],
            markersize=3,
            elinewidth=0.5,
        )
