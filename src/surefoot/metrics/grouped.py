"""`GroupedState`: a `CalibrationState` for each group of rows; `accumulate`: the state of a stream of batches."""

from __future__ import annotations

import datetime
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.metrics.state import CalibrationState, check_fields, from_json
from surefoot.metrics.value import Value
from surefoot.predictions import Events, Predictions, check_predictions
from surefoot.validation import check_int

__all__ = ["GroupedState", "accumulate"]

Key = tuple[str | int | float | bool | None, ...]
_MOST_COUNTED = 1 << 16
_FORMAT, _VERSION = "surefoot.GroupedState", 1


class GroupedState:
    """A `CalibrationState` for each group of rows, such as each country and device; exactly mergeable likewise.

    Args:
        by: name or names of the columns of `Predictions.groups` whose values make a group.
        bins: as for `CalibrationState`.
        largest_weight: as for `CalibrationState`.
        event: as for `CalibrationState`.
        max_groups: largest number of groups; more of them are refused, because memory grows with their number.

    Attributes:
        by: names of the columns.
        bins: number of bins M.
        largest_weight: as the argument.
        event: as the argument.
        max_groups: as the argument.

    Raises:
        BadInput: when an argument is not as described.

    Example:
        >>> p = Predictions.from_probs([0.9, 0.2, 0.4], [1, 0, 1], groups={"country": ["fr", "de", "de"]})
        >>> state = GroupedState("country").update(p)
        >>> {group: values["positive_rate"].real for group, values in state.compute().items()}
        {('de',): 0.5, ('fr',): 1.0}
    """

    def __init__(
        self,
        by: str | Sequence[str],
        bins: int = 15,
        *,
        largest_weight: float | None = None,
        event: str | int | None = None,
        max_groups: int = 1000,
    ) -> None:
        names = (by,) if isinstance(by, str) else tuple(by) if isinstance(by, Sequence) else ()
        if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise BadInput(f"by must be one or more distinct names of columns; got {by!r}")
        self.by: tuple[str, ...] = names
        empty = CalibrationState(bins, largest_weight=largest_weight, event=event)  # checks the arguments
        self.bins, self.largest_weight, self.event = empty.bins, empty.largest_weight, empty.event
        self.max_groups = check_int("max_groups", max_groups, 1)
        self._states: dict[Key, CalibrationState] = {}

    def __repr__(self) -> str:
        return f"GroupedState(by={self.by!r}, bins={self.bins}, groups={len(self._states)}, n={self.n})"

    @property
    def states(self) -> dict[Key, CalibrationState]:
        """The states by group: a tuple with a value for each column of ``by``. Groups are sorted."""
        return dict(sorted(self._states.items(), key=lambda item: [_place(value) for value in item[0]]))

    @property
    def n(self) -> int:
        """Number of events in all groups."""
        return sum(state.n for state in self._states.values())

    @property
    def total(self) -> CalibrationState:
        """The state of all rows, bit-identical to one that was accumulated without groups."""
        total = self._fresh()
        for state in self._states.values():
            total = total.merge(state)
        return total

    def _fresh(self) -> CalibrationState:
        return CalibrationState(self.bins, largest_weight=self.largest_weight, event=self.event)

    def update(self, p: Predictions) -> GroupedState:
        """Add rows to the states of their groups.

        Args:
            p: the predictions of the new rows, with the columns of ``by`` among their `groups`.

        Returns:
            The state itself.

        Raises:
            BadInput: when a column is missing, there are more groups than ``max_groups``, or `CalibrationState.update`
                refuses the rows. The state then stays as it was.
        """
        missing = [name for name in self.by if name not in check_predictions("p", p).groups]
        if missing:
            known = ", ".join(map(repr, p.groups)) or "none"
            raise BadInput(f"by must name columns of groups; {missing[0]!r} is not among them ({known})")
        keys, codes = _group_rows([p.groups[name] for name in self.by])
        self._check_number(keys)
        parts: list[Predictions | Events] = [p] if len(keys) == 1 else _split(p, codes, len(keys), self.event)
        # All rows are checked before a state changes.
        self._add({key: self._fresh().update(part) for key, part in zip(keys, parts, strict=True)})
        return self

    def _check_number(self, keys: Iterable[Key]) -> None:
        number = len({*self._states, *keys})
        if number > self.max_groups:
            raise BadInput(
                f"by={self.by!r} makes {number:,} groups or more, and max_groups is {self.max_groups:,}; group by a "
                "column with fewer values, or raise max_groups"
            )

    def _add(self, states: Mapping[Key, CalibrationState]) -> None:
        merged = {
            key: self._states[key].merge(state) if key in self._states else state for key, state in states.items()
        }
        self._states |= merged

    def merge(self, other: GroupedState) -> GroupedState:
        """Merge two states, group by group, into a new state of the rows of both.

        Args:
            other: a state with the same columns, bins, largest weight and events.

        Returns:
            The new state; both old states stay as they are.

        Raises:
            BadInput: when ``other`` is no `GroupedState`, differs in what it counts, or both have too many groups.
        """
        if not isinstance(other, GroupedState):
            raise BadInput(f"a grouped state can be merged with a GroupedState only; got {type(other).__name__}")
        for name in ("by", "bins", "largest_weight", "event"):
            ours, theirs = getattr(self, name), getattr(other, name)
            if ours != theirs:
                raise BadInput(f"grouped states can be merged only with the same {name}; got {ours!r} and {theirs!r}")
        merged = GroupedState(
            self.by,
            self.bins,
            largest_weight=self.largest_weight,
            event=self.event,
            max_groups=max(self.max_groups, other.max_groups),
        )
        merged._check_number([*self._states, *other._states])
        for part in (self, other):
            merged._add({key: merged._fresh().merge(state) for key, state in part._states.items()})
        return merged

    def compute(self) -> dict[Key, dict[str, Value]]:
        """Compute the metrics of each group.

        Returns:
            What `CalibrationState.compute` returns, by group.

        Raises:
            BadInput: when the state has no rows yet.
        """
        if not self._states:
            raise BadInput("no rows were seen yet; call update with predictions first")
        return {key: state.compute() for key, state in self.states.items() if state.n}

    def to_dict(self) -> dict[str, Any]:
        """Write the states as numbers, strings and lists, for JSON.

        Returns:
            The states, which `from_dict` reads.
        """
        groups = [{"group": list(key), "state": state.to_dict()} for key, state in self.states.items()]
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "by": list(self.by),
            "bins": self.bins,
            "largest_weight": self.largest_weight,
            "event": self.event,
            "max_groups": self.max_groups,
            "groups": groups,
        }

    @classmethod
    def from_dict(cls, data: Any) -> GroupedState:
        """Read states that `to_dict` wrote.

        Args:
            data: the dictionary.

        Returns:
            The states.

        Raises:
            BadInput: when ``data`` is anything else.
        """
        names = {"format", "version", "by", "bins", "largest_weight", "event", "max_groups", "groups"}
        check_fields(data, names, _FORMAT, _VERSION)
        if not isinstance(data["by"], list) or not isinstance(data["event"], str | None):
            raise BadInput(f"by of a state must be a list of names, and event a name or null; got {data['by']!r}")
        if not isinstance(data["groups"], list):
            raise BadInput(f"groups of a state must be a list; got {type(data['groups']).__name__}")
        self = cls(
            data["by"],
            data["bins"],
            largest_weight=data["largest_weight"],
            event=data["event"],
            max_groups=data["max_groups"],
        )
        for entry in data["groups"]:
            if not isinstance(entry, Mapping) or set(entry) != {"group", "state"}:
                raise BadInput("each of the groups of a state must have the fields group and state")
            values = entry["group"]
            if not isinstance(values, list) or len(values) != len(self.by) or any(map(_strange, values)):
                raise BadInput(f"group of a state must hold a value for each of {self.by!r}; got {values!r}")
            key = tuple(values)
            if key in self._states:
                raise BadInput(f"groups of a state must be distinct; {values!r} is repeated")
            self._check_number([key])
            state = CalibrationState.from_dict(entry["state"])
            self._add({key: self._fresh().merge(state)})
        return self

    def to_bytes(self) -> bytes:
        """Write the states as JSON, for files and other processes.

        Returns:
            UTF-8 text; equal states give equal bytes.
        """
        return json.dumps(self.to_dict(), separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes | str) -> GroupedState:
        """Read states that `to_bytes` wrote.

        Args:
            data: the bytes, or the text.

        Returns:
            The states.

        Raises:
            BadInput: when ``data`` is anything else.
        """
        return cls.from_dict(from_json(data))


