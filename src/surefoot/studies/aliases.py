"""Former names of studies and scales. Files and folders with a former name are read and resumed for good."""

from __future__ import annotations

__all__ = ["current_name", "former_name"]

# Former name: current name. A longer name may follow either after a hyphen, as in "paper-a-table1" or "cores2-100".
_ALIASES = {"paper-a": "morosini2026", "paper-b": "tan2026", "cores2": "cpu-small"}


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
    """The former name of a study or scale, or ``name`` itself if it never had another."""
    return _replaced(name, {current: former for former, current in _ALIASES.items()})


def _replaced(name: str, names: dict[str, str]) -> str:
    for given, wanted in names.items():
        if name == given or name.startswith(f"{given}-"):
            return wanted + name.removeprefix(given)
    return name
