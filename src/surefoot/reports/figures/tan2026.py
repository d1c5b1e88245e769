"""The figures of Tan et al. (2026): SAM's perturbation, temperatures, radius and exponent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.reports.figures.compare import by_setting, census, labels
from surefoot.reports.figures.curves import curve, mean_curve
from surefoot.reports.figures.legend import (
    PALETTE,
    Look,
    letter,
    mean_text,
    rate_text,
    run_text,
    setting_looks,
    setting_text,
    setting_words,
    value_of,
)
from surefoot.reports.figures.mpl_style import (
    DASHES,
    LABEL,
    QUIET,
    Drawn,
    draw_key,
    draw_legend,
    draw_line,
    drawable,
    first_few,
    gap,
    named,
    new_figure,
    sample,
)
from surefoot.reports.runs import RunFacts, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["MEASURES", "Line", "Sweep", "ascent", "sweep_figure", "sweeps", "temperature"]

MEASURES = ("test.accuracy", "test.ece", "test.tce", "test.entropy")
_FEWEST = 3  # values; two make no curve
_SETTINGS, _BANDS, _LINES = 12, 6, 8  # what has room in a panel: settings, bands around them, lines of a sweep
_KAPPA = r"$\kappa_{\min}$"
_AFTER = "after a temperature"


def ascent(drawn: Sequence[Drawn]) -> Figure | None:
    """Draw SAM's perturbation during training.

    The figure needs readings of ``ascent``. Without such readings, the figure shows the norm of the perturbation and
    the factors λ and λ₀.

    Args:
        drawn: runs with their looks.

    Returns:
        The figure; None if no run has these readings.

    References:
        Tan et al. (2026), "Towards Understanding the Calibration Benefits of Sharpness-Aware Minimization", Figure 2.
    """
    climbed = next((pair for pair in drawn if len(curve(pair[0], "ascent.kappa_0")[0])), None)
    if climbed is not None:
        return _climb(climbed[0])
    shown = [("rule.epsilon", "‖ε‖"), ("rule.lambda", "λ"), ("rule.lambda0", "λ₀")]
    chosen = [pair for pair in drawn if len(curve(pair[0], "rule.epsilon")[0])]
    if not chosen:
        return None
    figure = new_figure(5.4, 1.8)
    grid = figure.subplots(1, len(shown))
    for axes, (name, title) in zip(grid, shown, strict=True):
        for one in chosen:
            draw_line(axes, one, name, label=f"{drawable(one[0].method)}, {rate_text(one[0])}")
        axes.set(xlabel="step", title=title)
    draw_key(figure, named(grid[0]), census([run for run, _ in chosen]))
    return figure


def _climb(run: RunFacts) -> Figure:
    """(a) κ_min at θ and θ̃ over training, (b) κ_min between θ and θ̃, (c) λ and its lower bound λ₀."""
    figure = new_figure(5.4, 2.5)
    figure.suptitle(drawable(run_text(run)), fontsize=8, parse_math=False)
    panels = ends, way, factors = figure.subplots(1, 3)
    places_ = [name for place in range(99) if len(curve(run, name := f"ascent.kappa_{place}")[0])]
    along = [curve(run, name) for name in places_]
    shown = ((along[0], "θ", "-"), (along[-1], "θ̃", "--"), (curve(run, "ascent.allowed"), "allowed: −‖g‖/ρ", ":"))
    for place, ((steps, values), label, dash) in enumerate(shown):
        ends.plot(steps, values, dash, color=QUIET if dash == ":" else PALETTE[place], label=label)
    ends.set(xlabel="step", ylabel=_KAPPA)
    steps = along[0][0]
    t = [place / max(1, len(along) - 1) for place in range(len(along))]
    for place, at in enumerate(sorted({len(steps) // 4, 3 * len(steps) // 4, len(steps) - 1})):
        heights = [values[at] for _, values in along if len(values) == len(steps)]
        way.plot(
            t[: len(heights)], heights, marker="o", markersize=2.5, color=PALETTE[place], label=f"step {steps[at]:,.0f}"
        )
    way.set(xlabel="t, from θ to θ̃", ylabel=_KAPPA)
    for place, (name, label) in enumerate((("rule.lambda", "λ"), ("rule.lambda0", "λ₀"))):
        factors.plot(*curve(run, name), color=PALETTE[place], label=label)
    factors.set(xlabel="step", ylabel="λ")
    for axes, mark in zip(panels, "abc", strict=True):
        axes.set_title(f"({mark})", loc="left")
        draw_legend(axes, below=True)
    return figure


def temperature(drawn: Sequence[Drawn]) -> Figure | None:
    """Draw ECE before and after temperature scaling, at the end and over training.

    Args:
        drawn: runs with their looks; the first twelve settings are drawn.

    Returns:
        The figure; None if no run has both quantities.

    References:
        Tan et al. (2026), "Towards Understanding the Calibration Benefits of Sharpness-Aware Minimization", Figure 3.
    """
    from matplotlib.patches import Patch

    groups = [[run for run in group if run.outcome in ("finished", "tracked")]
              for group in by_setting([run for run, _ in drawn])]  # fmt: skip
    groups, note = first_few([group for group in groups if all(_ends(group, name) for name in _ECE)], _SETTINGS)
    if not groups:
        return None
    names = [drawable(label, LABEL) for label in labels([group[0] for group in groups])]
    own = setting_looks([setting_words(group[0], name) for group, name in zip(groups, names, strict=True)])
    figure = new_figure(6.6 + 0.045 * max(map(len, names)), max(2.2, 0.8 + 0.2 * len(groups)))
    banded = len(groups) <= _BANDS
    bars, before, after = figure.subplots(1, 3)
    after.sharey(before)
    _bars(bars, groups, own)
    bars.set_yticks(range(len(groups)), names, parse_math=False)
    bars.invert_yaxis()
    for axes, name in zip((before, after), _ECE, strict=True):
        for group, (colour, dash), label in zip(groups, own, names, strict=True):
            steps, (mean, low, high) = mean_curve(group, name)
            axes.plot(steps, mean, color=colour, linestyle=DASHES[dash], label=label)
            if banded:
                axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set(xlabel="step")
    bars.set(title="at the end", xlabel="test ECE")
    bars.locator_params(axis="x", nbins=4)
    before.set(title="as trained", ylabel="test ECE")
    after.set_title(_AFTER)
    key = named(before) | {"as trained": Patch(color=QUIET), _AFTER: Patch(**_hatched(QUIET))}
    spread = f"lines on bars{' and bands' if banded else ''}: least to greatest" if max(map(len, groups)) > 1 else ""
    draw_key(figure, key, note, mean_text(map(len, groups)), spread)
    return figure


_ECE = ("test.ece", "test.tce")


def _ends(group: Sequence[RunFacts], name: str) -> list[float]:
    values = [number(run.final.get(name)) for run in group]
    return [value for value in values if math.isfinite(value)]


def _bars(axes: Axes, groups: Sequence[Sequence[RunFacts]], own: Sequence[Look]) -> None:
    for place, (group, (colour, _)) in enumerate(zip(groups, own, strict=True)):
        for name, aside, style in zip(_ECE, (-0.2, 0.2), ({"color": colour}, _hatched(colour)), strict=True):
            values = _ends(group, name)
            mean = sum(values) / len(values)
            axes.barh(place + aside, mean, 0.4, xerr=[[gap(mean, min(values))], [gap(max(values), mean)]],
                      error_kw={"linewidth": 0.6}, **style)  # fmt: skip


def _hatched(colour: str) -> dict[str, Any]:
    return {"facecolor": "white", "edgecolor": colour, "hatch": "/////", "linewidth": 0.6}


def sweep_figure(drawn: Sequence[Drawn]) -> Figure | None:
    """Draw accuracy, ECE and entropy at the end of training along ρ, γ or another axis of numbers.

    Args:
        drawn: runs with their looks; the first four axes are drawn.

    Returns:
        The figure; None if no axis has three numbers.

    References:
        Tan et al. (2026), "Towards Understanding the Calibration Benefits of Sharpness-Aware Minimization", Figures S5
        and S6.
    """
    shown, note = first_few(sweeps([run for run, _ in drawn]), 4)
    if not shown:
        return None
    figure = new_figure(6.4, 1.7 * len(shown) + 0.1)
    grid = figure.subplots(len(shown), 3, squeeze=False)
    for row, sweep in zip(grid, shown, strict=True):
        _sweep(row, sweep)
    key = {"as trained": sample(marker="o", markersize=2.5), _AFTER: sample(**_OPEN, markersize=2.5)}
    after = any(math.isfinite(v) for sweep in shown for line in sweep.lines for v in line.means["test.tce"])
    means = mean_text(count for sweep in shown for line in sweep.lines for count in line.seeds)
    draw_key(figure, key if after else {}, note, means)
    return figure


_OPEN: Any = {"linestyle": ":", "marker": "o", "markerfacecolor": "none"}


def _sweep(row: Any, sweep: Sweep) -> None:
    lines, note = first_few(sweep.lines, _LINES)
    for axes, (names, title) in zip(row, _MEASURED, strict=True):
        for place, line in enumerate(lines):
            own: Any = {"color": PALETTE[place % len(PALETTE)], "marker": "o", "markersize": 2.5}
            own["linestyle"] = "-" if place < len(PALETTE) else "--"
            axes.plot(line.values, line.means[names[0]], label=drawable(line.label or sweep.study, LABEL), **own)
            for name in names[1:]:
                axes.plot(line.values, line.means[name], **(own | _OPEN))
        axes.set_ylabel(title)
        axes.set_xlabel(drawable(letter(sweep.axis)), parse_math=False)
        values = sorted({value for line in lines for value in line.values})
        if values[0] > 0:
            axes.set_xscale("log")
            if len(values) <= 5:  # more would be written over one another; powers of ten then
                axes.minorticks_off()
                axes.set_xticks(
                    values, [drawable(sweep.texts[value]) for value in values], rotation=30, parse_math=False
                )
    draw_legend(row[-1], title=note)


_MEASURED = (
    (("test.accuracy",), "test accuracy"),
    (("test.ece", "test.tce"), "test ECE"),
    (("test.entropy",), "entropy of p"),
)


@dataclass(frozen=True)
class Line:
    """The runs along an axis that agree on all other axes.

    Attributes:
        label: values of the other axes.
        values: values of the axis, in increasing order.
        seeds: number of runs at every value.
        means: mean of every measure at every value.
    """

    label: str
    values: list[float]
    seeds: list[int]
    means: dict[str, list[float]]


@dataclass(frozen=True)
class Sweep:
    """One axis of one study.

    Attributes:
        study: name of the study.
        axis: name of the axis.
        lines: the lines.
        texts: values of the axis as the study writes them.
    """

    study: str
    axis: str
    lines: list[Line]
    texts: dict[float, str]


def sweeps(runs: Sequence[RunFacts]) -> list[Sweep]:
    """Find every axis with at least three numbers along which runs differ only in the number and the seed.

    Args:
        runs: the runs.

    Returns:
        The axes with their lines.
    """
    studied = [run for run in runs if run.place.study and run.place.counted and run.outcome == "finished"]
    swept = []
    for study, axis in dict.fromkeys((str(run.place.study), axis) for run in studied for axis in run.place.axes):
        groups: dict[str, dict[float, list[RunFacts]]] = {}
        texts: dict[float, str] = {}
        for run in studied:
            text = run.place.axes.get(axis, "") if run.place.study == study else ""
            if math.isfinite(value := value_of(text)):
                others = setting_text({name: text for name, text in run.place.axes.items() if name != axis})
                groups.setdefault(others, {}).setdefault(value, []).append(run)
                texts.setdefault(value, text)
        lines = [_line(label, group) for label, group in groups.items() if len(group) >= _FEWEST]
        if lines:
            swept.append(Sweep(study, axis, lines, texts))
    return swept


def _line(label: str, group: dict[float, list[RunFacts]]) -> Line:
    values = sorted(group)
    means = {}
    for name in MEASURES:
        by_value = [[number(run.final.get(name)) for run in group[value]] for value in values]
        means[name] = [math.fsum(numbers) / len(numbers) for numbers in by_value]
    return Line(label, values, [len(group[value]) for value in values], means)
