"""``surefoot evaluate FILE``: metrics with intervals, a reliability diagram, and a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli.terminal import check_figure, progress_bar, terminal

__all__ = ["evaluate"]


def evaluate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Predictions: .npz, .csv or .parquet.")],
    bins: Annotated[int, typer.Option(min=1, help="Number of bins.")] = 15,
    split: Annotated[str | None, typer.Option(help="Which set of an .npz with several: test for test_logits.")] = None,
    probs: Annotated[bool, typer.Option("--probs", help="The class columns hold probabilities, not logits.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Also the metrics that take longer.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")] = False,
    figure: Annotated[Path | None, typer.Option(metavar="OUT.svg|png|pdf|html", help="Draw the diagram.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resampling behind the intervals.")] = 0,
) -> None:
    """Print metrics with 95 % intervals, a reliability diagram, and what they mean."""
    from surefoot import evaluation
    from surefoot.predictions import Predictions
    from surefoot.text import plain

    if figure is not None:
        check_figure(figure)
    p = Predictions.load(file, split=split, kind="probs" if probs else None)
    with progress_bar("resampling") as report:
        result = evaluation.evaluate(p, bins, costly=every, seed=seed, name=plain(file.name), progress=report)
    if figure is not None:
        from surefoot.reports.figure import save_figure

        save_figure([(result.name, result.reliability)], figure)
    if as_json:
        import json

        typer.echo(json.dumps(result.to_dict(), allow_nan=False, indent=1))
        return
    result.print_to(terminal())
    if figure is not None:
        typer.echo(f"figure: {plain(str(figure))}")
