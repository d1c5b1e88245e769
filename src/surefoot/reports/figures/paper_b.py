"""Paper B's figures: confidence, SAM's ascent, temperatures, radius and exponent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from surefoot.reports.figures.colours import PALETTE, Look
from surefoot.reports.figures.compare import compare
from surefoot.reports.figures.curves import Sureness, curve, sureness
from surefoot.reports.figures.strokes import GAP, QUIET, Drawn, draw_legend, draw_line, gap, new_figure, said
from surefoot.reports.figures.sweeps import Sweep, sweeps
from surefoot.reports.figures.thin import evenly
from surefoot.reports.runs import RunFacts, read_frames

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ascent", "confidence", "sweep_figure", "temperature"]


def confidence(drawn: Sequence[Drawn]) -> Figure | None:
    """Paper B's Figure 1: confidence above, reliability below, one column a method (its first run)."""
    firsts = {run.method: (run, look) for run, look in reversed(drawn)}
    found: list[tuple[RunFacts, Look, Sureness]] = []
    for run, look in drawn:
        if firsts[run.method][0] is run and len(found) < 6:
            kept = sureness(read_frames(run.place.folder, lambda total: evenly(total, 1)).frames)
            if kept is not None:
                found.append((run, look, kept))
    if not found:
        return None
    figure = new_figure(1.5 * len(found) + 0.4, 3.0)
    grid = figure.subplots(2, len(found), squeeze=False, sharex=True, sharey="row")
    for column, (run, (colour, _), kept) in enumerate(found):
        top, below = grid[0, column], grid[1, column]
        width = 1 / len(kept.shares)
        top.bar([(place + 0.5) * width for place in range(len(kept.shares))], kept.shares, width, color=colour)
        sure = top.axvline(kept.mean_confidence, color="black", linewidth=1)
        right = top.axvline(kept.mean_accuracy, color="black", linewidth=1, linestyle=":")
        top.set_title(said(run.method), parse_math=False)
        some = kept.count > 0
        width = 1 / len(kept.count)
        centre = [(place + 0.5) * width for place in range(len(kept.count)) if some[place]]
        accuracy, confidence = kept.accuracy[some], kept.confidence[some]
        below.bar(centre, accuracy, width, color=colour)
        below.bar(centre, confidence - accuracy, width, accuracy, color=QUIET, alpha=0.35)
        below.plot([0, 1], [0, 1], color=QUIET, linewidth=0.6, linestyle="--")
        below.set(xlabel=f"confidence\nECE {kept.ece:.3f}", xlim=(0, 1), ylim=(0, 1))
    grid[0, 0].set_ylabel("share of examples")
    grid[1, 0].set_ylabel("accuracy")
    figure.legend([sure, right], ["mean confidence", "accuracy"], loc="outside upper center", ncols=2, frameon=False)
    return figure


def ascent(drawn: Sequence[Drawn]) -> Figure | None:
    """Paper B's Figure 2 from readings of ``ascent``; without them how far it goes, and the factors λ and λ₀."""
    climbed = next((each for each in drawn if len(curve(each[0], "ascent.kappa_0")[0])), None)
    if climbed is not None:
        return _climb(climbed[0])
    shown = [("rule.epsilon", "‖ε‖"), ("rule.lambda", "λ"), ("rule.lambda0", "λ₀")]
    chosen = [each for each in drawn if len(curve(each[0], "rule.epsilon")[0])]
    if not chosen:
        return None
    figure = new_figure(5.4, 1.8)
    grid = figure.subplots(1, len(shown), squeeze=False)
    several = len({run.rate for run, _ in chosen}) > 1
    for place, (name, title) in enumerate(shown):
        for one in chosen:
            rate = f", η = {one[0].rate:.3g}" if several else ""
            draw_line(grid[0, place], one, name, label=said(one[0].method) + rate)
        grid[0, place].set(xlabel="step", title=title)
    draw_legend(grid[0, 0])
    return figure


