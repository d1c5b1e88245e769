"""A trained model under shift, as the ``[shift]`` table of a run asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from torch import nn

from surefoot.data.prepare import Prepared
from surefoot.forward import CHUNK
from surefoot.posthoc.temperature import Temperature
from surefoot.predictions import Predictions
from surefoot.shift.corruptions import kinds_named, try_kinds
from surefoot.shift.measure import Subject, ood_rows, quantities, shifted_rows
from surefoot.shift.ood import ood_by_name
from surefoot.shift.sources import generated
from surefoot.shift.view import View
from surefoot.training.spec import ShiftSpec

__all__ = ["ood_sets", "read_shift"]


def ood_sets(spec: ShiftSpec, data: Prepared, root: Path | None) -> dict[str, NDArray[Any]]:
    """The foreign pictures that a run will be asked about, read before it trains: a missing file is said at once.

    So is a corruption that these images cannot have, such as another saturation of grey ones.
    """
    view = View(data)
    try_kinds(view.pictures(data.test.part(slice(0, 1))), kinds_named(spec.corruptions))
    return {name: images[: spec.rows] for name, images in ood_by_name(spec.ood, root, view.shape).items()}


def read_shift(
    spec: ShiftSpec, model: nn.Module, data: Prepared, foreign: Mapping[str, NDArray[Any]]
) -> dict[str, float]:
    """``shift.ece``, ``shift.snow.nll``, ``ood.svhn.auroc``, …; with validation data also after a temperature."""
    view = View(data)

    def predict(pictures: NDArray[Any], labels: Any) -> Predictions:
        return Predictions.of(model, view.dataset(pictures, labels), batch_size=CHUNK)

    held = {}
    if data.val is not None:
        held["temperature"] = Temperature().fit(Predictions.of(model, data.val, batch_size=CHUNK))
    subject = Subject("run", predict, held)
    test = data.test.part(slice(spec.rows))
    clean = view.pictures(test), test.labels.numpy()
    rows = shifted_rows([subject], clean, generated(*clean), kinds_named(spec.corruptions), spec.severities)
    return quantities(rows, ood_rows([subject], clean, foreign))
