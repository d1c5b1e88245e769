"""`summary`: every metric that costs no more than one pass over the logits and a sort."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from surefoot.metrics.bins import check_bins
from surefoot.metrics.registry import METRICS
from surefoot.metrics.value import Value
from surefoot.predictions import Predictions, takes_predictions

__all__ = ["Metric", "metrics_table", "summary"]

Metric = Callable[[Predictions], Value]


def metrics_table(bins: int = 15) -> dict[str, Metric]:
    """Every metric by its name, with the given number of bins."""
    bins = check_bins(bins)
    return {
        name: partial(entry.resolve(), **entry.fixed, **({"bins": bins} if entry.bins else {}))
        for name, entry in METRICS.items()
    }


@takes_predictions
def summary(p: Predictions, bins: int = 15) -> dict[str, Value]:
    """Every metric by name, but those that take more than one pass and a sort: `auroc_ovr` and `skce`.

    >>> p = Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0])
    >>> summary(p)["accuracy"]
    Value(0.5, n=2)
    """
    table = {name: metric for name, metric in metrics_table(bins).items() if not METRICS[name].costly}
    # First, so that its pass over all probabilities derives the columns for the others on the way.
    found = {"classwise_ece": table["classwise_ece"](p)}
    found.update((name, metric(p)) for name, metric in table.items() if name not in found)
    return {name: found[name] for name in table}
