"""The papers' figures, drawn by matplotlib from the runs of a folder, as PDF, SVG and PNG files."""

from __future__ import annotations

import io
import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from surefoot.errors import StorageFault
from surefoot.files import replace_file
from surefoot.reports.figures.confidence import confidence
from surefoot.reports.figures.legend import looks
from surefoot.reports.figures.morosini2026 import dynamics, horizons, method, portraits
from surefoot.reports.figures.mpl_style import STYLE, Drawn
from surefoot.reports.figures.severities import shift_figure
from surefoot.reports.figures.tan2026 import ascent, sweep_figure, temperature
from surefoot.reports.runs import places, read_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["save_figures"]

_FORMATS = ("pdf", "svg", "png")
_MOST = 200  # runs; a figure with more lines shows nothing


def save_figures(folder: Path, out: Path) -> tuple[list[Path], dict[str, str]]:
    """Write the figures that the runs of a folder have the readings for.

    Args:
        folder: a run, a study, or a folder of runs and studies; the first 200 runs are drawn.
        out: folder of the figures.

    Returns:
        The paths of the figures without suffix, and why every other figure was left out.

    Raises:
        BadInput: if there is no run in the folder.
        StorageFault: if the folder of the figures cannot be made.
    """
    from matplotlib import rc_context

    runs = [read_run(place) for place in places(folder.resolve())[:_MOST]]
    runs = [run for run in runs if len(run.columns)]
    drawn = list(zip(runs, looks([(run.method, run.rate) for run in runs]), strict=True))
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFault(f"cannot make the folder {str(out)!r}: {error.strerror}") from error
    written: list[Path] = []
    skipped: dict[str, str] = {}
    with rc_context(STYLE), warnings.catch_warnings():
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
                figure.savefig(buffer, format=kind, dpi=200, metadata=dated)  # the same runs give byte-identical files
                with replace_file(out / f"{name}.{kind}") as stream:
                    stream.write(buffer.getvalue())
            written.append(out / name)
    return written, skipped


def _plan(drawn: Sequence[Drawn]) -> Iterator[tuple[str, Callable[[], Figure | None], str]]:
    """Names, functions that draw, and the missing readings if a function has nothing to draw."""
    everything = drawn
    drawn = [pair for pair in drawn if len(pair[0].columns) > 1]  # a deep ensemble is read once, at its end
    names = list(dict.fromkeys(run.method for run, _ in drawn))
    once = "every run was read once, at its end, as deep ensembles are" if everything and not drawn else ""
    readings = once or "no run has calibration and curvature readings"
    yield "morosini2026-figure-1", lambda: dynamics(drawn, names), readings
    yield "morosini2026-figure-a1-portrait", lambda: portraits(drawn, names), readings
    yield "morosini2026-table-1-horizon", lambda: horizons(drawn, names), readings
    for name, stem in zip(names, _stems(names), strict=True):
        chosen = [pair for pair in drawn if pair[0].method == name]
        yield f"morosini2026-figure-a2-{stem}", lambda chosen=chosen: method(chosen), readings  # type: ignore[misc]
    yield "tan2026-figure-1-confidence", lambda: confidence(drawn), once or "no histograms; turn on track.histograms"
    yield "tan2026-figure-2-ascent", lambda: ascent(drawn), once or "no run of SAM or CSAM"
    yield "tan2026-figure-3-temperature", lambda: temperature(drawn), once or "no validation set; set data.val"
    yield "tan2026-figure-s5-sweeps", lambda: sweep_figure(drawn), "no study of three numbers or more along an axis"
    yield "shift", lambda: shift_figure(everything), "no run was read on corrupted images; add a table [shift]"


def _stems(names: Sequence[str]) -> list[str]:
    """Parts of file names for methods; if two names are the same, the later name is numbered."""
    stems: list[str] = []
    for name in names:
        stem = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "method"
        numbered = (f"{stem}-{place}" for place in itertools.count(2))
        stems.append(next(candidate for candidate in itertools.chain([stem], numbered) if candidate not in stems))
    return stems
