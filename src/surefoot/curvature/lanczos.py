"""Extreme eigenpairs of a symmetric matrix known by its products: block Lanczos with full orthogonalisation.

The basis Q (m, d) is kept in the precision of the products, all small matrices in float64. For a Ritz pair
(θ, y = Qᵀs) of block Lanczos, A y − θ y = Q₊ᵀ B s_last exactly, with Q₊ the next block and B its coefficients, so
the residual costs no product. It bounds the error: some eigenvalue lies within ‖A y − θ y‖ of θ (for unit y), and
θ itself never exceeds the largest (never falls below the smallest) one but by rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from surefoot.errors import BadInput

__all__ = ["Eigenpairs", "extreme_pairs"]


@dataclass(frozen=True)
class Eigenpairs:
    """Eigenpairs found, most extreme first, with what is known of their errors.

    Shapes: ``values (k,)`` and ``residuals (k,)`` in float64, ``vectors (d, k)`` of unit length. An eigenvalue of
    the matrix lies within ``residuals[i]`` of ``values[i]``, the rounding of the products included.
    ``outcome`` is ``"converged"``, ``"budget"`` (products ran out: the values are the best so far) or
    ``"non-finite"`` (a product was not finite: the values are NaN).
    """

    values: Tensor
    vectors: Tensor
    residuals: Tensor
    matvecs: int
    outcome: str

    @property
    def converged(self) -> bool:
        """Whether every residual met the tolerance."""
        return self.outcome == "converged"


def extreme_pairs(
    matmat: Callable[[Tensor], Tensor],
    dim: int,
    k: int,
    tol: float,
    start: Tensor | Eigenpairs | None,
    dtype: torch.dtype,
    device: torch.device,
    largest: bool,
    max_matvecs: int | None = None,
    max_basis: int | None = None,
    seed: int = 0,
) -> Eigenpairs:
    """The k largest or smallest eigenvalues of the matrix behind ``matmat`` (d, m) → (d, m).

    Args:
        tol: converged when each residual ≤ tol · (largest |θ| seen).
        start: vectors (d, m) to start from; filled up with random ones to k.
        max_matvecs: budget of products; by default max(60, 20 k).
        max_basis: vectors kept before a restart from the best ones; by default max(24, 4 k).
        seed: of the random vectors, drawn on the CPU so that devices agree.
    """
    if not 1 <= k <= dim:
        raise BadInput(f"k must lie in 1..{dim}, the number of parameters; got {k}")
    if not 0 < tol < 1:
        raise BadInput(f"tol must lie between 0 and 1; got {tol!r}")
    budget = max(60, 20 * k) if max_matvecs is None else max_matvecs
    if budget < k:
        raise BadInput(f"max_matvecs must be at least k = {k}; got {max_matvecs}")
    most = min(dim, max(24, 4 * k) if max_basis is None else max(max_basis, 2 * k))
    block = _start_block(start, dim, k, dtype, device, seed)
    rounding = 8 * torch.finfo(dtype).eps
    used, scale = 0, 0.0
    while True:
        run, scale = _run(matmat, block, k, tol, largest, min(budget - used, most), scale, rounding)
        used += run.matvecs
        # Where fewer products than vectors are left, no further block fits.
        if run.outcome != "budget" or budget - used < max(len(block), run.vectors.shape[1]):
            return Eigenpairs(run.values, run.vectors, run.residuals, used, run.outcome)
        block = run.vectors.T.contiguous()


def _start_block(
    start: Tensor | Eigenpairs | None, dim: int, k: int, dtype: torch.dtype, device: torch.device, seed: int
) -> Tensor:
    """(k', d) orthonormal rows: the given vectors first, random ones after them."""
    given = start.vectors if isinstance(start, Eigenpairs) else start
    rows = torch.empty(0, dim, dtype=dtype, device=device)
    if given is not None:
        given = given.reshape(dim, -1) if given.ndim == 1 and given.numel() == dim else given
        if given.ndim != 2 or given.shape[0] != dim:
            raise BadInput(f"start must have shape ({dim}, m); got {tuple(given.shape)}")
        if not bool(torch.isfinite(given).all()):
            raise BadInput("start must be finite; leave it out to start from random vectors")
        rows = given.T.to(device, dtype)
    generator = torch.Generator().manual_seed(seed)
    fresh = torch.randn(max(0, k - len(rows)), dim, generator=generator, dtype=dtype).to(device)
    block, _ = _orthonormal(torch.cat([rows, fresh]), rows[:0])
    while len(block) < k:  # the given vectors were dependent
        extra = torch.randn(k - len(block), dim, generator=generator, dtype=dtype).to(device)
        more, _ = _orthonormal(extra, block)
        block = torch.cat([block, more])
    return block


def _run(
    matmat: Callable[[Tensor], Tensor],
    block: Tensor,
    k: int,
    tol: float,
    largest: bool,
    budget: int,
    scale: float,
    rounding: float,
) -> tuple[Eigenpairs, float]:
    """One Krylov space from ``block`` (p, d), grown until converged or out of budget; and the |θ| seen."""
    # Room for the whole basis at once: growing it by copies would hold it twice.
    room = torch.empty(max(budget, len(block)), block.shape[1], dtype=block.dtype, device=block.device)
    room[: len(block)] = block
    basis = room[: len(block)]
    small = torch.zeros(0, 0, dtype=torch.float64)
    used = 0
    newest = basis
    while True:
        image = matmat(newest.T).T  # (p, d)
        used += len(newest)
        if not bool(torch.isfinite(image).all()):
            return _non_finite(k, block, used), scale
        known = len(basis) - len(newest)
        # Projection on the whole basis, not only its neighbours: in low precision the others are not zero.
        columns = (basis @ image.T).double().cpu()
        grown = torch.zeros(len(basis), len(basis), dtype=torch.float64)
        grown[:known, :known] = small
        grown[:, known:] = columns
        grown[known:, :known] = columns[:known].T
        small = (grown + grown.T) / 2
        rest = image - columns.to(image).T @ basis
        following, coefficients = _orthonormal(rest, basis)
        values, weights = torch.linalg.eigh(small)
        scale = max(scale, float(values.abs().max()))
        order = values.argsort(descending=largest)[: min(k, len(values))]
        values, weights = values[order], weights[:, order]
        residuals = torch.linalg.vector_norm(coefficients @ weights[known:], dim=0) + rounding * scale
        enough = len(values) == k
        done = enough and bool((residuals <= tol * scale + rounding * scale).all())
        exhausted = len(following) == 0
        if done or exhausted or used + len(following) > budget:
            vectors = (weights.T.to(basis) @ basis).T
            outcome = "converged" if done or (exhausted and enough) else "budget"
            return Eigenpairs(values, vectors / vectors.norm(dim=0), residuals, used, outcome), scale
        newest = room[len(basis) : len(basis) + len(following)]
        newest.copy_(following)
        basis = room[: len(basis) + len(following)]


def _orthonormal(rows: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal rows Q₊ spanning ``rows`` outside ``basis``, and coefficients B with rows ≈ Bᵀ Q₊ (float64).

    Twice is enough (Kahan); directions smaller than rounding are dropped, so Q₊ may have fewer rows.
    """
    sizes = rows.norm(dim=1)
    found: list[Tensor] = []
    coefficients = torch.zeros(len(rows), len(rows), dtype=torch.float64)
    tiny = 50 * torch.finfo(rows.dtype).eps
    for index, row in enumerate(rows):
        vector = row
        for _ in range(2):
            if len(basis):
                vector = vector - (basis @ vector) @ basis
            for place, other in enumerate(found):
                overlap = other @ vector
                coefficients[place, index] += float(overlap)
                vector = vector - overlap * other
        norm = float(vector.norm())
        if norm > tiny * max(float(sizes[index]), 1e-30) and norm > 0:
            coefficients[len(found), index] = norm
            found.append(vector / vector.norm())
    kept = len(found)
    return torch.stack(found) if found else rows[:0], coefficients[:kept]


def _non_finite(k: int, block: Tensor, used: int) -> Eigenpairs:
    nan = torch.full((k,), float("nan"), dtype=torch.float64)
    return Eigenpairs(nan, torch.full((block.shape[1], k), float("nan")).to(block), nan, used, "non-finite")
