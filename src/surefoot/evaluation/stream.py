"""`evaluate_batches`: the evaluation of predictions that do not fit into memory, from exact sums."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from surefoot.errors import BadInput
from surefoot.evaluation.evaluation import Evaluation, Verdict
from surefoot.metrics.bins import check_bins
from surefoot.metrics.ece import chance_of_table, fine_cells
from surefoot.metrics.grouped import accumulate
from surefoot.metrics.interval import Interval
from surefoot.metrics.reliability import reliability_of_table, wilson
from surefoot.metrics.state import CalibrationState
from surefoot.predictions import Predictions
from surefoot.validation import check_fraction

__all__ = ["evaluate_batches", "evaluate_state"]


def evaluate_batches(
    batches: Iterable[Predictions],
    bins: int = 15,
    *,
    level: float = 0.95,
    seed: int = 0,
    name: str = "predictions",
    event: str | int | None = None,
) -> Evaluation:
    """Evaluate batches of predictions, one at a time; the memory does not grow with their number.

    Metrics that sort all rows or compare pairs of rows are left out. Intervals are given for accuracy and gap.

    Args:
        batches: the batches, such as ``Predictions.batches(file)``; without clusters, and without weights or with
            integer weights.
        bins: number of bins of the binned metrics and of the diagram.
        level: coverage of the intervals, between 0 and 1.
        seed: of the redrawn outcomes behind the comparison with noise.
        name: what the result calls the predictions.
        event: which events, as for `Predictions.events`; None takes the usual ones.

    Returns:
        The metrics, the reliability diagram's data and the verdict.

    Raises:
        BadInput: when there are no rows, a batch is refused, or a setting is out of range.

    Example:
        >>> halves = [Predictions([[2.0, 0.0], [0.0, 1.0]] * 25, [0, 0] * 25)] * 2
        >>> result = evaluate_batches(halves)
        >>> round(result.metrics["ece"], 4), result.n, result.verdict.direction
        (0.4251, 100, 'over')
    """
    bins = check_bins(bins)
    state = accumulate(map(_unclustered, batches), bins * fine_cells(bins), event=event)
    return evaluate_state(state, bins, level=level, seed=seed, name=name)


def _unclustered(p: Predictions) -> Predictions:
    """A batch, unless its rows belong together: the verdict would take them for independent ones."""
    if p.clusters is not None:
        raise BadInput(
            "the rows belong to clusters, and the verdict needs the sums of each cluster, which a stream does not keep."
            " Evaluate the rows in memory; metrics.accumulate gives the values without a verdict"
        )
    return p


def evaluate_state(
    state: CalibrationState, bins: int = 15, *, level: float = 0.95, seed: int = 0, name: str = "predictions"
) -> Evaluation:
    """Evaluate the rows of a state, which may come from many machines.

    Args:
        state: the state, with a multiple of ``bins`` bins; `evaluate_batches` uses
            ``bins * surefoot.metrics.ece.fine_cells(bins)``.
        bins: number of bins of the binned metrics and of the diagram.
        level: coverage of the intervals, between 0 and 1.
        seed: of the redrawn outcomes behind the comparison with noise.
        name: what the result calls the predictions.

    Returns:
        The metrics, the reliability diagram's data and the verdict.

    Raises:
        BadInput: when the state has no rows or its bins are no multiple of ``bins``.
    """
    level = check_fraction("level", level)
    if state.n == 0:
        raise BadInput(f"{name} has no rows; give a file with predictions")
    coarse = state.coarser(bins)
    values, table = coarse.compute(), coarse.table
    n, events = float(np.sum(table.effective)), state.event or "top"
    said = float(table.confidence[table.count > 0] @ table.mass[table.count > 0]) / table.total
    right = said - float(values["gap"])
    low, high = (float(end[0]) for end in wilson(np.array([right]), np.array([n]), level))
    span = Interval(said - high, said - low, "Wilson", level, 0)
    intervals = {"gap": span}
    if events in ("top", "given"):
        intervals["accuracy"] = Interval(low, high, "Wilson", level, 0)
    chance = chance_of_table(state.table, bins, float(values["ece"]), seed=seed)
    verdict = Verdict(said, right, said - right, span.low, span.high, chance, state.n, level, events)
    form = {"positive": "positive", "pooled": "multilabel", "given": "confidence"}.get(events, "classes")
    diagram = reliability_of_table(table, "width", level)
    return Evaluation(name, state.n, 0, level, values, intervals, diagram, verdict, form)
