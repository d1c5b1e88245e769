"""Options that callbacks pass to the `Tracker`, and the rows that this rank reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict

import torch

from surefoot.dataset import Dataset, DatasetLike, as_dataset
from surefoot.errors import BadInput
from surefoot.loss import LossLike
from surefoot.ranks import all_ranks
from surefoot.training.tracker import Logger, Schedule
from surefoot.validation import check_options

__all__ = ["Options", "check_callback_options", "own_rows"]


class Options(TypedDict, total=False):
    """Arguments of `surefoot.Tracker` that a framework does not provide; `surefoot.Tracker` describes them.

    Attributes:
        loss: the loss of the training.
        every: number of steps between readings.
        budget: share of the cost of training that readings may take.
        batch_size: number of rows in a step of the training.
        out: folder of the journal.
        seed: seed of the random numbers of the tracker.
        eps: radius of the ball for robust margins.
        norm: norm of the ball.
        loggers: further loggers of the readings.
        sample: number of examples whose curvature is measured.
    """

    loss: LossLike
    every: int | Schedule | Mapping[str, int | Schedule] | None
    budget: float | None
    batch_size: int | None
    out: str | Path | None
    seed: int
    eps: Any
    norm: str
    loggers: Iterable[Logger]
    sample: int | None


def check_callback_options(options: Options) -> Options:
    """Check the names of options before training begins.

    Args:
        options: options by name.

    Returns:
        The options.

    Raises:
        BadInput: when there is no such option.

    Example:
        >>> check_callback_options({"every": 100})
        {'every': 100}
    """
    check_options("SurefootCallback", options, list(Options.__annotations__))
    return options


def own_rows(name: str, given: DatasetLike) -> Dataset:
    """Return this rank's share of rows that all ranks were given; a single process reads all rows.

    Args:
        name: name of the argument, for errors.
        given: whatever `surefoot.data.as_dataset` takes, such as a pair (inputs, labels); the same on every rank.

    Returns:
        The examples of this rank.

    Raises:
        BadInput: when the rows cannot be read, differ between ranks, or are fewer than the ranks.
    """
    ranks = all_ranks()
    with ranks.agreeing():
        data = as_dataset(name, given)
        if ranks.count == 1:
            return data
        digest = torch.tensor(list(bytes.fromhex(data.digest())))
    if not ranks.alike(digest):
        raise BadInput(
            f"{name} must be the same rows in the same order on every rank, which reads its share of them, and they "
            "differ; give (inputs, labels), or a loader that neither shuffles, augments nor samples by rank"
        )
    if len(data) < ranks.count:
        raise BadInput(f"{name} must have a row for each of the {ranks.count} ranks; got {len(data)}")
    return data.part(ranks.share(len(data)))
