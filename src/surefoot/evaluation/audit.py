"""An audit of overlapping groups: every combination of values of several columns, with one corrected test."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.evaluation.groups import codes_of, columns_of, design_effect
from surefoot.predictions import Events, Predictions, check_predictions
from surefoot.text import plain
from surefoot.validation import check_int

__all__ = ["Segment", "audit"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_SEGMENTS = 1_000_000


@dataclass(frozen=True)
class Segment:
    """The rows that share a value in each of some columns.

    Attributes:
        values: value by column.
        n: number of rows.
        gap: mean confidence − share of events that happened.
        score: the gap in standard deviations that the stated confidences imply.
        p_adjusted: share of redrawn data sets in which any segment has a score at least as large.
    """

    values: dict[str, str]
    n: int
    gap: float
    score: float
    p_adjusted: float

    def __str__(self) -> str:
        where = " and ".join(f"{plain(column)} = {plain(value)}" for column, value in self.values.items())
        return f"{where}: a gap of {100 * self.gap:+.1f} points, n = {self.n:,} (adjusted p = {self.p_adjusted:.3f})"


def audit(
    p: Predictions,
    by: str | Sequence[str],
    *,
    depth: int = 2,
    min_rows: int = 30,
    top: int = 10,
    draws: int = 199,
    event: str | int | None = None,
    seed: int = 0,
) -> list[Segment]:
    """Search all combinations of values of up to ``depth`` columns for the segments with the largest gaps.

    A segment's score is |Σ w Z| / √Σ w² c (1 − c). The largest of many scores is large by chance: without correction,
    80 % of calibrated data sets have a "significant" segment among 64. Therefore outcomes are redrawn from the stated
    confidences, the whole search is repeated, and each score is compared with the largest score of each redrawn set.
    With clusters, the sums of each cluster get random signs instead.

    Args:
        p: the predictions, whose ``groups`` have the columns.
        by: name of a column, or several names.
        depth: largest number of columns in a combination, at least 1.
        min_rows: smallest number of rows of a segment, at least 2.
        top: number of segments to return, at least 1.
        draws: number of redrawn data sets, at least 19.
        event: which events, as for `Predictions.events`; None takes the usual ones.
        seed: seed of the draws, an integer of at least 0.

    Returns:
        The segments with the largest scores, the largest first; empty if no segment is large enough.

    Raises:
        BadInput: when a column is unknown, an argument is out of range, or there are more than a million segments.

    Example:
        >>> n = 800
        >>> a, b = np.arange(n) % 2, np.arange(n) // 2 % 2
        >>> happened = np.where((a == 1) & (b == 1), np.arange(n) % 3 == 0, np.arange(n) // 4 % 10 < 8)
        >>> p = Predictions.from_confidence([0.8] * n, happened, groups={"a": a, "b": b})
        >>> worst = audit(p, ["a", "b"])[0]
        >>> worst.values, round(worst.gap, 2), worst.p_adjusted
        ({'a': '1', 'b': '1'}, 0.46, 0.005)

    References:
        Westfall & Young (1993), "Resampling-Based Multiple Testing", for the distribution of the largest score.
    """
    check_predictions("p", p)
    columns = columns_of(p, by)
    check_int("depth", depth, 1)
    check_int("min_rows", min_rows, 2)
    check_int("top", top, 1)
    check_int("draws", draws, 19)
    check_int("seed", seed, 0)
    e = p.events(event)
    coded = {column: codes_of(column, p.groups[column]) for column in columns}
    parts: list[tuple[tuple[str, ...], Ints, Ints]] = []  # columns, code of each kept segment, segment of each row
    total = 0
    for size in range(1, min(depth, len(columns)) + 1):
        for chosen in itertools.combinations(columns, size):
            code = np.zeros(len(p), np.int64)
            for column in chosen:
                values, owner = coded[column]
                code = code * len(values) + owner
            present, segment = np.unique(code, return_inverse=True)
            count = np.bincount(segment)
            number = np.where(count >= min_rows, np.cumsum(count >= min_rows) - 1, -1)
            parts.append((chosen, present[count >= min_rows], number[segment]))
            total += int((count >= min_rows).sum())
    if total > _MOST_SEGMENTS:
        raise BadInput(f"by and depth give {total:,} segments, more than {_MOST_SEGMENTS:,}; take a smaller depth")
    if total == 0:
        return []
    return _ranked(e, parts, coded, total, top, draws, seed)


def _ranked(
    e: Events, parts: list[Any], coded: dict[str, Any], total: int, top: int, draws: int, seed: int
) -> list[Segment]:
    w, c = e.weights, e.prob
    random = np.random.default_rng(seed)

    def sums(values: Floats) -> Floats:
        found = []
        for _, codes, segment in parts:
            kept = segment >= 0
            found.append(np.bincount(segment[kept], values[kept], len(codes)))
        return np.concatenate(found)

    mass, z = sums(w), sums(w * e.residual)
    variance = sums(w**2 * c * (1 - c))
    if e.cluster is not None:
        variance = np.maximum(_cluster_squares(e, parts), variance * design_effect(e))
    deviation = np.sqrt(np.maximum(variance, 1e-300))
    score = np.abs(z) / deviation
    largest = np.empty(draws)
    owner = None if e.cluster is None else np.unique(e.cluster, return_inverse=True)[1]
    for index in range(draws):
        if owner is None:
            drawn = w * ((random.random(len(e)) < c) - c)
        else:
            drawn = w * e.residual * (random.integers(0, 2, int(owner.max()) + 1) * 2.0 - 1.0)[owner]
        largest[index] = float((np.abs(sums(drawn)) / deviation).max())
    rows, found = sums(np.ones(len(e))), []
    starts = np.cumsum([0, *(len(codes) for _, codes, _ in parts)])
    for place in np.argsort(-score, kind="stable")[:top].tolist():
        part = int(np.searchsorted(starts, place, side="right")) - 1
        columns, codes, _ = parts[part]
        code, values = int(codes[place - starts[part]]), {}
        for column in reversed(columns):
            names = coded[column][0]
            code, position = divmod(code, len(names))
            values[column] = names[position]
        extreme = int(np.count_nonzero(largest >= score[place] * (1 - 1e-12)))
        found.append(
            Segment(
                {column: values[column] for column in columns},
                int(rows[place]),
                -float(z[place] / mass[place]),
                float(score[place]) if math.isfinite(score[place]) else math.inf,
                (1 + extreme) / (1 + draws),
            )
        )
    return found


def _cluster_squares(e: Events, parts: list[Any]) -> Floats:
    """For every segment, the sum of the squared sums over its clusters."""
    owner = np.unique(np.asarray(e.cluster), return_inverse=True)[1]
    found = []
    for _, codes, segment in parts:
        kept = segment >= 0
        pair, inverse = np.unique(owner[kept] * len(codes) + segment[kept], return_inverse=True)
        sums = np.bincount(inverse, (e.weights * e.residual)[kept])
        found.append(np.bincount(pair % max(len(codes), 1), sums**2, len(codes)))
    return np.concatenate(found)
