"""A study's runs, all checked before the first run starts: labels, specs, names of folders, predicted cost."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from surefoot.errors import BadInput
from surefoot.studies.axis_roles import check_baseline, roles_of, row_label
from surefoot.studies.costs import cost_of, steps_of
from surefoot.studies.facts import DatasetIndex
from surefoot.studies.grid import Place, places
from surefoot.studies.spec import SelectSpec, StudySpec
from surefoot.training.spec import RunSpec, spec_of

__all__ = ["Choices", "Group", "Plan", "Planned", "axes_of", "group_of", "make_plan"]

Group = tuple[tuple[str, str], ...]
# What was chosen for each group of runs: axis -> value as shown.
Choices = Mapping[Group, Mapping[str, str]]


@dataclass(frozen=True)
class Planned:
    """One planned run.

    Attributes:
        label: label of the run.
        shown: value of every axis, as text.
        values: value of every axis.
        seed: seed of the run.
        stage: 1, or 2 for a run that waits for the choice of the first stage.
        decided: False before that choice is made; the chosen axes then hold the values of the first grid point.
        spec: spec of the run.
        id: id of the run; None for an undecided run, or if the data is missing.
        steps: number of steps; None if the number depends on missing data.
        cost: cost in passes over the training set; None if the cost depends on missing data.
    """

    label: str
    shown: dict[str, str]
    values: dict[str, Any]
    seed: int
    stage: int
    decided: bool
    spec: RunSpec
    id: str | None
    steps: int | None
    cost: float | None


@dataclass(frozen=True)
class Plan:
    """All runs of a study at a scale.

    Attributes:
        study: the study.
        scale: name of the scale, or None.
        runs: the runs in order.
    """

    study: StudySpec
    scale: str | None
    runs: list[Planned]

    @property
    def method_axis(self) -> str | None:
        """The axis that has ``select.method`` as an entry; None for a study without ``select``."""
        return None if self.study.select is None else _method_axis(self.study, self.study.select)


def make_plan(study: StudySpec, scale: str | None, library: DatasetIndex, choices: Choices | None = None) -> Plan:
    """Plan the runs of a study at a scale, and check all of them.

    Args:
        study: the study.
        scale: name of the scale; None takes the scale that the study names.
        library: metadata of the data sets.
        choices: choices of the first stage of ``select``; None leaves runs of the second stage undecided.

    Returns:
        The plan.

    Raises:
        BadInput: if a run's spec is invalid, two runs are the same, or the study has no such scale.
    """
    name, chosen_scale = study.at_scale(scale)
    grid = places(study, chosen_scale, name)
    if study.select is None:
        runs = [_planned(place, library) for place in grid]
    else:
        runs = _two_stages(study, study.select, grid, library, choices)
    _check_different(runs)
    _check_baselines(study, name, runs)
    return Plan(study, name, runs)


def axes_of(places_shown: Iterable[Mapping[str, str]]) -> set[str]:
    """Collect the axes of several places.

    Args:
        places_shown: value of every axis, for each place.

    Returns:
        The names of the axes.
    """
    return {axis for shown in places_shown for axis in shown}


def group_of(shown: Mapping[str, str], method_axis: str, select: SelectSpec, known: Container[str]) -> Group:
    """Name the group of runs that share one choice: runs that agree on the axes of the selecting method.

    Args:
        shown: value of every axis of a run, as text.
        method_axis: the axis that has the selecting method as an entry.
        select: the section ``select`` of the study.
        known: axes of the selecting method's runs.

    Returns:
        Pairs (axis, value) of the group.
    """
    left_out = {method_axis, *select.axes}
    return tuple((axis, text) for axis, text in shown.items() if axis in known and axis not in left_out)


def _two_stages(
    study: StudySpec, select: SelectSpec, grid: list[Place], library: DatasetIndex, choices: Choices | None
) -> list[Planned]:
    axis = _method_axis(study, select)
    first = [place for place in grid if place.shown[axis] == select.method]
    runs = [_planned(place, library) for place in first]
    for run in runs:
        if run.spec.data.val == 0:
            raise BadInput(f"{run.label}: select.metric {select.metric} needs validation examples; set data.val")
    for name in select.axes:
        if not all(name in place.shown for place in first):
            raise BadInput(f"select.axes: {select.method!r} does without {name!r}, so it cannot choose it")
    known = axes_of(place.shown for place in first)
    groups: dict[Group, list[dict[str, str]]] = {}
    for place in first:
        groups.setdefault(group_of(place.shown, axis, select, known), []).append(
            {name: place.shown[name] for name in select.axes}
        )
    if choices is None and all(values == candidates[0] for candidates in groups.values() for values in candidates):
        choices = {group: candidates[0] for group, candidates in groups.items()}  # there is only one candidate
    seen: set[Any] = set()
    for place in grid:
        if place.shown[axis] == select.method:
            continue
        if group_of(place.shown, axis, select, known) not in groups:
            raise BadInput(f"{place.label(select.axes)}: {select.method!r} has no run there that could choose for it")
        kept = (place.seed, *((name, text) for name, text in place.shown.items() if name not in select.axes))
        if choices is None:
            if kept not in seen:
                runs.append(_planned(place, library, stage=2, unknown=select.axes))
            seen.add(kept)
            continue
        choice = choices[group_of(place.shown, axis, select, known)]
        if all(place.shown.get(name, text) == text for name, text in choice.items()):
            runs.append(_planned(place, library, stage=2))
    return runs


def _method_axis(study: StudySpec, select: SelectSpec) -> str:
    return next(name for name, axis in study.axes.items() if select.method in [entry.name for entry in axis.entries])


def _planned(place: Place, library: DatasetIndex, stage: int = 1, unknown: Sequence[str] = ()) -> Planned:
    label = place.label(unknown)
    spec = spec_of(place.table, label)
    try:
        facts, rows = library.of(spec.data.name), library.rows(spec.data)
        if rows is not None and spec.stop.batch != "full" and int(spec.stop.batch) > rows:
            raise BadInput(
                f"stop.batch must be 'full' or at most {rows:,}, the training examples; got {spec.stop.batch}"
            )
        cost = None if rows is None else cost_of(spec, rows)
    except BadInput as error:
        raise BadInput(f"{label}: {error}") from error
    return Planned(
        label,
        {axis: "?" if axis in unknown else text for axis, text in place.shown.items()},
        {axis: None if axis in unknown else value for axis, value in place.values.items()},
        place.seed,
        stage,
        not unknown,
        spec,
        None if unknown or facts is None else spec.run_id(facts.digest),
        None if rows is None else steps_of(spec, rows),
        cost,
    )


def _check_baselines(study: StudySpec, scale: str | None, runs: Sequence[Planned]) -> None:
    """Check that a table's baseline is one of its rows, if the rows are known before the runs."""
    entry_axes = [axis for axis, axis_spec in study.axes.items() if axis_spec.entries]
    for table in study.tables_at(scale):
        rows = roles_of(list(study.axes), entry_axes, table).rows
        if table.baseline is None or (study.select is not None and not set(rows).isdisjoint(study.select.axes)):
            continue
        places = ({**run.shown, "seed": str(run.seed)} for run in runs)
        check_baseline(table, list(dict.fromkeys(row_label(place, rows, entry_axes) for place in places)))


def _check_different(runs: Sequence[Planned]) -> None:
    labels: set[str] = set()
    ids: dict[str, str] = {}
    for run in runs:
        if run.label in labels:
            raise BadInput(f"two runs have the label {run.label!r}; give the entries of the axes different names")
        labels.add(run.label)
        # Without the data the spec itself says whether two runs are the same.
        name = run.id or (run.spec.run_id("") if run.decided else run.label)
        if name in ids:
            raise BadInput(
                f"{ids[name]!r} and {run.label!r} are the same run; an axis sets what another overrides, or nothing"
            )
        ids[name] = run.label
