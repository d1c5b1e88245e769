"""Batches that are distributed over several ranks: terms of the whole batch, with their gradients."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["gathered"]


def gathered(rows: Tensor) -> Tensor:
    """Concatenate the rows of all ranks; without ranks, return the rows themselves.

    Every rank computes the same term of the same rows. The gradient of a rank's own rows is the sum of the gradients of
    all ranks. DistributedDataParallel averages over ranks, so the parameters get the gradient of one term. Ranks may
    have different numbers of rows.

    Args:
        rows: (b, ...).

    Returns:
        (b, ...) of all ranks.

    Example:
        >>> gathered(torch.tensor([1.0, 2.0]))
        tensor([1., 2.])
    """
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return rows
    rows_of_all: Tensor = _Gather.apply(rows)  # type: ignore[no-untyped-call]
    return rows_of_all


class _Gather(torch.autograd.Function):
    """All-gather of rows, with a gradient."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        sizes = [torch.zeros((), dtype=torch.int64, device=rows.device) for _ in range(dist.get_world_size())]
        dist.all_gather(sizes, torch.tensor(len(rows), device=rows.device))
        counts = [int(size) for size in sizes]
        # Collectives need equal shapes.
        padded = pad(rows, [0, 0] * (rows.ndim - 1) + [0, max(counts) - len(rows)]).contiguous()
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        ctx.first, ctx.count = sum(counts[: dist.get_rank()]), len(rows)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total[ctx.first : ctx.first + ctx.count]
