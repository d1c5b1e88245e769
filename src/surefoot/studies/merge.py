"""Layers of run tables, one over another: the base, the scale, the entries of the axes, single values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surefoot.errors import BadInput

__all__ = ["merged", "put"]

# Where a bare word stands for a table with that name.
_NAMED = ("data", "model", "loss", "optimizer", "schedule", "base", "ensemble")
# Of which a run has one: the layer above decides which.
_EITHER = {"steps": "epochs", "epochs": "steps"}


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """``above`` over ``below``, table by table.

    A table that gives another ``name`` replaces the one below whole: options belong to the thing they are named with.

    >>> merged({"optimizer": {"name": "sgd", "lr": 1}, "stop": {"steps": 5}}, {"optimizer": "gd", "stop": {"batch": 2}})
    {'optimizer': {'name': 'gd'}, 'stop': {'steps': 5, 'batch': 2}}
    """
    found = dict(below)
    for key, value in above.items():
        old = found.get(key)
        if key in _NAMED:
            old, value = _table(old), _table(value)
        if isinstance(old, Mapping) and isinstance(value, Mapping) and not _another(old, value):
            found[key] = merged(old, value)
            continue
        if key in _EITHER:
            found.pop(_EITHER[key], None)
        found[key] = value
    return found


def put(table: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """``table`` with ``value`` at a dotted path; the tables on the way are made.

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
