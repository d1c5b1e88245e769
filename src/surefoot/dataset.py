"""The `Dataset` protocol: labelled examples that are read in batches, from memory, files or loaders.

`as_dataset` makes a data set from a pair of arrays, a memory map, a torch ``Dataset`` or a ``DataLoader``.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import random
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from surefoot.errors import BadInput
from surefoot.validation import check_int

__all__ = ["ArrayDataset", "Dataset", "DatasetLike", "LoaderDataset", "as_dataset"]

# Inputs up to this size are kept in the form that the model takes. Standardising a batch of 128 CIFAR images takes
# 0.3 ms, a twentieth of a small MLP's step.
_SMALL = 64 << 20
_BLOCK = 1024  # rows that are transformed at once where the caller gives no batch size
_LOADED = 256  # examples of a torch Dataset that are read at once
_ALL = slice(None)

Rows = Tensor | slice
Batch = tuple[Tensor, Tensor, Tensor]


class Dataset(ABC):
    """Labelled examples, numbered from 0, that can be read any number of times.

    Attributes:
        shape: Shape of the inputs of one example.
        labels: Labels (n,), in memory.
    """

    shape: tuple[int, ...]
    labels: Tensor
    _names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each class; the numbers from 0 to the largest label if no names were given."""
        return self._names or tuple(map(str, range(int(self.labels.max()) + 1)))

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.names)

    @abstractmethod
    def take(self, rows: Rows = _ALL, device: Any = None) -> tuple[Tensor, Tensor]:
        """Read the examples ``rows``.

        Args:
            rows: Indices (b,) of examples, or a slice; all by default.
            device: Device of the returned tensors; the device of the stored ones if None.

        Returns:
            Inputs (b, ...) and labels (b,), in the order of ``rows``.
        """

    @abstractmethod
    def batches(self, size: int, device: Any = None) -> Iterator[Batch]:
        """Read all examples in order, ``size`` at a time; the last batch may be smaller.

        Args:
            size: Number of examples of a batch, at least 1.
            device: Device of the returned tensors; the device of the stored ones if None.

        Yields:
            Inputs (b, ...), labels (b,) and row numbers (b,).

        Raises:
            BadInput: If ``size`` is not a positive integer.
        """

    @abstractmethod
    def part(self, rows: slice) -> Dataset:
        """Make a data set of the examples ``rows``.

        Args:
            rows: A slice of the examples.

        Returns:
            The data set of these examples.
        """

    def digest(self) -> str:
        """SHA-256 of inputs and labels with their shapes and types.

        Returns:
            64 hexadecimal digits.
        """
        content = hashlib.sha256()
        for inputs, _, _ in self.batches(_BLOCK):
            content.update(_bytes(inputs))
        content.update(_bytes(self.labels))
        content.update(f"{len(self)} {self.shape} {inputs.dtype} {self.labels.dtype}".encode())
        return content.hexdigest()


DatasetLike = Dataset | TorchDataset[Any] | tuple[Any, Any] | Iterable[Any]
"""What `as_dataset` takes."""


