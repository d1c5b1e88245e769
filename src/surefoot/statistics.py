"""Small samples, said honestly: mean and deviation, intervals, correlations, paired tests, many comparisons."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Summary",
    "correlated",
    "holm",
    "lead",
    "paired_t",
    "partial",
    "pearson",
    "sign_flips",
    "spearman",
    "summarise",
]

Numbers = Sequence[float] | NDArray[np.float64]
_DRAWS = 5000
_EXACT = 14  # 2¹⁴ sign patterns are all tried; beyond, as many as _DRAWS are drawn


@dataclass(frozen=True)
class Summary:
    """Mean, deviation with n − 1 below the sum (ddof = 1), n, and a percentile bootstrap interval of the mean.

    ``error`` is the mean's standard error. Deviation, interval and error are NaN for fewer than two values, the last
    two also for fewer than two groups.
    """

    mean: float
    std: float
    n: int
    low: float
    high: float
    error: float = math.nan


def summarise(values: Numbers, level: float = 0.95, seed: int = 0, groups: Sequence[Hashable] | None = None) -> Summary:
    """Of the finite values; intervals and errors count groups first, then what differs inside them.

    Runs of one setting that differ in the seed alone are nearly copies: taken for as many independent values, they make
    a mean over settings look surer than it is.

    >>> found = summarise([1.0, 2.0, 4.0])
    >>> round(found.mean, 4), round(found.std, 4), found.n
    (2.3333, 1.5275, 3)
    >>> round(summarise([1.0, 1.0, 4.0, 4.0]).error, 2), summarise([1.0, 1.0, 4.0, 4.0], groups="aabb").error
    (0.87, 1.5)
    """
    x = np.asarray(values, dtype=np.float64)
    some = np.isfinite(x)
    members = _members(range(len(x)) if groups is None else groups, some)
    x = x[some]
    n, g = len(x), len(members)
    if n < 2:
        return Summary(float(x[0]) if n else math.nan, math.nan, n, math.nan, math.nan)
    mean, std = float(x.mean()), float(x.std(ddof=1))
    if g < 2:
        return Summary(mean, std, n, math.nan, math.nan)
    places, counted = _drawn(members, _DRAWS, seed)
    means = (x[places] * counted).sum(axis=1) / counted.sum(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    # Of a ratio of sums over the groups, but never less than if no two values had anything in common.
    apart = float(np.square([(x[rows] - mean).sum() for rows in members]).sum()) * g / (g - 1)
    return Summary(mean, std, n, float(low), float(high), max(math.sqrt(apart) / n, std / math.sqrt(n)))


def _members(groups: Sequence[Hashable], some: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """The places of each group's values, among the values that count."""
    found: dict[Hashable, list[int]] = {}
    for place, group in enumerate(group for group, counts in zip(groups, some, strict=True) if counts):
        found.setdefault(group, []).append(place)
    return [np.array(places) for places in found.values()]


