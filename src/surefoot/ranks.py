"""The processes that share a training, each with its part of the examples (torch.distributed).

Every operation is the identity for a single process. All ranks must call the collectives in the same order, so a
condition of a collective must be equal on all ranks. Sums over ranks are bit-identical on all ranks.
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

_PATIENCE = timedelta(minutes=10)  # for a rank that does not respond; the death of a rank is noticed at once


class Ranks:
    """The ``count`` processes of a training, of which this process is number ``rank``.

    Args:
        rank: Number of this process, from 0.
        count: Number of processes.

    Example:
        >>> Ranks(0, 1).mean(3.0), Ranks(0, 1).first
        (3.0, True)
    """

    def __init__(self, rank: int, count: int) -> None:
        self.rank, self.count = rank, count

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which writes the files."""
        return self.rank == 0

    def share(self, rows: int) -> slice:
        """The consecutive part of the rows that belongs to this rank; sizes of parts differ by at most one row.

        Args:
            rows: Number of rows.

        Returns:
            A slice of the rows.

        Example:
            >>> [Ranks(rank, 3).share(7) for rank in range(3)]
            [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
        """
        return slice(rows * self.rank // self.count, rows * (self.rank + 1) // self.count)

    def sum_(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over ranks, in place.

        Args:
            tensor: A tensor of the same shape on every rank.

        Returns:
            ``tensor``.

        Raises:
            RankLost: If another rank died.
        """
        if self.count > 1:
            with _peers():
                there = _reachable(tensor)
                dist.all_reduce(there)
            tensor.copy_(there)
        return tensor

    def mean(self, value: float) -> float:
        """Mean of a number over ranks.

        Args:
            value: This rank's number.

        Returns:
            The mean.
        """
        return value if self.count == 1 else float(self.sum_(torch.tensor(value, dtype=torch.float64))) / self.count

    def counts(self, rows: int) -> list[int]:
        """Number of rows of each rank.

        Args:
            rows: Number of rows of this rank.

        Returns:
            The numbers by rank.
        """
        if self.count == 1:
            return [rows]
        counts = torch.zeros(self.count, dtype=torch.int64)
        counts[self.rank] = rows
        return [int(count) for count in self.sum_(counts)]

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on at least one rank.

        Args:
            flag: This rank's flag.

        Returns:
            The same value on all ranks.
        """
        return flag if self.count == 1 else int(self.sum_(torch.tensor(int(flag)))) > 0

    def rows(self, own: Tensor) -> Tensor:
        """Concatenate the rows of all ranks in the order of the ranks.

        Args:
            own: Rows (m, ...) of this rank; m may differ between ranks.

        Returns:
            The rows of all ranks.

        Raises:
            RankLost: If another rank died.
        """
        if self.count == 1:
            return own
        counts = self.counts(len(own))
        with _peers():
            # Collectives take equal shapes.
            padded = torch.cat([own.detach(), own.new_zeros(max(counts) - len(own), *own.shape[1:])])
            sent = _reachable(_bytes(padded))
            parts = [torch.empty_like(sent) for _ in counts]
            dist.all_gather(parts, sent)
        received = [part.to(own.device).view(own.dtype).view(padded.shape) for part in parts]
        return torch.cat([rows[:count] for rows, count in zip(received, counts, strict=True)])

    def picked(self, own: Tensor, counts: list[int], chosen: Tensor) -> Tensor:
        """This rank's share of chosen rows of a tensor whose rows are distributed over the ranks.

        Rows are exchanged, so that all ranks have equal shares. The rows are in the order of the ranks.

        Args:
            own: Rows (m, ...) of this rank.
            counts: Number of rows of each rank.
            chosen: Indices (c,) among the rows of all ranks.

        Returns:
            This rank's share of the chosen rows.
        """
        return self.rows(own[self.own(chosen, counts).to(own.device)])[self.share(len(chosen))]

    def own(self, chosen: Tensor, counts: list[int]) -> Tensor:
        """Indices, among this rank's rows, of the chosen rows that this rank has.

        Args:
            chosen: Indices (c,) among the rows of all ranks.
            counts: Number of rows of each rank.

        Returns:
            Indices among the rows of this rank.

        Example:
            >>> Ranks(1, 2).own(torch.tensor([0, 4, 3]), [3, 2])
            tensor([1, 0])
        """
        begin = sum(counts[: self.rank])
        return chosen[(chosen >= begin) & (chosen < begin + counts[self.rank])] - begin

    @contextlib.contextmanager
    def agreeing(self) -> Iterator[None]:
        """Make an exception on one rank an exception on all ranks, which would otherwise wait forever.

        The block must not contain collectives.

        Yields:
            None.

        Raises:
            RankLost: If the block failed on another rank.
        """
        try:
            yield
        except Exception:
            self.any(True)
            raise
        if self.any(False):
            raise RankLost("another rank failed and said why; all ranks stop with it")

    def alike(self, *tensors: Tensor) -> bool:
        """Whether the tensors are bit-identical on all ranks.

        Args:
            *tensors: This rank's tensors.

        Returns:
            The same value on all ranks.
        """
        if self.count == 1:
            return True
        digest = hashlib.blake2b(digest_size=8)
        for tensor in tensors:
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(_bytes(tensor).cpu().numpy().tobytes())
        own = torch.tensor([int.from_bytes(digest.digest(), "little", signed=True)])
        return bool((self.rows(own) == own).all())

    def check_same(self, model: nn.Module) -> None:
        """Check that the model's parameters and buffers are the same on all ranks, by their sums.

        Args:
            model: This rank's model.

        Raises:
            BadInput: If they differ.
        """
        if self.count == 1:
            return
        state = [value.detach() for value in (*model.parameters(), *model.buffers()) if value.numel()]
        real = [torch.view_as_real(value) if value.is_complex() else value for value in state]
        own = torch.stack([torch.zeros((), dtype=torch.float64), *(value.double().sum().cpu() for value in real)])
        own = own.view(torch.int64)  # as bits: NaN is not equal to itself
        sums_of_all = self.rows(own[None])
        if not bool((sums_of_all == own).all()):
            raise BadInput(
                "the model is not the same on all ranks; wrap it in DistributedDataParallel before the first step, and "
                "give running statistics of rank 0 to all (torch.distributed.broadcast) before its curvature is read"
            )

    def of_whole_batch(self, model: nn.Module, loss: Tensor, own_gradients: bool = False) -> Tensor:
        """Average the loss and the gradients over ranks, each of which has an equal part of the batch.

        Args:
            model: The model, whose gradients are replaced by those of the whole batch.
            loss: Loss of this rank's part.
            own_gradients: Whether the gradients stay those of this rank's part.

        Returns:
            Loss of the whole batch.
        """
        if self.count == 1:
            return loss
        gradients = [] if own_gradients else [p.grad for p in model.parameters() if p.grad is not None]
        vectors = [loss.detach().reshape(1), *(gradient.reshape(-1) for gradient in gradients)]
        together = self.sum_(torch.cat(vectors)).div_(self.count)
        mean, *parts = torch.split(together, [len(vector) for vector in vectors])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))
        return mean[0]

    @torch.no_grad()
    def take_buffers(self, model: nn.Module) -> None:
        """Copy the buffers of rank 0 to all ranks, as DistributedDataParallel does.

        The buffers of each rank, such as running statistics, are computed from this rank's rows.

        Args:
            model: The model, whose buffers are replaced.
        """
        if self.count == 1:
            return
        by_dtype: dict[torch.dtype, list[Tensor]] = {}
        for buffer in model.buffers():
            by_dtype.setdefault(buffer.dtype, []).append(buffer)
        for buffers in by_dtype.values():
            with _peers():
                together = _reachable(torch.cat([_bytes(buffer) for buffer in buffers]))
                dist.broadcast(together, 0)
            parts = torch.split(together, [buffer.numel() * buffer.element_size() for buffer in buffers])
            for buffer, part in zip(buffers, parts, strict=True):
                _put(buffer, part)

    @contextlib.contextmanager
    def same_buffers(self, model: nn.Module) -> Iterator[None]:
        """Use the buffers of rank 0 inside a ``with`` block, and restore each rank's own buffers afterwards.

        Args:
            model: The model, whose buffers are replaced.

        Yields:
            None, while the buffers are those of rank 0.
        """
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
        """Wait until every rank has called this method."""
        self.any(False)


