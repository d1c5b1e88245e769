"""Phase portraits of calibration error and sharpness (Morosini et al. 2026, Figures A1 and A8), and correlations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from surefoot.reports.runs import RunFacts, number
from surefoot.statistics import lead, pearson, spearman

__all__ = ["correlations", "horizon", "portrait"]


def portrait(run: RunFacts, part: str = "train", sharpness: str = "sharpness") -> dict[str, list[float]]:
    """Read the path of a run through sharpness and ECE.

    Args:
        run: the run.
        part: ``"train"`` or ``"test"``: the data of the ECE.
        sharpness: column of the sharpness.

    Returns:
        Lists ``step``, ``sharpness`` and ``ece`` of the readings that have both quantities.
    """
    columns = run.columns.numbers
    needed = [columns.get(name) for name in ("step", sharpness, f"{part}.ece")]
    if any(column is None for column in needed):
        return {"step": [], "sharpness": [], "ece": []}
    values = np.stack([column for column in needed if column is not None])
    values = values[:, np.isfinite(values).all(axis=0)]
    return dict(zip(("step", "sharpness", "ece"), values.tolist(), strict=True))


def horizon(
    run: RunFacts, part: str = "train", sharpness: str = "sharpness", fewest: int = 8
) -> tuple[list[float], list[float]]:
    """Compute Pearson's r of ECE with sharpness over the readings up to every step.

    The last value is the entry of Table 1; an earlier value is the entry if training had stopped at that step.

    Args:
        run: the run.
        part: ``"train"`` or ``"test"``: the data of the ECE.
        sharpness: column of the sharpness.
        fewest: minimum number of readings; a correlation of fewer readings says little.

    Returns:
        The steps and the correlations, without undefined correlations.

    References:
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Table 1.
    """
    path = portrait(run, part, sharpness)
    ends = range(fewest, len(path["step"]) + 1)
    points = [(path["step"][end - 1], pearson(path["ece"][:end], path["sharpness"][:end])) for end in ends]
    points = [(step, value) for step, value in points if math.isfinite(value)]
    return [step for step, _ in points], [value for _, value in points]


def correlations(run: RunFacts) -> dict[str, Any]:
    """Compute Pearson's r of ECE and KCE with Gauss–Newton sharpness, on training and test data.

    The result also has Spearman's ρ of train ECE with sharpness, and the number of readings by which sharpness leads.
    The computation uses the whole journal.

    Args:
        run: the run.

    Returns:
        The finite correlations by ``train.ece``, ``train.kce``, ``test.ece``, ``test.kce``, ``spearman`` and ``lead``.

    References:
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Table 1.
    """
    columns = run.columns.numbers
    values = {name: number(run.correlations.get(name)) for name in _NAMES}
    for name in _NAMES:
        if math.isnan(values[name]) and name in columns and "sharpness" in columns:
            values[name] = pearson(*_pairs(columns[name], columns["sharpness"]))
    if "train.ece" in columns and "sharpness" in columns:
        ece, sharp = _pairs(columns["train.ece"], columns["sharpness"])
        values["spearman"] = spearman(ece, sharp)
        values["lead"] = lead(sharp, ece)[0]
    return {name: value for name, value in values.items() if math.isfinite(value)}


_NAMES = ("train.ece", "train.kce", "test.ece", "test.kce")


def _pairs(one: Any, other: Any) -> tuple[Any, Any]:
    both = np.isfinite(one) & np.isfinite(other)
    return one[both], other[both]