class ArrayDataset(Dataset):
    """Examples in memory, or in a memory map, in the form in which they are stored.

    Stored examples are moved to the device and transformed batch by batch. The inputs of all examples are kept if they
    are small. Larger inputs of all examples are shared: they exist once, until their last user releases them.

    Args:
        stored: Examples (m, ...): a tensor, or an array that must not be written to, such as a memory map.
        labels: Labels (n,).
        transform: Function from stored examples (b, ...) to inputs (b, ...); None if the stored examples are inputs.
        rows: Indices (n,) of the stored examples that belong to the data set, or a slice; all by default.
        names: Name of each class.

    Example:
        >>> stored = torch.tensor([[0], [51], [255]], dtype=torch.uint8)
        >>> data = ArrayDataset(stored, torch.tensor([0, 1, 1]), lambda images: images / 255)
        >>> data.take(torch.tensor([2, 1]))
        (tensor([[1.0000],
                [0.2000]]), tensor([1, 1]))
    """

    def __init__(
        self,
        stored: Tensor | NDArray[Any],
        labels: Tensor,
        transform: Callable[[Tensor], Tensor] | None = None,
        rows: Rows = _ALL,
        names: Sequence[str] | None = None,
    ) -> None:
        self._stored, self._transform, self._rows, self.labels = stored, transform, rows, labels
        self._names = None if names is None else tuple(names)
        first = self._made(slice(0, 1))
        self.shape = tuple(first.shape[1:])
        self._inputs = _Inputs(small=first.nbytes * len(self) <= _SMALL)
        if isinstance(stored, Tensor) and transform is None and isinstance(rows, slice):
            self._inputs = _Inputs(small=True)  # a view of the stored tensor costs no memory
            self._inputs.keep(stored[rows])

    def __repr__(self) -> str:
        stored = str(self._stored.dtype).removeprefix("torch.")
        return f"{type(self).__name__}(n={len(self)}, shape={self.shape}, classes={self.classes}, stored={stored!r})"

    def take(self, rows: Rows = _ALL, device: Any = None) -> tuple[Tensor, Tensor]:
        """Read the inputs and labels of the examples ``rows``."""
        inputs = self._inputs.get()
        if inputs is None and (self._inputs.small or _is_all(rows)):
            inputs = self._inputs.keep(_joined(len(self), map(self._made, self._blocks(_BLOCK))))
        chosen = self._made(rows, device) if inputs is None else _rows_of(inputs, rows).to(device)
        return chosen, self.labels[rows].to(device)

    def batches(self, size: int, device: Any = None) -> Iterator[Batch]:
        """Read inputs, labels and row numbers, ``size`` rows at a time."""
        for rows in self._blocks(check_int("size", size, 1)):
            yield *self.take(rows, device), torch.arange(rows.start, rows.stop, device=device)

    def part(self, rows: slice) -> Dataset:
        """Make a data set of the examples ``rows``, without a copy of the stored examples."""
        if rows.indices(len(self)) == (0, len(self), 1):
            return self  # which avoids a second copy of the inputs
        return ArrayDataset(self._stored, self.labels[rows], self._transform, self._places(rows), self._names)

    def _blocks(self, size: int) -> list[slice]:
        return [slice(start, min(start + size, len(self))) for start in range(0, len(self), size)]

    def _places(self, rows: Rows) -> Rows:
        """Indices among the stored examples of the examples ``rows``."""
        if isinstance(self._rows, Tensor):
            return self._rows[rows]
        return rows if _is_all(self._rows) else torch.arange(len(self._stored))[self._rows][rows]

    def _made(self, rows: Rows, device: Any = None) -> Tensor:
        """The inputs of the examples ``rows``, transformed from the stored examples."""
        places = self._places(rows)
        if isinstance(self._stored, Tensor):
            stored = self._stored[places]
        else:  # a copy in memory, which may be written to
            picked = self._stored[places if isinstance(places, slice) else places.numpy()]
            stored = torch.from_numpy(np.array(picked, picked.dtype.newbyteorder("=")))
        stored = stored.to(device)
        return stored if self._transform is None else self._transform(stored)


class LoaderDataset(Dataset):
    """A loader whose inputs are too large to be kept: every pass reads the loader again.

    Every pass begins with the random state of the first pass, so that a shuffling loader repeats its order. The random
    state of the program, and the state of the loader's own generators, do not change.

    Args:
        name: Name of the data set in error messages.
        loader: An iterable of pairs (inputs, labels), such as a ``DataLoader``.
        start: Random state at the beginning of a pass.
        shape: Shape of the inputs of one example.
        labels: Labels (n,).
    """

    def __init__(
        self, name: str, loader: Iterable[Any], start: _RandomState, shape: tuple[int, ...], labels: Tensor
    ) -> None:
        self._name, self._loader, self._start = name, loader, start
        self.shape, self.labels = shape, labels
        self._names = _class_names(loader)
        self._inputs = _Inputs(small=False)

    def take(self, rows: Rows = _ALL, device: Any = None) -> tuple[Tensor, Tensor]:
        """Read the examples ``rows``; this takes a pass over the loader unless examples can be read one by one."""
        inputs = self._inputs.get()
        if inputs is None and _is_all(rows):
            inputs = self._inputs.keep(_joined(len(self), (batch[0] for batch in self.batches(_LOADED))))
        chosen = self._picked(torch.arange(len(self))[rows]) if inputs is None else _rows_of(inputs, rows)
        return chosen.to(device), self.labels[rows].to(device)

    def batches(self, size: int, device: Any = None) -> Iterator[Batch]:
        """Read inputs, labels and row numbers, ``size`` rows at a time for any batch size of the loader."""
        check_int("size", size, 1)
        done = read = 0
        waiting: Tensor | None = None
        for inputs, labels in _pairs(self._name, self._loader, copy.copy(self._start)):
            if not torch.equal(labels, self.labels[read : read + len(labels)]):
                raise self._changed(read)
            read += len(labels)
            waiting = inputs if waiting is None else torch.cat([waiting, inputs])
            while done < read and (read - done >= size or read == len(self)):
                rows = torch.arange(done, min(done + size, read))
                yield waiting[: len(rows)].to(device), self.labels[rows].to(device), rows.to(device)
                waiting, done = waiting[len(rows) :], done + len(rows)
        if read < len(self):
            raise self._changed(read)

    def part(self, rows: slice) -> Dataset:
        """Make a data set of the examples ``rows``, whose inputs are kept in memory."""
        return ArrayDataset(*self.take(rows), names=self._names)

    def _changed(self, row: int) -> BadInput:
        return BadInput(
            f"{self._name}: the loader must give the same examples at every pass; it differs from row {row} on. Give "
            "(inputs, labels), or a loader that draws from the generators of torch, numpy or Python"
        )

    def _picked(self, rows: Tensor) -> Tensor:
        loader = self._loader
        if isinstance(loader, DataLoader) and isinstance(loader.sampler, SequentialSampler) and loader.batch_size:
            with copy.copy(self._start).used():
                return _pair(self._name, loader.collate_fn([loader.dataset[int(row)] for row in rows]))[0]
        order = rows.argsort()
        parts, begin = [], 0
        for inputs, _, numbers in self.batches(_LOADED):
            stop = int(torch.searchsorted(rows[order], numbers[-1], right=True))
            parts.append(inputs[rows[order[begin:stop]] - numbers[0]])
            begin = stop
        return torch.cat(parts)[order.argsort()]


