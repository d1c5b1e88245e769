"""ECE on clean data, untouched and after each calibrator, drawn by matplotlib (Tan et al. 2026, Figure 3 (a), (b))."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.files import replace_file
from surefoot.reports.figures.compare import labels, settings
from surefoot.reports.figures.legend import PALETTE, mean_text
from surefoot.reports.figures.mpl_style import LABEL, STYLE, draw_key, drawable, named, new_figure
from surefoot.reports.runs import Place, places, read_run
from surefoot.reports.shift import figure_format
from surefoot.statistics import summarise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_recalibration", "save_recalibration", "settings_named"]

Rows = Sequence[Mapping[str, Any]]


def save_recalibration(rows: Rows, names: Mapping[str, str], path: Path) -> None:
    """Write the figure; the file appears complete or not at all.

    Args:
        rows: rows of `surefoot.shift.measure.shifted_rows`.
        names: setting of every subject, as in `draw_recalibration`.
        path: path that ends in ``.png``, ``.svg`` or ``.pdf``.

    Raises:
        BadInput: if the path has another suffix.
    """
    from matplotlib import rc_context

    kind, buffer = figure_format(path), io.BytesIO()
    with rc_context(STYLE):
        draw_recalibration(rows, names).savefig(buffer, format=kind, dpi=200)
    with replace_file(path) as stream:
        stream.write(buffer.getvalue())


def settings_named(folders: Mapping[str, Path]) -> dict[str, str]:
    """Name the settings of the runs behind subjects; runs with the same setting differ only in the seed.

    Two checkpoints of one run are not two seeds, and keep their names.

    Args:
        folders: folder of the run of every subject.

    Returns:
        The setting of every subject, in the order of the studies.
    """
    roots = dict.fromkeys(folder.parent.parent for folder in folders.values())
    known = {place.folder: place for root in roots if (root / "study.json").is_file() for place in places(root)}
    order = {folder: at for at, folder in enumerate(known)}
    subjects = sorted(folders.items(), key=lambda item: order.get(item[1], len(order)))
    runs = [read_run(known.get(folder, Place(folder))) for _, folder in subjects]
    numbers = settings(runs)
    texts = labels([runs[numbers.index(number)] for number in sorted(set(numbers))])
    times = Counter(folders.values())
    return {
        name: texts[number] if times[folder] == 1 else name
        for (name, folder), number in zip(subjects, numbers, strict=True)
    }


def draw_recalibration(rows: Rows, names: Mapping[str, str]) -> Figure:
    """Draw a group of bars for every calibrator, "untouched" first, with one bar per setting.

    A bar is the mean over the setting's subjects.

    Args:
        rows: rows of `surefoot.shift.measure.shifted_rows`; rows of corrupted data are left out.
        names: setting of every subject, in the order of the bars; a subject without a setting has its own bars.

    Returns:
        The figure.

    References:
        Tan et al. (2026), "Towards Understanding the Calibration Benefits of Sharpness-Aware Minimization", Figure 3.
    """
    by_setting: dict[str, dict[str, list[float]]] = {setting: {} for setting in names.values()}
    for row in rows:
        if not row["severity"]:
            setting = by_setting.setdefault(names.get(row["subject"], row["subject"]), {})
            setting.setdefault(row["method"], []).append(row["ece"])
    methods = list(dict.fromkeys(method for by_method in by_setting.values() for method in by_method))
    width = 0.8 / len(by_setting)
    figure = new_figure(max(3.4, 0.8 + len(methods) * (0.25 + 0.13 * len(by_setting))), 2.2)
    axes = figure.subplots()
    for place, (name, values) in enumerate(by_setting.items()):
        sums = [summarise(values.get(method, [])) for method in methods]
        axes.bar(
            [at + width * (place - (len(by_setting) - 1) / 2) for at in range(len(methods))],
            [summary.mean for summary in sums],
            width,
            yerr=[summary.std if math.isfinite(summary.std) else 0.0 for summary in sums],
            error_kw={"linewidth": 0.6},
            color=PALETTE[place % len(PALETTE)],
            hatch="" if place < len(PALETTE) else "/////",
            label=drawable(name, LABEL),
        )
    shown = ["untouched" if method == "none" else drawable(method) for method in methods]
    axes.set_xticks(range(len(methods)), shown, rotation=30, ha="right")
    axes.set(ylabel="test ECE", ylim=(0, None))
    counts = [len(eces) for by_method in by_setting.values() for eces in by_method.values()]
    draw_key(figure, named(axes), mean_text(counts), "" if max(counts) == 1 else "lines: ± one standard deviation")
    return figure
