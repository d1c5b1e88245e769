"""Runs gathered into the rows of a table: the runs that count, the runs left out, and the sample of every row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from surefoot.errors import BadInput
from surefoot.studies.folder import GatheredStudy
from surefoot.studies.measures import quantities_of
from surefoot.studies.spec import TableSpec, roles_of, row_label
from surefoot.validation import suggest

__all__ = ["Row", "rows_of"]

Key = tuple[tuple[str, str], ...]


def _setting(key: Key) -> Key:
    """The axes of a point without the seed."""
    return tuple(pair for pair in key if pair[0] != "seed")


@dataclass
class Row:
    """One row of a table.

    Attributes:
        label: label of the row.
        points: measures of the runs at every point, by the values of the axes that means are taken over.
        outcomes: number of runs with every outcome.
    """

    label: str
    points: dict[Key, list[dict[str, float]]] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)

    def at_points(self, name: str) -> dict[Key, float]:
        """Average a measure at every point over the axes that are averaged first.

        Args:
            name: the measure.

        Returns:
            The averages; points without a finite value are left out.
        """
        values_at = {key: [run[name] for run in group if np.isfinite(run[name])] for key, group in self.points.items()}
        return {key: float(np.mean(values)) for key, values in values_at.items() if values}

    def settings(self, keys: Iterable[Key]) -> list[Key]:
        """Group points that differ only in the seed, for the bootstrap.

        Args:
            keys: the points.

        Returns:
            The group of every point. If the row has one setting, every point is a group.
        """
        several = len({_setting(key) for key in self.points}) > 1
        return [_setting(key) if several else key for key in keys]

    def count(self, name: str) -> int:
        """Count the runs in the sample of a measure.

        The number is lower than the number of finished runs if, for example, some runs never meet a condition.

        Args:
            name: the measure.

        Returns:
            The number of runs with a finite value.
        """
        return sum(bool(np.isfinite(run[name])) for group in self.points.values() for run in group)

    @property
    def total(self) -> int:
        """Number of runs, ended or not."""
        return self.outcomes.total()

    @property
    def finished(self) -> int:
        """Number of runs that count."""
        return self.outcomes["finished"]

    def left_out(self) -> str:
        """Describe the runs that do not count.

        Returns:
            A sentence; empty if all runs count.
        """
        rest = [f"{n} {outcome}" for outcome, n in sorted(self.outcomes.items()) if outcome != "finished"]
        return f"{self.label}: left out of {self.total} runs: {', '.join(rest)}" if rest else ""


def rows_of(study: GatheredStudy, spec: TableSpec, names: Sequence[str]) -> list[Row]:
    """Gather the rows of a table.

    Args:
        study: the study.
        spec: the table.
        names: measures that are read from every finished run.

    Returns:
        The rows, in the order of the study.

    Raises:
        BadInput: if no run has readings of a quantity.
    """
    roles = roles_of(study.axes, study.entry_axes, spec)
    by_label: dict[str, Row] = {}
    for run in study.runs:
        if not run.counted:
            continue
        label = row_label(run.place, roles.rows, study.entry_axes)
        row = by_label.setdefault(label, Row(label))
        measures = run.measure(names) if run.outcome == "finished" else None
        if measures is not None:
            key = tuple((axis, run.place[axis]) for axis in roles.over if axis in run.place)
            row.points.setdefault(key, []).append(measures)
        corrupted = measures is None and run.outcome == "finished"
        row.outcomes["with a corrupted journal" if corrupted else run.outcome] += 1
    rows = list(by_label.values())
    _check_read(spec, rows, names, {name for run in study.runs for name in run.quantities()})
    return rows


def _check_read(spec: TableSpec, rows: Sequence[Row], names: Sequence[str], read: set[str]) -> None:
    """Refuse a quantity that no run has: a wrong name must not give a column of gaps."""
    numbers = [run for row in rows for group in row.points.values() for run in group]
    for name in names:
        # A correlation may be undefined, and a condition never met, for every run, though every quantity is read.
        if numbers and all(np.isnan(run[name]) for run in numbers):
            for quantity in quantities_of(name):
                if quantity not in read:
                    near = suggest(quantity, sorted(read))
                    raise BadInput(
                        f"table {spec.name!r}: no run has readings of {quantity!r}{near}; see track in the base"
                    )
