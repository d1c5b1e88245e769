"""Paper A's figures: what training does to loss, calibration and sharpness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from surefoot.reports.figures.curves import curve
from surefoot.reports.figures.panels import PANELS, Panel
from surefoot.reports.figures.portrait import horizon, portrait
from surefoot.reports.figures.strokes import (
    COLUMNS,
    DASHES,
    QUIET,
    Drawn,
    draw_legend,
    draw_line,
    draw_panel,
    first_columns,
    new_figure,
    said,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["dynamics", "horizons", "method", "portraits"]


def dynamics(drawn: Sequence[Drawn], names: Sequence[str]) -> Figure | None:
    """Figures 1, 2 and A15: loss, ECE and sharpness of each method, learning rates by shade, 2/η dashed."""
    rows = [panel for panel in PANELS if panel.name in ("nll", "ece", "sharpness")]
    drawn = [each for each in drawn if len(curve(each[0], "sharpness")[0]) and len(curve(each[0], "train.ece")[0])]
    names = [name for name in names if any(run.method == name for run, _ in drawn)]
    if not names:
        return None
    figure = new_figure(1.55 * min(len(names), COLUMNS) + 0.4, 3.6)
    names = first_columns(figure, names)
    grid = figure.subplots(len(rows), len(names), squeeze=False, sharex=True, sharey="row")
    for column, name in enumerate(names):
        chosen = [each for each in drawn if each[0].method == name]
        for row, panel in enumerate(rows):
            axes = grid[row, column]
            draw_panel(axes, panel, chosen, "train")
            if panel.name == "ece":
                for one in chosen:
                    draw_line(axes, one, "test.ece", linestyle=":")
            if panel.name == "sharpness":
                for run, (colour, _) in chosen:
                    steps, threshold = curve(run, "threshold")
                    top = curve(run, "sharpness")[1].max(initial=0.0)
                    if len(threshold) and threshold[-1] <= 4 * top:
                        axes.plot(steps, threshold, color=colour, linewidth=0.6, linestyle="--")
                axes.set_xlabel("step")
            if column:
                axes.set_ylabel("")
        grid[0, column].set_title(said(name), parse_math=False)
        if len({run.rate for run, _ in chosen}) > 1:
            draw_legend(grid[-1, column], below=True)
    return figure


def method(chosen: Sequence[Drawn]) -> Figure | None:
    """Figures A2 to A7 and A9 to A14: everything about one method; training left, test right.

    Sharpness is that of the loss on the same half, where ``test_curvature`` was read.
    """
    rows = [panel for panel in PANELS if panel.name not in ("batch_sharpness", "log_q", "test.tce")]
    rows = [panel for panel in rows if _is_read(panel, chosen, "train") or _is_read(panel, chosen, "test")]
    if not rows:
        return None
    figure = new_figure(4.4, 1.15 * len(rows) + 0.4)
    grid = figure.subplots(len(rows), 2, squeeze=False, sharex=True)
    lowest = [0, 0]
    for row, panel in enumerate(rows):
        for column, part in enumerate(("train", "test")):
            if _is_read(panel, chosen, part):
                draw_panel(grid[row, column], panel, chosen, part)
                lowest[column] = row
            else:
                grid[row, column].set_axis_off()
    grid[0, 0].set_title(f"{said(chosen[0][0].method)}, training", parse_math=False)
    grid[0, 1].set_title("test")
    for column, row in enumerate(lowest):
        grid[row, column].set_xlabel("step")
        grid[row, column].tick_params(labelbottom=True)
    if len({run.rate for run, _ in chosen}) > 1:
        draw_legend(grid[0, 0])
    return figure


def _is_read(panel: Panel, chosen: Sequence[Drawn], part: str) -> bool:
    return any(len(curve(run, panel.key(part))[0]) for run, _ in chosen)


def portraits(drawn: Sequence[Drawn]) -> Figure | None:
    """Figures A1 and A8: ECE against sharpness; a dot at the first step, a cross at the last."""
    paths = [(run, look, portrait(run)) for run, look in drawn]
    paths = [each for each in paths if len(each[2]["step"]) > 1]
    if not paths:
        return None
    methods = len({run.method for run, _, _ in paths})
    figure = new_figure(3.5 if methods <= 6 else 4.6, 2.7)
    axes = figure.subplots()
    named: set[str] = set()
    for run, (colour, dash), path in paths:
        label = None if run.method in named else said(run.method)
        named.add(run.method)
        x, y = path["sharpness"], path["ece"]
        axes.plot(x, y, color=colour, linestyle=DASHES[dash], label=label)
        axes.plot(x[:1], y[:1], "o", color=colour, markersize=3.5)
        axes.plot(x[-1:], y[-1:], "x", color=colour, markersize=4.5)
    axes.set(xlabel="Gauss–Newton sharpness", ylabel="train ECE (15 bins)")
    draw_legend(axes, beside=methods > 6)
    return figure


def horizons(drawn: Sequence[Drawn], names: Sequence[str]) -> Figure | None:
    """Table 1 as a function of where training stops: r of ECE with sharpness over the readings up to each step.

    Of test ECE also with the sharpness on the test set, where ``test_curvature`` was read.
    """
    drawn = [each for each in drawn if horizon(each[0])[0]]
    names = [name for name in names if any(run.method == name for run, _ in drawn)]
    if not names:
        return None
    pairs = [("train", "sharpness"), ("test", "sharpness"), ("test", "test.sharpness")]
    pairs = [pair for pair in pairs if any(horizon(run, *pair)[0] for run, _ in drawn)]
    figure = new_figure(1.55 * min(len(names), COLUMNS) + 0.4, 1.2 * len(pairs) + 0.4)
    names = first_columns(figure, names)
    grid = figure.subplots(len(pairs), len(names), squeeze=False, sharex=True, sharey=True)
    for column, name in enumerate(names):
        chosen = [each for each in drawn if each[0].method == name]
        for axes, (part, sharpness) in zip(grid[:, column], pairs, strict=True):
            axes.axhline(0, color=QUIET, linewidth=0.6)
            paths = [(run, look, horizon(run, part, sharpness)) for run, look in chosen]
            for run, (colour, dash), found in paths:
                axes.plot(*found, color=colour, linestyle=DASHES[dash], label=f"η = {run.rate:.3g}")
            if not column:
                axes.set(ylabel=f"r, {part} ECE,\n{_OF[sharpness]}", ylim=(-1.05, 1.05))
            elif not any(found[0] for _, _, found in paths):
                axes.set_axis_off()
        grid[0, column].set_title(said(name), parse_math=False)
        lowest = next(axes for axes in reversed(grid[:, column]) if axes.axison)
        lowest.set_xlabel("training stops at")
        lowest.tick_params(labelbottom=True)
        if len({run.rate for run, _ in chosen}) > 1:
            draw_legend(lowest, below=True)
    return figure


_OF = {"sharpness": "train sharpness", "test.sharpness": "test sharpness"}
