"""`surefoot.train`: a run from Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from surefoot.data.sets import data_folder
from surefoot.training.run import Result, run
from surefoot.training.spec import RunSpec, read_spec, spec_of

__all__ = ["train"]


def train(
    spec: RunSpec | Mapping[str, Any] | str | Path,
    out: str | Path = "runs",
    data: str | Path | None = None,
    *,
    allow_version_mismatch: bool = False,
) -> Result:
    """Train one run, or resume it where it stopped, as the command ``surefoot train`` does.

    Args:
        spec: A ``.toml`` file, its tables as a mapping, or a `RunSpec`.
        out: Folder of runs; the run's own folder in it is named by the hash of its spec.
        data: Folder of data sets; by default the folder that the environment variable ``SUREFOOT_DATA`` names.
        allow_version_mismatch: Whether to resume under another version of torch or numpy, which may change the run's
            bits.

    Returns:
        The run's folder, how it ended, its last step and its last reading.

    Raises:
        BadInput: If the spec, the data or the folder is not valid; the text names the remedy.
    """
    if isinstance(spec, str | Path):
        spec = read_spec(Path(spec))
    elif not isinstance(spec, RunSpec):
        spec = spec_of(dict(spec))
    return run(spec, Path(out), data_folder(data), allow_version_mismatch=allow_version_mismatch)
