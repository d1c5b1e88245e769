"""Noise of sums in bins: how the residuals of a binned metric vary from one data set to the next.

A binned metric is a function of the sums r_b = Σ_{i in b} w_i Z_i, with Z_i = happened − probability. The Poisson
bootstrap draws every row a Poisson(1) number of times. Its sums have mean r and the variance Σ_{i in b} w_i² Z_i², and
they are nearly normal. Drawing normal sums costs O(bins) for a resample instead of O(n). If rows come in clusters, a
whole cluster is drawn, and the covariance is Σ_g R_g R_gᵀ with the bin sums R_g of cluster g.

References:
    Hanley & MacGibbon (2006), "Creating non-parametric bootstrap samples using Poisson frequencies".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import BadInput
from surefoot.metrics.bins import bin_of, mass_table
from surefoot.predictions import Predictions

__all__ = [
    "Cells",
    "cells_of",
    "check_clusters",
    "check_weights",
    "covariance",
    "exact",
    "kernel_cells",
    "kernel_cells_of",
    "mass_cells",
    "residuals_of",
    "square_root",
    "unit_weights",
    "width_cells",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Cells:
    """Rows in cells, and cells in bins; a cell of tied confidences may be shared by several bins.

    Attributes:
        cell: (n,) cell of each row, in the smallest integer type that holds all cells.
        size: number of cells.
        mix: (m, size) share of each cell in each of the m bins; None if the cells are the bins.
        mass: (m,) weight of the rows in each bin.
        kernel: (m, m) kernel between the bins; None for a metric without a kernel.
    """

    cell: NDArray[Any]
    size: int
    mix: Floats | None
    mass: Floats
    kernel: Floats | None = None

    def sums(self, values: Floats) -> Floats:
        """Sum values of the rows in bins.

        Args:
            values: (n,) values of the rows.

        Returns:
            (m,) sums.
        """
        found: Floats = np.bincount(self.cell, values, self.size).astype(np.float64)
        return found if self.mix is None else self.mix @ found

    def spread(self, by_bin: Floats) -> Floats:
        """Give every row the value of its bin; a row of a shared cell gets the mean by its shares.

        Args:
            by_bin: (m,) values of the bins.

        Returns:
            (n,) values of the rows.
        """
        by_cell = by_bin if self.mix is None else by_bin @ self.mix
        rows: Floats = by_cell[self.cell]
        return rows


def exact(values: Floats) -> Floats:
    """Round values so that sums of them are exact: the sums do not depend on the order of the rows.

    Args:
        values: (n,) numbers in [−1, 1].

    Returns:
        (n,) multiples of 2^−s, with the largest s for which float64 holds every sum; the error is at most n·2^−52.

    Example:
        >>> values = exact(np.array([0.1, 0.2, 0.3]))
        >>> float(values.sum()) == float(values[::-1].sum())
        True
    """
    scale = 2.0 ** (52 - len(values).bit_length())
    found = values * scale
    np.rint(found, out=found)
    found /= scale
    return found


def _small(cell: NDArray[Any], size: int) -> NDArray[Any]:
    return cell.astype(np.min_scalar_type(-size))


def width_cells(confidence: Floats, bins: int, weights: Floats | None = None) -> Cells:
    """Assign rows to bins of equal width.

    Args:
        confidence: (n,) numbers in [0, 1].
        bins: number of bins, at least 1.
        weights: (n,) weights of the rows; None weighs all rows 1.

    Returns:
        The rows in bins.

    Example:
        >>> width_cells(np.array([0.25, 0.75, 0.8]), 2).mass.tolist()
        [1.0, 2.0]
    """
    cell = bin_of(confidence, bins)
    return Cells(_small(cell, bins), bins, None, np.bincount(cell, weights, bins).astype(np.float64))


def mass_cells(confidence: Floats, correct: NDArray[Any], bins: int, weights: Floats | None = None) -> Cells:
    """Assign rows to bins of equal mass; tied rows are shared by the bins that their ranks reach.

    Args:
        confidence: (n,) numbers in [0, 1].
        correct: (n,) whether the predicted class is the label; numbers in [0, 1] need weights.
        bins: number of bins, at least 1.
        weights: (n,) weights of the rows; a row of weight w counts as w tied rows. None weighs all rows 1.

    Returns:
        The rows in at most ``bins`` bins.

    Example:
        >>> mass_cells(np.array([0.2, 0.8, 0.8, 0.8]), np.array([True] * 4), 2).mass.tolist()
        [2.0, 2.0]
    """
    if weights is None:
        table = mass_table(confidence, correct, bins)
        cuts = np.concatenate([[0.0], np.cumsum(table.count)])
        values = np.unique(np.concatenate([table.lower[1:], table.upper[:-1]]))
    else:
        order = np.argsort(confidence, kind="stable")
        up_to = np.cumsum(weights[order])
        cuts = np.arange(bins + 1) * up_to[-1] / bins
        if (weights == np.rint(weights)).all():
            cuts = np.floor(cuts)  # as for repeated rows
        at = np.minimum(np.searchsorted(up_to, cuts[1:-1], "left"), len(order) - 1)
        values = np.unique(confidence[order[np.concatenate([at, np.minimum(at + 1, len(order) - 1)])]])
    # Cell 2j holds the rows between two values, cell 2j + 1 the rows at the value j.
    below = np.searchsorted(values, confidence, "left")
    tied = np.append(values, np.nan)[below] == confidence
    cell, size = 2 * below + tied, 2 * len(values) + 1
    mass = np.bincount(cell, weights, size).astype(np.float64)
    end = np.cumsum(mass)
    inside = np.minimum(end, cuts[1:, None]) - np.maximum(end - mass, cuts[:-1, None])
    mix = np.maximum(inside, 0.0) / np.where(mass > 0, mass, 1.0)
    return Cells(_small(cell, size), size, mix, mix @ mass)


def kernel_cells(confidence: Floats, bandwidth: float, weights: Floats | None = None) -> Cells | None:
    """Assign rows to cells that are narrow for a Laplacian kernel.

    Args:
        confidence: (n,) numbers in [0, 1].
        bandwidth: width h of the kernel exp(−|c − c'|/h).
        weights: (n,) weights of the rows; None weighs all rows 1.

    Returns:
        The rows in the m occupied cells, with the (m, m) kernel between their mean confidences. None if the kernel is
        so narrow that it needs more than 1,024 cells.

    Example:
        >>> kernel_cells(np.array([0.5, 0.9]), 0.4).kernel.round(4).tolist()
        [[1.0, 0.3679], [0.3679, 1.0]]
    """
    # Fifty cells within the width of the kernel: inside a cell the kernel is at least 0.98.
    if bandwidth < 50 / 1024:
        return None
    fine = bin_of(confidence, int(np.clip(np.ceil(50 / bandwidth), 64, 1024)))
    occupied = np.flatnonzero(np.bincount(fine))
    place = np.zeros(int(occupied[-1]) + 1, np.int16)
    place[occupied] = np.arange(len(occupied))
    cell = place[fine]
    mass = np.bincount(cell, weights, len(occupied)).astype(np.float64)
    weighted = exact(confidence) if weights is None else confidence * weights
    centre = np.bincount(cell, weighted, len(occupied)) / np.where(mass > 0, mass, 1.0)
    return Cells(cell, len(occupied), None, mass, np.exp(-np.abs(centre[:, None] - centre) / bandwidth))


def cells_of(p: Predictions, binning: str, bins: int = 15, event: str | None = None) -> Cells:
    """Assign the events of predictions to bins by their probability, once for several metrics.

    Args:
        p: the predictions.
        binning: ``"width"`` or ``"mass"``.
        bins: number of bins, at least 1.
        event: which events, one for each row, as for `Predictions.events`; None takes the usual ones.

    Returns:
        The rows in bins, whose mass is in the units of the weights.
    """
    e = p.events(event)

    def make() -> Cells:
        if binning == "width":
            return width_cells(e.prob, bins, e.weight)
        hard = e.happened.dtype == np.bool_
        return mass_cells(e.prob, e.happened, bins, e.weight if hard else e.weights)

    return e.memo(f"cells of {bins} bins of equal {binning}", make)


def kernel_cells_of(p: Predictions, bandwidth: float = 0.4) -> Cells | None:
    """Assign the events of predictions to the cells of a kernel by their probability, once for several metrics.

    Args:
        p: the predictions.
        bandwidth: width of the Laplacian kernel.

    Returns:
        The rows in cells as from `kernel_cells`.
    """
    e = p.events()
    return e.memo(f"cells of a kernel of width {bandwidth!r}", lambda: kernel_cells(e.prob, bandwidth, e.weight))


def residuals_of(p: Predictions, event: str | None = None) -> Floats:
    """Compute the residuals w (happened − probability) of the events of predictions, rounded by `exact`.

    Args:
        p: the predictions.
        event: which events, one for each row, as for `Predictions.events`; None takes the usual ones.

    Returns:
        (n,) residuals, whose sums do not depend on the order of the rows. The weights w are those of `unit_weights`.
    """
    e, weights = p.events(event), unit_weights(p)
    return e.memo("residuals with exact sums", lambda: exact(e.residual if weights is None else e.residual * weights))


def unit_weights(p: Predictions) -> Floats | None:
    """Divide the weights of predictions by the largest weight, so that no error depends on their scale.

    Args:
        p: the predictions.

    Returns:
        (n,) weights of at most 1; None if every row counts once.
    """
    return None if p.weights is None else p.weights / p.weights.max()


def covariance(cells: Sequence[Cells], residuals: Sequence[Floats], clusters: Ints | None = None) -> Floats:
    """Compute the covariance of the bin sums of one or several models on the same rows.

    Args:
        cells: the rows in bins, for each model.
        residuals: (n,) weighted residuals w_i Z_i of each model, in [−1, 1].
        clusters: (n,) cluster of each row, in 0..G−1; None makes every row its own cluster.

    Returns:
        (m, m) matrix Σ_g R_g R_gᵀ over the bins of all models, one model after the other.
    """
    sizes = [each.size for each in cells]
    starts = np.cumsum([0, *sizes])
    if clusters is not None:
        from scipy.sparse import coo_array

        column = np.concatenate(
            [each.cell.astype(np.int64) + start for each, start in zip(cells, starts[:-1], strict=True)]
        )
        row = np.concatenate([clusters] * len(cells))
        shape = (int(clusters.max()) + 1, int(starts[-1]))
        by_cluster = coo_array((np.concatenate(residuals), (row, column)), shape=shape).tocsr()
        matrix: Floats = (by_cluster.T @ by_cluster).toarray()
    else:
        matrix = np.zeros((int(starts[-1]), int(starts[-1])))
        for i, (one, z) in enumerate(zip(cells, residuals, strict=True)):
            own = np.arange(starts[i], starts[i + 1])
            matrix[own, own] = np.bincount(one.cell, exact(z * z), one.size)
            for j in range(i):
                joint = cells[j].cell.astype(np.int32) * one.size + one.cell
                block = np.bincount(joint, exact(residuals[j] * z), cells[j].size * one.size).reshape(-1, one.size)
                matrix[starts[j] : starts[j + 1], own] = block
                matrix[own, starts[j] : starts[j + 1]] = block.T
    if any(each.mix is not None for each in cells):
        from scipy.linalg import block_diag

        mix = block_diag(*(np.eye(each.size) if each.mix is None else each.mix for each in cells))
        matrix = mix @ matrix @ mix.T
    return matrix


def square_root(matrix: Floats) -> Floats:
    """Compute a square root of a covariance matrix, which may be singular.

    Args:
        matrix: (m, m) symmetric matrix without negative eigenvalues, up to rounding.

    Returns:
        (m, m) matrix L with L Lᵀ = ``matrix``.

    Example:
        >>> square_root(np.diag([4.0, 0.0])).tolist()
        [[2.0, 0.0], [0.0, 0.0]]
    """
    diagonal = np.diagonal(matrix)
    if np.count_nonzero(matrix) == np.count_nonzero(diagonal):
        return np.diag(np.sqrt(np.maximum(diagonal, 0.0)))
    values, vectors = np.linalg.eigh(matrix)
    # The root of a rounding error would be much larger than a rounding error.
    values[values < len(values) * np.finfo(np.float64).eps * values[-1]] = 0.0
    found: Floats = vectors * np.sqrt(values)
    return found


def check_weights(weights: Any, n: int) -> Floats | None:
    """Check weights of rows.

    Args:
        weights: (n,) numbers of at least 0, not all 0, or None.
        n: number of rows.

    Returns:
        The weights in float64, or None.

    Raises:
        BadInput: when the weights are not as described.
    """
    if weights is None:
        return None
    try:
        found = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadInput(f"weights must be numbers; {error}") from error
    if found.shape != (n,):
        raise BadInput(f"weights must have shape ({n},), one per row; got shape {found.shape}")
    bad = ~(np.isfinite(found) & (found >= 0))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise BadInput(f"weights must be finite and at least 0; got {found[row]:g} (row {row})")
    if not found.any():
        raise BadInput("weights must not all be 0")
    return found


def check_clusters(clusters: Any, n: int) -> Ints | None:
    """Check the clusters of rows, and number the clusters 0..G−1.

    Args:
        clusters: (n,) integers, equal for rows of one cluster, or None.
        n: number of rows.

    Returns:
        (n,) numbers of the clusters, or None.

    Raises:
        BadInput: when the clusters are not as described.

    Example:
        >>> check_clusters([7, 7, 3], 3).tolist()
        [1, 1, 0]
    """
    if clusters is None:
        return None
    found = np.asarray(clusters)
    if found.shape != (n,):
        raise BadInput(f"clusters must have shape ({n},), one per row; got shape {found.shape}")
    if found.dtype.kind not in "iu":
        raise BadInput(f"clusters must be integers; got {found.dtype}")
    numbers: Ints = np.unique(found, return_inverse=True)[1].astype(np.int64)
    return numbers
