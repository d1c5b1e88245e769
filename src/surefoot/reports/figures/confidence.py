"""Figure 1 of Tan et al. (2026) by matplotlib: how sure a network is, and how often it is right where it is so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.reports.figures.colours import Look
from surefoot.reports.figures.curves import ConfidenceCurve, Floats, confidence_curve
from surefoot.reports.figures.downsample import evenly
from surefoot.reports.figures.labels import rate_text
from surefoot.reports.figures.mpl_style import QUIET, Drawn, draw_key, first_few, new_figure, said, sample
from surefoot.reports.runs import RunFacts, read_frames

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["confidence"]

_MOST = 6  # columns
# The gap of a bin stands on the bar where the network is too sure, and hangs in it where it is not sure enough.
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
    """Confidence above, reliability below, on the test set at the end; one column a method (its first run)."""
    from matplotlib.patches import Patch

    firsts: dict[str, Drawn] = {}
    for each in drawn:
        firsts.setdefault(each[0].method, each)
    found, note = first_few([(*each, kept) for each in firsts.values() if (kept := _last(each[0]))], _MOST)
    if not found:
        return None
    figure = new_figure(max(1.5 * len(found), 2.8) + 0.4, 3.0)
    grid = figure.subplots(2, len(found), squeeze=False, sharex=True, sharey="row")
    for (top, below), (run, look, kept) in zip(grid.T, found, strict=True):
        several = len({rate_text(other) for other, _ in drawn if other.method == run.method}) > 1
        top.set_title(said(run.method) + (f"\n{rate_text(run)}" if several else ""), parse_math=False)
        _shares(top, kept, look)
        _reliability(below, kept, look)
    grid[0, 0].set_ylabel("share of test set")
    grid[1, 0].set_ylabel("test accuracy")
    key: dict[str, Any] = {name: sample(**own) for name, own in (*_MEANS, ("confidence = accuracy", _DIAGONAL))}
    key |= {name: Patch(**({"facecolor": QUIET} | own)) for name, own in _GAPS}  # grey for the colour of any method
    draw_key(figure, key, "test set, first run of each method", note)
    return figure


def _last(run: RunFacts) -> ConfidenceCurve | None:
    return confidence_curve(read_frames(run.place.folder, lambda total: evenly(total, 1)).frames)


def _shares(axes: Axes, kept: ConfidenceCurve, look: Look) -> None:
    centre, width = _bins(kept.shares)
    axes.bar(centre, kept.shares, width, color=look[0])
    for value, (_, own) in zip((kept.mean_confidence, kept.mean_accuracy), _MEANS, strict=True):
        axes.axvline(value, **own)


def _reliability(axes: Axes, kept: ConfidenceCurve, look: Look) -> None:
    centre, width = _bins(kept.count)
    some = kept.count > 0
    axes.bar(centre[some], kept.accuracy[some], width, color=look[0])
    gap = kept.confidence - kept.accuracy
    for chosen, (_, own) in zip((some & (gap > 0), some & (gap < 0)), _GAPS, strict=True):
        low = np.minimum(kept.accuracy, kept.confidence)[chosen]
        axes.bar(centre[chosen], np.abs(gap[chosen]), width, low, **({"facecolor": "none"} | own))
    axes.plot([0, 1], [0, 1], **_DIAGONAL)
    axes.set(xlabel=f"confidence\nECE {kept.ece:.3f}", xlim=(0, 1), ylim=(0, 1))


def _bins(values: Floats) -> tuple[Floats, float]:
    """Centres and width of as many bins of [0, 1]."""
    return (np.arange(len(values)) + 0.5) / len(values), 1 / len(values)
