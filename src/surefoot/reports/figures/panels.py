"""The panels of trajectories: which quantities, under which titles, on which scale."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BOUNDS", "FINAL", "PANELS", "Panel", "Statement", "drawn", "wanted"]


@dataclass(frozen=True)
class Panel:
    """A quantity over the steps. ``parts`` is True if it is read on the training and on the test set."""

    name: str
    title: str
    unit: str
    parts: bool
    log: bool

    def key(self, part: str) -> str:
        """The name of its column."""
        return f"{part}.{self.name}" if self.parts else self.name


# Paper A's Figures 1, 2, A2 to A7 and A9 to A15 show these, in this order; the last two are the cause, and a cure.
PANELS = (
    Panel("nll", "Loss", "mean cross-entropy, nats", True, True),
    Panel("accuracy", "Accuracy", "share of right answers", True, False),
    Panel("ece", "ECE", "15 bins of equal width", True, False),
    Panel("kce", "KCE", "Laplace kernel, bandwidth 0.4", True, False),
    Panel("margin", "Margin", "mean true margin, logits", True, False),
    Panel("sharpness", "Gauss–Newton sharpness", "largest eigenvalue", False, True),
    Panel("batch_sharpness", "Batch sharpness and 2/η", "mean over batches", False, True),
    Panel("log_q", "Margin moment", "log of mean exp(−margin)", True, False),
    Panel("test.tce", "ECE after temperature", "test set; fitted on validation", False, False),
)


@dataclass(frozen=True)
class Statement:
    """A theorem's inequality over the steps: its left side, and the names of its right sides."""

    title: str
    left: str
    printed: str
    tight: str


# What `surefoot.training.bounds` writes down.
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

# Of the last reading.
_ENDS = ("accuracy", "ece", "kce", "adaptive_ece", "nll", "brier", "confidence", "margin", "log_q")
FINAL = (
    *(f"{part}.{name}" for part in ("test", "train") for name in _ENDS),
    "test.tce", "temperature", "sharpness", "hessian", "batch_sharpness", "threshold", "loss",
    *(bound for each in BOUNDS for bound in (each.printed, each.tight)),
    *(bound.replace("bound", "slack") for each in BOUNDS for bound in (each.printed, each.tight)),
)  # fmt: skip

_COLUMNS = {panel.key(part) for panel in PANELS for part in ("train", "test")} | {
    "threshold", "hessian", "test.sharpness", "temperature", "train.log_q_attack",
    "train.log_q_certified", "train.theorems.holds", "train.theorems.violated",
    "rule.epsilon", "rule.lambda", "rule.lambda0",
}  # fmt: skip


def wanted(name: str) -> bool:
    """Whether a column is drawn, or needed to tell how a run ended."""
    return drawn(name) or name in ("diverged", "train.regime")


def drawn(name: str) -> bool:
    """Whether a column is drawn over the steps."""
    return name in _COLUMNS or name.startswith("train.bound.")
