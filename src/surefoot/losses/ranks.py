"""Batches that lie on several ranks: what a term of the whole batch needs, with its gradient."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["gathered"]


def gathered(rows: Tensor) -> Tensor:
    """Rows (b, ...) of every rank, one after another; without ranks, the rows themselves.

    Every rank computes the same term of the same rows. The gradient of its own rows is the sum of what all ranks ask
    of them, and so, averaged over ranks as DistributedDataParallel does it, the parameters get that of one term.
    Ranks may have different numbers of rows.
    """
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return rows
    found: Tensor = _Gather.apply(rows)  # type: ignore[no-untyped-call]
    return found


class _Gather(torch.autograd.Function):
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
