"""Tests of the difference between two models on the same rows.

The plug-in ECE is biased upwards, and the bias is larger for the model whose confidences fill more bins. A test that
ignores the bias calls a model better that is only coarser. `ece_difference` and `kce_difference` first remove part of
the bias, and then reject only if two tests reject, on the same side:

1. *Flips* tests the hypothesis "both models are calibrated": the residuals Z_i = correct − confidence of both models
   change their sign together, row by row (or cluster by cluster), as if the errors had fallen the other way.
2. *t* tests the hypothesis "both models are miscalibrated, equally": Student's t of the difference, linearised.

Each test holds the level where the other one does not, so that no correction for two tests is needed.

References:
    Kumar, Liang & Ma (2019), "Verified Uncertainty Calibration", for the debiased ℓ1 error.
    Good (2005), "Permutation, Parametric, and Bootstrap Tests of Hypotheses", for random signs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.metrics.bin_noise import (
    Cells,
    check_clusters,
    check_weights,
    covariance,
    kernel_cells,
    mass_cells,
    square_root,
    width_cells,
)
from surefoot.validation import check_fraction, check_int

__all__ = [
    "Paired",
    "debiased_size",
    "ece_difference",
    "kce_difference",
    "mean_difference",
    "standard_error",
    "sums_difference",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Events = tuple[Any, Any]
Model = tuple[Cells, Floats]

# Up to this many rows or clusters every sign is drawn. Beyond, the flipped sums are drawn from the normal distribution
# with the same covariance, at a cost that does not depend on the number of rows.
_SIGNS = 4096


@dataclass(frozen=True)
class Paired:
    """Difference of a metric between two models on the same rows, the first minus the second.

    Attributes:
        difference: estimate of the difference; for a calibration error, after removing the bias.
        low: lower end of the interval.
        high: upper end of the interval; the interval excludes 0 exactly if every test rejects, on the same side.
        p_flips: p-value of "both models are calibrated"; NaN for a mean, which needs no such test.
        p_t: p-value of "both models have the same expected value"; NaN for a single row or cluster.
        n: number of rows of a weight above 0.
        units: number of independent units: clusters, or rows.
        level: coverage of the interval.
    """

    difference: float
    low: float
    high: float
    p_flips: float
    p_t: float
    n: int
    units: int
    level: float

    @property
    def rejected(self) -> bool:
        """Whether every test rejects, on the same side."""
        return self.low > 0 or self.high < 0

    def swapped(self) -> Paired:
        """Return the same comparison, the second model minus the first.

        Returns:
            The comparison with the opposite sign and the same p-values.
        """
        return Paired(
            0.0 - self.difference, 0.0 - self.high, 0.0 - self.low,
            self.p_flips, self.p_t, self.n, self.units, self.level,
        )  # fmt: skip


def debiased_size(r: Any, s: Any) -> Floats:
    """Estimate |ρ| from a sum r with mean ρ and standard deviation s: 2|r| minus the mean of |N(r, s²)|.

    f(r, s) = 2|r| − [s √(2/π) exp(−r²/2s²) + |r| (1 − 2Φ(−|r|/s))], and |r| if s = 0. It removes 41 % of the bias of
    |r| if ρ = 0, and more if |ρ| is larger.

    Args:
        r: sums, of any shape.
        s: standard deviations of the sums, at least 0; shapes broadcast.

    Returns:
        The estimates; they can be negative.

    Example:
        >>> debiased_size([0.0, 1.0, 1.0], [1.0, 1.0, 0.0]).round(5).tolist()
        [-0.79788, 0.83337, 1.0]

    References:
        Kumar, Liang & Ma (2019), "Verified Uncertainty Calibration", Section 5.1, in closed form.
    """
    from scipy.special import ndtr

    size, s = np.abs(np.asarray(r, dtype=np.float64)), np.asarray(s, dtype=np.float64)
    ratio = size / np.where(s > 0, s, 1.0)
    folded = s * math.sqrt(2 / math.pi) * np.exp(-0.5 * ratio**2) + size * (1 - 2 * ndtr(-ratio))
    estimates: Floats = 2 * size - np.where(s > 0, folded, size)
    return estimates


def mean_difference(
    first: Any, second: Any, *, weights: Any = None, clusters: Any = None, level: float = 0.95
) -> Paired:
    """Test whether two models have the same mean score, by Student's paired t.

    With d_i the difference in row i, u_g = Σ_{i in g} w_i (d_i − d̄) and W = Σ w_i, the squared standard error is
    G/(G−1) Σ_g u_g² / W², with G − 1 degrees of freedom. Without clusters every row is a cluster.

    Args:
        first: (n,) scores of the rows under the first model, such as −log p_y.
        second: (n,) scores of the same rows under the second model.
        weights: (n,) weights of the rows, at least 0; None weighs all rows 1.
        clusters: (n,) integers, equal for rows that are not independent; None makes every row its own cluster.
        level: coverage of the interval, between 0 and 1.

    Returns:
        The difference of the means, with its interval and p-value.

    Raises:
        BadInput: when an argument is not as described.

    Example:
        >>> found = mean_difference([0.2, 0.4, 0.9, 0.5], [0.1, 0.4, 0.7, 0.4])
        >>> round(found.difference, 4), round(found.p_t, 4), found.rejected
        (0.1, 0.0917, False)

    References:
        Student (1908), "The Probable Error of a Mean"; Liang & Zeger (1986), "Longitudinal Data Analysis Using
        Generalized Linear Models", for clusters.
    """
    scores = [_finite(name, values) for name, values in (("first", first), ("second", second))]
    if len(scores[0]) != len(scores[1]):
        raise BadInput(f"first and second must be of the same rows; got {len(scores[0])} and {len(scores[1])} rows")
    w, groups, kept = _units(weights, clusters, len(scores[0]))
    difference = scores[0][kept] - scores[1][kept]
    total = float(w.sum()) if w is not None else len(difference)
    weighted = difference if w is None else difference * w
    mean = float(weighted.sum()) / total
    error, units = standard_error(weighted, w, groups)
    reach, p = _t(mean, error, units, check_fraction("level", level))
    return Paired(mean, mean - reach, mean + reach, math.nan, p, len(difference), units, level)


def ece_difference(
    first: Events,
    second: Events,
    bins: int = 15,
    *,
    binning: str = "width",
    weights: Any = None,
    clusters: Any = None,
    level: float = 0.95,
    draws: int = 999,
    seed: int = 0,
) -> Paired:
    """Test whether two models have the same ECE, although one of them may be coarser.

    With the bin sums r_b = Σ w Z and s_b² = Σ w² Z² (clusters: Σ_g R_gb²), the estimate is
    D = [Σ_b f(r_b, s_b) of the first − Σ_b f(r_b, s_b) of the second] / W, with `debiased_size` as f. *Flips* compares
    |D − mean D*| with the same of ``draws`` sets of signs, one sign for each row or cluster and the same for both
    models. *t* is D over the standard error of the mean of sgn(r_b) w Z, first minus second.

    The interval is the hull of both tests' intervals. Simulated error rates at the level 0.95 are at most 4.0 % for
    models of equal ECE. In the hardest case they are 7 to 10 %: a model whose confidences alternate between 0.05 too
    high and 0.05 too low, against a constant one that is 0.05 too high (`benchmarks/paired.py`).

    Args:
        first: pair of (n,) confidences in [0, 1] and (n,) whether the event happened, under the first model.
        second: the same of the second model, on the same rows.
        bins: number of bins, from 1 to 500.
        binning: ``"width"`` for bins of equal width, ``"mass"`` for bins of equal mass.
        weights: (n,) weights of the rows, at least 0; None weighs all rows 1.
        clusters: (n,) integers, equal for rows that are not independent; None makes every row its own cluster.
        level: coverage of the interval, between 0 and 1.
        draws: number of sets of signs, at least 99.
        seed: seed of the signs, an integer of at least 0.

    Returns:
        The debiased difference, with its interval and the p-values of both tests.

    Raises:
        BadInput: when an argument is not as described.

    Example:
        >>> happened = [True] * 80 + [False] * 20
        >>> found = ece_difference(([0.95] * 100, happened), ([0.8] * 100, happened))
        >>> round(found.difference, 3), found.rejected
        (0.182, True)

    References:
        Kumar, Liang & Ma (2019), "Verified Uncertainty Calibration".
    """
    bins = check_int("bins", bins, 1, 500)
    if binning not in ("width", "mass"):
        raise BadInput(f"binning must be 'width' or 'mass'; got {binning!r}")
    events, w, groups = _pair(first, second, weights, clusters)
    models = []
    for confidence, happened in events:
        cells = width_cells(confidence, bins, w)
        if binning == "mass":
            cells = mass_cells(confidence, happened, bins, w)
        models.append((cells, _residual(confidence, happened, w)))
    w = None if w is None else w / w.max()
    return sums_difference(models[0], models[1], weights=w, groups=groups, level=level, draws=draws, seed=seed)


def kce_difference(
    first: Events,
    second: Events,
    bandwidth: float = 0.4,
    *,
    weights: Any = None,
    clusters: Any = None,
    level: float = 0.95,
    draws: int = 999,
    seed: int = 0,
) -> Paired:
    """Test whether two models have the same kernel calibration error, although one of them may be coarser.

    The tests are those of `ece_difference` for D = √Q of the first − √Q of the second, where
    Q = [Σ_ij w_i w_j Z_i Z_j k_ij − Σ_i w_i² Z_i²] / W² estimates the squared error without bias, up to the factor
    n/(n − 1); √Q stands for −√−Q if Q is negative. With clusters, the pairs of rows inside a cluster are left out.

    Args:
        first: pair of (n,) confidences in [0, 1] and (n,) whether the event happened, under the first model.
        second: the same of the second model, on the same rows.
        bandwidth: width of the Laplacian kernel, at least 0.05: rows are summed in cells that are narrow for it.
        weights: (n,) weights of the rows, at least 0; None weighs all rows 1.
        clusters: (n,) integers, equal for rows that are not independent; None makes every row its own cluster.
        level: coverage of the interval, between 0 and 1.
        draws: number of sets of signs, at least 99.
        seed: seed of the signs, an integer of at least 0.

    Returns:
        The debiased difference, with its interval and the p-values of both tests.

    Raises:
        BadInput: when an argument is not as described.

    Example:
        >>> happened = [True] * 80 + [False] * 20
        >>> found = kce_difference(([0.95] * 100, happened), ([0.8] * 100, happened))
        >>> round(found.difference, 3), found.rejected
        (0.184, True)

    References:
        Kumar, Sarawagi & Jain (2018), "Trainable Calibration Measures for Neural Networks from Kernel Mean
        Embeddings".
    """
    events, w, groups = _pair(first, second, weights, clusters)
    models = []
    for confidence, happened in events:
        found = kernel_cells(confidence, bandwidth, w)
        if found is None:
            raise BadInput(f"bandwidth must be at least 0.05; got {bandwidth!r}")
        models.append((found, _residual(confidence, happened, w)))
    w = None if w is None else w / w.max()
    return sums_difference(models[0], models[1], weights=w, groups=groups, level=level, draws=draws, seed=seed)


# --- the two tests ----------------------------------------------------------------------------------


def sums_difference(
    first: Model,
    second: Model,
    *,
    weights: Floats | None = None,
    groups: Ints | None = None,
    level: float = 0.95,
    draws: int = 999,
    seed: int = 0,
) -> Paired:
    """Run the tests of `ece_difference` or `kce_difference` on rows that are in bins already.

    Args:
        first: the rows in bins, and their (n,) weighted residuals in [−1, 1], of the first model. Cells with a kernel
            get the tests of `kce_difference`.
        second: the same of the second model, on the same rows.
        weights: (n,) weights above 0; None weighs all rows 1.
        groups: (n,) clusters in 0..G−1; None makes every row its own cluster.
        level: coverage of the interval, between 0 and 1.
        draws: number of sets of signs, at least 99.
        seed: seed of the signs, an integer of at least 0.

    Returns:
        The debiased difference, with its interval and the p-values of both tests.

    Raises:
        BadInput: when ``level``, ``draws`` or ``seed`` is out of range.
    """
    check_fraction("level", level)
    check_int("draws", draws, 99)
    cells, residuals = [first[0], second[0]], [first[1], second[1]]
    n = len(residuals[0])
    total = float(n) if weights is None else float(weights.sum())
    sums = [each.sums(z) for each, z in zip(cells, residuals, strict=True)]
    # The draws below are not symmetric in the two models. A fixed order makes the exchange of models exact.
    if [x.tolist() for x in sums] > [x.tolist() for x in sums[::-1]]:
        found = sums_difference(second, first, weights=weights, groups=groups, level=level, draws=draws, seed=seed)
        return found.swapped()
    joint = covariance(cells, residuals, groups)
    size = len(sums[0])
    parts = joint[:size, :size], joint[size:, size:]
    estimate = float(_debiased(cells[0], sums[0], parts[0]) - _debiased(cells[1], sums[1], parts[1])) / total

    flipped = _flipped(cells, residuals, groups, joint, draws, seed)
    null = _debiased(cells[0], flipped[:, :size], parts[0]) - _debiased(cells[1], flipped[:, size:], parts[1])
    null /= total
    null[np.abs(null) <= 1e-12 * math.sqrt(float(np.trace(joint))) / total] = 0.0  # rounding, of equal models
    centre = float(null.mean())
    away = np.sort(np.abs(null - centre))
    # If rounding alone lies between a draw and the estimate, the draw counts as extreme.
    extreme = draws - int(np.searchsorted(away, abs(estimate - centre) * (1 - 1e-12), "left"))
    p_flips = (1 + extreme) / (1 + draws)
    allowed = max(0, math.floor((1 - level) * (1 + draws) + 1e-9) - 1)  # so many draws may be as extreme
    reach_flips = float(away[draws - 1 - allowed])

    linear = cells[0].spread(_slope(cells[0], sums[0])) * residuals[0]
    linear -= cells[1].spread(_slope(cells[1], sums[1])) * residuals[1]
    error, units = standard_error(linear, weights, groups)
    reach_t, p_t = _t(estimate, error, units, level)
    ends = [estimate - centre - reach_flips, estimate - centre + reach_flips, estimate - reach_t, estimate + reach_t]
    return Paired(estimate, min(ends), max(ends), p_flips, p_t, n, units, level)


def _debiased(cells: Cells, sums: Floats, noise: Floats) -> Floats:
    """(...,) debiased errors of (..., m) bin sums with the covariance ``noise``, times the total weight."""
    if cells.kernel is None:
        found: Floats = debiased_size(sums, np.sqrt(np.maximum(np.diagonal(noise), 0.0))).sum(axis=-1)
        return found
    square = ((sums @ cells.kernel) * sums).sum(axis=-1) - float((cells.kernel * noise).sum())
    signed: Floats = np.sign(square) * np.sqrt(np.abs(square))
    return signed


def _slope(cells: Cells, sums: Floats) -> Floats:
    """(m,) derivative of the plug-in error times the total weight."""
    if cells.kernel is None:
        return np.sign(sums)
    slope = cells.kernel @ sums
    size = math.sqrt(max(0.0, float(sums @ slope)))
    found: Floats = slope / size if size > 0 else np.zeros_like(slope)
    return found


def _flipped(
    cells: Sequence[Cells], residuals: Sequence[Floats], groups: Ints | None, joint: Floats, draws: int, seed: int
) -> Floats:
    """(draws, m) bin sums of both models after random signs, one for each row or cluster."""
    random = np.random.default_rng(check_int("seed", seed, 0))
    n = len(residuals[0])
    units = n if groups is None else int(groups.max()) + 1
    if units > _SIGNS:
        drawn: Floats = random.standard_normal((draws, len(joint))) @ square_root(joint).T
        return drawn
    unit = np.arange(n) if groups is None else groups
    signs = random.integers(0, 2, (draws, units), dtype=np.int8) * 2.0 - 1.0
    parts = []
    for each, z in zip(cells, residuals, strict=True):
        by_unit = np.bincount(unit * each.size + each.cell, z, units * each.size).reshape(units, each.size)
        sums = signs @ by_unit
        parts.append(sums if each.mix is None else sums @ each.mix.T)
    return np.concatenate(parts, axis=1)


def standard_error(weighted: Floats, weights: Floats | None, groups: Ints | None) -> tuple[float, int]:
    """Compute the standard error of a weighted mean of rows or clusters.

    Args:
        weighted: (n,) values times weights.
        weights: (n,) weights; None if all are 1.
        groups: (n,) clusters in 0..G−1; None makes every row its own cluster.

    Returns:
        The standard error of Σ weighted / Σ weights, and the number of clusters; NaN for a single cluster.

    Example:
        >>> standard_error(np.array([1.0, 2.0, 3.0]), None, None)
        (0.5773502691896257, 3)
    """
    total = float(len(weighted)) if weights is None else float(weights.sum())
    mean = float(weighted.sum()) / total
    parts = weighted - (mean if weights is None else mean * weights)
    if groups is not None:
        parts = np.bincount(groups, parts).astype(np.float64)
    units = len(parts)
    if units < 2:
        return math.nan, units
    return math.sqrt(units / (units - 1) * float(parts @ parts)) / total, units


def _t(estimate: float, error: float, units: int, level: float) -> tuple[float, float]:
    """Half the width of Student's interval, and the two-sided p-value of 0."""
    from scipy.special import stdtr, stdtrit

    if units < 2:
        return math.inf, math.nan
    if error == 0:
        return 0.0, 1.0 if estimate == 0 else 0.0
    return float(stdtrit(units - 1, (1 + level) / 2)) * error, 2 * float(stdtr(units - 1, -abs(estimate) / error))


