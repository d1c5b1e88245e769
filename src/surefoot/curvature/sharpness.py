"""Reading λ_max of the Gauss–Newton matrix again and again along a run, for the price of a few gradient steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from surefoot.curvature.chunks import Data, frozen
from surefoot.curvature.gauss_newton import GaussNewton
from surefoot.curvature.lanczos import Eigenpairs, start_vectors
from surefoot.curvature.linearised import check_repeatable
from surefoot.curvature.losses import loss_named
from surefoot.curvature.parameters import select
from surefoot.curvature.principal import PrincipalGaussNewton, first_dense, principal_directions
from surefoot.curvature.problem import Loss
from surefoot.errors import BadInput

__all__ = ["Sharpness", "SharpnessReading"]


@dataclass(frozen=True)
class SharpnessReading:
    """λ_max of the Gauss–Newton matrix at one moment.

    ``value`` is a Ritz value and so never above λ_max but by rounding. ``residual`` bounds its distance to an
    eigenvalue; it is of the whole matrix if ``verified``, else of the compressed one. ``matvecs`` counts products
    with the matrix that was used, ``full_products`` those with the whole one.
    """

    value: float
    residual: float
    verified: bool
    matvecs: int
    full_products: int
    outcome: str


class Sharpness:
    """A reader of Gauss–Newton sharpness that is set up once and then follows the model as it moves.

    A model whose first layer is dense on the inputs is read through the inputs' principal directions
    (`PrincipalGaussNewton`); any other by `GaussNewton`, warm-started. Arguments as `GaussNewton`.

    Args:
        directions: principal directions of the inputs to keep.
        products: most products per reading; a reading from a start of ten steps before needs about five.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))
    >>> reader = Sharpness(model, torch.randn(40, 8, generator=torch.Generator().manual_seed(0)))
    >>> reader.read(verify=True).verified
    True
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Any,
        labels: Any = None,
        loss: Loss = "ce",
        *,
        chunk: int | None = None,
        directions: int = 100,
        products: int = 16,
        seed: int = 0,
    ) -> None:
        if products < 2:
            raise BadInput(f"products must be at least 2; got {products}")
        self._model, self._loss, self._products, self._seed = model, loss_named(loss), products, seed
        self._parameters = select(model)
        self._data = Data.of(model, inputs, labels, chunk)
        if self._loss.needs_labels and labels is None:
            raise BadInput("labels are needed: this loss's Hessian in the logits depends on them")
        check_repeatable(model, self._data, "eval")
        self._start: Tensor | None = None
        with frozen(model, "eval"):
            layer = first_dense(model, self._data.inputs)
        self._compressed: PrincipalGaussNewton | None = None
        self._whole: GaussNewton | None = None
        if layer is not None:
            own = {f"{layer}.weight", f"{layer}.bias"}
            others = {name: value for name, value in self._parameters.items() if name not in own}
            found = principal_directions(self._data.inputs, directions, seed)
            self._compressed = PrincipalGaussNewton(model, self._data, self._loss, layer, found, others)  # type: ignore[arg-type]
        else:
            self._whole = GaussNewton(model, inputs, labels, self._loss, chunk=chunk)

    def read(self, verify: bool = False, tol: float | None = None) -> SharpnessReading:
        """λ_max now, to a relative residual of ``tol`` (its own error is of the order of ``tol``²).

        By default 0.01 for the compressed matrix, whose products are cheap, and 0.05 for the whole one. With
        ``verify``, one product with the whole matrix bounds the error of the value.
        """
        pair = self._pairs(1, tol or (5e-2 if self._compressed is None else 1e-2), self._products)
        if self._compressed is None:
            return self._reading(pair, float(pair.residuals[0]), verified=True, full=pair.matvecs)
        if not verify or pair.outcome == "non-finite":
            return self._reading(pair, float(pair.residuals[0]), verified=False, full=0)
        return self._reading(pair, self._compressed.verify(pair), verified=True, full=1)

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """What the vectors of `top` run over, by name."""
        return self._parameters

    def top(self, k: int, tol: float = 1e-2, start: Tensor | None = None, max_matvecs: int | None = None) -> Eigenpairs:
        """The k leading eigenpairs now, their vectors (d, k) in the order of the model's parameters.

        From the same compressed or whole matrix as `read`, started from ``start`` (d, m), or else from the call
        before. ``max_matvecs`` limits the work; by default 4 k.
        """
        if start is not None:
            start = start_vectors(start, sum(p.numel() for p in self._parameters.values()))
            names = list(self._parameters)
            self._start = start if self._compressed is None else self._compressed.compress(start, names)
        pairs = self._pairs(k, tol, max_matvecs or 4 * k)
        if self._compressed is None:
            return pairs
        return replace(pairs, vectors=self._compressed.lift(pairs.vectors, list(self._parameters)))

    def state_dict(self) -> dict[str, Tensor]:
        """What the next reading starts from: with it, a reader made anew goes on to the bit."""
        return {} if self._start is None else {"start": self._start.detach().clone()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Put back what `state_dict` gave."""
        self._start = state["start"].clone() if "start" in state else None

    def _pairs(self, k: int, tol: float, products: int) -> Eigenpairs:
        operator = self._compressed or self._whole
        assert operator is not None
        operator.refresh()
        start = None if self._start is None else self._start[:, :k]
        pairs = operator.top(k, tol, start, max_matvecs=products, max_basis=products, seed=self._seed)
        if operator is self._whole:
            operator.refresh()  # its activations are not held between readings
        self._start = pairs.vectors if pairs.outcome != "non-finite" else None
        return pairs

    def _reading(self, pair: Eigenpairs, residual: float, verified: bool, full: int) -> SharpnessReading:
        return SharpnessReading(float(pair.values[0]), residual, verified, pair.matvecs, full, pair.outcome)
