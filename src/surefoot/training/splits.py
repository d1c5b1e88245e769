"""What users give as examples to read: a pair of inputs and labels, or a loader of such pairs."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot.errors import BadInput

__all__ = ["Split", "as_split"]

Split = tuple[Any, Any] | Iterable[Any]


def as_split(name: str, given: Split) -> tuple[Tensor, Tensor]:
    """Inputs (n, ...) and labels (n,) of a pair or of a loader of pairs, or a clear error that begins with ``name``."""
    if not isinstance(given, tuple | list) and isinstance(given, Iterable) and not isinstance(given, Tensor | str):
        given = _gathered(name, given)
    pair: Any = given
    try:
        inputs, labels = pair
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"{name} must be a pair (inputs, labels) or a loader of such pairs, as DataLoader(dataset, 256) is; "
            f"got {type(given).__name__}"
        ) from error
    x, y = _tensor(name, "inputs", inputs), _tensor(name, "labels", labels)
    if x.ndim == 0 or len(x) == 0 or y.shape != x.shape[:1]:
        raise BadInput(f"{name} must be inputs (n, ...) and labels (n,); got {tuple(x.shape)} and {tuple(y.shape)}")
    # Ranks exchange labels, and must mean the same by their bytes.
    return x, y if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool else y.long()


def _tensor(name: str, what: str, value: Any) -> Tensor:
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        said = " ".join(str(error).split())
        raise BadInput(
            f"{name}: {what} must be a tensor or an array of numbers; got {type(value).__name__} ({said[:120]}). "
            "Several batches go into a DataLoader, or are joined with torch.cat"
        ) from error


def _gathered(name: str, loader: Iterable[Any]) -> tuple[Tensor, Tensor]:
    """All batches of a loader, without moving the random state that its shuffling and its data set take from."""
    with _random_kept(loader):
        batches = list(loader)
    try:
        inputs, labels = zip(*batches, strict=True)
        return torch.cat(inputs), torch.cat(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"{name}: the loader must give pairs of tensors (inputs, labels); {error}") from error


@contextlib.contextmanager
def _random_kept(loader: Iterable[Any]) -> Iterator[None]:
    """Generators as they were: torch's, Python's, numpy's and the loader's own, which the training may use too."""
    holders = (loader, getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None))
    held = (getattr(each, "generator", None) for each in holders)
    own = [(each, each.get_state()) for each in held if isinstance(each, torch.Generator)]
    python, arrays = random.getstate(), np.random.get_state()  # noqa: NPY002 - the user's state, not ours
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)  # noqa: NPY002
        for each, state in own:
            each.set_state(state)
