"""The places of the grid: products of axes, zipped groups, entries that change other axes, and layers of run tables.

The layers, from the lowest: the base, the scale, the entries of the axes, single values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from surefoot.errors import BadInput
from surefoot.studies.spec import EntrySpec, Override, ScaleSpec, StudySpec
from surefoot.training.spec import number_of

__all__ = ["Place", "merged", "places", "put"]

# For these keys a bare word stands for a table with that name.
_NAMED = ("data", "model", "loss", "optimizer", "schedule", "base", "ensemble")
# A run has one of these two keys: the key of the upper layer counts.
_EITHER = {"steps": "epochs", "epochs": "steps"}

Lists = dict[str, tuple[str, tuple[Any, ...]]]


@dataclass(frozen=True)
class Place:
    """One run's place in the grid.

    An axis that an entry switches off is in neither dictionary.

    Attributes:
        shown: value of every axis, as text.
        values: value of every axis.
        seed: seed of the run.
        table: tables of the run's spec.
        entry_axes: the axes that consist of entries.
    """

    shown: dict[str, str]
    values: dict[str, Any]
    seed: int
    table: dict[str, Any]
    entry_axes: frozenset[str]

    def label(self, unknown: Sequence[str] = ()) -> str:
        """Label the run: ``"SGD lr=2/30 seed=0"``.

        Args:
            unknown: axes that are not decided yet; the label shows ``?`` for their values.

        Returns:
            The label.
        """
        parts = [
            text if axis in self.entry_axes else f"{axis}={'?' if axis in unknown else text}"
            for axis, text in self.shown.items()
        ]
        return " ".join([*parts, f"seed={self.seed}"])


def places(study: StudySpec, scale: ScaleSpec, name: str | None = None) -> list[Place]:
    """List all places of a study at a scale: entries vary slowest, then values, seeds fastest.

    Args:
        study: the study.
        scale: the scale.
        name: name of the scale, which selects tables of entries; None for a study without scales.

    Returns:
        The places in order.

    Raises:
        BadInput: if there are more places than the study's limit, or zipped axes have different lengths.
    """
    below = merged(study.base, scale.tables)
    seeds = study.seeds if scale.seeds is None else scale.seeds
    entry_axes = frozenset(axis for axis, axis_spec in study.axes.items() if axis_spec.entries)
    blocks, count = [], 0
    for block in _blocks(study, scale, entry_axes):
        count += len(seeds) * math.prod(block.lengths)
        if count > study.limit:  # counted, not made: a grid may have more places than there is memory
            raise BadInput(
                f"study {study.name!r} has more than {study.limit:,} runs; make an axis shorter, or raise limit"
            )
        blocks.append(block)
    return [
        _place(study, _laid(below, block.entries, name), block, index, seed, entry_axes)
        for block in blocks
        for index in block.indices()
        for seed in seeds
    ]


@dataclass(frozen=True)
class _Block:
    """The part of the grid with certain entries: the values that still vary, by groups of axes."""

    entries: dict[str, EntrySpec]
    lists: Lists
    chosen: dict[str, int]
    free: list[tuple[str, ...]]
    lengths: list[int]

    def indices(self) -> Iterator[dict[str, int]]:
        """The index of every axis' value, for all places of the block."""
        for further in product(*(range(length) for length in self.lengths)):
            yield self.chosen | {axis: i for group, i in zip(self.free, further, strict=True) for axis in group}


def _blocks(study: StudySpec, scale: ScaleSpec, entry_axes: frozenset[str]) -> Iterator[_Block]:
    groups = _groups(study)
    led = [group for group in groups if any(study.axes[axis].entries for axis in group)]
    free = [group for group in groups if group not in led]
    for at in product(*(range(_length(study, group)) for group in led)):
        chosen = {axis: i for group, i in zip(led, at, strict=True) for axis in group}
        entries = {axis: study.axes[axis].entries[i] for axis, i in chosen.items() if axis in entry_axes}
        lists = _lists(study, scale, entries)
        for group in groups:
            _check_lengths(study, group, lists, entries)
        lengths = [max((len(lists[axis][1]) for axis in group), default=0) or 1 for group in free]
        yield _Block(entries, lists, chosen, free, lengths)


def _groups(study: StudySpec) -> list[tuple[str, ...]]:
    """The dimensions of the grid: single axes and zipped axes, in the order of the file."""
    zipped = {axis: axes for axes in study.zip.values() for axis in axes}
    return list(dict.fromkeys(zipped.get(axis, (axis,)) for axis in study.axes))


def _length(study: StudySpec, group: tuple[str, ...]) -> int:
    lengths = {axis: len(study.axes[axis].entries) for axis in group if study.axes[axis].entries}
    if len(set(lengths.values())) > 1:
        raise BadInput(f"zip: axes of one group must be equally long; got {_counts(lengths)}")
    return next(iter(lengths.values()))


