"""Runs gathered into the rows of a table: which count, which are left out, and what each row's sample is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from surefoot.errors import BadInput
from surefoot.studies.axis_roles import roles_of, row_label
from surefoot.studies.gather import GatheredStudy
from surefoot.studies.measures import quantities_of
from surefoot.studies.spec import TableSpec
from surefoot.validation import suggest

__all__ = ["Row", "rows_of"]

Key = tuple[tuple[str, str], ...]


def _setting(key: Key) -> Key:
    """What runs share that differ in the seed alone."""
    return tuple(pair for pair in key if pair[0] != "seed")


@dataclass
class Row:
    """One row: its label, the measures at each of its points, and how its runs ended."""

    label: str
    points: dict[Key, list[dict[str, float]]] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)

    def at_points(self, name: str) -> dict[Key, float]:
        """A measure at each point, averaged over what is averaged first; points without it are left out."""
        found = {key: [each[name] for each in group if np.isfinite(each[name])] for key, group in self.points.items()}
        return {key: float(np.mean(values)) for key, values in found.items() if values}

    def settings(self, keys: Iterable[Key]) -> list[Key]:
        """What points share that differ in the seed alone; each its own where there is one setting."""
        several = len({_setting(key) for key in self.points}) > 1
        return [_setting(key) if several else key for key in keys]

    def count(self, name: str) -> int:
        """How many runs a measure's sample is of; fewer than have finished where some never came to a stop, say."""
        return sum(bool(np.isfinite(each[name])) for group in self.points.values() for each in group)

    @property
    def total(self) -> int:
        """How many runs there are, ended or not."""
        return self.outcomes.total()

    @property
    def finished(self) -> int:
        """How many runs count."""
        return self.outcomes["finished"]

    def left_out(self) -> str:
        """A sentence on the runs that do not count; empty if all do."""
        rest = [f"{n} {outcome}" for outcome, n in sorted(self.outcomes.items()) if outcome != "finished"]
        return f"{self.label}: left out of {self.total} runs: {', '.join(rest)}" if rest else ""


def rows_of(study: GatheredStudy, spec: TableSpec, names: Sequence[str]) -> list[Row]:
    """The rows of a table, in the order of the study, with the named measures of every finished run."""
    roles = roles_of(study.axes, study.entry_axes, spec)
    found: dict[str, Row] = {}
    for run in study.runs:
        if not run.counted:
            continue
        label = row_label(run.place, roles.rows, study.entry_axes)
        row = found.setdefault(label, Row(label))
        measures = run.measure(names) if run.outcome == "finished" else None
        if measures is not None:
            key = tuple((axis, run.place[axis]) for axis in roles.over if axis in run.place)
            row.points.setdefault(key, []).append(measures)
        harmed = measures is None and run.outcome == "finished"
        row.outcomes["with a harmed journal" if harmed else run.outcome] += 1
    rows = list(found.values())
    _check_read(spec, rows, names, {name for run in study.runs for name in run.quantities()})
    return rows


def _check_read(spec: TableSpec, rows: Sequence[Row], names: Sequence[str], read: set[str]) -> None:
    """A measure that no run has is a wrong name, not a column of gaps."""
    numbers = [each for row in rows for group in row.points.values() for each in group]
    for name in names:
        # A relation may be undefined for every run, and a stop out of reach of all, though each quantity is read.
        if numbers and all(np.isnan(each[name]) for each in numbers):
            for quantity in quantities_of(name):
                if quantity not in read:
                    near = suggest(quantity, sorted(read))
                    raise BadInput(
                        f"table {spec.name!r}: no run has readings of {quantity!r}{near}; see track in the base"
                    )
