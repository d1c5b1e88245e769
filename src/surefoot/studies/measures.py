"""The little language of tables: what is read from a run.

``train.ece`` is a quantity of the final reading; ``max train.ece`` (also ``min``, ``mean``, ``first``) one over all
readings; ``best train.ece`` that of the reading whose weights the run kept; ``pearson train.ece sharpness`` (also
``spearman``) relates two over the readings, ``partial train.ece sharpness train.log_q`` two of them given the third;
``lag train.ece sharpness`` is by how many readings sharpness leads, ``lag_steps`` by how many steps; ``ratio train.ece
train.q`` is the quotient of the two at the last reading that has both. Any of them may end in ``from
train.accuracy>=0.9`` and ``until train.accuracy>=0.99``: the readings from the first at which the one holds up to the
first at which the other does. ``train.q`` is the margin moment, of which journals keep the logarithm. No torch.
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
from surefoot.runs.journal import read_to
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
    """The first reading with ``quantity`` at or beyond ``value``."""

    quantity: str
    sign: str
    value: float

    @classmethod
    def of(cls, text: str, word: str = "until") -> _Stop:
        """From ``train.accuracy>=0.99``; a ValueError for anything else."""
        found = re.fullmatch(r"([A-Za-z_][\w.]*)(>=|<=)([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)", text)
        if found is None:
            raise ValueError(f"{word} takes a quantity, >= or <= and a number (train.accuracy>=0.99); got {text!r}")
        return cls(found[1], found[2], float(found[3]))

    def __str__(self) -> str:
        return f"{_quantity(self.quantity)} {'≥' if self.sign == '>=' else '≤'} {self.value:g}"

    def place(self, readings: Readings) -> int | None:
        """Where it is; None if the run never came there."""
        for place, reading in enumerate(readings):
            value = _read(reading, self.quantity)
            if value >= self.value if self.sign == ">=" else value <= self.value:
                return place
        return None


@dataclass(frozen=True)
class _Measure:
    """A measure's word (``""`` for a plain quantity), its quantities, and where its readings begin and end."""

    word: str
    quantities: list[str]
    start: _Stop | None = None
    stop: _Stop | None = None

    @property
    def whole(self) -> bool:
        """Does it look at all readings?"""
        return self.start is None and self.stop is None

    def stretch(self, readings: Readings) -> Readings:
        """The readings it looks at; none if the run never came there, since no part of it answers the question."""
        first = 0 if self.start is None else self.start.place(readings)
        last = len(readings) - 1 if self.stop is None else self.stop.place(readings)
        return [] if first is None or last is None else readings[first : last + 1]


def _parsed(name: str) -> _Measure:
    words = name.split()
    ends: dict[str, _Stop] = {}
    for word in ("until", "from"):  # from comes first, and so is cut off last
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
            f"(pearson train.ece sharpness: {', '.join(_RELATIONS)}; partial takes a third, which is held still); all "
            f"but best may end in from train.accuracy>=0.9 until train.accuracy>=0.99; got {name!r}{near}"
        )
    return _Measure(first, words[1:], ends.get("from"), ends.get("until"))


def check_measure(name: str) -> None:
    """A ValueError for a name that is no measure."""
    _parsed(name)


def with_sharpness(name: str) -> str:
    """A bare quantity as its correlation with sharpness; any other measure as it is.

    >>> with_sharpness("train.ece until step>=800"), with_sharpness("max train.ece")
    ('pearson train.ece sharpness until step>=800', 'max train.ece')
    """
    quantity, *rest = name.split()
    return name if _parsed(name).word else " ".join(["pearson", quantity, "sharpness", *rest])


def quantities_of(name: str) -> list[str]:
    """The quantities of readings that a measure looks at, as journals name them."""
    found = _parsed(name)
    ends = [each.quantity for each in (found.start, found.stop) if each is not None]
    return [_kept(each) or each for each in (*found.quantities, *ends)]


def measure(result: Mapping[str, Any], folder: Path, names: Sequence[str]) -> dict[str, float] | None:
    """The named measures of a finished run; NaN for what it did not read, None if its journal is harmed.

    The journal is read only where it must be.
    """
    final, kept = _table(result.get("final")), _table(result.get("correlations"))
    wanted = {name: _parsed(name) for name in names}
    found: dict[str, float] = {}
    for name, each in wanted.items():
        match each.word, each.quantities:
            case "", [quantity] if each.whole:
                found[name] = _read(final, quantity)
            case "pearson", [one, "sharpness"] if each.whole and one in kept:
                found[name] = _number(kept[one])
    later = {name: each for name, each in wanted.items() if name not in found}
    whole = read_to(folder, result["step"]) if later else []
    if whole is None:
        return None
    readings = [reading for reading in whole if "diverged" not in reading]
    best = _table(result.get("best")).get("step")
    for name, each in later.items():
        chosen = each.stretch(readings)
        if each.word == "best":
            chosen = [reading for reading in readings if reading.get("step") == best]
        found[name] = _over_readings(each.word, each.quantities, chosen)
    return found


def _over_readings(word: str, quantities: Sequence[str], readings: Readings) -> float:
    # A moment may be infinite: that is its peak, and a quotient by it is 0; correlations have no use for it.
    steps, columns = _columns(readings, quantities, endless=len(quantities) == 1 or word == "ratio")
    if not len(steps):
        return math.nan
    if len(quantities) == 1:
        return float(_OVER_RUN.get(word, _OVER_RUN["last"])(columns[0]))  # of the best there is one
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
    """A measure as a heading.

    >>> heading("max train.ece"), heading("pearson test.kce sharpness")
    ('peak train ECE', 'r(test KCE, sharpness)')
    >>> heading("partial train.ece sharpness train.log_q until train.accuracy>=0.99")
    'r(train ECE, sharpness | train log Q) until train accuracy ≥ 0.99'
    """
    found = _parsed(name)
    shown = [_quantity(each) for each in found.quantities]
    match found.word:
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
    ends = (("from", found.start), ("until", found.stop))
    return " ".join([text, *(f"{word} {stop}" for word, stop in ends if stop is not None)])


def shown_stop(text: str) -> str:
    """A stop as a heading.

    >>> shown_stop("train.accuracy>=0.99")
    'train accuracy ≥ 0.99'
    """
    return str(_Stop.of(text))


def _quantity(name: str) -> str:
    return " ".join(_word(part) for part in name.split("."))


def _word(part: str) -> str:
    return METRICS[part].heading if part in METRICS else _LETTERS.get(part, part.replace("_", " "))


def _kept(name: str) -> str | None:
    """The logarithm that journals keep of ``train.q`` and ``test.q``; None for any other quantity."""
    place, _, last = name.rpartition(".")
    return f"{place}.log_q" if last == "q" else None


def _read(reading: Mapping[str, Any], name: str) -> float:
    """A quantity of a reading; NaN if it has none."""
    kept = _kept(name)
    if kept is None:
        return _number(reading.get(name))
    with np.errstate(over="ignore"):  # a moment beyond floats is infinite, and left out of relations
        return float(np.exp(_number(reading.get(kept))))


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
