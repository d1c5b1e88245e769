"""The kinds of tables: summaries, correlations, two hypotheses, comparisons, predictions. No torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from surefoot.errors import BadInput
from surefoot.statistics import Summary, correlated, holm, paired_t, sign_flips, spearman, summarise
from surefoot.studies.folder import GatheredStudy
from surefoot.studies.measures import heading, shown_stop, with_sharpness
from surefoot.studies.samples import Row, rows_of
from surefoot.studies.spec import TableSpec, check_baseline, roles_of, table_of
from surefoot.validation import suggest

__all__ = ["Cell", "Table", "tables_of"]


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: the text that is shown.
        facts: the numbers behind the text.
    """

    text: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """Named rows of cells under headings.

    Attributes:
        name: name of the table.
        kind: kind of the table, as in `TableSpec`.
        caption: caption.
        columns: headings of the columns.
        rows: label and cells of every row.
        notes: sentences below the table.
    """

    name: str
    kind: str
    caption: str
    columns: list[str]
    rows: list[tuple[str, list[Cell]]]
    notes: list[str]


def tables_of(study: GatheredStudy, which: str | None = None, specs: Sequence[TableSpec] | None = None) -> list[Table]:
    """Make the tables of a study.

    Args:
        study: the study.
        which: name of one table; None makes all tables.
        specs: tables to make instead of the tables in the study's folder.

    Returns:
        The tables. If one of several tables cannot be made, its note says why.

    Raises:
        BadInput: if the study has no tables, no table has the name, or the only table cannot be made.
    """
    wanted = [table_of(table) for table in study.tables] if specs is None else list(specs)
    if not wanted:
        raise BadInput(f"study {study.name!r} states no tables; add [[tables]] with a name and a kind")
    names = [spec.name for spec in wanted]
    if which is not None:
        if which not in names:
            raise BadInput(f"which must be one of {', '.join(names)}; got {which!r}{suggest(which, names)}")
        wanted = [spec for spec in wanted if spec.name == which]
    if len(wanted) == 1:
        return [_KINDS[wanted[0].kind](study, wanted[0])]
    return [_or_why_not(study, spec) for spec in wanted]


def _or_why_not(study: GatheredStudy, spec: TableSpec) -> Table:
    """The table; if the table cannot be made, an empty table whose note says why."""
    try:
        return _KINDS[spec.kind](study, spec)
    except BadInput as error:
        return Table(spec.name, spec.kind, spec.caption, [], [], [f"Not made: {error}"])


def _summary(study: GatheredStudy, spec: TableSpec) -> Table:
    metrics = list(spec.metrics or ("test.accuracy", "test.ece", "test.nll"))
    rows = rows_of(study, spec, metrics)
    columns, cells = [], {row.label: list[Cell]() for row in rows}
    for name in metrics:
        columns.append(heading(name))
        for row in rows:
            cells[row.label].append(_mean(row, name, spec, 3))
        printed = spec.paper.get(name)
        if printed:
            columns.append("paper")
            for row in rows:
                cells[row.label].append(_printed(printed, row.label))
    for row in rows:
        cells[row.label].append(_runs(row))
    return Table(
        spec.name, spec.kind, spec.caption, [*columns, "runs"], [(row.label, cells[row.label]) for row in rows],
        _notes(study, spec, rows),
    )  # fmt: skip


def _correlation(study: GatheredStudy, spec: TableSpec) -> Table:
    """Morosini et al. (2026), Table 1: one column per method, one row per measure, the published values below."""
    metrics = list(spec.metrics or ("train.ece", "train.kce", "test.ece", "test.kce"))
    measures_of = {name: with_sharpness(name) for name in metrics}
    measures = {
        f"{name} {stop}".rstrip(): f"{full} {stop}".rstrip()
        for name, full in measures_of.items()
        for stop in ("", *(f"until {condition}" for condition in spec.until))
    }
    groups = rows_of(study, spec, list(measures.values()))
    rows: list[tuple[str, list[Cell]]] = []
    for name, full in measures.items():
        digits = 1 if full.startswith("lag") else 2
        rows.append((heading(full), [_mean(group, full, spec, digits) for group in groups]))
        printed = spec.paper.get(name)
        if printed:
            rows.append(("  paper", [_printed(printed, group.label) for group in groups]))
    rows.append(("runs", [_runs(group) for group in groups]))
    notes = _notes(study, spec, groups)
    if any(full.startswith("lag") for full in measures.values()):
        notes.append(
            "lead(a, b): where the cross-correlation of the readings peaks, in readings or steps; above 0 if b leads a"
        )
    return Table(spec.name, spec.kind, spec.caption, [group.label for group in groups], rows, notes)


