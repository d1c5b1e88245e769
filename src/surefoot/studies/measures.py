"""The language of the measures in tables.

- ``train.ece`` is a quantity of the final reading.
- ``max train.ece`` (also ``min``, ``mean``, ``first``) is a quantity over all readings.
- ``best train.ece`` is the quantity at the reading whose weights the run kept.
- ``pearson train.ece sharpness`` (also ``spearman``) is a correlation of two quantities over the readings.
- ``partial train.ece sharpness train.log_q`` is the partial correlation of the first two quantities given the third.
- ``lag train.ece sharpness`` is the number of readings by which sharpness leads; ``lag_steps`` counts steps.
- ``ratio train.ece train.q`` is the quotient of the two quantities at the last reading that has both.

Every measure except ``best`` may end in ``from train.accuracy>=0.9`` and ``until train.accuracy>=0.99``. Such a measure
reads from the first reading that meets the first condition to the first reading that meets the second condition.
``train.q`` is the margin moment; journals hold its logarithm. No torch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.metrics.registry import METRICS
from surefoot.runs.records import read_to
from surefoot.statistics import lead, partial, pearson, spearman
from surefoot.validation import suggest

__all__ = ["check_measure", "heading", "measure", "quantities_of", "shown_stop", "with_sharpness"]

Readings = Sequence[Mapping[str, Any]]
_OVER_RUN: dict[str, Callable[[Any], Any]] = {
    "max": np.max,
    "min": np.min,
    "mean": np.mean,
    "first": lambda v: v[0],
    "last": lambda v: v[-1],
}
_RELATIONS = {"pearson": 2, "spearman": 2, "lag": 2, "lag_steps": 2, "ratio": 2, "partial": 3}
_OF_RUN = ("max", "min", "mean", "first", "best")
_LETTERS = {
    "tce": "TCE",
    "log_q": "log Q",
    "log_q_attack": "log Q (attack)",
    "log_q_certified": "log Q (proved)",
    "q": "Q",
    "c_j": "C_J",
    "c_j_mean": "mean C_J",
    "auroc": "AUROC",
}


@dataclass(frozen=True)
class _Stop:
    """A condition on readings: the ``quantity`` is at or beyond ``value``."""

    quantity: str
    sign: str
    value: float

    @classmethod
    def of(cls, text: str, word: str = "until") -> _Stop:
        """Parse ``train.accuracy>=0.99``; a ValueError for any other text."""
        match = re.fullmatch(r"([A-Za-z_][\w.]*)(>=|<=)([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)", text)
        if match is None:
            raise ValueError(f"{word} takes a quantity, >= or <= and a number (train.accuracy>=0.99); got {text!r}")
        return cls(match[1], match[2], float(match[3]))

    def __str__(self) -> str:
        return f"{_quantity(self.quantity)} {'≥' if self.sign == '>=' else '≤'} {self.value:g}"

    def place(self, readings: Readings) -> int | None:
        """Index of the first reading that meets the condition; None if no reading does."""
        for place, reading in enumerate(readings):
            value = _read(reading, self.quantity)
            if value >= self.value if self.sign == ">=" else value <= self.value:
                return place
        return None


@dataclass(frozen=True)
class _Measure:
    """The word of a measure (``""`` for a plain quantity), its quantities, and its first and last readings."""

    word: str
    quantities: list[str]
    start: _Stop | None = None
    stop: _Stop | None = None

    @property
    def complete(self) -> bool:
        """Whether the measure takes all readings."""
        return self.start is None and self.stop is None

    def stretch(self, readings: Readings) -> Readings:
        """The readings of the measure; none if the run never meets a condition: the measure is then undefined."""
        start = 0 if self.start is None else self.start.place(readings)
        stop = len(readings) - 1 if self.stop is None else self.stop.place(readings)
        return [] if start is None or stop is None else readings[start : stop + 1]


def _parsed(name: str) -> _Measure:
    words = name.split()
    ends: dict[str, _Stop] = {}
    for word in ("until", "from"):  # "from" precedes "until", so that "until" is cut off first
        if word in words:
            at = words.index(word)
            ends[word] = _Stop.of(" ".join(words[at + 1 :]), word)
            words = words[:at]
    first = words[0] if words else ""
    if len(words) == 1 and first not in (*_OF_RUN, *_RELATIONS):
        return _Measure("", words, ends.get("from"), ends.get("until"))
    wanted = 1 if first in _OF_RUN else _RELATIONS.get(first)
    if wanted is None or len(words) != 1 + wanted or (ends and first == "best"):
        near = suggest(first, (*_OF_RUN, *_RELATIONS)) if words else ""
        raise ValueError(
            f"a measure is a quantity (test.ece), one over the run (max train.ece: {', '.join(_OF_RUN)}) or a relation "
            f"(pearson train.ece sharpness: {', '.join(_RELATIONS)}; partial takes a third, which is held fixed); all "
            f"but best may end in from train.accuracy>=0.9 until train.accuracy>=0.99; got {name!r}{near}"
        )
    return _Measure(first, words[1:], ends.get("from"), ends.get("until"))


def check_measure(name: str) -> None:
    """Check that a name is a measure.

    Args:
        name: the name.

    Raises:
        ValueError: if the name is not a measure.
    """
    _parsed(name)


def with_sharpness(name: str) -> str:
    """Turn a bare quantity into its correlation with sharpness.

    Args:
        name: a measure.

    Returns:
        The correlation; any other measure unchanged.

    Raises:
        ValueError: if the name is not a measure.

    Example:
        >>> with_sharpness("train.ece until step>=800"), with_sharpness("max train.ece")
        ('pearson train.ece sharpness until step>=800', 'max train.ece')
    """
    quantity, *rest = name.split()
    return name if _parsed(name).word else " ".join(["pearson", quantity, "sharpness", *rest])


def quantities_of(name: str) -> list[str]:
    """List the quantities that a measure reads, with the names in journals.

    Args:
        name: a measure.

    Returns:
        The names of the quantities.

    Raises:
        ValueError: if the name is not a measure.

    Example:
        >>> quantities_of("max train.q until train.accuracy>=0.99")
        ['train.log_q', 'train.accuracy']
    """
    parsed = _parsed(name)
    ends = [stop.quantity for stop in (parsed.start, parsed.stop) if stop is not None]
    return [_kept(quantity) or quantity for quantity in (*parsed.quantities, *ends)]


def measure(result: Mapping[str, Any], folder: Path, names: Sequence[str]) -> dict[str, float] | None:
    """Compute measures of a finished run; the journal is read only if a measure needs it.

    Args:
        result: contents of the run's ``result.json``.
        folder: folder of the run.
        names: names of the measures.

    Returns:
        Value of every measure, NaN for a quantity that the run did not read; None if the journal is corrupted.

    Raises:
        ValueError: if a name is not a measure.
    """
    final, kept = _table(result.get("final")), _table(result.get("correlations"))
    wanted = {name: _parsed(name) for name in names}
    values: dict[str, float] = {}
    for name, parsed in wanted.items():
        match parsed.word, parsed.quantities:
            case "", [quantity] if parsed.complete:
                values[name] = _read(final, quantity)
            case "pearson", [one, "sharpness"] if parsed.complete and one in kept:
                values[name] = _number(kept[one])
    later = {name: parsed for name, parsed in wanted.items() if name not in values}
    journal = read_to(folder, result["step"]) if later else []
    if journal is None:
        return None
    readings = [reading for reading in journal if "diverged" not in reading]
    best = _table(result.get("best")).get("step")
    for name, parsed in later.items():
        chosen = parsed.stretch(readings)
        if parsed.word == "best":
            chosen = [reading for reading in readings if reading.get("step") == best]
        values[name] = _over_readings(parsed.word, parsed.quantities, chosen)
    return values


def _over_readings(word: str, quantities: Sequence[str], readings: Readings) -> float:
    # A moment may be infinite. Its maximum is then infinite and a quotient by it is 0; correlations leave it out.
    steps, columns = _columns(readings, quantities, endless=len(quantities) == 1 or word == "ratio")
    if not len(steps):
        return math.nan
    if len(quantities) == 1:
        return float(_OVER_RUN.get(word, _OVER_RUN["last"])(columns[0]))  # `best` has one reading
    if word in ("pearson", "spearman"):
        return (pearson if word == "pearson" else spearman)(*columns)
    if word == "partial":
        return partial(*columns)
    if word == "ratio":
        above, below = map(float, columns[:, -1])
        return above / below if below and math.isfinite(above) else math.nan
    ahead = lead(columns[1], columns[0])[0]
    if word == "lag":
        return ahead
    gaps = np.diff(steps)
    gaps = gaps[:-1] if len(gaps) > 1 else gaps  # the last step is read whether it is due or not
    return ahead * float(gaps[0]) if len(gaps) and (gaps == gaps[0]).all() else math.nan


def _columns(readings: Readings, names: Sequence[str], endless: bool) -> tuple[Any, Any]:
    rows = [[_read(r, name) for name in ("step", *names)] for r in readings]
    values = np.array(rows, dtype=np.float64).reshape(-1, 1 + len(names))
    values = values[~np.isnan(values).any(axis=1) if endless else np.isfinite(values).all(axis=1)]
    return values[:, 0], values[:, 1:].T


def heading(name: str) -> str:
    """Write a measure as a heading.

    Args:
        name: a measure.

    Returns:
        The heading.

    Raises:
        ValueError: if the name is not a measure.

    Example:
        >>> heading("max train.ece"), heading("pearson test.kce sharpness")
        ('peak train ECE', 'r(test KCE, sharpness)')
        >>> heading("partial train.ece sharpness train.log_q until train.accuracy>=0.99")
        'r(train ECE, sharpness | train log Q) until train accuracy ≥ 0.99'
    """
    parsed = _parsed(name)
    shown = [_quantity(quantity) for quantity in parsed.quantities]
    match parsed.word:
        case "":
            text = shown[0]
        case "best":
            text = f"{shown[0]} at the best"
        case word if len(shown) == 1:
            text = f"{'peak' if word == 'max' else word} {shown[0]}"
        case "partial":
            text = f"r({shown[0]}, {shown[1]} | {shown[2]})"
        case "ratio":
            text = f"{shown[0]} / {shown[1]}"
        case word:
            sign = {"pearson": "r", "spearman": "ρ", "lag": "lead", "lag_steps": "lead in steps"}[word]
            text = f"{sign}({shown[0]}, {shown[1]})"
    ends = (("from", parsed.start), ("until", parsed.stop))
    return " ".join([text, *(f"{word} {stop}" for word, stop in ends if stop is not None)])


def shown_stop(text: str) -> str:
    """Write a condition as a heading.

    Args:
        text: the condition.

    Returns:
        The heading.

    Raises:
        ValueError: if the text is not a condition.

    Example:
        >>> shown_stop("train.accuracy>=0.99")
        'train accuracy ≥ 0.99'
    """
    return str(_Stop.of(text))


def _quantity(name: str) -> str:
    return " ".join(_word(part) for part in name.split("."))


def _word(part: str) -> str:
    return METRICS[part].heading if part in METRICS else _LETTERS.get(part, part.replace("_", " "))


def _kept(name: str) -> str | None:
    """The name of the logarithm that journals hold of ``train.q`` and ``test.q``; None for any other quantity."""
    place, _, last = name.rpartition(".")
    return f"{place}.log_q" if last == "q" else None


def _read(reading: Mapping[str, Any], name: str) -> float:
    """A quantity of a reading; NaN if the reading does not have the quantity."""
    kept = _kept(name)
    if kept is None:
        return _number(reading.get(name))
    with np.errstate(over="ignore"):  # a moment beyond floats is infinite, and left out of relations
        return float(np.exp(_number(reading.get(kept))))


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
