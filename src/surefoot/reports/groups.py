"""Groups as a picture: every group's gap and ECE with intervals, one line for each group."""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from surefoot.errors import BadInput
from surefoot.evaluation import Group, Groups
from surefoot.files import replace_file
from surefoot.reports.figure import FORMATS, escape
from surefoot.text import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_groups", "groups_page", "save_groups"]

_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "#999999"
_MOST = 60  # lines of a picture; the groups with the smallest p-values, then the largest ones
_LONGEST = 28  # characters of a label


def save_groups(title: str, groups: Groups, path: Path) -> None:
    """Write the picture of groups, in the format of the path's suffix.

    Args:
        title: title of the picture.
        groups: the groups.
        path: path that ends in ``.svg``, ``.png``, ``.pdf`` or ``.html``; the file appears complete or not at all.

    Raises:
        BadInput: if the path has another suffix.
    """
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise BadInput(f"a figure is written to {', '.join(FORMATS)}; got {path.name!r}")
    if suffix == ".html":
        data = groups_page(title, groups).encode()
    else:
        buffer = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a letter of the title that the font lacks is drawn as a box
            draw_groups(title, groups).savefig(buffer, format=suffix[1:], dpi=160)
        data = buffer.getvalue()
    with replace_file(path) as stream:
        stream.write(data)


def draw_groups(title: str, groups: Groups, width: float = 8.0) -> Figure:
    """Draw the groups with matplotlib: gaps on the left and ECEs on the right, each with its interval.

    Args:
        title: title of the picture.
        groups: the groups.
        width: width in inches.

    Returns:
        The figure.
    """
    from matplotlib.figure import Figure  # imported here: the import takes half a second

    lines = _lines(groups)
    figure = Figure(figsize=(width, 1.6 + 0.28 * len(lines)), layout="constrained")
    gaps, errors = figure.subplots(1, 2, sharey=True)
    for place, (_, group) in enumerate(lines):
        if group is None:
            continue
        colour = _colour(group)
        for axes, value, low, high in (
            (gaps, group.gap, group.gap_low, group.gap_high),
            (errors, group.ece, group.ece_low, group.ece_high),
        ):
            axes.plot([low, high], [place, place], color=colour, linewidth=1.6, solid_capstyle="butt")
            axes.plot([value], [place], "o", color=colour, markersize=4.5)
    gaps.axvline(0, color="black", linewidth=0.8)
    errors.set_xlim(left=0)
    gaps.set_xlabel("gap")
    errors.set_xlabel("ECE")
    gaps.set_yticks(range(len(lines)), [label for label, _ in lines], parse_math=False)
    for tick, (_, group) in zip(gaps.get_yticklabels(), lines, strict=True):
        tick.set_fontweight("bold" if group is None else "normal")
        tick.set_fontsize(9)
    gaps.set_ylim(len(lines) - 0.5, -0.5)
    for axes in (gaps, errors):
        axes.locator_params(axis="x", nbins=5)
        axes.grid(axis="x", color=_GREY, alpha=0.3, linewidth=0.6)
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
    figure.suptitle(title, fontsize=11, parse_math=False)
    figure.supxlabel(textwrap.fill(_legend(groups), int(13 * width)), fontsize=8, color="#555555")
    return figure


def groups_page(title: str, groups: Groups) -> str:
    """Make one HTML file with the sentences, the picture and the table; it needs no script and no network.

    Args:
        title: title of the page.
        groups: the groups.

    Returns:
        The HTML.
    """
    drawn = [group for _, group in _lines(groups) if group is not None]
    gaps = _range([0.0, *(end for group in drawn for end in (group.gap_low, group.gap_high))])
    errors = _range([0.0, *(group.ece_high for group in drawn)])
    ends = "".join(
        f'<div class="ends"><span>{low:.2f}</span>{name}<span>{high:.2f}</span></div>'
        for name, low, high in (("gap", *gaps), ("ECE", *errors))
    )
    rows = [f'<div class="line head"><b></b>{ends}</div>']
    for label, group in _lines(groups):
        if group is None:
            rows.append(f'<div class="line"><b>{escape(label)}</b></div>')
            continue
        tracks = _track(group, group.gap, group.gap_low, group.gap_high, gaps)
        tracks += _track(group, group.ece, group.ece_low, group.ece_high, errors)
        rows.append(f'<div class="line"><span>{escape(label)}</span>{tracks}</div>')
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in (*groups.sentences, _legend(groups) + "."))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>{_STYLE}</head><body><h1>{escape(title)}: groups</h1>{sentences}"
        f'<div class="chart">{"".join(rows)}</div><div class="wide">{groups.html()}</div></body></html>'
    )


