"""Curvature matrices known by their products: what every matrix offers, and the Gauss–Newton matrix.

The Gauss–Newton matrix is G = (1/n) Σ J_iᵀ H_z,i J_i (Morosini et al. 2026, Section 4). `Linearised` multiplies by J
and Jᵀ on a graph that is kept: the graph of g(u) = Jᵀu in u is built once; differentiating ⟨g(u), v⟩ by u gives J v.
Two backward passes over the kept activations make a Gauss–Newton product. This costs about one gradient step, without a
forward pass. If an operation cannot be differentiated twice, or only at a higher cost, J v comes from forward mode
instead.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.autograd.graph import get_gradient_edge
from torch.nn.modules.conv import _ConvNd

from surefoot.curvature.chunks import Forward, Retained, check_logits, plain_mode
from surefoot.curvature.lanczos import Eigenpairs, extreme_pairs
from surefoot.curvature.problem import Problem, add_into, split
from surefoot.deprecated import renamed_arguments
from surefoot.errors import BadInput
from surefoot.loss import LossLike, check_convex

__all__ = ["GaussNewton", "Linearised", "Operator", "differentiable_twice", "prefers_forward_mode", "probe"]

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
        direction = self.draw(1, torch.Generator().manual_seed(seed))[0]
        return pair, pairs.vectors * torch.where(direction @ pairs.vectors < 0, -1.0, 1.0).to(pairs.vectors)

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


class Linearised:
    """J of ``forward(tensors)`` → logits (b, k) at the tensors' present values.

    Args:
        forward: the logits as a function of the tensors.
        tensors: the tensors that J differentiates by.
        twice: whether J v may come from differentiating the graph of Jᵀu (see `differentiable_twice`); otherwise J v
            comes from forward mode.

    Attributes:
        logits: (b, k).

    Raises:
        BadInput: if the logits have another number of dimensions.

    Example:
        >>> w = torch.ones(2, 2, requires_grad=True)
        >>> linear = Linearised(lambda tensors: torch.eye(2) @ tensors[0], [w])
        >>> linear.jvp([torch.eye(2)])
        tensor([[1., 0.],
                [0., 1.]])
    """

    def __init__(self, forward: Forward, tensors: Sequence[Tensor], twice: bool = True) -> None:
        self._forward, self._tensors, self._twice = forward, list(tensors), twice
        with torch.enable_grad():
            self.logits = check_logits(forward(self._tensors))
            if twice:
                self._dual = torch.zeros_like(self.logits, requires_grad=True)
                transposed = torch.autograd.grad(
                    self.logits, self._tensors, self._dual, create_graph=True, allow_unused=True
                )
                self._linked = [value is not None and value.requires_grad for value in transposed]
                # Edges of the graph replace the values of Jᵀu, which would occupy as much memory as the parameters.
                self._transposed = [
                    get_gradient_edge(value) for value in transposed if value is not None and value.requires_grad
                ]

    def jvp(self, parts: Sequence[Tensor]) -> Tensor:
        """The product J v.

        Args:
            parts: v in the shapes of the tensors.

        Returns:
            (b, k).

        Raises:
            BadInput: if an operation of the model has neither a second derivative nor forward mode.
        """
        if not self._twice:
            return self._forward_jvp(parts)
        chosen = [part for part, linked in zip(parts, self._linked, strict=True) if linked]
        if not chosen:
            return torch.zeros_like(self.logits)
        return torch.autograd.grad(self._transposed, self._dual, chosen, retain_graph=True)[0]

    def vjp(self, u: Tensor) -> tuple[Tensor | None, ...]:
        """The product Jᵀ u.

        Args:
            u: (b, k).

        Returns:
            Jᵀ u in the shapes of the tensors; None where the logits do not depend on a tensor.
        """
        return torch.autograd.grad(self.logits, self._tensors, u, retain_graph=True, allow_unused=True)

    def _forward_jvp(self, parts: Sequence[Tensor]) -> Tensor:
        with torch.no_grad(), forward_ad.dual_level():
            pairs = zip(self._tensors, parts, strict=True)
            duals = [forward_ad.make_dual(tensor.detach(), part) for tensor, part in pairs]  # type: ignore[no-untyped-call]
            try:
                dual = self._forward(duals)
                tangent: Tensor | None = forward_ad.unpack_dual(dual).tangent  # type: ignore[no-untyped-call]
            except NotImplementedError as error:
                raise BadInput(
                    "the model has an operation with neither a second derivative nor forward mode "
                    f"({' '.join(str(error).split())[:120]}); replace it (for attention, take the 'math' backend)"
                ) from error
        return torch.zeros_like(self.logits) if tangent is None else tangent


def differentiable_twice(forward: Forward, tensors: Sequence[Tensor]) -> bool:
    """Whether J v may come from two backward passes; meant for a few rows.

    An operation without a second derivative may raise. It may also cut the graph silently, as a function marked
    once_differentiable does: only the numbers show the difference.

    Args:
        forward: the logits as a function of the tensors.
        tensors: the tensors that J differentiates by.

    Returns:
        True or False.
    """
    return _transposes_agree(forward, tensors, twice=True)


def prefers_forward_mode(model: nn.Module, forward: Forward, tensors: Sequence[Tensor]) -> bool:
    """Whether forward mode is correct, and cheaper for J v: this holds for convolutions; meant for a few rows.

    A convolution's second backward pass also computes two derivatives that are not needed. This costs more than running
    the model again.

    Args:
        model: the model.
        forward: the logits as a function of the tensors.
        tensors: the tensors that J differentiates by.

    Returns:
        True or False.
    """
    convolutions = any(isinstance(module, _ConvNd) for module in model.modules())
    return convolutions and _transposes_agree(forward, tensors, twice=False)


def probe(like: Tensor, generator: torch.Generator) -> Tensor:
    """Normal numbers in the shape of a tensor, drawn in float32, which is six times faster than in float64.

    Args:
        like: the tensor whose shape, dtype and device are used.
        generator: a generator on the CPU.

    Returns:
        The numbers.
    """
    return torch.randn(like.shape, generator=generator, dtype=torch.float32).to(like)


def _transposes_agree(forward: Forward, tensors: Sequence[Tensor], twice: bool) -> bool:
    """Whether ⟨u, J v⟩ equals ⟨Jᵀu, v⟩ for random u and v, with J v computed as ``twice`` says."""
    generator = torch.Generator().manual_seed(0)
    try:
        linear = Linearised(forward, tensors, twice)
        v = [probe(t, generator) for t in tensors]
        u = probe(linear.logits, generator)
        image = linear.jvp(v)
        pairs = zip(linear.vjp(u), v, strict=True)
        there = sum(float((g * w).sum()) for g, w in pairs if g is not None)
    except (RuntimeError, BadInput):
        return False
    back = float((u * image).sum())
    if not (math.isfinite(there) and math.isfinite(back)):
        return True  # a diverged model shows nothing about its operations
    return abs(there - back) <= 1e-3 * (abs(there) + float(u.norm() * image.norm())) + 1e-12


class GaussNewton(Operator):
    """G v = (1/n) Σ_i J_iᵀ H_z(p_i) J_i v over all rows of ``inputs``, a chunk at a time.

    Args:
        model: any module from inputs to logits (n, k).
        inputs: (n, ...) tensor or array.
        labels: (n,), needed only by losses whose logit Hessian depends on them.
        loss: ``"ce"``; ``"mse"`` (mean over classes), ``"mse-half"``, ``"mse-sum"``; a loss of surefoot or torch; or a
            function (logits, labels) → (n,) values; see `surefoot.losses.as_loss`. It must be convex in the logits.
        names: parameters to use; all trainable parameters by default.
        reduction: ``"mean"`` over the rows or ``"sum"``, whatever the loss's own reduction.
        batch_size: rows at a time, at least 1; by default as many as keep their activations within 64 MB.
        batch_norm: ``"eval"`` (running statistics) or ``"train"`` (statistics of the rows, all in one batch), which is
            also what batch norm without running statistics does.
        memory: bytes of activations that may be kept between products; graphs beyond this limit are rebuilt.
        ranks: the rows are this rank's part of the examples, and all ranks of torch.distributed call this. Products are
            summed over the ranks, and a mean is over the rows of all ranks.

    Attributes:
        parameters: the parameters that the vectors run over, by name.

    Raises:
        BadInput: if an argument is invalid, the loss is not convex, or the model is random in eval mode.

    Example:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> operator = GaussNewton(model, torch.eye(2), loss="mse-sum")
        >>> operator.dim, round(float(operator.top().values[0]), 4)
        (4, 1.0)

    References:
        Morosini et al. (2026), "Too Sharp, Too Sure: When Calibration Follows Curvature", Section 4.
    """

    @renamed_arguments(chunk="batch_size")
    @plain_mode()
    def __init__(
        self,
        model: nn.Module,
        inputs: Any,
        labels: Any = None,
        loss: LossLike = "ce",
        *,
        names: Iterable[str] | None = None,
        reduction: str = "mean",
        batch_size: int | None = None,
        batch_norm: str = "eval",
        memory: int = 4 << 30,
        ranks: bool = False,
    ) -> None:
        settings: dict[str, Any] = {
            "names": names,
            "reduction": reduction,
            "batch_size": batch_size,
            "batch_norm": batch_norm,
        }
        self._problem = Problem(model, inputs, labels, loss, **settings, ranks=ranks)
        super().__init__(self._problem.dim, self._problem.tensors[0], {"matrix": "gauss-newton", **self._problem.facts})
        few = self._problem.data.some(64)
        check_convex(self._problem.loss, few.labels, torch.empty(len(few), self._problem.classes).to(few.inputs))
        rows = self._problem.forward(self._problem.data.inputs[:2])
        with self._problem.frozen():
            twice = differentiable_twice(rows, self._problem.tensors)
            self._twice = twice and not prefers_forward_mode(self._problem.model, rows, self._problem.tensors)
        row = self._problem.row_bytes(lambda forward, _: Linearised(forward, self._problem.tensors, self._twice))
        self._retained: Retained[Linearised] = Retained(memory, row * self._problem.data.rows)

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """The parameters that the vectors run over, by name."""
        return self._problem.parameters

    def refresh(self) -> None:
        """Use the model as it is now, and discard the activations that were kept."""
        self._problem.refresh()
        self._retained.clear()

    @plain_mode()
    def matvec(self, v: Tensor) -> Tensor:
        """(d,) G v."""
        problem = self._problem
        problem.check_still()
        parts = split(self._check(v), problem.tensors)
        total = torch.zeros(self.dim, dtype=self.dtype, device=self.device)
        with problem.frozen():
            for index, forward, labels in problem.chunks():
                self._add_chunk(total, parts, index, forward, labels)
        return problem.ranks.sum_(total)

    def _add_chunk(
        self, total: Tensor, parts: Sequence[Tensor], index: int, forward: Forward, labels: Tensor | None
    ) -> None:
        """Add one chunk's product in a separate function, so that its graph is freed before the next is built."""
        problem = self._problem
        linear = self._retained.get(index, partial(Linearised, forward, problem.tensors, self._twice))
        s = problem.loss.hessian_product(linear.logits.detach(), labels, linear.jvp(parts))
        add_into(total, linear.vjp(problem.weight * s), problem.tensors)
