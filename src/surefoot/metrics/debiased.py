"""Binned calibration errors without the bias that comes from few rows per bin."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.metrics.bins import BinTable, SortedRows, check_bins, equal_mass
from surefoot.metrics.value import Value
from surefoot.predictions import Events, Predictions, events_of, takes_predictions

__all__ = ["debiased_ece", "sweep_ece"]

Floats = NDArray[np.float64]


@takes_predictions
def debiased_ece(p: Predictions | Events, bins: int = 15, norm: int = 2, event: str | int | None = None) -> Value:
    """Debiased calibration error with bins of equal mass (Kumar, Liang & Ma 2019).

    ℓ2: √max(0, Σ_b (n_b/n) [gap_b² − ȳ_b(1 − ȳ_b)/(n_b − 1)]).
    ℓ1: 2·plug-in − expectation of the plug-in when every bin's accuracy is redrawn from N(ȳ_b, ȳ_b(1 − ȳ_b)/n_b). The
    authors draw 1,000 samples; here the closed form of the mean of |N(μ, s²)| replaces the samples.

    A bin of one row carries no information on its noise and contributes 0.

    Args:
        p: the predictions.
        bins: number of bins M, from 1 to 10,000; with fewer rows than bins, every row is a bin.
        norm: 2 for ℓ2, 1 for ℓ1.
        event: which events, as for `Predictions.events`; None takes the usual ones.

    Returns:
        The error, at least 0, with the error without debiasing as the fact ``plugin``.

    Raises:
        BadInput: when ``norm`` is not 1 or 2, ``bins`` is out of range, or ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.9, 0.1]] * 10, [0] * 6 + [1] * 4)
        >>> error = debiased_ece(p, bins=1)
        >>> round(error, 6), round(error.plugin, 6)
        (0.251661, 0.3)

    References:
        Kumar, Liang & Ma (2019), "Verified Uncertainty Calibration".
    """
    if norm is True or norm not in (1, 2):
        raise BadInput(f"norm must be 1 or 2; got {norm!r}")
    e = events_of(p, event)
    table = equal_mass(e, check_bins(bins))
    # Repetitions count as rows; importance weights have an effective number of rows.
    rows = np.asarray(table.mass if e.repetitions else table.effective, np.float64)
    value = _debiased_square(table, rows) if norm == 2 else _debiased_absolute(table, rows)
    return Value(
        value,
        bins=len(table.count),
        norm=norm,
        binning="equal mass",
        bias="removed",
        plugin=table.error(norm),
        **e.facts(),
    )


def _debiased_square(table: BinTable, rows: Floats) -> float:
    enough = rows > 1
    noise = table.accuracy * (1 - table.accuracy) / np.maximum(rows - 1, 1)
    terms = table.mass * (table.gap**2 - noise)
    return math.sqrt(max(0.0, math.fsum(terms[enough]) / table.total))


def _debiased_absolute(table: BinTable, rows: Floats) -> float:
    from scipy.special import ndtr

    enough = rows > 1
    gap = table.gap
    std = np.sqrt(table.accuracy * (1 - table.accuracy) / rows)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(std > 0, gap / std, np.inf)
        # The mean of |N(gap, std²)|, the folded normal distribution.
        folded = std * math.sqrt(2 / math.pi) * np.exp(-0.5 * ratio**2) + gap * (1 - 2 * ndtr(-ratio))
    terms = table.mass * (2 * gap - folded)
    return max(0.0, math.fsum(terms[enough]) / table.total)


@takes_predictions
def sweep_ece(p: Predictions | Events, norm: int = 2, event: str | int | None = None) -> Value:
    """ECE with the largest number of equal-mass bins whose accuracies still rise (ECE sweep, Roelofs et al. 2022).

    The number of bins grows from 1 until some bin is less accurate than the bin below; the last number before is used.

    Args:
        p: the predictions.
        norm: 2, as in the authors' code, or 1.
        event: which events, as for `Predictions.events`; None takes the usual ones.

    Returns:
        The error, with the number of bins as the fact ``bins``.

    Raises:
        BadInput: when ``norm`` is not 1 or 2, or ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.6, 0.4], [0.8, 0.2], [0.9, 0.1]], [1, 0, 0])
        >>> error = sweep_ece(p)
        >>> round(error, 6), error.bins
        (0.369685, 3)

    References:
        Roelofs, Cain, Shlens & Mozer (2022), "Mitigating Bias in Calibration Error Estimation".
    """
    if norm is True or norm not in (1, 2):
        raise BadInput(f"norm must be 1 or 2; got {norm!r}")
    e = events_of(p, event)
    facts = {"norm": norm, "binning": "swept", "bias": "upward", **e.facts()}
    repeated = e.repeated()
    if repeated is None or not repeated.plain:
        bins, table = _sweep(e)
        return Value(table.error(norm), bins=bins, **facts)
    rows = e.memo("sorted rows", lambda: SortedRows.of(repeated.prob, repeated.happened))
    bins = _most_rising_bins(rows)
    return Value(rows.table(_cuts(len(repeated), bins)).error(norm), bins=bins, **facts)


def _sweep(e: Events) -> tuple[int, BinTable]:
    """The sweep for real weights and soft labels: one number of bins after another, up to the number of rows."""
    table = equal_mass(e, 1)
    for bins in range(2, len(e) + 1):
        finer = equal_mass(e, bins)
        if (np.diff(finer.accuracy) < -1e-12).any():
            return bins - 1, table
        table = finer
    return len(e), table


def _cuts(n: int, bins: int) -> NDArray[np.int64]:
    return np.arange(bins + 1) * n // bins


def _most_rising_bins(rows: SortedRows) -> int:
    """The largest b such that the accuracies of 1, 2, ..., b equal-mass bins all rise from bin to bin.

    Every accuracy is 0 below the first row with a hit in its group, and 1 above the last row with a miss. Only bins
    that touch the rows between can fall; only these bins are checked, for many numbers of bins at once.
    """
    n = len(rows.confidence)
    mean = np.diff(rows.below(np.arange(n + 1))[0])
    hits, misses = np.flatnonzero(mean > 1e-12), np.flatnonzero(mean < 1 - 1e-12)
    if len(hits) == 0 or len(misses) == 0 or not (np.diff(mean) < -1e-12).any():
        return n  # the mean correctness never falls, so accuracies rise for any number of bins
    first, last = int(hits[0]), int(misses[-1])
    bins = 1
    while bins < n:
        # As many numbers of bins at once as make about a million bins.
        ahead = max(1, min(n - bins, 1 + bins // 4, (1 << 20) // (2 + (last - first) * bins // n)))
        fall = _first_fall(rows, np.arange(bins + 1, bins + 1 + ahead), first, last)
        if fall is not None:
            return fall - 1
        bins += ahead
    return n


def _first_fall(rows: SortedRows, numbers: NDArray[np.int64], first: int, last: int) -> int | None:
    """The first of the ``numbers`` of bins for which some bin from rank ``first`` to ``last`` falls."""
    n = len(rows.confidence)
    # Bin j of b holds the ranks ⌊j·n/b⌋ to ⌊(j+1)·n/b⌋ − 1.
    low, high = ((first + 1) * numbers - 1) // n, ((last + 1) * numbers - 1) // n
    length = high - low + 2  # cuts: one more than the bins
    start = np.repeat(np.cumsum(length) - length, length)
    owner = np.repeat(numbers, length)
    cuts = (np.repeat(low, length) + np.arange(len(owner)) - start) * n // owner
    hits = rows.below(cuts)[0]
    inside = owner[1:] == owner[:-1]
    accuracy = np.diff(hits) / np.where(inside, np.maximum(np.diff(cuts), 1), 1)
    # Sums inside a group of equal confidences are interpolated: the rounding of a sum is not a fall.
    falls = inside[1:] & inside[:-1] & (np.diff(accuracy) < -1e-12)
    return int(owner[1:-1][falls][0]) if falls.any() else None