def _predict(study: GatheredStudy, spec: TableSpec) -> Table:
    """How well each early quantity orders the finished runs by the final ``target``: one column per condition.

    The correlation is taken across all runs, and within each row: a quantity may order the rows and not the runs in
    them.
    """
    quantities = list(spec.metrics or ("train.ece", "test.ece", "sharpness", "train.log_q", "test.nll"))
    names = [f"{name} until {stop}" for name in quantities for stop in spec.until]
    rows = rows_of(study, spec, [spec.target, *names])
    numbers = [run for row in rows for group in row.points.values() for run in group]
    points = [(row, [key for key, group in row.points.items() for _ in group]) for row in rows]
    alike = [(row.label, setting) for row, keys in points for setting in row.settings(keys)]
    table_rows = []
    for quantity in quantities:
        cells = []
        for stop in spec.until:
            name = f"{quantity} until {stop}"
            rank = correlated([(run[name], run[spec.target]) for run in numbers], spec.level, groups=alike)
            digits = 2 if spec.digits is None else spec.digits
            text = f"{_number(rank.mean, digits)} {_interval(rank, digits)}" if rank.n > 2 else "–"
            facts = {"measure": name, "spearman": rank.mean, "n": rank.n, "low": rank.low, "high": rank.high}
            within = _within(rows, name, spec.target)
            if len(rows) > 1 and within:
                text += f"; {_number(min(within), digits)} to {_number(max(within), digits)}"
                facts |= {"within_low": min(within), "within_high": max(within)}
            cells.append(Cell(text, facts))
        table_rows.append((heading(quantity), cells))
    counts = [max(cells[place].facts["n"] for _, cells in table_rows) for place in range(len(spec.until))]
    notes = [
        f"Spearman's correlation across {len(numbers)} finished runs of the last reading up to a stop with "
        f"{heading(spec.target)}; intervals are percentile bootstrap (settings are drawn, then their seeds), "
        f"{100 * spec.level:g}%",
        f"runs that came to each stop: {', '.join(map(str, counts))}",
        *(["after the semicolon: the least and the greatest of the rows' own correlations"] if len(rows) > 1 else []),
        *(text for row in rows if (text := row.left_out())),
    ]
    return Table(
        spec.name, spec.kind, spec.caption, [shown_stop(condition) for condition in spec.until], table_rows, notes
    )


def _within(rows: Sequence[Row], name: str, target: str) -> list[float]:
    """Spearman's correlation in each row with at least three runs that meet the condition."""
    ranks = []
    for row in rows:
        pairs = [(run[name], run[target]) for group in row.points.values() for run in group]
        pairs = [pair for pair in pairs if all(map(math.isfinite, pair))]
        if len(pairs) > 2:
            ranks.append(spearman(*zip(*pairs, strict=True)))
    return [rank for rank in ranks if not math.isnan(rank)]


_PEAK, _SHARP_END = "max train.ece", "sharpness"
_ON_THE_WAY = {
    _PEAK: "peak train ECE",
    "mean train.ece": "mean train ECE",
    "train.ece": "final train ECE",
    "max sharpness": "peak sharpness",
    _SHARP_END: "final sharpness",
}


