"""BulkSGD and DomSGD: SGD outside, or inside, the space of the sharpest directions (Song, Ahn & Yun 2025)."""

from __future__ import annotations

import inspect
import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from surefoot.curvature.lanczos import Eigenpairs
from surefoot.errors import BadInput
from surefoot.optim.base import BaseOptimizer, Closure
from surefoot.validation import check_int, check_non_negative

__all__ = ["BulkSGD", "DomSGD"]


class Curvature(Protocol):
    """What computes the directions: a `GaussNewton` or `Hessian` operator, or a `Sharpness` reader."""

    @property
    def parameters(self) -> Mapping[str, Tensor]: ...

    def top(self, k: int, tol: float, start: Tensor | None, *, max_products: int) -> Eigenpairs: ...


class _Projected(BaseOptimizer):
    """SGD whose update is projected: the shared part of `BulkSGD` and `DomSGD`."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        operator: Curvature,
        k: int = 5,
        refresh: int = 1,
        tol: float = 5e-2,
        products: int | None = None,
    ) -> None:
        if not (hasattr(operator, "top") and isinstance(getattr(operator, "parameters", None), Mapping)):
            raise BadInput(
                "operator must be a GaussNewton, a Hessian or a Sharpness of the model on its training data; "
                f"got {type(operator).__name__}"
            )
        if isinstance(tol, bool) or not isinstance(tol, int | float) or not 0 < tol < 1:
            raise BadInput(f"tol must lie between 0 and 1; got {tol!r}")
        self._order: list[Tensor] = []
        super().__init__(params, {"lr": check_non_negative("lr", lr)})
        optimised = {p for group in self.param_groups for p in group["params"] if p.requires_grad}
        self._order = list(operator.parameters.values())
        if len(optimised) != len(self._order) or any(p not in optimised for p in self._order):
            raise BadInput(
                f"operator must be of the parameters that are optimised: it has {len(self._order)} tensors, params "
                f"{len(optimised)}, {len(optimised.intersection(self._order))} of them in common; "
                "build both from the same model"
            )
        self._operator, self._tol = operator, tol
        dim = sum(p.numel() for p in self._order)
        self._k = check_int("k", k, 0, dim)
        self._wide = min(self._k + 1, dim)
        self._refresh = check_int("refresh", refresh, 1)
        self._products = None if products is None else check_int("products", products, self._wide)
        self.last: dict[str, float] = {}

    @abstractmethod
    def project(self, update: Tensor, inside: Tensor) -> Tensor:
        """Project an update.

        Args:
            update: (d,) the update.
            inside: (d,) the part of the update in the space of V.

        Returns:
            (d,) the projected update.
        """

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Take one step.

        Args:
            closure: computes the loss, calls ``backward`` and returns the loss; None if the gradients are computed
                already.

        Returns:
            The closure's loss, or None without a closure.

        Raises:
            BadInput: if the closure leaves no gradient.
        """
        loss = self._run(closure)
        rates = {p: float(group["lr"]) for group in self.param_groups for p in group["params"]}
        rate = max(rates.values())
        self.last = {}
        basis = _restricted(self._basis(), self._order)
        # In units of the largest rate: with one rate for all groups, the step equals that of SGD.
        parts = [_scaled(p, rates[p] / rate if rate else 1.0) for p in self._order]
        update = torch.cat([part.reshape(-1) for part in parts])
        with torch.autocast(update.device.type, enabled=False):
            inside = (basis @ update) @ basis
        size = float(update.norm())
        self.last["captured"] = float(inside.norm()) / size if size > 0 else math.nan
        taken = torch.split(self.project(update, inside), [p.numel() for p in self._order])
        moved = [(p, part.view_as(p)) for p, part in zip(self._order, taken, strict=True) if p.grad is not None]
        if moved:
            torch._foreach_add_([p for p, _ in moved], [part for _, part in moved], alpha=-rate)
        return loss

    def _basis(self) -> Tensor:
        """(k, d) orthonormal rows, computed again every ``refresh`` steps and kept in the state of the first parameter.

        The direction after the k-th is kept as well: a search from the k alone would miss that it overtakes the k-th.
        """
        memory = self.state[self._order[0]]
        before: Tensor | None = memory.get("basis")
        age = int(memory.get("age", 0))
        memory["age"] = torch.tensor(float((age + 1) % self._refresh))
        if before is not None and len(before) != self._k:
            before = None  # from a checkpoint with another k
        if self._k == 0 or (before is not None and age):
            return self._empty() if before is None else before
        fresh = getattr(self._operator, "refresh", None)  # a Sharpness reader always takes the model as it is
        if fresh is not None:
            fresh()
        # The first basis may stay for many steps, so its search gets more products; later searches start close.
        budget = self._products or (max(60, 20 * self._wide) if before is None else max(8, 2 * self._wide))
        start = None if before is None else torch.cat([before, memory.get("runner_up", before[:0])]).T
        # Operators of one's own may still take the name of version 0.1; until 0.3.
        old = "max_matvecs" in inspect.signature(self._operator.top).parameters
        limit: dict[str, Any] = {"max_matvecs" if old else "max_products": budget}
        pairs = self._operator.top(self._wide, self._tol, start, **limit)
        if pairs.outcome == "non-finite":  # the gradient will not be finite either
            return self._empty() if before is None else before
        # Ritz vectors are orthonormal up to rounding in the products' precision; a projection needs more.
        rows = torch.linalg.qr(pairs.vectors.double()).Q.T.to(pairs.vectors)
        memory["basis"], memory["runner_up"] = rows[: self._k].contiguous(), rows[self._k :].contiguous()
        scale = float(pairs.values.abs().max()) or 1.0
        self.last |= {
            "sharpness": float(pairs.values[0]),
            "residual": float(pairs.residuals[: self._k].max()) / scale,
            "matvecs": float(pairs.matvecs),
        }
        basis: Tensor = memory["basis"]
        return basis

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group during construction only: the operator's vectors run over a fixed set of parameters.

        Args:
            param_group: the group, with its parameters under ``"params"``.

        Raises:
            BadInput: if the optimizer is built already, or the group has no parameters.
        """
        if self._order:
            raise BadInput(
                "a parameter group cannot be added: make a new operator of all parameters and a new optimizer"
            )
        super().add_param_group(param_group)

    def _empty(self) -> Tensor:
        return self._order[0].new_zeros(0, sum(p.numel() for p in self._order))


def _restricted(basis: Tensor, parameters: list[Tensor]) -> Tensor:
    """The basis (k, d) restricted to the parameters that have gradients; the other parameters stay where they are."""
    if all(p.grad is not None for p in parameters) or not len(basis):
        return basis
    moving = torch.cat([torch.full((p.numel(),), float(p.grad is not None)) for p in parameters]).to(basis)
    rows: Tensor = torch.linalg.qr((basis * moving).double().T).Q.T.to(basis)
    return rows


def _scaled(p: Tensor, factor: float) -> Tensor:
    if p.grad is None:
        return torch.zeros_like(p)
    return p.grad if factor == 1 else p.grad * factor


class BulkSGD(_Projected):
    """SGD in the bulk: θ ← θ − (I − VVᵀ)(lr · g), V the k sharpest directions of the training loss.

    Plain SGD as in the paper, without momentum: the update leaves the sharp directions alone, and sharpness grows.

    Args:
        params: the parameters of the operator, or groups of them.
        lr: step size, at least 0; groups may carry their own.
        operator: `GaussNewton` or `Hessian` on the training data, or a `Sharpness` reader, the fastest of the three.
        k: number of directions, from 0 to the number of parameters; 0 is SGD.
        refresh: steps between searches for V, at least 1. Each search starts from the previous directions.
        tol: tolerance of the eigenvectors, between 0 and 1.
        products: maximum of products of a search, at least k + 1. By default the first search may take
            max(60, 20 (k + 1)) products, and a later search max(8, 2 (k + 1)).

    Attributes:
        last: of the last step, ``captured`` = ‖VVᵀu‖ / ‖u‖ of the update u before its projection. A step that searches
            for the directions adds ``sharpness`` (the largest eigenvalue), ``residual`` and ``matvecs``. ``residual``
            is the largest residual of the directions, relative to the largest magnitude of the eigenvalues.

    Raises:
        BadInput: if an argument is out of its range, or the operator's parameters are not the optimised ones.

    Example:
        >>> from surefoot.curvature import GaussNewton
        >>> model, x, y = torch.nn.Linear(2, 2), torch.eye(2), torch.tensor([0, 1])
        >>> opt = BulkSGD(model.parameters(), 0.1, GaussNewton(model, x, y), k=1)
        >>> def closure():
        ...     loss = torch.nn.functional.cross_entropy(model(x), y)
        ...     loss.backward()
        ...     return loss
        >>> loss = opt.step(closure)
        >>> sorted(opt.last)
        ['captured', 'matvecs', 'residual', 'sharpness']

    References:
        Song, Ahn and Yun (2025), "Does SGD Really Happen in Tiny Subspaces?".
    """

    def project(self, update: Tensor, inside: Tensor) -> Tensor:
        """The update without its part inside the space of V."""
        return update - inside


class DomSGD(_Projected):
    """SGD in the dominant space only: θ ← θ − VVᵀ(lr · g), V the k sharpest directions of the training loss.

    Args:
        params: the parameters of the operator, or groups of them.
        lr: step size, at least 0; groups may carry their own.
        operator: `GaussNewton` or `Hessian` on the training data, or a `Sharpness` reader, the fastest of the three.
        k: number of directions, from 0 to the number of parameters; with 0 the parameters do not move.
        refresh: steps between searches for V, at least 1.
        tol: tolerance of the eigenvectors, between 0 and 1.
        products: maximum of products of a search; see `BulkSGD`.

    Attributes:
        last: as of `BulkSGD`.

    Raises:
        BadInput: if an argument is out of its range, or the operator's parameters are not the optimised ones.

    Example:
        >>> from surefoot.curvature import GaussNewton
        >>> model, x, y = torch.nn.Linear(2, 2), torch.eye(2), torch.tensor([0, 1])
        >>> opt = DomSGD(model.parameters(), 0.1, GaussNewton(model, x, y), k=1)
        >>> opt.param_groups[0]["lr"]
        0.1

    References:
        Song, Ahn and Yun (2025), "Does SGD Really Happen in Tiny Subspaces?".
    """

    def project(self, update: Tensor, inside: Tensor) -> Tensor:
        """The part of the update inside the space of V."""
        return inside
