"""What every curvature matrix offers: products, and eigenpairs, trace and spectral density computed from products."""

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

_FEWEST = 5  # products from a warm start; fewer products miss a third eigenvalue that overtakes two at once
_BASIS_BELOW = 40  # vectors; with 24, restarts lose the progress of a search among close eigenvalues


class Operator(ABC):
    """A symmetric d × d matrix known by its products; vectors are flat, in the order of the parameters.

    Args:
        dim: d.
        like: a tensor of the vectors' dtype and device.
        facts: metadata of the matrix.

    Attributes:
        dim: d.
        dtype: of the vectors.
        device: of the vectors.
        facts: metadata of the matrix: loss, reduction, n, batch norm, parameters.
    """

    def __init__(self, dim: int, like: Tensor, facts: dict[str, Any]) -> None:
        self.dim, self.dtype, self.device, self.facts = dim, like.dtype, like.device, facts

    def __repr__(self) -> str:
        shown = ("loss", "n", "reduction", "batch_norm", "directions")
        facts = "".join(f", {name}={self.facts[name]!r}" for name in shown if name in self.facts)
        return f"{type(self).__name__}(dim={self.dim}{facts})"

    @abstractmethod
    def matvec(self, v: Tensor) -> Tensor:
        """The product with one vector.

        Args:
            v: (d,).

        Returns:
            (d,).

        Raises:
            BadInput: if ``v`` has another shape, or the model changed after the operator was made.
        """

    @plain_mode()
    def matmat(self, v: Tensor) -> Tensor:
        """The products with several vectors.

        Args:
            v: (d, m), one vector in each column.

        Returns:
            (d, m).

        Raises:
            BadInput: if ``v`` has another shape.
        """
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
        """The k algebraically largest eigenvalues, the largest first, to a relative residual of ``tol``.

        Args:
            k: number of eigenvalues, from 1 to d.
            tol: converged when every residual is at most ``tol`` times the largest magnitude seen.
            start: vectors (d, m) or an earlier result to start from, even if the model has moved since then.
            limits: ``max_products`` and ``seed``, see `extreme_pairs`.

        Returns:
            The eigenpairs.

        Raises:
            BadInput: if an argument is out of its range.
        """
        return self._pairs(k, tol, start, largest=True, **limits)

    @renamed_arguments(max_matvecs="max_products")
    def bottom(
        self, k: int = 1, tol: float = 1e-2, start: Tensor | Eigenpairs | None = None, **limits: Any
    ) -> Eigenpairs:
        """The k algebraically smallest eigenvalues, the smallest first, to a relative residual of ``tol``.

        Args:
            k: number of eigenvalues, from 1 to d.
            tol: as of `top`.
            start: as of `top`.
            limits: as of `top`.

        Returns:
            The eigenpairs.

        Raises:
            BadInput: if an argument is out of its range.
        """
        return self._pairs(k, tol, start, largest=False, **limits)

    @renamed_arguments(max_matvecs="max_products")
    def follow(
        self, start: Tensor | None, tol: float = 1e-2, largest: bool = True, seed: int = 0, **limits: Any
    ) -> tuple[Eigenpairs, Tensor | None]:
        """The largest (or smallest) pair of a matrix that moves, and the start for the next call.

        The start contains the pair's vector and the runner-up's vector. If the runner-up overtakes the pair, a search
        from the first vector alone would miss this and settle on the second eigenvalue. The smallest eigenvalue of a
        Hessian is small relative to the largest, and close to others. Its residual is therefore relative to itself, and
        the basis is larger.

        Args:
            start: (d, 2) of the previous call, or None.
            tol: relative tolerance of the residual.
            largest: follow the largest eigenvalue; else the smallest.
            seed: of the random vectors.
            limits: ``max_products`` and ``max_basis``, see `extreme_pairs`.

        Returns:
            The pair, and (d, 2) for the next call, or None after a product that is not finite.

        Raises:
            BadInput: if an argument is out of its range.
        """
        together = None if start is None else start.sum(dim=1, keepdim=True)
        if not largest:
            limits = {"own": True, "max_basis": _BASIS_BELOW} | limits
        pairs = self._pairs(1, tol, together, largest, spare=1, fewest=_FEWEST, seed=seed, **limits)
        pair = pairs.first(1)
        if pairs.outcome == "non-finite":
            return pair, None
        # Signs of eigenvectors are arbitrary, but their sum depends on them: a random vector fixes all signs.
        probe = self.draw(1, torch.Generator().manual_seed(seed))[0]
        return pair, pairs.vectors * torch.where(probe @ pairs.vectors < 0, -1.0, 1.0).to(pairs.vectors)

    def _pairs(self, k: int, tol: float, start: Tensor | Eigenpairs | None, largest: bool, **limits: Any) -> Eigenpairs:
        there = self.dtype, self.device
        return extreme_pairs(self.matmat, self.dim, k, tol, start, *there, largest, draw=self.draw, **limits)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Random vectors for the start of a search.

        Args:
            count: number of vectors.
            generator: a generator on the CPU.

        Returns:
            (count, d).
        """
        return torch.randn(count, self.dim, generator=generator, dtype=self.dtype).to(self.device)

    def dense(self) -> Tensor:
        """The matrix itself; for small d only.

        Returns:
            (d, d).
        """
        return self.matmat(torch.eye(self.dim, dtype=self.dtype, device=self.device))

    def _check(self, v: Tensor) -> Tensor:
        if not isinstance(v, Tensor) or v.shape != (self.dim,):
            raise BadInput(f"v must be a tensor of shape ({self.dim},); got {getattr(v, 'shape', type(v).__name__)}")
        v = v.detach().to(self.device, self.dtype)
        return v.clone() if v.is_inference() else v
