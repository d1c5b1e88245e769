"""The reliability diagram as a picture: matplotlib for paper formats, plotly for one self-contained page.

Both draw a `Reliability`; every number in the picture is in the table of the `Reliability`.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.errors import BadInput
from surefoot.files import replace_file
from surefoot.metrics.reliability import Reliability

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "Panels", "draw", "escape", "page", "save_figure"]

FORMATS = (".svg", ".png", ".pdf", ".html")

# Okabe and Ito's palette, which colour-blind readers can distinguish.
_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "#999999"


Panels = Sequence[tuple[str, Reliability]]


def save_figure(panels: Panels, path: Path, below: str = "") -> None:
    """Write titled diagrams side by side, in the format of the path's suffix.

    Args:
        panels: title and diagram of every panel.
        path: path that ends in ``.svg``, ``.png``, ``.pdf`` or ``.html``; the file appears complete or not at all.
        below: HTML below the diagrams of a page; the other formats leave the HTML out.

    Raises:
        BadInput: if the path has another suffix.
    """
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise BadInput(f"a figure is written to {', '.join(FORMATS)}; got {path.name!r}")
    if suffix == ".html":
        data = page(panels, below).encode()
    else:
        buffer = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a letter of the title that the font lacks is drawn as a box
            draw(panels).savefig(buffer, format=suffix[1:], dpi=160)
        data = buffer.getvalue()
    with replace_file(path) as stream:
        stream.write(data)


def caption(diagram: Reliability) -> str:
    """ECE with its binning and n, and the two means."""
    table = diagram.table
    kind = "equal width" if diagram.binning == "width" else "equal mass"
    return (
        f"ECE {diagram.ece:.4f} ({len(table.count)} bins of {kind}, n = {table.n:,}); "
        f"mean confidence {diagram.mean_confidence:.4f}, accuracy {diagram.accuracy:.4f}"
    )


def draw(panels: Panels) -> Figure:
    """Draw diagrams with matplotlib: accuracy per bin against the diagonal, and the number of rows in every bin.

    Args:
        panels: title and diagram of every panel.

    Returns:
        The figure.
    """
    from matplotlib.figure import Figure  # imported here: the import takes half a second

    figure = Figure(figsize=(5.2 * len(panels), 6.2), layout="constrained")
    axes = figure.subplots(2, len(panels), sharex=True, sharey="row", height_ratios=[3.4, 1], squeeze=False)
    for column, (title, diagram) in enumerate(panels):
        _draw_panel(axes[0, column], axes[1, column], diagram, title)
    return figure


def _draw_panel(top: Axes, bottom: Axes, diagram: Reliability, title: str) -> None:
    table = diagram.table
    some = table.count > 0
    left, width = table.lower[some], (table.upper - table.lower)[some]
    width = np.maximum(width, 2e-3)  # a bin of equal confidences stays visible
    accuracy, confidence = table.accuracy[some], table.confidence[some]
    low, high = diagram.interval[:, some]
    band_low, band_high = diagram.band[:, some]
    top.plot([0, 1], [0, 1], "--", color=_GREY, linewidth=1, label="calibrated")
    top.bar(left, accuracy, width, align="edge", color=_BLUE, alpha=0.75, label="accuracy", linewidth=0)
    top.bar(left, confidence - accuracy, width, accuracy, align="edge", color=_ORANGE, alpha=0.35, label="gap")
    centre = left + width / 2
    errors = np.maximum([accuracy - low, high - accuracy], 0)
    top.errorbar(centre, accuracy, errors, fmt="none", ecolor="black", elinewidth=0.9, capsize=2)
    top.vlines(
        confidence,
        band_low,
        band_high,
        color=_GREY,
        linewidth=5,
        alpha=0.45,
        label=f"calibrated, {diagram.level:.0%} band",
    )
    top.plot(confidence, confidence, ".", color=_GREY, markersize=4)
    top.set(ylabel="accuracy", ylim=(0, 1.02), xlim=(0, 1))
    top.set_title(title, parse_math=False)
    top.legend(loc="upper left", framealpha=0.85, edgecolor="none", fontsize=8)
    bottom.bar(left, table.count[some], width, align="edge", color=_BLUE, alpha=0.75)
    bottom.axvline(diagram.mean_confidence, color=_ORANGE, linewidth=1.3, label="mean confidence")
    bottom.axvline(diagram.accuracy, color="black", linestyle=":", linewidth=1.3, label="accuracy")
    bottom.set(xlabel="confidence\n" + caption(diagram).replace("; ", "\n"), ylabel="rows", yscale="log")
    bottom.xaxis.label.set_fontsize(9)
    bottom.legend(loc="upper left", frameon=False, fontsize=8)
    for axes in (top, bottom):
        axes.spines[["top", "right"]].set_visible(False)


def page(panels: Panels, below: str = "") -> str:
    """Make one HTML file that contains plotly's script: the page needs no network and opens from disk.

    Args:
        panels: title and diagram of every panel.
        below: HTML below the diagrams.

    Returns:
        The HTML.
    """
    from plotly.subplots import make_subplots

    captions = [f"{escape(title)}<br><sub>{caption(diagram)}</sub>" for title, diagram in panels]
    columns = len(panels)
    figure = make_subplots(
        2, columns, shared_xaxes=True, shared_yaxes=True, row_heights=[0.75, 0.25], vertical_spacing=0.04,
        horizontal_spacing=0.04, column_titles=captions,
    )  # fmt: skip
    for column, (_, diagram) in enumerate(panels, 1):
        _page_panel(figure, diagram, column)
    figure.update_yaxes(title_text="accuracy", row=1, col=1)
    figure.update_yaxes(title_text="rows", row=2, col=1)
    figure.update_layout(template="plotly_white", bargap=0, margin={"t": 90}, height=640)
    text: str = figure.to_html(include_plotlyjs=True, full_html=True)
    title = escape(panels[0][0] if columns == 1 else " and ".join(title for title, _ in panels))
    head, _, tail = text.replace("<head>", f"<head><title>{title}</title>", 1).rpartition("</body>")
    return f"{head}{below}</body>{tail}"


def _page_panel(figure: Any, diagram: Reliability, column: int) -> None:
    first = column == 1
    top, bottom = {"row": 1, "col": column}, {"row": 2, "col": column}
    table = diagram.table
    some = table.count > 0
    centre, width = ((table.lower + table.upper) / 2)[some], np.maximum((table.upper - table.lower)[some], 2e-3)
    accuracy, confidence, count = table.accuracy[some], table.confidence[some], table.count[some]
    low, high = diagram.interval[:, some]
    band_low, band_high = diagram.band[:, some]
    hover = "n = %{customdata[0]:,}<br>accuracy %{y:.4f}<br>mean confidence %{customdata[1]:.4f}<extra></extra>"
    bars: dict[str, Any] = {"x": centre, "width": width}
    errors = {
        "type": "data",
        "symmetric": False,
        "array": np.maximum(high - accuracy, 0),
        "arrayminus": np.maximum(accuracy - low, 0),
        "thickness": 1,
        "color": _GREY,
    }
    figure.add_bar(
        **bars, y=accuracy, name="accuracy", marker_color=_BLUE, customdata=np.stack([count, confidence], 1),
        hovertemplate=hover, error_y=errors, **top, showlegend=first,
    )  # fmt: skip
    band_x = np.stack([confidence, confidence, np.full_like(confidence, np.nan)], 1).ravel()
    band_y = np.stack([band_low, band_high, np.full_like(confidence, np.nan)], 1).ravel()
    line = {"color": _ORANGE, "width": 5}
    figure.add_scatter(
        x=band_x,
        y=band_y,
        mode="lines",
        line=line,
        name=f"calibrated, {diagram.level:.0%} band",
        **top,
        showlegend=first,
    )
    diagonal = {"color": _GREY, "dash": "dash", "width": 1}
    figure.add_scatter(x=[0, 1], y=[0, 1], mode="lines", line=diagonal, name="calibrated", **top, showlegend=first)
    figure.add_bar(**bars, y=count, name="rows", marker_color=_BLUE, showlegend=False, **bottom)
    figure.update_yaxes(range=[0, 1.02], **top)
    figure.update_yaxes(type="log", **bottom)
    figure.update_xaxes(title_text="confidence", range=[0, 1], **bottom)


def escape(text: str) -> str:
    """Escape text for HTML: a file name may come from a stranger.

    Args:
        text: the text.

    Returns:
        The escaped text.

    Example:
        >>> escape("<b> & c")
        '&lt;b&gt; &amp; c'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
