"""What all figures by matplotlib share: lines, legends, names that a font can draw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.reports.figures.curves import Floats, curve
from surefoot.reports.figures.legend import Look, rate_text
from surefoot.reports.figures.panels import Panel
from surefoot.reports.runs import RunFacts
from surefoot.text import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D

__all__ = [
    "DASHES",
    "LABEL",
    "MARKS",
    "QUIET",
    "STYLE",
    "Drawn",
    "draw_key",
    "draw_legend",
    "draw_line",
    "draw_panel",
    "drawable",
    "first_few",
    "gap",
    "named",
    "new_figure",
    "sample",
]

DASHES = {"solid": "-", "dash": "--", "dashdot": "-.", "longdash": (0, (8, 2))}
MARKS = {"solid": "o", "dash": "s", "dashdot": "D", "longdash": "^"}
QUIET = "#8A8A8A"
STYLE: Any = {
    "font.size": 7, "axes.titlesize": 8, "axes.labelsize": 7, "legend.fontsize": 6, "axes.linewidth": 0.6,
    "xtick.major.width": 0.6, "ytick.major.width": 0.6, "lines.linewidth": 0.9, "axes.spines.top": False,
    "axes.spines.right": False, "hatch.linewidth": 0.5, "svg.hashsalt": "surefoot", "pdf.fonttype": 42,
}  # fmt: skip
LABEL = 80  # characters of a setting's name
_LONGEST = 40  # characters of a title
_WIDE = 1000  # ratio of maximum to minimum from which a linear scale would hide small values

Drawn = tuple[RunFacts, Look]


def new_figure(width: float, height: float) -> Figure:
    """Make an empty figure.

    Args:
        width: width in inches.
        height: height in inches.

    Returns:
        The figure.
    """
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def draw_line(axes: Axes, drawn: Drawn, name: str, **own: Any) -> None:
    """Draw a quantity of one run over its steps, if the run has the quantity.

    Args:
        axes: axes of matplotlib.
        drawn: the run with its look.
        name: name of the quantity.
        own: properties of the line, which override the look.
    """
    run, (colour, dash) = drawn
    steps, values = curve(run, name)
    if len(steps):
        axes.plot(steps, values, **{"color": colour, "linestyle": DASHES[dash], **own})


def draw_panel(axes: Axes, panel: Panel, chosen: Sequence[Drawn], part: str) -> None:
    """Draw the curves of a panel; a scale may be logarithmic if its values span a wide range.

    Args:
        axes: axes of matplotlib.
        panel: the panel; ``log`` allows a logarithmic scale.
        chosen: runs with their looks.
        part: ``"train"`` or ``"test"``.
    """
    for run_and_look in chosen:
        draw_line(axes, run_and_look, panel.key(part), label=rate_text(run_and_look[0]))
    values = [curve(run, panel.key(part))[1] for run, _ in chosen]
    if panel.log and _is_wide(np.concatenate(values)):
        axes.set_yscale("log")  # three powers of ten at least, so these alone are labelled
    axes.set_ylabel(panel.title.replace("Gauss–Newton", "GN"))


def _is_wide(values: Floats) -> bool:
    return bool(values.size and values.min() > 0 and values.max() > _WIDE * values.min())


def draw_legend(axes: Axes, below: bool = False, **own: Any) -> None:
    """Draw a legend with every name once, beside or below the axes, where the legend hides no curve.

    Args:
        axes: axes of matplotlib.
        below: whether the legend is below the axes, not beside the axes in one column.
        own: options of the legend.
    """
    place: Any = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
    if below:
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "borderaxespad": 5}  # letters high: ticks, a label
    names = named(axes)
    columns = 1 + len(names) // 6 if below else 1
    _plainly(axes.legend(names.values(), names, frameon=False, ncols=columns, **place, **own))


def draw_key(figure: Figure, names: Mapping[str, Any], *notes: str) -> None:
    """Draw a legend of the whole figure, and make the figure higher by the legend's height.

    Args:
        figure: the figure.
        names: handles by their names.
        notes: sentences of the title; empty notes are left out.
    """
    title = "; ".join(note for note in notes if note)
    longest = max(map(len, names), default=0)
    room = max(1, int(figure.get_figwidth() / (0.4 + 0.045 * longest)))  # inches of a handle and of a letter
    rows = -(-len(names) // room) or 1
    rows += len(names) % rows > 0 and len(names) % (rows + 1) == 0  # one more where that fills the columns
    figure.set_figheight(figure.get_figheight() + 0.13 * rows + 0.15)
    _plainly(figure.legend(names.values(), names, loc="outside upper center", ncols=-(-len(names) // rows) or 1,
                           frameon=False, title=title, title_fontsize=7))  # fmt: skip


def named(axes: Axes) -> dict[str, Any]:
    """Collect the first handle of every name in the axes.

    Args:
        axes: axes of matplotlib.

    Returns:
        Handles by their names.
    """
    handles: dict[str, Any] = {}
    for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
        handles.setdefault(name, handle)
    return handles


def _plainly(legend: Legend) -> None:
    for text in legend.get_texts():
        text.set_parse_math(False)  # a name may hold dollars


def sample(**own: Any) -> Line2D:
    """Make a line for a legend.

    Args:
        own: properties of the line, which override grey.

    Returns:
        The line.
    """
    from matplotlib.lines import Line2D

    return Line2D([], [], **{"color": QUIET, **own})


def drawable(name: str, longest: int = _LONGEST) -> str:
    """Make a name that a font can draw and an SVG file can hold.

    Args:
        name: the name.
        longest: maximum number of characters; longer names are cut.

    Returns:
        The name.
    """
    text = plain(name)
    text = (
        f" {text}" if text.startswith("_") else text
    )  # matplotlib leaves names with a leading underscore out of legends
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def first_few(names: Sequence[Any], limit: int = 8) -> tuple[list[Any], str]:
    """Keep as many items as have room.

    Args:
        names: the items.
        limit: maximum number of items.

    Returns:
        The items, and a note on how many of all are shown; the note is empty if all are shown.
    """
    return list(names[:limit]), f"the first {limit} of {len(names)}" if len(names) > limit else ""


def gap(high: float, low: float) -> float:
    """Compute the length of one arm of an interval.

    Args:
        high: upper end.
        low: lower end.

    Returns:
        The length, at least 0; 0 if an end is not finite.
    """
    return max(0.0, high - low) if math.isfinite(high) and math.isfinite(low) else 0.0
