"""BulkSGD and DomSGD: SGD outside, or inside, the space of the sharpest directions (Song, Ahn & Yun 2025)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from surefoot.curvature.lanczos import Eigenpairs
from surefoot.errors import BadInput
from surefoot.optim.base import BaseOptimizer
from surefoot.optim.passes import Closure
from surefoot.validation import check_int, check_non_negative

__all__ = ["BulkSGD", "DomSGD"]


class Curvature(Protocol):
    """What finds the directions: a `GaussNewton` or `Hessian` operator, or a `Sharpness` reader."""

    @property
    def parameters(self) -> Mapping[str, Tensor]: ...

    def top(self, k: int, tol: float, start: Tensor | None, *, max_matvecs: int) -> Eigenpairs: ...


class _Projected(BaseOptimizer):
    """SGD whose update is projected; the shared part of both rules.

    Attributes:
        last: of the last step, ``captured`` = ‖VVᵀu‖ / ‖u‖ of the update u before it was projected, and, where the
            directions were found anew, ``sharpness`` (the largest eigenvalue), ``residual`` (the largest one of the
            directions, relative to it) and ``matvecs``.
    """

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
        ours = {p for group in self.param_groups for p in group["params"] if p.requires_grad}
        self._order = list(operator.parameters.values())
        if len(ours) != len(self._order) or any(p not in ours for p in self._order):
            raise BadInput(
                f"operator must be of the parameters that are optimised: it has {len(self._order)} tensors, params "
                f"{len(ours)}, {len(ours.intersection(self._order))} of them in common; build both from the same model"
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
        """(d,) what is taken of an update (d,) whose part in the space of V is ``inside`` (d,)."""

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """One step; returns the closure's loss, if there is one."""
        loss = self._run(closure)
        rates = {p: float(group["lr"]) for group in self.param_groups for p in group["params"]}
        rate = max(rates.values())
        self.last = {}
        basis = _restricted(self._basis(), self._order)
        # In units of the largest rate, so that one rate for all takes the very step of SGD.
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
        """(k, d) orthonormal rows, found anew every ``refresh`` steps and kept in the state of the first parameter.

        The next direction is kept beside them: a search from the k alone would not see it overtake the last of them.
        """
        memory = self.state[self._order[0]]
        before: Tensor | None = memory.get("basis")
        age = int(memory.get("age", 0))
        memory["age"] = torch.tensor(float((age + 1) % self._refresh))
        if before is not None and len(before) != self._k:
            before = None  # of a checkpoint with another k
        if self._k == 0 or (before is not None and age):
            return self._nothing() if before is None else before
        fresh = getattr(self._operator, "refresh", None)  # a Sharpness reader always takes the model as it is
        if fresh is not None:
            fresh()
        # The first basis may serve for long, so it gets what it needs; later ones start close.
        most = self._products or (max(60, 20 * self._wide) if before is None else max(8, 2 * self._wide))
        start = None if before is None else torch.cat([before, memory.get("runner_up", before[:0])]).T
        found = self._operator.top(self._wide, self._tol, start, max_matvecs=most)
        if found.outcome == "non-finite":  # the gradient will not be finite either
            return self._nothing() if before is None else before
        # Ritz vectors are orthonormal up to rounding of the products' precision; a projection must be one.
        rows = torch.linalg.qr(found.vectors.double()).Q.T.to(found.vectors)
        memory["basis"], memory["runner_up"] = rows[: self._k].contiguous(), rows[self._k :].contiguous()
        scale = float(found.values.abs().max()) or 1.0
        self.last |= {
            "sharpness": float(found.values[0]),
            "residual": float(found.residuals[: self._k].max()) / scale,
            "matvecs": float(found.matvecs),
        }
        kept: Tensor = memory["basis"]
        return kept

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Groups are given when the rule is made: the operator's vectors run over a fixed set of parameters."""
        if self._order:
            raise BadInput("a parameter group cannot be added: make a new operator of all parameters and a new rule")
        super().add_param_group(param_group)

    def _nothing(self) -> Tensor:
        return self._order[0].new_zeros(0, sum(p.numel() for p in self._order))


def _restricted(basis: Tensor, parameters: list[Tensor]) -> Tensor:
    """The basis (k, d) among the parameters that have gradients: the others stand still, and must not be leant on."""
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

    Plain SGD as in the paper, no momentum: the sharp directions are left alone, and sharpness grows.

    Args:
        params: the parameters of the operator, or groups of them.
        lr: step size; groups may carry their own.
        operator: `GaussNewton` or `Hessian` on the training data, or a `Sharpness` reader, the fastest.
        k: how many directions; 0 is SGD.
        refresh: steps between searches for V, each started from the last.
        tol: of the eigenvectors.
        products: most products a search, k + 1 at least; by default as many as the first one needs, later 2 (k + 1),
            but at least 8.
    """

    def project(self, update: Tensor, inside: Tensor) -> Tensor:
        """The update without its part inside."""
        return update - inside


class DomSGD(_Projected):
    """SGD in the dominant space only: θ ← θ − VVᵀ(lr · g); arguments as `BulkSGD`, k = 0 stands still."""

    def project(self, update: Tensor, inside: Tensor) -> Tensor:
        """The part inside."""
        return inside
