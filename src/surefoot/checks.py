"""Checks of plain arguments, each with one sentence: what must be what, and what was got."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from surefoot.errors import BadInput

__all__ = ["fraction", "known_options", "nearest", "positive", "whole"]


def whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """``value`` as an int in least..most; booleans are not numbers here."""
    wrong = isinstance(value, bool) or not isinstance(value, numbers.Integral)
    if wrong or value < least or (most is not None and value > most):
        span = f"of at least {least}" if most is None else f"from {least} to {most:,}"
        raise BadInput(f"{name} must be a whole number {span}; got {value!r}")
    return int(value)


def positive(name: str, value: Any, least: float = 0.0) -> float:
    """``value`` as a finite float above ``least`` (or equal to it, if it is not 0)."""
    wrong = isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value)
    if wrong or value <= 0 or value < least:
        span = f"of at least {least:g}" if least else "above 0"
        raise BadInput(f"{name} must be a finite number {span}; got {value!r}")
    return float(value)


def fraction(name: str, value: Any) -> float:
    """``value`` as a float strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < 1:
        raise BadInput(f"{name} must lie between 0 and 1, such as 0.95; got {value!r}")
    return float(value)


def nearest(name: str, choices: Iterable[str]) -> str:
    """The end of an error about a wrong name: the choice that is spelt most like it, if one is."""
    near = get_close_matches(name, [choice for choice in choices if choice != name], 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def known_options(what: str, options: Iterable[str], accepted: list[str]) -> None:
    """A clear error for the first of ``options`` that ``what`` does not have."""
    for option in options:
        if option not in accepted:
            has = f"it has {', '.join(accepted)}" if accepted else "it has none"
            raise BadInput(f"{what} has no option {option!r}; {has}{nearest(option, accepted)}")
