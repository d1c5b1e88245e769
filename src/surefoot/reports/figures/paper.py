"""The papers' figures drawn by matplotlib from the runs of a folder, each as PDF, SVG and PNG."""

from __future__ import annotations

import io
import itertools
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.errors import StorageFault
from surefoot.files import replace_file
from surefoot.reports.figures.colours import PALETTE, Look, looks
from surefoot.reports.figures.compare import compare
from surefoot.reports.figures.curves import Sureness, curve, sureness
from surefoot.reports.figures.panels import PANELS, Panel
from surefoot.reports.figures.portrait import horizon, portrait
from surefoot.reports.figures.shift import under_shift
from surefoot.reports.figures.sweeps import Sweep, sweeps
from surefoot.reports.figures.thin import evenly
from surefoot.reports.places import places
from surefoot.reports.runs import RunFacts, read_frames, read_run
from surefoot.reports.text import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["save_figures"]

_FORMATS = ("pdf", "svg", "png")
_STYLE: Any = {
    "font.size": 7, "axes.titlesize": 8, "axes.labelsize": 7, "legend.fontsize": 6, "axes.linewidth": 0.6,
    "xtick.major.width": 0.6, "ytick.major.width": 0.6, "lines.linewidth": 0.9, "axes.spines.top": False,
    "axes.spines.right": False, "svg.hashsalt": "surefoot", "pdf.fonttype": 42,
}  # fmt: skip
_DASHES = {"solid": "-", "dash": "--", "dashdot": "-.", "longdash": (0, (8, 2))}
_MARKS = {"solid": "o", "dash": "s", "dashdot": "D", "longdash": "^"}
_GAP, _QUIET = "#D55E00", "#8A8A8A"
_MOST = 200  # runs; more lines than that show nothing
_LONGEST = 40  # letters of a name

Drawn = tuple[RunFacts, Look]


def save_figures(folder: Path, out: Path) -> tuple[list[Path], dict[str, str]]:
    """Write what the runs hold; the paths without suffix, and why the others were left out."""
    from matplotlib import rc_context

    runs = [read_run(place) for place in places(folder)[:_MOST]]
    runs = [run for run in runs if len(run.columns) > 1]
    drawn = list(zip(runs, looks([(run.method, run.rate) for run in runs]), strict=True))
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFault(f"cannot make the folder {str(out)!r}: {error.strerror}") from error
    written: list[Path] = []
    skipped: dict[str, str] = {}
    with rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter of a name that the font lacks is drawn as a box
        for name, make, lacking in _plan(drawn):
            figure = make()
            if figure is None:
                skipped[name] = lacking
                continue
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # laid out once, not for every format
            for kind in _FORMATS:
                buffer = io.BytesIO()
                dated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}[kind]
                figure.savefig(buffer, format=kind, dpi=200, metadata=dated)  # the same runs give the same bytes
                with replace_file(out / f"{name}.{kind}") as stream:
                    stream.write(buffer.getvalue())
            written.append(out / name)
    return written, skipped


def _plan(drawn: Sequence[Drawn]) -> Iterator[tuple[str, Callable[[], Figure | None], str]]:
    """Names, makers, and what is missing where a maker has nothing to draw."""
    names = list(dict.fromkeys(run.method for run, _ in drawn))
    readings = "no run has calibration and curvature readings"
    yield "paper-a-figure-1", lambda: _dynamics(drawn, names), readings
    yield "paper-a-figure-a1-portrait", lambda: _portraits(drawn), readings
    yield "paper-a-table-1-horizon", lambda: _horizons(drawn, names), readings
    for name, stem in zip(names, _stems(names), strict=True):
        chosen = [each for each in drawn if each[0].method == name]
        yield f"paper-a-figure-a2-{stem}", lambda chosen=chosen: _method(chosen), readings  # type: ignore[misc]
    yield "paper-b-figure-1-confidence", lambda: _confidence(drawn), "no histograms; turn on track.histograms"
    yield "paper-b-figure-2-ascent", lambda: _ascent(drawn), "no run of SAM or CSAM"
    yield "paper-b-figure-3-temperature", lambda: _temperature(drawn), "no validation set; set data.val"
    yield "paper-b-figure-s5-sweeps", lambda: _sweeps(drawn), "no study of three numbers or more along an axis"
    yield "shift", lambda: _shift(drawn), "no run was read on corrupted images; add a table [shift]"


