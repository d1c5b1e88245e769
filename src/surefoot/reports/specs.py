"""Specs as flat tables, ``a.b`` → value: what runs share and what each has of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from surefoot.runs.records import canonical

__all__ = ["flat", "shared_and_own"]

_LONGEST = 600  # letters of a value; a page is no place for more


def flat(table: dict[str, Any], before: str = "") -> dict[str, Any]:
    """``table`` without tables in it; a value that would fill a page is cut.

    >>> flat({"optimizer": {"name": "sgd", "lr": 0.1}, "seed": 0})
    {'optimizer.name': 'sgd', 'optimizer.lr': 0.1, 'seed': 0}
    """
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and value:
            found |= flat(value, f"{before}{key}.")
        else:
            found[f"{before}{key}"[:_LONGEST]] = _short(value)
    return found


def shared_and_own(specs: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What all specs share and what each has of its own; one that could not be read has nothing."""
    tables = [flat(spec) for spec in specs]
    known = [each for each in tables if each]
    first = known[0] if known else {}
    shared = {key: value for key, value in first.items() if all(key in each and each[key] == value for each in known)}
    return shared, [{key: value for key, value in each.items() if key not in shared} for each in tables]


def _short(value: Any) -> Any:
    if not isinstance(value, str | list):
        return value
    text = value if isinstance(value, str) else canonical(value)
    return value if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
