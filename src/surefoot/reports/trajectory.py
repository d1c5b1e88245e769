"""Training runs as curves: calibration error and sharpness over the steps, one panel per run."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from surefoot.errors import BadInput
from surefoot.files import replace_file
from surefoot.statistics import Readings, correlation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_trajectories", "save_trajectories"]

_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "#999999"


def save_trajectories(runs: Mapping[str, Readings], path: Path) -> None:
    """Write the figure of the curves.

    Args:
        runs: readings of every run, by name.
        path: path that ends in ``.png``, ``.svg`` or ``.pdf``; the file appears complete or not at all.

    Raises:
        BadInput: if the path has another suffix.
    """
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise BadInput(f"figures are .png, .svg or .pdf; got {path.name!r}")
    buffer = io.BytesIO()
    draw_trajectories(runs).savefig(buffer, format=path.suffix[1:].lower(), dpi=140)
    with replace_file(path) as stream:
        stream.write(buffer.getvalue())


def draw_trajectories(runs: Mapping[str, Readings]) -> Figure:
    """Draw train and test ECE on the left scale and Gauss–Newton sharpness on the right scale, for every run.

    Args:
        runs: readings of every run, by name; at least one run.

    Returns:
        The figure.
    """
    from matplotlib.figure import Figure

    columns = min(4, len(runs))
    rows = -(-len(runs) // columns)
    figure = Figure(figsize=(max(3.6 * columns, 5.0), 2.9 * rows + 0.4), layout="constrained")
    for place, (name, readings) in enumerate(runs.items()):
        axes = figure.add_subplot(rows, columns, place + 1)
        right = axes.twinx()
        for key, colour, style in (("train.ece", _BLUE, "-"), ("test.ece", _BLUE, ":")):
            axes.plot(*_curve(readings, key), style, color=colour, lw=1.3, label=key.replace(".ece", " ECE"))
        right.plot(*_curve(readings, "sharpness"), color=_ORANGE, lw=1.3, label="Gauss–Newton λ_max")
        if any("hessian" in reading for reading in readings):
            right.plot(*_curve(readings, "hessian"), ".", color=_ORANGE, ms=3, label="Hessian λ_max")
        threshold = _curve(readings, "threshold")[1]
        top = max(_curve(readings, "sharpness")[1], default=0.0)
        if len(threshold) and 0 < threshold[-1] <= 2.5 * top:
            right.axhline(threshold[-1], color=_GREY, lw=0.8, ls="--", label="2/η")
        r = correlation(readings, "train.ece", "sharpness")
        axes.set_title(f"{name}{_rate(readings)}   r = {r:.2f}", fontsize=10)
        axes.set(xlabel="step", ylim=(0, None))
        axes.set_ylabel("ECE", color=_BLUE)
        right.set(ylim=(0, None))
        right.set_ylabel("sharpness", color=_ORANGE)
        axes.tick_params(axis="y", colors=_BLUE)
        right.tick_params(axis="y", colors=_ORANGE)
        if place == 0:
            handles = [*axes.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
            named = [str(handle.get_label()) for handle in handles]
            figure.legend(handles, named, fontsize=8, loc="outside upper center", ncols=min(len(handles), 2 * columns),
                          title="r: correlation of train ECE with sharpness", title_fontsize=8)  # fmt: skip
    return figure


def _rate(readings: Readings) -> str:
    """The maximum learning rate, as a schedule changes the rate."""
    rates = _curve(readings, "lr")[1]
    return f", η = {max(rates):.3g}" if rates else ""


def _curve(readings: Readings, key: str) -> tuple[list[float], list[float]]:
    points = [(float(r["step"]), float(r[key])) for r in readings if key in r]
    return [step for step, _ in points], [value for _, value in points]
