"""Calibration error against severity: one panel per corruption, one colour per method."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.errors import BadInput
from surefoot.files import replace_file
from surefoot.reports.figures.legend import PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_shift", "figure_format", "save_shift"]

Rows = Sequence[Mapping[str, Any]]


def save_shift(rows: Rows, path: Path) -> None:
    """Write the figure of calibration error against severity.

    Args:
        rows: rows of `surefoot.shift.measure.shifted_rows`.
        path: path that ends in ``.png``, ``.svg`` or ``.pdf``; the file appears complete or not at all.

    Raises:
        BadInput: if the path has another suffix.
    """
    kind, buffer = figure_format(path), io.BytesIO()
    draw_shift(rows).savefig(buffer, format=kind, dpi=140)
    with replace_file(path) as stream:
        stream.write(buffer.getvalue())


def figure_format(path: Path) -> str:
    """Read the format of a figure from its path.

    Args:
        path: the path.

    Returns:
        ``"png"``, ``"svg"`` or ``"pdf"``.

    Raises:
        BadInput: if the path has another suffix.
    """
    suffix = path.suffix[1:].lower()
    if suffix not in ("png", "svg", "pdf"):
        raise BadInput(f"figures are .png, .svg or .pdf; got {path.name!r}")
    return suffix


def draw_shift(rows: Rows) -> Figure:
    """Draw ECE from clean (0) to severity 5: first the mean over all corruptions, then each with its 95 % intervals.

    Args:
        rows: rows of `surefoot.shift.measure.shifted_rows`.

    Returns:
        The figure.
    """
    from matplotlib.figure import Figure

    kinds = list(dict.fromkeys(row["kind"] for row in rows if row["severity"]))
    lines = list(dict.fromkeys((row["subject"], row["method"]) for row in rows))
    columns = min(4, len(kinds) + 1)
    high = -(-(len(kinds) + 1) // columns)
    figure = Figure(figsize=(max(2.7 * columns, 5.5), 2.2 * high + 0.6), layout="constrained")
    grid = figure.subplots(high, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes in grid[len(kinds) + 1 :]:
        axes.set_axis_off()
    for index, (subject, method) in enumerate(lines):
        own = [row for row in rows if (row["subject"], row["method"]) == (subject, method)]
        colour = PALETTE[index % len(PALETTE)]
        _mean(grid[0], own, kinds, _label(lines, subject, method), colour)
        for axes, kind in zip(grid[1:], kinds, strict=False):
            _panel(axes, [row for row in own if row["kind"] in ("clean", kind)], colour)
    for axes, title in zip(grid, ["mean; band: middle half of the kinds", *kinds], strict=False):
        axes.set_title(title.replace("_", " "), fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=7)
    grid[0].set_ylim(bottom=0)
    grid[0].set_xticks(sorted({row["severity"] for row in rows}))
    figure.supxlabel("severity (0: clean)", fontsize=9)
    figure.supylabel("ECE", fontsize=9)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=8, frameon=False)
    return figure


def _mean(axes: Axes, own: Rows, kinds: Sequence[str], label: str, colour: str) -> None:
    severities = sorted({row["severity"] for row in own})
    values = [[row["ece"] for row in own if row["severity"] == severity] for severity in severities]
    axes.plot(severities, [np.mean(eces) for eces in values], "o-", ms=3, lw=1.3, color=colour, label=label)
    if len(kinds) > 1:
        low, high = ([np.quantile(eces, q) for eces in values] for q in (0.25, 0.75))
        axes.fill_between(severities, low, high, color=colour, alpha=0.15, lw=0)


def _panel(axes: Axes, own: Rows, colour: str) -> None:
    own = sorted(own, key=lambda row: int(row["severity"]))
    severities = [row["severity"] for row in own]
    axes.plot(severities, [row["ece"] for row in own], "o-", ms=2.5, lw=1.1, color=colour)
    if all(row["ece_low"] is not None for row in own):
        low, high = ([row[end] for row in own] for end in ("ece_low", "ece_high"))
        axes.fill_between(severities, low, high, color=colour, alpha=0.18, lw=0)


def _label(lines: Sequence[tuple[str, str]], subject: str, method: str) -> str:
    """The label of a line: the subject, the method, or both, as short as keeps the labels different."""
    shown = "as it is" if method == "none" else method
    subjects, methods = ({line[place] for line in lines} for place in (0, 1))
    if len(subjects) == 1:
        return shown
    return subject if len(methods) == 1 else f"{subject}, {shown}"
