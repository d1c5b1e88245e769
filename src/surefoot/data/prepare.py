"""From a data set to tensors: a subset by size and seed, a validation part, standardised inputs, noisy labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surefoot.data.sets import DataSet
from surefoot.errors import BadInput
from surefoot.seeds import derive
from surefoot.validation import check_int

__all__ = ["Prepared", "Split", "prepare"]

Split = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Prepared:
    """Inputs float32 (n, ...), images as (n, c, h, w), and labels int64 (n,), of each part of the data.

    ``facts`` says what was chosen: sizes, classes, share of noisy labels, standardisation. An input is
    (raw − ``shift``) / ``scale``, with raw numbers as stored, of which ``unit`` make 1 (255 for bytes).
    """

    train: Split
    val: Split | None
    test: Split
    classes: int
    facts: dict[str, Any]
    shift: NDArray[Any]
    scale: NDArray[Any]
    unit: float

    def radius(self, eps: float) -> Tensor:
        """A radius in units of the raw data (pixels from 0 to 1, for bytes) as one of the inputs, for each feature."""
        return torch.from_numpy(np.broadcast_to(eps * self.unit / self.scale, self.shape).copy())

    def raw(self, inputs: Tensor) -> NDArray[Any]:
        """Inputs (n, ...) in the raw data's numbers again, from 0 to 1 for bytes."""
        return np.asarray((inputs.double().numpy() * self.scale + self.shift) / self.unit)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one example."""
        return tuple(self.train[0].shape[1:])


def prepare(
    data: DataSet,
    train: int | None = None,
    val: int = 0,
    test: int | None = None,
    order: str = "random",
    standardise: str = "feature",
    noisy: float = 0.0,
    seed: int = 0,
) -> Prepared:
    """Cut, shuffle and scale ``data``.

    Args:
        train, val, test: sizes; validation examples come from the training set, after the training ones. All of what
            is there if not given.
        order: ``"random"`` draws the training and validation examples by ``seed``; ``"first"`` takes them from the
            front, as Cohen et al. 2021 do with CIFAR-10.
        standardise: ``"feature"``, ``"channel"`` or ``"none"``, by mean and deviation of the chosen training examples.
        noisy: share of training labels replaced by another class.
        seed: of the subset and of the noise.
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
    chosen, held = rows[:train], rows[train : train + val]
    x = _channels_first(data.x_train[chosen])
    unit = 255.0 if data.x_train.dtype == np.uint8 else 1.0
    shift, scale = _standard(x, standardise, unit)
    labels = data.y_train[chosen].copy()
    changed = np.random.default_rng(derive(seed, "noise")).random(train) < noisy
    others = np.random.default_rng(derive(seed, "noise", 1)).integers(1, data.classes, train)
    labels[changed] = (labels[changed] + others[changed]) % data.classes

    def ready(images: NDArray[Any], y: NDArray[np.int64]) -> Split:
        return torch.from_numpy(((images - shift) / scale).astype(np.float32)), torch.from_numpy(y.copy())

    facts = {
        "data": data.name,
        "train": train,
        "val": val,
        "test": test,
        "order": order,
        "standardise": standardise,
        "noisy_labels": int(changed.sum()),
    }
    return Prepared(
        ready(x, labels),
        ready(_channels_first(data.x_train[held]), data.y_train[held]) if val else None,
        ready(_channels_first(data.x_test[:test]), data.y_test[:test]),
        data.classes,
        facts,
        shift,
        scale,
        unit,
    )


def _channels_first(images: NDArray[Any]) -> NDArray[Any]:
    images = images.astype(np.float64)
    return images.transpose(0, 3, 1, 2) if images.ndim == 4 else images


def _standard(x: NDArray[Any], how: str, unit: float) -> tuple[NDArray[Any], NDArray[Any]]:
    if how == "none":
        return np.zeros(()), np.array(unit)  # bytes to [0, 1]; other numbers as they are
    if how == "channel" and x.ndim != 4:
        raise BadInput(f"standardise='channel' needs images; these inputs have shape {x.shape[1:]}; take 'feature'")
    if how not in ("feature", "channel"):
        raise BadInput(f"standardise must be 'feature', 'channel' or 'none'; got {how!r}")
    axes = 0 if how == "feature" else (0, 2, 3)
    shift, scale = x.mean(axes, keepdims=True)[0], x.std(axes, keepdims=True)[0]
    # A feature that never varies is left at 0 instead of being divided by nothing.
    return shift, np.where(scale > 1e-12, scale, 1.0)
