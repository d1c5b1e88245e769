"""The first argument of metrics: `Predictions`, `Events`, or the two arrays of scikit-learn's metrics."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.predictions.events import Events
from surefoot.predictions.predictions import Predictions
from surefoot.validation import as_array

__all__ = ["check_predictions", "events_of", "takes_predictions"]

Function = TypeVar("Function", bound=Callable[..., Any])

_BINNINGS = {"uniform": "width", "quantile": "mass"}


def check_predictions(name: str, value: Any) -> Predictions:
    """Check that an argument is a `Predictions`.

    Args:
        name: name of the argument, for the error.
        value: what the user gave.

    Returns:
        ``value`` itself.

    Raises:
        BadInput: when ``value`` is anything else; the error names the constructors.
    """
    if isinstance(value, Predictions):
        return value
    raise BadInput(
        f"{name} must be Predictions; got {type(value).__name__}. Make them with Predictions(logits, labels), "
        "Predictions.from_probs(probs, labels) or Predictions.load(file)"
    )


def events_of(p: Predictions | Events, event: str | int | None = None) -> Events:
    """The events that a metric reads.

    Args:
        p: predictions, or events themselves.
        event: which events of the predictions, as for `Predictions.events`.

    Returns:
        The events.

    Raises:
        BadInput: when the predictions have no such events, or ``event`` is given with `Events`.
    """
    if isinstance(p, Events):
        if event is not None:
            raise BadInput(f"event chooses among the events of Predictions; got {event!r} with a table of events")
        return p
    return p.events(event)


def takes_predictions(function: Function) -> Function:
    """Decorate a metric, so that its first argument ``p`` is checked.

    The decorated function takes `Predictions`; `Events` if it has an argument ``event``; or two arrays, labels and
    probabilities in the order of scikit-learn, with its names of arguments: ``n_bins``, ``strategy``,
    ``sample_weight``, ``pos_label``.

    Args:
        function: a function whose first parameter is ``p``.

    Returns:
        The function with the check, under the same name and docstring.
    """
    parameters = inspect.signature(function).parameters

    @wraps(function)
    def checked(p: Any = None, *args: Any, **options: Any) -> Any:
        if isinstance(p, Predictions) or (isinstance(p, Events) and "event" in parameters):
            return function(p, *args, **options)
        if isinstance(p, Events):
            raise BadInput(f"{function.__name__} needs predictions, not events: it reads every class")
        if "y_true" in options:
            p = options.pop("y_true")
        if "y_prob" in options:
            args = (options.pop("y_prob"), *args)
        if not args or isinstance(args[0], int | float | str) or isinstance(p, str):
            return function(check_predictions("p", p), *args, **options)
        weights, positive = options.pop("sample_weight", None), options.pop("pos_label", None)
        if "n_bins" in options:
            options["bins"] = options.pop("n_bins")
        if "strategy" in options:
            options["binning"] = _binning(function.__name__, options.pop("strategy"), parameters)
        predictions = _from_arrays(function.__name__, p, args[0], weights, positive)
        return function(predictions, *args[1:], **options)

    return cast("Function", checked)


def _binning(name: str, strategy: Any, parameters: Any) -> str:
    if "binning" not in parameters:
        raise BadInput(f"{name} has one kind of bins; leave out strategy, or use ece or adaptive_ece")
    if strategy not in _BINNINGS:
        raise BadInput(f"strategy must be 'uniform' or 'quantile'; got {strategy!r}")
    return _BINNINGS[strategy]


def _from_arrays(name: str, first: Any, second: Any, weights: Any, positive: Any) -> Predictions:
    """Predictions of two arrays, which must be labels and probabilities; arrays that could be either are refused."""
    labels, probs = as_array("y_true", first), as_array("y_prob", second)
    calls = (
        f"{name}(y_true, y_prob), or {name}(Predictions(logits, labels)), {name}(Predictions.from_probs(probs, labels))"
    )
    if not _may_be_labels(labels):
        raise BadInput(f"the first of two arrays must be the labels; it holds scores. Write {calls}")
    if probs.dtype.kind not in "fiu":
        raise BadInput(f"the second of two arrays must be probabilities; got dtype {probs.dtype}. Write {calls}")
    if probs.ndim == 1 and _may_be_labels(probs) and labels.dtype.kind in "biuf":
        raise BadInput(
            "two arrays of zeros and ones could be (y_true, y_prob) or (y_prob, y_true); say which: "
            f"{name}(Predictions.from_probs(y_prob, y_true)) with the array of probabilities first"
        )
    if labels.dtype.kind == "f" and probs.ndim == 1:
        labels = labels.astype(np.int64)
    return Predictions.from_probs(probs, labels, weights=weights, positive=positive)


def _may_be_labels(array: NDArray[Any]) -> bool:
    if array.ndim != 1:
        return False
    return array.dtype.kind != "f" or bool(((array == 0) | (array == 1)).all())
