"""The Gauss–Newton matrix G = (1/n) Σ J_iᵀ H_z,i J_i as a matrix-free operator (Morosini et al. 2026, Section 4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from surefoot.curvature.chunks import plain_mode
from surefoot.curvature.linearised import Forward, Linearised, Retained
from surefoot.curvature.operator import Operator
from surefoot.curvature.problem import Problem, add_into, split
from surefoot.deprecated import renamed_arguments
from surefoot.loss import LossLike, check_convex

__all__ = ["GaussNewton"]


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
        self._twice = self._problem.twice and not self._problem.prefers_forward_mode
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
