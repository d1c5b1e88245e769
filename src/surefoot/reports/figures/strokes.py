"""What all of matplotlib's figures share: lines, legends, names that a font can draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from surefoot.reports.figures.colours import Look
from surefoot.reports.figures.curves import curve
from surefoot.reports.figures.panels import Panel
from surefoot.reports.runs import RunFacts
from surefoot.reports.text import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLUMNS",
    "DASHES",
    "GAP",
    "MARKS",
    "QUIET",
    "Drawn",
    "draw_legend",
    "draw_line",
    "draw_panel",
    "first_columns",
    "gap",
    "new_figure",
    "said",
]

DASHES = {"solid": "-", "dash": "--", "dashdot": "-.", "longdash": (0, (8, 2))}
MARKS = {"solid": "o", "dash": "s", "dashdot": "D", "longdash": "^"}
GAP, QUIET = "#D55E00", "#8A8A8A"
_LONGEST = 40  # letters of a name
COLUMNS = 8

Drawn = tuple[RunFacts, Look]


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def draw_line(axes: Axes, drawn: Drawn, name: str, **own: Any) -> bool:
    """A quantity of one run over its steps; whether the run has it."""
    run, (colour, dash) = drawn
    steps, values = curve(run, name)
    if not len(steps):
        return False
    axes.plot(steps, values, **{"color": colour, "linestyle": DASHES[dash], **own})
    return True


def draw_panel(axes: Axes, each: Panel, chosen: Sequence[Drawn], part: str) -> bool:
    """The panel's curves; whether there are any."""
    found = [draw_line(axes, one, each.key(part), label=f"η = {one[0].rate:.3g}") for one in chosen]
    if each.log and all((curve(run, each.key(part))[1] > 0).all() for run, _ in chosen):
        log(axes)
    axes.set_ylabel(each.title.replace("Gauss–Newton", "GN"))
    return any(found)


def log(axes: Axes) -> None:
    """A logarithmic scale that is labelled at powers of ten alone, and between them where there are not two."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if math.ceil(math.log10(low)) < math.floor(math.log10(high)):
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.yaxis.set_minor_locator(LogLocator(subs=(2, 3, 5)))
        axes.yaxis.set_minor_formatter(StrMethodFormatter("{x:g}"))


def draw_legend(axes: Axes, below: bool = False, beside: bool = False) -> None:
    """Each name once; below the axes, or beside them in one column, where curves would lie under it."""
    handles, names = axes.get_legend_handles_labels()
    once = dict(zip(reversed(names), reversed(handles), strict=True))
    order = list(dict.fromkeys(names))
    place: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.4)} if below else {}
    if beside:
        place = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
    columns = 1 if beside else 1 + len(order) // 6
    legend = axes.legend([once[name] for name in order], order, frameon=False, ncols=columns, **place)
    for text in legend.get_texts():
        text.set_parse_math(False)  # a name may hold dollars


def said(name: str) -> str:
    """A name that a font can draw and an SVG file can hold."""
    text = plain(name)
    text = f" {text}" if text.startswith("_") else text  # matplotlib leaves such names out of legends
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def first_columns(figure: Figure, names: Sequence[str]) -> list[str]:
    """What has room side by side; the figure says how many were left out."""
    if len(names) > COLUMNS:
        figure.suptitle(f"the first {COLUMNS} of {len(names)}", fontsize=7)
    return list(names[:COLUMNS])


def gap(high: float, low: float) -> float:
    """The length of one arm of an interval; 0 where an end is not known."""
    return max(0.0, high - low) if math.isfinite(high) and math.isfinite(low) else 0.0
