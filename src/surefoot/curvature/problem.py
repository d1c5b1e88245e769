"""What a curvature matrix describes: a model, its parameters as one flat vector, data and loss, checked once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

from surefoot.curvature.chunks import Data, Forward, check_repeatable, frozen, model_forward, saved_bytes, ties_rows
from surefoot.errors import BadInput
from surefoot.loss import Loss, LossLike, as_loss
from surefoot.ranks import ALONE, Ranks, all_ranks, unwrapped

__all__ = ["Problem", "add_into", "layout", "leaves", "mean_divisor", "select", "split"]


def select(model: nn.Module, names: Iterable[str] | None = None) -> dict[str, nn.Parameter]:
    """Trainable parameters of a model by name, each tensor once.

    Args:
        model: the model.
        names: names of the parameters; None for all trainable parameters.

    Returns:
        The parameters by name, in the model's order or in the order of ``names``.

    Raises:
        BadInput: if a name is unknown or frozen, there is no parameter, or dtypes or devices are not suitable.

    Example:
        >>> list(select(nn.Linear(2, 2)))
        ['weight', 'bias']
    """
    if not isinstance(model, nn.Module):
        raise BadInput(f"model must be a torch.nn.Module; got {type(model).__name__}")
    if isinstance(names, str):
        raise BadInput(f"names must be a list of parameter names; got the string {names!r}; write [{names!r}]")
    # named_parameters lists a tied weight once, under its first name.
    by_name = dict(model.named_parameters())
    trainable = {name: value for name, value in by_name.items() if value.requires_grad}
    if names is not None:
        chosen: dict[str, nn.Parameter] = {}
        for name in names:
            if name not in by_name:
                near = get_close_matches(name, by_name, 1)
                raise BadInput(
                    f"names: the model has no parameter {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
                )
            if name not in trainable:
                raise BadInput(
                    f"names: parameter {name!r} is frozen (requires_grad is False); leave it out or unfreeze it"
                )
            chosen[name] = trainable[name]
        trainable = chosen
    if not trainable:
        raise BadInput("model has no trainable parameter; set requires_grad=True on those whose curvature you want")
    kinds = {(value.dtype, value.device) for value in trainable.values()}
    if len(kinds) > 1:
        raise BadInput(f"the chosen parameters must share one dtype and device; got {sorted(map(str, kinds))}")
    ((dtype, _),) = kinds
    if dtype not in (torch.float32, torch.float64):
        raise BadInput(f"curvature needs float32 or float64; got {dtype}; use copy.deepcopy(model).float()")
    return trainable


def leaves(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    """The tensors to differentiate by: the parameters, or aliases of those with hooks, which would act on products.

    Parameters without hooks are not replaced, since a model may also reach a parameter without its name. Such a model
    would not use the alias.

    Args:
        parameters: the parameters.

    Returns:
        One tensor for each parameter.
    """
    return [p.detach().requires_grad_() if p._backward_hooks else p for p in parameters]


def layout(parameters: Mapping[str, nn.Parameter]) -> list[tuple[object, ...]]:
    """What a flat vector over the parameters must match: names, shapes, dtype and device.

    Args:
        parameters: the parameters by name.

    Returns:
        (name, shape, dtype, device) of each parameter.
    """
    return [(name, value.shape, value.dtype, value.device) for name, value in parameters.items()]


def add_into(vector: Tensor, tensors: Sequence[Tensor | None], like: Sequence[Tensor]) -> None:
    """Add tensors to a flat vector, in place.

    Args:
        vector: (d,).
        tensors: one tensor, or None (no dependence), for each part of the vector.
        like: tensors with the shapes of the parts.
    """
    for part, tensor in zip(split(vector, like), tensors, strict=True):
        if tensor is not None:
            part += tensor


def split(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Views of a flat vector in given shapes.

    Args:
        vector: (d,).
        like: tensors with the shapes of the parts.

    Returns:
        One view for each tensor.

    Example:
        >>> split(torch.arange(3.0), [torch.zeros(2), torch.zeros(1, 1)])
        [tensor([0., 1.]), tensor([[2.]])]
    """
    sizes = [tensor.numel() for tensor in like]
    return [part.view_as(tensor) for part, tensor in zip(torch.split(vector, sizes), like, strict=True)]