def _hypotheses(study: GatheredStudy, spec: TableSpec) -> Table:
    """Whether a flat end, or flat directions during training, go with a low calibration error.

    The two hypotheses are those of Morosini et al. (2026), Section 3.2.
    """
    rows = rows_of(study, spec, list(_ON_THE_WAY))
    baseline = _baseline(spec, rows) if rows else None
    table_rows: list[tuple[str, list[Cell]]] = []
    for row in rows:
        cells = [_mean(row, name, spec, 3 if "ece" in name else 2) for name in _ON_THE_WAY]
        table_rows.append((row.label, [*cells, _verdict(row, baseline), _runs(row)]))
    notes = _notes(study, spec, rows)
    if any(len(row.at_points(name)) == 1 for row in rows for name in (_PEAK, _SHARP_END)):
        notes.append("a row of one value has no standard error: any difference counts, and is a hint at most")
    if baseline is not None:
        notes += [
            f"reads as: against {baseline.label}, by more than a standard error of the difference: is the end flatter "
            "(final sharpness), is the peak of train ECE lower?",
            "H1 (flat minima): flatter means better calibrated; H2 (flat directions): calibration improves though the "
            "end is not flatter",
        ]
    return Table(spec.name, spec.kind, spec.caption, [*_ON_THE_WAY.values(), "reads as", "runs"], table_rows, notes)


def _verdict(row: Row, baseline: Row | None) -> Cell:
    if baseline is None or row is baseline:
        return Cell("baseline")
    flatter, lower = (_below(row, baseline, name) for name in (_SHARP_END, _PEAK))
    if flatter is None or lower is None:
        return Cell("–")
    text = {(True, True): "fits both", (True, False): "against H1", (False, True): "for H2"}.get(
        (flatter, lower), "neither"
    )
    return Cell(text, {"flatter": flatter, "lower_peak": lower})


def _below(row: Row, baseline: Row, name: str) -> bool | None:
    one, other = (_summarised(group, name) for group in (row, baseline))
    if not one.n or not other.n:
        return None
    errors = [summary.error for summary in (one, other) if not math.isnan(summary.error)]
    return other.mean - one.mean > math.hypot(*errors)


def _compare(study: GatheredStudy, spec: TableSpec) -> Table:
    """Paired differences between rows at the same points (seeds, and values of axes), with Holm's correction."""
    metrics = list(spec.metrics or ("test.accuracy", "test.ece"))
    rows = rows_of(study, spec, metrics)
    pairs = _pairs(spec, rows)
    labels, lines, p_values = [], [], []
    for name in metrics:
        for one, other in pairs:
            first, second = one.at_points(name), other.at_points(name)
            common = [key for key in first if key in second]
            first_values, second_values = [first[key] for key in common], [second[key] for key in common]
            test: Callable[[Any, Any], float] = paired_t if spec.test == "t" else sign_flips
            p_values.append(test(first_values, second_values))
            labels.append(f"{one.label} − {other.label}, {heading(name)}")
            differences = [a - b for a, b in zip(first_values, second_values, strict=True)]
            lines.append(summarise(differences, spec.level, groups=one.settings(common)))
    table_rows = []
    for label, line, p, adjusted in zip(labels, lines, p_values, holm(p_values), strict=True):
        digits = 4 if spec.digits is None else spec.digits
        cells = [
            Cell(str(line.n), {"n": line.n}),
            Cell(_pm(line, digits), {"mean": line.mean, "std": line.std}),
            Cell(_interval(line, digits), {"low": line.low, "high": line.high, "level": spec.level}),
            Cell(_p(p), {"p": p}),
            Cell(_p(adjusted), {"p": adjusted}),
        ]
        table_rows.append((label, cells))
    which = "paired t" if spec.test == "t" else "sign flips of paired differences"
    notes = [
        *_notes(study, spec, rows),
        f"p: {which}, two-sided; Holm's correction over the {len(table_rows)} tests here",
    ]
    if any(line.n == 0 for line in lines):
        notes.append(
            "0 pairs: one of the two was not read, or no common points; where methods have values of their own, "
            "average = that axis, over = seed"
        )
    if any(line.n > 1 and math.isnan(p) for line, p in zip(lines, p_values, strict=True)):
        notes.append("p –: all differences are the same, which t cannot judge")
    columns = ["pairs", "difference", f"{100 * spec.level:g}% interval", "p", "p (Holm)"]
    return Table(spec.name, spec.kind, spec.caption, columns, table_rows, notes)


