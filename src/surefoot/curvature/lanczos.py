"""Extreme eigenpairs of a symmetric matrix known by its products: block Lanczos with full orthogonalisation.

The basis Q (m, d) has the precision of the products; all small matrices are in float64. For a Ritz pair
(θ, y = Qᵀs) of block Lanczos, A y − θ y = Q₊ᵀ B s_last exactly, where Q₊ is the next block. B holds its coefficients.
The residual therefore costs no product. The residual bounds the error: some eigenvalue lies within ‖A y − θ y‖ of θ
(for unit y). Except for rounding, θ never exceeds the largest eigenvalue and never falls below the smallest.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from surefoot.curvature.chunks import plain_mode
from surefoot.errors import BadInput
from surefoot.validation import check_fraction, check_int

__all__ = ["Eigenpairs", "extreme_pairs", "start_vectors"]

Draw = Callable[[int, torch.Generator], Tensor]

# Minimum of products of a search from random vectors: with fewer, it may settle on the second eigenvalue.
_COLD = 12


@dataclass(frozen=True, repr=False)
class Eigenpairs:
    """Eigenpairs, the most extreme first, with bounds on their errors.

    Attributes:
        values: (k,) float64.
        vectors: (d, k), of unit length.
        residuals: (k,) float64. An eigenvalue of the matrix lies within ``residuals[i]`` of ``values[i]``; the bound
            includes the rounding of the products.
        matvecs: number of products.
        outcome: ``"converged"``, ``"budget"`` (products ran out: the values are the best so far) or ``"non-finite"`` (a
            product was not finite: the values are NaN).
    """

    values: Tensor
    vectors: Tensor
    residuals: Tensor
    matvecs: int
    outcome: str

    def __repr__(self) -> str:
        values = ", ".join(f"{value:.6g}" for value in self.values.tolist())
        residuals = ", ".join(f"{residual:.1e}" for residual in self.residuals.tolist())
        return (
            f"Eigenpairs(values=[{values}], residuals=[{residuals}], dim={len(self.vectors)}, matvecs={self.matvecs}, "
            f"outcome={self.outcome!r})"
        )

    @property
    def converged(self) -> bool:
        """Whether every residual met the tolerance."""
        return self.outcome == "converged"

    def first(self, k: int) -> Eigenpairs:
        """The k most extreme eigenpairs.

        Args:
            k: number of eigenpairs.

        Returns:
            These eigenpairs, with the same ``matvecs`` and ``outcome``.
        """
        return replace(self, values=self.values[:k], vectors=self.vectors[:, :k], residuals=self.residuals[:k])


@plain_mode()
def extreme_pairs(
    matmat: Callable[[Tensor], Tensor],
    dim: int,
    k: int,
    tol: float,
    start: Tensor | Eigenpairs | None,
    dtype: torch.dtype,
    device: torch.device,
    largest: bool,
    max_products: int | None = None,
    max_basis: int | None = None,
    seed: int = 0,
    draw: Draw | None = None,
    spare: int = 0,
    fewest: int = 0,
    own: bool = False,
) -> Eigenpairs:
    """The k largest or smallest eigenvalues of the matrix behind ``matmat`` (d, m) → (d, m).

    Args:
        matmat: products with the matrix. Their results are overwritten, so ``matmat`` must not keep them.
        dim: d.
        k: number of eigenpairs, from 1 to d.
        tol: converged when each residual ≤ tol · (largest |θ| seen); between 0 and 1.
        start: vectors (d, m) to start from, supplemented by random vectors up to k. Of more than k vectors, only as
            many are used as leave room for a second block within ``max_products``: the first block contains only the
            given vectors. Eigenvectors of neighbours of the extreme values, given alone, may be taken for the extremes.
        dtype: of the products.
        device: of the products.
        largest: search for the largest eigenvalues; else the smallest.
        max_products: maximum of products, at least k; by default max(60, 20 k). The search detects convergence after 2
            k products at the earliest. Without a start the minimum is 12: fewer products may settle on the second
            eigenvalue.
        max_basis: vectors kept before a restart from the best vectors; by default max(24, 4 k).
        seed: of the random vectors, drawn on the CPU so that devices agree.
        draw: random vectors (m, d) from m and a generator; independent normal numbers by default.
        spare: number of additional pairs to return, as far as they are known when the first k have converged.
        fewest: minimum of products with a start, so that the search sees directions that are weak in the start.
        own: converged when each residual ≤ tol · |its own θ| instead. Use this for an end of the spectrum that is small
            relative to the other end, such as a Hessian's negative end late in training.

    Returns:
        The eigenpairs.

    Raises:
        BadInput: if an argument is out of its range.

    Example:
        >>> matrix = torch.diag(torch.tensor([3.0, 1.0]))
        >>> cpu = torch.device("cpu")
        >>> pairs = extreme_pairs(lambda v: matrix @ v, 2, 1, 1e-3, None, torch.float32, cpu, largest=True)
        >>> round(float(pairs.values[0]), 4), pairs.outcome
        (3.0, 'converged')
    """
    if isinstance(k, bool) or not isinstance(k, numbers.Integral) or not 1 <= k <= dim:
        raise BadInput(f"k must lie in 1..{dim}, the number of parameters; got {k}")
    check_fraction("tol", tol)
    budget = max(60, 20 * k) if max_products is None else check_int("max_products", max_products, 1)
    if budget < k:
        raise BadInput(f"max_products must be at least k = {k}; got {max_products}")
    basis_size = min(dim, max(24, 4 * k) if max_basis is None else max(max_basis, 2 * k))

    def normal(count: int, generator: torch.Generator) -> Tensor:
        return torch.randn(count, dim, generator=generator, dtype=dtype).to(device)

    block = _start_block(start, dim, k, tol, max(k, budget // 2), dtype, device, seed, draw or normal)
    width = len(block)
    fewest = _COLD if start is None else fewest
    # Memory for the complete basis at once: growing the basis by copies would need it twice.
    room = torch.empty(max(min(budget, basis_size), width), dim, dtype=dtype, device=device)
    room[:width] = block
    del block
    used, scale = 0, 0.0
    while True:
        limits = min(budget - used, basis_size), fewest - used, spare
        run, scale = _run(matmat, room, width, k, tol, own, largest, scale, *limits)
        used += run.matvecs
        # If fewer products than vectors are left, no further block fits.
        if run.outcome != "budget" or budget - used < max(width, run.vectors.shape[1]):
            return Eigenpairs(run.values, run.vectors, run.residuals, used, run.outcome)
        width = run.vectors.shape[1]
        room[:width] = run.vectors.T


def _start_block(
    start: Tensor | Eigenpairs | None,
    dim: int,
    k: int,
    tol: float,
    max_given: int,
    dtype: torch.dtype,
    device: torch.device,
    seed: int,
    draw: Draw,
) -> Tensor:
    """(k', d) orthonormal rows: up to ``most`` given vectors first, then random vectors.

    Given vectors may span an invariant space of the matrix, which a search would never leave. Each vector is therefore
    moved in a random direction, by a twentieth of what the tolerance allows.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = torch.empty(0, dim, dtype=dtype, device=device)
    if start is not None:
        rows = start_vectors(start, dim).T[:max_given].to(device, dtype)
        noise = draw(len(rows), generator)
        # An eigenvector's sign is arbitrary. The noise follows the sign, so that the search does not depend on it.
        noise = noise * torch.where((rows * noise).sum(dim=1, keepdim=True) < 0, -1.0, 1.0).to(noise)
        rows = rows + noise * (0.05 * tol * _lengths(rows) / _lengths(noise)).to(dtype)[:, None]
    fresh = draw(max(0, k - len(rows)), generator)
    block, _ = _orthonormalise(torch.cat([rows, fresh]), rows[:0])
    while len(block) < k:  # the given vectors were dependent
        more, _ = _orthonormalise(draw(k - len(block), generator), block)
        block = torch.cat([block, more])
    return block


def start_vectors(start: Tensor | Eigenpairs, dim: int) -> Tensor:
    """The vectors of an earlier result, or given vectors.

    Args:
        start: an earlier result, or vectors (d,) or (d, m).
        dim: d.

    Returns:
        (d, m).

    Raises:
        BadInput: if ``start`` is of another type or shape, or is not finite.

    Example:
        >>> start_vectors(torch.ones(3), 3).shape
        torch.Size([3, 1])
    """
    given = start.vectors if isinstance(start, Eigenpairs) else start
    if not isinstance(given, Tensor):
        raise BadInput(f"start must be a tensor or Eigenpairs; got {type(given).__name__}")
    given = given.reshape(dim, 1) if given.shape == (dim,) else given
    if given.ndim != 2 or given.shape[0] != dim:
        raise BadInput(f"start must have shape ({dim}, m); got {tuple(given.shape)}")
    if not bool(torch.isfinite(given).all()):
        raise BadInput("start must be finite; leave it out to start from random vectors")
    return given


def _lengths(rows: Tensor) -> Tensor:
    """(m,) lengths of the rows in float64: squares of numbers above 1e19 or below 1e-23 leave the range of float32."""
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    return lengths


def _run(
    matmat: Callable[[Tensor], Tensor],
    room: Tensor,
    width: int,
    k: int,
    tol: float,
    own: bool,
    largest: bool,
    scale: float,
    budget: int,
    fewest: int,
    spare: int,
) -> tuple[Eigenpairs, float]:
    """One Krylov space, grown until it converges or the products run out; also the largest |θ| seen.

    The first ``width`` rows of ``room`` (m, d) contain the starting block; the others are space for new blocks. The
    space gets at least ``fewest`` products.
    """
    rounding = 8 * torch.finfo(room.dtype).eps
    basis = room[:width]
    small = torch.zeros(0, 0, dtype=torch.float64)
    used = 0
    newest = basis
    while True:
        image = matmat(newest.T).T  # (p, d)
        used += len(newest)
        if not math.isfinite(float(torch.linalg.vector_norm(image, dtype=torch.float64))):
            return _non_finite(k, room, used), scale
        known = len(basis) - len(newest)
        # Projection on the full basis, not only on the last blocks: in low precision the other overlaps are not zero.
        columns = (basis @ image.T).double().cpu()
        grown = torch.zeros(len(basis), len(basis), dtype=torch.float64)
        grown[:known, :known] = small
        grown[:, known:] = columns
        grown[known:, :known] = columns[:known].T
        small = (grown + grown.T) / 2
        image.addmm_(columns.to(image).T, basis, alpha=-1)
        following, coefficients = _orthonormalise(image, basis)
        values, weights = torch.linalg.eigh(small)
        scale = max(scale, float(values.abs().max()))
        order = values.argsort(descending=largest)[: k + spare]
        values, weights = values[order], weights[:, order]
        residuals = torch.linalg.vector_norm(coefficients @ weights[known:], dim=0) + rounding * scale
        enough = len(values) >= k
        # The first block alone cannot converge: it contains only the given vectors.
        allowed = tol * (values[:k].abs() if own else scale) + rounding * scale
        done = enough and known > 0 and bool((residuals[:k] <= allowed).all())
        exhausted = len(following) == 0
        if (done and used >= fewest) or exhausted or used + len(following) > budget:
            vectors = (weights.T.to(basis) @ basis).T
            vectors /= vectors.norm(dim=0)
            outcome = "converged" if done or (exhausted and enough) else "budget"
            return Eigenpairs(values, vectors, residuals, used, outcome), scale
        newest = room[len(basis) : len(basis) + len(following)]
        newest.copy_(following)
        basis = room[: len(basis) + len(following)]


def _orthonormalise(rows: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal rows Q₊ spanning ``rows`` outside ``basis``, and coefficients B with rows ≈ Bᵀ Q₊ (float64).

    Q₊ overwrites ``rows``. Two rounds are enough (Kahan). Directions smaller than rounding are dropped, so Q₊ may have
    fewer rows.
    """
    sizes = _lengths(rows).tolist()
    coefficients = torch.zeros(len(rows), len(rows), dtype=torch.float64)
    tiny = 50 * torch.finfo(rows.dtype).eps
    kept = 0
    for index, vector in enumerate(rows):
        for _ in range(2):
            if len(basis):
                vector.addmv_(basis.T, basis @ vector, alpha=-1)
            for place, other in enumerate(rows[:kept]):
                overlap = other @ vector
                coefficients[place, index] += float(overlap)
                vector.sub_(overlap * other)
        norm = float(torch.linalg.vector_norm(vector, dtype=torch.float64))
        if norm > tiny * sizes[index]:
            coefficients[kept, index] = norm
            rows[kept] = vector / norm
            kept += 1
    return rows[:kept], coefficients[:kept]


def _non_finite(k: int, room: Tensor, used: int) -> Eigenpairs:
    nan = torch.full((k,), float("nan"), dtype=torch.float64)
    return Eigenpairs(nan, torch.full((room.shape[1], k), float("nan")).to(room), nan, used, "non-finite")
