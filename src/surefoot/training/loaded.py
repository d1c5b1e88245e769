"""Loads a run from its folder: its spec, its data, and its model with the weights of a checkpoint."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from surefoot.data.prepare import Prepared, prepare
from surefoot.data.sets import load_set
from surefoot.ensembles.deep import DeepEnsemble
from surefoot.errors import BadInput
from surefoot.files import check_regular
from surefoot.runs.checkpoint import Checkpoint, load_best, load_checkpoint, load_newest
from surefoot.runs.reader import RunReader
from surefoot.runs.records import RUN_FILES
from surefoot.training.assemble import fresh_model
from surefoot.training.spec import RunSpec, members_of, spec_of

__all__ = ["LoadedRun", "open_run"]


@dataclass(frozen=True)
class LoadedRun:
    """A run that was loaded from its folder.

    Attributes:
        folder: The run's folder.
        spec: The run's specification.
        data: The prepared data of the run.
        model: The model in eval mode.
        step: The step of the model's weights.
    """

    folder: Path
    spec: RunSpec
    data: Prepared
    model: nn.Module
    step: int


def open_run(path: Path, data_root: Path | None = None, best: bool = False) -> LoadedRun:
    """Load a run from its folder or from one of its checkpoint files.

    The model of a deep ensemble consists of its members, whose folders are next to the folder of the ensemble.

    Args:
        path: The run's folder, or one of its ``.safetensors`` files.
        data_root: Folder of data sets; None suffices for embedded ones.
        best: Whether to load the best weights of the folder instead of the newest checkpoint.

    Returns:
        The run.

    Raises:
        BadInput: If there is no intact checkpoint, the spec cannot be read, the data set is missing or differs from
            the one of the run, or the checkpoint does not fit the model.
    """
    # The name of the folder is checked against the spec, and "." is no name.
    is_file = path.suffix == ".safetensors"
    return _open(path.parent.resolve() / path.name if is_file else path.resolve(), data_root, best)


def _open(path: Path, data_root: Path | None, best: bool) -> LoadedRun:
    folder = path.parent if path.suffix == ".safetensors" else path
    if best and folder is not path:
        raise BadInput(f"best weights are those of a run's folder; got the file {path.name!r}; give one of the two")
    if not (folder / "spec.json").exists():
        _checkpoint(path, best)  # says what is missing
    check_regular(folder, RUN_FILES)
    reader = RunReader(folder)
    if not reader.spec:
        raise BadInput(
            f"{str(folder)!r} holds no readable spec.json; give the folder of one run, as surefoot status lists them"
        )
    spec = spec_of(reader.spec, "spec.json")
    raw = load_set(spec.data.name, data_root)
    if re.fullmatch(r"[0-9a-f]{16}", folder.name) and folder.name != spec.run_id(raw.digest()):
        raise BadInput(f"the data set {spec.data.name!r} here is not the one that run {folder.name} was trained on")
    options = spec.data.model_dump(exclude={"name", "augment"})
    data = prepare(raw, **options, seed=spec.seed, dtype=getattr(torch, spec.dtype))
    if spec.ensemble is not None and spec.ensemble.name == "deep":
        places = [folder.parent / member.run_id(raw.digest()) for member in members_of(spec)]
        members = [_open(place, data_root, best) for place in places]
        ensemble = DeepEnsemble([member.model for member in members]).eval()
        return LoadedRun(folder, spec, data, ensemble, max(member.step for member in members))
    tensors, meta = _checkpoint(path, best)
    model = fresh_model(spec, data)
    weights = {name.removeprefix("model/"): value for name, value in tensors.items() if _of_model(name)}
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise BadInput(f"the checkpoint in {str(folder)!r} does not fit the model of its spec") from error
    return LoadedRun(folder, spec, data, model.eval(), int(meta["step"]))


def _of_model(name: str) -> bool:
    """Whether a tensor is of the model; full checkpoints also have those of optimizer, tracker and loss."""
    return not name.startswith(("rule/", "tracker/", "loss/"))


def _checkpoint(path: Path, best: bool) -> Checkpoint:
    if path.suffix == ".safetensors":
        checkpoint, what = load_checkpoint(path), path.name
    elif best:
        checkpoint, what = load_best(path), "best.safetensors"
    else:
        checkpoint, what = load_newest(path), "checkpoint"
        ended = RunReader(path).result.get("step")
        if checkpoint is not None and isinstance(ended, int) and checkpoint[1]["step"] != ended:
            raise BadInput(
                f"the last checkpoint of {path.name} is corrupted: the run ended at step {ended:,}, and what is left "
                f"is of step {checkpoint[1]['step']:,}; name its .safetensors file to look at that one"
            )
    if checkpoint is None:
        raise BadInput(f"there is no intact {what} in {str(path.parent if path.suffix == '.safetensors' else path)!r}")
    return checkpoint
