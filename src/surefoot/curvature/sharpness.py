"""Repeated readings of λ_max of the Gauss–Newton matrix along a run, at the cost of a few gradient steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from surefoot.curvature.chunks import Data, check_repeatable, frozen, plain_mode, ties_rows
from surefoot.curvature.lanczos import Eigenpairs, start_vectors
from surefoot.curvature.operator import GaussNewton
from surefoot.curvature.principal import PrincipalGaussNewton, first_dense, own_names, principal_directions, share_seen
from surefoot.curvature.problem import layout, select
from surefoot.deprecated import renamed_arguments
from surefoot.errors import BadInput
from surefoot.loss import LossLike, as_loss
from surefoot.ranks import ALONE, all_ranks, unwrapped
from surefoot.seeds import generator
from surefoot.validation import check_fraction, check_int

__all__ = ["Sharpness", "SharpnessReading"]

_SEEN = 0.85  # of the inputs' squared length; 100 directions contain .90 for CIFAR, .41 for 5,000 × 300 normal numbers


@dataclass(frozen=True)
class SharpnessReading:
    """λ_max of the Gauss–Newton matrix at one moment.

    Attributes:
        value: a Ritz value, which never exceeds λ_max except for rounding.
        residual: bound on the distance of ``value`` to an eigenvalue: of the full matrix if ``verified``, else of the
            compressed matrix.
        verified: whether ``residual`` refers to the full matrix.
        matvecs: number of products with the matrix that was used.
        full_products: number of products with the full matrix.
        outcome: as of `Eigenpairs`.
    """

    value: float
    residual: float
    verified: bool
    matvecs: int
    full_products: int
    outcome: str


class Sharpness:
    """A reader of Gauss–Newton sharpness that is set up once and then follows the model as it moves.

    For a dense first layer, `Sharpness` computes curvature in the inputs' principal directions
    (`PrincipalGaussNewton`). This requires that the directions contain nearly all of the inputs, and that a product
    over a few rows agrees with the full matrix. For any other model `Sharpness` uses `GaussNewton`, warm-started.

    Args:
        model: any module from inputs to logits (n, k).
        inputs: (n, ...) tensor or array.
        labels: (n,), needed only by losses whose logit Hessian depends on them.
        loss: as of `GaussNewton`.
        batch_size: rows at a time, at least 1, as of `GaussNewton`.
        directions: number of principal directions of the inputs to keep, at least 1.
        max_products: maximum of products per reading, at least 2. A reading that starts from ten steps before needs
            about five.
        seed: of random vectors, of the principal directions and of the sample.
        sample: number of examples to read, the same random examples at every reading. By default, and if there are no
            more examples, all are read. The sample's λ_max is on average that of all examples or above, and it depends
            on the sample: see docs/SCALE.md.
        ranks: as of `GaussNewton`.

    Attributes:
        compressed: whether the reader uses the principal directions of the inputs.
        parameters: the parameters that the vectors of `top` run over, by name.

    Raises:
        BadInput: if an argument is invalid, or the model is random in eval mode.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))
        >>> reader = Sharpness(model, torch.randn(40, 8, generator=torch.Generator().manual_seed(0)))
        >>> reader.read(verify=True).verified
        True

    References:
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Section 4.
    """

    @renamed_arguments(chunk="batch_size", products="max_products")
    @plain_mode()
    def __init__(
        self,
        model: nn.Module,
        inputs: Any,
        labels: Any = None,
        loss: LossLike = "ce",
        *,
        batch_size: int | None = None,
        directions: int = 100,
        max_products: int = 16,
        seed: int = 0,
        sample: int | None = None,
        ranks: bool = False,
    ) -> None:
        check_int("max_products", max_products, 2)
        check_int("directions", directions, 1)
        self._model, self._products, self._seed = unwrapped(model), max_products, seed
        self._loss = as_loss(loss, separable=True)
        self._ranks = all_ranks() if ranks else ALONE
        with self._ranks.agreeing():
            self._parameters = select(self._model)
            self._layout = layout(self._parameters)
            self._data = Data.of(self._model, inputs, labels, batch_size)
            if self._loss.needs_labels and labels is None:
                raise BadInput("labels are needed: this loss's Hessian in the logits depends on them")
            classes = check_repeatable(self._model, self._data, "eval")
            if self._loss.reads_classes:
                self._data.check_classes(classes)
        if sample is not None:
            self._data = self._sampled(sample, batch_size)
        self._start: Tensor | None = None
        self._compressed = self._compress(directions)
        self._whole: GaussNewton | None = None
        if self._compressed is None:
            x, y = self._data.inputs, self._data.labels
            self._whole = GaussNewton(self._model, x, y, self._loss, batch_size=batch_size, ranks=ranks)

    def __repr__(self) -> str:
        way = "compressed" if self.compressed else "whole"
        return f"Sharpness({way}, {self._operator!r}, max_products={self._products})"

    @property
    def compressed(self) -> bool:
        """Whether the reader uses the principal directions of the inputs."""
        return self._compressed is not None

    def _sampled(self, sample: int, batch_size: int | None) -> Data:
        """``sample`` rows from those of all ranks, this rank's equal share of them."""
        ranks, counts = self._ranks, self._ranks.counts(len(self._data))
        size = min(check_int("sample", sample, ranks.count), sum(counts))
        chosen = torch.randperm(sum(counts), generator=generator(self._seed, "sample"))[:size].sort().values
        x = ranks.picked(self._data.inputs, counts, chosen)
        y = None if self._data.labels is None else ranks.picked(self._data.labels, counts, chosen)
        return Data(x, y, min(batch_size or len(x), len(x)))

    def _compress(self, directions: int) -> PrincipalGaussNewton | None:
        """The compressed matrix, if the model has a suitable first layer and the matrix is correct on a few rows."""
        if ties_rows(self._model):  # the rows must stay in one chunk, which `GaussNewton` ensures
            return None
        with frozen(self._model, "eval"):
            layer = first_dense(self._model, self._data.inputs)
        # The layer depends on the model only, so all ranks return here, or all ranks reach the sums over ranks.
        if layer is None:
            return None
        others = [name for name in self._parameters if name not in own_names(layer)]
        principal = principal_directions(self._data.inputs, directions, self._seed, ranks=self._ranks)
        if not share_seen(self._data.inputs, principal, self._ranks) >= _SEEN:
            return None
        few = self._data.some(32)
        compressed = PrincipalGaussNewton(self._model, few, self._loss, layer, principal, others)
        full = GaussNewton(self._model, few.inputs, few.labels, self._loss)
        if self._ranks.any(not compressed.agrees(full, list(self._parameters))):
            return None
        return PrincipalGaussNewton(self._model, self._data, self._loss, layer, principal, others, self._ranks)

    @plain_mode()
    def read(self, verify: bool = False, tol: float | None = None) -> SharpnessReading:
        """Measure λ_max now, to a relative residual of ``tol``; the error of λ_max is of the order of ``tol``².

        Args:
            verify: bound the error of the value by one product with the full matrix.
            tol: between 0 and 1. By default 0.01 for the compressed matrix, whose products are cheap, and 0.05 for the
                full matrix.

        Returns:
            The reading.

        Raises:
            BadInput: if ``tol`` is out of its range, or the model's parameters were replaced by others.
        """
        if tol is None:
            tol = 5e-2 if self._compressed is None else 1e-2
        pair = self._pairs(1, check_fraction("tol", tol), self._products)
        if self._compressed is None:
            return self._reading(pair, float(pair.residuals[0]), verified=True, full=pair.matvecs)
        if not verify or pair.outcome == "non-finite":
            return self._reading(pair, float(pair.residuals[0]), verified=False, full=0)
        return self._reading(pair, self._compressed.verify(pair), verified=True, full=1)

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """The parameters that the vectors of `top` run over, by name."""
        return self._parameters

    @renamed_arguments(max_matvecs="max_products")
    @plain_mode()
    def top(
        self,
        k: int,
        tol: float = 1e-2,
        start: Tensor | Eigenpairs | None = None,
        max_products: int | None = None,
    ) -> Eigenpairs:
        """The k leading eigenpairs now, their vectors (d, k) in the order of the model's parameters.

        The matrix is that of `read`, compressed or full. ``residuals`` refer to this matrix, not to the full matrix, if
        it is compressed. Without ``start``, the search starts from the previous call's pairs and the next pair, which
        may have overtaken the last of them.

        Args:
            k: number of eigenpairs, from 1 to d.
            tol: relative tolerance of the residuals.
            start: vectors (d, m) or an earlier result.
            max_products: maximum of products, at least k; by default 4 (k + 1).

        Returns:
            The eigenpairs.

        Raises:
            BadInput: if an argument is out of its range, or the model's parameters were replaced by others.
        """
        dim = sum(p.numel() for p in self._parameters.values())
        check_int("k", k, 1, dim)
        if start is not None:
            vectors = start_vectors(start, dim)
            names = list(self._parameters)
            self._start = vectors if self._compressed is None else self._compressed.compress(vectors, names)
        budget = 4 * (k + 1) if max_products is None else max_products
        pairs = self._pairs(k, tol, budget, spare=1 if start is None else 0)
        if self._compressed is None:
            return pairs
        return replace(pairs, vectors=self._compressed.lift(pairs.vectors, list(self._parameters)))

    def state_dict(self) -> dict[str, Tensor]:
        """The start of the next reading: with this state, a new reader resumes bit-exactly.

        Returns:
            One dictionary; empty before the first reading.
        """
        return {} if self._start is None else {"start": self._start.detach().clone()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore a state.

        Args:
            state: what `state_dict` returned.

        Raises:
            BadInput: if the vectors have another length, or are not finite.
        """
        start = state.get("start")
        self._start = None if start is None else start_vectors(start, self._operator.dim).clone()

    @property
    def _operator(self) -> PrincipalGaussNewton | GaussNewton:
        operator = self._compressed or self._whole
        assert operator is not None
        return operator

    def _follow(self) -> None:
        """Use the model as it is now, and refuse another model."""
        present = select(self._model)
        if layout(present) != self._layout:
            raise BadInput(
                "the trainable parameters, their shapes or their dtype changed after this reader was made; "
                "make a new reader"
            )
        self._parameters = present
        self._operator.refresh()

    def _pairs(self, k: int, tol: float, products: int, spare: int = 1) -> Eigenpairs:
        self._follow()
        operator = self._operator
        limits: dict[str, Any] = {"max_products": products, "max_basis": products, "seed": self._seed}
        if k == 1:
            pairs, self._start = operator.follow(self._start, tol, **limits)
        else:
            start = None if self._start is None else self._start[:, : k + spare]
            searched = operator.top(k, tol, start, spare=spare, **limits)
            pairs = searched.first(k)
            self._start = searched.vectors if searched.outcome != "non-finite" else None
        if operator is self._whole:
            operator.refresh()  # frees its activations between readings
        return pairs

    def _reading(self, pair: Eigenpairs, residual: float, verified: bool, full: int) -> SharpnessReading:
        return SharpnessReading(float(pair.values[0]), residual, verified, pair.matvecs, full, pair.outcome)
