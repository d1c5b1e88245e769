"""ECE on clean data, untouched and after each calibrator, drawn by matplotlib (Tan et al. 2026, Figure 3 (a), (b))."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.files import replace_file
from surefoot.reports.figures.colours import PALETTE
from surefoot.reports.figures.compare import labels, settings
from surefoot.reports.figures.labels import mean_text
from surefoot.reports.figures.mpl_style import LABEL, STYLE, draw_key, named, new_figure, said
from surefoot.reports.places import Place, places
from surefoot.reports.runs import read_run
from surefoot.reports.shift import figure_format
from surefoot.statistics import summarise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_recalibration", "save_recalibration", "settings_named"]

Rows = Sequence[Mapping[str, Any]]


def save_recalibration(rows: Rows, names: Mapping[str, str], path: Path) -> None:
    """Write the figure; it appears whole or not at all."""
    from matplotlib import rc_context

    kind, buffer = figure_format(path), io.BytesIO()
    with rc_context(STYLE):
        draw_recalibration(rows, names).savefig(buffer, format=kind, dpi=200)
    with replace_file(path) as stream:
        stream.write(buffer.getvalue())


def settings_named(folders: Mapping[str, Path]) -> dict[str, str]:
    """What the runs behind subjects are seeds of, in the order of their studies.

    Two checkpoints of one run are no seeds, and keep their names.
    """
    roots = dict.fromkeys(folder.parent.parent for folder in folders.values())
    known = {each.folder: each for root in roots if (root / "study.json").is_file() for each in places(root)}
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
    """A group of bars for each calibrator, "untouched" first; in it a bar a setting, the mean over its subjects.

    Args:
        rows: those of `surefoot.shift.measure.shifted_rows`; corrupted ones are left out.
        names: the setting of each subject, in the order to be drawn; a subject that has none stands for itself.
    """
    found: dict[str, dict[str, list[float]]] = {setting: {} for setting in names.values()}
    for row in rows:
        if not row["severity"]:
            setting = found.setdefault(names.get(row["subject"], row["subject"]), {})
            setting.setdefault(row["method"], []).append(row["ece"])
    methods = list(dict.fromkeys(method for each in found.values() for method in each))
    width = 0.8 / len(found)
    figure = new_figure(max(3.4, 0.8 + len(methods) * (0.25 + 0.13 * len(found))), 2.2)
    axes = figure.subplots()
    for place, (name, values) in enumerate(found.items()):
        sums = [summarise(values.get(method, [])) for method in methods]
        axes.bar(
            [at + width * (place - (len(found) - 1) / 2) for at in range(len(methods))],
            [each.mean for each in sums],
            width,
            yerr=[each.std if math.isfinite(each.std) else 0.0 for each in sums],
            error_kw={"linewidth": 0.6},
            color=PALETTE[place % len(PALETTE)],
            hatch="" if place < len(PALETTE) else "/////",
            label=said(name, LABEL),
        )
    shown = ["untouched" if method == "none" else said(method) for method in methods]
    axes.set_xticks(range(len(methods)), shown, rotation=30, ha="right")
    axes.set(ylabel="test ECE", ylim=(0, None))
    counts = [len(each) for values in found.values() for each in values.values()]
    draw_key(figure, named(axes), mean_text(counts), "" if max(counts) == 1 else "lines: ± one standard deviation")
    return figure