def _climb(run: RunFacts) -> Figure:
    """(a) κ_min at θ and θ̃ over training, (b) along the way between them, (c) λ and its lower bound λ₀."""
    figure = new_figure(5.4, 2.0)
    figure.suptitle(said(run.label or run.method), fontsize=7, parse_math=False)
    ends, way, factors = figure.subplots(1, 3)
    places_ = [name for place in range(99) if len(curve(run, name := f"ascent.kappa_{place}")[0])]
    along = [curve(run, name) for name in places_]
    shown = ((along[0], "θ", "-"), (along[-1], "θ̃", "--"), (curve(run, "ascent.allowed"), "allowed: −‖g‖/ρ", ":"))
    for place, ((steps, values), label, dash) in enumerate(shown):
        ends.plot(steps, values, dash, color=QUIET if dash == ":" else PALETTE[place], label=label)
    ends.set(xlabel="step", ylabel="κ_min")
    draw_legend(ends)
    steps = along[0][0]
    t = [place / max(1, len(along) - 1) for place in range(len(along))]
    for place, at in enumerate(sorted({len(steps) // 4, 3 * len(steps) // 4, len(steps) - 1})):
        heights = [values[at] for _, values in along if len(values) == len(steps)]
        way.plot(
            t[: len(heights)], heights, marker="o", markersize=2.5, color=PALETTE[place], label=f"step {steps[at]:,.0f}"
        )
    way.set(xlabel="t, from θ to θ̃", ylabel="κ_min")
    draw_legend(way)
    for place, (name, label) in enumerate((("rule.lambda", "λ"), ("rule.lambda0", "λ₀"))):
        factors.plot(*curve(run, name), color=PALETTE[place], label=label)
    factors.set(xlabel="step", ylabel="λ")
    draw_legend(factors)
    return figure


def temperature(drawn: Sequence[Drawn]) -> Figure | None:
    """Paper B's Figure 3: ECE before and after temperature scaling at the end, and over training."""
    entries = [entry for entry in compare([run for run, _ in drawn]) if "test.tce" in entry["measures"]][:12]
    if not entries:
        return None
    figure = new_figure(5.4, 2.2)
    left, right = figure.subplots(1, 2)
    places_ = range(len(entries))
    for name, colour, label in (("test.ece", GAP, "before"), ("test.tce", "#0072B2", "after")):
        found = [entry["measures"][name] for entry in entries]
        spread = [
            [gap(each["mean"], each["low"]) for each in found],
            [gap(each["high"], each["mean"]) for each in found],
        ]
        shift = -0.2 if name == "test.ece" else 0.2
        left.bar([x + shift for x in places_], [each["mean"] for each in found], 0.4, color=colour, label=label,
                 yerr=spread, error_kw={"linewidth": 0.6})  # fmt: skip
    left.set_xticks(
        list(places_), [said(entry["label"]) for entry in entries], rotation=30, ha="right", parse_math=False
    )
    left.set(ylabel="test ECE")
    left.legend(frameon=False)
    for one in (each for each in drawn if each[0].place.counted):
        if draw_line(right, one, "test.ece", label=said(one[0].method)):
            draw_line(right, one, "test.tce", linestyle=":")
    right.set(xlabel="step", ylabel="test ECE (dotted: after)")
    draw_legend(right, beside=True)
    return figure


def sweep_figure(drawn: Sequence[Drawn]) -> Figure | None:
    """Paper B's Figures S5 and S6: accuracy, ECE and entropy at the end along ρ, γ or any other axis of numbers."""
    found = sweeps([run for run, _ in drawn])[:4]
    if not found:
        return None
    figure = new_figure(5.4, 1.7 * len(found) + 0.2)
    grid = figure.subplots(len(found), 3, squeeze=False)
    for row, each in zip(grid, found, strict=True):
        _sweep(row, each)
    return figure


def _sweep(row: Any, sweep: Sweep) -> None:
    columns = (("test.accuracy", "", "test accuracy"), ("test.ece", "test.tce", "test ECE\n(dotted: after)"),
               ("test.entropy", "", "entropy of p"))  # fmt: skip
    for axes, (name, after, title) in zip(row, columns, strict=True):
        if not any(math.isfinite(value) for line in sweep.lines for value in line.means.get(after, [])):
            after, title = "", title.partition("\n")[0]
        for place, line in enumerate(sweep.lines[:8]):
            own: Any = {"color": PALETTE[place % len(PALETTE)], "marker": "o", "markersize": 2.5}
            own["linestyle"] = "-" if place < len(PALETTE) else "--"
            axes.plot(line.values, line.means[name], label=said(line.label or sweep.study), **own)
            if after:
                axes.plot(line.values, line.means[after], **(own | {"linestyle": ":", "markerfacecolor": "none"}))
        axes.set_ylabel(title)
        axes.set_xlabel(said(sweep.axis), parse_math=False)
        values = sorted({value for line in sweep.lines for value in line.values})
        if values[0] > 0:
            axes.set_xscale("log")
            if len(values) <= 5:  # more would be written over one another; powers of ten then
                axes.minorticks_off()
                axes.set_xticks(values, [f"{value:.3g}" for value in values])
    if len(sweep.lines) > 8:
        row[0].set_title(f"8 of {len(sweep.lines)} lines")
    draw_legend(row[1], below=True)
