"""``surefoot predict RUN -o FILE.npz``: a run's predictions, for ``evaluate``, ``calibrate`` and other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["predict"]

_PARTS = ("train", "val", "test")


def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or one of its .safetensors files.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the predictions.", metavar="OUT.npz")] = Path(
        "predictions.npz"
    ),
    parts: Annotated[
        str | None, typer.Option(help="train, val, test, with commas between; val and test by default.")
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="The best weights of the run, not the last.")] = False,
    data: Annotated[Path | None, typer.Option(envvar="SUREFOOT_DATA", help="Folder of data sets.")] = None,
) -> None:
    """Write a run's logits and labels on its own data, each part as one set of an .npz file."""
    import numpy as np

    from surefoot.errors import BadInput
    from surefoot.files import replace_file
    from surefoot.forward import CHUNK
    from surefoot.predictions import Predictions
    from surefoot.training.loaded import open_run

    if out.suffix.lower() != ".npz":
        raise BadInput(f"--out must be an .npz file, which holds several sets; got {out.name!r}")
    wanted = None if parts is None else list(dict.fromkeys(part.strip() for part in parts.split(",")))
    if any(part not in _PARTS for part in wanted or ()):
        raise BadInput(f"--parts must be of train, val, test, with commas between; got {parts!r}")
    opened = open_run(run, data, best)
    if wanted is None:
        wanted = ["test"] if opened.data.val is None else ["val", "test"]
    if "val" in wanted and opened.data.val is None:
        raise BadInput(
            "--parts has val, and the run has no validation examples; set data.val in its spec, or leave it out"
        )
    arrays: dict[str, Any] = {}
    for part in wanted:
        predictions = Predictions.of(opened.model, getattr(opened.data, part), batch_size=CHUNK)  # as it was read
        arrays |= {f"{part}_logits": predictions.logits, f"{part}_labels": predictions.labels}
    with replace_file(out) as stream:
        np.savez(stream, **arrays)
    sizes = ", ".join(f"{len(arrays[f'{part}_labels']):,} of {part}" for part in wanted)
    typer.echo(f"{out}: logits and labels of run {opened.folder.name}, step {opened.step:,}: {sizes}")
    if "val" in wanted and "test" in wanted:
        typer.echo(f"next: surefoot calibrate {out} {out} --val-split val --test-split test")
    else:
        typer.echo(f"next: surefoot evaluate {out} --split {wanted[0]}")
