"""The panels of trajectories: quantities, titles and scales."""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.metrics.registry import tracked_metrics

__all__ = ["BOUNDS", "PANELS", "Panel", "Statement", "drawn", "final_quantities", "wanted"]


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