def _range(values: list[float]) -> tuple[float, float]:
    low, high = math.floor(100 * min(values)) / 100, math.ceil(100 * max(values)) / 100
    return (low, high) if high > low else (0.0, 1.0)


def _track(group: Group, value: float, low: float, high: float, ends: tuple[float, float]) -> str:
    """An interval with its estimate on a line from one end of the scale to the other, and a mark at 0."""

    def at(number: float) -> float:
        return 100 * min(1.0, max(0.0, (number - ends[0]) / (ends[1] - ends[0])))

    colour = _colour(group)
    return (
        f'<div class="track" title="{value:+.4f} ({low:+.4f} to {high:+.4f})"><i style="left:{at(0.0):.2f}%"></i>'
        f'<s style="left:{at(low):.2f}%;width:{at(high) - at(low):.2f}%;background:{colour}"></s>'
        f'<u style="left:{at(value):.2f}%;background:{colour}"></u></div>'
    )


_STYLE = (
    "<style>body{font-family:sans-serif;margin:1em auto;max-width:70em;padding:0 1em}h1{font-size:1.3em}"
    "p{max-width:50em}.wide{overflow-x:auto}table{border-collapse:collapse;margin-top:1.5em}"
    "td,th{padding:.2em .7em;text-align:right;white-space:nowrap}th{border-bottom:1px solid #999}"
    "td:nth-child(-n+2),th:nth-child(-n+2){text-align:left}"
    ".line{display:grid;grid-template-columns:minmax(10em,1.2fr) 2fr 2fr;column-gap:1.5em;align-items:center;"
    "line-height:1.7}.ends{display:flex;justify-content:space-between;font-size:.85em;color:#555}"
    ".track{position:relative;height:1.2em;border-bottom:1px solid #ddd}.track>*{position:absolute}"
    ".track i{top:0;bottom:0;width:1px;background:#333}.track s{top:.5em;height:.2em}"
    ".track u{top:.3em;width:.6em;height:.6em;margin-left:-.3em;border-radius:50%}"
    "@media(max-width:40em){.line{grid-template-columns:1fr 1fr}.line>:first-child{grid-column:1/3}}</style>"
)


def _lines(groups: Groups) -> list[tuple[str, Group | None]]:
    """One line for each column's name and for each group that is drawn."""
    ranked = sorted(groups.groups, key=lambda group: (group.smallest, -group.n))
    kept = {id(group) for group in ranked[:_MOST]}
    lines: list[tuple[str, Group | None]] = []
    column = None
    for group in groups.groups:
        if id(group) not in kept:
            continue
        if group.column != column:
            column = group.column
            lines.append((_short(plain(column)), None))
        lines.append((f"{_short(plain(group.value))}  (n = {group.n:,})", group))
    return lines


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _colour(group: Group) -> str:
    return _ORANGE if group.smallest < 0.05 else _BLUE if group.tested else _GREY


def _legend(groups: Groups) -> str:
    hidden = max(0, len(groups.groups) - _MOST)
    more = f"; {hidden:,} more groups are not drawn" if hidden else ""
    return (
        f"Gap: mean confidence − accuracy. Intervals: {groups.level:.0%}. Orange: the gap is more than noise after "
        f"Holm's correction. Grey: too small to test{more}"
    )
