"""A model on data, a chunk of examples at a time, evaluated so that the model does not change; graphs that are kept."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm

from surefoot.errors import BadInput
from surefoot.forward import evaluating
from surefoot.validation import check_int

__all__ = [
    "Data",
    "Forward",
    "Retained",
    "check_logits",
    "check_repeatable",
    "frozen",
    "model_forward",
    "plain_mode",
    "saved_bytes",
    "ties_rows",
    "uncompiled",
]

Forward = Callable[[Sequence[Tensor]], Tensor]
Graph = TypeVar("Graph")

# A model's modes, hooks and parameters are swapped while it is used, and forward mode has one level for all threads.
_LOCK = threading.RLock()
# Elements. Larger buffers are tables or masks, in which no forward pass counts or averages.
_SMALL_BUFFER = 65_536


@dataclass(frozen=True)
class Data:
    """Inputs and labels on the model's device, and the size of a chunk.

    Attributes:
        inputs: (n, ...).
        labels: (n,) int64, or None.
        rows: rows per chunk, from 1 to n.
    """

    inputs: Tensor
    labels: Tensor | None
    rows: int

    @classmethod
    def of(cls, model: nn.Module, inputs: Any, labels: Any, rows: int | None) -> Data:
        """Check and move the data.

        Args:
            model: its first parameter decides the device, and the dtype of floating-point inputs.
            inputs: (n, ...) tensor or array, finite, at least one row.
            labels: (n,) integers, or None.
            rows: rows per chunk, at least 1; None for all rows.

        Returns:
            The data.

        Raises:
            BadInput: if the inputs, the labels or ``rows`` are invalid.
        """
        first = next(model.parameters())
        try:
            x = torch.as_tensor(inputs)
        except (TypeError, ValueError, RuntimeError) as error:
            raise BadInput(f"inputs must be a tensor or an array; {' '.join(str(error).split())}") from error
        if x.ndim == 0 or len(x) == 0:
            raise BadInput(f"inputs must have at least one row; got shape {tuple(x.shape)}")
        x = x.to(first.device, first.dtype) if x.is_floating_point() else x.to(first.device)
        x = x.clone() if x.is_inference() else x  # autograd cannot save an inference tensor
        if x.is_floating_point() and not x.isfinite().all():
            row = int((~x.isfinite()).reshape(len(x), -1).any(dim=1).nonzero()[0])
            raise BadInput(f"inputs must be finite; row {row} is not; leave such rows out or fill them in")
        y = None
        if labels is not None:
            y = torch.as_tensor(labels).to(first.device)
            if y.shape != x.shape[:1]:
                raise BadInput(f"labels must have shape ({len(x)},), one per input; got {tuple(y.shape)}")
            if y.is_floating_point() or y.dtype == torch.bool:
                raise BadInput(f"labels must be integers; got {y.dtype}; convert with .long()")
            y = y.long()
        if rows is not None:
            check_int("batch_size", rows, 1)
        return cls(x, y, min(rows or len(x), len(x)))

    def check_classes(self, classes: int) -> None:
        """Refuse labels that are not classes of the model.

        Args:
            classes: number of classes.

        Raises:
            BadInput: if a label lies outside 0..classes − 1.
        """
        if self.labels is None:
            return
        wrong = ((self.labels < 0) | (self.labels >= classes)).nonzero()
        if len(wrong):
            row = int(wrong[0])
            raise BadInput(
                f"labels must lie in 0..{classes - 1}, the model's classes; got {int(self.labels[row])} in row {row}; "
                "leave out rows without a label"
            )

    def some(self, count: int, seed: int = 0) -> Data:
        """Up to ``count`` random rows as one chunk.

        Args:
            count: maximum of rows.
            seed: of the choice.

        Returns:
            The data of these rows.
        """
        rows = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))[:count].to(self.inputs.device)
        return Data(self.inputs[rows], None if self.labels is None else self.labels[rows], len(rows))

    def __len__(self) -> int:
        return len(self.inputs)

    def chunks(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        """The chunks, in order.

        Returns:
            An iterator over (inputs, labels) of the chunks.
        """
        for at in range(0, len(self), self.rows):
            part = slice(at, at + self.rows)
            yield self.inputs[part], None if self.labels is None else self.labels[part]


@contextlib.contextmanager
def frozen(model: nn.Module, batch_norm: str) -> Iterator[None]:
    """Freeze the model inside the block: eval mode without dropout, batch norm by running or by the chunk's statistics.

    Buffers, modes and the random state are restored afterwards. Attention uses its plain formula, since the fused
    kernels cannot be differentiated twice. One thread at a time may be inside.

    Args:
        model: the model.
        batch_norm: ``"eval"`` (running statistics) or ``"train"`` (statistics of the chunk).

    Returns:
        A context manager.

    Raises:
        BadInput: if ``batch_norm`` is another word.
    """
    if batch_norm not in ("eval", "train"):
        raise BadInput(f"batch_norm must be 'eval' or 'train'; got {batch_norm!r}")
    with _alone(), uncompiled(), _own_buffers(model), evaluating(model), torch.random.fork_rng(devices=[]):
        norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and batch_norm == "train"]
        tracked = [(module, module.running_mean, module.running_var, module.track_running_stats) for module in norms]
        try:
            for module in norms:
                # Without running statistics a pass updates nothing, and a kept graph refers to no statistics.
                module.training, module.track_running_stats = True, False
                module.running_mean = module.running_var = None
            yield
        finally:
            for module, mean, variance, track in tracked:
                module.running_mean, module.running_var, module.track_running_stats = mean, variance, track


@contextlib.contextmanager
def plain_mode() -> Iterator[None]:
    """Disable autocast and inference mode inside the block: curvature needs full precision and graphs.

    Returns:
        A context manager, which also works as a decorator.
    """
    with contextlib.ExitStack() as stack:
        for device in ("cpu", "cuda", "mps"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        yield


def ties_rows(model: nn.Module) -> bool:
    """Whether some batch norm has no running statistics, and therefore uses the rows' statistics even in eval mode.

    Args:
        model: the model.

    Returns:
        True or False.

    Example:
        >>> ties_rows(nn.BatchNorm1d(2)), ties_rows(nn.BatchNorm1d(2, track_running_stats=False))
        (False, True)
    """
    return any(isinstance(module, _BatchNorm) and module.running_mean is None for module in model.modules())


def uncompiled() -> AbstractContextManager[None]:
    """Run compiled models eagerly inside the block: compiled graphs call no hooks and have no second derivatives.

    Returns:
        A context manager.
    """
    if "torch._dynamo" not in sys.modules:  # nothing was compiled, and the import takes seconds
        return contextlib.nullcontext()
    stance: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
    return stance


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Reserve what belongs to the process: the lock, the modes, the attention kernels."""
    with _LOCK, plain_mode(), sdpa_kernel(SDPBackend.MATH):
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)