class _Inputs:
    """The inputs of all examples once they were computed: kept if ``small``, else referenced weakly."""

    def __init__(self, small: bool) -> None:
        self.small = small
        self._kept: Tensor | None = None
        self._shared: weakref.ref[Tensor] | None = None

    def get(self) -> Tensor | None:
        return self._kept if self._shared is None else self._shared()

    def keep(self, inputs: Tensor) -> Tensor:
        if self.small:
            self._kept = inputs
        else:
            self._shared = weakref.ref(inputs)
        return inputs


def as_dataset(name: str, given: DatasetLike) -> Dataset:
    """Make a data set from arrays, a memory map, a torch ``Dataset`` or a loader.

    A loader is read once here. The inputs of a loader are kept if they are small, and read again at every pass
    otherwise. The inputs of an iterator, which cannot be read again, are always kept.

    Args:
        name: Name of the data set in error messages.
        given: A `Dataset`; a pair (inputs, labels) of tensors, arrays or memory maps; a torch ``Dataset`` of pairs; a
            ``DataLoader``, or another iterable of pairs of tensors, such as a list of batches.

    Returns:
        The data set; ``given`` itself if it is a `Dataset`.

    Raises:
        BadInput: If ``given`` is none of these, or the numbers of inputs and labels differ.

    Example:
        >>> data = as_dataset("train", (np.zeros((5, 2), np.uint8), [0, 1, 2, 1, 0]))
        >>> len(data), data.shape, data.classes
        (5, (2,), 3)
        >>> [rows.tolist() for _, _, rows in data.batches(2)]
        [[0, 1], [2, 3], [4]]
    """
    if isinstance(given, Dataset):
        return given
    if isinstance(given, TensorDataset):
        given = given.tensors
    elif isinstance(given, TorchDataset):
        given = DataLoader(given, _LOADED)
    if _are_batches(given) or (
        isinstance(given, Iterable) and not isinstance(given, tuple | list | Tensor | np.ndarray | str)
    ):
        return _of_loader(name, given)
    pair: Any = given
    try:
        inputs, labels = pair
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"{name} must be a pair (inputs, labels) or a loader of such pairs, as DataLoader(dataset, 256) is; "
            f"got {type(given).__name__}"
        ) from error
    read_only = isinstance(inputs, np.memmap) or (isinstance(inputs, np.ndarray) and not inputs.flags.writeable)
    # torch has no tensors that must not be written to.
    x = _tensor(name, "inputs", inputs[:1].copy() if read_only else inputs)
    return _checked(name, inputs if read_only else x, _tensor(name, "labels", labels))


def _checked(name: str, inputs: Tensor | NDArray[Any], labels: Tensor, names: Sequence[str] | None = None) -> Dataset:
    if inputs.ndim == 0 or len(inputs) == 0 or labels.shape != inputs.shape[:1]:
        raise BadInput(
            f"{name} must be inputs (n, ...) and labels (n,); got {tuple(inputs.shape)} and {tuple(labels.shape)}"
        )
    return ArrayDataset(inputs, _integer_labels(labels), names=names)


def _are_batches(given: Any) -> bool:
    """Whether a list holds batches, pairs of tensors (b, ...) and (b,), and is not itself a pair (inputs, labels)."""
    return (
        isinstance(given, tuple | list)
        and len(given) > 0
        and all(isinstance(batch, tuple | list) and len(batch) == 2 for batch in given)
        and all(isinstance(part, Tensor) and part.ndim > 0 for batch in given for part in batch)
        and all(batch[0].shape[:1] == batch[1].shape for batch in given)
    )


