"""A study's runs, all checked before the first run starts: labels, specs, names of folders, predicted cost."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.data.sets import load_set
from surefoot.ensembles.registry import ENSEMBLES
from surefoot.errors import BadInput
from surefoot.losses.registry import LOSSES
from surefoot.optim.registry import optimizer_entry
from surefoot.studies.grid import Place, places
from surefoot.studies.spec import SelectSpec, StudySpec, check_baseline, roles_of, row_label
from surefoot.training.spec import DataSpec, RunSpec, spec_of

__all__ = [
    "Choices",
    "DatasetIndex",
    "DatasetInfo",
    "Group",
    "Plan",
    "Planned",
    "axes_of",
    "cost_of",
    "group_of",
    "make_plan",
    "steps_of",
]


@dataclass(frozen=True)
class DatasetInfo:
    """Metadata of a data set.

    Attributes:
        digest: digest of the data.
        train: number of training examples.
        test: number of test examples.
        shape: shape of one example as a network receives it; images are (channels, height, width).
        classes: number of classes.
    """

    digest: str
    train: int
    test: int
    shape: tuple[int, ...]
    classes: int


class DatasetIndex:
    """Metadata of the data sets in a folder, read when first asked for.

    Attributes:
        root: the folder.
        missing: messages about the missing sets.

    Args:
        root: folder of the data sets; None has embedded data sets alone.
        lenient: whether a missing set gives None instead of an error.
    """

    def __init__(self, root: Path | None, lenient: bool = False) -> None:
        self.root, self._lenient = root, lenient
        self._known: dict[str, DatasetInfo | None] = {}
        self.missing: list[str] = []

    def of(self, name: str) -> DatasetInfo | None:
        """Read the metadata of a data set.

        Args:
            name: name of the set.

        Returns:
            The metadata; None if the set is missing and the index is lenient.

        Raises:
            BadInput: if the set is missing or unknown, and the index is not lenient.
        """
        if name not in self._known:
            self._known[name] = self._read(name)
        return self._known[name]

    def rows(self, data: DataSpec) -> int | None:
        """Count the training examples of a run.

        Args:
            data: the data section of the run's spec.

        Returns:
            The number of examples; None if the number depends on a missing set.

        Raises:
            BadInput: if the spec asks for more examples than the set has.
        """
        known = self.of(data.name)
        if known is None:
            return data.train
        for part, wanted, available in (
            ("train", (data.train or 1) + data.val, known.train),
            ("test", data.test or 1, known.test),
        ):
            if wanted > available:
                what = "data.train and data.val together" if part == "train" else "data.test"
                raise BadInput(f"{what} must be at most {available:,} for {data.name}; got {wanted:,}")
        return known.train - data.val if data.train is None else data.train

    def _read(self, name: str) -> DatasetInfo | None:
        try:
            data = load_set(name, self.root)
        except BadInput as error:
            if not self._lenient:
                raise
            self.missing.append(str(error))
            return None
        shape = tuple(int(size) for size in data.x_train.shape[1:])
        if len(shape) == 3:  # images come with their channels last
            shape = (shape[2], shape[0], shape[1])
        return DatasetInfo(data.digest(), len(data.x_train), len(data.x_test), shape, data.classes)


def steps_of(spec: RunSpec, rows: int) -> int:
    """Count the steps of a run.

    Args:
        spec: the run.
        rows: number of training examples, at least 1.

    Returns:
        The number of steps.
    """
    return spec.stop.steps or int(spec.stop.epochs or 1) * max(1, rows // _size(spec, rows))


def cost_of(spec: RunSpec, rows: int) -> float:
    """Predict the number of gradients of the cross-entropy, in passes over the training set.

    cost = steps × passes × batch size / rows. The passes are those of the optimizer, times those of a gradient of the
    loss, times the members of an ensemble.

    BulkSGD and DomSGD also compute directions: about 2 (k + 1) products of two passes for every computation. The cost
    of readings is not counted.

    Args:
        spec: the run.
        rows: number of training examples, at least 1.

    Returns:
        The cost in passes over the training set.
    """
    steps, entry = steps_of(spec, rows), optimizer_entry(spec.optimizer.name)
    loss = LOSSES[spec.loss.name].gradients if spec.loss.name in LOSSES else 1
    cost = steps * entry.gradients * loss * _size(spec, rows) / rows * _members(spec)
    if entry.directions:
        k, refresh = (spec.optimizer.options.get(option, default) for option, default in entry.directions.items())
        if isinstance(k, int) and isinstance(refresh, int) and refresh > 0:
            cost += math.ceil(steps / refresh) * 4 * (k + 1)
    return cost


def _members(spec: RunSpec) -> int:
    """Number of members of an ensemble that see each batch."""
    entry = None if spec.ensemble is None else ENSEMBLES.get(spec.ensemble.name)
    if spec.ensemble is None or entry is None or entry.repeats is None:
        return 1
    option, default = entry.repeats
    members = spec.ensemble.options.get(option, default)
    return members if isinstance(members, int) else default


def _size(spec: RunSpec, rows: int) -> int:
    return rows if spec.stop.batch == "full" else min(int(spec.stop.batch), rows)


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
