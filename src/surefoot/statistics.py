"""Statistics of small samples: means, standard deviations, intervals, correlations, paired tests, many comparisons."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Readings",
    "Summary",
    "correlated",
    "correlation",
    "holm",
    "lead",
    "paired_t",
    "partial",
    "pearson",
    "sharpness_correlations",
    "sign_flips",
    "spearman",
    "summarise",
]

Numbers = Sequence[float] | NDArray[np.float64]
_DRAWS = 5000
_EXACT = 14  # up to 14 pairs all 2¹⁴ sign patterns are tried; for more pairs, _DRAWS patterns are drawn


@dataclass(frozen=True)
class Summary:
    """Summary of a sample: its mean, standard deviation and size, and how precisely the mean is known.

    Attributes:
        mean: mean of the values; NaN without values.
        std: standard deviation with ddof = 1; NaN for fewer than two values.
        n: number of values.
        low: lower end of a percentile bootstrap interval; NaN for fewer than two values or groups.
        high: upper end of that interval.
        error: standard error of the mean; NaN for fewer than two values or groups.
    """

    mean: float
    std: float
    n: int
    low: float
    high: float
    error: float = math.nan


def summarise(values: Numbers, level: float = 0.95, seed: int = 0, groups: Sequence[Hashable] | None = None) -> Summary:
    """Summarise the finite values of a sample, with an interval and a standard error that respect groups.

    Runs of one setting that differ only in the seed are nearly copies. If such runs count as independent values, a mean
    over settings looks more precise than it is. The bootstrap therefore draws groups first, then values inside them.

    Args:
        values: (n,) numbers; values that are not finite are left out.
        level: coverage of the interval, between 0 and 1.
        seed: seed of the bootstrap.
        groups: (n,) group of each value; None makes every value its own group.

    Returns:
        The summary.

    Example:
        >>> result = summarise([1.0, 2.0, 4.0])
        >>> round(result.mean, 4), round(result.std, 4), result.n
        (2.3333, 1.5275, 3)
        >>> round(summarise([1.0, 1.0, 4.0, 4.0]).error, 2), summarise([1.0, 1.0, 4.0, 4.0], groups="aabb").error
        (0.87, 1.5)
    """
    x = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(x)
    members = _members(range(len(x)) if groups is None else groups, finite)
    x = x[finite]
    n, g = len(x), len(members)
    if n < 2:
        return Summary(float(x[0]) if n else math.nan, math.nan, n, math.nan, math.nan)
    mean, std = float(x.mean()), float(x.std(ddof=1))
    if g < 2:
        return Summary(mean, std, n, math.nan, math.nan)
    places, counted = _drawn(members, _DRAWS, seed)
    means = (x[places] * counted).sum(axis=1) / counted.sum(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    # The error of a ratio of sums over groups, but never below the error of independent values.
    squares = float(np.square([(x[rows] - mean).sum() for rows in members]).sum()) * g / (g - 1)
    return Summary(mean, std, n, float(low), float(high), max(math.sqrt(squares) / n, std / math.sqrt(n)))


def _members(groups: Sequence[Hashable], kept: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Positions of the values of each group, among the kept values."""
    positions: dict[Hashable, list[int]] = {}
    for position, group in enumerate(group for group, keep in zip(groups, kept, strict=True) if keep):
        positions.setdefault(group, []).append(position)
    return [np.array(rows) for rows in positions.values()]


