"""The processes that share a training between them, each with its part of the examples (torch.distributed).

Everything here is the identity for a process that is alone. Collectives are called by all ranks in the same order, so
whatever decides about one must be the same on every rank: sums over ranks are, to the bit.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from surefoot.errors import BadInput, RankLost

__all__ = ["ALONE", "Ranks", "all_ranks", "launched", "unwrapped"]

_PATIENCE = timedelta(minutes=10)  # with a rank that is silent; one that dies is noticed at once


class Ranks:
    """``count`` processes, of which this is number ``rank``."""

    def __init__(self, rank: int, count: int) -> None:
        self.rank, self.count = rank, count

    @property
    def first(self) -> bool:
        """Whether this is the one that writes."""
        return self.rank == 0

    def share(self, rows: int) -> slice:
        """This rank's part of ``rows`` rows, one piece; the parts differ by one row at most.

        >>> [Ranks(rank, 3).share(7) for rank in range(3)]
        [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
        """
        return slice(rows * self.rank // self.count, rows * (self.rank + 1) // self.count)

    def sum_(self, tensor: Tensor) -> Tensor:
        """The tensor, summed over ranks in place."""
        if self.count > 1:
            with _peers():
                there = _reachable(tensor)
                dist.all_reduce(there)
            tensor.copy_(there)
        return tensor

    def mean(self, value: float) -> float:
        """A number's mean over ranks."""
        return value if self.count == 1 else float(self.sum_(torch.tensor(value, dtype=torch.float64))) / self.count

    def counts(self, rows: int) -> list[int]:
        """How many rows each rank has, given this rank's."""
        if self.count == 1:
            return [rows]
        found = torch.zeros(self.count, dtype=torch.int64)
        found[self.rank] = rows
        return [int(each) for each in self.sum_(found)]

    def any(self, flag: bool) -> bool:
        """Whether it holds on some rank."""
        return flag if self.count == 1 else int(self.sum_(torch.tensor(int(flag)))) > 0

    def rows(self, own: Tensor) -> Tensor:
        """Rows (m, ...) of all ranks, one rank's after another's; their numbers of rows may differ."""
        if self.count == 1:
            return own
        counts = self.counts(len(own))
        with _peers():
            # Collectives take equal shapes.
            padded = torch.cat([own.detach(), own.new_zeros(max(counts) - len(own), *own.shape[1:])])
            sent = _reachable(_bytes(padded))
            parts = [torch.empty_like(sent) for _ in counts]
            dist.all_gather(parts, sent)
        wholes = [part.to(own.device).view(own.dtype).view(padded.shape) for part in parts]
        return torch.cat([whole[:count] for whole, count in zip(wholes, counts, strict=True)])

    def picked(self, own: Tensor, counts: list[int], chosen: Tensor) -> Tensor:
        """This rank's share of the rows ``chosen`` (numbers among those of all ranks) of a tensor in parts ``own``.

        Rows travel, so that shares are equal whoever held them; they come in the order of the ranks.
        """
        return self.rows(own[self.own(chosen, counts).to(own.device)])[self.share(len(chosen))]

    def own(self, chosen: Tensor, counts: list[int]) -> Tensor:
        """This rank's numbers of those of the rows ``chosen`` (numbers among those of all ranks) that it has."""
        begin = sum(counts[: self.rank])
        return chosen[(chosen >= begin) & (chosen < begin + counts[self.rank])] - begin

    @contextlib.contextmanager
    def agreeing(self) -> Iterator[None]:
        """What fails on one rank fails on all, where the others would wait for it; for blocks without collectives."""
        try:
            yield
        except Exception:
            self.any(True)
            raise
        if self.any(False):
            raise RankLost("another rank failed and said why; all ranks stop with it")

    def alike(self, *tensors: Tensor) -> bool:
        """Whether every rank was given the same tensors, to the bit."""
        if self.count == 1:
            return True
        digest = hashlib.blake2b(digest_size=8)
        for tensor in tensors:
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(_bytes(tensor).cpu().numpy().tobytes())
        ours = torch.tensor([int.from_bytes(digest.digest(), "little", signed=True)])
        return bool((self.rows(ours) == ours).all())

    def check_same(self, model: nn.Module) -> None:
        """A clear error if the model's parameters and buffers are not the same on every rank."""
        if self.count == 1:
            return
        state = [value.detach() for value in (*model.parameters(), *model.buffers()) if value.numel()]
        real = [torch.view_as_real(value) if value.is_complex() else value for value in state]
        ours = torch.stack([torch.zeros((), dtype=torch.float64), *(value.double().sum().cpu() for value in real)])
        ours = ours.view(torch.int64)  # as bits: NaN is not equal to itself
        theirs = self.rows(ours[None])
        if not bool((theirs == ours).all()):
            raise BadInput(
                "the model is not the same on all ranks; wrap it in DistributedDataParallel before the first step, and "
                "give running statistics of rank 0 to all (torch.distributed.broadcast) before its curvature is read"
            )

    def of_whole_batch(self, model: nn.Module, loss: Tensor, own_gradients: bool = False) -> Tensor:
        """The loss of the whole batch, of which each rank has an equal part; the gradients become those of it, too.

        With ``own_gradients`` each rank's stay those of its part.
        """
        if self.count == 1:
            return loss
        found = [] if own_gradients else [p.grad for p in model.parameters() if p.grad is not None]
        vectors = [loss.detach().reshape(1), *(gradient.reshape(-1) for gradient in found)]
        together = self.sum_(torch.cat(vectors)).div_(self.count)
        mean, *parts = torch.split(together, [len(vector) for vector in vectors])
        for gradient, part in zip(found, parts, strict=True):
            gradient.copy_(part.view_as(gradient))
        return mean[0]

    @torch.no_grad()
    def take_buffers(self, model: nn.Module) -> None:
        """The buffers of rank 0 for all, as DistributedDataParallel has it: each rank's are of its own rows."""
        if self.count == 1:
            return
        alike: dict[torch.dtype, list[Tensor]] = {}
        for buffer in model.buffers():
            alike.setdefault(buffer.dtype, []).append(buffer)
        for buffers in alike.values():
            with _peers():
                together = _reachable(torch.cat([_bytes(buffer) for buffer in buffers]))
                dist.broadcast(together, 0)
            parts = torch.split(together, [buffer.numel() * buffer.element_size() for buffer in buffers])
            for buffer, part in zip(buffers, parts, strict=True):
                _put(buffer, part)

    @contextlib.contextmanager
    def same_buffers(self, model: nn.Module) -> Iterator[None]:
        """Inside, the buffers of rank 0; each rank's own are put back."""
        if self.count == 1:
            yield
            return
        own = [(buffer, _bytes(buffer).clone()) for buffer in model.buffers()]
        self.take_buffers(model)
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, value in own:
                    _put(buffer, value)

    def wait(self) -> None:
        """Go on when every rank has come here."""
        self.any(False)


ALONE = Ranks(0, 1)


def all_ranks() -> Ranks:
    """The ranks of torch.distributed, or this process alone where no group was set up."""
    if not (dist.is_available() and dist.is_initialized()):
        return ALONE
    return Ranks(dist.get_rank(), dist.get_world_size())


@contextlib.contextmanager
def launched() -> Iterator[Ranks]:
    """The ranks that torchrun started, if it started this process; their group lasts as long as the block."""
    if int(os.environ.get("WORLD_SIZE", 1)) == 1 or "RANK" not in os.environ or dist.is_initialized():
        yield all_ranks()
        return
    with _peers():
        dist.init_process_group("gloo", timeout=_PATIENCE)  # runs are trained on the processor
    try:
        yield all_ranks()
    finally:
        dist.destroy_process_group()


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside DistributedDataParallel, whose own forward would touch the training's state."""
    found: Any = model.module if isinstance(model, DistributedDataParallel) else model
    return _unsharded(found)


def _unsharded(model: nn.Module) -> nn.Module:
    """The model, or a clear error if its parameters are spread over ranks (FSDP), where no flat vector is whole."""
    if isinstance(model, nn.Module):
        wrapped = any(
            kind.__name__ == "FullyShardedDataParallel" for module in model.modules() for kind in type(module).__mro__
        )
        if wrapped or any(type(p).__name__ == "DTensor" for p in model.parameters()):
            raise BadInput(
                "curvature needs whole parameters on every rank, and this model's are sharded (FSDP), which is not "
                "supported; load a full state_dict into a plain copy of the model and read that one"
            )
    return model


def _bytes(tensor: Tensor) -> Tensor:
    """The numbers as bytes, in one row: what is only moved needs no arithmetic, which gloo has for few dtypes."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _put(buffer: Tensor, value: Tensor) -> None:
    """Write the bytes of `_bytes` back, if they differ: most do not, and one that was expanded cannot be written."""
    there = value.to(buffer.device)
    if not torch.equal(_bytes(buffer), there):
        buffer.copy_(there.view(buffer.dtype).view(buffer.shape))


def _reachable(tensor: Tensor) -> Tensor:
    """The tensor where the backend can take it: NCCL knows devices only."""
    there = tensor.detach().contiguous()
    return there.cuda() if dist.get_backend() == "nccl" else there


@contextlib.contextmanager
def _peers() -> Iterator[None]:
    """A collective that fails is a rank that is gone."""
    try:
        yield
    except RuntimeError as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise RankLost(
            f"another rank died or fell silent ({said[:160]}); look at what it said, then start all of them again"
        ) from error
