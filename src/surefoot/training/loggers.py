"""Loggers, which receive the readings of a tracker; an error of a logger never stops a run."""

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
            reading: The ``"step"``, numbers by name, and some lists and tables; see `numbers_of`.
        """

    def close(self) -> None:
        """Receive the end of the tracker's block, after which no reading follows."""


def numbers_of(reading: Mapping[str, Any]) -> dict[str, float]:
    """Select the numbers of a reading, without its step.

    Args:
        reading: The reading.

    Returns:
        The numbers by name; booleans as 0 or 1.

    Example:
        >>> numbers_of({"step": 50, "train.ece": 0.02, "diverged": True, "train.regime": "overlap", "train.tail": {}})
        {'train.ece': 0.02, 'diverged': 1.0}
    """
    return {name: float(value) for name, value in reading.items() if name != "step" and isinstance(value, int | float)}


class Loggers:
    """Several loggers as one; a logger that raises causes one warning and still receives later readings.

    Args:
        loggers: The loggers.

    Raises:
        BadInput: If one of them is no logger.

    Example:
        >>> class Printer:
        ...     def log(self, reading):
        ...         print(reading["step"])
        ...     def close(self):
        ...         print("end")
        >>> loggers = Loggers([Printer()])
        >>> loggers.log({"step": 50})
        50
        >>> loggers.close()
        end
    """

    def __init__(self, loggers: Iterable[Logger]) -> None:
        try:
            self._loggers = list(loggers)
        except TypeError as error:
            raise BadInput(f"loggers must be a list of loggers; got {type(loggers).__name__}; write [it]") from error
        for logger in self._loggers:
            if isinstance(logger, type):
                raise BadInput(f"loggers must be loggers, not their classes; write {logger.__name__}(...)")
            if not (callable(getattr(logger, "log", None)) and callable(getattr(logger, "close", None))):
                raise BadInput(f"loggers must have methods log(reading) and close(); {type(logger).__name__} lacks one")
        self._warned: set[int] = set()

    def log(self, reading: Mapping[str, Any]) -> None:
        """Give each logger its own copy of a reading.

        Args:
            reading: The reading.
        """
        for place, logger in enumerate(self._loggers):
            try:
                logger.log(copy.deepcopy(reading))
            except Exception as error:
                self._warn(place, error)

    def close(self) -> None:
        """Close each logger."""
        for place, logger in enumerate(self._loggers):
            try:
                logger.close()
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
        except RuntimeWarning:  # warnings are turned into errors, and an error would stop the run
            print(text, file=sys.stderr)
