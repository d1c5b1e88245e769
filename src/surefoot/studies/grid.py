"""From axes to places in the grid: products, zipped groups, and entries that change the values of other axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from surefoot.errors import BadInput
from surefoot.studies.merge import merged, put
from surefoot.studies.spec import EntrySpec, Override, ScaleSpec, StudySpec
from surefoot.training.spec import number_of

__all__ = ["Place", "places"]

Lists = dict[str, tuple[str, tuple[Any, ...]]]


@dataclass(frozen=True)
class Place:
    """One run's place: what each axis is there, as shown and as a value; its seed; its run tables.

    An axis that an entry does without is in neither dictionary.
    """

    shown: dict[str, str]
    values: dict[str, Any]
    seed: int
    table: dict[str, Any]
    entry_axes: frozenset[str]

    def label(self, unknown: Sequence[str] = ()) -> str:
        """``"SGD lr=2/30 seed=0"``; axes in ``unknown`` are not decided yet."""
        parts = [
            text if axis in self.entry_axes else f"{axis}={'?' if axis in unknown else text}"
            for axis, text in self.shown.items()
        ]
        return " ".join([*parts, f"seed={self.seed}"])


def places(study: StudySpec, scale: ScaleSpec, name: str | None = None) -> list[Place]:
    """All places of the study at a scale of that name, in order: entries first, then values, seeds last."""
    below = merged(study.base, scale.tables)
    seeds = study.seeds if scale.seeds is None else scale.seeds
    entry_axes = frozenset(axis for axis, each in study.axes.items() if each.entries)
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
    """The part of the grid where certain entries hold: the values left to vary, by groups of axes."""

    entries: dict[str, EntrySpec]
    lists: Lists
    chosen: dict[str, int]
    free: list[tuple[str, ...]]
    lengths: list[int]

    def indices(self) -> Iterator[dict[str, int]]:
        """Which value each axis has, for all places of the block."""
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
    """The dimensions of the grid: single axes and zipped ones, in the order of the file."""
    zipped = {axis: axes for axes in study.zip.values() for axis in axes}
    return list(dict.fromkeys(zipped.get(axis, (axis,)) for axis in study.axes))


def _length(study: StudySpec, group: tuple[str, ...]) -> int:
    lengths = {axis: len(study.axes[axis].entries) for axis in group if study.axes[axis].entries}
    if len(set(lengths.values())) > 1:
        raise BadInput(f"zip: axes of one group must be equally long; got {_counts(lengths)}")
    return next(iter(lengths.values()))


def _lists(study: StudySpec, scale: ScaleSpec, entries: Mapping[str, EntrySpec]) -> Lists:
    """Key and values of each axis of values where these entries hold; no values where an entry does without it."""
    found: Lists = {}
    for axis, each in study.axes.items():
        if each.entries:
            continue
        over = [(entry.name, entry.over[axis]) for entry in entries.values() if axis in entry.over]
        if len(over) > 1:
            raise BadInput(f"entries {over[0][0]!r} and {over[1][0]!r} both override {axis!r}; leave it to one of them")
        layers: list[Override] = [scale.over[axis]] if axis in scale.over else []
        layers += [override for _, override in over]
        key, values = str(each.key), each.values
        for layer in layers:
            key = layer.key or key
            values = () if layer.absent else layer.values or values
        found[axis] = (key, values)
    return found


def _check_lengths(study: StudySpec, group: tuple[str, ...], lists: Lists, entries: Mapping[str, EntrySpec]) -> None:
    lengths = {axis: len(lists[axis][1]) if axis in lists else len(study.axes[axis].entries) for axis in group}
    lengths = {axis: length for axis, length in lengths.items() if length}
    if len(set(lengths.values())) > 1:
        where = f" for {' '.join(entry.name for entry in entries.values())}" if entries else ""
        raise BadInput(f"zip: axes of one group must be equally long; got {_counts(lengths)}{where}")


def _counts(lengths: Mapping[str, int]) -> str:
    return ", ".join(f"{axis} with {length}" for axis, length in lengths.items())


def _laid(below: Mapping[str, Any], entries: Mapping[str, EntrySpec], scale: str | None) -> dict[str, Any]:
    """The tables of the entries over those below."""
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
    """Values as people read them: four digits, or as many as tell them apart."""
    for digits in (4, 8, 17):
        found = [f"{value:.{digits}g}" if isinstance(value, float) else str(value) for value in values]
        if len(set(found)) == len(found):
            break
    return found