def _stems(names: Sequence[str]) -> list[str]:
    """Parts of file names for methods; where two would be the same, the later ones are numbered."""
    found: list[str] = []
    for name in names:
        stem = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "method"
        numbered = (f"{stem}-{place}" for place in itertools.count(2))
        found.append(next(each for each in itertools.chain([stem], numbered) if each not in found))
    return found


def _said(name: str) -> str:
    """A name that a font can draw and an SVG file can hold."""
    text = plain(name)
    text = f" {text}" if text.startswith("_") else text  # matplotlib leaves such names out of legends
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _line(axes: Axes, drawn: Drawn, name: str, **own: Any) -> bool:
    run, (colour, dash) = drawn
    steps, values = curve(run, name)
    if not len(steps):
        return False
    axes.plot(steps, values, **{"color": colour, "linestyle": _DASHES[dash], **own})
    return True


def _panel(axes: Axes, each: Panel, chosen: Sequence[Drawn], part: str) -> bool:
    """The panel's curves; whether there are any."""
    found = [_line(axes, one, each.key(part), label=f"η = {one[0].rate:.3g}") for one in chosen]
    if each.log and all((curve(run, each.key(part))[1] > 0).all() for run, _ in chosen):
        _log(axes)
    axes.set_ylabel(each.title.replace("Gauss–Newton", "GN"))
    return any(found)


def _log(axes: Axes) -> None:
    """A logarithmic scale that is labelled at powers of ten alone."""
    from matplotlib.ticker import NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_minor_formatter(NullFormatter())


def _dynamics(drawn: Sequence[Drawn], names: Sequence[str]) -> Figure | None:
    """Figures 1, 2 and A15: loss, ECE and sharpness of each method, learning rates by shade, 2/η dashed."""
    rows = [panel for panel in PANELS if panel.name in ("nll", "ece", "sharpness")]
    drawn = [each for each in drawn if len(curve(each[0], "sharpness")[0]) and len(curve(each[0], "train.ece")[0])]
    names = [name for name in names if any(run.method == name for run, _ in drawn)][:8]
    if not names:
        return None
    figure = _figure(1.55 * len(names) + 0.4, 3.6)
    grid = figure.subplots(len(rows), len(names), squeeze=False, sharex=True, sharey="row")
    for column, name in enumerate(names):
        chosen = [each for each in drawn if each[0].method == name]
        for row, panel in enumerate(rows):
            axes = grid[row, column]
            _panel(axes, panel, chosen, "train")
            if panel.name == "ece":
                for one in chosen:
                    _line(axes, one, "test.ece", linestyle=":")
            if panel.name == "sharpness":
                for run, (colour, _) in chosen:
                    steps, threshold = curve(run, "threshold")
                    top = curve(run, "sharpness")[1].max(initial=0.0)
                    if len(threshold) and threshold[-1] <= 4 * top:
                        axes.plot(steps, threshold, color=colour, linewidth=0.6, linestyle="--")
                axes.set_xlabel("step")
            if column:
                axes.set_ylabel("")
        grid[0, column].set_title(_said(name), parse_math=False)
        if len({run.rate for run, _ in chosen}) > 1:
            _legend(grid[-1, column], below=True)
    return figure


def _method(chosen: Sequence[Drawn]) -> Figure | None:
    """Figures A2 to A7 and A9 to A14: everything about one method; training left, test right."""
    rows = [panel for panel in PANELS if panel.name not in ("batch_sharpness", "log_q", "test.tce")]
    rows = [panel for panel in rows if any(len(curve(run, panel.key("train"))[0]) for run, _ in chosen)]
    if not rows:
        return None
    figure = _figure(4.4, 1.15 * len(rows) + 0.4)
    grid = figure.subplots(len(rows), 2, squeeze=False, sharex=True)
    for row, panel in enumerate(rows):
        for column, part in enumerate(("train", "test")):
            if panel.parts or part == "train":
                _panel(grid[row, column], panel, chosen, part)
            else:
                grid[row, column].set_axis_off()
    grid[0, 0].set_title(f"{_said(chosen[0][0].method)}, training", parse_math=False)
    grid[0, 1].set_title("test")
    for column, part in enumerate(("train", "test")):
        last = max(row for row, panel in enumerate(rows) if panel.parts or part == "train")
        grid[last, column].set_xlabel("step")
        grid[last, column].tick_params(labelbottom=True)
    if len({run.rate for run, _ in chosen}) > 1:
        _legend(grid[0, 0])
    return figure