@contextlib.contextmanager
def _own_buffers(model: nn.Module) -> Iterator[None]:
    """Let the model work on copies of its small buffers, so that changes by its forward pass are discarded."""
    places = [
        (module._buffers, name, buffer)
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None and buffer.numel() <= _SMALL_BUFFER
    ]
    copies = {id(buffer): buffer.clone() for _, _, buffer in places}  # a shared buffer stays shared
    try:
        for buffers, name, buffer in places:
            buffers[name] = copies[id(buffer)]
        yield
    finally:
        for buffers, name, buffer in places:
            buffers[name] = buffer


@contextlib.contextmanager
def saved_bytes(parameters: list[Tensor]) -> Iterator[list[int]]:
    """Count the bytes that autograd saves inside the block, without the storages of the parameters.

    The graph must be discarded afterwards. Saved tensors are detached, since a graph whose hook returns its own output
    keeps itself alive.

    Args:
        parameters: tensors whose storages do not count.

    Returns:
        A context manager that yields a list with the number of bytes so far.
    """
    known = {tensor.untyped_storage().data_ptr() for tensor in parameters}
    total = [0]

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            known.add(storage.data_ptr())
            total[0] += storage.nbytes()
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield total


def model_forward(model: nn.Module, names: Sequence[str], inputs: Tensor) -> Forward:
    """The model on ``inputs`` as a function of the named parameters; tied weights move together.

    Args:
        model: the model.
        names: names of the parameters, in the order of the function's tensors.
        inputs: (b, ...).

    Returns:
        A function from tensors to logits.
    """
    return lambda tensors: functional_call(model, dict(zip(names, tensors, strict=True)), (inputs,))


def check_logits(logits: Tensor) -> Tensor:
    """Refuse logits of another shape than (b, k).

    Args:
        logits: what the model returned.

    Returns:
        ``logits``.

    Raises:
        BadInput: if ``logits`` is no tensor of two dimensions.
    """
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise BadInput(f"the model must map inputs to logits of shape (n, k); got {shape}")
    return logits


def check_repeatable(model: nn.Module, data: Data, batch_norm: str, rows: int = 64) -> int:
    """Refuse a model that is random in eval mode: two passes over a few rows must agree.

    Args:
        model: the model.
        data: the data.
        batch_norm: as of `frozen`.
        rows: number of rows to use.

    Returns:
        The number of classes k.

    Raises:
        BadInput: if the model fails on the inputs, returns no logits, or the passes disagree.
    """
    few = data.inputs[:rows]
    with frozen(model, batch_norm), torch.no_grad():
        try:
            first, second = check_logits(model(few)), model(few)
        except (BadInput, torch.OutOfMemoryError):
            raise
        except Exception as error:
            message = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise BadInput(
                f"the model must map the inputs to logits; given {few.dtype} of shape {tuple(few.shape)}, it failed: "
                f"{message}; convert or reshape the inputs"
            ) from error
    same = torch.equal(first, second) or torch.allclose(first, second, rtol=1e-5, atol=1e-6, equal_nan=True)
    if not same:
        raise BadInput(
            "the model is random even in eval mode: two passes over the same inputs differ; freeze its noise "
            "(a fixed mask or sample) before its curvature is measured"
        )
    return first.shape[1]


class Retained(Generic[Graph]):
    """Graphs of chunks, kept between products as far as memory allows.

    Args:
        memory: maximum of bytes.
        chunk_bytes: bytes of one graph.

    Example:
        >>> kept = Retained(memory=10, chunk_bytes=10)
        >>> kept.get(0, lambda: "graph"), kept.get(0, lambda: "another graph")
        ('graph', 'graph')
    """

    def __init__(self, memory: int, chunk_bytes: float) -> None:
        self._room = int(memory / max(chunk_bytes, 1))
        self._kept: dict[int, Graph] = {}

    def __getstate__(self) -> dict[str, object]:
        return {"_room": self._room, "_kept": {}}  # a copy's graphs would belong to the original

    def clear(self) -> None:
        """Discard all graphs."""
        self._kept.clear()

    def get(self, index: int, build: Callable[[], Graph]) -> Graph:
        """The kept graph of a chunk, or a new graph, which is kept if there is room.

        Args:
            index: number of the chunk.
            build: makes a new graph.

        Returns:
            The graph.
        """
        if index in self._kept:
            return self._kept[index]
        graph = build()
        if len(self._kept) < self._room:
            self._kept[index] = graph
        return graph