def _drawn(members: Sequence[NDArray[np.int64]], count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(count, m) positions of the values in each draw, and which positions count: draws of small groups are shorter.

    The bootstrap has two stages: groups are drawn, then values inside every drawn group.
    """
    random = np.random.default_rng(seed)
    sizes = np.array([len(rows) for rows in members])
    table = np.array([np.resize(rows, sizes.max()) for rows in members])
    chosen = random.integers(0, len(members), (count, len(members)))[:, :, None]
    inside = (random.random((*chosen.shape[:2], sizes.max())) * sizes[chosen]).astype(np.int64)
    counted = np.arange(sizes.max()) < sizes[chosen]
    return table[chosen, inside].reshape(count, -1), counted.reshape(count, -1)


def pearson(one: Numbers, other: Numbers) -> float:
    """Pearson's correlation of two samples of paired values.

    Args:
        one: (n,) numbers.
        other: (n,) numbers, paired with ``one``.

    Returns:
        The correlation in [−1, 1]; NaN for fewer than three pairs, or when one sample is constant.

    Example:
        >>> pearson([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
        1.0
    """
    x, y = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    x, y = x - x.mean(), y - y.mean()
    return float(x @ y / math.sqrt((x @ x) * (y @ y)))


def partial(one: Numbers, other: Numbers, given: Numbers) -> float:
    """Partial correlation: Pearson's correlation of two samples after regressing both on a third.

    Args:
        one: (n,) numbers.
        other: (n,) numbers, paired with ``one``.
        given: (n,) numbers; a straight line in ``given`` is fitted to both samples and subtracted.

    Returns:
        The correlation of the residuals; NaN for fewer than four triples, or when a sample has no residual.

    Example:
        >>> cause = np.arange(8.0)
        >>> noise = np.array([1.0, -1, -1, 1, 1, -1, -1, 1])
        >>> round(pearson(cause + noise, cause - noise), 2), round(partial(cause + noise, cause - noise, cause), 2)
        (0.68, -1.0)
    """
    x, y, z = (np.asarray(values, dtype=np.float64) for values in (one, other, given))
    if len(x) < 4:
        return math.nan
    line = np.stack([np.ones_like(z), z - z.mean()], axis=1)
    residuals = [values - line @ np.linalg.lstsq(line, values, rcond=None)[0] for values in (x, y)]
    scales = [float(np.abs(values - values.mean()).max()) for values in (x, y)]
    if any(float(np.abs(rest).max()) <= 1e-12 * scale for rest, scale in zip(residuals, scales, strict=True)):
        return math.nan  # the residuals are rounding errors
    return pearson(*residuals)


def spearman(one: Numbers, other: Numbers) -> float:
    """Spearman's correlation: Pearson's correlation of the ranks; tied values share their mean rank.

    Args:
        one: (n,) numbers.
        other: (n,) numbers, paired with ``one``.

    Returns:
        The correlation in [−1, 1]; NaN for fewer than three pairs, or when one sample is constant.

    Example:
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
    """Spearman's correlation of pairs, with a percentile bootstrap interval over groups.

    Resamples in which one of the two samples is constant have no correlation and are left out.

    Args:
        pairs: (n, 2) numbers; pairs that are not finite are left out.
        level: coverage of the interval, between 0 and 1.
        seed: seed of the bootstrap.
        groups: (n,) group of each pair; None makes every pair its own group.

    Returns:
        A summary with the correlation as ``mean``, the standard deviation of the resampled correlations as ``std``,
        and no ``error``. The interval is NaN for fewer than two groups.
    """
    x = np.asarray(pairs, dtype=np.float64).reshape(-1, 2)
    finite: NDArray[np.bool_] = np.isfinite(x[:, 0]) & np.isfinite(x[:, 1])
    members = _members(range(len(x)) if groups is None else groups, finite)
    x = x[finite]
    n = len(x)
    correlation = spearman(x[:, 0], x[:, 1])
    if math.isnan(correlation) or len(members) < 2:
        return Summary(correlation, math.nan, n, math.nan, math.nan)
    draws = zip(*_drawn(members, _DRAWS // 5, seed), strict=True)
    resampled = np.array([spearman(*x[places[counted]].T) for places, counted in draws])
    resampled = resampled[np.isfinite(resampled)]
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return Summary(correlation, float(resampled.std(ddof=1)), n, float(low), float(high))


def _ranks(values: Numbers) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: NDArray[np.float64] = (last - (counts - 1) / 2)[inverse]
    return ranks


def lead(one: Numbers, other: Numbers, max_lag: int | None = None) -> tuple[float, float]:
    """Find the lag by which one series leads another, from the peak of the cross-correlation.

    c(k) = (1/n) Σ_t (one[t] − mean)(other[t + k] − mean′) / (σ σ′), as in R's ``ccf``. Means and standard deviations
    are those of the full series, and the divisor is n: a short overlap cannot win by chance. The peak is a maximum of c
    if the correlation at lag 0 is positive, and a minimum otherwise.

    Args:
        one: (n,) a series.
        other: (n,) a series at the same times.
        max_lag: largest lag in either direction; None takes a quarter of the length.

    Returns:
        The lag of the peak and the cross-correlation there. The lag is positive if ``one`` leads and negative if
        ``other`` leads; in a tie the smallest lag wins. Both are NaN for fewer than eight values or a constant series.

    Example:
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
    sign, reach = math.copysign(1.0, at_zero), n // 4 if max_lag is None else min(max_lag, n - 1)
    best, peak = 0, at_zero
    for lag in sorted(range(-reach, reach + 1), key=abs):
        c = float(x[: n - lag] @ y[lag:] if lag >= 0 else x[-lag:] @ y[:lag]) / n
        if sign * c > sign * peak + 1e-12:
            best, peak = lag, c
    return float(best), peak


def paired_t(one: Numbers, other: Numbers) -> float:
    """Two-sided p-value of Student's t-test for paired values.

    Equal differences other than 0 give NaN: accuracies on a few hundred rows are often equal by chance, and the t-test
    would treat equal differences as certainty.

    Args:
        one: (n,) numbers.
        other: (n,) numbers, paired with ``one``.

    Returns:
        The p-value; 1 if all differences are 0; NaN for fewer than two pairs, or for equal differences other than 0.

    Example:
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
    """Two-sided p-value of the permutation test that flips the signs of paired differences.

    The test is exact up to 14 pairs; for more pairs, 5,000 sign patterns are drawn.

    Args:
        one: (n,) numbers.
        other: (n,) numbers, paired with ``one``.
        seed: seed of the drawn sign patterns.

    Returns:
        The p-value; NaN for fewer than two pairs.

    Example:
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
    observed = abs(float(d.sum()))
    extreme = int((np.abs(signs @ d) >= observed * (1 - 1e-12)).sum())
    # The observed pattern counts as one of the drawn patterns.
    return extreme / len(signs) if exact else (extreme + 1) / (len(signs) + 1)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, which bound the chance of any false discovery among several tests.

    Args:
        p: p-values in [0, 1]; NaN stands for a test without a result.

    Returns:
        The adjusted p-values in the same order; NaN stays NaN and does not count as a test.

    Example:
        >>> [round(value, 4) for value in holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]

    References:
        Holm (1979), "A simple sequentially rejective multiple test procedure".
    """
    order = sorted((i for i, value in enumerate(p) if not math.isnan(value)), key=lambda i: p[i])
    adjusted, highest = [math.nan] * len(p), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p[i]))
        adjusted[i] = highest
    return adjusted


Readings = Sequence[Mapping[str, Any]]


def correlation(readings: Readings, one: str, other: str) -> float:
    """Pearson's correlation of two quantities along one run.

    Args:
        readings: readings of the run, dictionaries from names to numbers.
        one: name of a quantity.
        other: name of the other quantity.

    Returns:
        The correlation over the readings that hold both quantities as finite numbers. NaN for fewer than three such
        readings, and where a quantity is constant.

    Example:
        >>> correlation([{"step": 0, "a": 1.0}, {"step": 1, "a": 2.0}, {"step": 2, "a": 3.0}], "step", "a")
        1.0
    """
    pairs = [(r[one], r[other]) for r in readings if one in r and other in r]
    values = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    values = values[np.isfinite(values).all(axis=1)]
    if len(values) < 3 or (values.std(axis=0) == 0).any():
        return float("nan")
    one_, other_ = (values - values.mean(axis=0)).T
    return float(one_ @ other_ / np.sqrt((one_ @ one_) * (other_ @ other_)))


def sharpness_correlations(readings: Readings) -> dict[str, float]:
    """The correlation of each calibration error with Gauss–Newton sharpness along one run.

    Args:
        readings: readings of the run.

    Returns:
        Correlations by the names ``train.ece``, ``train.kce``, ``test.ece`` and ``test.kce``; see `correlation`.

    References:
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Table 1.
    """
    names = [f"{part}.{metric}" for part in ("train", "test") for metric in ("ece", "kce")]
    return {name: correlation(readings, name, "sharpness") for name in names}
