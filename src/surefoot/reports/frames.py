"""Histograms, reliability and tail of a reading, checked before the page draws them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeGuard

__all__ = ["sound_frame"]

_PARTS = ("train", "test")
_HISTOGRAMS = ("margin_histogram", "confidence_histogram", "reliability")
_LIMIT = 200  # bins, or examples of a tail
_MAX_INTEGER = 1 << 53


def sound_frame(frame: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the parts of a frame that have the right form.

    Args:
        frame: a frame as a run's file has it, which may come from a stranger.

    Returns:
        The step and, for each of training and test data, the three histograms (all or none) and the tail.
    """
    sound: dict[str, Any] = {"step": frame["step"]}
    for part in _PARTS:
        margin, confidence, reliability = (frame.get(f"{part}.{name}") for name in _HISTOGRAMS)
        if _is_spread(margin) and _are_counts(confidence) and _is_reliability(reliability):
            sound |= {f"{part}.{name}": frame[f"{part}.{name}"] for name in _HISTOGRAMS}
        tail = frame.get(f"{part}.tail")
        if _is_tail(tail):
            sound[f"{part}.tail"] = {name: tail[name] for name in (*_TAIL, *_PREDICTED) if name in tail}
    return sound


def _is_spread(table: Any) -> bool:
    if not isinstance(table, dict) or not _are_counts(table.get("counts")):
        return False
    low, high = table.get("low"), table.get("high")
    return _is_number(low) and _is_number(high) and low < high


def _is_reliability(table: Any) -> bool:
    if not isinstance(table, dict) or not _are_counts(table.get("count")):
        return False
    count = table["count"]
    columns = [table.get(name) for name in ("confidence", "accuracy")]
    # An empty bin has no mean.
    return all(
        isinstance(column, list)
        and len(column) == len(count)
        and all(not n or (_is_number(value) and 0 <= value <= 1) for n, value in zip(count, column, strict=True))
        for column in columns
    )


# For each example: its weight, and its label and prediction, which older runs do not have.
_TAIL, _PREDICTED = ("rows", "margins", "shares"), ("labels", "predicted", "confidence")


def _is_tail(table: Any) -> TypeGuard[dict[str, Any]]:
    if not isinstance(table, dict):
        return False
    columns: list[Any] = [table.get(name) for name in (*_TAIL, *_PREDICTED) if name in _TAIL or name in table]
    if not all(isinstance(column, list) and 0 < len(column) <= _LIMIT for column in columns):
        return False
    return len({len(column) for column in columns}) == 1 and all(_is_number(v) for column in columns for v in column)


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and 0 < len(values) <= _LIMIT and all(_is_number(v) and v >= 0 for v in values)


def _is_number(value: Any) -> TypeGuard[float]:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < _MAX_INTEGER
    return isinstance(value, float) and math.isfinite(value)
