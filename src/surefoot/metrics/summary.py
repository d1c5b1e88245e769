"""`summary`: every metric that costs no more than one pass over the logits and a sort."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from surefoot.metrics.bins import check_bins
from surefoot.metrics.debiased import debiased_ece, sweep_ece
from surefoot.metrics.ece import adaptive_ece, classwise_ece, ece, mce, rmsce
from surefoot.metrics.kce import kce
from surefoot.metrics.ranking import aurc, auroc_misclassification, auroc_ovr, e_aurc, fpr95
from surefoot.metrics.scores import accuracy, brier, mean_confidence, nll
from surefoot.metrics.skce import skce
from surefoot.metrics.smooth import smooth_ece
from surefoot.metrics.value import Value
from surefoot.predictions import Predictions, takes_predictions

__all__ = ["COSTLY", "HIGHER_IS_BETTER", "Metric", "metrics_table", "summary"]

Metric = Callable[[Predictions], Value]

# Sorted columns of every class, or every pair of rows: not part of a summary.
COSTLY = ("auroc_ovr", "skce")
# Of every other metric, lower is.
HIGHER_IS_BETTER = frozenset({"accuracy", "auroc_misclassification", "auroc_ovr"})


def metrics_table(bins: int = 15) -> dict[str, Metric]:
    """Every metric by its name, with the given number of bins; the one place where names become functions."""
    bins = check_bins(bins)
    return {
        "accuracy": accuracy,
        "mean_confidence": mean_confidence,
        "nll": nll,
        "brier": brier,
        "ece": partial(ece, bins=bins),
        "adaptive_ece": partial(adaptive_ece, bins=bins),
        "classwise_ece": partial(classwise_ece, bins=bins),
        "mce": partial(mce, bins=bins),
        "rmsce": partial(rmsce, bins=bins),
        "debiased_ece": partial(debiased_ece, bins=bins),
        "sweep_ece": sweep_ece,
        "kce": kce,
        "smooth_ece": smooth_ece,
        "auroc_misclassification": auroc_misclassification,
        "aurc": aurc,
        "e_aurc": e_aurc,
        "fpr95": fpr95,
        "auroc_ovr": auroc_ovr,
        "skce": skce,
    }


@takes_predictions
def summary(p: Predictions, bins: int = 15) -> dict[str, Value]:
    """All metrics but `auroc_ovr` and `skce`, which cost more than one pass and a sort, by name.

    >>> p = Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0])
    >>> summary(p)["accuracy"]
    Value(0.5, n=2)
    """
    table = {name: metric for name, metric in metrics_table(bins).items() if name not in COSTLY}
    # First, so that its pass over all probabilities derives the columns for the others on the way.
    found = {"classwise_ece": table["classwise_ece"](p)}
    found.update((name, metric(p)) for name, metric in table.items() if name not in found)
    return {name: found[name] for name in table}
