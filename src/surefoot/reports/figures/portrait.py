"""Phase portraits of calibration error and sharpness (Morosini et al. 2026, Figures A1 and A8), and correlations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from surefoot.reports.runs import RunFacts, number
from surefoot.statistics import lead, pearson, spearman

__all__ = ["correlations", "horizon", "portrait"]


def portrait(run: RunFacts, part: str = "train", sharpness: str = "sharpness") -> dict[str, list[float]]:
    """``sharpness``, ``ece`` and ``step`` of the readings that hold both; the first and last are start and end."""
    columns = run.columns.numbers
    found = [columns.get(name) for name in ("step", sharpness, f"{part}.ece")]
    if any(column is None for column in found):
        return {"step": [], "sharpness": [], "ece": []}
    values = np.stack([column for column in found if column is not None])
    values = values[:, np.isfinite(values).all(axis=0)]
    return dict(zip(("step", "sharpness", "ece"), values.tolist(), strict=True))


def horizon(
    run: RunFacts, part: str = "train", sharpness: str = "sharpness", fewest: int = 8
) -> tuple[list[float], list[float]]:
    """Steps, and Pearson's r of ECE with sharpness over the readings up to each: Table 1, had training stopped there.

    From the ``fewest``-th reading on; a correlation of fewer says little.
    """
    path = portrait(run, part, sharpness)
    ends = range(fewest, len(path["step"]) + 1)
    found = [(path["step"][end - 1], pearson(path["ece"][:end], path["sharpness"][:end])) for end in ends]
    found = [(step, value) for step, value in found if math.isfinite(value)]
    return [step for step, _ in found], [value for _, value in found]


def correlations(run: RunFacts) -> dict[str, Any]:
    """Pearson's r of ECE and KCE with Gauss–Newton sharpness, train and test (Morosini et al. 2026, Table 1).

    Also Spearman's ρ of train ECE with it, and by how many readings sharpness leads. The whole journal is used.
    """
    columns = run.columns.numbers
    found = {name: number(run.correlations.get(name)) for name in _NAMES}
    for name in _NAMES:
        if math.isnan(found[name]) and name in columns and "sharpness" in columns:
            found[name] = pearson(*_pairs(columns[name], columns["sharpness"]))
    if "train.ece" in columns and "sharpness" in columns:
        ece, sharp = _pairs(columns["train.ece"], columns["sharpness"])
        found["spearman"] = spearman(ece, sharp)
        found["lead"] = lead(sharp, ece)[0]
    return {name: value for name, value in found.items() if math.isfinite(value)}


_NAMES = ("train.ece", "train.kce", "test.ece", "test.kce")


def _pairs(one: Any, other: Any) -> tuple[Any, Any]:
    both = np.isfinite(one) & np.isfinite(other)
    return one[both], other[both]
