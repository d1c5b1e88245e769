"""Specs as flat tables, ``a.b`` → value: the shared values, and the values of each spec alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from surefoot.runs.records import canonical

__all__ = ["flat", "shared_and_own"]

_LONGEST = 600  # characters of a value on a page


def flat(table: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Flatten nested tables; a very long value is cut.

    Args:
        table: the tables.
        before: prefix of the keys.

    Returns:
        The values by dotted key.

    Example:
        >>> flat({"optimizer": {"name": "sgd", "lr": 0.1}, "seed": 0})
        {'optimizer.name': 'sgd', 'optimizer.lr': 0.1, 'seed': 0}
    """
    values: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and value:
            values |= flat(value, f"{before}{key}.")
        else:
            values[f"{before}{key}"[:_LONGEST]] = _short(value)
    return values


def shared_and_own(specs: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Separate the values that all specs share from the values of each spec.

    Args:
        specs: the specs. A spec that could not be read is empty and shares nothing.

    Returns:
        The shared values, and the other values of each spec; both by dotted key.
    """
    tables = [flat(spec) for spec in specs]
    known = [flattened for flattened in tables if flattened]
    first = known[0] if known else {}
    shared = {
        key: value for key, value in first.items() if all(key in other and other[key] == value for other in known)
    }
    return shared, [{key: value for key, value in own.items() if key not in shared} for own in tables]


def _short(value: Any) -> Any:
    if not isinstance(value, str | list):
        return value
    text = value if isinstance(value, str) else canonical(value)
    return value if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