# --- arguments --------------------------------------------------------------------------------------


def _pair(
    first: Events, second: Events, weights: Any, clusters: Any
) -> tuple[list[tuple[Floats, Bools]], Floats | None, Ints | None]:
    tables = [_events(name, events) for name, events in (("first", first), ("second", second))]
    n = len(tables[0][0])
    if len(tables[1][0]) != n:
        raise BadInput(f"first and second must be of the same rows; got {n} and {len(tables[1][0])} rows")
    w, groups, kept = _units(weights, clusters, n)
    return [(confidence[kept], happened[kept]) for confidence, happened in tables], w, groups


def _units(weights: Any, clusters: Any, n: int) -> tuple[Floats | None, Ints | None, Any]:
    """Weights and clusters of the rows of a weight above 0, and the choice of these rows."""
    w, groups = check_weights(weights, n), check_clusters(clusters, n)
    if w is None:
        return w, groups, slice(None)
    if (w > 0).all():
        return w, groups, slice(None)
    kept = w > 0
    return w[kept], None if groups is None else check_clusters(groups[kept], int(kept.sum())), kept


def _events(name: str, events: Events) -> tuple[Floats, Bools]:
    if not isinstance(events, tuple | list) or len(events) != 2:
        raise BadInput(f"{name} must be a pair of confidences and whether the events happened; got {events!r:.80}")
    confidence, happened = _finite(f"{name} confidences", events[0]), np.asarray(events[1])
    if ((confidence < 0) | (confidence > 1)).any():
        row = int(np.flatnonzero((confidence < 0) | (confidence > 1))[0])
        raise BadInput(f"{name} confidences must lie in [0, 1]; got {confidence[row]:g} (row {row})")
    if happened.shape != confidence.shape or happened.dtype != np.bool_:
        raise BadInput(
            f"{name} events must be booleans of shape {confidence.shape}, whether each event happened; got "
            f"{happened.dtype} of shape {happened.shape}"
        )
    return confidence, happened


def _finite(name: str, values: Any) -> Floats:
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{name} must be numbers; {error}") from error
    if found.ndim != 1 or len(found) == 0:
        raise BadInput(f"{name} must have shape (n,) with n at least 1; got shape {found.shape}")
    if not np.isfinite(found).all():
        row = int(np.flatnonzero(~np.isfinite(found))[0])
        raise BadInput(f"{name} must be finite; got {found[row]:g} (row {row})")
    return found


def _residual(confidence: Floats, happened: Bools, w: Floats | None) -> Floats:
    residual = happened - confidence
    return residual if w is None else residual * (w / w.max())  # no error depends on the scale of the weights