def _pairs(spec: TableSpec, rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    if spec.baseline is None or not rows:
        return [(other, one) for one, other in combinations(rows, 2)]
    baseline = _baseline(spec, rows)
    return [(row, baseline) for row in rows if row is not baseline]


def _baseline(spec: TableSpec, rows: Sequence[Row]) -> Row:
    labels = [row.label for row in rows]
    if spec.baseline is None:
        return rows[0]
    check_baseline(spec, labels)
    return rows[labels.index(spec.baseline)]


_KINDS: dict[str, Callable[[GatheredStudy, TableSpec], Table]] = {
    "summary": _summary,
    "correlation": _correlation,
    "hypotheses": _hypotheses,
    "compare": _compare,
    "predict": _predict,
}


def _summarised(row: Row, name: str, level: float = 0.95) -> Summary:
    averages = row.at_points(name)
    return summarise(list(averages.values()), level, groups=row.settings(averages))


def _mean(row: Row, name: str, spec: TableSpec, digits: int) -> Cell:
    summary = _summarised(row, name, spec.level)
    digits = digits if spec.digits is None else spec.digits
    text = _pm(summary, digits)
    if spec.intervals and summary.n > 1:
        text += f" {_interval(summary, digits)}"
    count = row.count(name)
    if 0 < count < row.finished:
        text += f" ({count} of {row.finished})"
    facts = {
        "measure": name,
        "mean": summary.mean,
        "std": summary.std,
        "n": summary.n,
        "low": summary.low,
        "high": summary.high,
    }
    return Cell(text, facts)


def _printed(printed: dict[str, str], label: str) -> Cell:
    text = printed.get(label, "")
    return Cell(text, {"paper": text} if text else {})


def _runs(row: Row) -> Cell:
    text = f"{row.finished}" if row.finished == row.total else f"{row.finished} of {row.total}"
    return Cell(text, {"runs": row.finished, "of": row.total, "outcomes": dict(row.outcomes)})


def _notes(study: GatheredStudy, spec: TableSpec, rows: Sequence[Row]) -> list[str]:
    roles = roles_of(study.axes, study.entry_axes, spec)
    over = f" over {' and '.join(roles.over)}" if roles.over else ""
    averaged = f", each the average over {' and '.join(roles.average)}" if roles.average else ""
    alike = " (settings are drawn, then their seeds)" if "seed" in roles.over and len(roles.over) > 1 else ""
    notes = [
        f"mean ± standard deviation (ddof = 1){over}{averaged}; intervals are percentile bootstrap of the mean{alike}, "
        f"{100 * spec.level:g}%"
    ]
    for choice in study.chosen:
        where = " ".join(str(text) for text in choice["group"].values())
        values = ", ".join(f"{axis} = {text}" for axis, text in choice["values"].items())
        how = "the one candidate" if len(choice.get("scores", ())) == 1 else "chosen on validation"
        notes.append(f"{how}{f' for {where}' if where else ''}: {values}")
    candidates = [run.outcome for run in study.runs if not run.counted]
    if candidates and not study.chosen:
        far = f"{candidates.count('finished')} of {len(candidates)} candidates have finished"
        notes.append(f"nothing is chosen on validation yet: {far}, and none of them is shown")
    return [*notes, *(text for row in rows if (text := row.left_out()))]


def _pm(summary: Summary, digits: int) -> str:
    mean = _number(summary.mean, digits)
    return mean if summary.n < 2 else f"{mean} ± {_number(summary.std, digits)}"


def _interval(summary: Summary, digits: int) -> str:
    return "–" if summary.n < 2 else f"[{_number(summary.low, digits)}, {_number(summary.high, digits)}]"


def _number(value: float, digits: int) -> str:
    if math.isnan(value):
        return "–"
    small = value != 0 and abs(value) < 0.5 * 10.0**-digits
    return f"{value:.1e}" if small or abs(value) >= 1e6 else f"{value:.{digits}f}"


def _p(value: float) -> str:
    return "–" if math.isnan(value) else "< 0.0001" if value < 1e-4 else f"{value:.4f}"