def _lists(study: StudySpec, scale: ScaleSpec, entries: Mapping[str, EntrySpec]) -> Lists:
    """Key and values of every axis of values for these entries; no values if an entry switches off the axis."""
    lists: Lists = {}
    for axis, axis_spec in study.axes.items():
        if axis_spec.entries:
            continue
        over = [(entry.name, entry.over[axis]) for entry in entries.values() if axis in entry.over]
        if len(over) > 1:
            raise BadInput(f"entries {over[0][0]!r} and {over[1][0]!r} both override {axis!r}; leave it to one of them")
        layers: list[Override] = [scale.over[axis]] if axis in scale.over else []
        layers += [override for _, override in over]
        key, values = str(axis_spec.key), axis_spec.values
        for layer in layers:
            key = layer.key or key
            values = () if layer.absent else layer.values or values
        lists[axis] = (key, values)
    return lists


def _check_lengths(study: StudySpec, group: tuple[str, ...], lists: Lists, entries: Mapping[str, EntrySpec]) -> None:
    lengths = {axis: len(lists[axis][1]) if axis in lists else len(study.axes[axis].entries) for axis in group}
    lengths = {axis: length for axis, length in lengths.items() if length}
    if len(set(lengths.values())) > 1:
        where = f" for {' '.join(entry.name for entry in entries.values())}" if entries else ""
        raise BadInput(f"zip: axes of one group must be equally long; got {_counts(lengths)}{where}")


def _counts(lengths: Mapping[str, int]) -> str:
    return ", ".join(f"{axis} with {length}" for axis, length in lengths.items())


def _laid(below: Mapping[str, Any], entries: Mapping[str, EntrySpec], scale: str | None) -> dict[str, Any]:
    """The tables of the entries over the tables below."""
    table = dict(below)
    for entry in entries.values():
        for layer in entry.tables(scale):
            table = merged(table, layer)
    return table


def _place(
    study: StudySpec,
    table: dict[str, Any],
    block: _Block,
    index: Mapping[str, int],
    seed: int,
    entry_axes: frozenset[str],
) -> Place:
    shown: dict[str, str] = {}
    values: dict[str, Any] = {}
    for axis in study.axes:
        if axis in block.entries:
            shown[axis] = values[axis] = block.entries[axis].name
            continue
        key, choices = block.lists[axis]
        if not choices:
            continue
        shown[axis] = _texts(choices)[index[axis]]
        values[axis] = number_of(choices[index[axis]])
        table = put(table, key, values[axis])
    return Place(shown, values, seed, table | {"seed": seed}, entry_axes)


def _texts(values: Sequence[Any]) -> list[str]:
    """Values as text: four digits, or as many digits as make the values different."""
    for digits in (4, 8, 17):
        texts = [f"{value:.{digits}g}" if isinstance(value, float) else str(value) for value in values]
        if len(set(texts)) == len(texts):
            break
    return texts


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Lay the tables ``above`` over the tables ``below``.

    A table with another ``name`` replaces the table below completely, since options belong to the named object.

    Args:
        below: tables that are overridden.
        above: tables that override.

    Returns:
        The merged tables; neither argument changes.

    Example:
        >>> base = {"optimizer": {"name": "sgd", "lr": 1}, "stop": {"steps": 5}}
        >>> merged(base, {"optimizer": "gd", "stop": {"batch": 2}})
        {'optimizer': {'name': 'gd'}, 'stop': {'steps': 5, 'batch': 2}}
    """
    tables = dict(below)
    for key, value in above.items():
        old = tables.get(key)
        if key in _NAMED:
            old, value = _table(old), _table(value)
        if isinstance(old, Mapping) and isinstance(value, Mapping) and not _another(old, value):
            tables[key] = merged(old, value)
            continue
        if key in _EITHER:
            tables.pop(_EITHER[key], None)
        tables[key] = value
    return tables


def put(table: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Put a value at a dotted path of a table; missing tables on the path are made.

    Args:
        table: the table, which does not change.
        key: dotted path, such as ``optimizer.lr``.
        value: the value.

    Returns:
        The new table.

    Raises:
        BadInput: if a part of the key is empty, or the path leads through a value.

    Example:
        >>> put({"optimizer": "sgd"}, "optimizer.lr", 0.1)
        {'optimizer': {'name': 'sgd', 'lr': 0.1}}
    """
    parts = key.split(".")
    if not all(part.strip() for part in parts):
        raise BadInput(f"a key is a path such as optimizer.lr; got {key!r}")
    above: Any = value
    for part in reversed(parts):
        above = {part: above}
    place: Any = table
    for part in parts[:-1]:  # a value on the way is not overwritten by a table in silence
        place = place.get(part, {})
        place = _table(place) if part in _NAMED else place
        if not isinstance(place, Mapping):
            raise BadInput(f"key {key!r}: {part!r} is a value, not a table; got {place!r}")
    return merged(table, above)


def _table(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _another(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return "name" in new and "name" in old and new["name"] != old["name"]
