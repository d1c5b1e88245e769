"""The little language of tables: what is read from a run.

``train.ece`` is a quantity of the final reading; ``max train.ece`` (also ``min``, ``mean``, ``first``) one over all
readings; ``best train.ece`` that of the reading whose weights the run kept; ``pearson train.ece sharpness`` (also
``spearman``) relates two over the readings, ``partial train.ece sharpness train.log_q`` two of them given the third;
``lag train.ece sharpness`` is by how many readings sharpness leads, ``lag_steps`` by how many steps. Any of them may
end in ``until train.accuracy>=0.99``: the readings up to the first at which that holds. Torch is not needed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.checks import nearest
from surefoot.studies.statistics import lead, partial, pearson, spearman
from surefoot.training.journal import JOURNAL, read_journal

__all__ = ["check_measure", "heading", "measure", "quantities_of", "shown_stop"]

Readings = Sequence[Mapping[str, Any]]
_OVER_RUN: dict[str, Callable[[Any], Any]] = {
    "max": np.max,
    "min": np.min,
    "mean": np.mean,
    "first": lambda v: v[0],
    "last": lambda v: v[-1],
}
_RELATIONS = {"pearson": 2, "spearman": 2, "lag": 2, "lag_steps": 2, "partial": 3}
_OF_RUN = ("max", "min", "mean", "first", "best")
_LETTERS = {
    "ece": "ECE",
    "kce": "KCE",
    "nll": "NLL",
    "tce": "TCE",
    "adaptive_ece": "AdaECE",
    "classwise_ece": "classwise ECE",
    "auroc_misclassification": "AUROC of errors",
    "auroc_ovr": "AUROC of classes",
    "log_q": "log Q",
    "auroc": "AUROC",
}


@dataclass(frozen=True)
class _Stop:
    """Where the readings end: at the first with ``quantity`` at or beyond ``value``."""

    quantity: str
    sign: str
    value: float

    @classmethod
    def of(cls, text: str) -> _Stop:
        """From ``train.accuracy>=0.99``; a ValueError for anything else."""
        found = re.fullmatch(r"([A-Za-z_][\w.]*)(>=|<=)([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)", text)
        if found is None:
            raise ValueError(f"until takes a quantity, >= or <= and a number (train.accuracy>=0.99); got {text!r}")
        return cls(found[1], found[2], float(found[3]))

    def __str__(self) -> str:
        return f"{_quantity(self.quantity)} {'≥' if self.sign == '>=' else '≤'} {self.value:g}"

    def cut(self, readings: Readings) -> Readings:
        """The readings up to the stop; none if the run never came there, since no part of it answers the question."""
        for place, reading in enumerate(readings):
            value = _number(reading.get(self.quantity))
            if value >= self.value if self.sign == ">=" else value <= self.value:
                return readings[: place + 1]
        return []


def _parsed(name: str) -> tuple[str, list[str], _Stop | None]:
    """A measure's word (``""`` for a plain quantity), its quantities, and where its readings end."""
    words = name.split()
    stop = None
    if "until" in words:
        at = words.index("until")
        stop = _Stop.of(" ".join(words[at + 1 :]))
        words = words[:at]
    if len(words) == 1 and words[0] not in (*_OF_RUN, *_RELATIONS):
        return "", words, stop
    wanted = 1 if words and words[0] in _OF_RUN else _RELATIONS.get(words[0]) if words else None
    if wanted is None or len(words) != 1 + wanted or (stop is not None and words[0] == "best"):
        near = nearest(words[0], (*_OF_RUN, *_RELATIONS)) if words else ""
        raise ValueError(
            f"a measure is a quantity (test.ece), one over the run (max train.ece: {', '.join(_OF_RUN)}) or a relation "
            f"(pearson train.ece sharpness: {', '.join(_RELATIONS)}; partial takes a third, which is held still); all "
            f"but best may end in until train.accuracy>=0.99; got {name!r}{near}"
        )
    return words[0], words[1:], stop


