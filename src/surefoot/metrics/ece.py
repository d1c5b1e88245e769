"""Binned calibration errors: expected, adaptive, classwise, maximum, root mean square.

Here Z_i = 1{ŷ_i = y_i} − c_i with the confidence c_i, and the gap of a bin is |Σ_{i in bin} Z_i| / n_bin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.metrics.bins import BinTable, bin_of, check_bins, equal_mass, equal_width
from surefoot.metrics.value import Value
from surefoot.predictions import Events, Predictions, events_of, takes_predictions
from surefoot.validation import check_int

__all__ = [
    "ChanceECE",
    "adaptive_ece",
    "chance_ece",
    "chance_of_table",
    "classwise_ece",
    "ece",
    "fine_cells",
    "mce",
    "rmsce",
]

Floats = NDArray[np.float64]
Entries = tuple[NDArray[np.int64], NDArray[np.int64], Floats]


@takes_predictions
def ece(
    p: Predictions | Events, bins: int = 15, event: str | int | None = None, binning: Literal["width", "mass"] = "width"
) -> Value:
    """Expected calibration error (ECE) with bins of equal width.

    ECE = (1/n) Σ_b |Σ_{i in b} Z_i| over bins (a, b]; a confidence of 0 is in the first bin.

    Args:
        p: the predictions.
        bins: number of bins M, from 1 to 10,000.
        event: which events, as for `Predictions.events`; None takes the usual ones.
        binning: ``"width"``, or ``"mass"`` for the bins of `adaptive_ece`.

    Returns:
        The error, in [0, 1].

    Raises:
        BadInput: when ``bins`` is out of range, or ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.9, 0.1]] * 10, [0] * 6 + [1] * 4)
        >>> round(ece(p), 12)
        0.3

    References:
        Guo, Pleiss, Sun & Weinberger (2017), "On Calibration of Modern Neural Networks".
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Appendix B.1.
    """
    if binning == "mass":
        return adaptive_ece(p, bins, event)
    if binning != "width":
        raise BadInput(f"binning must be 'width' or 'mass'; got {binning!r}")
    e = events_of(p, event)
    table = equal_width(e, check_bins(bins))
    return Value(table.error(1), bins=int(bins), norm=1, binning="equal width", bias="upward", **e.facts())


@takes_predictions
def mce(p: Predictions | Events, bins: int = 15, event: str | int | None = None) -> Value:
    """Maximum calibration error (MCE): the largest gap of a bin of equal width that is not empty.

    Args:
        p: the predictions.
        bins: number of bins M, from 1 to 10,000.
        event: which events, as for `Predictions.events`; None takes the usual ones.

    Returns:
        The error, in [0, 1].

    Raises:
        BadInput: when ``bins`` is out of range, or ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.9, 0.1]] * 9 + [[0.6, 0.4]], [0] * 9 + [1])
        >>> round(mce(p), 12)
        0.6

    References:
        Naeini, Cooper & Hauskrecht (2015), "Obtaining Well Calibrated Probabilities Using Bayesian Binning".
    """
    e = events_of(p, event)
    largest = float(equal_width(e, check_bins(bins)).gap.max())
    return Value(largest, bins=int(bins), norm="max", binning="equal width", bias="upward", **e.facts())


@takes_predictions
def rmsce(p: Predictions | Events, bins: int = 15, event: str | int | None = None) -> Value:
    """Root mean square calibration error (RMSCE), √Σ_b (n_b/n) gap_b², with bins of equal width.

    Args:
        p: the predictions.
        bins: number of bins M, from 1 to 10,000.
        event: which events, as for `Predictions.events`; None takes the usual ones.

    Returns:
        The error, in [0, 1].

    Raises:
        BadInput: when ``bins`` is out of range, or ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.9, 0.1]] * 10, [0] * 6 + [1] * 4)
        >>> round(rmsce(p), 12)
        0.3
    """
    e = events_of(p, event)
    table = equal_width(e, check_bins(bins))
    return Value(table.error(2), bins=int(bins), norm=2, binning="equal width", bias="upward", **e.facts())


@takes_predictions
def adaptive_ece(p: Predictions | Events, bins: int = 15, event: str | int | None = None) -> Value:
    """Expected calibration error with bins of equal mass (AdaECE), (1/n) Σ_b |Σ_{i in b} Z_i|.

    Rows of equal confidence share their mean correctness.

    Args:
        p: the predictions.
        bins: number of bins M, from 1 to 10,000; with fewer rows than bins, every row is a bin.
        event: which events, as for `Predictions.events`; None takes the usual ones.

    Returns:
        The error, in [0, 1], with the number of bins used as the fact ``bins``.

    Raises:
        BadInput: when ``bins`` is out of range, or ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.9, 0.1]] * 10, [0] * 6 + [1] * 4)
        >>> round(adaptive_ece(p), 12)
        0.3

    References:
        Nguyen & O'Connor (2015), "Posterior calibration and exploratory analysis for natural language processing
        models".
        Tan et al. (2026), "Towards Understanding the Calibration Benefits of Sharpness-Aware Minimization",
        Tables 3 and S9, which name the metric without a definition.
    """
    e = events_of(p, event)
    table = equal_mass(e, check_bins(bins))
    return Value(table.error(1), bins=len(table.count), norm=1, binning="equal mass", bias="upward", **e.facts())


@takes_predictions
def classwise_ece(p: Predictions, bins: int = 15) -> Value:
    """Classwise ECE: mean over the k classes of the binned |mean p_k − frequency of k|, with bins of equal width.

    Every class is a binary problem over all n rows: Σ_b |Σ_{i in b} (1{y_i = k} − p_ik)| / n.

    Args:
        p: the predictions.
        bins: number of bins M of each class, from 1 to 10,000.

    Returns:
        The error, in [0, 1].

    Raises:
        BadInput: when ``bins`` is out of range, or ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.9, 0.1]] * 10, [0] * 6 + [1] * 4)
        >>> round(classwise_ece(p), 12)
        0.3

    References:
        Kull et al. (2019), "Beyond temperature scaling: Obtaining well-calibrated multi-class probabilities with
        Dirichlet calibration".
        Tan et al. (2026), "Towards Understanding the Calibration Benefits of Sharpness-Aware Minimization",
        Tables 3 and S8, which name the metric without a definition.
    """
    p.require_classes("classwise_ece")
    value = float(classwise_resampled(p, None if p.weights is None else p.weights[None], bins)[0])
    facts = {"norm": 1, "binning": "equal width", "bias": "upward", "classes": p.classes}
    return Value(value, bins=int(bins), **p.events("top").facts(), **facts)


def classwise_resampled(p: Predictions, times: NDArray[Any] | None, bins: int = 15) -> Floats:
    """Compute `classwise_ece` of many resamples at once.

    A row of probabilities has fewer than ``bins`` entries above 1/bins; all other entries are in the first bin. One
    matrix product per block sums these other entries for all resamples; the few entries above are summed at the end.

    Args:
        p: the predictions.
        times: (b, n) how often row i counts in resample j; None stands for one resample with every row once.
        bins: number of bins of each class, from 1 to 10,000.

    Returns:
        (b,) errors.
    """
    bins = check_bins(bins)
    k, lines = p.classes, 1 if times is None else len(times)
    first_edge = 1.0 / bins if bins > 1 else np.inf  # a single bin holds 1 itself

    def start() -> tuple[Floats, list[Entries]]:
        return np.zeros((lines, k)), []

    def visit(sums: tuple[Floats, list[Entries]], rows: slice, probs: Floats) -> None:
        labels, here = p.labels[rows], np.arange(len(probs))
        row, column = np.divmod(np.flatnonzero(probs > first_edge), k)
        high = probs[row, column]
        happened = labels[row] == column if p.soft_labels is None else p.soft_labels[rows][row, column]
        sums[1].append((row + rows.start, column * bins + bin_of(high, bins), happened - high))
        # The remaining entries, as p_k − 1{y = k}, belong to the first bin.
        if p.soft_labels is None:
            low_true = probs[here, labels] <= first_edge
            probs[row, column] = 0.0
            probs[here[low_true], labels[low_true]] -= 1.0
        else:
            probs -= p.soft_labels[rows]
            probs[row, column] = 0.0
        np.subtract(sums[0], probs.sum(axis=0) if times is None else times[:, rows] @ probs, out=sums[0])

    parts = p.sweep(start, visit)
    low = np.sum([sums for sums, _ in parts], axis=0)
    entries = [entry for _, high in parts for entry in high]
    row, cell, value = (np.concatenate(column) for column in zip(*entries, strict=True))
    errors = np.empty(lines)
    for line in range(lines):
        # Cast to float64 for the case without high entries, where bincount returns integers.
        residual = np.bincount(cell, value if times is None else value * times[line, row], k * bins).astype(np.float64)
        residual[::bins] += low[line]
        errors[line] = np.abs(residual).sum()
    total = len(p) if times is None else times.sum(axis=1, dtype=np.float64)
    values: Floats = errors / (total * k)
    return values


# The bins are cut into about this many cells in total. The hits in a cell are drawn from one binomial with the mean
# confidence, which overstates the variance of a row by less than 1/cells²: far too little to be seen.
_CELLS = 1024


@dataclass(frozen=True)
class ChanceECE:
    """The ECE of labels redrawn from the stated confidences, compared with the observed ECE.

    Attributes:
        observed: ECE of the predictions.
        mean: mean ECE over the redrawn labels.
        upper: 95 % quantile of the ECE over the redrawn labels.
        p_value: share of redrawn errors that are at least as large as the observed error.
        resamples: number of redrawn sets of labels.
    """

    observed: float
    mean: float
    upper: float
    p_value: float
    resamples: int


@takes_predictions
def chance_ece(
    p: Predictions | Events, bins: int = 15, resamples: int = 1000, seed: int = 0, event: str | int | None = None
) -> ChanceECE:
    """Test whether the ECE is larger than chance explains: redraw the correctness of all rows from their confidences.

    The p-value is the share of redrawn errors at least as large as the observed error, which counts as one of them. The
    tested hypothesis is "every stated confidence is true". The cost is O(n + bins·resamples).

    Args:
        p: the predictions.
        bins: number of bins M of the ECE, from 1 to 10,000.
        resamples: how often the correctness is redrawn, at least 1.
        seed: seed of the draws, an integer of at least 0.
        event: which events, as for `Predictions.events`; None takes the usual ones.

    Returns:
        The observed ECE, the mean and upper end of the redrawn ECE, and the p-value.

    Raises:
        BadInput: when an argument is out of range, or ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions.from_probs([[0.9, 0.1]] * 10, [0] * 6 + [1] * 4)
        >>> chance = chance_ece(p)
        >>> round(chance.observed, 12), chance.p_value < 0.05
        (0.3, True)
    """
    bins = check_bins(bins)
    resamples = check_int("resamples", resamples, 1)
    e = events_of(p, event)
    seed = check_int("seed", seed, 0)
    observed, random = equal_width(e, bins).error(1), np.random.default_rng(seed)
    if e.weight is None and e.cluster is None:
        errors = _redrawn_rows(equal_width(e, bins * fine_cells(bins)), bins, resamples, random)
    else:
        errors = _redrawn_bins(e, bins, resamples, random)
    return _chance(observed, errors)


def fine_cells(bins: int) -> int:
    """Number of cells into which `chance_ece` cuts each bin.

    The fine edges j/(cells·M) contain the edges of the M bins exactly: both are quotients of the same numbers.

    Args:
        bins: number of bins M.

    Returns:
        The number, at least 1.

    Example:
        >>> fine_cells(15)
        68
    """
    return max(1, _CELLS // bins)


def chance_of_table(fine: BinTable, bins: int, observed: float, resamples: int = 1000, seed: int = 0) -> ChanceECE:
    """`chance_ece` of rows without weights of which only a fine table is known.

    Args:
        fine: table of M × `fine_cells` bins of equal width.
        bins: number of bins M of the ECE.
        observed: the ECE.
        resamples: how often the outcomes are redrawn.
        seed: seed of the draws.

    Returns:
        What `chance_ece` returns for the rows.
    """
    return _chance(observed, _redrawn_rows(fine, bins, resamples, np.random.default_rng(seed)))


def _chance(observed: float, errors: Floats) -> ChanceECE:
    # A redrawn error that differs from the observed error by rounding alone counts as equal.
    extreme = int(np.count_nonzero(errors >= observed - 1e-12))
    return ChanceECE(
        observed=observed,
        mean=float(errors.mean()),
        upper=float(np.quantile(errors, 0.95)),
        p_value=(1 + extreme) / (1 + len(errors)),
        resamples=len(errors),
    )


def _redrawn_rows(fine: BinTable, bins: int, resamples: int, random: np.random.Generator) -> Floats:
    """(resamples,) errors of outcomes that are redrawn from their probabilities, row by row."""
    filled = fine.count > 0
    owner = np.arange(len(fine.count))[filled] // (len(fine.count) // bins)
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    count, mean = fine.count[filled], np.clip(fine.confidence[filled], 0.0, 1.0)
    errors = np.empty(resamples)
    for index in range(resamples):
        gaps = np.add.reduceat(random.binomial(count, mean) - count * mean, starts)
        errors[index] = np.abs(gaps).sum() / fine.n
    return errors


def _redrawn_bins(e: Events, bins: int, resamples: int, random: np.random.Generator) -> Floats:
    """(resamples,) errors of residuals whose sums per cluster get random signs; a row without cluster is its own.

    Rows of a cluster depend on each other, so that rows cannot be redrawn one by one. Under the hypothesis, a cluster's
    sums per bin are as likely with one sign as with the other.
    """
    sums = cluster_bin_sums(e, bins)
    total = e.total
    errors = np.empty(resamples)
    for index in range(resamples):
        signs = random.integers(0, 2, sums.shape[0]) * 2.0 - 1.0
        errors[index] = np.abs(signs @ sums).sum() / total
    return errors


def cluster_bin_sums(e: Events, bins: int) -> Any:
    """Σ w Z of every cluster in every bin of equal width.

    Args:
        e: the events; a row without a cluster is a cluster of its own.
        bins: number of bins M.

    Returns:
        (G, M) sparse matrix.
    """
    from scipy.sparse import csr_array

    owner = np.arange(len(e)) if e.cluster is None else e.cluster
    shape = (int(owner.max()) + 1, bins)
    return csr_array((e.weights * e.residual, (owner, bin_of(e.prob, bins))), shape=shape)
