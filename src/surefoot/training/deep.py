"""A deep ensemble as a run: its members are runs in the same folder, and its result is that of their mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from surefoot.errors import RunLocked
from surefoot.forward import CHUNK
from surefoot.metrics import ece
from surefoot.posthoc.temperature import Temperature
from surefoot.predictions import Predictions
from surefoot.training.groups import calibration_of, margins_of
from surefoot.training.loaded import LoadedRun
from surefoot.training.spec import RunSpec, members_of

__all__ = ["read_mean", "train_members"]


def train_members(spec: RunSpec, one: Callable[[int, RunSpec], Any]) -> Any | None:
    """Train the members of a deep ensemble one after another.

    Members that another process is training are skipped.

    Args:
        spec: Specification of the ensemble.
        one: Function (number of the member, its spec) → its result, which trains one member.

    Returns:
        The first result that is not ``"finished"``; None if all members finished.

    Raises:
        RunLocked: If another process is training a member, after all other members finished.
    """
    locked: RunLocked | None = None
    for place, member in enumerate(members_of(spec)):
        try:
            result = one(place, member)
        except RunLocked as error:
            locked = error
            continue
        if result.outcome != "finished":
            return result
    if locked is not None:
        raise locked
    return None


def read_mean(ensemble: LoadedRun) -> dict[str, Any]:
    """Take one reading of the mean of all members.

    Args:
        ensemble: The loaded ensemble.

    Returns:
        Calibration and margins on each part by name; with validation examples also the temperature and the test ECE
        after temperature scaling.
    """
    parts = {"train": ensemble.data.train, "test": ensemble.data.test, "val": ensemble.data.val}
    predictions = {
        name: Predictions.of(ensemble.model, part, batch_size=CHUNK) for name, part in parts.items() if part is not None
    }
    reading: dict[str, Any] = {"step": ensemble.step}
    for name, p in predictions.items():
        reading |= {**calibration_of(name, p), **margins_of(name, p)}
    if "val" in predictions:
        fitted = Temperature().fit(predictions["val"])
        reading["test.tce"] = float(ece(fitted.apply(predictions["test"])))
        reading["temperature"] = float(fitted.temperature_)
    return reading
