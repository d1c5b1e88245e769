"""Preparation of a stored data set for training: subset, validation part, standardisation, label noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surefoot.data.sets import StoredData
from surefoot.dataset import ArrayDataset, Dataset
from surefoot.errors import BadInput
from surefoot.seeds import derive
from surefoot.validation import check_int

__all__ = ["Prepared", "Standardise", "mean_and_std", "prepare"]

_BLOCK = 1 << 20  # numbers that are float64 at a time; numpy does not split sums of fewer than 128 numbers

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Standardise:
    """Transform stored examples (b, ...) to inputs (stored − ``shift``) / ``scale``, images with channels first.

    Attributes:
        shift: Subtracted numbers, float64, of the shape of an input or broadcast to it.
        scale: Divisors, float64, of the shape of an input or broadcast to it.
        dtype: Type of the inputs, which are rounded to float32 first.

    Example:
        >>> Standardise(np.array([1.0]), np.array([2.0]))(torch.tensor([[3.0], [5.0]]))
        tensor([[1.],
                [2.]])
    """

    shift: NDArray[np.float64]
    scale: NDArray[np.float64]
    dtype: torch.dtype = torch.float32

    def __call__(self, stored: Tensor) -> Tensor:
        """Inputs of the examples ``stored``, on the device of ``stored``."""
        shift, scale = (torch.from_numpy(array).to(stored.device) for array in (self.shift, self.scale))
        wide = _channels_first(stored).to(torch.float64, copy=True)
        return wide.sub_(shift).div_(scale).to(torch.float32).to(self.dtype)


@dataclass(frozen=True)
class Prepared:
    """The training, validation and test parts of the data as data sets.

    Inputs are float32 unless another type was asked for; images have the shape (c, h, w).

    Attributes:
        train: Training part.
        val: Validation part; None if no example was held out.
        test: Test part.
        classes: Number of classes.
        facts: The choices: name, sizes, order, standardisation and number of noisy labels.
        standardise: Transform from stored examples to inputs.
        unit: The stored number that stands for 1 (255 for bytes).
    """

    train: Dataset
    val: Dataset | None
    test: Dataset
    classes: int
    facts: dict[str, Any]
    standardise: Standardise
    unit: float

    def radius(self, eps: float) -> Tensor:
        """Convert a radius in units of the raw data to the units of the inputs, for each feature.

        Args:
            eps: Radius in units of the raw data: pixels from 0 to 1 for bytes.

        Returns:
            Radii, float64, of the shape of an input.
        """
        return torch.from_numpy(np.broadcast_to(eps * self.unit / self.standardise.scale, self.shape).copy())

    def raw(self, inputs: Tensor) -> NDArray[Any]:
        """Convert inputs back to the numbers of the raw data, from 0 to 1 for bytes.

        Args:
            inputs: Inputs (n, ...).

        Returns:
            Raw examples (n, ...), float64, images with channels first.
        """
        shift, scale = self.standardise.shift, self.standardise.scale
        return np.asarray((inputs.double().numpy() * scale + shift) / self.unit)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the inputs of one example."""
        return self.train.shape


