"""What is drawn of a run: panels of trajectories, correlations, phase portraits (Morosini et al. 2026, A1 and A8)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.metrics.registry import tracked_metrics
from surefoot.reports.runs import RunFacts, number
from surefoot.statistics import lead, pearson, spearman

__all__ = [
    "BOUNDS",
    "PANELS",
    "Panel",
    "Statement",
    "correlations",
    "drawn",
    "final_quantities",
    "horizon",
    "portrait",
    "wanted",
]

_CORRELATED = ("train.ece", "train.kce", "test.ece", "test.kce")


@dataclass(frozen=True)
class Panel:
    """A quantity over the steps.

    Attributes:
        name: name of the quantity.
        title: title of the panel.
        unit: description of the values.
        train: column on the training set; empty if the quantity is not read there.
        test: column on the test set; empty if the quantity is not read there.
        log: whether the scale may be logarithmic.
    """

    name: str
    title: str
    unit: str
    train: str
    test: str
    log: bool

    def key(self, part: str) -> str:
        """Give the name of the column on a part of the data.

        Args:
            part: ``"train"`` or ``"test"``.

        Returns:
            The name; empty if the quantity is not read there.
        """
        return self.train if part == "train" else self.test


def _both(name: str, title: str, unit: str, *, log: bool = False) -> Panel:
    return Panel(name, title, unit, f"train.{name}", f"test.{name}", log)


# Figures 1, 2, A2 to A7 and A9 to A15 of Morosini et al. (2026) show these, in this order; the last two are the
# cause, and a cure.
PANELS = (
    _both("nll", "Cross-entropy", "mean, nats", log=True),
    _both("accuracy", "Accuracy", "share of right answers"),
    _both("ece", "ECE", "15 bins of equal width"),
    _both("kce", "KCE", "Laplace kernel, bandwidth 0.4"),
    _both("margin", "Margin", "mean true margin, logits"),
    Panel("sharpness", "Gauss–Newton sharpness", "largest eigenvalue", "sharpness", "test.sharpness", True),
    Panel("batch_sharpness", "Batch sharpness and 2/η", "mean over batches", "batch_sharpness", "", True),
    _both("log_q", "Margin moment", "log of mean exp(−margin)"),
    Panel("test.tce", "ECE after temperature", "test set; fitted on validation", "", "test.tce", False),
)


@dataclass(frozen=True)
class Statement:
    """The inequality of a theorem over the steps.

    Attributes:
        title: title of the panel.
        left: column of the left side.
        printed: column of the right side as published.
        tight: column of the tighter right side.
    """

    title: str
    left: str
    printed: str
    tight: str


# The columns that `surefoot.training.bounds` writes.
BOUNDS = (
    Statement("Theorem 4.1 (i): ECE by margins", "train.ece", "train.bound.ece.printed", "train.bound.ece.tight"),
    Statement(
        "Theorem 4.1 (ii): sharpness by margins",
        "sharpness",
        "train.bound.sharpness.printed",
        "train.bound.sharpness.tight",
    ),
    Statement(
        "Theorem 4.2 (ii): sharpness by ECE", "sharpness", "train.bound.coupling.printed", "train.bound.coupling.tight"
    ),
)

_ENDS = (
    "test.tce", "temperature", "sharpness", "hessian", "batch_sharpness", "threshold", "loss",
    *(bound for statement in BOUNDS for bound in (statement.printed, statement.tight)),
    *(bound.replace("bound", "slack") for statement in BOUNDS for bound in (statement.printed, statement.tight)),
)  # fmt: skip

_COLUMNS = {name for panel in PANELS for name in (panel.train, panel.test) if name} | {
    "threshold", "hessian", "temperature", "train.log_q_attack",
    "train.log_q_certified", "train.theorems.holds", "train.theorems.violated",
    "rule.epsilon", "rule.lambda", "rule.lambda0",
}  # fmt: skip


def final_quantities() -> list[str]:
    """List the quantities of the last reading that a page shows.

    Returns:
        The names.
    """
    of_part = (*tracked_metrics("train"), "confidence", "margin", "log_q")
    return [*(f"{part}.{name}" for part in ("test", "train") for name in of_part), *_ENDS]


def wanted(name: str) -> bool:
    """Check whether a column is drawn, or needed to describe how a run ended.

    Args:
        name: name of the column.

    Returns:
        True if the column is read.
    """
    return drawn(name) or name in ("diverged", "train.regime")


def drawn(name: str) -> bool:
    """Check whether a column is drawn over the steps.

    Args:
        name: name of the column.

    Returns:
        True if the column is drawn.
    """
    return name in _COLUMNS or name.startswith("train.bound.")


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
    values = {name: number(run.correlations.get(name)) for name in _CORRELATED}
    for name in _CORRELATED:
        if math.isnan(values[name]) and name in columns and "sharpness" in columns:
            values[name] = pearson(*_pairs(columns[name], columns["sharpness"]))
    if "train.ece" in columns and "sharpness" in columns:
        ece, sharp = _pairs(columns["train.ece"], columns["sharpness"])
        values["spearman"] = spearman(ece, sharp)
        values["lead"] = lead(sharp, ece)[0]
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _pairs(one: Any, other: Any) -> tuple[Any, Any]:
    both = np.isfinite(one) & np.isfinite(other)
    return one[both], other[both]
