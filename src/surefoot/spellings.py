"""Former names of studies, scales and spec keys. Files and folders with these names stay readable for good."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surefoot.errors import BadInput

__all__ = ["current_key", "current_keys", "current_name", "former_keys", "former_name"]

# Former name: current name. A longer name may follow either after a hyphen, as in "paper-a-table1" or "cores2-100".
_ALIASES = {"paper-a": "morosini2026", "paper-b": "tan2026", "cores2": "cpu-small"}


# Former key of a run's spec: current key. The ids of runs are hashes of the former spelling, so that they stay.
_KEYS = {"rule": "optimizer"}


def current_keys(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a run's spec with current keys.

    Args:
        spec: Tables as in a spec or a part of one, in either spelling.

    Returns:
        The same tables under current keys, in the same order.

    Raises:
        BadInput: If a key is given in both spellings.

    Example:
        >>> current_keys({"rule": {"name": "sgd"}, "seed": 0})
        {'optimizer': {'name': 'sgd'}, 'seed': 0}
    """
    both = next((former for former, current in _KEYS.items() if former in spec and current in spec), None)
    if both is not None:
        raise BadInput(f"{both!r} is the former name of {_KEYS[both]!r}; give {_KEYS[both]!r} alone")
    return {_KEYS.get(key, key): value for key, value in spec.items()}


def former_keys(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a run's spec with former keys, which the run's id is a hash of.

    Args:
        spec: Tables as in a spec or a part of one, with current keys.

    Returns:
        The same tables under former keys, in the same order.

    Example:
        >>> former_keys({"optimizer": {"name": "sgd"}, "seed": 0})
        {'rule': {'name': 'sgd'}, 'seed': 0}
    """
    former = {current: name for name, current in _KEYS.items()}
    return {former.get(key, key): value for key, value in spec.items()}


def current_key(path: str) -> str:
    """A dotted path in a spec with current keys.

    Args:
        path: A dotted path, in either spelling.

    Returns:
        The path with a current key.

    Example:
        >>> current_key("rule.lr"), current_key("data.train")
        ('optimizer.lr', 'data.train')
    """
    first, dot, rest = path.strip().partition(".")
    return _KEYS.get(first, first) + dot + rest


def current_name(name: str) -> str:
    """The current name of a study or scale.

    Args:
        name: Any name, former or current.

    Returns:
        The current name, or ``name`` itself if it has no alias.

    Example:
        >>> current_name("paper-a-table1"), current_name("cores2"), current_name("mine")
        ('morosini2026-table1', 'cpu-small', 'mine')
    """
    return _replaced(name, _ALIASES)


def former_name(name: str) -> str:
    """The former name of a study or scale.

    Args:
        name: A current name.

    Returns:
        The former name, or ``name`` itself if the name has no alias.

    Example:
        >>> former_name("morosini2026-table1"), former_name("mine")
        ('paper-a-table1', 'mine')
    """
    return _replaced(name, {current: former for former, current in _ALIASES.items()})


def _replaced(name: str, names: dict[str, str]) -> str:
    for given, wanted in names.items():
        if name == given or name.startswith(f"{given}-"):
            return wanted + name.removeprefix(given)
    return name
