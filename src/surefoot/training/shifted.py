"""Evaluation of a trained model under distribution shift, as the ``[shift]`` table of a run specifies."""

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
    """Load the out-of-distribution images of a run, before training starts.

    A missing file is an error at once, and so is a corruption that does not apply to the images, such as a change of
    saturation for grey images.

    Args:
        spec: The table ``shift``.
        data: Prepared data of the run.
        root: Folder of data sets; None suffices for embedded ones.

    Returns:
        Images by name of the data set.

    Raises:
        BadInput: If a data set is missing, or a corruption does not apply to the images.
    """
    view = View(data)
    try_kinds(view.pictures(data.test.part(slice(0, 1))), kinds_named(spec.corruptions))
    return {name: images[: spec.rows] for name, images in ood_by_name(spec.ood, root, view.shape).items()}


def read_shift(
    spec: ShiftSpec, model: nn.Module, data: Prepared, foreign: Mapping[str, NDArray[Any]]
) -> dict[str, float]:
    """Evaluate a model on corrupted and out-of-distribution data.

    Args:
        spec: The table ``shift``.
        model: The trained model.
        data: Prepared data of the run.
        foreign: Out-of-distribution images by name, as `ood_sets` returns them.

    Returns:
        Numbers such as ``shift.ece``, ``shift.snow.nll`` and ``ood.svhn.auroc``; with validation data also those after
        temperature scaling.
    """
    view = View(data)

    def predict(pictures: NDArray[Any], labels: Any) -> Predictions:
        return Predictions.of(model, view.dataset(pictures, labels), batch_size=CHUNK)

    calibrators = {}
    if data.val is not None:
        calibrators["temperature"] = Temperature().fit(Predictions.of(model, data.val, batch_size=CHUNK))
    subject = Subject("run", predict, calibrators)
    test = data.test.part(slice(spec.rows))
    clean = view.pictures(test), test.labels.numpy()
    rows = shifted_rows([subject], clean, generated(*clean), kinds_named(spec.corruptions), spec.severities)
    return quantities(rows, ood_rows([subject], clean, foreign))
