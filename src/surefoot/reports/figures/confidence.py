"""Figure 1 of Tan et al. (2026) by matplotlib: the confidence of a network, and the accuracy at every confidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.reports.figures.curves import ConfidenceCurve, Floats, confidence_curve
from surefoot.reports.figures.downsample import evenly
from surefoot.reports.figures.legend import Look, rate_text
from surefoot.reports.figures.mpl_style import QUIET, Drawn, draw_key, drawable, first_few, new_figure, sample
from surefoot.reports.runs import RunFacts, read_frames

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["confidence"]

_MOST = 6  # columns
# The gap of a bin is above the bar if the network is overconfident, and inside the bar if it is underconfident.
_GAPS: tuple[tuple[str, Any], ...] = (
    ("confidence above accuracy", {"facecolor": "white", "edgecolor": "black", "hatch": "/////", "linewidth": 0.4}),
    ("accuracy above confidence", {"edgecolor": "black", "hatch": ".....", "linewidth": 0.4}),
)
_MEANS: tuple[tuple[str, Any], ...] = (
    ("mean confidence", {"color": "black", "linewidth": 1}),
    ("accuracy", {"color": "black", "linewidth": 1, "linestyle": ":"}),
)
_DIAGONAL: Any = {"color": QUIET, "linewidth": 0.8, "linestyle": "--"}


def confidence(drawn: Sequence[Drawn]) -> Figure | None:
    """Draw the confidence histogram above the reliability diagram of the test set at the end of training.

    Args:
        drawn: runs with their looks. Every method has one column, for its first run with histograms.

    Returns:
        The figure; None if no run has histograms.

    References:
        Tan et al. (2026), "Towards Understanding the Calibration Benefits of Sharpness-Aware Minimization", Figure 1.
    """
    from matplotlib.patches import Patch

    firsts: dict[str, Drawn] = {}
    for pair in drawn:
        firsts.setdefault(pair[0].method, pair)
    columns, note = first_few(
        [(*pair, histograms) for pair in firsts.values() if (histograms := _last(pair[0]))], _MOST
    )
    if not columns:
        return None
    figure = new_figure(max(1.5 * len(columns), 2.8) + 0.4, 3.0)
    grid = figure.subplots(2, len(columns), squeeze=False, sharex=True, sharey="row")
    for (top, below), (run, look, histograms) in zip(grid.T, columns, strict=True):
        several = len({rate_text(other) for other, _ in drawn if other.method == run.method}) > 1
        top.set_title(drawable(run.method) + (f"\n{rate_text(run)}" if several else ""), parse_math=False)
        _shares(top, histograms, look)
        _reliability(below, histograms, look)
    grid[0, 0].set_ylabel("share of test set")
    grid[1, 0].set_ylabel("test accuracy")
    key: dict[str, Any] = {name: sample(**own) for name, own in (*_MEANS, ("confidence = accuracy", _DIAGONAL))}
    key |= {name: Patch(**({"facecolor": QUIET} | own)) for name, own in _GAPS}  # grey for the colour of any method
    draw_key(figure, key, "test set, first run of each method", note)
    return figure


def _last(run: RunFacts) -> ConfidenceCurve | None:
    return confidence_curve(read_frames(run.place.folder, lambda total: evenly(total, 1)).frames)


def _shares(axes: Axes, histograms: ConfidenceCurve, look: Look) -> None:
    centre, width = _bins(histograms.shares)
    axes.bar(centre, histograms.shares, width, color=look[0])
    for value, (_, own) in zip((histograms.mean_confidence, histograms.mean_accuracy), _MEANS, strict=True):
        axes.axvline(value, **own)


def _reliability(axes: Axes, histograms: ConfidenceCurve, look: Look) -> None:
    centre, width = _bins(histograms.count)
    some = histograms.count > 0
    axes.bar(centre[some], histograms.accuracy[some], width, color=look[0])
    gap = histograms.confidence - histograms.accuracy
    for chosen, (_, own) in zip((some & (gap > 0), some & (gap < 0)), _GAPS, strict=True):
        low = np.minimum(histograms.accuracy, histograms.confidence)[chosen]
        axes.bar(centre[chosen], np.abs(gap[chosen]), width, low, **({"facecolor": "none"} | own))
    axes.plot([0, 1], [0, 1], **_DIAGONAL)
    axes.set(xlabel=f"confidence\nECE {histograms.ece:.3f}", xlim=(0, 1), ylim=(0, 1))


def _bins(values: Floats) -> tuple[Floats, float]:
    """Centres and width of equal bins of [0, 1], one per value."""
    return (np.arange(len(values)) + 0.5) / len(values), 1 / len(values)