def prepare(
    data: StoredData,
    train: int | None = None,
    val: int = 0,
    test: int | None = None,
    order: str = "random",
    standardise: str = "feature",
    noisy: float = 0.0,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Prepared:
    """Choose a subset of a data set, standardise its inputs and add label noise.

    The arrays of ``data`` are not copied as a whole; a batch is standardised when it is read.

    Args:
        data: The data set as it is stored.
        train: Number of training examples; None takes all that are not held out for validation.
        val: Number of validation examples, which come from the training set after the training examples.
        test: Number of test examples; None takes all.
        order: ``"random"`` draws the training and validation examples by ``seed``; ``"first"`` takes them from the
            front, as Cohen et al. (2021) do with CIFAR-10.
        standardise: ``"feature"``, ``"channel"`` or ``"none"``: the axes whose mean and standard deviation over the
            chosen training examples are used.
        noisy: Probability in [0, 1) that a training label is replaced by another class, drawn uniformly.
        seed: Seed of the subset and of the label noise.
        dtype: Type of the inputs.

    Returns:
        The parts of the data.

    Raises:
        BadInput: If a size exceeds the data, or another argument is out of its range.

    Example:
        >>> from surefoot.data.sets import load_set
        >>> prepared = prepare(load_set("digits", None), train=100, val=20)
        >>> len(prepared.train), len(prepared.val), len(prepared.test), prepared.shape
        (100, 20, 359, (1, 8, 8))

    References:
        Cohen et al. (2021), "Gradient Descent on Neural Networks Typically Occurs at the Edge of Stability".
    """
    total = len(data.x_train)
    val = check_int("val", val, 0, total - 1)
    train = check_int("train", total - val if train is None else train, 1, total - val)
    test = check_int("test", len(data.x_test) if test is None else test, 1, len(data.x_test))
    if order not in ("random", "first"):
        raise BadInput(f"order must be 'random' or 'first'; got {order!r}")
    if not 0 <= noisy < 1:
        raise BadInput(f"noisy must lie in [0, 1); got {noisy!r}")
    random = np.random.default_rng(derive(seed, "subset"))
    rows = random.permutation(total) if order == "random" else np.arange(total)
    chosen, held_out = rows[:train], rows[train : train + val]
    unit = 255.0 if data.x_train.dtype == np.uint8 else 1.0
    scaled = Standardise(*_standard(data.x_train, chosen, standardise, unit), dtype)
    labels = data.y_train[chosen].copy()
    changed = np.random.default_rng(derive(seed, "noise")).random(train) < noisy
    others = np.random.default_rng(derive(seed, "noise", 1)).integers(1, data.classes, train)
    labels[changed] = (labels[changed] + others[changed]) % data.classes

    facts = {
        "data": data.name,
        "train": train,
        "val": val,
        "test": test,
        "order": order,
        "standardise": standardise,
        "noisy_labels": int(changed.sum()),
    }
    names = tuple(map(str, range(data.classes)))

    def part(stored: NDArray[Any], y: NDArray[np.int64], rows: Tensor | slice) -> Dataset:
        stored = stored if stored.dtype.itemsize <= 8 else stored.astype(np.float64)  # torch's widest float
        return ArrayDataset(stored, torch.from_numpy(y.copy()), scaled, rows, names)

    return Prepared(
        part(data.x_train, labels, torch.from_numpy(chosen)),
        part(data.x_train, data.y_train[held_out], torch.from_numpy(held_out)) if val else None,
        part(data.x_test, data.y_test[:test], slice(0, test)),
        data.classes,
        facts,
        scaled,
        unit,
    )


def _channels_first(stored: Tensor) -> Tensor:
    if stored.ndim != 4:
        return stored
    if stored.shape[3] == 1:  # plain strides: convolutions would take a permuted grey image for channels-last
        return stored.reshape(len(stored), 1, *stored.shape[1:3])
    return stored.permute(0, 3, 1, 2)


def _standard(
    images: NDArray[Any], rows: NDArray[np.int64], how: str, unit: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if how == "none":
        return np.zeros(()), np.array(unit)  # bytes become [0, 1]; other numbers stay
    if how == "channel" and images.ndim != 4:
        raise BadInput(
            f"standardise='channel' needs images; these inputs have shape {images.shape[1:]}; take 'feature'"
        )
    if how not in ("feature", "channel"):
        raise BadInput(f"standardise must be 'feature', 'channel' or 'none'; got {how!r}")
    shift, scale = mean_and_std(images, rows, how == "channel")
    # A constant feature becomes 0; the divisor 1 prevents a division by zero.
    scale = np.where(scale > 1e-12, scale, 1.0)
    if how == "channel":
        return shift[:, None, None], scale[:, None, None]
    return (shift.transpose(2, 0, 1), scale.transpose(2, 0, 1)) if images.ndim == 4 else (shift, scale)


def mean_and_std(examples: NDArray[Any], rows: NDArray[np.int64], per_channel: bool = False) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each feature, or of each channel (the last axis), over the chosen rows.

    The results are bit-exact those of ``x.mean`` and ``x.std`` of a float64 copy ``x``, for every block size. To that
    end numbers are added in numpy's order: one after another for several sums, pairwise for a single sum.

    Args:
        examples: Stored examples (m, ...), in C order.
        rows: Indices (n,) of the chosen examples.
        per_channel: Whether there is one mean per index of the last axis, instead of one per number of an example.

    Returns:
        Means and standard deviations, each float64 of the shape of an example or of its last axis.

    Example:
        >>> mean_and_std(np.array([[1, 4], [3, 4], [9, 9]]), np.array([0, 1]))
        (array([2., 4.]), array([1., 0.]))
    """
    shape = examples.shape[-1:] if per_channel else examples.shape[1:]
    kept = int(np.prod(shape))
    per_example = int(np.prod(examples.shape[1:])) // kept  # lines of ``kept`` numbers
    count = len(rows) * per_example

    def lines(start: int, stop: int) -> Floats:
        first = start // per_example
        block = examples[rows[first : -(-stop // per_example)]].reshape(-1, kept)
        return block[start - first * per_example : stop - first * per_example].astype(np.float64)

    def mean(of: Callable[[Floats], Floats]) -> Floats:
        total = _in_pairs(lines, of, 0, count) if kept == 1 else _in_order(lines, of, count, kept)
        return total / count

    centre = mean(lambda x: x)
    return centre.reshape(shape), np.sqrt(mean(lambda x: (x - centre) ** 2)).reshape(shape)


def _in_order(lines: Callable[[int, int], Floats], of: Callable[[Floats], Floats], count: int, kept: int) -> Floats:
    total = np.zeros(kept)
    size = max(1, _BLOCK // kept)
    for start in range(0, count, size):
        total = np.add.reduce(np.vstack([total, of(lines(start, min(count, start + size)))]), axis=0)
    return total


def _in_pairs(lines: Callable[[int, int], Floats], of: Callable[[Floats], Floats], start: int, stop: int) -> Floats:
    """Sum pairwise as numpy does, which splits a long sum in halves at a multiple of 8."""
    if stop - start <= _BLOCK:
        return np.asarray(np.add.reduce(of(lines(start, stop)), axis=0))
    half = (stop - start) // 2
    middle = start + half - half % 8
    return _in_pairs(lines, of, start, middle) + _in_pairs(lines, of, middle, stop)
