"""The specification of a study: a base run, axes, seeds, scales, the selection of values, and tables."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from surefoot.deprecated import current_key, current_keys, current_name, former_name
from surefoot.errors import BadInput
from surefoot.metrics.registry import check_validation
from surefoot.studies.measures import check_measure
from surefoot.training.spec import read_toml
from surefoot.training.spec_errors import ClearErrors, clear_error
from surefoot.validation import suggest

__all__ = [
    "AxisSpec",
    "EntrySpec",
    "Override",
    "Roles",
    "ScaleSpec",
    "SelectSpec",
    "StudySpec",
    "TableSpec",
    "check_baseline",
    "read_study",
    "roles_of",
    "row_label",
    "study_of",
    "table_of",
]

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"


class _Table(BaseModel, metaclass=ClearErrors):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _values(given: Any) -> Any:
    """A list of numbers, words or booleans without duplicates."""
    if not isinstance(given, list | tuple) or not given:
        raise ValueError("values must be a list with one value at least")
    for value in given:
        if not isinstance(value, bool | int | float | str):
            raise ValueError(f"values must be numbers, words, true or false; for tables take entries; got {value!r}")
    if len({(type(value), value) for value in given}) < len(given):
        raise ValueError(f"a value is given twice in {list(given)!r}")
    return tuple(given)


def _current(given: Any) -> Any:
    """Run tables with current keys, a dotted path with a current key, any other value unchanged."""
    if isinstance(given, Mapping):
        return current_keys(given)
    return current_key(given) if isinstance(given, str) else given


class Override(_Table):
    """What an entry or a scale changes about an axis of values: other values, another key, or no such axis.

    A study's file has a list, ``{ key = …, values = … }`` with one or both keys, or ``false``.

    Attributes:
        key: dotted path that the values go to instead.
        values: values instead of those of the axis.
        absent: whether the axis is switched off.
    """

    form: ClassVar = "a list of values, a table with key or values, or false"
    hidden: ClassVar = ("absent",)
    key: str | None = None
    values: tuple[Any, ...] | None = None
    absent: bool = False

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        if given is False:
            return {"absent": True}
        return {"values": given} if isinstance(given, list) else given

    @field_validator("key", mode="before")
    @classmethod
    def _current_key(cls, given: Any) -> Any:
        return _current(given)

    @field_validator("values", mode="before")
    @classmethod
    def _checked(cls, given: Any) -> Any:
        return None if given is None else _values(given)


class EntrySpec(BaseModel, metaclass=ClearErrors):
    """A named entry of an axis: run tables over the base, and changes of axes of values.

    Further keys are run tables.

    Attributes:
        name: name of the entry.
        over: changes of axes of values, by axis.
        at: run tables for single scales. For example, GD may need more steps than SGD at a scale with few steps of SGD.
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str = Field(min_length=1)
    over: dict[str, Override] = {}
    at: dict[str, dict[str, Any]] = {}

    @model_validator(mode="before")
    @classmethod
    def _current(cls, given: Any) -> Any:
        return _current(given)

    @field_validator("at", mode="before")
    @classmethod
    def _current_at(cls, given: Any) -> Any:
        return {scale: _current(table) for scale, table in given.items()} if isinstance(given, Mapping) else given

    def tables(self, scale: str | None) -> list[dict[str, Any]]:
        """List the run tables at a scale.

        Args:
            scale: name of the scale, or None.

        Returns:
            The tables, from the lowest layer to the highest.
        """
        own = dict(self.model_extra or {})
        return [own, self.at[scale]] if scale in self.at else [own]