def _drawn(members: Sequence[NDArray[np.int64]], count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(count, m) places of the values in each draw, and which of them count: a draw of small groups is shorter.

    A bootstrap in two stages: groups are drawn, then the values inside each that was drawn.
    """
    random = np.random.default_rng(seed)
    sizes = np.array([len(rows) for rows in members])
    table = np.array([np.resize(rows, sizes.max()) for rows in members])
    chosen = random.integers(0, len(members), (count, len(members)))[:, :, None]
    inside = (random.random((*chosen.shape[:2], sizes.max())) * sizes[chosen]).astype(np.int64)
    counted = np.arange(sizes.max()) < sizes[chosen]
    return table[chosen, inside].reshape(count, -1), counted.reshape(count, -1)


def pearson(one: Numbers, other: Numbers) -> float:
    """Pearson's correlation; NaN for fewer than three pairs, or where one of the two is constant."""
    x, y = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    x, y = x - x.mean(), y - y.mean()
    return float(x @ y / math.sqrt((x @ x) * (y @ y)))


def partial(one: Numbers, other: Numbers, given: Numbers) -> float:
    """Pearson's correlation of what is left of two once a straight line in ``given`` is taken off each.

    NaN for fewer than four triples, or where nothing is left of one of the two.

    >>> cause = np.arange(8.0)
    >>> noise = np.array([1.0, -1, -1, 1, 1, -1, -1, 1])
    >>> round(pearson(cause + noise, cause - noise), 2), round(partial(cause + noise, cause - noise, cause), 2)
    (0.68, -1.0)
    """
    x, y, z = (np.asarray(each, dtype=np.float64) for each in (one, other, given))
    if len(x) < 4:
        return math.nan
    line = np.stack([np.ones_like(z), z - z.mean()], axis=1)
    left = [each - line @ np.linalg.lstsq(line, each, rcond=None)[0] for each in (x, y)]
    scales = [float(np.abs(each - each.mean()).max()) for each in (x, y)]
    if any(float(np.abs(rest).max()) <= 1e-12 * scale for rest, scale in zip(left, scales, strict=True)):
        return math.nan  # rounding alone
    return pearson(*left)


def spearman(one: Numbers, other: Numbers) -> float:
    """Pearson's correlation of the ranks, ties sharing their mean rank.

    >>> round(spearman([1, 2, 3, 4], [1, 10, 10, 100]), 4)
    0.9487
    """
    return pearson(_ranks(one), _ranks(other))


def correlated(
    pairs: Sequence[tuple[float, float]],
    level: float = 0.95,
    seed: int = 0,
    groups: Sequence[Hashable] | None = None,
) -> Summary:
    """Spearman's correlation of the finite pairs as ``mean``, with a percentile bootstrap interval by groups.

    Each pair is its own group by default. Resamples in which one of the two is constant have no correlation and are
    left out.
    """
    x = np.asarray(pairs, dtype=np.float64).reshape(-1, 2)
    some: NDArray[np.bool_] = np.isfinite(x[:, 0]) & np.isfinite(x[:, 1])
    members = _members(range(len(x)) if groups is None else groups, some)
    x = x[some]
    n = len(x)
    whole = spearman(x[:, 0], x[:, 1])
    if math.isnan(whole) or len(members) < 2:
        return Summary(whole, math.nan, n, math.nan, math.nan)
    draws = zip(*_drawn(members, _DRAWS // 5, seed), strict=True)
    found = np.array([spearman(*x[places[counted]].T) for places, counted in draws])
    found = found[np.isfinite(found)]
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return Summary(whole, float(found.std(ddof=1)), n, float(low), float(high))


def _ranks(values: Numbers) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: NDArray[np.float64] = (last - (counts - 1) / 2)[inverse]
    return ranks


def lead(one: Numbers, other: Numbers, most: int | None = None) -> tuple[float, float]:
    """By how many places ``one`` leads ``other``, and their cross-correlation there.

    c(k) = (1/n) Σ_t (one[t] − mean)(other[t + k] − mean) / (σ σ′), as in R's ccf: means and deviations are of the whole
    series and the divisor is n, so that a short overlap cannot win by chance. The answer is the lag where it peaks, in
    the direction of the correlation at lag 0, among lags of at most ``most`` (a quarter of the length by default); the
    smallest in a tie; negative if ``other`` leads. NaN for fewer than eight values.

    >>> bump = np.exp(-(((np.arange(63.0) - 33) / 6) ** 2))
    >>> lead(bump[3:], bump[:-3])[0]
    3.0
    """
    x, y = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    n = len(x)
    at_zero = pearson(x, y)
    if n < 8 or math.isnan(at_zero):
        return math.nan, math.nan
    x, y = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    sign, reach = math.copysign(1.0, at_zero), n // 4 if most is None else min(most, n - 1)
    best, found = 0, at_zero
    for lag in sorted(range(-reach, reach + 1), key=abs):
        c = float(x[: n - lag] @ y[lag:] if lag >= 0 else x[-lag:] @ y[:lag]) / n
        if sign * c > sign * found + 1e-12:
            best, found = lag, c
    return float(best), found


def paired_t(one: Numbers, other: Numbers) -> float:
    """Two-sided p of Student's t for paired values; NaN for fewer than two pairs.

    Differences that are all the same but not 0 give NaN, too: accuracies on a few hundred rows are often equal by
    chance, and t would take that for certainty.

    >>> round(paired_t([1.0, 2.0, 3.0], [1.1, 2.3, 3.2]), 4)
    0.0742
    """
    d = np.asarray(one, dtype=np.float64) - np.asarray(other, dtype=np.float64)
    n = len(d)
    if n < 2:
        return math.nan
    error = float(d.std(ddof=1)) / math.sqrt(n)
    if error <= 1e-12 * abs(float(d.mean())):
        return math.nan if d.any() else 1.0
    from scipy.special import stdtr

    return float(2 * stdtr(n - 1, -abs(float(d.mean())) / error))


def sign_flips(one: Numbers, other: Numbers, seed: int = 0) -> float:
    """Two-sided p of the permutation test that turns the signs of paired differences; exact up to 14 pairs.

    >>> sign_flips([1, 1, 1, 1], [0, 0, 0, 0])
    0.125
    """
    d = np.asarray(one, dtype=np.float64) - np.asarray(other, dtype=np.float64)
    n = len(d)
    if n < 2:
        return math.nan
    exact = n <= _EXACT
    signs: Any = (
        np.array(list(product((-1.0, 1.0), repeat=n)))
        if exact
        else np.random.default_rng(seed).choice((-1.0, 1.0), (_DRAWS, n))
    )
    seen = abs(float(d.sum()))
    extreme = int((np.abs(signs @ d) >= seen * (1 - 1e-12)).sum())
    # The pattern that was seen is itself one of those drawn.
    return extreme / len(signs) if exact else (extreme + 1) / (len(signs) + 1)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: the chance of one false discovery among all is bounded; NaN stays, and counts for none.

    >>> [round(value, 4) for value in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = sorted((i for i, value in enumerate(p) if not math.isnan(value)), key=lambda i: p[i])
    found, highest = [math.nan] * len(p), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p[i]))
        found[i] = highest
    return found
