"""The figures of Morosini et al. (2026): loss, calibration and sharpness during training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from surefoot.reports.figures.compare import census, settings
from surefoot.reports.figures.curves import curve
from surefoot.reports.figures.legend import rate_text, seeds_text
from surefoot.reports.figures.mpl_style import (
    DASHES,
    QUIET,
    Drawn,
    draw_key,
    draw_legend,
    draw_line,
    draw_panel,
    drawable,
    first_few,
    named,
    new_figure,
    sample,
)
from surefoot.reports.figures.panels import PANELS, Panel, horizon, portrait

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["dynamics", "horizons", "method", "portraits"]

_PORTRAITS, _ACROSS = 16, 4  # panels, and panels side by side
_NEAR = 2.5  # times the maximum sharpness: a larger threshold would flatten the curves
_DASHED: Any = {"linewidth": 0.6, "linestyle": "--"}


def dynamics(drawn: Sequence[Drawn], names: Sequence[str]) -> Figure | None:
    """Draw loss, ECE and sharpness of every method, with learning rates by shade.

    Losses and sharpnesses of methods differ by powers of ten, so that every such panel has its own scale; the ECE
    panels share a scale.

    Args:
        drawn: runs with their looks.
        names: methods in order; the first eight with curvature readings are drawn.

    Returns:
        The figure; None if no run has calibration and curvature readings.

    References:
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Figures 1, 2 and A15.
    """
    rows = [panel for panel in PANELS if panel.name in ("nll", "ece", "sharpness")]
    drawn = [pair for pair in drawn if len(curve(pair[0], "sharpness")[0]) and len(curve(pair[0], "train.ece")[0])]
    names, note = first_few([name for name in names if any(run.method == name for run, _ in drawn)])
    if not names:
        return None
    figure = new_figure(1.75 * len(names) + 0.4, 3.8)
    grid = figure.subplots(len(rows), len(names), squeeze=False, sharex="col")
    for column, name in enumerate(names):
        chosen = [pair for pair in drawn if pair[0].method == name]
        for row, panel in enumerate(rows):
            axes = grid[row, column]
            draw_panel(axes, panel, chosen, "train")
            if panel.name == "ece":
                axes.sharey(grid[row, 0])
                for one in chosen:
                    draw_line(axes, one, "test.ece", linestyle=":")
            if panel.name == "sharpness":
                _thresholds(axes, chosen)
                axes.set_xlabel("step")
            if column:
                axes.set_ylabel("")
        grid[0, column].set_title(drawable(name), parse_math=False)
        draw_legend(grid[-1, column], below=True)
    key = {"training": sample(), "test ECE": sample(linestyle=":"), "2/η, where near": sample(**_DASHED)}
    draw_key(figure, key, note, census([run for run, _ in drawn]))
    return figure


def _thresholds(axes: Axes, chosen: Sequence[Drawn]) -> None:
    for run, (colour, _) in chosen:
        steps, threshold = curve(run, "threshold")
        if len(threshold) and threshold[-1] <= _NEAR * curve(run, "sharpness")[1].max(initial=0.0):
            axes.plot(steps, threshold, color=colour, **_DASHED)


def method(chosen: Sequence[Drawn]) -> Figure | None:
    """Draw all quantities of one method: training on the left, test on the right.

    The sharpness on the right is the sharpness of the test loss, where ``test_curvature`` was read.

    Args:
        chosen: runs of the method with their looks, at least one.

    Returns:
        The figure; None if the runs have no readings.

    References:
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Figures A2 to A7, A9 to A14,
        A16 and A17.
    """
    rows = [panel for panel in PANELS if panel.name not in ("batch_sharpness", "log_q", "test.tce")]
    rows = [panel for panel in rows if _is_read(panel, chosen, "train") or _is_read(panel, chosen, "test")]
    if not rows:
        return None
    figure = new_figure(4.4, 1.15 * len(rows) + 0.5)
    grid = figure.subplots(len(rows), 2, squeeze=False, sharex=True)
    key: dict[str, Any] = {}
    lowest = [0, 0]
    for row, panel in enumerate(rows):
        for column, part in enumerate(("train", "test")):
            if _is_read(panel, chosen, part):
                draw_panel(grid[row, column], panel, chosen, part)
                key |= named(grid[row, column])
                lowest[column] = row
            else:
                grid[row, column].set_axis_off()
    grid[0, 0].set_title(f"{drawable(chosen[0][0].method)}, training", parse_math=False)
    grid[0, 1].set_title("test")
    for column, row in enumerate(lowest):
        grid[row, column].set_xlabel("step")
        grid[row, column].tick_params(labelbottom=True)
    draw_key(figure, key, census([run for run, _ in chosen]))
    return figure


def _is_read(panel: Panel, chosen: Sequence[Drawn], part: str) -> bool:
    return any(len(curve(run, panel.key(part))[0]) for run, _ in chosen)


def portraits(drawn: Sequence[Drawn], names: Sequence[str]) -> Figure | None:
    """Draw ECE against sharpness: one panel per method, and the first of several seeds.

    Every path starts at a circle and ends at a cross. The shade of the path is the learning rate.

    Args:
        drawn: runs with their looks.
        names: methods in order; the first 16 with a path are drawn.

    Returns:
        The figure; None if no run has two readings of both quantities.

    References:
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Figures A1 and A8.
    """
    paths = [(run, look, portrait(run)) for run, look in drawn]
    paths = [item for item in paths if len(item[2]["step"]) > 1]
    names, note = first_few([name for name in names if any(run.method == name for run, _, _ in paths)], _PORTRAITS)
    if not names:
        return None
    numbers = settings([run for run, _, _ in paths])
    seeds = seeds_text(Counter(numbers).values())
    firsts = [item for place, item in enumerate(paths) if numbers.index(numbers[place]) == place]
    down = -(-len(names) // _ACROSS)
    across = -(-len(names) // down)
    figure = new_figure(max(1.8 * across, 2.4) + 0.4, 2.5 * down + 0.1)
    grid = figure.subplots(down, across, squeeze=False)
    for axes in grid.ravel()[len(names) :]:
        axes.set_axis_off()
    for place, (axes, name) in enumerate(zip(grid.ravel(), names, strict=False)):
        for run, (colour, dash), path in (item for item in firsts if item[0].method == name):
            x, y = path["sharpness"], path["ece"]
            axes.plot(x, y, color=colour, linestyle=DASHES[dash], linewidth=0.7, label=rate_text(run))
            axes.plot(x[:1], y[:1], color=colour, **_FIRST)
            axes.plot(x[-1:], y[-1:], color=colour, **_LAST)
        axes.set_title(drawable(name), parse_math=False)
        axes.set(xlabel="GN sharpness", ylabel="" if place % across else "train ECE")
        draw_legend(axes, below=True)
    key = {"first step": sample(**_FIRST), "last step": sample(**_LAST)}
    draw_key(figure, key, note, seeds if seeds == "1 seed" else f"first of {seeds}")
    return figure


# Above all lines, with an edge: the ends stay visible where many lines meet.
_OVER: Any = {"linestyle": "none", "markeredgecolor": "black", "markeredgewidth": 0.5, "zorder": 3}
_FIRST: Any = {"marker": "o", "markersize": 4, **_OVER}
_LAST: Any = {"marker": "X", "markersize": 5, **_OVER}


def horizons(drawn: Sequence[Drawn], names: Sequence[str]) -> Figure | None:
    """Draw the correlations of Table 1 as a function of the step at which training stops.

    The figure shows r of ECE with sharpness over the readings up to every step. If ``test_curvature`` was read, another
    row shows test ECE with the sharpness on the test set.

    Args:
        drawn: runs with their looks.
        names: methods in order; the first eight with a correlation are drawn.

    Returns:
        The figure; None if no run has enough readings.

    References:
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Table 1.
    """
    drawn = [pair for pair in drawn if horizon(pair[0])[0]]
    names, note = first_few([name for name in names if any(run.method == name for run, _ in drawn)])
    if not names:
        return None
    pairs = [("train", "sharpness"), ("test", "sharpness"), ("test", "test.sharpness")]
    pairs = [pair for pair in pairs if any(horizon(run, *pair)[0] for run, _ in drawn)]
    figure = new_figure(1.55 * len(names) + 0.4, 1.2 * len(pairs) + 0.4)
    grid = figure.subplots(len(pairs), len(names), squeeze=False, sharex="col", sharey=True)
    for column, name in enumerate(names):
        chosen = [pair for pair in drawn if pair[0].method == name]
        for axes, (part, sharpness) in zip(grid[:, column], pairs, strict=True):
            axes.axhline(0, color=QUIET, linewidth=0.6)
            paths = [(run, look, horizon(run, part, sharpness)) for run, look in chosen]
            for run, (colour, dash), path in paths:
                axes.plot(*path, color=colour, linestyle=DASHES[dash], label=rate_text(run))
            if not column:
                axes.set(ylabel=f"r, {part} ECE,\n{_OF[sharpness]}", ylim=(-1.05, 1.05))
            elif not any(path[0] for _, _, path in paths):
                axes.set_axis_off()
        grid[0, column].set_title(drawable(name), parse_math=False)
        lowest = next(axes for axes in reversed(grid[:, column]) if axes.axison)
        lowest.set_xlabel("training stops at step")
        lowest.tick_params(labelbottom=True)
        draw_legend(lowest, below=True)
    draw_key(figure, {}, note, census([run for run, _ in drawn]))
    return figure


_OF = {"sharpness": "train sharpness", "test.sharpness": "test sharpness"}