class AxisSpec(_Table):
    """An axis: a list of entries, or a key with its values.

    Attributes:
        entries: the entries.
        key: dotted path in the run's spec.
        values: the values.
    """

    form: ClassVar = "a list of entries, or a table with a key and values"
    hidden: ClassVar = ("entries",)
    entries: tuple[EntrySpec, ...] = ()
    key: str | None = None
    values: tuple[Any, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        if isinstance(given, list):
            if not given:
                raise ValueError("is empty; give it entries, or a key and values")
            if not all(isinstance(entry, Mapping) for entry in given):
                raise ValueError('a list of values needs its key: { key = "optimizer.lr", values = [...] }')
            return {"entries": given}
        return given

    @field_validator("key", mode="before")
    @classmethod
    def _current_key(cls, given: Any) -> Any:
        return _current(given)

    @field_validator("values", mode="before")
    @classmethod
    def _checked(cls, given: Any) -> Any:
        return _values(given)

    @model_validator(mode="after")
    def _one_kind(self) -> AxisSpec:
        if not self.entries and (self.key is None or not self.values):
            raise ValueError("must be a list of entries, or a key and values")
        if self.entries and (self.key is not None or self.values):
            raise ValueError("has entries, and then no key or values of its own")
        names = [entry.name for entry in self.entries]
        if len(set(names)) < len(names):
            raise ValueError(f"two entries have the same name: {', '.join(names)}")
        if self.key == "seed":
            raise ValueError("seeds are not an axis; give seeds = [0, 1, 2]")
        return self


class ScaleSpec(BaseModel, metaclass=ClearErrors):
    """Run tables over the base, and the seeds and values of a scale. Further keys are run tables.

    Attributes:
        seeds: seeds instead of the study's.
        over: changes of axes of values, by axis.
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    seeds: tuple[int, ...] | None = None
    over: dict[str, Override] = {}

    @model_validator(mode="before")
    @classmethod
    def _current(cls, given: Any) -> Any:
        return _current(given)

    @property
    def tables(self) -> dict[str, Any]:
        """The run tables."""
        return dict(self.model_extra or {})


class SelectSpec(_Table):
    """Choose the values of some axes on validation data with one method; the other methods use the chosen values.

    Attributes:
        method: name of the entry that chooses.
        axes: axes of values that are chosen.
        metric: quantity of the validation data in the final reading.
    """

    method: str
    axes: tuple[str, ...] = Field(min_length=1)
    metric: str = "val.nll"

    @field_validator("metric")
    @classmethod
    def _held_out(cls, given: str) -> str:
        return check_validation(given)


Kind = Literal["summary", "correlation", "hypotheses", "compare", "predict"]


class TableSpec(_Table):
    """One table: its kind, quantities, rows, averages and reference values.

    Attributes:
        name: name of the table.
        kind: ``"summary"``, ``"correlation"``, ``"hypotheses"``, ``"compare"`` or ``"predict"``.
        caption: caption.
        metrics: the measures; see `surefoot.studies.measures`.
        rows: axes of the rows.
        over: axes that means and standard deviations are taken over.
        average: axes that are averaged before the means are taken.
        baseline: label of the row that other rows are compared with.
        test: ``"t"`` (paired t test) or ``"signs"`` (sign flips of paired differences), in tables of kind compare.
        level: level of the intervals, between 0 and 1.
        digits: digits after the point, from 0 to 12; None takes the default of the kind.
        intervals: whether cells show intervals.
        until: conditions. A table of kind correlation adds the readings up to each condition. A table of kind predict
            predicts from the reading at each condition.
        target: measure of the complete run that a table of kind predict predicts.
        paper: published values: measure → row → text.
        scales: scales at which the table is made; empty means all scales.
    """

    name: str = Field(min_length=1)
    kind: Kind = "summary"
    caption: str = ""
    metrics: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    average: tuple[str, ...] = ()
    baseline: str | None = None
    test: Literal["t", "signs"] = "t"
    level: float = Field(default=0.95, gt=0, lt=1)
    digits: int | None = Field(default=None, ge=0, le=12)
    intervals: bool = False
    until: tuple[str, ...] = ()
    target: str = "test.ece"
    paper: dict[str, dict[str, str]] = {}
    scales: tuple[str, ...] = ()

    @field_validator("rows", "over", "average", "metrics", "scales", "until", mode="before")
    @classmethod
    def _one(cls, given: Any) -> Any:
        return [given] if isinstance(given, str) else given

    @field_validator("metrics")
    @classmethod
    def _measures(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for name in given:
            check_measure(name)
        return given

    @field_validator("until")
    @classmethod
    def _stops(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for stop in given:
            check_measure(f"test.ece until {stop}")
        return given

    @model_validator(mode="after")
    def _fits_its_kind(self) -> TableSpec:
        if self.until and self.kind not in ("correlation", "predict"):
            raise ValueError(f"until is for tables of kind correlation and predict; this one is a {self.kind}")
        if self.kind == "predict" and not self.until:
            raise ValueError("a table of kind predict needs until: at which readings to predict (step>=100)")
        check_measure(self.target)
        stopped = next((name for name in self.metrics if self.until and "until" in name.split()), None)
        if stopped:
            raise ValueError(f"until is given for the whole table, and {stopped!r} has its own")
        for name in self.metrics:
            for stop in self.until:
                check_measure(f"{name} until {stop}")
        return self


class StudySpec(_Table):
    """The specification of a study.

    Attributes:
        name: name of the study.
        base: tables of the base run.
        axes: the axes, by name.
        zip: groups of axes that vary together.
        seeds: seeds of the runs.
        limit: maximum number of runs, at least 1.
        scale: name of the default scale.
        scales: the scales, by name.
        select: selection of values on validation data, or None.
        tables: the tables.
    """

    name: str = Field(pattern=f"^{_NAME}$", description="a name of letters, digits, '.', '_' and '-'")
    base: dict[str, Any]
    axes: dict[str, AxisSpec] = {}
    zip: dict[str, tuple[str, ...]] = {}
    seeds: tuple[int, ...] = Field(default=(0,), min_length=1)
    limit: int = Field(default=1000, ge=1)
    scale: str | None = None
    scales: dict[str, ScaleSpec] = {}
    select: SelectSpec | None = None
    tables: tuple[TableSpec, ...] = ()

    @field_validator("base", mode="before")
    @classmethod
    def _current_base(cls, given: Any) -> Any:
        return _current(given)

    @model_validator(mode="after")
    def _names_fit(self) -> StudySpec:
        for group, axes in self.zip.items():
            for axis in axes:
                _known(f"zip.{group}", axis, self.axes)
        zipped = [axis for axes in self.zip.values() for axis in axes]
        if len(set(zipped)) < len(zipped):
            raise ValueError(f"an axis is in two groups of zip: {', '.join(zipped)}")
        for name, axis_ in self.axes.items():
            if name in ("seed", "run"):
                raise ValueError(f"an axis must not be named {name!r}")
            for entry in axis_.entries:
                self._check_over(f"axes.{name}, entry {entry.name!r}, over", entry.over)
                for scale_name in entry.at:
                    _known(f"axes.{name}, entry {entry.name!r}, at", scale_name, self.scales)
        if self.scale is not None:
            _known("scale", self.scale, self.scales)
        for name, scale in self.scales.items():
            if not re.fullmatch(_NAME, name):
                raise ValueError(f"a scale is part of the folder's name: letters, digits, . _ and -; got {name!r}")
            self._check_over(f"scales.{name}.over", scale.over)
        self._check_seeds()
        self._check_select()
        self._check_tables()
        return self

    def _check_over(self, place: str, over: Mapping[str, Override]) -> None:
        for axis in over:
            _known(place, axis, [name for name, axis_spec in self.axes.items() if not axis_spec.entries])

    def _check_seeds(self) -> None:
        tables = [self.base, *(scale.tables for scale in self.scales.values())]
        scales = [None, *self.scales]
        entries = [entry for axis in self.axes.values() for entry in axis.entries]
        tables += [table for entry in entries for scale in scales for table in entry.tables(scale)]
        if any("seed" in table for table in tables):
            raise ValueError("a study takes seeds = [0, 1, 2], not the seed of a run")
        for seeds in (self.seeds, *(scale.seeds for scale in self.scales.values() if scale.seeds is not None)):
            if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
                raise ValueError(f"seeds must be different integers of at least 0; got {list(seeds)}")

    def _check_select(self) -> None:
        if self.select is None:
            return
        names = [entry.name for axis in self.axes.values() for entry in axis.entries]
        _known("select.method", self.select.method, names)
        if names.count(self.select.method) > 1:
            raise ValueError(f"select.method {self.select.method!r} is an entry of two axes; rename one")
        for axis in self.select.axes:
            _known("select.axes", axis, [name for name, axis_spec in self.axes.items() if not axis_spec.entries])
        for name in self.select.axes:
            if any(entry.over[name].values for entry in self.entries_over(name)):
                raise ValueError(f"select chooses {name} for all methods; no entry may give values of its own for it")

    def _check_tables(self) -> None:
        names = [table.name for table in self.tables]
        if len(set(names)) < len(names):
            raise ValueError(f"two tables have the same name: {', '.join(names)}")
        for table in self.tables:
            named = [*table.rows, *table.over, *table.average]
            for axis in named:
                _known(f"table {table.name!r}", axis, [*self.axes, "seed"])
            for measure in table.paper if table.metrics else ():
                _known(f"table {table.name!r}, paper", measure, table.metrics)
            for scale in table.scales:
                _known(f"table {table.name!r}, scales", scale, self.scales)
            twice = [axis for axis in named if named.count(axis) > 1]
            if twice:
                raise ValueError(f"table {table.name!r}: {twice[0]!r} is in more than one of rows, over and average")

    def entries_over(self, axis: str) -> list[EntrySpec]:
        """List the entries that change an axis of values.

        Args:
            axis: name of the axis.

        Returns:
            The entries.
        """
        return [entry for spec in self.axes.values() for entry in spec.entries if axis in entry.over]

    def tables_at(self, scale: str | None) -> list[TableSpec]:
        """List the tables that are made at a scale.

        Args:
            scale: name of the scale, or None.

        Returns:
            The tables.
        """
        return [table for table in self.tables if not table.scales or scale in table.scales]

    def at_scale(self, name: str | None) -> tuple[str | None, ScaleSpec]:
        """Find a scale.

        Args:
            name: name or alias of a scale; None takes the default scale of the study.

        Returns:
            The name and the scale; None and an empty scale if the study has no scales.

        Raises:
            BadInput: if the study has no such scale, or no default scale.
        """
        if not self.scales:
            if name is not None:
                raise BadInput(f"study {self.name!r} has no scales; leave out scale {name!r}")
            return None, ScaleSpec()
        wanted = name or self.scale
        if wanted is None:
            raise BadInput(f"study {self.name!r} has the scales {', '.join(self.scales)}; choose one by scale=...")
        for scale in (wanted, current_name(wanted), former_name(wanted)):
            if scale in self.scales:
                return scale, self.scales[scale]
        have = ", ".join(self.scales)
        raise BadInput(f"scale must be one of {have}; got {wanted!r}{suggest(wanted, self.scales)}")


def _known(place: str, name: str, choices: Any) -> None:
    if name not in choices:
        hint = suggest(name, choices) or (f"; there are {', '.join(choices)}" if choices else "")
        raise ValueError(f"{place}: there is no {name!r}{hint}")


def read_study(path: Path) -> StudySpec:
    """Read a study from a TOML file.

    Args:
        path: path of the file.

    Returns:
        The study.

    Raises:
        BadInput: if the file cannot be read or the study is invalid.
    """
    return study_of(read_toml(path, "study"), path.name)


def study_of(table: Mapping[str, Any], source: str = "study") -> StudySpec:
    """Make a `StudySpec` of plain tables.

    Args:
        table: the tables.
        source: name of the source in error messages.

    Returns:
        The study.

    Raises:
        BadInput: if a value is invalid; the message names the key, the valid values, and the nearest valid key.
    """
    try:
        return StudySpec.model_validate(dict(table))
    except ValidationError as error:
        raise clear_error(error, StudySpec, source) from error


def table_of(table: Any) -> TableSpec:
    """Make a `TableSpec` of a table in a study's folder.

    Args:
        table: the table as a plain mapping.

    Returns:
        The table's specification.

    Raises:
        BadInput: if the mapping is not a table.
    """
    try:
        return TableSpec.model_validate(table)
    except ValidationError as error:
        raise BadInput("study.json holds a table that is none; run the study again") from error


@dataclass(frozen=True)
class Roles:
    """The role of every axis in a table.

    Attributes:
        rows: axes that the rows are labelled with.
        over: axes that means are taken over.
        average: axes that are averaged before the means are taken.
    """

    rows: list[str]
    over: list[str]
    average: list[str]


def roles_of(axes: Sequence[str], entry_axes: Sequence[str], spec: TableSpec) -> Roles:
    """Assign a role to every axis of a study.

    By default the rows are the axes of entries. An axis that the table does not mention goes to ``over`` if the table
    gives no ``over``. Otherwise such an axis goes to the rows, except for the seed, which is averaged first.

    Args:
        axes: axes of the study.
        entry_axes: the axes that consist of entries.
        spec: the table.

    Returns:
        The roles.
    """
    row_axes = list(spec.rows) or [axis for axis in entry_axes if axis not in (*spec.over, *spec.average)]
    rest = [axis for axis in axes if axis not in (*row_axes, *spec.over, *spec.average)]
    seed = [] if "seed" in (*row_axes, *spec.over, *spec.average) else ["seed"]
    if not spec.over:
        return Roles(row_axes, rest + seed, list(spec.average))
    return Roles(row_axes + rest, list(spec.over), [*spec.average, *seed])


def row_label(place: Mapping[str, str], axes: Sequence[str], entry_axes: Container[str]) -> str:
    """Label a row by its values: ``"SGD lr=0.1"``.

    Args:
        place: value of every axis as text, including the seed.
        axes: axes of the rows. Axes that the place does not have are left out.
        entry_axes: axes of entries; the label shows their values without the axis' name.

    Returns:
        The label; ``"all"`` if no axis is left.

    Example:
        >>> row_label({"method": "SGD", "lr": "0.1", "seed": "0"}, ["method", "lr"], ["method"])
        'SGD lr=0.1'
    """
    parts = [place[axis] if axis in entry_axes else f"{axis}={place[axis]}" for axis in axes if axis in place]
    return " ".join(parts) or "all"


def check_baseline(spec: TableSpec, labels: Sequence[str]) -> None:
    """Check that the baseline of a table is one of its rows.

    Args:
        spec: the table.
        labels: labels of the rows.

    Raises:
        BadInput: if the table has a baseline that is no label.
    """
    if spec.baseline is not None and spec.baseline not in labels:
        near = suggest(spec.baseline, labels)
        raise BadInput(f"table {spec.name!r}: baseline must be one of {', '.join(labels)}; got {spec.baseline!r}{near}")
