"""What all of matplotlib's figures share: lines, legends, names that a font can draw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.reports.figures.colours import Look
from surefoot.reports.figures.curves import Floats, curve
from surefoot.reports.figures.labels import rate_text
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
    "first_few",
    "gap",
    "named",
    "new_figure",
    "said",
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
LABEL = 80  # letters of a setting's name
_LONGEST = 40  # letters of a title
_WIDE = 1000  # greatest by least value from which a linear scale would hide the small ones

Drawn = tuple[RunFacts, Look]


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def draw_line(axes: Axes, drawn: Drawn, name: str, **own: Any) -> None:
    """A quantity of one run over its steps, where the run has it."""
    run, (colour, dash) = drawn
    steps, values = curve(run, name)
    if len(steps):
        axes.plot(steps, values, **{"color": colour, "linestyle": DASHES[dash], **own})


def draw_panel(axes: Axes, each: Panel, chosen: Sequence[Drawn], part: str) -> None:
    """The panel's curves; a scale that may be logarithmic is so where its values span a wide range."""
    for one in chosen:
        draw_line(axes, one, each.key(part), label=rate_text(one[0]))
    values = [curve(run, each.key(part))[1] for run, _ in chosen]
    if each.log and _is_wide(np.concatenate(values)):
        axes.set_yscale("log")  # three powers of ten at least, so these alone are labelled
    axes.set_ylabel(each.title.replace("Gauss–Newton", "GN"))


def _is_wide(values: Floats) -> bool:
    return bool(values.size and values.min() > 0 and values.max() > _WIDE * values.min())


def draw_legend(axes: Axes, below: bool = False, **own: Any) -> None:
    """Each name once, beside the axes in one column or below them: what lies over curves hides them."""
    place: Any = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
    if below:
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "borderaxespad": 5}  # letters high: ticks, a label
    names = named(axes)
    columns = 1 + len(names) // 6 if below else 1
    _plainly(axes.legend(names.values(), names, frameon=False, ncols=columns, **place, **own))


def draw_key(figure: Figure, names: Mapping[str, Any], *notes: str) -> None:
    """A legend of the whole figure, which grows by it: handles by their names, and notes, where they are not empty."""
    title = "; ".join(note for note in notes if note)
    longest = max(map(len, names), default=0)
    room = max(1, int(figure.get_figwidth() / (0.4 + 0.045 * longest)))  # inches of a handle and of a letter
    rows = -(-len(names) // room) or 1
    rows += len(names) % rows > 0 and len(names) % (rows + 1) == 0  # one more where that fills the columns
    figure.set_figheight(figure.get_figheight() + 0.13 * rows + 0.15)
    _plainly(figure.legend(names.values(), names, loc="outside upper center", ncols=-(-len(names) // rows) or 1,
                           frameon=False, title=title, title_fontsize=7))  # fmt: skip


def named(axes: Axes) -> dict[str, Any]:
    """The first handle of each name that the axes' lines have."""
    found: dict[str, Any] = {}
    for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
        found.setdefault(name, handle)
    return found


def _plainly(legend: Legend) -> None:
    for text in legend.get_texts():
        text.set_parse_math(False)  # a name may hold dollars


def sample(**own: Any) -> Line2D:
    """A line for a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **{"color": QUIET, **own})


def said(name: str, longest: int = _LONGEST) -> str:
    """A name that a font can draw and an SVG file can hold."""
    text = plain(name)
    text = f" {text}" if text.startswith("_") else text  # matplotlib leaves such names out of legends
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def first_few(names: Sequence[Any], most: int = 8) -> tuple[list[Any], str]:
    """What has room, and how many of all that are where some are left out."""
    return list(names[:most]), f"the first {most} of {len(names)}" if len(names) > most else ""


def gap(high: float, low: float) -> float:
    """The length of one arm of an interval; 0 where an end is not known."""
    return max(0.0, high - low) if math.isfinite(high) and math.isfinite(low) else 0.0
