"""Predictions of every kind, the events that metrics read, and files of both."""

from surefoot.predictions.arguments import check_predictions, events_of, takes_predictions
from surefoot.predictions.columns import columns_from_logits, columns_from_probs, empty_columns
from surefoot.predictions.events import Events
from surefoot.predictions.predictions import Predictions

__all__ = [
    "Events",
    "Predictions",
    "check_predictions",
    "columns_from_logits",
    "columns_from_probs",
    "empty_columns",
    "events_of",
    "takes_predictions",
]