def _portraits(drawn: Sequence[Drawn]) -> Figure | None:
    """Figures A1 and A8: ECE against sharpness; a dot at the first step, a cross at the last."""
    paths = [(run, look, portrait(run)) for run, look in drawn]
    paths = [each for each in paths if len(each[2]["step"]) > 1]
    if not paths:
        return None
    figure = _figure(3.5, 2.7)
    axes = figure.subplots()
    named: set[str] = set()
    for run, (colour, dash), path in paths:
        label = None if run.method in named else _said(run.method)
        named.add(run.method)
        x, y = path["sharpness"], path["ece"]
        axes.plot(x, y, color=colour, linestyle=_DASHES[dash], label=label)
        axes.plot(x[:1], y[:1], "o", color=colour, markersize=3.5)
        axes.plot(x[-1:], y[-1:], "x", color=colour, markersize=4.5)
    axes.set(xlabel="Gauss–Newton sharpness", ylabel="train ECE (15 bins)")
    _legend(axes)
    return figure


def _horizons(drawn: Sequence[Drawn], names: Sequence[str]) -> Figure | None:
    """Table 1 as a function of where training stops: r of ECE with sharpness over the readings up to each step."""
    drawn = [each for each in drawn if horizon(each[0])[0]]
    names = [name for name in names if any(run.method == name for run, _ in drawn)][:8]
    if not names:
        return None
    figure = _figure(1.55 * len(names) + 0.4, 2.8)
    grid = figure.subplots(2, len(names), squeeze=False, sharex=True, sharey=True)
    for column, name in enumerate(names):
        chosen = [each for each in drawn if each[0].method == name]
        for axes, part in zip(grid[:, column], ("train", "test"), strict=True):
            axes.axhline(0, color=_QUIET, linewidth=0.6)
            for run, (colour, dash) in chosen:
                axes.plot(*horizon(run, part), color=colour, linestyle=_DASHES[dash], label=f"η = {run.rate:.3g}")
            if not column:
                axes.set(ylabel=f"r, {part} ECE", ylim=(-1.05, 1.05))
        grid[0, column].set_title(_said(name), parse_math=False)
        grid[1, column].set_xlabel("training stops at")
        if len({run.rate for run, _ in chosen}) > 1:
            _legend(grid[1, column], below=True)
    return figure


def _confidence(drawn: Sequence[Drawn]) -> Figure | None:
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
    figure = _figure(1.5 * len(found) + 0.4, 3.0)
    grid = figure.subplots(2, len(found), squeeze=False, sharex=True, sharey="row")
    for column, (run, (colour, _), kept) in enumerate(found):
        top, below = grid[0, column], grid[1, column]
        width = 1 / len(kept.shares)
        top.bar([(place + 0.5) * width for place in range(len(kept.shares))], kept.shares, width, color=colour)
        top.axvline(kept.mean_confidence, color="black", linewidth=1)
        top.axvline(kept.mean_accuracy, color="black", linewidth=1, linestyle=":")
        top.set_title(_said(run.method), parse_math=False)
        some = kept.count > 0
        width = 1 / len(kept.count)
        centre = [(place + 0.5) * width for place in range(len(kept.count)) if some[place]]
        accuracy, confidence = kept.accuracy[some], kept.confidence[some]
        below.bar(centre, accuracy, width, color=colour)
        below.bar(centre, confidence - accuracy, width, accuracy, color=_QUIET, alpha=0.35)
        below.plot([0, 1], [0, 1], color=_QUIET, linewidth=0.6, linestyle="--")
        below.set(xlabel=f"confidence\nECE {kept.ece:.3f}", xlim=(0, 1), ylim=(0, 1))
    grid[0, 0].set_ylabel("share of examples")
    grid[1, 0].set_ylabel("accuracy")
    return figure


