"""The usual event of metrics that come from binary forecasts: P(positive), where there are two classes."""

from __future__ import annotations

from surefoot.predictions import Events, Predictions, events_of

__all__ = ["positive_events"]


def positive_events(p: Predictions | Events, event: str | int | None = None) -> Events:
    """The events that a metric of binary forecasts reads.

    The top class of two is a folded forecast: errors of opposite sign cancel. The positive event has no such fold.

    Args:
        p: predictions, or events themselves.
        event: which events, as for `Predictions.events`; None takes the positive event of two classes, and otherwise
            the usual events.

    Returns:
        The events.

    Raises:
        BadInput: when the predictions have no such events, or ``event`` is given with `Events`.

    Example:
        >>> positive_events(Predictions.from_probs([[0.7, 0.3]], [0])).prob.tolist()
        [0.3]
    """
    if isinstance(p, Predictions) and event is None and p.form == "classes" and p.positive is not None:
        event = "positive"
    return events_of(p, event)
