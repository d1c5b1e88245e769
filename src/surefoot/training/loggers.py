"""Where readings go besides the journal: to any object with `log` and `close`, none of which can stop a run."""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from surefoot.errors import BadInput

__all__ = ["Logger", "Loggers", "numbers_of"]


class Logger(Protocol):
    """The protocol of an object that receives every reading."""

    def log(self, reading: Mapping[str, Any]) -> None:
        """Receive a reading.

        Args:
            reading: the ``"step"``, numbers by name, and some lists and tables; see `numbers_of`.
        """

    def close(self) -> None:
        """Receive the end: the tracker was left, and no reading follows."""


def numbers_of(reading: Mapping[str, Any]) -> dict[str, float]:
    """Select the numbers of a reading, without its step.

    Args:
        reading: the reading.

    Returns:
        The numbers by name; booleans as 0 or 1.

    Example:
        >>> numbers_of({"step": 50, "train.ece": 0.02, "diverged": True, "train.regime": "overlap", "train.tail": {}})
        {'train.ece': 0.02, 'diverged': 1.0}
    """
    return {name: float(value) for name, value in reading.items() if name != "step" and isinstance(value, int | float)}


class Loggers:
    """Several loggers as one. One that raises is warned of once, and told of later readings all the same."""

    def __init__(self, loggers: Iterable[Logger]) -> None:
        try:
            self._loggers = list(loggers)
        except TypeError as error:
            raise BadInput(f"loggers must be a list of loggers; got {type(loggers).__name__}; write [it]") from error
        for each in self._loggers:
            if isinstance(each, type):
                raise BadInput(f"loggers must be loggers, not their classes; write {each.__name__}(...)")
            if not (callable(getattr(each, "log", None)) and callable(getattr(each, "close", None))):
                raise BadInput(f"loggers must have methods log(reading) and close(); {type(each).__name__} lacks one")
        self._warned: set[int] = set()

    def log(self, reading: Mapping[str, Any]) -> None:
        """Give each logger a reading of its own."""
        for place, each in enumerate(self._loggers):
            try:
                each.log(copy.deepcopy(reading))
            except Exception as error:
                self._warn(place, error)

    def close(self) -> None:
        """Close each logger."""
        for place, each in enumerate(self._loggers):
            try:
                each.close()
            except Exception as error:
                self._warn(place, error)

    def _warn(self, place: int, error: Exception) -> None:
        if place in self._warned:
            return
        self._warned.add(place)
        logger = self._loggers[place]
        name = getattr(logger, "told_as", type(logger).__name__)
        text = (
            f"logger {name} failed with {type(error).__name__}: {error}; training goes on, later readings are given to "
            "it too, and further failures of it are not told"
        )
        try:
            warnings.warn(text, RuntimeWarning, stacklevel=4)
        except RuntimeWarning:  # where warnings are made errors, which would stop the run
            print(text, file=sys.stderr)