ALONE = Ranks(0, 1)


def all_ranks() -> Ranks:
    """The ranks of torch.distributed.

    Returns:
        The ranks of the process group; this process alone if no group is set up.

    Example:
        >>> all_ranks().count
        1
    """
    if not (dist.is_available() and dist.is_initialized()):
        return ALONE
    return Ranks(dist.get_rank(), dist.get_world_size())


@contextlib.contextmanager
def launched() -> Iterator[Ranks]:
    """Set up the process group of the ranks that torchrun started, for a ``with`` block.

    Yields:
        The ranks; this process alone if torchrun did not start this process.

    Raises:
        RankLost: If another rank does not join.
    """
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
    """The model inside DistributedDataParallel, whose forward pass would change the state of the training.

    Args:
        model: A model, wrapped in DistributedDataParallel or not.

    Returns:
        The inner model; ``model`` itself if it is not wrapped.

    Raises:
        BadInput: If the parameters are sharded (FSDP).

    Example:
        >>> layer = nn.Linear(2, 2)
        >>> unwrapped(layer) is layer
        True
    """
    inner: Any = model.module if isinstance(model, DistributedDataParallel) else model
    return _unsharded(inner)


def _unsharded(model: nn.Module) -> nn.Module:
    """The model, or a clear error for sharded parameters (FSDP), of which no rank has the full vector."""
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
    """The numbers as bytes (m,): a transfer needs no arithmetic, which gloo supports for few dtypes."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _put(buffer: Tensor, value: Tensor) -> None:
    """Write the bytes of `_bytes` back if they differ; most do not, and an expanded buffer cannot be written."""
    there = value.to(buffer.device)
    if not torch.equal(_bytes(buffer), there):
        buffer.copy_(there.view(buffer.dtype).view(buffer.shape))


def _reachable(tensor: Tensor) -> Tensor:
    """The tensor on a device that the backend supports: NCCL supports no CPU tensors."""
    there = tensor.detach().contiguous()
    return there.cuda() if dist.get_backend() == "nccl" else there


@contextlib.contextmanager
def _peers() -> Iterator[None]:
    """Raise `RankLost` if a collective fails."""
    try:
        yield
    except RuntimeError as error:
        message = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise RankLost(
            f"another rank died or fell silent ({message[:160]}); look at what it said, then start all of them again"
        ) from error