def _strange(value: Any) -> bool:
    """Whether a value is none that `_plain` makes."""
    number = isinstance(value, float) and not math.isfinite(value)
    return number or not isinstance(value, str | int | float | bool | None)


def _place(value: Any) -> tuple[int, float, str]:
    """Where a value of a group is sorted: numbers, then text, then the missing value."""
    if value is None:
        return 2, 0.0, ""
    return (1, 0.0, value) if isinstance(value, str) else (0, value, "")


def _plain(value: Any) -> str | int | float | bool | None:
    """A value of a column in the one form that JSON keeps: 1.0 is 1, and a missing value is None."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return int(value) if value.is_integer() else value if math.isfinite(value) else str(value)
    if isinstance(value, datetime.date | datetime.datetime):
        return value.isoformat()
    return None if str(value) in ("NaT", "<NA>") else str(value)


def _split(p: Predictions, codes: NDArray[np.int64], groups: int, event: str | None) -> list[Predictions | Events]:
    """The rows of each group, as predictions, or as events where these are the same and cost less."""
    order = np.argsort(codes.astype(np.uint16) if groups < 1 << 16 else codes, kind="stable")  # 16 bits: a radix sort
    ends = [0, *np.cumsum(np.bincount(codes, minlength=groups)).tolist()]
    slices = [slice(*ends) for ends in itertools.pairwise(ends)]
    # Rows with one probability are their own events; their columns are not needed.
    alone = p.form != "classes" and p.scores == "probs" and event in (None, p.events().name)
    together: Predictions | Events = p.events().take(order) if alone else p.take(order)
    return [together.take(rows) for rows in slices]


def _group_rows(columns: list[NDArray[Any]]) -> tuple[list[Key], NDArray[np.int64]]:
    """The groups of rows, and the group of each row."""
    keys: list[Key] = [()]
    codes: NDArray[np.int64] | None = None
    for column in columns:
        values, code = _factorised(column)
        if codes is None:
            keys, codes = [(value,) for value in values], code
            continue
        pairs, codes = np.unique(codes * len(values) + code, return_inverse=True)
        keys = [(*keys[pair // len(values)], values[pair % len(values)]) for pair in pairs.tolist()]
    assert codes is not None
    return keys, codes


def _factorised(column: NDArray[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    """The distinct values of a column, and the number of each row's value among them."""
    if column.dtype.kind in "iu":
        low, span = int(column.min()), int(column.max()) - int(column.min())
        if span <= _MOST_COUNTED:  # counting is faster than sorting
            offset = (column - low).astype(np.int64)
            present = np.bincount(offset, minlength=span + 1) > 0
            return (np.flatnonzero(present) + low).tolist(), (np.cumsum(present) - 1)[offset]
    if column.dtype.kind in "iub":
        distinct, codes = np.unique(column, return_inverse=True)
        return distinct.tolist(), codes.astype(np.int64)
    if column.dtype.kind == "M":
        text: NDArray[Any] = np.datetime_as_string(column).astype(object)
        text[np.isnat(column)] = None
        column = text
    numbers: dict[Any, int] = {}
    try:
        given = [numbers.setdefault(value, len(numbers)) for value in column.tolist()]
    except TypeError as error:
        raise BadInput(f"values of a column of groups must be numbers, text or dates; {error}") from error
    # Several values may have one plain form: every NaN is a value of its own.
    plain: dict[Any, int] = {}
    owner = np.array([plain.setdefault(_plain(value), len(plain)) for value in numbers], np.int64)
    return list(plain), owner[np.array(given, np.int64)]


