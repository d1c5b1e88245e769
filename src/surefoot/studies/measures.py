"""The little language of tables: what is read from a run.

``train.ece`` is a quantity of the final reading; ``max train.ece`` (also ``min``, ``mean``, ``first``) one over all
readings; ``best train.ece`` that of the reading whose weights the run kept; ``pearson train.ece sharpness`` (also
``spearman``) relates two over the readings; ``lag train.ece sharpness`` is by how many readings sharpness leads,
``lag_steps`` by how many steps. Torch is not needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.checks import nearest
from surefoot.studies.statistics import lead, pearson, spearman
from surefoot.training.journal import JOURNAL, read_journal

__all__ = ["check_measure", "heading", "measure"]

Readings = Sequence[Mapping[str, Any]]
_OVER_RUN: dict[str, Callable[[Any], Any]] = {"max": np.max, "min": np.min, "mean": np.mean, "first": lambda v: v[0]}
_RELATIONS = ("pearson", "spearman", "lag", "lag_steps")
_OF_RUN = (*_OVER_RUN, "best")
_WORDS = (*_OF_RUN, *_RELATIONS)
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


def check_measure(name: str) -> None:
    """A ValueError for a name that is no measure."""
    words = name.split()
    if len(words) == 1:
        return
    wanted = {2: _OF_RUN, 3: _RELATIONS}.get(len(words))
    if wanted is None or words[0] not in wanted:
        near = nearest(words[0], _WORDS) if words else ""
        raise ValueError(
            f"a measure is a quantity (test.ece), one over the run (max train.ece: {', '.join(_OF_RUN)}) or a "
            f"relation of two (pearson train.ece sharpness: {', '.join(_RELATIONS)}); got {name!r}{near}"
        )


def measure(result: Mapping[str, Any], folder: Path, names: Sequence[str]) -> dict[str, float]:
    """The named measures of a finished run; NaN for what it did not read. The journal is read only where it must be."""
    final, kept = _table(result.get("final")), _table(result.get("correlations"))
    found: dict[str, float] = {}
    later: list[str] = []
    for name in names:
        match name.split():
            case [quantity]:
                found[name] = _number(final.get(quantity))
            case ["pearson", one, "sharpness"] if one in kept:
                found[name] = _number(kept[one])
            case _:
                later.append(name)
    readings: Readings = read_journal(folder / JOURNAL)[0] if later else []
    readings = [reading for reading in readings if "diverged" not in reading]
    best = _table(result.get("best")).get("step")
    for name in later:
        chosen = [each for each in readings if each.get("step") == best] if name.startswith("best ") else readings
        found[name] = _over_readings(name.split(), chosen)
    return found


def _over_readings(words: Sequence[str], readings: Readings) -> float:
    steps, columns = _columns(readings, words[1:])
    if not len(steps):
        return math.nan
    word = words[0]
    if word in _OF_RUN:
        return float(_OVER_RUN.get(word, np.max)(columns[0]))  # of the best there is one
    if word in ("pearson", "spearman"):
        return (pearson if word == "pearson" else spearman)(*columns)
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
    """
    words = [_quantity(word) for word in name.split()]
    if len(words) == 1:
        return words[0]
    if len(words) == 2:
        if words[0] == "best":
            return f"{words[1]} at the best"
        return f"{'peak' if words[0] == 'max' else words[0]} {words[1]}"
    sign = {"pearson": "r", "spearman": "ρ", "lag": "lead", "lag_steps": "lead in steps"}[name.split()[0]]
    return f"{sign}({words[1]}, {words[2]})"


def _quantity(name: str) -> str:
    *places, last = name.split(".")
    return " ".join([*places, _LETTERS.get(last, last)]).replace("_", " ")


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
