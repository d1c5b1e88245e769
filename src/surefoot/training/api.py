"""`sf.train`: a run from Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from surefoot.training.run import Result, run
from surefoot.training.spec import RunSpec, read_spec, spec_of

__all__ = ["train"]


def train(
    spec: RunSpec | Mapping[str, Any] | str | Path, out: str | Path = "runs", data: str | Path | None = None
) -> Result:
    """Run a spec (a file, tables as in one, or a `RunSpec`) under ``out``, or go on with it; see `surefoot train`."""
    if isinstance(spec, str | Path):
        spec = read_spec(Path(spec))
    elif not isinstance(spec, RunSpec):
        spec = spec_of(dict(spec))
    return run(spec, Path(out), None if data is None else Path(data))