@overload
def accumulate(
    batches: Iterable[Predictions | Events],
    bins: int = 15,
    by: tuple[()] = (),
    largest_weight: float | None = None,
    event: str | int | None = None,
) -> CalibrationState: ...


@overload
def accumulate(
    batches: Iterable[Predictions],
    bins: int = 15,
    *,
    by: str | list[str] | tuple[str, *tuple[str, ...]],
    largest_weight: float | None = None,
    event: str | int | None = None,
    max_groups: int = 1000,
) -> GroupedState: ...


def accumulate(
    batches: Iterable[Any],
    bins: int = 15,
    by: str | Sequence[str] = (),
    largest_weight: float | None = None,
    event: str | int | None = None,
    max_groups: int = 1000,
) -> CalibrationState | GroupedState:
    """Accumulate batches of predictions, one at a time: memory does not grow with the number of batches.

    Args:
        batches: the batches, such as a generator that reads a file in parts; `Predictions`, or without ``by`` also
            `Events`.
        bins: number of bins M of equal width, from 1 to 10,000.
        by: name or names of the columns of `Predictions.groups` that make groups; none for one state of all rows.
        largest_weight: the largest weight of all batches, if a weight is no integer.
        event: which events of the predictions, as for `Predictions.events`; None takes the usual ones.
        max_groups: largest number of groups.

    Returns:
        A `CalibrationState`, or with ``by`` a `GroupedState`. Without batches the state has no rows.

    Raises:
        BadInput: when an argument is not as described, or a batch is refused; the error says which batch.

    Example:
        >>> halves = [Predictions.from_probs([0.9, 0.2], [1, 0]), Predictions.from_probs([0.4], [1])]
        >>> accumulate(halves).n
        3
    """
    if isinstance(batches, Predictions | Events) or not isinstance(batches, Iterable):
        raise BadInput(f"batches must be an iterable of Predictions; got {type(batches).__name__}. Write [predictions]")
    state: CalibrationState | GroupedState
    if isinstance(by, str) or len(by):
        state = GroupedState(by, bins, largest_weight=largest_weight, event=event, max_groups=max_groups)
    else:
        state = CalibrationState(bins, largest_weight=largest_weight, event=event)
    for number, batch in enumerate(batches):
        try:
            state.update(batch)
        except BadInput as error:
            raise BadInput(f"batch {number}: {error}") from error
    return state
