"""What every curvature matrix offers: products, and from them eigenpairs, trace and spectral density."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from surefoot.curvature.chunks import plain_mode
from surefoot.curvature.lanczos import Eigenpairs, extreme_pairs
from surefoot.deprecated import renamed_arguments
from surefoot.errors import BadInput

__all__ = ["Operator"]

_FEWEST = 5  # products from a warm start: with fewer, a third eigenvalue that overtakes two at once is missed
_BASIS_BELOW = 40  # vectors: with 24, restarts lose what a search among close eigenvalues has learnt


class Operator(ABC):
    """A symmetric d × d matrix known by its products; vectors are flat, in the order of the parameters.

    Attributes:
        dim: d.
        dtype, device: of its vectors.
        facts: what the matrix is of: loss, reduction, n, batch norm, parameters.
    """

    def __init__(self, dim: int, like: Tensor, facts: dict[str, Any]) -> None:
        self.dim, self.dtype, self.device, self.facts = dim, like.dtype, like.device, facts

    def __repr__(self) -> str:
        shown = ("loss", "n", "reduction", "batch_norm", "directions")
        facts = "".join(f", {name}={self.facts[name]!r}" for name in shown if name in self.facts)
        return f"{type(self).__name__}(dim={self.dim}{facts})"

    @abstractmethod
    def matvec(self, v: Tensor) -> Tensor:
        """(d,) product with the vector v (d,)."""

    @plain_mode()
    def matmat(self, v: Tensor) -> Tensor:
        """(d, m) products with the columns of v (d, m)."""
        if v.ndim != 2:
            raise BadInput(f"v must have shape ({self.dim}, m); got {tuple(v.shape)}")
        if v.shape[1] == 1:
            return self.matvec(v[:, 0])[:, None]  # without a copy
        images = torch.empty(v.shape[1], self.dim, dtype=self.dtype, device=self.device)
        for image, column in zip(images, v.T, strict=True):
            image.copy_(self.matvec(column))
        return images.T

    @renamed_arguments(max_matvecs="max_products")
    def top(self, k: int = 1, tol: float = 1e-2, start: Tensor | Eigenpairs | None = None, **limits: Any) -> Eigenpairs:
        """The k algebraically largest eigenvalues, largest first, to a relative residual of ``tol``.

        Args:
            k: how many.
            tol: converged when every residual is at most ``tol`` times the largest magnitude seen.
            start: vectors (d, m) or an earlier result to start from, of a model that has moved since too.
            limits: ``max_products`` and ``seed``, see `extreme_pairs`.
        """
        return self._pairs(k, tol, start, largest=True, **limits)

    @renamed_arguments(max_matvecs="max_products")
    def bottom(
        self, k: int = 1, tol: float = 1e-2, start: Tensor | Eigenpairs | None = None, **limits: Any
    ) -> Eigenpairs:
        """The k algebraically smallest eigenvalues, smallest first; otherwise as `top`."""
        return self._pairs(k, tol, start, largest=False, **limits)

    @renamed_arguments(max_matvecs="max_products")
    def follow(
        self, start: Tensor | None, tol: float = 1e-2, largest: bool = True, seed: int = 0, **limits: Any
    ) -> tuple[Eigenpairs, Tensor | None]:
        """The largest (or smallest) pair of a matrix that moves, and the start (d, 2) to hand in the next time.

        That is the pair's vector and the runner-up's: once the latter is ahead, a search from the first vector alone
        would not see it, and settle on the second eigenvalue. The smallest value of a Hessian is small beside the
        largest one, and lies close to others: its residual is measured against itself, and the basis is larger.
        """
        together = None if start is None else start.sum(dim=1, keepdim=True)
        if not largest:
            limits = {"own": True, "max_basis": _BASIS_BELOW} | limits
        found = self._pairs(1, tol, together, largest, spare=1, fewest=_FEWEST, seed=seed, **limits)
        pair = found.first(1)
        if found.outcome == "non-finite":
            return pair, None
        # Signs of eigenvectors are chance, and their sum is not: all are turned to one side of a random vector.
        probe = self.draw(1, torch.Generator().manual_seed(seed))[0]
        return pair, found.vectors * torch.where(probe @ found.vectors < 0, -1.0, 1.0).to(found.vectors)

    def _pairs(self, k: int, tol: float, start: Tensor | Eigenpairs | None, largest: bool, **limits: Any) -> Eigenpairs:
        there = self.dtype, self.device
        return extreme_pairs(self.matmat, self.dim, k, tol, start, *there, largest, draw=self.draw, **limits)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """(count, d) random vectors for a search to begin with."""
        return torch.randn(count, self.dim, generator=generator, dtype=self.dtype).to(self.device)

    def dense(self) -> Tensor:
        """(d, d) the matrix itself; for small d only."""
        return self.matmat(torch.eye(self.dim, dtype=self.dtype, device=self.device))

    def _check(self, v: Tensor) -> Tensor:
        if not isinstance(v, Tensor) or v.shape != (self.dim,):
            raise BadInput(f"v must be a tensor of shape ({self.dim},); got {getattr(v, 'shape', type(v).__name__)}")
        v = v.detach().to(self.device, self.dtype)
        return v.clone() if v.is_inference() else v