def _ascent(drawn: Sequence[Drawn]) -> Figure | None:
    """Paper B's Figure 2 from readings of ``ascent``; without them how far it goes, and the factors λ and λ₀."""
    climbed = next((each for each in drawn if len(curve(each[0], "ascent.kappa_0")[0])), None)
    if climbed is not None:
        return _climb(climbed[0])
    shown = [("rule.epsilon", "‖ε‖"), ("rule.lambda", "λ"), ("rule.lambda0", "λ₀")]
    chosen = [each for each in drawn if len(curve(each[0], "rule.epsilon")[0])]
    if not chosen:
        return None
    figure = _figure(5.4, 1.8)
    grid = figure.subplots(1, len(shown), squeeze=False)
    for place, (name, title) in enumerate(shown):
        for one in chosen:
            _line(grid[0, place], one, name, label=_said(one[0].method))
        grid[0, place].set(xlabel="step", title=title)
    _legend(grid[0, 0])
    return figure


def _climb(run: RunFacts) -> Figure:
    """(a) κ_min at θ and θ̃ over training, (b) along the way between them, (c) λ and its lower bound λ₀."""
    figure = _figure(5.4, 2.0)
    figure.suptitle(_said(run.label or run.method), fontsize=7, parse_math=False)
    ends, way, factors = figure.subplots(1, 3)
    places_ = [name for place in range(99) if len(curve(run, name := f"ascent.kappa_{place}")[0])]
    along = [curve(run, name) for name in places_]
    shown = ((along[0], "θ", "-"), (along[-1], "θ̃", "--"), (curve(run, "ascent.allowed"), "allowed: −‖g‖/ρ", ":"))
    for place, ((steps, values), label, dash) in enumerate(shown):
        ends.plot(steps, values, dash, color=_QUIET if dash == ":" else PALETTE[place], label=label)
    ends.set(xlabel="step", ylabel="κ_min")
    _legend(ends)
    steps = along[0][0]
    t = [place / max(1, len(along) - 1) for place in range(len(along))]
    for place, at in enumerate(sorted({len(steps) // 4, 3 * len(steps) // 4, len(steps) - 1})):
        heights = [values[at] for _, values in along if len(values) == len(steps)]
        way.plot(
            t[: len(heights)], heights, marker="o", markersize=2.5, color=PALETTE[place], label=f"step {steps[at]:,.0f}"
        )
    way.set(xlabel="t, from θ to θ̃", ylabel="κ_min")
    _legend(way)
    for place, (name, label) in enumerate((("rule.lambda", "λ"), ("rule.lambda0", "λ₀"))):
        factors.plot(*curve(run, name), color=PALETTE[place], label=label)
    factors.set(xlabel="step", ylabel="λ")
    _legend(factors)
    return figure


def _temperature(drawn: Sequence[Drawn]) -> Figure | None:
    """Paper B's Figure 3: ECE before and after temperature scaling at the end, and over training."""
    entries = [entry for entry in compare([run for run, _ in drawn]) if "test.tce" in entry["measures"]][:12]
    if not entries:
        return None
    figure = _figure(5.4, 2.2)
    left, right = figure.subplots(1, 2)
    places_ = range(len(entries))
    for name, colour, label in (("test.ece", _GAP, "before"), ("test.tce", "#0072B2", "after")):
        found = [entry["measures"][name] for entry in entries]
        spread = [
            [_gap(each["mean"], each["low"]) for each in found],
            [_gap(each["high"], each["mean"]) for each in found],
        ]
        shift = -0.2 if name == "test.ece" else 0.2
        left.bar([x + shift for x in places_], [each["mean"] for each in found], 0.4, color=colour, label=label,
                 yerr=spread, error_kw={"linewidth": 0.6})  # fmt: skip
    left.set_xticks(
        list(places_), [_said(entry["label"]) for entry in entries], rotation=30, ha="right", parse_math=False
    )
    left.set(ylabel="test ECE")
    left.legend(frameon=False)
    for one in drawn:
        if _line(right, one, "test.ece", label=_said(one[0].method)):
            _line(right, one, "test.tce", linestyle=":")
    right.set(xlabel="step", ylabel="test ECE (dotted: after)")
    _legend(right)
    return figure


def _sweeps(drawn: Sequence[Drawn]) -> Figure | None:
    """Paper B's Figures S5 and S6: accuracy, ECE and entropy at the end along ρ, γ or any other axis of numbers."""
    found = sweeps([run for run, _ in drawn])[:4]
    if not found:
        return None
    figure = _figure(5.4, 1.7 * len(found) + 0.2)
    grid = figure.subplots(len(found), 3, squeeze=False)
    for row, each in zip(grid, found, strict=True):
        _sweep(row, each)
    return figure


def _sweep(row: Any, sweep: Sweep) -> None:
    columns = (("test.accuracy", "", "test accuracy"), ("test.ece", "test.tce", "test ECE (dotted: after)"),
               ("test.entropy", "", "entropy of p"))  # fmt: skip
    for axes, (name, after, title) in zip(row, columns, strict=True):
        for place, line in enumerate(sweep.lines[:8]):
            own: Any = {"color": PALETTE[place % len(PALETTE)], "marker": "o", "markersize": 2.5}
            own["linestyle"] = "-" if place < len(PALETTE) else "--"
            axes.plot(line.values, line.means[name], label=_said(line.label or sweep.study), **own)
            if after:
                axes.plot(line.values, line.means[after], **(own | {"linestyle": ":", "markerfacecolor": "none"}))
        axes.set_ylabel(title)
        axes.set_xlabel(_said(sweep.axis), parse_math=False)
        values = sorted({value for line in sweep.lines for value in line.values})
        if values[0] > 0:
            axes.set_xscale("log")
            axes.minorticks_off()
            axes.set_xticks(values[:6], [f"{value:.3g}" for value in values[:6]])
    if len(sweep.lines) > 8:
        row[0].set_title(f"8 of {len(sweep.lines)} lines")
    _legend(row[0])


def _shift(drawn: Sequence[Drawn]) -> Figure | None:
    """ECE from clean to severity 5, dotted after the temperature of clean data, and by kind, the worst on top."""
    found = under_shift([run for run, _ in drawn])
    kinds = found["kinds"]
    if not kinds:
        return None
    own = {(run.method, str(run.rate)): look for run, look in drawn}  # as text: a rate may be NaN
    entries = [(entry, own[entry["method"], str(entry["rate"])]) for entry in found["settings"][:12]]
    figure = _figure(5.4, max(2.4, 0.8 + 0.16 * len(kinds)))
    left, right = figure.subplots(1, 2)
    _severities(left, entries)
    for entry, (colour, dash) in entries:
        known = [at for at, kind in enumerate(kinds) if "ece" in entry["kinds"].get(kind, {})]
        values = [entry["kinds"][kinds[at]]["ece"] for at in known]
        right.plot(values, known, _MARKS[dash], color=colour, markersize=3, label=_said(entry["label"]))
    right.set_yticks(range(len(kinds)), [_said(kind.replace("_", " ")) for kind in kinds], parse_math=False)
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
            [list(map(_gap, means, low)), list(map(_gap, high, means))],
            color=colour,
            linestyle=_DASHES[dash] if name == "plain" else ":",
            marker=_MARKS[dash],
            markersize=3,
            markerfacecolor=colour if name == "plain" else "none",
            markeredgewidth=0.6,
            elinewidth=0.5,
        )
    axes.set(xlabel="severity (0: clean)", ylabel="ECE (dotted: after temperature)", ylim=(0, None), xticks=range(6))


def _gap(high: float, low: float) -> float:
    return max(0.0, high - low) if math.isfinite(high) and math.isfinite(low) else 0.0


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _legend(axes: Axes, below: bool = False) -> None:
    """Each name once; below the axes where curves would lie under it."""
    handles, names = axes.get_legend_handles_labels()
    once = dict(zip(reversed(names), reversed(handles), strict=True))
    order = list(dict.fromkeys(names))
    place: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.4)} if below else {}
    legend = axes.legend([once[name] for name in order], order, frameon=False, ncols=1 + len(order) // 6, **place)
    for text in legend.get_texts():
        text.set_parse_math(False)  # a name may hold dollars