def check_measure(name: str) -> None:
    """A ValueError for a name that is no measure."""
    _parsed(name)


def quantities_of(name: str) -> list[str]:
    """The quantities of readings that a measure looks at."""
    _, quantities, stop = _parsed(name)
    return [*quantities, *([] if stop is None else [stop.quantity])]


def measure(result: Mapping[str, Any], folder: Path, names: Sequence[str]) -> dict[str, float]:
    """The named measures of a finished run; NaN for what it did not read. The journal is read only where it must be."""
    final, kept = _table(result.get("final")), _table(result.get("correlations"))
    found: dict[str, float] = {}
    later: list[str] = []
    for name in names:
        match _parsed(name):
            case "", [quantity], None:
                found[name] = _number(final.get(quantity))
            case "pearson", [one, "sharpness"], None if one in kept:
                found[name] = _number(kept[one])
            case _:
                later.append(name)
    readings: Readings = read_journal(folder / JOURNAL)[0] if later else []
    readings = [reading for reading in readings if "diverged" not in reading]
    best = _table(result.get("best")).get("step")
    for name in later:
        word, quantities, stop = _parsed(name)
        chosen = readings if stop is None else stop.cut(readings)
        if word == "best":
            chosen = [each for each in readings if each.get("step") == best]
        found[name] = _over_readings(word, quantities, chosen)
    return found


def _over_readings(word: str, quantities: Sequence[str], readings: Readings) -> float:
    steps, columns = _columns(readings, quantities)
    if not len(steps):
        return math.nan
    if len(quantities) == 1:
        return float(_OVER_RUN.get(word, _OVER_RUN["last"])(columns[0]))  # of the best there is one
    if word in ("pearson", "spearman"):
        return (pearson if word == "pearson" else spearman)(*columns)
    if word == "partial":
        return partial(*columns)
    ahead = lead(columns[1], columns[0])[0]
    if word == "lag":
        return ahead
    gaps = np.diff(steps)
    gaps = gaps[:-1] if len(gaps) > 1 else gaps  # the last step is read whether it is due or not
    return ahead * float(gaps[0]) if len(gaps) and (gaps == gaps[0]).all() else math.nan


def _columns(readings: Readings, names: Sequence[str]) -> tuple[Any, Any]:
    rows = [[_number(r.get("step")), *(_number(r.get(name)) for name in names)] for r in readings]
    values = np.array(rows, dtype=np.float64).reshape(-1, 1 + len(names))
    values = values[np.isfinite(values).all(axis=1)]
    return values[:, 0], values[:, 1:].T


def heading(name: str) -> str:
    """A measure as a heading.

    >>> heading("max train.ece"), heading("pearson test.kce sharpness")
    ('peak train ECE', 'r(test KCE, sharpness)')
    >>> heading("partial train.ece sharpness train.log_q until train.accuracy>=0.99")
    'r(train ECE, sharpness | train log Q) until train accuracy ≥ 0.99'
    """
    word, quantities, stop = _parsed(name)
    shown = [_quantity(each) for each in quantities]
    match word:
        case "":
            text = shown[0]
        case "best":
            text = f"{shown[0]} at the best"
        case _ if len(shown) == 1:
            text = f"{'peak' if word == 'max' else word} {shown[0]}"
        case "partial":
            text = f"r({shown[0]}, {shown[1]} | {shown[2]})"
        case _:
            sign = {"pearson": "r", "spearman": "ρ", "lag": "lead", "lag_steps": "lead in steps"}[word]
            text = f"{sign}({shown[0]}, {shown[1]})"
    return text if stop is None else f"{text} until {stop}"


def shown_stop(text: str) -> str:
    """A stop as a heading.

    >>> shown_stop("train.accuracy>=0.99")
    'train accuracy ≥ 0.99'
    """
    return str(_Stop.of(text))


def _quantity(name: str) -> str:
    *places, last = name.split(".")
    return " ".join([*places, _LETTERS.get(last, last)]).replace("_", " ")


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
