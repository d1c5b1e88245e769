"""What a callback hands on to the `Tracker` that it makes when training begins: options, and this rank's rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict

from torch import Tensor

from surefoot.errors import BadInput
from surefoot.loss import LossLike
from surefoot.ranks import all_ranks
from surefoot.training.loggers import Logger
from surefoot.training.splits import Split, as_split
from surefoot.training.tracker import Cadence
from surefoot.validation import check_options

__all__ = ["Options", "check_callback_options", "own_rows"]


class Options(TypedDict, total=False):
    """Arguments of `surefoot.Tracker` by name; those that a framework knows itself are not among them."""

    loss: LossLike
    every: int | Cadence | Mapping[str, int | Cadence] | None
    budget: float | None
    batch_size: int | None
    out: str | Path | None
    seed: int
    eps: Any
    norm: str
    loggers: Iterable[Logger]
    sample: int | None


def check_callback_options(options: Options) -> Options:
    """``options``, or a clear error for a name that is none of them: now, not when training begins."""
    check_options("SurefootCallback", options, list(Options.__annotations__))
    return options


def own_rows(name: str, given: Split) -> tuple[Tensor, Tensor]:
    """This rank's share of inputs and labels that every rank was given whole; all of them for a process alone."""
    ranks = all_ranks()
    with ranks.agreeing():
        inputs, labels = as_split(name, given)
    if not ranks.alike(inputs, labels):
        raise BadInput(
            f"{name} must be the same rows in the same order on every rank, which reads its share of them, and they "
            "differ; give (inputs, labels), or a loader that neither shuffles, augments nor samples by rank"
        )
    if len(inputs) < ranks.count:
        raise BadInput(f"{name} must have a row for each of the {ranks.count} ranks; got {len(inputs)}")
    rows = ranks.share(len(inputs))
    return inputs[rows], labels[rows]