def _of_loader(name: str, loader: Iterable[Any]) -> Dataset:
    start = _RandomState(loader)
    once = isinstance(loader, Iterator)
    kept: list[Tensor] = []
    labels: list[Tensor] = []
    size = 0
    shape: tuple[int, ...] | None = None
    for inputs, y in _pairs(name, loader, copy.copy(start)):
        if inputs.shape[1:] != (shape or inputs.shape[1:]):
            raise BadInput(f"{name}: all examples must have one shape; got {shape} and {tuple(inputs.shape[1:])}")
        shape = tuple(inputs.shape[1:])
        labels.append(y)
        size += inputs.nbytes
        if size <= _SMALL or once:
            kept.append(inputs)
        else:
            kept.clear()
    if shape is None and once:
        raise BadInput(
            f"{name}: the iterator is at its end, so it was already read, and an iterator can be read once; give a "
            "DataLoader or a list of batches"
        )
    if shape is None:
        raise BadInput(f"{name}: the loader must give pairs of tensors (inputs, labels); it gave none")
    if kept:
        return _checked(name, torch.cat(kept), torch.cat(labels), _class_names(loader))
    return LoaderDataset(name, loader, start, shape, torch.cat(labels))


def _pairs(name: str, loader: Iterable[Any], state: _RandomState) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of one pass; the random state of the program does not change."""
    with state.used():
        iterator = iter(loader)
    while True:
        with state.used():
            batch = next(iterator, _ALL)
        if batch is _ALL:
            return
        yield _pair(name, batch)


def _pair(name: str, batch: Any) -> tuple[Tensor, Tensor]:
    try:
        inputs, labels = batch
    except (TypeError, ValueError) as error:
        raise BadInput(f"{name}: the loader must give pairs of tensors (inputs, labels); {error}") from error
    if not isinstance(inputs, Tensor) or not isinstance(labels, Tensor) or inputs.shape[:1] != labels.shape:
        kinds = " and ".join(
            f"{tuple(part.shape)}" if isinstance(part, Tensor) else type(part).__name__ for part in (inputs, labels)
        )
        raise BadInput(f"{name}: the loader must give pairs of tensors (inputs, labels), as many of both; got {kinds}")
    return inputs, _integer_labels(labels)


def _tensor(name: str, what: str, value: Any) -> Tensor:
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise BadInput(
            f"{name}: {what} must be a tensor or an array of numbers; got {type(value).__name__} ({reason[:120]}). "
            "Several batches go into a DataLoader, or are joined with torch.cat"
        ) from error


def _integer_labels(labels: Tensor) -> Tensor:
    """Convert integer labels to int64, since ranks exchange labels as bytes and must use one type."""
    kept = labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool
    return labels if kept else labels.long()


def _class_names(loader: Any) -> tuple[str, ...] | None:
    """The class names of a loader's torch Dataset, which torchvision's data sets have."""
    names = getattr(getattr(loader, "dataset", None), "classes", None)
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def _is_all(rows: Rows) -> bool:
    return isinstance(rows, slice) and rows == _ALL


def _bytes(tensor: Tensor) -> bytes:
    return tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def _rows_of(tensor: Tensor, rows: Rows) -> Tensor:
    """Chosen rows; all rows are the tensor itself, since a view would not keep `_Inputs`' weak reference alive."""
    return tensor if _is_all(rows) else tensor[rows]


def _joined(count: int, parts: Iterator[Tensor]) -> Tensor:
    """Concatenate consecutive ``parts`` to (count, ...) in the memory layout of the parts."""
    begin, joined = 0, None
    for part in parts:
        if joined is None:
            strides = (part[0].numel(), *part.stride()[1:])
            joined = torch.empty_strided((count, *part.shape[1:]), strides, dtype=part.dtype, device=part.device)
        joined[begin : begin + len(part)] = part
        begin += len(part)
    assert joined is not None
    return joined


class _RandomState:
    """Random state of torch, Python and numpy, and of a loader's own generators, at one point of a pass."""

    def __init__(self, loader: Any) -> None:
        holders = (loader, getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None))
        generators = (getattr(holder, "generator", None) for holder in holders)
        self._own = [generator for generator in generators if isinstance(generator, torch.Generator)]
        self._state = self._read()

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Draw from this state, which advances; the random state of the program does not change."""
        outside = self._read()
        with torch.random.fork_rng():
            self._write(self._state)
            try:
                yield
            finally:
                self._state = self._read()
                self._write(outside)

    def _read(self) -> tuple[Any, ...]:
        own = [generator.get_state() for generator in self._own]
        return torch.get_rng_state(), random.getstate(), np.random.get_state(), own  # noqa: NPY002 - the user's state

    def _write(self, state: tuple[Any, ...]) -> None:
        torch.set_rng_state(state[0])
        random.setstate(state[1])
        np.random.set_state(state[2])  # noqa: NPY002
        for generator, own in zip(self._own, state[3], strict=True):
            generator.set_state(own)
