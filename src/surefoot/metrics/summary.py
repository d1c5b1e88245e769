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
    """Return every metric of the registry by its name.

    Args:
        bins: number of bins of the binned metrics, from 1 to 10,000.

    Returns:
        Functions from `Predictions` to a `Value`, by name.

    Raises:
        BadInput: when ``bins`` is out of range.

    Example:
        >>> metrics_table()["accuracy"](Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0]))
        Value(0.5, n=2)
    """
    bins = check_bins(bins)
    return {
        name: partial(entry.resolve(), **entry.fixed, **({"bins": bins} if entry.bins else {}))
        for name, entry in METRICS.items()
    }


@takes_predictions
def summary(p: Predictions, bins: int = 15) -> dict[str, Value]:
    """Compute all metrics except `auroc_ovr` and `skce`, which cost more than one pass and a sort.

    Args:
        p: the predictions.
        bins: number of bins of the binned metrics, from 1 to 10,000.

    Returns:
        Values by the name of the metric.

    Raises:
        BadInput: when ``bins`` is out of range, or ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        >>> summary(p)["accuracy"]
        Value(0.5, n=2)
    """
    table = {name: metric for name, metric in metrics_table(bins).items() if not METRICS[name].costly}
    # Classwise ECE comes first: its pass over all probabilities also derives the columns for the other metrics.
    values = {"classwise_ece": table["classwise_ece"](p)}
    values.update((name, metric(p)) for name, metric in table.items() if name not in values)
    return {name: values[name] for name in table}