# Activations of a default chunk, which stay in the cores' caches. A ResNet-20's product over 512 images took 0.67
# gradient steps in chunks of 32 to 64, and 0.93 in chunks of 256.
_CHUNK_BYTES = 64 << 20


class Problem:
    """A model on data under a loss.

    Args:
        model: as of `GaussNewton`.
        inputs: as of `GaussNewton`.
        labels: as of `GaussNewton`.
        loss: as of `GaussNewton`; it need not be convex.
        names: as of `GaussNewton`.
        reduction: as of `GaussNewton`.
        batch_size: as of `GaussNewton`.
        batch_norm: as of `GaussNewton`.
        ranks: as of `GaussNewton`.

    Attributes:
        tensors: the chosen parameters, in the model's order, or their aliases to differentiate by.
        classes: k.
        weight: of one row: 1/n for the mean, n the number of rows of all ranks (or their class weights); 1 for the sum.
        ranks: over which products are summed.

    Raises:
        BadInput: if an argument is invalid, or the model is random in eval mode.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Any,
        labels: Any,
        loss: LossLike,
        *,
        names: Iterable[str] | None,
        reduction: str,
        batch_size: int | None,
        batch_norm: str,
        ranks: bool,
    ) -> None:
        self.model, self.batch_norm = unwrapped(model), batch_norm
        self.ranks = all_ranks() if ranks else ALONE
        with self.ranks.agreeing():
            self._set_up(inputs, labels, loss, names, reduction, batch_size)
        rows = sum(self.ranks.counts(len(self.data)))
        self.weight = 1.0 / mean_divisor(self.loss, self.data, self.ranks) if reduction == "mean" else 1.0
        self.facts: dict[str, Any] = {
            "loss": self.loss,
            "n": rows,
            "reduction": reduction,
            "batch_norm": "train" if self._tied else batch_norm,
            "parameters": list(self.parameters),
        }
        self.ranks.check_same(self.model)

    def _set_up(
        self,
        inputs: Any,
        labels: Any,
        loss: LossLike,
        names: Iterable[str] | None,
        reduction: str,
        batch_size: int | None,
    ) -> None:
        model, batch_norm = self.model, self.batch_norm
        self._names = names if names is None or isinstance(names, str) else list(names)
        self._take(select(model, self._names))
        self.loss = as_loss(loss, separable=True)
        self.data = Data.of(model, inputs, labels, batch_size)
        if self.loss.needs_labels and labels is None:
            raise BadInput("labels are needed: this loss's Hessian in the logits depends on them")
        if reduction not in ("mean", "sum"):
            raise BadInput(f"reduction must be 'mean' or 'sum'; got {reduction!r}")
        self._tied = tied = batch_norm == "train" or ties_rows(model)
        if tied and self.ranks.count > 1:
            raise BadInput(
                "batch_norm='train', or batch norm without running statistics, ties all rows together, and they lie on "
                f"{self.ranks.count} ranks; take batch_norm='eval', or one process"
            )
        if tied and self.data.rows < len(self.data):
            # Batch statistics tie all rows of a chunk together.
            raise BadInput(
                f"batch_norm='train', or batch norm without running statistics, needs all {len(self.data)} rows in one "
                f"batch; got batch_size={self.data.rows}"
            )
        self.dim = sum(tensor.numel() for tensor in self.tensors)
        self.classes = check_repeatable(model, self.data, batch_norm)
        if self.loss.reads_classes:
            self.data.check_classes(self.classes)
        if batch_size is None and not tied:
            rows = _CHUNK_BYTES / max(self.row_bytes(lambda forward, _: forward(self.tensors)), 1)
            self.data = replace(self.data, rows=max(1, min(len(self.data), int(rows))))

    def row_bytes(self, build: Callable[[Forward, Tensor | None], object]) -> float:
        """Bytes that a graph saves for each row, estimated by building the graph for two rows and for four.

        Args:
            build: makes the graph from the logits' function and the labels.

        Returns:
            Bytes per row, at least 0.
        """

        def saved(rows: int) -> int:
            inputs, labels = self.data.inputs[:rows], None if self.data.labels is None else self.data.labels[:rows]
            with self.frozen(), torch.enable_grad(), saved_bytes(self.tensors) as size:
                build(self.forward(inputs), labels)
            return size[0]

        return max(0, saved(4) - saved(2)) / 2

    def refresh(self) -> None:
        """Use the present parameters of the same names.

        Raises:
            BadInput: if the trainable parameters, their shapes or their dtype changed.
        """
        present = select(self.model, self._names)
        if layout(present) != self._layout:
            raise BadInput(
                "the trainable parameters, their shapes or their dtype changed after this operator was made; "
                "make a new one"
            )
        self._take(present)
        self.ranks.check_same(self.model)

    def _take(self, parameters: dict[str, nn.Parameter]) -> None:
        self.parameters = parameters
        self.tensors = leaves(parameters.values())
        self._layout = layout(parameters)
        self._print = _fingerprint(self.model)

    def check_still(self) -> None:
        """Refuse a changed model: kept graphs would mix two models.

        Raises:
            BadInput: if the model changed after the operator was made.
        """
        if _fingerprint(self.model) != self._print:
            raise BadInput("the model changed after this operator was made; make a new one, or refresh it")

    def frozen(self) -> AbstractContextManager[None]:
        """Freeze the model inside the block; see `chunks.frozen`.

        Returns:
            A context manager.
        """
        return frozen(self.model, self.batch_norm)

    def forward(self, inputs: Tensor) -> Forward:
        """The logits as a function of the chosen parameters.

        Args:
            inputs: (b, ...).

        Returns:
            A function from tensors to logits.
        """
        return model_forward(self.model, list(self.parameters), inputs)

    def chunks(self) -> Iterator[tuple[int, Forward, Tensor | None]]:
        """The chunks, in order.

        Returns:
            An iterator over index, logits as a function of the parameters, and labels.
        """
        for index, (inputs, labels) in enumerate(self.data.chunks()):
            yield index, self.forward(inputs), labels


def mean_divisor(loss: Loss, data: Data, ranks: Ranks) -> float:
    """The divisor of a mean over the rows of all ranks: the number of rows, or the sum of their class weights.

    Args:
        loss: the loss, which may weight examples.
        data: this rank's data.
        ranks: the ranks.

    Returns:
        The divisor.
    """
    if data.labels is None or (weights := loss.example_weights(data.labels)) is None:
        return sum(ranks.counts(len(data)))
    return float(ranks.sum_(weights.sum()))


def _fingerprint(model: nn.Module) -> list[object]:
    """Values that change when a model changes, at a cost that is negligible relative to a product.

    Versions do not count changes through ``.data``, so the fingerprint includes the first, a middle and the last number
    of each parameter. It holds the tensors themselves, compared by identity, because an id could be reused.
    """
    seen: list[object] = []
    for parameter in model.parameters():
        # Numbers by place in memory: access by index would copy a non-contiguous tensor. As text, NaN equals NaN.
        reach = sum((size - 1) * stride for size, stride in zip(parameter.shape, parameter.stride(), strict=True))
        few = parameter.data.as_strided((3,), (reach // 2,)).tolist() if parameter.numel() else []
        seen += [_Same(parameter), parameter._version, parameter.requires_grad, bool(parameter._backward_hooks)]
        seen += [parameter.data_ptr(), parameter.dtype, repr(few)]
    for buffer in model.buffers():
        seen += [_Same(buffer), buffer._version, buffer.data_ptr()]
    return seen


class _Same:
    """A tensor that equals only itself."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.tensor is self.tensor

    __hash__ = None  # type: ignore[assignment]
